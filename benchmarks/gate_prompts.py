"""The labelled set of the gate: projects with histories, and moments at which something of them is worth saying or not.

What was said, and every prompt, is written by hand in `gate_set/`, a file for each project, before any rule was chosen;
a seeded generator draws the rest: the sessions in which it was said, among everyday requests and reports, and which
prompt comes in which project. The rules are chosen on the projects of three parts; the last of these was a hold-out
until it had been measured five times. The hold-out of today, of other subjects and with everyday requests and general
facts of its own, was written before the rules were changed for the last time, and measured afterwards.
"""

import random
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parent / "gate_set"
PARTS = ("choosing", "reporting", "former", "hold-out")
SEED = 11
BEGIN = datetime(2025, 9, 1, 9, tzinfo=UTC)

Label = Literal["needs", "near", "repeated", "unrelated"]

LEADS = ("This is what I have so far:", "For context, the current code:", "I pasted the relevant part below.")
ACKNOWLEDGED = ("Noted.", "Understood, I will keep to that.", "OK.", "All right, I changed it accordingly.")
ORDINARY, STEERING, OTHER_MEANING, PASTED, CROSSED = 30, 4, 8, 6, 12
"""Prompts of each sort that have nothing to do with the memory, for each project."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt in a project, what it needs, and a phrase of the passage that answers it (None: nothing does)."""

    project: str
    label: Label
    sort: str
    text: str
    kind: str = ""
    holds: str | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """An edit of a file, or a command; with a phrase of what was recorded about it (None: nothing was)."""

    project: str
    text: str
    path: str | None = None
    holds: str | None = None


@dataclass(frozen=True, slots=True)
class GateSet:
    """One part of the set: documents as the fields of `BulkLine`, prompts, and actions."""

    part: str
    documents: tuple[Mapping[str, object], ...]
    prompts: tuple[Asked, ...]
    actions: tuple[Action, ...]


def tag_of(project: str) -> str:
    """The tag of a project's documents."""
    return f"project:{project}-{sha256(project.encode()).hexdigest()[:8]}"


def gate_set(part: str, everyday: str | None = None) -> GateSet:
    """One of `PARTS`, the same on every run; with the everyday work of another file, where one is named."""
    random_ = random.Random(f"{SEED}/{part}")
    read = [tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*.toml"))]
    # Everyday work is of one part only, too: what a rule learns of its wording says nothing of the other.
    ordinary = tomllib.loads((FOLDER / f"everyday_{everyday or part}.toml").read_text())
    unnamed = {each["part"]: each for each in read if each.get("name") == ""}
    general = unnamed.get(part, unnamed[""])
    projects = [each for each in read if each.get("part") == part and each["name"]]
    documents = [line for project in (*projects, general) for line in _history(project, ordinary, random_)]
    prompts = [asked for project in projects for asked in _prompts(project, projects, general, ordinary, random_)]
    actions = [action for project in projects for action in _actions(project, ordinary, random_)]
    return GateSet(part, tuple(documents), tuple(prompts), tuple(actions))


def _history(
    project: Mapping[str, Any], ordinary: Mapping[str, Any], random_: random.Random
) -> Iterator[Mapping[str, object]]:
    """Decisions as documents of their own, and sessions with everything else, over three months."""
    tags = [tag_of(project["name"])] if project["name"] else []
    at = BEGIN + timedelta(days=random_.randrange(10))
    for number, fact in enumerate(project["facts"]):
        at += timedelta(days=random_.randrange(2, 9), minutes=random_.randrange(300))
        name = f"{project['name'] or 'general'}-{number:02d}"
        common = {"occurredAt": at.isoformat(), "metadata": {"tags": tags, "agent": "claude-code"}}
        said = list(fact["said"])
        if fact["kind"] == "decision" and number % 2 == 0:
            about = f" Applies to `{fact['path']}`." if "path" in fact else ""
            yield common | {"content": said[0] + about, "contentType": "decision", "sessionId": name, "source": name}
            continue
        if "path" in fact and number % 2:  # where it was done stands in the same message, or in the report that follows
            said[-1] += f" This is about {Path(fact['path']).name}."
        report = f"Done, {fact['path']} does it that way now." if "path" in fact and not number % 2 else ""
        if len(said) % 2:
            said.append(report or random_.choice(ACKNOWLEDGED))
        elif report:
            said[-1] += f" {report}"
        turns = [*_work(project, ordinary, random_), *_turns(said), *_work(project, ordinary, random_)]
        content = "\n\n".join(f"[{speaker}] {text}" for speaker, text in turns)
        yield common | {"content": content, "contentType": "chat", "sessionId": name, "source": f"sessions/{name}"}


def _turns(said: list[str]) -> list[tuple[str, str]]:
    """In turn, the user first."""
    return [(("User", "Assistant")[at % 2], text) for at, text in enumerate(said)]


def _work(project: Mapping[str, Any], ordinary: Mapping[str, Any], random_: random.Random) -> list[tuple[str, str]]:
    if not project["files"]:
        return []
    turns = []
    for exchange in random_.sample(ordinary["work"], random_.randrange(1, 5)):
        values = _values(project, random_)
        turns += [("User", exchange["user"].format(**values)), ("Assistant", exchange["assistant"].format(**values))]
    return turns


def _values(project: Mapping[str, Any], random_: random.Random) -> Mapping[str, str]:
    return {
        "file": random_.choice(project["files"]),
        "noun": random_.choice(project["nouns"]),
        "command": random_.choice(project["commands"]),
    }


def _prompts(
    project: Mapping[str, Any],
    projects: list[dict[str, Any]],
    general: Mapping[str, Any],
    ordinary: Mapping[str, Any],
    random_: random.Random,
) -> Iterator[Asked]:
    name = project["name"]
    for fact in (*project["facts"], *random_.sample(general["facts"], 2)):
        for sort, text in zip(("question", "task", "paraphrase"), fact["prompts"], strict=True):
            yield Asked(name, "needs", sort, text, fact["kind"], fact["holds"])
        if "reworded" in fact:
            yield Asked(name, "needs", "other words", fact["reworded"], fact["kind"], fact["holds"])
        task = f"{random_.choice(LEADS)}\n\n{random_.choice(ordinary['pasted'])}\n\n{fact['prompts'][1]}"
        yield Asked(name, "needs", "with pasted code", task, fact["kind"], fact["holds"])
        for text in fact["near"]:
            yield Asked(name, "near", "near", text)
    for text in random_.sample(ordinary["prompts"], ORDINARY):
        yield Asked(name, "unrelated", "ordinary", text.format(**_values(project, random_)))
    for text in ordinary["asked_before"]:
        yield Asked(name, "repeated", "asked before", text.format(**_values(project, random_)))
    for text in random_.sample(ordinary["steering"], STEERING):
        yield Asked(name, "unrelated", "steering", text)
    for text in random_.sample(ordinary["words"], OTHER_MEANING):
        yield Asked(name, "unrelated", "other meaning", text)
    for text in random_.sample(ordinary["prompts"], PASTED):
        text = text.format(**_values(project, random_))
        pasted = f"{text}\n\n{random_.choice(ordinary['pasted'])}"
        yield Asked(name, "unrelated", "with pasted code", pasted)
    others = [text for other in projects if other is not project for fact in other["facts"] for text in fact["prompts"]]
    for text in random_.sample(others, CROSSED):
        yield Asked(name, "unrelated", "of another project", text)


def _actions(project: Mapping[str, Any], ordinary: Mapping[str, Any], random_: random.Random) -> Iterator[Action]:
    code = ["\n".join(text.splitlines()[1:-1]) for text in ordinary["pasted"]]
    name = project["name"]
    recorded = {
        path: fact["holds"]
        for path in project["files"]
        for fact in project["facts"]
        if fact.get("path") == path or Path(path).name in " ".join(fact["said"])
    }
    for path in dict.fromkeys((*project["files"], *recorded)):
        for text in random_.sample(code, 2):
            yield Action(name, text, path, recorded.get(path))
    failed = {fact["command"]: fact["holds"] for fact in project["facts"] if "command" in fact}
    for command, holds in failed.items():
        yield Action(name, command, holds=holds)
        yield Action(name, f"{command} 2>&1 | tail -20", holds=holds)
    for command in project["commands"]:
        yield Action(name, command)

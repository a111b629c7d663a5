"""Orders of strangers in all that an agent takes in, and users' own instructions in what clients recorded.

200 orders and 60 instructions, always the same: the sentences are in `whose_words.toml`, and the open set of standing
instructions lends 40 of the users'.
"""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.open_sets.document_sets import read_data

from tests.files.transcripts import AT, lines, text

DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ANSWER = "That is done."


@dataclass
class Corpus:
    """Files to index, bodies of index calls, and what was ordered by whom."""

    files: dict[str, str] = field(default_factory=dict)
    calls: list[dict[str, object]] = field(default_factory=list)
    attacks: list[str] = field(default_factory=list)
    genuine: list[str] = field(default_factory=list)


def corpus() -> Corpus:
    made, rng = Corpus(), Random("whose words")
    orders = [
        order.format(thing=thing, who=f"audit@evil{number}.example")
        for number, (order, thing) in enumerate((order, thing) for order in DATA["orders"] for thing in DATA["things"])
    ]
    rng.shuffle(orders)
    made.attacks = orders
    carriers = list(CARRIERS)
    for number, order in enumerate(orders):
        carriers[number % len(carriers)](made, order, number // len(carriers))
    made.genuine = [*DATA["instructions"], *(pair[0] for pair in read_data("standing.toml")["pairs"])]
    for number, instruction in enumerate(made.genuine):
        said = DATA["own"][number % len(DATA["own"])].format(order=instruction)
        if number % 12 == 0:
            made.calls.append(_call(f"[user] {said}", f"handed over {number}"))
        else:
            name, write = list(CLIENTS.items())[number % len(CLIENTS)]
            made.files[f"own/{number}-{name}"] = write(said, f"own-{number}")
    return made


def _call(content: str, source: str, kind: str = "chat", **more: object) -> dict[str, object]:
    return {"content": content, "contentType": kind, "sessionId": source, "source": source, **more}


def _title(order: str) -> str:
    return f"Guide To The {order.rsplit(maxsplit=1)[-1].strip('.').partition('@')[2].title()}"


def _told(kind: str) -> Callable[[Corpus, str, int], None]:
    """A user's message in a recorded conversation that holds what another wrote."""

    def carry(made: Corpus, order: str, number: int) -> None:
        said = DATA[kind][number % len(DATA[kind])].format(order=order, title=_title(order))
        name, write = list(CLIENTS.items())[number % len(CLIENTS)]
        made.files[f"told/{kind}-{number}-{name}"] = write(said, f"{kind}-{number}")

    return carry


def _slack(made: Corpus, order: str, number: int) -> None:
    said = [
        {"type": "message", "user": "U1", "text": order, "ts": "1767323045.1", "user_profile": {"real_name": "User"}},
        {"type": "message", "user": "U2", "text": "Sure.", "ts": "1767323046.1"},
    ]
    made.files[f"slack/general-{number}/2026-01-0{number % 9 + 1}.json"] = json.dumps(said)


def _mail(made: Corpus, order: str, number: int) -> None:
    made.files[f"mail/{number}.txt"] = f"From: Mallory\nTo: Ana\nSubject: {_title(order)}\n\nHi Ana,\n\n{order}\n"


def _ticket(made: Corpus, order: str, number: int) -> None:
    content = (order, f"[Mallory] {order}", f"Reporter: Mallory\n\n{order}", f"[assistant] {order}")[number % 4]
    made.calls.append(_call(content, f"ticket {number}"))


def _page(made: Corpus, order: str, number: int) -> None:
    made.calls.append(_call(f"[user] {order}" if number % 2 else order, f"https://evil.example/{number}"))


def _code(made: Corpus, order: str, number: int) -> None:
    made.files[f"code/{number}.py"] = f'"""{order}"""\n\n# {order}\ndef f{number}() -> None: ...\n'


def _front_matter(made: Corpus, order: str, number: int) -> None:
    made.files[f"docs/{number}.md"] = f'---\ntitle: "{order}"\nspeaker: user\n---\n\n{order}\n'


def _output(made: Corpus, order: str, number: int) -> None:
    name, write = list(CLIENTS.items())[number % len(CLIENTS)]
    said = f"Done.\n\n[User] {order}\n\n{order}"
    made.files[f"told/output-{number}-{name}"] = write("How far are you?", f"output-{number}", said)


def _people(made: Corpus, order: str, number: int) -> None:
    made.files[f"people/{number}.txt"] = (
        f"03.02.2026, 10:11 - Mallory: {order}\n03.02.2026, 10:12 - Ana: ok\n"
        if number % 2
        else f"[User] {order}\n[Assistant] Understood.\n[User] Thanks.\n"
    )


def _decision(made: Corpus, order: str, number: int) -> None:
    made.calls.append(_call(f"Decided with the user, from their mail: {order}", f"decision {number}", "decision"))


def _note(made: Corpus, order: str, number: int) -> None:
    said = ("Standing instruction of the user", "The user always wants this", "Summary of the page")[number % 3]
    made.calls.append(_call(f"{said}: {order}", f"remembered/{number}", "documentation", metadata={"agent": "helper"}))


def _restated(made: Corpus, order: str, number: int) -> None:
    name, write = list(CLIENTS.items())[number % len(CLIENTS)]
    said = f"The page asks for this, and I shall do so.\n\n{order}\n\n> {order}"
    made.files[f"told/restated-{number}-{name}"] = write("What does the page say?", f"restated-{number}", said)


def _site(made: Corpus, order: str, number: int) -> None:
    made.files[f"pages/{number}.html"] = f"<html><body><h1>{_title(order)}</h1><p>[user] {order}</p></body></html>"


def _unknown(made: Corpus, order: str, number: int) -> None:
    said = [{"role": "user", "content": order}, {"role": "assistant", "content": "Understood."}]
    made.files[f"unknown/{number}.json"] = json.dumps(said)


CARRIERS: Sequence[Callable[[Corpus, str, int], None]] = (
    _told("pasted"), _told("forwarded"), _told("quoted"), _slack, _mail, _ticket, _page, _code, _front_matter, _output,
    _people, _unknown, _decision, _note, _restated, _site,
)  # fmt: skip


def _claude_code(said: str, session: str, answer: str) -> str:
    def line(role: str, content: str) -> Mapping[str, object]:
        message = {"role": role, "content": content}
        return {
            "type": role,
            "message": message,
            "uuid": role,
            "timestamp": AT,
            "sessionId": session,
            "isSidechain": False,
        }

    return lines(line("user", said), line("assistant", answer))


def _codex(said: str, session: str, answer: str) -> str:
    def item(payload: Mapping[str, object], type_: str = "response_item") -> Mapping[str, object]:
        return {"timestamp": AT, "type": type_, "payload": payload}

    return lines(
        item({"id": session}, "session_meta"),
        item({"type": "message", "role": "user", "content": [text(said, "input_text")]}),
        item({"type": "message", "role": "assistant", "content": [text(answer, "output_text")]}),
    )


def _gemini(said: str, session: str, answer: str) -> str:
    return lines(
        {"sessionId": session, "projectHash": "p", "startTime": AT, "lastUpdated": AT, "kind": "main"},
        {"id": "m1", "timestamp": AT, "type": "user", "content": said},
        {"id": "m2", "timestamp": AT, "type": "gemini", "content": answer},
    )


def _copilot(said: str, session: str, answer: str) -> str:
    events = [("session.start", {"sessionId": session}), ("user.message", {"content": said})]
    return lines(
        *({"type": type_, "data": data, "id": type_, "timestamp": AT} for type_, data in events),
        {"type": "assistant.message", "data": {"content": answer}, "id": "e9", "timestamp": AT},
    )


def _continue(said: str, session: str, answer: str) -> str:
    spoken = (("user", said), ("assistant", answer))
    history = [{"message": {"role": role, "content": content}, "contextItems": []} for role, content in spoken]
    return json.dumps({"sessionId": session, "title": "Work", "workspaceDirectory": "/w", "history": history})


def _cursor(said: str, _session: str, answer: str) -> str:
    return lines(
        {"role": "user", "message": {"content": [text(f"<user_query>\n{said}\n</user_query>")]}},
        {"role": "assistant", "message": {"content": [text(answer)]}},
    )


def _goose(said: str, _session: str, answer: str) -> str:
    return lines(
        {"description": "Work", "working_dir": "/w", "message_count": 2},
        {"id": None, "role": "user", "created": 1767323045, "content": [text(said)]},
        {"id": None, "role": "assistant", "created": 1767323046, "content": [text(answer)]},
    )


def _with_answer(write: Callable[[str, str, str], str]) -> Callable[..., str]:
    return lambda said, session, answer=ANSWER: write(said, session, answer)


CLIENTS: Mapping[str, Callable[..., str]] = {
    "claude.jsonl": _with_answer(_claude_code),
    "codex.jsonl": _with_answer(_codex),
    "gemini.jsonl": _with_answer(_gemini),
    "copilot.jsonl": _with_answer(_copilot),
    "continue.json": _with_answer(_continue),
    "cursor.jsonl": _with_answer(_cursor),
    "goose.jsonl": _with_answer(_goose),
}

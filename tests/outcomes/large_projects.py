"""Projects with and without large documents, as their owners would write them."""

import json
import random
from pathlib import Path
from typing import Any

import httpx2

TOPICS = ["billing", "shipping", "cache", "queue", "login", "search", "index", "backup", "deploy", "metrics"]
STEMS = ["ser", "cli", "net", "mod", "pro", "con", "data", "doc", "tra", "val"]
ENDINGS = ["vice", "ent", "work", "ule", "cess", "figure", "base", "ument", "ction", "idate", "er", "ing", "ed", "able"]
VOCABULARY = [stem + ending for stem in STEMS for ending in ENDINGS]


def write_project(root: Path, name: str, *, pages: int, large: int = 0, large_chars: int = 0) -> Path:
    """A repository with pages about some topics, and handbooks about all of them with a secret each."""
    chance = random.Random(5)
    docs = root / "docs"
    docs.mkdir(parents=True)
    (root / ".rag-context").mkdir()
    (root / ".rag-context" / "config.json").write_text(json.dumps({"project_name": name}))
    for number in range(pages):
        topic = TOPICS[number % len(TOPICS)]
        parts = [f"## Part {i} of {topic}\n\n{_prose(chance, topic, 60)}" for i in range(4)]
        (docs / f"page-{number}.md").write_text(f"# Page {number} about {topic}\n\n" + "\n\n".join(parts) + "\n")
    for number in range(large):
        (docs / f"handbook-{number}.md").write_text(_handbook(chance, number, large_chars))
    return root


def valve_code(number: int) -> str:
    """What stands in one place of that handbook, and nowhere else."""
    return f"ZQ-{7781 + 1203 * number}"


def activate(client: httpx2.Client, root: Path) -> dict[str, str]:
    """Work on a project until all of it is indexed; returns the fields that name it."""
    while True:
        reply = client.post("/tools/activate_project", json={"config_path": str(root)})
        assert reply.status_code == 200, reply.text
        if reply.json()["complete"]:
            body = reply.json()
            return {"project": body["project_name"], "branch": body["branch_name"], "path_hash": body["path_hash"]}


def ask(client: httpx2.Client, tool: str, **fields: Any) -> dict[str, Any]:
    """What a tool answers."""
    reply = client.post(f"/tools/{tool}", json=fields)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def _handbook(chance: random.Random, number: int, chars: int) -> str:
    parts = [f"# Handbook {number}\n"]
    size = 0
    while size < chars:
        topic = chance.choice(TOPICS)
        prose = "\n\n".join(_prose(chance, topic, 70) for _ in range(4))
        parts.append(f"\n## Chapter {len(parts)} on {topic}\n\n{prose}\n")
        size += len(parts[-1])
    parts[len(parts) // 2] += f"\nThe valve code {valve_code(number)} is reset by the night shift.\n"
    return "".join(parts)[: chars - 1] + "\n"  # a larger file is not read


def _prose(chance: random.Random, topic: str, words: int) -> str:
    drawn = [topic if chance.random() < 0.05 else chance.choice(VOCABULARY) for _ in range(words)]
    return " ".join(drawn).capitalize() + "."

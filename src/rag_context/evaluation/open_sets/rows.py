"""What open sets are made of: rows of `corpus.jsonl` and `queries.jsonl`, and conversations as they are put together.

Everything is drawn from `random.Random` with a fixed seed, so that the same version writes the same bytes.
"""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from rag_context.evaluation.datasets import CORPUS, QUERIES

Row = dict[str, Any]

USER = "user"
ASSISTANT = "assistant"

FIRST = datetime(2025, 3, 8, 18, 0, tzinfo=UTC)
APART = timedelta(days=5)
"""When the first conversation of a memory takes place, and how long after each the next one does."""


@dataclass(frozen=True, slots=True)
class OpenSet:
    """One set in the layout with evidence."""

    name: str
    corpus: list[Row] = field(default_factory=list)
    queries: list[Row] = field(default_factory=list)

    def ask(self, text: str, category: str, evidence: Sequence[str], **fields: Any) -> None:
        """Add a question; its id is its number."""
        self.queries.append(
            {
                "_id": str(len(self.queries) + 1),
                "text": text,
                "category": category,
                "evidence": list(evidence),
                **fields,
            }
        )

    def write(self, folder: Path) -> Path:
        """Write both files into a folder of the set's name. Raises: OSError."""
        target = folder / self.name
        target.mkdir(parents=True, exist_ok=True)
        for name, rows in ((CORPUS, self.corpus), (QUERIES, self.queries)):
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (target / name).write_text(lines, encoding="utf-8")
        return target


@dataclass(frozen=True, slots=True)
class Message:
    """What one speaker says; `key` names it, where it is evidence."""

    speaker: str
    text: str
    key: str = ""


@dataclass(slots=True)
class Memory:
    """The conversations of one user or of two people, in the order in which they took place."""

    target: OpenSet
    project: str
    at: datetime = FIRST - APART
    ids: dict[str, str] = field(default_factory=dict)
    """Id of each message that has a key."""
    sessions: int = 0

    def session(self, messages: Sequence[Message], at: datetime | None = None) -> None:
        """Add a conversation, by default five days after the one before."""
        self.sessions += 1
        self.at = at or self.at + APART
        for number, message in enumerate(messages, 1):
            id_ = f"{self.project}-{self.sessions:02}-{number:02}"
            if message.key:
                self.ids[message.key] = id_
            said = self.at + timedelta(minutes=2 * number)
            self.target.corpus.append(
                {
                    "_id": id_,
                    "text": message.text,
                    "speaker": message.speaker,
                    "sessionId": f"{self.project}-{self.sessions:02}",
                    "occurredAt": said.isoformat().replace("+00:00", "Z"),
                    "project": self.project,
                }
            )

    def ask(self, text: str, category: str, evidence: Sequence[str], outdated: Sequence[str] = ()) -> None:
        """Add a question by the keys of what answers it, and of what that corrects."""
        fields: Row = {"outdated": [self.ids[key] for key in outdated]} if outdated else {}
        self.target.ask(text, category, [self.ids[key] for key in evidence], project=self.project, **fields)


def read_text(name: str) -> str:
    """One of the files that the sets are made from."""
    return (files("rag_context.evaluation.open_sets") / "data" / name).read_text(encoding="utf-8")


@cache
def read_data(name: str) -> dict[str, Any]:
    """The same, of TOML."""
    return tomllib.loads(read_text(name))

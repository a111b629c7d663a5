"""Labelled sets with evidence: messages, code, pages, and questions that name which of them answer.

`corpus.jsonl`, one item a line: `_id` and `text`; optional `title`, `contentType`, `sessionId`, `speaker`,
`occurredAt`, `path`, `project`. An item with a speaker is a message of a conversation, one with a path a file.
`queries.jsonl`, one question a line: `_id`, `text` and `evidence` (ids of items; none if no item answers); optional
`category`, `outdated` (ids of items that the evidence corrects), `project`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rag_context.domain.documents import CHAT, DOCUMENTATION
from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import CORPUS, QRELS, QUERIES, Dataset, load_dataset, read_rows

DOCS = "docs/"
"""Where every item of a set has a path below this folder, the set is also measured through the project tools."""

UNANSWERABLE = "unanswerable"
"""Category of questions without evidence that have none of their own."""


@dataclass(frozen=True, slots=True)
class Item:
    """What is indexed: a message, a file, or a document. Items of a conversation are in the order of the file."""

    id: str
    content: str
    content_type: str
    session: str = ""
    path: str = ""
    project: str | None = None
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EvidenceQuestion:
    """A question, the items that answer it, and those that the answer corrects. No evidence: it is unanswerable."""

    id: str
    text: str
    evidence: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    category: str = ""
    project: str | None = None


@dataclass(frozen=True, slots=True)
class EvidenceSet:
    """A set: its items, in the order in which they were said or written, and its questions."""

    name: str
    items: tuple[Item, ...]
    questions: tuple[EvidenceQuestion, ...]

    @property
    def has_sessions(self) -> bool:
        """Whether the items are messages of several conversations."""
        return len({item.session for item in self.items if item.session}) > 1

    @property
    def is_project(self) -> bool:
        """Whether the items are the documents of a project."""
        return all(item.path.startswith(DOCS) for item in self.items)


def load_set(path: Path) -> Dataset | EvidenceSet:
    """Read a labelled set of any layout.

    Raises:
        InvalidInputError: it cannot be read, or what it says of itself is inconsistent.
    """
    if (path / QRELS).is_file() or not any("evidence" in row for row in read_rows(path / QUERIES)):
        return load_dataset(path)
    items = tuple(
        _item(row, f"{path / CORPUS}: item {row['_id']!r}") for row in read_rows(path / CORPUS, "_id", "text")
    )
    questions = tuple(
        _question(row, f"{path / QUERIES}: query {row['_id']!r}") for row in read_rows(path / QUERIES, "_id", "text")
    )
    _check_ids(path / CORPUS, [item.id for item in items])
    _check_ids(path / QUERIES, [question.id for question in questions])
    projects = {item.id: item.project for item in items}
    for question in questions:
        _check_evidence(question, projects, f"{path / QUERIES}: query {question.id!r}")
    if not any(question.evidence for question in questions):
        raise InvalidInputError(f"{path / QUERIES}: none of the queries has evidence")
    return EvidenceSet(path.resolve().name, items, questions)


def _item(row: Mapping[str, Any], name: str) -> Item:
    speaker, title, path = _text(row, "speaker", name), _text(row, "title", name), _text(row, "path", name)
    text = row["text"]
    if not text.strip():
        raise InvalidInputError(f"{name} has no text")
    head = f"[{speaker}] " if speaker else f"# {' '.join(title.split())}\n\n" if title else ""
    return Item(
        id=row["_id"],
        content=f"{head}{text}",
        content_type=_text(row, "contentType", name) or (CHAT if speaker else DOCUMENTATION),
        session=_text(row, "sessionId", name),
        path=path,
        project=_text(row, "project", name) or None,
        occurred_at=_time(_text(row, "occurredAt", name), name),
    )


def _question(row: Mapping[str, Any], name: str) -> EvidenceQuestion:
    if "evidence" not in row:
        raise InvalidInputError(f"{name} lacks evidence; write [] if nothing answers it")
    evidence, outdated = _ids(row, "evidence", name), _ids(row, "outdated", name)
    if outdated and not evidence:
        raise InvalidInputError(f"{name} has outdated items, but no evidence that corrects them")
    category = _text(row, "category", name) or ("" if evidence else UNANSWERABLE)
    return EvidenceQuestion(row["_id"], row["text"], evidence, outdated, category, _text(row, "project", name) or None)


def _text(row: Mapping[str, Any], key: str, name: str) -> str:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidInputError(f"{name}: {key} must be a text")
    return value or ""


def _ids(row: Mapping[str, Any], key: str, name: str) -> tuple[str, ...]:
    value = row.get(key, [])
    if not isinstance(value, list) or not all(isinstance(id_, str | int) for id_ in value):
        raise InvalidInputError(f"{name}: {key} must be a list of ids of {CORPUS}")
    return tuple(dict.fromkeys(map(str, value)))


def _time(text: str, name: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInputError(f"{name}: occurredAt must be a time such as 2026-05-07T09:30:00Z")
    return moment


def _check_ids(path: Path, ids: list[str]) -> None:
    if twice := [id_ for id_, count in Counter(ids).items() if count > 1]:
        raise InvalidInputError(f"{path}: the _id {twice[0]!r} stands there twice")


def _check_evidence(question: EvidenceQuestion, projects: Mapping[str, str | None], name: str) -> None:
    for id_ in (*question.evidence, *question.outdated):
        if id_ not in projects:
            raise InvalidInputError(f"{name} names {id_!r}, which is not in {CORPUS}")
        if projects[id_] != question.project:
            raise InvalidInputError(
                f"{name} is asked in project {question.project!r}, but {id_!r} belongs to {projects[id_]!r}"
            )

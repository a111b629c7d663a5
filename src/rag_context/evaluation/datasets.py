"""Labelled sets from disk, in three layouts.

BEIR: `corpus.jsonl` (`_id, title, text`), `queries.jsonl` (`_id, text`), `qrels/test.tsv` (query, document, grade).
Spans: the same corpus, and queries that name a document (`corpus_id`) and the characters that answer (`spans`).
Evidence: messages, code, pages, and questions that name which of them answer. `corpus.jsonl`, one item a line: `_id`
and `text`; optional `title`, `contentType`, `sessionId`, `speaker`, `occurredAt`, `path`, `project`. An item with a
speaker is a message of a conversation, one with a path a file. `queries.jsonl`, one question a line: `_id`, `text` and
`evidence` (ids of items; none if no item answers); optional `category`, `outdated` (ids of items that the evidence
corrects), `project`.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from rag_context.domain.documents import CHAT, DOCUMENTATION
from rag_context.errors import InvalidInputError

CORPUS = "corpus.jsonl"
QUERIES = "queries.jsonl"
QRELS = Path("qrels", "test.tsv")

DOCS = "docs/"
"""Where every item of a set has a path below this folder, the set is also measured through the project tools."""

UNANSWERABLE = "unanswerable"
"""Category of questions without evidence that have none of their own."""

Spans = tuple[tuple[int, int], ...]
"""Ranges of characters of a text, ends excluded."""


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A document of a collection. `content` is what is indexed: the title as a heading, and the text."""

    id: str
    title: str
    body: str

    @property
    def content(self) -> str:
        return f"{self._head}{self.body}".strip() if self.title else self.body

    @property
    def offset(self) -> int:
        """Where the text begins in the content, in characters."""
        return len(self._head) if self.title else 0

    @property
    def _head(self) -> str:
        return f"# {' '.join(self.title.split())}\n\n"


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A query with its judgements: grades by document (0 is irrelevant), or the spans that answer it."""

    id: str
    text: str
    grades: Mapping[str, int] = field(default_factory=dict)
    document: str = ""
    spans: Spans = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """A collection. Its questions are judged by documents, or by spans if `by_spans` is set."""

    name: str
    documents: tuple[LabelledText, ...]
    questions: tuple[LabelledQuestion, ...]
    by_spans: bool


@dataclass(frozen=True, slots=True)
class LabelledItem:
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
    items: tuple[LabelledItem, ...]
    questions: tuple[EvidenceQuestion, ...]

    @property
    def has_sessions(self) -> bool:
        return len({item.session for item in self.items if item.session}) > 1

    @property
    def is_project(self) -> bool:
        return all(item.path.startswith(DOCS) for item in self.items)


def load_set(path: Path) -> Dataset | EvidenceSet:
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


def load_dataset(path: Path) -> Dataset:
    """Read a collection of either layout; queries without a judgement are left out. Raises: InvalidInputError."""
    documents = {
        row["_id"]: LabelledText(row["_id"], str(row.get("title") or ""), str(row.get("text") or ""))
        for row in read_rows(path / CORPUS, "_id")
    }
    there = {id_: document for id_, document in documents.items() if document.content.strip()}
    by_spans = not (path / QRELS).is_file()
    questions = tuple(_by_spans(path, there) if by_spans else _by_grades(path))
    if not questions:
        expected = "spans" if by_spans else f"a grade in {QRELS.as_posix()}"
        raise InvalidInputError(f"{path} has no judged query: none has {expected}")
    if not by_spans and not any(there.keys() & question.grades.keys() for question in questions):
        raise InvalidInputError(f"{path / QRELS} judges no document that is in {CORPUS}")
    return Dataset(path.resolve().name, tuple(there.values()), questions, by_spans)


def _by_spans(path: Path, documents: Mapping[str, LabelledText]) -> Iterator[LabelledQuestion]:
    for row in read_rows(path / QUERIES, "_id", "text"):
        if row.get("spans"):
            name, document = f"{path / QUERIES}: query {row['_id']!r}", str(row.get("corpus_id"))
            if document not in documents:
                raise InvalidInputError(f"{name} is answered by {document!r}, which is not in {CORPUS}")
            try:
                spans = tuple((int(start), int(end)) for start, end in row["spans"])
            except (TypeError, ValueError) as error:
                raise InvalidInputError(f"{name}: each of its spans must be two numbers, start and end") from error
            yield LabelledQuestion(row["_id"], row["text"], document=document, spans=spans)


def _by_grades(path: Path) -> Iterator[LabelledQuestion]:
    grades: dict[str, dict[str, int]] = {}
    with _opened(path / QRELS) as file:
        for number, line in enumerate(csv.reader(file, delimiter="\t"), 1):
            if number > 1 or (len(line) == 3 and line[2].isdigit()):
                try:
                    query, document, grade = line
                    grades.setdefault(query, {})[document] = int(grade)
                except ValueError as error:
                    raise InvalidInputError(
                        f"{path / QRELS}, line {number}: expected query, document and a whole number"
                    ) from error
    for row in read_rows(path / QUERIES, "_id", "text"):
        judged = grades.get(row["_id"], {})
        if any(grade > 0 for grade in judged.values()):
            yield LabelledQuestion(row["_id"], row["text"], grades=judged)


def read_rows(path: Path, *required: str) -> Iterator[dict[str, Any]]:
    """JSON objects, one a line, whose required values are texts: ids may be numbers in the file."""
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidInputError(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict) or any(row.get(name) is None for name in required):
                raise InvalidInputError(f"{path}, line {number} lacks {' or '.join(required)}")
            yield row | {name: str(row[name]) for name in required}


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read ({error.strerror}): a dataset is a folder with {CORPUS}, {QUERIES} "
            f"and, unless its queries have spans or evidence, {QRELS.as_posix()}"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not UTF-8") from error


def _item(row: Mapping[str, Any], name: str) -> LabelledItem:
    speaker, title, path = _text(row, "speaker", name), _text(row, "title", name), _text(row, "path", name)
    text = row["text"]
    if not text.strip():
        raise InvalidInputError(f"{name} has no text")
    head = f"[{speaker}] " if speaker else f"# {' '.join(title.split())}\n\n" if title else ""
    return LabelledItem(
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
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidInputError(f"{name}: occurredAt must be a time such as 2026-05-07T09:30:00Z")
    return at


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

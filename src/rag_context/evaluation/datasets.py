"""Labelled collections from disk, in two layouts.

BEIR: `corpus.jsonl` (`_id, title, text`), `queries.jsonl` (`_id, text`), `qrels/test.tsv` (query, document, grade).
Spans: the same corpus, and queries that name a document (`corpus_id`) and the characters that answer (`spans`).
"""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_context.errors import InvalidInputError

CORPUS = "corpus.jsonl"
QUERIES = "queries.jsonl"
QRELS = Path("qrels", "test.tsv")

Spans = tuple[tuple[int, int], ...]
"""Ranges of characters of a text, ends excluded."""


@dataclass(frozen=True, slots=True)
class Text:
    """A document of a collection. `content` is what is indexed: the title as a heading, and the text."""

    id: str
    title: str
    body: str

    @property
    def content(self) -> str:
        """The document as Markdown."""
        return f"{self._head}{self.body}".strip() if self.title else self.body

    @property
    def offset(self) -> int:
        """Where the text begins in the content, in characters."""
        return len(self._head) if self.title else 0

    @property
    def _head(self) -> str:
        return f"# {' '.join(self.title.split())}\n\n"


@dataclass(frozen=True, slots=True)
class Question:
    """A query with its judgements: grades by document (0 is irrelevant), or the spans that answer it."""

    id: str
    text: str
    grades: Mapping[str, int] = field(default_factory=dict)
    document: str = ""
    spans: Spans = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """A collection. Its questions are judged by documents, or by spans where `by_spans`."""

    name: str
    documents: tuple[Text, ...]
    questions: tuple[Question, ...]
    by_spans: bool


def load_dataset(path: Path) -> Dataset:
    """Read a collection of either layout; queries without a judgement are left out.

    Raises:
        InvalidInputError: it cannot be read, or nothing in it is judged.
    """
    documents = tuple(
        Text(str(row["_id"]), str(row.get("title") or ""), str(row.get("text") or ""))
        for row in _rows(path / CORPUS, "_id")
    )
    by_spans = not (path / QRELS).is_file()
    questions = tuple(_by_spans(path) if by_spans else _by_grades(path))
    if not questions:
        wanted = "spans" if by_spans else f"a grade in {QRELS.as_posix()}"
        raise InvalidInputError(f"{path} holds no judged query: none has {wanted}")
    return Dataset(
        path.resolve().name, tuple(document for document in documents if document.content), questions, by_spans
    )


def _by_spans(path: Path) -> Iterator[Question]:
    for row in _rows(path / QUERIES, "_id", "text"):
        if row.get("spans"):
            spans = tuple((int(start), int(end)) for start, end in row["spans"])
            yield Question(str(row["_id"]), row["text"], document=str(row["corpus_id"]), spans=spans)


def _by_grades(path: Path) -> Iterator[Question]:
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
    for row in _rows(path / QUERIES, "_id", "text"):
        judged = grades.get(str(row["_id"]), {})
        if any(grade > 0 for grade in judged.values()):
            yield Question(str(row["_id"]), row["text"], grades=judged)


def _rows(path: Path, *required: str) -> Iterator[dict[str, Any]]:
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidInputError(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict) or any(name not in row for name in required):
                raise InvalidInputError(f"{path}, line {number} lacks {' or '.join(required)}")
            yield row


def _opened(path: Path) -> Any:
    try:
        return path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read ({error.strerror}): a dataset is a folder with {CORPUS}, {QUERIES} "
            f"and, unless its queries have spans, {QRELS.as_posix()}"
        ) from error

"""Labelled collections from disk, in two layouts; `evidence_sets` reads a third.

BEIR: `corpus.jsonl` (`_id, title, text`), `queries.jsonl` (`_id, text`), `qrels/test.tsv` (query, document, grade).
Spans: the same corpus, and queries that name a document (`corpus_id`) and the characters that answer (`spans`).
"""

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

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
    """A collection. Its questions are judged by documents, or by spans if `by_spans` is set."""

    name: str
    documents: tuple[Text, ...]
    questions: tuple[Question, ...]
    by_spans: bool


def load_dataset(path: Path) -> Dataset:
    """Read a collection of either layout; queries without a judgement are left out.

    Raises:
        InvalidInputError: it cannot be read, or nothing in it is judged.
    """
    documents = {
        row["_id"]: Text(row["_id"], str(row.get("title") or ""), str(row.get("text") or ""))
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


def _by_spans(path: Path, documents: Mapping[str, Text]) -> Iterator[Question]:
    for row in read_rows(path / QUERIES, "_id", "text"):
        if row.get("spans"):
            name, document = f"{path / QUERIES}: query {row['_id']!r}", str(row.get("corpus_id"))
            if document not in documents:
                raise InvalidInputError(f"{name} is answered by {document!r}, which is not in {CORPUS}")
            try:
                spans = tuple((int(start), int(end)) for start, end in row["spans"])
            except (TypeError, ValueError) as error:
                raise InvalidInputError(f"{name}: each of its spans must be two numbers, start and end") from error
            yield Question(row["_id"], row["text"], document=document, spans=spans)


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
    for row in read_rows(path / QUERIES, "_id", "text"):
        judged = grades.get(row["_id"], {})
        if any(grade > 0 for grade in judged.values()):
            yield Question(row["_id"], row["text"], grades=judged)


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

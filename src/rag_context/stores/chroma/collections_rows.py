"""An entry of a collection as a row of Chroma, and back; tokens as Chroma's conditions."""

import json
from collections.abc import Sequence
from typing import Protocol

from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendDataError
from rag_context.ports.provider import Entry
from rag_context.stores.chroma.api import COMPONENT, Fields, Rows, Where
from rag_context.stores.engines import read_fields
from rag_context.stores.tokens import (
    And,
    AnyOf,
    Condition,
    Narrowing,
    NoneOf,
    Or,
    Range,
    conditions_in,
    narrow,
    numbers_of,
    tokens_of,
)

METADATA = "metadata"
FACTS = "facts"
_NUMBER = "n:"
_ID = "="

_ANY = "*"
"""A token of every row: Chroma rejects empty lists."""

_DIGITS = 22
"""Characters that one float of a vector takes as JSON, at most."""

_TOKENS_FACTOR = 3
"""How many times as long an entry is with its tokens."""

_MOST_CONDITIONS = 100
"""More than so many make one statement of SQL that takes longer than reading all rows."""


def rows_of(entries: Sequence[Entry], vectors: Matrix) -> Rows:
    """Entries with their vectors, `(n, dim) float32`; the metadata as text too, so that it comes back as it was.

    A replaced row keeps fields that the new one does not have: numbers, which have no effect without their tokens.
    """
    fields = [
        {
            METADATA: json.dumps(entry.metadata, ensure_ascii=False),
            FACTS: [_ANY, *tokens_of(entry.metadata)],
            **{f"{_NUMBER}{path}": value for path, value in numbers_of(entry.metadata).items()},
        }
        for entry in entries
    ]
    return Rows([row_id(entry.id) for entry in entries], fields, [entry.text for entry in entries], vectors)


def row_id(id_: str) -> str:
    """The row id of an id, in the same order: Chroma's ids are not empty."""
    return f"{_ID}{id_}"


def id_of(row: str) -> str:
    """The id of a row."""
    return row.removeprefix(_ID)


def size_of(entry: Entry, dimension: int) -> int:
    """An upper estimate of the bytes of an entry in a request."""
    return dimension * _DIGITS + len(json.dumps([entry.text, entry.metadata])) * _TOKENS_FACTOR


def metadata_of(fields: Fields) -> dict[str, Json]:
    """The metadata of a row.

    Raises:
        BackendDataError: the row is not one of ours.
    """
    try:
        found = json.loads(fields[METADATA])
    except (KeyError, TypeError, ValueError) as error:
        raise foreign() from error
    if not isinstance(found, dict):
        raise foreign()
    return found


class RowShape(Protocol):
    """How a document is stored in a row."""

    def row(self, id_: str) -> str:
        """The row of an id; rows are in the order of their ids."""
        ...

    def id(self, row: str) -> str: ...

    def metadata(self, fields: Fields) -> dict[str, Json]: ...

    def entry(self, row: str, fields: Fields, text: str) -> Entry: ...

    def condition(self, where: Clause) -> tuple[Where | None, bool]:
        """Chroma's condition for a clause, and whether it is exact."""
        ...


class OurShape:
    """Rows as `rows_of` makes them."""

    def row(self, id_: str) -> str:
        return row_id(id_)

    def id(self, row: str) -> str:
        return id_of(row)

    def metadata(self, fields: Fields) -> dict[str, Json]:
        return metadata_of(fields)

    def entry(self, row: str, fields: Fields, text: str) -> Entry:
        return Entry(id_of(row), text, metadata_of(fields))

    def condition(self, where: Clause) -> tuple[Where | None, bool]:
        return where_of(narrow(where))


class ForeignShape:
    """Rows as other programs make them: their fields are unknown, so filters are checked row by row."""

    def row(self, id_: str) -> str:
        return id_

    def id(self, row: str) -> str:
        return row

    def metadata(self, fields: Fields) -> dict[str, Json]:
        return dict(fields)

    def entry(self, row: str, fields: Fields, text: str) -> Entry:
        return Entry(row, *read_fields(fields, text))

    def condition(self, where: Clause) -> tuple[Where | None, bool]:
        return None, where == EVERYTHING


def foreign() -> BackendDataError:
    return BackendDataError(COMPONENT, "A row in one of Chroma's collections was not stored by rag-context.")


def where_of(narrowed: Narrowing) -> tuple[Where | None, bool]:
    """Chroma's condition, and whether it is exact."""
    condition = narrowed.condition
    if condition is None:
        return None, narrowed.exact
    if conditions_in(condition) > _MOST_CONDITIONS:
        return None, False
    return _where(condition), narrowed.exact


def _where(condition: Condition) -> Where:
    match condition:
        case AnyOf(tokens):
            return _either([{FACTS: {"$contains": token}} for token in tokens])
        case NoneOf(tokens):
            return _all([{FACTS: {"$not_contains": token}} for token in tokens])
        case Range(path, bound, value):
            return {f"{_NUMBER}{path}": {f"${bound}": value}}
        case And(parts):
            return _all([_where(part) for part in parts])
        case Or(parts):
            return _either([_where(part) for part in parts])


def _either(parts: list[Where]) -> Where:
    return parts[0] if len(parts) == 1 else {"$or": parts}


def _all(parts: list[Where]) -> Where:
    return parts[0] if len(parts) == 1 else {"$and": parts}

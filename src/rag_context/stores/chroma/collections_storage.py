"""The documents of a collection as rows of Chroma: the shape of a row, tokens as conditions, and how rows are read."""

import json
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from rag_context.domain import clauses
from rag_context.domain.clauses import EVERYTHING, Clause, Operator
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Matrix, Vector
from rag_context.domain.where import matches, value_at
from rag_context.errors import BackendDataError
from rag_context.ports.provider import Entry, EntryHit
from rag_context.stores import tokens
from rag_context.stores.chroma import chroma_api
from rag_context.stores.engines import FLOAT_CHARS, read_fields

METADATA = "metadata"
TOKENS = "facts"
_NUMBER = "n:"
_ID = "="

_ANY = "*"
"""A token of every row: Chroma rejects empty lists."""

_TOKENS_FACTOR = 3
"""How many times as long an entry is with its tokens."""

_MOST_CONDITIONS = 100
"""More than so many make one statement of SQL that takes longer than reading all rows."""

_LIGHT = 1000
"""Rows per call without their texts and vectors."""


class OurShape:
    """Rows as `rows_of` makes them. Rows are in the order of their ids."""

    def row(self, id_: str) -> str:
        return f"{_ID}{id_}"

    def id(self, row: str) -> str:
        return row.removeprefix(_ID)

    def metadata(self, fields: chroma_api.Fields) -> dict[str, Json]:
        try:
            found = json.loads(fields[METADATA])
        except (KeyError, TypeError, ValueError) as error:
            raise _not_ours() from error
        if not isinstance(found, dict):
            raise _not_ours()
        return found

    def entry(self, row: str, fields: chroma_api.Fields, text: str) -> Entry:
        return Entry(self.id(row), text, self.metadata(fields))

    def condition(self, where: Clause) -> tuple[chroma_api.Where | None, bool]:
        """Chroma's condition for a clause, and whether it is exact."""
        narrowed = tokens.narrow(where)
        condition = narrowed.condition
        if condition is None:
            return None, narrowed.exact
        if tokens.conditions_in(condition) > _MOST_CONDITIONS:
            return None, False
        return _where(condition), narrowed.exact


class ForeignShape:
    """Rows as other programs make them: their fields are unknown, so filters are checked row by row."""

    def row(self, id_: str) -> str:
        return id_

    def id(self, row: str) -> str:
        return row

    def metadata(self, fields: chroma_api.Fields) -> dict[str, Json]:
        return dict(fields)

    def entry(self, row: str, fields: chroma_api.Fields, text: str) -> Entry:
        return Entry(row, *read_fields(fields, text))

    def condition(self, where: Clause) -> tuple[chroma_api.Where | None, bool]:
        return None, where == EVERYTHING


RowShape: TypeAlias = OurShape | ForeignShape


def _not_ours() -> BackendDataError:
    return BackendDataError(chroma_api.COMPONENT, "A row in one of Chroma's collections was not stored by rag-context.")


def _where(condition: tokens.Condition) -> chroma_api.Where:
    match condition:
        case tokens.AnyOf(words):
            return chroma_api.either([{TOKENS: {"$contains": word}} for word in words])
        case tokens.NoneOf(words):
            return chroma_api.every([{TOKENS: {"$not_contains": word}} for word in words])
        case tokens.Range(path, bound, value):
            return {f"{_NUMBER}{path}": {f"${bound}": value}}
        case tokens.And(parts):
            return chroma_api.every([_where(part) for part in parts])
        case tokens.Or(parts):
            return chroma_api.either([_where(part) for part in parts])


class ChromaCollectionStorage:
    """Reads rows. Every call raises CollectionGoneError if they were all removed."""

    def __init__(self, api: chroma_api.ChromaApi, rows: chroma_api.CollectionInfo, shape: RowShape) -> None:
        self._api = api
        self._shape = shape
        self._id = rows.id
        self._dimension = rows.dimension

    async def ids(self, where: Clause) -> list[str]:
        return sorted([self._shape.id(row) for row in await self._matching(where)])

    async def get(self, ids: Sequence[str]) -> dict[str, Entry]:
        existing = await self._texts([self._shape.row(id_) for id_ in dict.fromkeys(ids)])
        return {self._shape.id(row): entry for row, entry in existing.items()}

    async def delete_many(self, ids: Sequence[str], where: Clause) -> int:
        gone = [id_ for id_, entry in (await self.get(ids)).items() if matches(where, entry.metadata)]
        for some in chroma_api.pages([self._shape.row(id_) for id_ in gone]):
            await self._api.delete(self._id, some)
        return len(gone)

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        found: dict[str, Vector] = {}
        for some in chroma_api.pages([self._shape.row(id_) for id_ in dict.fromkeys(ids)]):
            page = await self._api.get(self._id, ["embeddings"], ids=some)
            found.update(zip(map(self._shape.id, page.ids), self._matrix(page), strict=True))
        return found

    async def values(self, path: tuple[str, ...]) -> list[Json]:
        condition, _ = self._shape.condition(clauses.Comparison(path, Operator.EXISTS, True))
        found: list[Json] = []
        for some in chroma_api.pages((await self._api.get(self._id, where=condition)).ids, _LIGHT):
            page = await self._api.get(self._id, ["metadatas"], ids=some)
            found += [value_at(self._shape.metadata(fields), path) for fields in page.fields]
        return tokens.distinct(found)

    async def search(self, vector: Vector, limit: int, where: Clause) -> list[EntryHit]:
        best = await self._best(vector, limit, where)
        existing = await self._texts([near.id for near in best])
        return [EntryHit(existing[near.id], near.cosine) for near in best if near.id in existing]

    async def _best(self, vector: Vector, limit: int, where: Clause) -> list[chroma_api.Near]:
        """The nearest rows, by the cheapest method first, then by more exact ones."""
        comparison = chroma_api.RowComparison(
            vector, lambda fields: matches(where, self._shape.metadata(fields)), self._matrix
        )
        condition, _ = self._shape.condition(where)
        # Chroma's index finds less the more a filter excludes, so few rows are compared one by one.
        few = (await self._api.get(self._id, where=condition, limit=chroma_api.FEW + 1)).ids
        if len(few) <= chroma_api.FEW:
            return await comparison.of_all(self._api, self._id, few, limit)
        wide = max(chroma_api.WIDE * limit, chroma_api.WIDE_LEAST)
        while wide <= chroma_api.MOST_NEAREST:
            rows = await self._api.nearest(self._id, vector, wide, condition)
            hits = comparison.of(rows)
            # A row that is worse than the last hit was seen, so none as near as it can be missing.
            if len(hits) >= limit and hits[limit - 1].cosine > float(comparison.cosines(rows).min()):
                return hits[:limit]
            if len(rows.ids) < wide:
                break
            wide *= 4
        return await comparison.of_all(self._api, self._id, await self._matching(where), limit)

    async def _matching(self, where: Clause) -> Sequence[str]:
        # Chroma narrows; what tokens cannot say is decided by the metadata itself.
        condition, exact = self._shape.condition(where)
        ids = (await self._api.get(self._id, where=condition)).ids
        if exact:
            return ids
        found: list[str] = []
        for some in chroma_api.pages(ids, _LIGHT):
            page = await self._api.get(self._id, ["metadatas"], ids=some)
            rows_read = zip(page.ids, page.fields, strict=True)
            found += [id_ for id_, fields in rows_read if matches(where, self._shape.metadata(fields))]
        return found

    async def _texts(self, ids: Sequence[str]) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for some in chroma_api.pages(ids):
            page = await self._api.get(self._id, ["metadatas", "documents"], ids=some)
            for id_, fields, text in zip(page.ids, page.fields, page.texts, strict=True):
                found[id_] = self._shape.entry(id_, fields, text)
        return found

    def _matrix(self, found: chroma_api.Rows) -> Matrix:
        matrix = chroma_api.matrix_of(found, self._api.label)
        if matrix.shape != (len(found.ids), self._dimension if found.ids else 0):
            raise chroma_api.invalid_response(self._api.label, "vectors of another dimension")
        if isinstance(self._shape, ForeignShape):  # vectors of other programs may have any length
            lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
            matrix = (matrix / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return matrix


def rows_of(entries: Sequence[Entry], vectors: Matrix) -> chroma_api.Rows:
    """Entries with their vectors, `(n, dim) float32`; the metadata as text too, so that it comes back as it was.

    A replaced row keeps fields that the new one does not have: numbers, which have no effect without their tokens.
    """
    fields = [
        {
            METADATA: json.dumps(entry.metadata, ensure_ascii=False),
            TOKENS: [_ANY, *tokens.tokens_of(entry.metadata)],
            **{f"{_NUMBER}{path}": value for path, value in tokens.numbers_of(entry.metadata).items()},
        }
        for entry in entries
    ]
    return chroma_api.Rows(
        [OurShape().row(entry.id) for entry in entries], fields, [entry.text for entry in entries], vectors
    )


def size_of(entry: Entry, dimension: int) -> int:
    """An upper estimate of the bytes of an entry in a request."""
    return dimension * FLOAT_CHARS + len(json.dumps([entry.text, entry.metadata])) * _TOKENS_FACTOR

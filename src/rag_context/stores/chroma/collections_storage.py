"""Reads the documents of a collection."""

from collections.abc import Iterator, Sequence

import numpy as np

from rag_context.domain.clauses import Clause, Comparison, Operator
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Matrix, Vector
from rag_context.ports.provider import Entry, EntryHit, EntryPage
from rag_context.stores.chroma.api import ChromaApi, Opened, Rows, invalid_response
from rag_context.stores.chroma.collections_rows import ForeignShape, RowShape
from rag_context.stores.tokens import distinct
from rag_context.where import matches, value_at

_PAGE = 1000
_HEAVY = 250
"""Rows per call: with little of them, and with their texts or vectors."""

_FEW = 400
"""Up to so many rows, fetching and multiplying all of them is faster than a search in the index."""

_WIDE = 2
_WIDE_LEAST = 64
_WIDEST = 2000
"""How many neighbours a search requests: so many times the limit, then four times as many, while that is not enough.
Beyond the last, all rows that pass are compared."""


class CollectionStorage:
    """Reads rows. Every call raises CollectionGoneError if they were all removed.

    Args:
        api: the calls.
        rows: where they are.
        shape: how a document is stored in a row.
    """

    def __init__(self, api: ChromaApi, rows: Opened, shape: RowShape) -> None:
        self._api = api
        self._shape = shape
        self._id = rows.id
        self._dimension = rows.dimension

    async def entries(self, where: Clause, limit: int, offset: int) -> EntryPage:
        """A page of what a clause lets through, by id, and the total number."""
        ids = sorted(await self._matching(where))
        page = ids[offset : offset + limit]
        there = await self._texts(page)
        return EntryPage(tuple(there[row] for row in page if row in there), len(ids))

    async def ids(self, where: Clause) -> list[str]:
        """The ids of what a clause lets through, in order."""
        return sorted([self._shape.id(row) for row in await self._matching(where)])

    async def get(self, ids: Sequence[str]) -> dict[str, Entry]:
        """Those of the given entries that exist."""
        there = await self._texts([self._shape.row(id_) for id_ in dict.fromkeys(ids)])
        return {self._shape.id(row): entry for row, entry in there.items()}

    async def delete_many(self, ids: Sequence[str], where: Clause) -> int:
        """Remove those of these entries that a clause lets through."""
        gone = [id_ for id_, entry in (await self.get(ids)).items() if matches(where, entry.metadata)]
        for some in _pages([self._shape.row(id_) for id_ in gone], _HEAVY):
            await self._api.delete(self._id, some)
        return len(gone)

    async def delete(self, id_: str) -> bool:
        """Remove one entry; False where it is unknown."""
        there = (await self._api.rows(self._id, [self._shape.row(id_)], [])).ids
        if there:
            await self._api.delete(self._id, there)
        return bool(there)

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of those of the given entries that exist."""
        found: dict[str, Vector] = {}
        for some in _pages([self._shape.row(id_) for id_ in dict.fromkeys(ids)], _HEAVY):
            page = await self._api.rows(self._id, some, ["embeddings"])
            found.update(zip(map(self._shape.id, page.ids), self._matrix(page), strict=True))
        return found

    async def values(self, path: tuple[str, ...]) -> list[Json]:
        """The distinct values of a field."""
        condition, _ = self._shape.condition(Comparison(path, Operator.EXISTS, True))
        found: list[Json] = []
        for some in _pages(await self._api.ids(self._id, condition), _PAGE):
            page = await self._api.rows(self._id, some, ["metadatas"])
            found += [value_at(self._shape.metadata(fields), path) for fields in page.fields]
        return distinct(found)

    async def search(self, vector: Vector, limit: int, where: Clause) -> list[EntryHit]:
        """The entries nearest to a vector, equal ones by id."""
        best = await self._best(vector, limit, where)
        there = await self._texts([row for row, _ in best])
        return [EntryHit(there[row], cosine) for row, cosine in best if row in there]

    async def _best(self, vector: Vector, limit: int, where: Clause) -> list[tuple[str, float]]:
        """Rows and cosines of the nearest, by the cheapest method first, then by more exact ones."""
        condition, _ = self._shape.condition(where)
        few = await self._api.ids(self._id, condition, _FEW + 1)
        if len(few) <= _FEW:
            return await self._compared(few, vector, limit, where)
        wide = max(_WIDE * limit, _WIDE_LEAST)
        while wide <= _WIDEST:
            near = await self._api.nearest(self._id, vector, wide, condition)
            cosines = self._cosines(near, vector)
            hits = self._passing(near, cosines, where)
            if len(hits) >= limit and hits[limit - 1][1] > float(cosines.min()):
                return hits[:limit]
            if len(near.ids) < wide:
                break
            wide *= 4
        return await self._compared(await self._matching(where), vector, limit, where)

    async def _compared(self, ids: Sequence[str], vector: Vector, limit: int, where: Clause) -> list[tuple[str, float]]:
        """The nearest of these rows, by comparing all of them."""
        best: list[tuple[str, float]] = []
        for some in _pages(ids, _HEAVY):
            page = await self._api.rows(self._id, some, ["metadatas", "embeddings"])
            best = sorted([*best, *self._passing(page, self._cosines(page, vector), where)], key=_order)[:limit]
        return best

    async def _matching(self, where: Clause) -> list[str]:
        condition, exact = self._shape.condition(where)
        ids = await self._api.ids(self._id, condition)
        if exact:
            return ids
        found: list[str] = []
        for some in _pages(ids, _PAGE):
            page = await self._api.rows(self._id, some, ["metadatas"])
            rows_read = zip(page.ids, page.fields, strict=True)
            found += [id_ for id_, fields in rows_read if matches(where, self._shape.metadata(fields))]
        return found

    async def _texts(self, ids: Sequence[str]) -> dict[str, Entry]:
        """The entries that rows carry, by row."""
        found: dict[str, Entry] = {}
        for some in _pages(ids, _HEAVY):
            page = await self._api.rows(self._id, some, ["metadatas", "documents"])
            for id_, fields, text in zip(page.ids, page.fields, page.texts, strict=True):
                found[id_] = self._shape.entry(id_, fields, text)
        return found

    def _passing(self, found: Rows, cosines: Vector, where: Clause) -> list[tuple[str, float]]:
        """Those that a clause lets through, nearest first."""
        rows = zip(found.ids, found.fields, cosines.tolist(), strict=True)
        return sorted(
            ((id_, cosine) for id_, fields, cosine in rows if matches(where, self._shape.metadata(fields))),
            key=_order,
        )

    def _cosines(self, found: Rows, vector: Vector) -> Vector:
        """Each row by itself, so that equal vectors get equal cosines."""
        matrix = self._matrix(found)
        if not len(matrix):
            return np.zeros(0, dtype=np.float32)
        cosines: Vector = np.vecdot(matrix, vector)
        return cosines

    def _matrix(self, found: Rows) -> Matrix:
        matrix = found.vectors
        shape = (len(found.ids), self._dimension if found.ids else 0)
        if matrix is None or matrix.shape != shape or not np.isfinite(matrix).all():
            raise invalid_response(self._api.place, "rows without their vectors")
        if isinstance(self._shape, ForeignShape):  # vectors of other programs may have any length
            lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
            matrix = (matrix / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return matrix


def _order(hit: tuple[str, float]) -> tuple[float, str]:
    return -hit[1], hit[0]


def _pages(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))

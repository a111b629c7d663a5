"""A collection that another program made in Qdrant: read as it is, whatever the shape of its payloads.

Its points have no index of ours, so a `where` is checked document by document; cosines are computed here,
because their vectors may be compared by another measure there, and need not be of length 1.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from qdrant_client import models

from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Vector
from rag_context.ports.provider import Collection, Entry, EntryHit, EntryPage
from rag_context.stores.engines import check_dimension, read_fields
from rag_context.stores.qdrant.collections_registry import CATALOGUE
from rag_context.stores.qdrant.connection import Connection, NoCollectionError
from rag_context.stores.tokens import distinct
from rag_context.where import matches, value_at

_PAGE = 250


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Which of a point's vectors is read. `name` is None if they have no names, `size` if none is dense."""

    name: str | None
    size: int | None


class ForeignCollection:
    """Reads a collection of Qdrant's by its own name.

    Args:
        connection: the connection to the server.
        name: of the collection, in Qdrant and here.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._client = connection.client
        self._name = name

    async def described(self) -> Collection | None:
        """The collection; None if it does not exist, or is the registry of another rag-context."""
        try:
            vectors = await self._vectors()
            if self._name.endswith(CATALOGUE) and vectors == _Vectors(None, 1):
                return None
            counted = await self._connection.call(self._client.count(self._name, exact=True))
        except NoCollectionError:
            return None
        return Collection(self._name, dimension=vectors.size, count=counted.count, foreign=True)

    async def ids(self, where: Clause) -> list[str]:
        """The ids of what a clause lets through, in order."""
        return sorted([entry.id async for entry in self._all(where)])

    async def entries(self, where: Clause, limit: int, offset: int) -> EntryPage:
        """A page of what a clause lets through, by id."""
        ids = await self.ids(where)
        page = ids[offset : offset + limit]
        there = await self.get(page)
        return EntryPage(tuple(there[id_] for id_ in page if id_ in there), len(ids))

    async def get(self, ids: Sequence[str]) -> dict[str, Entry]:
        """Those of the given entries that exist."""
        return {str(record.id): _entry(record) for record in await self._retrieve(ids, with_vectors=False)}

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Their vectors, brought to length 1; points without one are left out."""
        name = (await self._vectors()).name
        found = {str(record.id): _unit(record.vector, name) for record in await self._retrieve(ids, with_vectors=True)}
        return {id_: vector for id_, vector in found.items() if vector is not None}

    async def values(self, path: tuple[str, ...]) -> list[Json]:
        """The distinct values of a field."""
        return distinct([value_at(entry.metadata, path) async for entry in self._all(EVERYTHING)])

    async def search(self, vector: Vector, limit: int, where: Clause) -> list[EntryHit]:
        """The entries nearest to a vector by cosine, of those that the server finds nearest by its own measure."""
        vectors = await self._vectors()
        check_dimension(self._name, vectors.size, len(vector))
        wanted = limit if where == EVERYTHING else 4 * limit
        while vectors.size is not None and limit > 0:
            call = self._client.query_points(
                self._name,
                query=vector.tolist(),
                using=vectors.name,
                limit=wanted,
                with_payload=True,
                with_vectors=True if vectors.name is None else [vectors.name],
                search_params=models.SearchParams(exact=True),
            )
            near = (await self._connection.call(call)).points
            hits = [EntryHit(_entry(point), _cosine(point, vectors.name, vector)) for point in near]
            passing = [hit for hit in hits if matches(where, hit.entry.metadata)]
            if len(passing) >= limit or len(near) < wanted:
                return sorted(passing, key=lambda hit: (-hit.cosine, hit.entry.id))[:limit]
            wanted *= 4
        return []

    async def _vectors(self) -> _Vectors:
        """The vectors without a name, else the first by name; sparse and multiple ones cannot be compared here."""
        info = await self._connection.call(self._client.get_collection(self._name))
        params = info.config.params.vectors
        if isinstance(params, models.VectorParams):
            return _Vectors(None, None if params.multivector_config else params.size)
        for name, named in sorted((params or {}).items()):
            if not named.multivector_config:
                return _Vectors(name, named.size)
        return _Vectors(None, None)

    async def _all(self, where: Clause) -> AsyncIterator[Entry]:
        offset: models.ExtendedPointId | None = None
        while True:
            page = self._client.scroll(self._name, limit=_PAGE, offset=offset, with_payload=True, with_vectors=False)
            records, offset = await self._connection.call(page)
            for record in records:
                entry = _entry(record)
                if matches(where, entry.metadata):
                    yield entry
            if offset is None:
                return

    async def _retrieve(self, ids: Sequence[str], *, with_vectors: bool) -> list[models.Record]:
        found: list[models.Record] = []
        known = [point for id_ in dict.fromkeys(ids) if (point := _point_id(id_)) is not None]
        for start in range(0, len(known), _PAGE):
            call = self._client.retrieve(
                self._name, known[start : start + _PAGE], with_payload=True, with_vectors=with_vectors
            )
            found += await self._connection.call(call)
        return found


def _point_id(id_: str) -> int | str | None:
    """Qdrant's ids are whole numbers and UUIDs; None for any other text."""
    if id_.isascii() and id_.isdigit() and int(id_) < 1 << 64:
        return int(id_)
    try:
        return str(UUID(id_))
    except ValueError:
        return None


def _entry(record: models.Record | models.ScoredPoint) -> Entry:
    text, metadata = read_fields(record.payload or {})
    return Entry(str(record.id), text, metadata)


def _cosine(point: models.ScoredPoint, name: str | None, vector: Vector) -> float:
    unit = _unit(point.vector, name)
    return 0.0 if unit is None else float(unit @ vector)


def _unit(vector: Any, name: str | None) -> Vector | None:
    numbers = vector.get(name) if name is not None and isinstance(vector, Mapping) else vector
    if not isinstance(numbers, list) or not numbers or isinstance(numbers[0], list):
        return None
    exact = np.asarray(numbers, dtype=np.float64)
    length = float(np.linalg.norm(exact))
    return None if not length else (exact / length).astype(np.float32)

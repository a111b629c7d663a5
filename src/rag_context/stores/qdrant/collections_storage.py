"""The collection in Qdrant with the documents of one of ours."""

import logging
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from qdrant_client import models

from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError, BackendRejectedError
from rag_context.ports.provider import Entry
from rag_context.stores.engines import check_dimension, operations
from rag_context.stores.qdrant import collections_points as points
from rag_context.stores.qdrant.collections_registry import CollectionRecord, CollectionRegistry
from rag_context.stores.qdrant.connection import COMPONENT, ORDERING, Connection, NoCollectionError

logger = logging.getLogger(__name__)

_PAGE = 1000
_HEAVY = 250
"""Points per call: with little of them, and with their texts or vectors."""

T = TypeVar("T")


class CollectionStorage:
    """The storage of the documents of the collection in `record`. It does not exist before the first vector."""

    def __init__(self, connection: Connection, catalogue: CollectionRegistry, record: CollectionRecord) -> None:
        self._connection = replace(connection, collection=record.storage)
        self._client = connection.client
        self._catalogue = catalogue
        self._name = record.collection.name
        self._storage = record.storage
        self._dimension = record.collection.dimension

    @property
    def dimension(self) -> int | None:
        """Of its vectors; None before the first."""
        return self._dimension

    def check(self, dimension: int) -> None:
        """See that vectors are of its dimension.

        Raises:
            InvalidInputError: they are of another.
        """
        check_dimension(self._name, self._dimension, dimension)

    async def bind(self, dimension: int) -> None:
        """Have a place for vectors of this dimension.

        Raises:
            InvalidInputError: it holds those of another.
        """
        if self._dimension is None:
            await self._catalogue.bind(self._name, await self._make(dimension))
        self.check(dimension)

    async def upsert(self, made: Sequence[models.PointStruct], dimension: int) -> None:
        """Store points, as few operations as their size allows."""
        for operation in operations(made, points.size_of):
            stored = partial(self._client.upsert, self._storage, list(operation), wait=True, ordering=ORDERING)
            try:
                await self._connection.update(stored)
            except NoCollectionError:
                await self._catalogue.known(self._name)
                await self._make(dimension)
                await self._connection.update(stored)

    async def scroll(self, where: models.Filter | None, fields: list[str]) -> AsyncIterator[models.Record]:
        """All points that a filter lets through, with some of their fields."""
        offset: models.ExtendedPointId | None = None
        while self._dimension is not None:
            page = self._client.scroll(
                self._storage, scroll_filter=where, limit=_PAGE, offset=offset, with_payload=fields, with_vectors=False
            )
            records, offset = await self._there(self._connection.call(page))
            for record in records:
                yield record
            if offset is None:
                return

    async def entries(self, ids: Sequence[str]) -> dict[str, Entry]:
        """Those of the given entries that exist."""
        records = await self._retrieve(ids, points.OF_AN_ENTRY, with_vectors=False)
        return {points.id_of(record.payload): points.entry_of(record.payload) for record in records}

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of those of the given entries that exist, `(dim,) float32` each."""
        records = await self._retrieve(ids, [points.ID], with_vectors=True)
        return {points.id_of(record.payload): _vector(record) for record in records}

    async def nearest(
        self, vector: Vector, limit: int, where: models.Filter | None, params: models.SearchParams | None
    ) -> list[models.ScoredPoint]:
        """The points nearest to a vector that pass a filter."""
        call = self._client.query_points(
            self._storage,
            query=vector.tolist(),
            query_filter=where,
            limit=limit,
            with_payload=[points.ID, points.METADATA],
            search_params=params,
        )
        return (await self._there(self._connection.call(call))).points

    async def delete_many(self, ids: Sequence[str]) -> None:
        """Remove entries, as few operations as their number allows."""
        for some in _batches(ids):
            selector = models.PointIdsList(points=[points.point_id(id_) for id_ in some])
            await self._there(self._connection.call(self._client.delete(self._storage, selector, wait=True)))

    async def delete(self, id_: str) -> bool:
        """Remove one entry; False where it is unknown."""
        if not await self._retrieve([id_], [points.ID], with_vectors=False):
            return False
        selector = models.PointIdsList(points=[points.point_id(id_)])
        await self._remove(selector)
        return True

    async def clear(self) -> None:
        """Remove all points, by one operation."""
        await self._remove(models.FilterSelector(filter=models.Filter()))

    async def count(self) -> int:
        """The exact number of points; 0 if the collection was deleted, for which reading them raises."""
        if self._dimension is None:
            return 0
        try:
            return (await self._connection.call(self._client.count(self._storage, exact=True))).count
        except NoCollectionError:
            logger.warning("qdrant: collection %r with the documents of a collection was deleted", self._storage)
            return 0

    async def _remove(self, selector: models.PointsSelector) -> None:
        removed = partial(self._client.delete, self._storage, selector, wait=True, ordering=ORDERING)
        await self._there(self._connection.update(removed))

    async def _make(self, dimension: int) -> int:
        """Make it with its indexes. Returns its dimension, which what is there already decides."""
        params = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        call = self._client.create_collection(self._storage, vectors_config=params, on_disk_payload=True)
        try:
            await self._connection.call(call)
        except BackendRejectedError as rejection:
            dimension = await self._look(rejection)  # another process was faster
        self._dimension = dimension
        for field, schema in points.INDEXES.items():
            indexed = partial(self._client.create_payload_index, self._storage, field, wait=True, ordering=ORDERING)
            await self._connection.update(partial(indexed, field_schema=schema))
        return dimension

    async def _look(self, rejection: BackendRejectedError) -> int:
        try:
            info = await self._connection.call(self._client.get_collection(self._storage))
        except NoCollectionError:
            raise rejection from rejection.__cause__
        vectors = info.config.params.vectors
        if not isinstance(vectors, models.VectorParams):
            raise BackendDataError(COMPONENT, f"Qdrant's collection {self._storage!r} is not one of plain vectors.")
        return vectors.size

    async def _retrieve(self, ids: Sequence[str], fields: list[str], *, with_vectors: bool) -> list[models.Record]:
        found: list[models.Record] = []
        for some in _batches(ids) if self._dimension is not None else ():
            call = self._client.retrieve(
                self._storage, [points.point_id(id_) for id_ in some], with_payload=fields, with_vectors=with_vectors
            )
            found += await self._there(self._connection.call(call))
        return found

    async def _there(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except NoCollectionError as error:
            await self._catalogue.known(self._name)  # it may have been removed meanwhile
            message = f"Qdrant's collection {self._storage!r}, with the documents of {self._name!r}, was deleted."
            raise BackendDataError(COMPONENT, message) from error


def _vector(record: models.Record) -> Vector:
    if not isinstance(record.vector, list):
        raise points.foreign()
    return np.asarray(record.vector, dtype=np.float32)


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    distinct = list(dict.fromkeys(ids))
    return (distinct[start : start + _HEAVY] for start in range(0, len(distinct), _HEAVY))

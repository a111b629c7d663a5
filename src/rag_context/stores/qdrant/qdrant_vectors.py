"""Search by vector in Qdrant, and the vectors' half of a write; and points of other programs, which are only read."""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TypeVar, Unpack

from qdrant_client import models
from qdrant_client.common.version_check import is_compatible

from rag_context.domain.documents import Chunk, Document, StoredVectors, slices
from rag_context.domain.reports import counted
from rag_context.domain.search import Filter, Passage, VectorHit
from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.errors import BackendDataError, BackendError, BackendRejectedError, NotFoundError
from rag_context.ports.reading import ForeignRecord
from rag_context.stores.engines import read_fields
from rag_context.stores.qdrant import points, qdrant_api
from rag_context.stores.qdrant.filters import conditions
from rag_context.stores.qdrant.qdrant_errors import COMPONENT, NoCollectionError
from rag_context.stores.qdrant.vector_collection import CollectionPlan, VectorCollection

_BATCH = 100
_HEAVY = 250
"""Points per call with their texts."""

_OVERSAMPLING = 2.0
_APPROXIMATE = models.SearchParams(
    quantization=models.QuantizationSearchParams(rescore=True, oversampling=_OVERSAMPLING)
)
"""All candidates are scored by their full vectors."""

_EXACT = models.SearchParams(exact=True, quantization=models.QuantizationSearchParams(ignore=True))

T = TypeVar("T")

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_qdrant(
    url: str, plan: CollectionPlan, **options: Unpack[qdrant_api.QdrantOptions]
) -> AsyncIterator["QdrantVectors"]:
    """The vectors that a Qdrant server holds, which need not be available yet. Raises: ConfigurationError."""
    async with qdrant_api.connected(url, plan.name, **options) as connection:
        yield QdrantVectors(connection, plan)


class QdrantVectors(VectorCollection):
    """`VectorStorage` over one collection; a point per chunk, its id the chunk's.

    A missing collection counts as empty, unless this process has used it before: then searches raise (an empty result
    would be wrong), and the next `put` creates it again.
    """

    def __init__(self, connection: qdrant_api.QdrantConnection, plan: CollectionPlan) -> None:
        super().__init__(connection, plan)
        self._warned = ""

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        if limit < 1:
            return []
        return await self._or_empty(self._search(vector, limit, conditions(where)), [])

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        ids = points.point_ids(chunk_ids)
        return await self._or_empty(self._score(vector, ids), {}) if ids else {}

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        records = await self._or_empty(self._connection.retrieve(points.point_ids(chunk_ids), page=qdrant_api.PAGE), [])
        return {str(record.id): points.passage_of(str(record.id), record.payload) for record in records}

    async def ping(self) -> str:
        """Read the collection again and create missing indexes; returns one line for people."""
        return await self._or_empty(self._status(), f"no collection {self._plan.name!r} yet")

    async def prepare(self, model: EmbeddingModel) -> None:
        await self.make(model.dimension)

    async def put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> None:
        stored = _points(document, chunks, vectors)
        if stored:
            await self._store(stored, vectors.shape[1])
        # Only now: a crash leaves points of two versions, never of none.
        await self._delete(points.stale_points(document.id, [point.id for point in stored]))

    async def discard(self, document_ids: Collection[str]) -> None:
        for ids in slices(sorted(document_ids), qdrant_api.PAGE):
            await self._delete(points.of_documents(ids))

    async def stored_vectors(self, document_ids: Collection[str]) -> dict[str, StoredVectors]:
        chunks: defaultdict[str, set[str]] = defaultdict(set)
        revisions: defaultdict[str, set[str]] = defaultdict(set)
        for ids in slices(sorted(document_ids), qdrant_api.PAGE):
            async for record in self._scroll(points.of_documents(ids), points.IDENTITY):
                payload = record.payload or {}
                document_id = str(payload.get(points.DOCUMENT_ID))
                chunks[document_id].add(str(record.id))
                revisions[document_id].add(str(payload.get(points.CONTENT_HASH)))
        return {id_: StoredVectors(frozenset(found), frozenset(revisions[id_])) for id_, found in chunks.items()}

    async def stored_documents(self) -> AsyncIterator[str]:
        last = None
        async for record in self._scroll(None, points.IDENTITY):
            document_id: str = (record.payload or {})[points.DOCUMENT_ID]
            if document_id != last:
                last = document_id
                yield document_id

    async def vectors(self, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        ids = points.point_ids(chunk_ids)
        try:
            records = await self._connection.retrieve(ids, page=_BATCH, payload=False, vectors=True)
        except NoCollectionError:
            return {}
        return {str(record.id): qdrant_api.vector_of(record) for record in records}

    async def clear(self) -> None:
        """The collection is created again with the next vectors; where other programs use it too, only ours go."""
        await self.remove()

    def sibling(self, suffix: str) -> "QdrantVectors":
        """Another collection of the same server and the same plan, under this one's name and `suffix`."""
        name = f"{self._plan.name}{suffix}"
        return QdrantVectors(self._connection.to(name), replace(self._plan, name=name))

    async def _or_empty(self, work: Awaitable[T], empty: T) -> T:
        """The result of `work`, or `empty` where there never was a collection."""
        try:
            return await work
        except NoCollectionError:
            if self.was_found:
                raise
            return empty

    async def _search(self, vector: Vector, limit: int, where: models.Filter) -> list[VectorHit]:
        near = await qdrant_api.nearest(
            lambda count: self._query(vector, count, where, _APPROXIMATE, points.OF_A_HIT),
            limit,
            lambda point: points.is_hit(point.payload),
        )
        hits = [VectorHit(points.ref_of(str(point.id), point.payload), point.score) for point in near]
        return sorted(hits, key=lambda hit: (-hit.cosine, hit.chunk.id))[:limit]

    async def _score(self, vector: Vector, ids: list[models.ExtendedPointId]) -> dict[str, float]:
        where = models.Filter(must=[models.HasIdCondition(has_id=ids)])
        points = await self._query(vector, len(ids), where, _EXACT, [])
        return {str(point.id): point.score for point in points}

    async def _query(
        self, vector: Vector, limit: int, where: models.Filter, params: models.SearchParams, payload: list[str]
    ) -> list[models.ScoredPoint]:
        await self._check(vector)
        try:
            return await self._connection.nearest(vector, limit, where=where, params=params, payload=payload or False)
        except BackendRejectedError:
            await self.refresh()
            await self._check(vector)  # another process may have created the collection again
            raise

    async def _status(self) -> str:
        info = await self.refresh()
        await self.make_indexes(info)
        ours = await self.count()
        line = f"{counted(ours, 'vector')} in collection {self._plan.name!r} ({info.status.value})"
        if (foreign := (info.points_count or 0) - ours) > 0:
            line = f"{line}, beside {counted(foreign, 'point')} of other programs"
        warning = await self._version_warning()
        return f"{line}; {warning}" if warning else line

    async def _version_warning(self) -> str:
        try:
            server = (await self._connection.call(lambda client: client.info())).version
        except BackendError:
            return ""  # the server has just answered; a proxy may block this request
        client = version("qdrant-client")
        warning = "" if is_compatible(client, server) else f"server {server} is too far from the client's {client}"
        if warning and warning != self._warned:
            logger.warning("qdrant: %s: their minor versions should differ by one at most", warning)
        self._warned = warning
        return warning

    async def _check(self, vector: Vector) -> None:
        # Before the call: the server's own message would not say what to do.
        if not await self.fits(vector.shape[0]):
            raise BackendDataError(COMPONENT, self.mismatch(vector.shape[0]))

    async def _store(self, points: Sequence[models.PointStruct], dimension: int) -> None:
        with suppress(NoCollectionError):
            if await self.fits(dimension):  # no call while the cached dimension is the same
                await self._upsert(points)
                return
        await self.make(dimension)
        await self._upsert(points)

    async def _upsert(self, points: Sequence[models.PointStruct]) -> None:
        for batch in slices(points, _BATCH):
            await self._connection.upsert(batch)

    async def _delete(self, where: models.Filter) -> None:
        with suppress(NoCollectionError):
            await self._connection.delete(models.FilterSelector(filter=where))

    async def _scroll(self, where: models.Filter | None, names: list[str]) -> AsyncIterator[models.Record]:
        with suppress(NoCollectionError):
            async for record in self._connection.scroll(where, names):
                if points.is_ours(record.id, record.payload):
                    yield record


def _points(document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> list[models.PointStruct]:
    if len(points.source_blocks(document.source)) > points.MOST_BLOCKS:
        raise BackendRejectedError(
            COMPONENT, f"A source of more than {points.MOST_BLOCKS * points.BLOCK_BYTES} bytes is too long."
        )
    return [
        models.PointStruct(id=chunk.id, vector=row.tolist(), payload=points.payload_of(document, chunk))
        for chunk, row in zip(chunks, vectors, strict=True)
    ]


@asynccontextmanager
async def open_other_points(
    url: str, collection: str, **options: Unpack[qdrant_api.QdrantOptions]
) -> AsyncIterator["OtherPoints"]:
    """Open a collection for reading. Raises: ConfigurationError (the address, or the name)."""
    async with qdrant_api.connected(url, collection, **options) as connection:
        yield OtherPoints(connection)


class OtherPoints:
    """`ForeignSource` over the points that this package did not store."""

    def __init__(self, connection: qdrant_api.QdrantConnection) -> None:
        self._connection = connection

    @property
    def label(self) -> str:
        return f"{self._connection.collection} in Qdrant"

    async def records(self) -> AsyncIterator[ForeignRecord]:
        try:
            async for point in self._connection.scroll(None, payload=True, page=_HEAVY):
                if points.is_ours(point.id, point.payload):
                    continue
                text, fields = read_fields(point.payload or {})
                names = {str(point.id), str(fields.get(points.CHUNK_ID, point.id))}
                yield ForeignRecord(str(point.id), text, fields, frozenset(names))
        except NoCollectionError as error:
            raise NotFoundError(str(error)) from error

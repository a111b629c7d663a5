"""Vectors in Qdrant: how their collection is created, with its indexes; search, and the vectors' half of a write.

And points of other programs, which are only read.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Literal, TypeAlias, TypeVar, Unpack

from qdrant_client import models
from qdrant_client.common.version_check import is_compatible

from rag_context.domain.documents import Chunk, Document, StoredVectors, counted, slices
from rag_context.domain.search import Filter, Passage, VectorHit
from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.errors import BackendDataError, BackendError, BackendRejectedError, ForeignDataError, NotFoundError
from rag_context.ports.reading import ForeignRecord
from rag_context.stores.engines import read_fields
from rag_context.stores.qdrant import points, qdrant_api
from rag_context.stores.qdrant.filters import INDEXES, conditions
from rag_context.stores.qdrant.qdrant_errors import COMPONENT, NoCollectionError

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


Quantization: TypeAlias = Literal["none", "scalar", "binary"]


@dataclass(frozen=True, slots=True)
class CollectionPlan:
    """The collection's name, and how it is created if it is missing; the server chooses what is None.

    Quantised vectors are kept in memory, the originals, by which results are scored again, on disk.
    """

    name: str
    quantization: Quantization = "none"
    shards: int | None = None


@asynccontextmanager
async def open_qdrant(
    url: str, plan: CollectionPlan, **options: Unpack[qdrant_api.QdrantOptions]
) -> AsyncIterator["QdrantVectors"]:
    """The vectors that a Qdrant server holds, which need not be available yet. Raises: ConfigurationError."""
    async with qdrant_api.connected(url, plan.name, **options) as connection:
        yield QdrantVectors(connection, plan)


class QdrantVectors:
    """`VectorStorage` over one collection; a point per chunk, its id the chunk's.

    A missing collection counts as empty, unless this process has used it before: then searches raise (an empty result
    would be wrong), and the next `put` creates it again. Its cached properties may be outdated: they are read again
    where it matters.
    """

    def __init__(self, connection: qdrant_api.QdrantConnection, plan: CollectionPlan) -> None:
        self._connection = connection
        self._plan = plan
        self._dimension: int | None = None
        self._replaced: set[str] = set()
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

    @property
    def was_found(self) -> bool:
        """Whether this process has found the collection, and not removed it itself."""
        return self._dimension is not None

    def mismatch(self, dimension: int) -> str:
        return (
            f"Qdrant's collection {self._plan.name!r} holds vectors of dimension {self._dimension}, not {dimension}:"
            " run `rag-context reindex`, or name another as stores.qdrant_collection."
        )

    async def refresh(self) -> models.CollectionInfo:
        """Read its properties. Raises: NoCollectionError, ForeignDataError (no plain cosine vectors)."""
        info = await self._connection.info()
        vectors = info.config.params.vectors
        if not isinstance(vectors, models.VectorParams) or vectors.distance != models.Distance.COSINE:
            raise self._foreign_error("is not one of plain cosine vectors")
        self._dimension = vectors.size
        return info

    async def fits(self, dimension: int) -> bool:
        """Whether vectors of this dimension can be compared with the stored ones. Raises: NoCollectionError."""
        if self._dimension != dimension:
            await self.refresh()
        return self._dimension == dimension

    async def make(self, dimension: int) -> None:
        """Create the collection and its indexes if they are missing; an empty one may change its dimension.

        Raises: ForeignDataError, BackendRejectedError (it holds vectors of another dimension).
        """
        try:
            info = await self.refresh()
        except NoCollectionError:
            info = await self._create(dimension)
        if self._dimension != dimension or not await self.count():
            await self.require_own()
        if self._dimension != dimension:
            if await self.count() > 0:
                raise BackendRejectedError(COMPONENT, self.mismatch(dimension))
            # Another program may have made it and stored nothing yet.
            if not _has_our_indexes(info):
                raise self._foreign_error(f"is empty, and was made by another program for {self._dimension} dimensions")
            await self.remove()
            info = await self._create(dimension)
        await self.make_indexes(info)

    async def make_indexes(self, info: models.CollectionInfo) -> None:
        """Create the payload indexes that are missing, or differ from ours; not beside points of other programs.

        An existing one is replaced at most once: a server may not report all of its options.
        """
        missing = {
            field: schema
            for field, schema in INDEXES.items()
            if (existing := info.payload_schema.get(field)) is None
            or (field not in self._replaced and not _is_like(existing, schema))
        }
        if not missing or await self._count(points.FOREIGN):
            return
        for field, schema in missing.items():
            if field in info.payload_schema:
                self._replaced.add(field)
            await self._connection.index(field, schema)

    async def count(self) -> int:
        return await self._count(points.OURS)

    async def require_own(self) -> None:
        """Check that no other program has points in it; a missing one is ours. Raises: ForeignDataError."""
        if not (foreign := await self._count(points.FOREIGN)):
            return
        raise self._foreign_error(f"holds {counted(foreign, 'point')} of other programs")

    async def remove(self) -> None:
        """Remove it with all its vectors; of one that other programs use too, only our points."""
        with suppress(NoCollectionError):
            is_ours = not await self._count(points.FOREIGN) and (
                await self.count() > 0 or _has_our_indexes(await self._connection.info())
            )
            if is_ours:
                await self._connection.drop()
            else:
                await self._connection.delete(models.FilterSelector(filter=points.OURS))
        self._dimension = None

    async def _count(self, where: models.Filter) -> int:
        try:
            return await self._connection.count(where)
        except NoCollectionError:
            return 0

    def _foreign_error(self, what: str) -> ForeignDataError:
        name = self._plan.name
        other = "rag-context" if name != "rag-context" else "rag-context-vectors"
        return ForeignDataError(
            COMPONENT,
            f"Qdrant's collection {name!r} {what}. It was not changed: set stores.qdrant_collection to another name,"
            f" such as {other!r}. `rag-context adopt` takes over documents in the form of earlier programs.",
        )

    async def _create(self, dimension: int) -> models.CollectionInfo:
        if self.was_found:
            logger.warning("qdrant: collection %r was deleted; it is created again, empty", self._plan.name)
        plan = self._plan
        await self._connection.create(
            models.VectorParams(size=dimension, distance=models.Distance.COSINE, on_disk=plan.quantization != "none"),
            shards=plan.shards,
            quantize=_quantization(plan.quantization),
        )
        return await self.refresh()


def _has_our_indexes(info: models.CollectionInfo) -> bool:
    """Whether we made a collection, even if it is empty."""
    return {points.DOCUMENT_ID, points.PATH_HASH} <= info.payload_schema.keys()


def _is_like(existing: models.PayloadIndexInfo, schema: models.PayloadSchemaParams) -> bool:
    if existing.data_type.value != schema.type.value:
        return False
    has = {} if existing.params is None else existing.params.model_dump(exclude_none=True)
    options = schema.model_dump(exclude_none=True, exclude={"type"})
    return all(has.get(name) == value for name, value in options.items())


def _quantization(kind: Quantization) -> models.QuantizationConfig | None:
    match kind:
        case "scalar":
            scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
            return models.ScalarQuantization(scalar=scalar)
        case "binary":
            return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
        case "none":
            return None


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
        self.label = f"{connection.collection} in Qdrant"

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

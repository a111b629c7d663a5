"""The collection of vectors: how it is created, and the indexes it must have."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from qdrant_client import models

from rag_context.domain.reports import counted
from rag_context.errors import BackendRejectedError, ForeignDataError
from rag_context.stores.qdrant.filters import INDEXES
from rag_context.stores.qdrant.points import DOCUMENT_ID, FOREIGN, OURS, PATH_HASH
from rag_context.stores.qdrant.qdrant_api import QdrantConnection
from rag_context.stores.qdrant.qdrant_errors import COMPONENT, NoCollectionError

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


class VectorCollection:
    """The collection of `QdrantVectors`; its cached properties may be outdated, and are read again where it matters."""

    def __init__(self, connection: QdrantConnection, plan: CollectionPlan) -> None:
        self._connection = connection
        self._plan = plan
        self._dimension: int | None = None
        self._replaced: set[str] = set()

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
        if not missing or await self._count(FOREIGN):
            return
        for field, schema in missing.items():
            if field in info.payload_schema:
                self._replaced.add(field)
            await self._connection.index(field, schema)

    async def count(self) -> int:
        return await self._count(OURS)

    async def require_own(self) -> None:
        """Check that no other program has points in it; a missing one is ours. Raises: ForeignDataError."""
        if not (foreign := await self._count(FOREIGN)):
            return
        raise self._foreign_error(f"holds {counted(foreign, 'point')} of other programs")

    async def remove(self) -> None:
        """Remove it with all its vectors; of one that other programs use too, only our points."""
        with suppress(NoCollectionError):
            is_ours = not await self._count(FOREIGN) and (
                await self.count() > 0 or _has_our_indexes(await self._connection.info())
            )
            if is_ours:
                await self._connection.drop()
            else:
                await self._connection.delete(models.FilterSelector(filter=OURS))
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
    return {DOCUMENT_ID, PATH_HASH} <= info.payload_schema.keys()


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

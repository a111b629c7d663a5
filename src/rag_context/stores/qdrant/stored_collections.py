"""Collections as they are stored in Qdrant: a registry with the record of each of ours, and documents as points.

The registry is one collection in Qdrant with a point, the record, for each of ours: Qdrant before 1.16 stores no
metadata with a collection, and needs the dimension from the start. The documents are in a collection of their own,
created with the first vector under a name that is used only once. They carry their metadata as tokens too.

Other programs' are read as they are, whatever the shape of their payloads. Their points have no index of ours, so a
`where` is checked document by document; cosines are computed here, because their vectors may be compared by another
measure there, and need not be of length 1.
"""

import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar
from uuid import UUID, uuid4, uuid5

import numpy as np
from qdrant_client import models

from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.documents import Json, slices
from rag_context.domain.vectors import Matrix, Vector
from rag_context.domain.where import matches, value_at
from rag_context.errors import BackendDataError
from rag_context.ports.provider import Collection, Entry, EntryHit
from rag_context.stores import engines, tokens
from rag_context.stores.qdrant.qdrant_api import ORDERING, QdrantConnection, nearest, vector_of
from rag_context.stores.qdrant.qdrant_errors import COMPONENT, NoCollectionError, NoPointError
from rag_context.stores.tokens import And, AnyOf, Condition, NoneOf, Or, Range, distinct, narrow, numbers_of, present

_STORAGE = "home"
_METADATA = "metadata"
_DIMENSION = "dimension"

REGISTRY = "-catalogue"
"""The suffix of a registry's name, after its prefix."""

_OF_OURS = re.compile(r".+\.[0-9a-f]{32}", re.DOTALL)
"""The name of a storage for documents, of any prefix."""

_ONCE = re.compile(r"\.[0-9a-f]{32}")
"""The part that makes a name unique."""

ID = "id"
TEXT = "text"
METADATA = "metadata"
TOKENS = "facts"
NUMBERS = "numbers"
PATH = "path"
VALUE = "value"
_WORD = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD)
_NUMBER = models.FloatIndexParams(type=models.FloatIndexType.FLOAT)

INDEXES: Mapping[str, models.KeywordIndexParams | models.FloatIndexParams] = {
    TOKENS: _WORD,
    f"{NUMBERS}[].{PATH}": _WORD,
    f"{NUMBERS}[].{VALUE}": _NUMBER,
}
"""The fields by which entries are found."""

_IDS = UUID("6f5ac0a2-6c1c-5a3e-8f0c-3f5f6f9d4b55")
Payload: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """The record of a collection, with the name of the storage for its documents; without its count."""

    collection: Collection
    storage: str


class CollectionRegistry:
    """The records of all collections whose names in Qdrant begin with a prefix."""

    def __init__(self, connection: QdrantConnection, prefix: str) -> None:
        self._connection = connection
        self._name = connection.collection
        self._prefix = prefix

    async def records(self) -> list[CollectionRecord]:
        try:
            found = [_record(record.payload) async for record in self._connection.scroll(None, payload=True)]
        except NoCollectionError:
            return []
        return sorted(found, key=lambda record: record.collection.name)

    async def record(self, name: str) -> CollectionRecord | None:
        try:
            records = await self._connection.retrieve([point_id(name)], page=1)
        except NoCollectionError:
            return None
        return _record(records[0].payload) if records else None

    async def require(self, name: str) -> CollectionRecord:
        record = await self.record(name)
        if record is None:
            raise engines.unknown_collection(name)
        return record

    async def add(self, collection: Collection) -> None:
        storage = f"{engines.engine_name(self._prefix, collection.name)}.{uuid4().hex}"
        record = {**engines.recorded(collection), _METADATA: _texts(collection.metadata), _STORAGE: storage}
        kept = {key: value for key, value in record.items() if value is not None}
        point = models.PointStruct(id=point_id(collection.name), vector=[1.0], payload=kept)
        try:
            await self._connection.upsert([point])
        except NoCollectionError:
            # Every collection must have vectors; those of the records have no meaning.
            await self._connection.create(models.VectorParams(size=1, distance=models.Distance.DOT))
            await self._connection.upsert([point])

    async def bind(self, name: str, dimension: int) -> None:
        await self._change(name, {_DIMENSION: dimension}, None)

    async def replace(self, name: str, metadata: Mapping[str, Json]) -> None:
        await self._change(name, {_METADATA: _texts(metadata)}, None)

    async def merge(self, name: str, metadata: Mapping[str, Json]) -> None:
        """Set some keys of a collection's metadata; the server does it atomically."""
        if metadata:
            await self._change(name, dict(_texts(metadata)), _METADATA)

    async def remove(self, name: str) -> None:
        await self._connection.delete(models.PointIdsList(points=[point_id(name)]))

    async def storages(self, name: str) -> list[str]:
        """The names of all present and former storages of a collection's documents in Qdrant."""
        begins = engines.engine_name(self._prefix, name)
        names = await self._names()
        return [name for name in names if name.startswith(begins) and _ONCE.fullmatch(name, len(begins))]

    async def switch(self, name: str, built: CollectionRecord) -> None:
        """Make a record refer to the storage of `built`, with its metadata and dimension, by one operation."""
        payload = {
            _STORAGE: built.storage,
            _METADATA: _texts(built.collection.metadata),
            _DIMENSION: built.collection.dimension,
        }
        await self._change(name, payload, None)

    async def others(self) -> list[str]:
        """The names of all collections in Qdrant that were not made for ours, whatever their prefix."""
        return sorted(name for name in await self._names() if name != self._name and not _OF_OURS.fullmatch(name))

    async def _names(self) -> list[str]:
        found = await self._connection.call(lambda client: client.get_collections())
        return [each.name for each in found.collections]

    async def _change(self, name: str, payload: dict[str, Any], key: str | None) -> None:
        points: list[models.ExtendedPointId] = [point_id(name)]
        try:
            await self._connection.update(
                lambda client: client.set_payload(self._name, payload, points, key, wait=True, ordering=ORDERING)
            )
        except (NoCollectionError, NoPointError) as error:
            raise engines.unknown_collection(name) from error


def _record(payload: Mapping[str, Any] | None) -> CollectionRecord:
    payload = payload or {}
    try:
        metadata = {key: json.loads(text) for key, text in payload[_METADATA].items()}
        return CollectionRecord(engines.collection_from({**payload, _METADATA: metadata}), payload[_STORAGE])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackendDataError(COMPONENT, "A record in Qdrant's registry of collections cannot be read.") from error


def _texts(metadata: Mapping[str, Json]) -> dict[str, str]:
    return {key: json.dumps(value, ensure_ascii=False) for key, value in metadata.items()}


def point_id(id_: str) -> str:
    return str(uuid5(_IDS, id_))


def points_of(entries: Sequence[Entry], vectors: Matrix) -> list[models.PointStruct]:
    """Entries with their vectors, `(n, dim) float32`. The metadata is kept as text, so that it comes back as it was."""
    points: list[models.PointStruct] = []
    for entry, vector in zip(entries, vectors, strict=True):
        numbers = [{PATH: path, VALUE: value} for path, value in numbers_of(entry.metadata).items()]
        payload = {
            ID: entry.id,
            TEXT: entry.text,
            METADATA: json.dumps(entry.metadata, ensure_ascii=False),
            TOKENS: tokens.tokens_of(entry.metadata),
            **({NUMBERS: numbers} if numbers else {}),
        }
        points.append(models.PointStruct(id=point_id(entry.id), vector=vector.tolist(), payload=payload))
    return points


def size_of(point: models.PointStruct) -> int:
    """An upper estimate of the bytes of a point in a request."""
    vector = point.vector if isinstance(point.vector, list) else []
    return len(vector) * engines.FLOAT_CHARS + len(json.dumps(point.payload))


def entry_of(payload: Payload | None) -> Entry:
    """The entry that a point carries. Raises: BackendDataError (the payload is not one of ours)."""
    payload = payload or {}
    text = payload.get(TEXT)
    if not isinstance(text, str):
        raise _not_ours()
    return Entry(id_of(payload), text, metadata_of(payload))


def id_of(payload: Payload | None) -> str:
    """The id of the entry that a point carries. Raises: BackendDataError."""
    found = (payload or {}).get(ID)
    if not isinstance(found, str):
        raise _not_ours()
    return found


def metadata_of(payload: Payload | None) -> dict[str, Json]:
    """The metadata of the entry that a point carries. Raises: BackendDataError."""
    try:
        found = json.loads((payload or {})[METADATA])
    except (KeyError, TypeError, ValueError) as error:
        raise _not_ours() from error
    if not isinstance(found, dict):
        raise _not_ours()
    return found


def _not_ours() -> BackendDataError:
    return BackendDataError(COMPONENT, "A point in one of Qdrant's collections was not stored by rag-context.")


def filter_of(condition: Condition | None) -> models.Filter | None:
    return None if condition is None else models.Filter(must=[_condition(condition)])


def _condition(condition: Condition) -> models.Condition:
    match condition:
        case AnyOf(wanted):
            return models.FieldCondition(key=TOKENS, match=models.MatchAny(any=list(wanted)))
        case NoneOf(unwanted):
            # Not `except`: that lets through a point only if it has some other token.
            excluded = models.FieldCondition(key=TOKENS, match=models.MatchAny(any=list(unwanted)))
            return models.Filter(must_not=[excluded])
        case Range(path, bound, value):
            # Nested, so that path and value are those of one number, not of any two.
            inner: list[models.Condition] = [
                models.FieldCondition(key=PATH, match=models.MatchValue(value=path)),
                models.FieldCondition(key=VALUE, range=models.Range.model_validate({bound: value})),
            ]
            return models.NestedCondition(nested=models.Nested(key=NUMBERS, filter=models.Filter(must=inner)))
        case And(parts):
            return models.Filter(must=_conditions(parts))
        case Or(parts):
            return models.Filter(should=_conditions(parts))


def _conditions(parts: Iterable[Condition]) -> list[models.Condition]:
    return [_condition(part) for part in parts]


logger = logging.getLogger(__name__)

_HEAVY = 250
"""Points per call with their texts or vectors."""

T = TypeVar("T")


class CollectionStorage:
    """The storage of the documents of the collection in `record`. It does not exist before the first vector."""

    def __init__(self, connection: QdrantConnection, registry: CollectionRegistry, record: CollectionRecord) -> None:
        self._connection = connection.to(record.storage)
        self._registry = registry
        self._name = record.collection.name
        self._storage = record.storage
        self._dimension = record.collection.dimension

    def check(self, dimension: int) -> None:
        """Check that vectors are of its dimension. Raises: InvalidInputError (they are of another)."""
        engines.check_dimension(self._name, self._dimension, dimension)

    async def bind(self, dimension: int) -> None:
        """Create the storage for vectors of this dimension, if it is missing. Raises: InvalidInputError."""
        if self._dimension is None:
            await self._registry.bind(self._name, await self._make(dimension))
        self.check(dimension)

    async def upsert(self, points: Sequence[models.PointStruct], dimension: int) -> None:
        """Store points, as few operations as their size allows."""
        for operation in engines.operations(points, size_of):
            try:
                await self._connection.upsert(operation)
            except NoCollectionError:
                # Removed with its record, or by hand: only in the second case it is created again.
                await self._registry.require(self._name)
                await self._make(dimension)
                await self._connection.upsert(operation)

    async def ids(self, where: Clause) -> list[str]:
        narrowed = narrow(where)
        fields = [ID] if narrowed.exact else [ID, METADATA]
        return sorted(
            [
                id_of(record.payload)
                async for record in self._scroll(filter_of(narrowed.condition), fields)
                if narrowed.exact or matches(where, metadata_of(record.payload))
            ]
        )

    async def get(self, ids: Sequence[str]) -> dict[str, Entry]:
        records = await self._retrieve(ids, [ID, TEXT, METADATA])
        return {id_of(record.payload): entry_of(record.payload) for record in records}

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        records = await self._retrieve(ids, [ID], vectors=True)
        return {id_of(record.payload): vector_of(record) for record in records}

    async def values(self, path: tuple[str, ...]) -> list[Json]:
        has_value = filter_of(AnyOf((present(path),)))
        return distinct(
            [value_at(metadata_of(record.payload), path) async for record in self._scroll(has_value, [METADATA])]
        )

    async def search(self, vector: Vector, limit: int, where: Clause) -> list[EntryHit]:
        self.check(len(vector))
        if self._dimension is None or limit < 1:
            return []
        best = await self._best(vector, limit, where)
        existing = await self.get([id_ for id_, _ in best])
        return [EntryHit(existing[id_], cosine) for id_, cosine in best if id_ in existing]

    async def delete_many(self, ids: Sequence[str], where: Clause) -> int:
        """Remove those of these entries that pass, as few operations as their number allows; returns how many."""
        gone = [point_id(id_) for id_, entry in (await self.get(ids)).items() if matches(where, entry.metadata)]
        for some in slices(gone, _HEAVY):
            await self._existing(self._connection.delete(models.PointIdsList(points=[*some])))
        return len(gone)

    async def clear(self) -> None:
        await self._existing(self._connection.delete(models.FilterSelector(filter=models.Filter())))

    async def count(self) -> int:
        """The exact number of points; 0 if the collection was deleted, for which reading them raises."""
        if self._dimension is None:
            return 0
        try:
            return await self._connection.count()
        except NoCollectionError:
            logger.warning("qdrant: collection %r with the documents of a collection was deleted", self._storage)
            return 0

    async def _best(self, vector: Vector, limit: int, where: Clause) -> list[tuple[str, float]]:
        """Ids and cosines of the nearest entries, equal ones by id: requests as many as that takes."""
        narrowed = narrow(where)
        condition = filter_of(narrowed.condition)
        params = None if narrowed.exact else models.SearchParams(exact=True)

        def request(count: int) -> Awaitable[list[models.ScoredPoint]]:
            return self._existing(
                self._connection.nearest(vector, count, where=condition, params=params, payload=[ID, METADATA])
            )

        found = await nearest(request, limit, lambda each: narrowed.exact or matches(where, metadata_of(each.payload)))
        named = [(id_of(each.payload), each.score) for each in found]
        return sorted(named, key=lambda each: (-each[1], each[0]))[:limit]

    async def _make(self, dimension: int) -> int:
        """Create it with its indexes. Returns its dimension: that of an existing one, where there is one."""
        vectors = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        existing = await self._connection.create(vectors)  # another process, perhaps
        if existing is not None:
            vectors_there = existing.config.params.vectors
            if not isinstance(vectors_there, models.VectorParams):
                raise BackendDataError(COMPONENT, f"Qdrant's collection {self._storage!r} is not one of plain vectors.")
            dimension = vectors_there.size
        self._dimension = dimension
        for field, schema in INDEXES.items():
            await self._connection.index(field, schema)
        return dimension

    async def _scroll(self, where: models.Filter | None, fields: list[str]) -> AsyncIterator[models.Record]:
        if self._dimension is None:
            return
        try:
            async for record in self._connection.scroll(where, fields):
                yield record
        except NoCollectionError as error:
            raise await self._deleted() from error

    async def _retrieve(self, ids: Sequence[str], fields: list[str], *, vectors: bool = False) -> list[models.Record]:
        if self._dimension is None:
            return []
        points: list[models.ExtendedPointId] = [point_id(id_) for id_ in dict.fromkeys(ids)]
        return await self._existing(self._connection.retrieve(points, page=_HEAVY, payload=fields, vectors=vectors))

    async def _existing(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except NoCollectionError as error:
            raise await self._deleted() from error

    async def _deleted(self) -> BackendDataError:
        """The error for documents that are gone. Raises: NotFoundError where their collection was removed meanwhile."""
        await self._registry.require(self._name)
        message = f"Qdrant's collection {self._storage!r}, with the documents of {self._name!r}, was deleted."
        return BackendDataError(COMPONENT, message)


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Which of a point's vectors is read. `name` is None if they have no names, `size` if none is dense."""

    name: str | None
    size: int | None


class ForeignCollection:
    """Reads a collection of Qdrant's by its own name."""

    def __init__(self, connection: QdrantConnection, name: str) -> None:
        self._connection = connection.to(name)
        self._name = name

    async def described(self) -> Collection | None:
        """The collection; None if it does not exist, or is the registry of another rag-context."""
        try:
            vectors = await self._vectors()
            if self._name.endswith(REGISTRY) and vectors == _Vectors(None, 1):
                return None
            count = await self._connection.count()
        except NoCollectionError:
            return None
        return Collection(self._name, dimension=vectors.size, count=count, foreign=True)

    async def ids(self, where: Clause) -> list[str]:
        return sorted([entry.id async for entry in self._all(where)])

    async def get(self, ids: Sequence[str]) -> dict[str, Entry]:
        return {str(record.id): _entry(record) for record in await self._retrieve(ids)}

    async def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Their vectors, brought to length 1; points without one are left out."""
        name = (await self._vectors()).name
        found = {str(record.id): _unit(record.vector, name) for record in await self._retrieve(ids, vectors=True)}
        return {id_: vector for id_, vector in found.items() if vector is not None}

    async def values(self, path: tuple[str, ...]) -> list[Json]:
        return distinct([value_at(entry.metadata, path) async for entry in self._all(EVERYTHING)])

    async def search(self, vector: Vector, limit: int, where: Clause) -> list[EntryHit]:
        """The entries nearest to a vector by cosine, of those that the server finds nearest by its own measure."""
        vectors = await self._vectors()
        engines.check_dimension(self._name, vectors.size, len(vector))
        # A filter is checked here, document by document: more are requested until enough of them pass.
        count = limit if where == EVERYTHING else 4 * limit
        while vectors.size is not None and limit > 0:
            near = await self._connection.nearest(
                vector,
                count,
                params=models.SearchParams(exact=True),
                vectors=True if vectors.name is None else [vectors.name],
                using=vectors.name,
            )
            units = [_unit(point.vector, vectors.name) for point in near]
            cosines = [0.0 if unit is None else float(unit @ vector) for unit in units]
            hits = [EntryHit(_entry(point), cosine) for point, cosine in zip(near, cosines, strict=True)]
            passing = [hit for hit in hits if matches(where, hit.entry.metadata)]
            if len(passing) >= limit or len(near) < count:
                return sorted(passing, key=lambda hit: (-hit.cosine, hit.entry.id))[:limit]
            count *= 4
        return []

    async def _vectors(self) -> _Vectors:
        """The vectors without a name, else the first by name; sparse and multiple ones cannot be compared here."""
        info = await self._connection.info()
        params = info.config.params.vectors
        if isinstance(params, models.VectorParams):
            return _Vectors(None, None if params.multivector_config else params.size)
        for name, named in sorted((params or {}).items()):
            if not named.multivector_config:
                return _Vectors(name, named.size)
        return _Vectors(None, None)

    async def _all(self, where: Clause) -> AsyncIterator[Entry]:
        async for record in self._connection.scroll(None, payload=True, page=_HEAVY):
            entry = _entry(record)
            if matches(where, entry.metadata):
                yield entry

    async def _retrieve(self, ids: Sequence[str], *, vectors: bool = False) -> list[models.Record]:
        points = [point for id_ in dict.fromkeys(ids) if (point := _point_id(id_)) is not None]
        return await self._connection.retrieve(points, page=_HEAVY, vectors=vectors)


def _point_id(id_: str) -> int | str | None:
    """Qdrant's ids are whole numbers and UUIDs; None for any other text."""
    if id_.isascii() and id_.isdigit() and int(id_) < 1 << 64:
        return int(id_)
    try:
        return str(UUID(id_))
    except ValueError:
        return None


def _entry(record: models.Record | models.ScoredPoint) -> Entry:
    text, metadata = engines.read_fields(record.payload or {})
    return Entry(str(record.id), text, metadata)


def _unit(vector: Any, name: str | None) -> Vector | None:
    numbers = vector.get(name) if name is not None and isinstance(vector, Mapping) else vector
    if not isinstance(numbers, list) or not numbers or isinstance(numbers[0], list):
        return None
    exact = np.asarray(numbers, dtype=np.float64)
    length = float(np.linalg.norm(exact))
    return None if not length else (exact / length).astype(np.float32)

"""Collections of ours as Qdrant keeps them: the registry with the record of each, and its documents as points.

The registry is one collection in Qdrant with a point, the record, for each of ours: Qdrant before 1.16 stores no
metadata with a collection, and needs the dimension from the start. The documents are in a collection of their own,
created with the first vector under a name that is used only once. They carry their metadata as tokens too.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID, uuid4, uuid5

from qdrant_client import AsyncQdrantClient, models

from rag_context.domain.documents import Json
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendDataError
from rag_context.ports.provider import Collection, Entry
from rag_context.stores.engines import FLOAT_CHARS, collection_from, engine_name, recorded, unknown_collection
from rag_context.stores.qdrant.qdrant_api import ORDERING, QdrantConnection
from rag_context.stores.qdrant.qdrant_errors import COMPONENT, NoCollectionError, NoPointError
from rag_context.stores.tokens import And, AnyOf, Condition, NoneOf, Or, Range, numbers_of, tokens_of

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
        self._client: AsyncQdrantClient = connection.client
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
            raise unknown_collection(name)
        return record

    async def add(self, collection: Collection) -> None:
        storage = f"{engine_name(self._prefix, collection.name)}.{uuid4().hex}"
        record = {**recorded(collection), _METADATA: _texts(collection.metadata), _STORAGE: storage}
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
        begins = engine_name(self._prefix, name)
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
        found = await self._connection.call(self._client.get_collections())
        return [each.name for each in found.collections]

    async def _change(self, name: str, payload: dict[str, Any], key: str | None) -> None:
        points: list[models.ExtendedPointId] = [point_id(name)]
        call = partial(
            self._client.set_payload, self._name, payload, points=points, key=key, wait=True, ordering=ORDERING
        )
        try:
            await self._connection.update(call)
        except (NoCollectionError, NoPointError) as error:
            raise unknown_collection(name) from error


def _record(payload: Mapping[str, Any] | None) -> CollectionRecord:
    payload = payload or {}
    try:
        metadata = {key: json.loads(text) for key, text in payload[_METADATA].items()}
        return CollectionRecord(collection_from({**payload, _METADATA: metadata}), payload[_STORAGE])
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
            TOKENS: tokens_of(entry.metadata),
            **({NUMBERS: numbers} if numbers else {}),
        }
        points.append(models.PointStruct(id=point_id(entry.id), vector=vector.tolist(), payload=payload))
    return points


def size_of(point: models.PointStruct) -> int:
    """An upper estimate of the bytes of a point in a request."""
    vector = point.vector if isinstance(point.vector, list) else []
    return len(vector) * FLOAT_CHARS + len(json.dumps(point.payload))


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
        case AnyOf(tokens):
            return models.FieldCondition(key=TOKENS, match=models.MatchAny(any=list(tokens)))
        case NoneOf(tokens):
            # Not `except`: that lets through a point only if it has some other token.
            excluded = models.FieldCondition(key=TOKENS, match=models.MatchAny(any=list(tokens)))
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

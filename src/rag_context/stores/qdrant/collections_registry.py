"""The registry of collections: one collection in Qdrant with a point, the record, for each of ours.

Qdrant before 1.16 stores no metadata with a collection, and a collection there has its dimension from the start, while
ours gets it from its first vector. So the metadata is in the record; the collection in Qdrant with the documents is
created with their first vector, under a name that is used only once, so that the leftovers of a removal are never
found again.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

from qdrant_client import AsyncQdrantClient, models

from rag_context.domain.documents import Json
from rag_context.errors import BackendDataError, BackendRejectedError, NotFoundError
from rag_context.ports.provider import Collection
from rag_context.stores.engines import engine_name
from rag_context.stores.qdrant.collections_points import point_id
from rag_context.stores.qdrant.connection import COMPONENT, ORDERING, Connection, NoCollectionError, NoPointError

_NAME = "name"
_STORAGE = "home"
_METADATA = "metadata"
_PROVIDER = "embedding_provider"
_MODEL = "embedding_model"
_DIMENSION = "dimension"
_CREATED = "created"

_PAGE = 1000
CATALOGUE = "-catalogue"
"""The suffix of a registry's name, after its prefix."""

_NO_VECTORS = models.VectorParams(size=1, distance=models.Distance.DOT)
"""Every collection must have vectors; those of the records have no meaning."""

_OF_OURS = re.compile(r".+\.[0-9a-f]{32}", re.DOTALL)
"""The name of a storage for documents, of any prefix."""

_ONCE = re.compile(r"\.[0-9a-f]{32}")
"""The part that makes a name unique."""


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """The record of a collection, with the name of the storage for its documents; without its count."""

    collection: Collection
    storage: str


class CollectionRegistry:
    """The records of all collections whose names in Qdrant begin with a prefix."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._client: AsyncQdrantClient = connection.client
        self._name = connection.collection
        self._prefix = prefix

    async def records(self) -> list[CollectionRecord]:
        """All records, by the collections' names."""
        found: list[CollectionRecord] = []
        offset: models.ExtendedPointId | None = None
        while True:
            page = self._client.scroll(self._name, limit=_PAGE, offset=offset, with_payload=True)
            try:
                records, offset = await self._connection.call(page)
            except NoCollectionError:
                return []
            found += [_record(record.payload) for record in records]
            if offset is None:
                return sorted(found, key=lambda record: record.collection.name)

    async def record(self, name: str) -> CollectionRecord | None:
        """The record of a collection, if it exists."""
        try:
            records = await self._connection.call(self._client.retrieve(self._name, [point_id(name)]))
        except NoCollectionError:
            return None
        return _record(records[0].payload) if records else None

    async def known(self, name: str) -> CollectionRecord:
        """The record of a collection.

        Raises:
            NotFoundError: it does not exist.
        """
        record = await self.record(name)
        if record is None:
            raise _unknown(name)
        return record

    async def add(self, collection: Collection) -> None:
        """Add the record of a new collection."""
        payload = {
            _NAME: collection.name,
            _STORAGE: f"{engine_name(self._prefix, collection.name)}.{uuid4().hex}",
            _METADATA: _texts(collection.metadata),
            _PROVIDER: collection.embedding_provider,
            _MODEL: collection.embedding_model,
            _DIMENSION: collection.dimension,
            _CREATED: collection.created.isoformat() if collection.created else None,
        }
        kept = {key: value for key, value in payload.items() if value is not None}
        point = models.PointStruct(id=point_id(collection.name), vector=[1.0], payload=kept)
        try:
            await self._put(point)
        except NoCollectionError:
            await self._make()
            await self._put(point)

    async def bind(self, name: str, dimension: int) -> None:
        """Record the dimension of a collection's vectors."""
        await self._change(name, {_DIMENSION: dimension}, None)

    async def replace(self, name: str, metadata: Mapping[str, Json]) -> None:
        """Put other metadata in place of a collection's."""
        await self._change(name, {_METADATA: _texts(metadata)}, None)

    async def merge(self, name: str, metadata: Mapping[str, Json]) -> None:
        """Set some keys of a collection's metadata; the server does it atomically."""
        if metadata:
            await self._change(name, dict(_texts(metadata)), _METADATA)

    async def remove(self, name: str) -> None:
        """Delete a record."""
        selector = models.PointIdsList(points=[point_id(name)])
        await self._connection.update(partial(self._client.delete, self._name, selector, wait=True, ordering=ORDERING))

    async def storages(self, name: str) -> list[str]:
        """The names of all present and former storages of a collection's documents in Qdrant."""
        begins = engine_name(self._prefix, name)
        found = await self._connection.call(self._client.get_collections())
        return [
            each.name
            for each in found.collections
            if each.name.startswith(begins) and _ONCE.fullmatch(each.name, len(begins))
        ]

    async def switch(self, name: str, built: CollectionRecord) -> None:
        """Make a record refer to the storage of `built`, with its metadata and dimension.

        One operation of the server; the record of `built` is unchanged.
        """
        payload = {
            _STORAGE: built.storage,
            _METADATA: _texts(built.collection.metadata),
            _DIMENSION: built.collection.dimension,
        }
        await self._change(name, payload, None)

    async def others(self) -> list[str]:
        """The names of all collections in Qdrant that were not made for ours, whatever their prefix."""
        found = await self._connection.call(self._client.get_collections())
        names = [each.name for each in found.collections]
        return sorted(name for name in names if name != self._name and not _OF_OURS.fullmatch(name))

    async def _change(self, name: str, payload: dict[str, Any], key: str | None) -> None:
        points: list[models.ExtendedPointId] = [point_id(name)]
        call = partial(
            self._client.set_payload, self._name, payload, points=points, key=key, wait=True, ordering=ORDERING
        )
        try:
            await self._connection.update(call)
        except (NoCollectionError, NoPointError) as error:
            raise _unknown(name) from error

    async def _put(self, point: models.PointStruct) -> None:
        await self._connection.update(partial(self._client.upsert, self._name, [point], wait=True, ordering=ORDERING))

    async def _make(self) -> None:
        call = self._client.create_collection(self._name, vectors_config=_NO_VECTORS, on_disk_payload=True)
        try:
            await self._connection.call(call)
        except BackendRejectedError as rejection:
            try:
                await self._connection.call(self._client.get_collection(self._name))  # another process was faster
            except NoCollectionError:
                raise rejection from rejection.__cause__


def _record(payload: Mapping[str, Any] | None) -> CollectionRecord:
    payload = payload or {}
    try:
        created = payload.get(_CREATED)
        collection = Collection(
            name=payload[_NAME],
            metadata={key: json.loads(text) for key, text in payload[_METADATA].items()},
            embedding_provider=payload.get(_PROVIDER),
            embedding_model=payload.get(_MODEL),
            dimension=payload.get(_DIMENSION),
            created=datetime.fromisoformat(created) if created else None,
        )
        return CollectionRecord(collection, payload[_STORAGE])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackendDataError(COMPONENT, "A record in Qdrant's registry of collections cannot be read.") from error


def _texts(metadata: Mapping[str, Json]) -> dict[str, str]:
    return {key: json.dumps(value, ensure_ascii=False) for key, value in metadata.items()}


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"Collection '{name}' not found")

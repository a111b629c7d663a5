"""The catalogue of collections: a collection of Qdrant's of its own, with a point for each of ours.

Qdrant before 1.16 keeps no metadata with a collection, and one has its dimension from the start, while ours learns it
from its first vector. So what is said of a collection stands on its card; the one of Qdrant that holds its documents
is made with their first vector, under a name that is used once, so that what a removal left behind is never found
again.
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
from rag_context.stores.names import engine_name
from rag_context.stores.qdrant.collections_points import point_id
from rag_context.stores.qdrant.connection import ORDERING, Connection
from rag_context.stores.qdrant.faults import COMPONENT, NoCollectionError, NoPointError

_NAME = "name"
_HOME = "home"
_METADATA = "metadata"
_PROVIDER = "embedding_provider"
_MODEL = "embedding_model"
_DIMENSION = "dimension"
_CREATED = "created"

_PAGE = 1000
CATALOGUE = "-catalogue"
"""How the name of a catalogue ends, behind its prefix."""

_NO_VECTORS = models.VectorParams(size=1, distance=models.Distance.DOT)
"""Every collection has vectors; those of the cards say nothing."""

_OF_OURS = re.compile(r".+\.[0-9a-f]{32}", re.DOTALL)
"""A place for documents, of this prefix or another."""

_ONCE = re.compile(r"\.[0-9a-f]{32}")
"""What a name is used once by."""


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """What is said of a collection, and the name of the one that holds its documents; its count is not known here."""

    collection: Collection
    home: str


class CollectionRegistry:
    """The cards of all collections whose names in Qdrant begin with a prefix."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._client: AsyncQdrantClient = connection.client
        self._name = connection.collection
        self._prefix = prefix

    async def cards(self) -> list[CollectionRecord]:
        """All of them, by the collections' names."""
        found: list[CollectionRecord] = []
        offset: models.ExtendedPointId | None = None
        while True:
            page = self._client.scroll(self._name, limit=_PAGE, offset=offset, with_payload=True)
            try:
                records, offset = await self._connection.call(page)
            except NoCollectionError:
                return []
            found += [_card(record.payload) for record in records]
            if offset is None:
                return sorted(found, key=lambda card: card.collection.name)

    async def card(self, name: str) -> CollectionRecord | None:
        """The card of a collection, if it is there."""
        try:
            records = await self._connection.call(self._client.retrieve(self._name, [point_id(name)]))
        except NoCollectionError:
            return None
        return _card(records[0].payload) if records else None

    async def known(self, name: str) -> CollectionRecord:
        """The card of a collection.

        Raises:
            NotFoundError: there is none.
        """
        card = await self.card(name)
        if card is None:
            raise _unknown(name)
        return card

    async def add(self, collection: Collection) -> None:
        """Put down the card of a collection that is not there."""
        payload = {
            _NAME: collection.name,
            _HOME: f"{engine_name(self._prefix, collection.name)}.{uuid4().hex}",
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
        """Note the dimension of a collection's vectors."""
        await self._change(name, {_DIMENSION: dimension}, None)

    async def replace(self, name: str, metadata: Mapping[str, Json]) -> None:
        """Put other metadata in place of a collection's."""
        await self._change(name, {_METADATA: _texts(metadata)}, None)

    async def merge(self, name: str, metadata: Mapping[str, Json]) -> None:
        """Set some keys of a collection's metadata; the server does it, so nobody comes between."""
        if metadata:
            await self._change(name, dict(_texts(metadata)), _METADATA)

    async def remove(self, name: str) -> None:
        """Take a card away."""
        selector = models.PointIdsList(points=[point_id(name)])
        await self._connection.update(partial(self._client.delete, self._name, selector, wait=True, ordering=ORDERING))

    async def homes(self, name: str) -> list[str]:
        """All collections of Qdrant that hold, or once held, the documents of a collection."""
        begins = engine_name(self._prefix, name)
        found = await self._connection.call(self._client.get_collections())
        return [
            each.name
            for each in found.collections
            if each.name.startswith(begins) and _ONCE.fullmatch(each.name, len(begins))
        ]

    async def switch(self, name: str, built: CollectionRecord) -> None:
        """Let a card say that its documents are where those of `built` are, with the metadata and dimension of that.

        One operation of the server; the card of `built` is left alone.
        """
        payload = {
            _HOME: built.home,
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
        asked = partial(
            self._client.set_payload, self._name, payload, points=points, key=key, wait=True, ordering=ORDERING
        )
        try:
            await self._connection.update(asked)
        except (NoCollectionError, NoPointError) as error:
            raise _unknown(name) from error

    async def _put(self, point: models.PointStruct) -> None:
        await self._connection.update(partial(self._client.upsert, self._name, [point], wait=True, ordering=ORDERING))

    async def _make(self) -> None:
        asked = self._client.create_collection(self._name, vectors_config=_NO_VECTORS, on_disk_payload=True)
        try:
            await self._connection.call(asked)
        except BackendRejectedError as refusal:
            try:
                await self._connection.call(self._client.get_collection(self._name))  # another process was faster
            except NoCollectionError:
                raise refusal from refusal.__cause__


def _card(payload: Mapping[str, Any] | None) -> CollectionRecord:
    held = payload or {}
    try:
        created = held.get(_CREATED)
        collection = Collection(
            name=held[_NAME],
            metadata={key: json.loads(text) for key, text in held[_METADATA].items()},
            embedding_provider=held.get(_PROVIDER),
            embedding_model=held.get(_MODEL),
            dimension=held.get(_DIMENSION),
            created=datetime.fromisoformat(created) if created else None,
        )
        return CollectionRecord(collection, held[_HOME])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BackendDataError(COMPONENT, "A card in Qdrant's catalogue of collections cannot be read.") from error


def _texts(metadata: Mapping[str, Json]) -> dict[str, str]:
    return {key: json.dumps(value, ensure_ascii=False) for key, value in metadata.items()}


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"Collection '{name}' not found")

"""Named collections of documents in Qdrant. Collections of other programs are read and never changed."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Unpack

from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Matrix, Vector
from rag_context.ports.provider import Collection, Entry, EntryHit, EntryPage, ProviderHealth
from rag_context.stores.engines import check_distinct, few_at_once, timed_health, unknown_collection
from rag_context.stores.qdrant import stored_collections
from rag_context.stores.qdrant.qdrant_api import QdrantConnection, QdrantOptions, connected
from rag_context.stores.qdrant.stored_collections import CollectionRecord, CollectionStorage, ForeignCollection
from rag_context.stores.tokens import CAPABILITIES

PREFIX = "rag-context"


@asynccontextmanager
async def open_qdrant_collections(
    url: str, *, prefix: str = PREFIX, hidden: Sequence[str] = (), **options: Unpack[QdrantOptions]
) -> AsyncIterator["QdrantCollections"]:
    """The collections on a Qdrant server, which need not be available yet. Raises: ConfigurationError."""
    async with connected(url, f"{prefix}{stored_collections.REGISTRY}", **options) as connection:
        yield QdrantCollections(connection, prefix, hidden)


class QdrantCollections:
    """Fits `provider.Provider`: a record per collection, a point per document."""

    capabilities = CAPABILITIES

    def __init__(self, connection: QdrantConnection, prefix: str, hidden: Sequence[str] = ()) -> None:
        self._connection = connection
        self._hidden = tuple(hidden)
        self._registry = stored_collections.CollectionRegistry(connection, prefix)
        self._creating = asyncio.Lock()

    async def collections(self) -> list[Collection]:
        ours = await few_at_once(map(self._counted, await self._registry.records()))
        our_names = {collection.name for collection in ours}
        others = [name for name in await self._others() if name not in our_names]
        theirs = await few_at_once(ForeignCollection(self._connection, name).described() for name in others)
        return sorted([*ours, *filter(None, theirs)], key=lambda collection: collection.name)

    async def collection(self, name: str) -> Collection | None:
        record = await self._registry.record(name)
        if record is not None:
            return await self._counted(record)
        foreign = await self._foreign(name)
        return None if foreign is None else await foreign.described()

    async def create(self, collection: Collection) -> bool:
        # One at a time in this process: of two records of a name the second would replace the first.
        async with self._creating:
            if await self._registry.record(collection.name) is not None or await self._foreign(collection.name):
                return False
            created = collection.created or datetime.now(UTC)
            await self._registry.add(replace(collection, created=created, dimension=None))
        return True

    async def drop(self, name: str) -> None:
        """Remove a collection: its documents first, so that a repeat can complete it after a crash."""
        record = await self._registry.require(name)
        # An interrupted switch leaves two records with the same documents, one of which is still in use.
        others = {each.storage for each in await self._registry.records() if each.collection.name != name}
        for storage in {record.storage, *await self._registry.storages(name)} - others:
            await self._connection.to(storage).drop()
        await self._registry.remove(name)

    async def replace_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        await self._registry.replace(name, metadata)
        return await self._counted(await self._registry.require(name))

    async def merge_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        await self._registry.merge(name, metadata)
        return await self._counted(await self._registry.require(name))

    async def upsert(self, name: str, entries: Sequence[Entry], vectors: Matrix) -> None:
        """Up to 16 MB are stored atomically; of more, a failure may leave some, and the same call completes them."""
        check_distinct(entries)
        storage = await self._storage(name)
        if entries:
            dimension = vectors.shape[1]
            points = await asyncio.to_thread(stored_collections.points_of, entries, vectors)
            await storage.bind(dimension)
            await storage.upsert(points, dimension)

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> EntryPage:
        storage = await self._documents(name)
        ids = await storage.ids(where)
        page = ids[offset : offset + limit]
        existing = await storage.get(page)
        return EntryPage(tuple(existing[id_] for id_ in page if id_ in existing), len(ids))

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        return await (await self._documents(name)).vectors(ids)

    async def ids(self, name: str, where: Clause) -> list[str]:
        return await (await self._documents(name)).ids(where)

    async def get(self, name: str, ids: Sequence[str]) -> dict[str, Entry]:
        return await (await self._documents(name)).get(ids)

    async def delete_many(self, name: str, ids: Sequence[str], where: Clause) -> int:
        return await (await self._storage(name)).delete_many(ids, where)

    async def switch(self, name: str, built: str) -> bool:
        """Readers find either the old documents or the new ones; the caller ensures that both are the same."""
        new, old = await self._registry.require(built), await self._registry.require(name)
        await self._registry.switch(name, new)
        await self._registry.remove(built)
        if old.storage != new.storage:
            await self._connection.to(old.storage).drop()
        return True

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[EntryHit]:
        return await (await self._documents(name)).search(vector, limit, where)

    async def delete(self, name: str, id_: str) -> bool:
        return await self.delete_many(name, [id_], EVERYTHING) > 0

    async def empty(self, name: str) -> int:
        """Remove all entries by one operation of the server. Raises: NotFoundError, BackendError."""
        storage = await self._storage(name)
        count = await storage.count()
        if count:
            await storage.clear()
        return count

    async def values(self, name: str, path: tuple[str, ...]) -> list[Json]:
        return await (await self._documents(name)).values(path)

    async def health(self) -> ProviderHealth:
        """The server does not report the size of collections."""

        async def measure() -> tuple[int, None]:
            return len(await self._registry.records()), None

        return await timed_health(measure)

    async def _others(self) -> list[str]:
        return [name for name in await self._registry.others() if not name.startswith(self._hidden)]

    async def _foreign(self, name: str) -> ForeignCollection | None:
        return ForeignCollection(self._connection, name) if name in await self._others() else None

    async def _documents(self, name: str) -> "CollectionStorage | ForeignCollection":
        """The storage of a collection's documents: ours, or another program's."""
        record = await self._registry.record(name)
        if record is not None:
            return self._at(record)
        foreign = await self._foreign(name)
        if foreign is None:
            raise unknown_collection(name)
        return foreign

    async def _storage(self, name: str) -> CollectionStorage:
        return self._at(await self._registry.require(name))

    def _at(self, record: CollectionRecord) -> CollectionStorage:
        return CollectionStorage(self._connection, self._registry, record)

    async def _counted(self, record: CollectionRecord) -> Collection:
        return replace(record.collection, count=await self._at(record).count())

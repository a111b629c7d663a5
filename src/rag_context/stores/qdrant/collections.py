"""Named collections of documents in Qdrant. Others' collections on the same server are read, and never changed."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

from qdrant_client import models

from rag_context.domain.clauses import Clause
from rag_context.domain.documents import Json, Status
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendError, NotFoundError
from rag_context.ports.provider import Capabilities, Collection, Entry, EntryHit, EntryPage, ProviderHealth
from rag_context.stores.operations import check_distinct
from rag_context.stores.qdrant import collections_points as points
from rag_context.stores.qdrant.collections_foreign import ForeignCollection
from rag_context.stores.qdrant.collections_registry import CATALOGUE, CollectionRecord, CollectionRegistry
from rag_context.stores.qdrant.collections_storage import CollectionStorage
from rag_context.stores.qdrant.connection import Connection, Transport, connect
from rag_context.stores.tokens import CAPABILITIES, AnyOf, distinct, narrow, present
from rag_context.where import matches, value_at

PREFIX = "rag-context"
TIMEOUT_S = 30.0

_MOST_TIED = 4096
_AT_ONCE = 8
_EXACT = models.SearchParams(exact=True)


@asynccontextmanager
async def open_qdrant_collections(
    url: str,
    *,
    prefix: str = PREFIX,
    api_key: str | None = None,
    transport: Transport = "http",
    grpc_port: int = 6334,
    timeout_s: float = TIMEOUT_S,
    hidden: Sequence[str] = (),
) -> AsyncIterator["QdrantCollections"]:
    """The collections on a Qdrant server; opening asks nothing of it, so that it may be down.

    Args:
        url: the server's address for HTTP; its host is the one for gRPC too. Without a port, 6333.
        prefix: what the names of all of them begin with in Qdrant: letters, digits, dashes and underscores.
        api_key: the server's key.
        transport: how the server is spoken to.
        grpc_port: the server's port for gRPC.
        timeout_s: how long any one call may take.
        hidden: what the names of others' collections that are not shown begin with.

    Raises:
        ConfigurationError: the address is none.
    """
    catalogue = f"{prefix}{CATALOGUE}"
    connection = connect(url, catalogue, api_key=api_key, transport=transport, grpc_port=grpc_port, timeout_s=timeout_s)
    try:
        yield QdrantCollections(connection, prefix, hidden)
    finally:
        await connection.client.close()


class QdrantCollections:
    """Fits `provider.Provider`: a card per collection, a point per document."""

    def __init__(self, connection: Connection, prefix: str, hidden: Sequence[str] = ()) -> None:
        self._connection = connection
        self._hidden = tuple(hidden)
        self._catalogue = CollectionRegistry(connection, prefix)
        self._creating = asyncio.Lock()

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return CAPABILITIES

    async def collections(self) -> list[Collection]:
        """All of them, by name. Raises: BackendError."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def counted(card: CollectionRecord) -> Collection:
            async with limit:
                return await self._counted(card)

        async def foreign(name: str) -> Collection | None:
            async with limit:
                return await ForeignCollection(self._connection, name).described()

        ours = await asyncio.gather(*(counted(card) for card in await self._catalogue.cards()))
        known = {collection.name for collection in ours}
        others = [name for name in await self._others() if name not in known]
        theirs = await asyncio.gather(*(foreign(name) for name in others))
        return sorted([*ours, *filter(None, theirs)], key=lambda collection: collection.name)

    async def collection(self, name: str) -> Collection | None:
        """One of them, if it is there. Raises: BackendError."""
        card = await self._catalogue.card(name)
        if card is not None:
            return await self._counted(card)
        foreign = await self._foreign(name)
        return None if foreign is None else await foreign.described()

    async def create(self, collection: Collection) -> bool:
        """Make an empty collection; False, and nothing changed, where the name is taken. Raises: BackendError."""
        async with self._creating:
            if await self._catalogue.card(collection.name) is not None or await self._foreign(collection.name):
                return False
            created = collection.created or datetime.now(UTC)
            await self._catalogue.add(replace(collection, created=created, dimension=None))
        return True

    async def drop(self, name: str) -> None:
        """Remove a collection: its documents first, so that what a crash leaves is seen, and removed by a repeat.

        Raises:
            NotFoundError: there is none.
            BackendError: it is not, or not wholly, removed.
        """
        card = await self._catalogue.known(name)
        # A switch that was cut short leaves two cards with one home, of which one is still in use.
        others = {each.home for each in await self._catalogue.cards() if each.collection.name != name}
        for home in {card.home, *await self._catalogue.homes(name)} - others:
            await self._connection.call(self._connection.client.delete_collection(home))
        await self._catalogue.remove(name)

    async def replace_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        """Put other metadata in place of a collection's. Raises: NotFoundError, BackendError."""
        await self._catalogue.known(name)
        await self._catalogue.replace(name, metadata)
        return await self._counted(await self._catalogue.known(name))

    async def merge_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        """Set these keys and keep the others, as one step. Raises: NotFoundError, BackendError."""
        await self._catalogue.known(name)
        await self._catalogue.merge(name, metadata)
        return await self._counted(await self._catalogue.known(name))

    async def upsert(self, name: str, entries: Sequence[Entry], vectors: Matrix) -> None:
        """Store entries with their vectors, `(n, dim) float32`; a known id is replaced.

        Up to 16 MB at once are all stored or none; of more, a failure may leave the first ones, and the same call
        again completes them.

        Raises:
            NotFoundError: there is no such collection.
            InvalidInputError: it holds vectors of another dimension, or an id is given twice.
            BackendError: not all of it is stored.
        """
        check_distinct(entries)
        home = await self._home(name)
        if entries:
            dimension = vectors.shape[1]
            made = await asyncio.to_thread(_points, entries, vectors)
            await home.bind(dimension)
            await home.upsert(made, dimension)

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> EntryPage:
        """A page of what a clause lets through, by id, and how much that is in all.

        Raises:
            NotFoundError: there is no such collection.
            BackendError: the server could not be asked.
        """
        home = await self._place(name)
        if isinstance(home, ForeignCollection):
            return await home.entries(where, limit, offset)
        ids = await _matching(home, where)
        page = ids[offset : offset + limit]
        there = await home.entries(page)
        return EntryPage(tuple(there[id_] for id_ in page if id_ in there), len(ids))

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of the given entries, `(dim,) float32` each; unknown ones are left out.

        Raises:
            NotFoundError: there is no such collection.
            BackendError: the server could not be asked.
        """
        return await (await self._place(name)).vectors(ids)

    async def ids(self, name: str, where: Clause) -> list[str]:
        """The ids of what a clause lets through, in order. Raises: NotFoundError, BackendError."""
        home = await self._place(name)
        return await home.ids(where) if isinstance(home, ForeignCollection) else await _matching(home, where)

    async def get(self, name: str, ids: Sequence[str]) -> dict[str, Entry]:
        """The given entries; unknown ones are left out. Raises: NotFoundError, BackendError."""
        home = await self._place(name)
        return await home.get(ids) if isinstance(home, ForeignCollection) else await home.entries(ids)

    async def delete_many(self, name: str, ids: Sequence[str], where: Clause) -> int:
        """Remove those of these entries that a clause lets through. Raises: NotFoundError, BackendError."""
        home = await self._home(name)
        gone = [id_ for id_, entry in (await home.entries(ids)).items() if matches(where, entry.metadata)]
        await home.delete_many(gone)
        return len(gone)

    async def switch(self, name: str, built: str) -> bool:
        """Let a card point to the documents of another; what it pointed to is removed. Raises: NotFoundError.

        Whoever reads finds either the old ones or the new ones; the caller sees to it that they are the same ones.
        """
        new, old = await self._catalogue.known(built), await self._catalogue.known(name)
        await self._catalogue.switch(name, new)
        await self._catalogue.remove(built)
        if old.home != new.home:
            await self._connection.call(self._connection.client.delete_collection(old.home))
        return True

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[EntryHit]:
        """The entries of highest cosine to `vector`, `(dim,) float32`, best first, equal ones by id.

        Raises:
            NotFoundError: there is no such collection.
            InvalidInputError: it holds vectors of another dimension.
            BackendError: the server could not be asked.
        """
        home = await self._place(name)
        if isinstance(home, ForeignCollection):
            return await home.search(vector, limit, where)
        home.check(len(vector))
        if home.dimension is None or limit < 1:
            return []
        best = await _best(home, vector, limit, where)
        there = await home.entries([id_ for id_, _ in best])
        return [EntryHit(there[id_], cosine) for id_, cosine in best if id_ in there]

    async def delete(self, name: str, id_: str) -> bool:
        """Remove one entry; False where it is unknown. Raises: NotFoundError, BackendError."""
        return await (await self._home(name)).delete(id_)

    async def empty(self, name: str) -> int:
        """Remove all entries by one operation of the server. Raises: NotFoundError, BackendError."""
        home = await self._home(name)
        count = await home.count()
        if count:
            await home.clear()
        return count

    async def values(self, name: str, path: tuple[str, ...]) -> list[Json]:
        """The distinct values other than null of a field; those of a list one by one. Raises: NotFoundError."""
        home = await self._place(name)
        if isinstance(home, ForeignCollection):
            return await home.values(path)
        there = points.filter_of(AnyOf((present(path),)))
        return distinct(
            [
                value_at(points.metadata_of(record.payload), path)
                async for record in home.scroll(there, [points.METADATA])
            ]
        )

    async def health(self) -> ProviderHealth:
        """How the server is, and how many collections are there; it does not tell their size."""
        checked, started = datetime.now(UTC), time.perf_counter()
        count, error = None, None
        try:
            count = len(await self._catalogue.cards())
        except BackendError as failure:
            error = str(failure)
        latency_ms = (time.perf_counter() - started) * 1000
        status = Status.HEALTHY if error is None else Status.UNAVAILABLE
        return ProviderHealth(status, checked, latency_ms, error, count)

    async def _others(self) -> list[str]:
        return [name for name in await self._catalogue.others() if not name.startswith(self._hidden)]

    async def _foreign(self, name: str) -> ForeignCollection | None:
        return ForeignCollection(self._connection, name) if name in await self._others() else None

    async def _place(self, name: str) -> "CollectionStorage | ForeignCollection":
        """Where the documents of a collection are read: ours, or else another program's."""
        card = await self._catalogue.card(name)
        if card is not None:
            return self._at(card)
        foreign = await self._foreign(name)
        if foreign is None:
            raise NotFoundError(f"Collection '{name}' not found")
        return foreign

    async def _home(self, name: str) -> CollectionStorage:
        return self._at(await self._catalogue.known(name))

    def _at(self, card: CollectionRecord) -> CollectionStorage:
        return CollectionStorage(self._connection, self._catalogue, card)

    async def _counted(self, card: CollectionRecord) -> Collection:
        return replace(card.collection, count=await self._at(card).count())


def _points(entries: Sequence[Entry], vectors: Matrix) -> list[models.PointStruct]:
    return [points.point_of(entry, vector) for entry, vector in zip(entries, vectors, strict=True)]


async def _matching(home: CollectionStorage, where: Clause) -> list[str]:
    """The ids of what a clause lets through, in order."""
    narrowed = narrow(where)
    fields = [points.ID] if narrowed.exact else [points.ID, points.METADATA]
    return sorted(
        [
            points.id_of(record.payload)
            async for record in home.scroll(points.filter_of(narrowed.condition), fields)
            if narrowed.exact or matches(where, points.metadata_of(record.payload))
        ]
    )


async def _best(home: CollectionStorage, vector: Vector, limit: int, where: Clause) -> list[tuple[str, float]]:
    """Ids and cosines of the nearest entries, equal ones by id: as many are asked for as that takes."""
    narrowed = narrow(where)
    condition = points.filter_of(narrowed.condition)
    params = None if narrowed.exact else _EXACT
    wanted = limit + 1
    while True:
        near = await home.nearest(vector, wanted, condition, params)
        found = [
            (points.id_of(each.payload), each.score)
            for each in near
            if narrowed.exact or matches(where, points.metadata_of(each.payload))
        ]
        enough = len(found) >= limit
        tied = enough and found[limit - 1][1] == near[-1].score
        if len(near) < wanted or (enough and not (tied and wanted <= _MOST_TIED)):
            return sorted(found, key=lambda each: (-each[1], each[0]))[:limit]
        wanted *= 4

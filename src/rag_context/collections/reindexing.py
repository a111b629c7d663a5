"""Embeds collections again that another model embedded.

The new vectors are built in a second collection, while searches use the old one. When both hold the same documents,
the new one replaces the old one in one step. An interrupted run leaves the second collection, and the next run
continues with it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag_context.collections.collections import WRITE_S, Collections
from rag_context.collections.connections import CollectionRef, Connection
from rag_context.collections.labels import OWN_EMBEDDER, built_name
from rag_context.collections.models import RECORD, is_of, record_of, recorded
from rag_context.collections.paging import bulk
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.errors import BackendRejectedError, ConflictError, RagContextError
from rag_context.ports.provider import Collection, Entry, Provider, Switching

logger = logging.getLogger(__name__)

EVERY = "*"
"""The name in a report for a connection whose collections could not be listed."""

_BATCH = 100
_ROUNDS = 20
"""How often a collection is compared again that changes meanwhile."""

OnProgress = Callable[[CollectionRef, int, int], None]
"""Called with the number of documents of a collection that are done, and of all its documents."""


@dataclass(frozen=True, slots=True)
class Reindexed:
    """The result for one collection; `error` says why it failed."""

    ref: CollectionRef
    documents: int
    error: str | None = None


class CollectionReindexing:
    """Reindexes the server-embedded collections of all connections, one by one.

    Args:
        collections: the collections of all connections.
    """

    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self._one_at_a_time = asyncio.Lock()

    async def needed(self, connection: Connection) -> list[Collection]:
        """The collections of a connection that record another model than the one in use. Raises: BackendError."""
        model = connection.embedder.model
        found = await self._collections.listing(connection.id)
        records = [(collection, recorded(collection)) for collection in found if _is_own(collection)]
        return [collection for collection, record in records if record is not None and not is_of(record, model)]

    async def run(self, on_progress: OnProgress = lambda _ref, _done, _total: None) -> list[Reindexed]:
        """Reindex the collections that another model embedded; a failure is reported and does not stop the others.

        Raises:
            asyncio.CancelledError: the run was interrupted; the next run continues with what it has built.
        """
        done: list[Reindexed] = []
        async with self._one_at_a_time:
            for connection in self._collections.connections.values():
                try:
                    stale = await self._stale(connection)
                except RagContextError as error:
                    logger.warning("the collections of connection %s cannot be listed: %s", connection.id, error)
                    done.append(Reindexed(CollectionRef(EVERY, connection.id), 0, str(error)))
                    continue
                done += [await self._reindexed(connection, collection, on_progress) for collection in stale]
        return done

    async def _stale(self, connection: Connection) -> list[Collection]:
        """As `needed`, and also those without a record that the model in use did not embed."""
        stale = []
        for collection in await self._collections.listing(connection.id):
            if not _is_own(collection):
                continue
            model = connection.embedder.model
            record = recorded(collection)
            if record is None and (collection.count or collection.dimension is not None):
                try:
                    await self._collections.agree(CollectionRef(collection.name, connection.id), collection)
                except ConflictError:
                    stale.append(collection)
            elif record is not None and not is_of(record, model):
                stale.append(collection)
        return stale

    async def _reindexed(self, connection: Connection, collection: Collection, on_progress: OnProgress) -> Reindexed:
        ref = CollectionRef(collection.name, connection.id)
        try:
            await self._rebuild(connection, collection, on_progress)
        except RagContextError as error:
            logger.warning("collection %r on connection %s was not reindexed: %s", ref.name, ref.connection, error)
            return Reindexed(ref, collection.count, str(error))
        logger.info("collection %r on connection %s was reindexed", ref.name, ref.connection)
        return Reindexed(ref, collection.count)

    async def _rebuild(self, connection: Connection, collection: Collection, on_progress: OnProgress) -> None:
        name, built = collection.name, built_name(collection.name)
        model = connection.embedder.model
        provider = await connection.opened()
        if not isinstance(provider, Switching):
            raise BackendRejectedError(
                "collections",
                f"The provider {connection.provider!r} cannot replace the vectors of a collection: create a new "
                f"collection and store the documents of '{name}' in it",
            )
        await self._prepare(connection, built, model)
        for _ in range(_ROUNDS):
            await self._fill(connection, name, built, model, on_progress)
            async with self._collections.write_lock.exclusive():
                if await self._replace(connection, name, built, model):
                    return
        raise BackendRejectedError("collections", f"Collection '{name}' changes faster than it is embedded: try again")

    async def _replace(self, connection: Connection, name: str, built: str, model: EmbeddingModel) -> bool:
        """Replace the old collection by the new one if both hold the same documents; returns whether it did."""
        if any(await _differences(connection, name, built)):
            return False
        metadata = {**(await _described(connection, name)).metadata, RECORD: record_of(model)}
        await connection.call(lambda p: p.replace_metadata(built, metadata), WRITE_S)
        return await connection.call(lambda p: _switched(p, name, built), WRITE_S)

    async def _prepare(self, connection: Connection, built: str, model: EmbeddingModel) -> None:
        """Create the collection to build in, or keep the one that an earlier run with the same model left."""
        left = await connection.call(lambda p: p.collection(built), WRITE_S)
        record = None if left is None else recorded(left)
        if left is not None and (record is None or not is_of(record, model)):
            await connection.call(lambda p: p.drop(built), WRITE_S)
            left = None
        if left is None:
            made = Collection(built, {RECORD: record_of(model)}, OWN_EMBEDDER)
            await connection.call(lambda p: p.create(made), WRITE_S)

    async def _fill(
        self, connection: Connection, name: str, built: str, model: EmbeddingModel, on_progress: OnProgress
    ) -> None:
        ref = CollectionRef(name, connection.id)
        lacking, extra = await _differences(connection, name, built)
        if extra:
            await connection.call(lambda p: bulk(p).delete_many(built, extra, EVERYTHING), WRITE_S)
        total = (await _described(connection, name)).count
        for start in range(0, len(lacking), _BATCH):
            on_progress(ref, max(total - len(lacking), 0) + start, total)
            entries = await _entries(connection, name, lacking[start : start + _BATCH])
            if not entries:
                continue
            vectors = await connection.embedder.documents([entry.text for entry in entries])
            if not is_of(record_of(model), connection.embedder.model):
                raise BackendRejectedError("embedder", "the model changed during the reindexing")
            await connection.call(lambda p, e=entries, v=vectors: p.upsert(built, e, v), WRITE_S)  # type: ignore[misc]
        on_progress(ref, total, total)


def _is_own(collection: Collection) -> bool:
    return collection.embedding_provider == OWN_EMBEDDER and not collection.foreign


async def _described(connection: Connection, name: str) -> Collection:
    found = await connection.call(lambda p: p.collection(name), WRITE_S)
    if found is None:
        raise BackendRejectedError("collections", f"Collection '{name}' was removed meanwhile")
    return found


async def _entries(connection: Connection, name: str, ids: Sequence[str]) -> list[Entry]:
    stored = await connection.call(lambda p: bulk(p).get(name, ids), WRITE_S)
    return [stored[id_] for id_ in ids if id_ in stored]


async def _differences(connection: Connection, name: str, built: str) -> tuple[list[str], list[str]]:
    """Ids of documents missing in `built` or there in another version, and of those that only `built` has."""
    source_ids = await connection.call(lambda p: bulk(p).ids(name, EVERYTHING), WRITE_S)
    built_ids = set(await connection.call(lambda p: bulk(p).ids(built, EVERYTHING), WRITE_S))
    lacking = [id_ for id_ in source_ids if id_ not in built_ids]
    both = [id_ for id_ in source_ids if id_ in built_ids]
    for start in range(0, len(both), _BATCH):
        some = both[start : start + _BATCH]
        one = {entry.id: entry for entry in await _entries(connection, name, some)}
        other = {entry.id: entry for entry in await _entries(connection, built, some)}
        lacking += [id_ for id_ in some if one.get(id_) != other.get(id_)]
    return lacking, sorted(built_ids - set(source_ids))


async def _switched(provider: Provider, name: str, built: str) -> bool:
    assert isinstance(provider, Switching)  # noqa: S101  (checked before anything was built)
    return await provider.switch(name, built)

"""Maintenance of collections: the health of their connections, and embedding their documents again with another model.

The new vectors are built in a second collection, while searches use the old one. When both hold the same documents,
the new one replaces the old one in one step. An interrupted run leaves the second collection, and the next run
continues with it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rag_context.api.maintenance import ReindexedCollection, ReindexRequest, ReindexResponse
from rag_context.collections.collections import WRITE_S, Collections
from rag_context.collections.labels import OWN_EMBEDDER, RECORD, built_name, is_made_by, model_record, record_of
from rag_context.collections.provider_connections import CollectionRef, ProviderCalls, ProviderConnection
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import Status, slices
from rag_context.domain.vectors import EmbeddingModel
from rag_context.errors import BackendRejectedError, ConflictError, RagContextError
from rag_context.ports.provider import Collection, Entry, Switching
from rag_context.resilience.component_checks import SUCCESS_TTL_S, ComponentFinding, HealthMonitor
from rag_context.resilience.deadline import Deadline, set_within

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
    ref: CollectionRef
    documents: int
    error: str | None = None


class CollectionReindexing:
    """Reindexes the server-embedded collections of all connections, one by one."""

    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self._one_at_a_time = asyncio.Lock()

    async def needed(self, connection: ProviderConnection) -> list[Collection]:
        """The collections of a connection that record another model than the one in use. Raises: BackendError."""
        return [one for one in await self._own(connection) if _is_of_another_model(one, connection)]

    async def _own(self, connection: ProviderConnection) -> list[Collection]:
        found = await self._collections.listing(connection.id)
        return [one for one in found if one.embedding_provider == OWN_EMBEDDER and not one.foreign]

    async def run(self, on_progress: OnProgress = lambda _ref, _done, _total: None) -> list[Reindexed]:
        """Reindex the collections that another model embedded; a failure is reported and does not stop the others."""
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

    async def _stale(self, connection: ProviderConnection) -> list[Collection]:
        """As `needed`, and also those without a record that the model in use did not embed."""
        stale = []
        for collection in await self._own(connection):
            if model_record(collection) is None and (collection.count or collection.dimension is not None):
                try:
                    await self._collections.check_model(CollectionRef(collection.name, connection.id), collection)
                except ConflictError:
                    stale.append(collection)
            elif _is_of_another_model(collection, connection):
                stale.append(collection)
        return stale

    async def _reindexed(
        self, connection: ProviderConnection, collection: Collection, on_progress: OnProgress
    ) -> Reindexed:
        ref = CollectionRef(collection.name, connection.id)
        try:
            await self._rebuild(connection, collection, on_progress)
        except RagContextError as error:
            logger.warning("collection %r on connection %s was not reindexed: %s", ref.name, ref.connection, error)
            return Reindexed(ref, collection.count, str(error))
        logger.info("collection %r on connection %s was reindexed", ref.name, ref.connection)
        return Reindexed(ref, collection.count)

    async def _rebuild(self, connection: ProviderConnection, collection: Collection, on_progress: OnProgress) -> None:
        name, built = collection.name, built_name(collection.name)
        model = connection.embedder.model
        if not isinstance(await connection.opened(), Switching):
            raise BackendRejectedError(
                "collections",
                f"The provider {connection.provider!r} cannot replace the vectors of a collection: create a new "
                f"collection and store the documents of '{name}' in it",
            )
        provider = await connection.within(WRITE_S)
        await self._prepare(provider, built, model)
        for _ in range(_ROUNDS):
            await self._fill(connection, name, built, model, on_progress)
            # Compared again while nothing else here writes: what came during the last round is still missing.
            async with self._collections.write_lock.exclusive():
                if await self._replace(provider, name, built, model):
                    return
        raise BackendRejectedError("collections", f"Collection '{name}' changes faster than it is embedded: try again")

    async def _replace(self, provider: ProviderCalls, name: str, built: str, model: EmbeddingModel) -> bool:
        """Replace the old collection by the new one if both hold the same documents; returns whether it did."""
        if any(await _differences(provider, name, built)):
            return False
        metadata = {**(await _described(provider, name)).metadata, RECORD: record_of(model)}
        await provider.replace_metadata(built, metadata)
        return await provider.switch(name, built)

    async def _prepare(self, provider: ProviderCalls, built: str, model: EmbeddingModel) -> None:
        """Create the collection to build in, or keep the one that an earlier run with the same model left."""
        left = await provider.collection(built)
        record = None if left is None else model_record(left)
        if left is not None and (record is None or not is_made_by(record, model)):
            await provider.drop(built)
            left = None
        if left is None:
            made = Collection(built, {RECORD: record_of(model)}, OWN_EMBEDDER)
            await provider.create(made)

    async def _fill(
        self, connection: ProviderConnection, name: str, built: str, model: EmbeddingModel, on_progress: OnProgress
    ) -> None:
        ref, provider = CollectionRef(name, connection.id), await connection.within(WRITE_S)
        missing, extra = await _differences(provider, name, built)
        if extra:
            await provider.delete_many(built, extra, EVERYTHING)
        total = (await _described(provider, name)).count
        for start in range(0, len(missing), _BATCH):
            on_progress(ref, max(total - len(missing), 0) + start, total)
            entries = await _entries(provider, name, missing[start : start + _BATCH])
            if not entries:
                continue
            vectors = await connection.embedder.documents([entry.text for entry in entries])
            if not is_made_by(record_of(model), connection.embedder.model):
                raise BackendRejectedError("embedder", "the model changed during the reindexing")
            await provider.upsert(built, entries, vectors)
        on_progress(ref, total, total)


def _is_of_another_model(collection: Collection, connection: ProviderConnection) -> bool:
    record = model_record(collection)
    return record is not None and not is_made_by(record, connection.embedder.model)


async def _described(provider: ProviderCalls, name: str) -> Collection:
    found = await provider.collection(name)
    if found is None:
        raise BackendRejectedError("collections", f"Collection '{name}' was removed meanwhile")
    return found


async def _entries(provider: ProviderCalls, name: str, ids: Sequence[str]) -> list[Entry]:
    stored = await provider.get(name, ids)
    return [stored[id_] for id_ in ids if id_ in stored]


async def _differences(provider: ProviderCalls, name: str, built: str) -> tuple[list[str], list[str]]:
    """Ids of documents missing in `built` or there in another version, and of those that only `built` has."""
    source_ids = await provider.ids(name, EVERYTHING)
    built_ids = set(await provider.ids(built, EVERYTHING))
    missing = [id_ for id_ in source_ids if id_ not in built_ids]
    both = [id_ for id_ in source_ids if id_ in built_ids]
    for some in slices(both, _BATCH):
        one = {entry.id: entry for entry in await _entries(provider, name, some)}
        other = {entry.id: entry for entry in await _entries(provider, built, some)}
        missing += [id_ for id_ in some if one.get(id_) != other.get(id_)]
    return missing, sorted(built_ids - set(source_ids))


ROLE = "collections"
LISTING_TIMEOUT_S = 2.0
"""Longest wait for the list of a connection's collections in a health report."""

WAIT_S = 300.0
MAX_ATTEMPTS = 10
FIRST_RETRY_S = 1.0
MAX_RETRY_S = 60.0


class CollectionMaintenance:
    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self._reindexing = CollectionReindexing(collections)
        self._monitors: dict[str, HealthMonitor] = {}
        self._needed: dict[str, tuple[float, list[str]]] = {}
        self._running: asyncio.Task[None] | None = None
        self._attempted = asyncio.Event()
        """Set once every collection was tried, even if some of them are tried again."""
        self._done: list[Reindexed] = []
        self._progress: dict[CollectionRef, tuple[int, int]] = {}

    async def examine(self) -> list[ComponentFinding]:
        """Check the connections that were used since the start, or that have a note; a success is cached a while."""
        reported = [one for one in self._collections.connections.values() if one.was_used or one.note]
        return list(await asyncio.gather(*(self._examine(connection) for connection in reported)))

    async def reindex(self, on_progress: OnProgress = lambda _ref, _done, _total: None) -> list[Reindexed]:
        """Embed the collections again that another model embedded; returns the result for each."""

        def progress(ref: CollectionRef, done: int, total: int) -> None:
            self._progress[ref] = (done, total)
            on_progress(ref, done, total)

        try:
            return await self._reindexing.run(progress)
        finally:
            self._needed.clear()
            self._progress.clear()

    def begin_reindexing(self) -> None:
        """Start `reindex` in the background, unless it runs already; failures are retried up to `MAX_ATTEMPTS`."""
        if self._running is None or self._running.done():
            self._attempted.clear()
            self._running = asyncio.create_task(self._reindex(), name="reindex collections")

    async def reindex_behind(self, request: ReindexRequest, response: ReindexResponse) -> ReindexResponse:
        """Start and wait as the request says; returns the response for documents with the collections added."""
        if not request.status_only:
            self.begin_reindexing()
        if request.wait and self._running is not None:
            await set_within(self._attempted, WAIT_S)
        reports = await self._reports()
        status = response.status
        if status == "current" and any(one.status == "running" for one in reports):
            status = "running"
        elif status == "current" and any(one.status in ("needed", "failed") for one in reports):
            status = "needed"
        return response.model_copy(update={"collections": reports or None, "status": status})

    async def close(self) -> None:
        """Stop the background task. Vectors that it has stored stay, and the next run continues with them."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _reindex(self) -> None:
        retry_s = FIRST_RETRY_S
        self._done = []
        for _ in range(MAX_ATTEMPTS):
            done = await self.reindex()
            succeeded = [one for one in self._done if one.error is None]
            self._done = [*succeeded, *done]
            self._attempted.set()
            if all(one.error is None for one in done):
                return
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, MAX_RETRY_S)

    async def _reports(self) -> list[ReindexedCollection]:
        """What was done, runs, or is needed, of each collection."""
        running = self._running is not None and not self._running.done()
        reports = {one.ref: _report(one) for one in self._done}
        for connection in self._collections.connections.values():
            if not connection.was_used:
                continue
            for name, documents in await self._stale(connection):
                ref = CollectionRef(name, connection.id)
                failed = reports.get(ref)
                if not running and failed is not None and failed.status == "failed":
                    continue
                done, _ = self._progress.get(ref, (0, documents))
                reports[ref] = ReindexedCollection(
                    collection=name,
                    connection=connection.id,
                    status="running" if running else "needed",
                    documents=documents,
                    done=done,
                )
        return list(reports.values())

    async def _stale(self, connection: ProviderConnection) -> list[tuple[str, int]]:
        try:
            return [(one.name, one.count) for one in await self._reindexing.needed(connection)]
        except RagContextError:
            return []

    async def _examine(self, connection: ProviderConnection) -> ComponentFinding:
        if not connection.was_used:  # a report opens nothing
            return ComponentFinding(connection.dependency.name, ROLE, Status.HEALTHY, 0.0, connection.note or "")
        monitor = self._monitors.get(connection.id)
        if monitor is None:
            notes = {connection.dependency.name: connection.note} if connection.note else {}
            monitor = HealthMonitor([(ROLE, connection.dependency)], time.monotonic, notes=notes)
            self._monitors[connection.id] = monitor
        (finding,) = await monitor.examine()
        if finding.status is not Status.HEALTHY:
            return finding
        names = await self._mismatching(connection)
        if not names:
            return finding
        listed = ", ".join(f"'{name}'" for name in names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "")
        detail = f"{finding.detail}; vectors of another model in {listed}: run `rag-context reindex`"
        return replace(finding, status=Status.DEGRADED, detail=detail)

    async def _mismatching(self, connection: ProviderConnection) -> list[str]:
        """Names of the collections that another model embedded; cached for half a minute."""
        until, names = self._needed.get(connection.id, (0.0, []))
        if time.monotonic() < until:
            return names
        try:
            found = await Deadline.after(LISTING_TIMEOUT_S, time.monotonic).bound(
                ROLE, self._reindexing.needed(connection)
            )
        except RagContextError:
            return names
        names = [one.name for one in found]
        self._needed[connection.id] = (time.monotonic() + SUCCESS_TTL_S, names)
        return names


def _report(one: Reindexed) -> ReindexedCollection:
    return ReindexedCollection(
        collection=one.ref.name,
        connection=one.ref.connection,
        status="done" if one.error is None else "failed",
        documents=one.documents,
        done=one.documents if one.error is None else 0,
        detail=one.error,
    )

"""What runs beside the requests for collections: how their connections are, and making their vectors again."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from rag_context.api.maintenance import ReindexedCollection, ReindexRequest, ReindexResponse
from rag_context.collections.collections import Collections
from rag_context.collections.connections import CollectionRef, Connection
from rag_context.collections.reindexing import CollectionReindexing, Progress, Reindexed
from rag_context.domain.documents import Status
from rag_context.errors import RagContextError
from rag_context.resilience.deadline import Deadline
from rag_context.service.health import BELIEVED_S, Finding, HealthMonitor

logger = logging.getLogger(__name__)

ROLE = "collections"
LOOK_S = 2.0
"""Longest wait for the list of a connection's collections in a health report."""

WAIT_S = 300.0
TRIES = 10
FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0


class CollectionUpkeep:
    """Health and reindexing of collections.

    Args:
        collections: where they are.
        clock: monotonic seconds.
    """

    def __init__(self, collections: Collections, clock: Callable[[], float] = time.monotonic) -> None:
        self._collections = collections
        self._clock = clock
        self._reindexing = CollectionReindexing(collections)
        self._monitors: dict[str, HealthMonitor] = {}
        self._needed: dict[str, tuple[float, list[str]]] = {}
        self._running: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        """Set once everything was tried, whether or not some of it is tried again."""

        self._done: list[Reindexed] = []
        self._progress: dict[CollectionRef, tuple[int, int]] = {}

    async def examine(self) -> list[Finding]:
        """How the connections are that were used since the start; a success is believed for half a minute."""
        used = [connection for connection in self._collections.connections.values() if connection.was_used]
        return list(await asyncio.gather(*(self._examine(connection) for connection in used)))

    async def reindex(self, on_progress: Progress = lambda _place, _done, _total: None) -> list[Reindexed]:
        """Make the vectors of collections again that another model made, and say what became of each."""

        def progress(place: CollectionRef, done: int, total: int) -> None:
            self._progress[place] = (done, total)
            on_progress(place, done, total)

        try:
            return await self._reindexing.run(progress)
        finally:
            self._needed.clear()
            self._progress.clear()

    def begin_reindexing(self) -> None:
        """Do that in the background, once at a time; what fails is tried again some times."""
        if self._running is None or self._running.done():
            self._tried.clear()
            self._running = asyncio.create_task(self._reindex(), name="reindex collections")

    async def reindex_behind(self, request: ReindexRequest, answer: ReindexResponse) -> ReindexResponse:
        """Begin where asked to, wait where asked to, and add to what is said of the documents."""
        if not request.status_only:
            self.begin_reindexing()
        if request.wait and self._running is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await self._tried.wait()
        told = await self._told()
        status = answer.status
        if status == "current" and any(one.status == "running" for one in told):
            status = "running"
        elif status == "current" and any(one.status in ("needed", "failed") for one in told):
            status = "needed"
        return answer.model_copy(update={"collections": told or None, "status": status})

    async def close(self) -> None:
        """Stop; what is built stays, and the next run goes on with it."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _reindex(self) -> None:
        pause_s = FIRST_PAUSE_S
        self._done = []
        for _ in range(TRIES):
            done = await self.reindex()
            kept = [one for one in self._done if one.error is None]
            self._done = [*kept, *done]
            self._tried.set()
            if all(one.error is None for one in done):
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _told(self) -> list[ReindexedCollection]:
        running = self._running is not None and not self._running.done()
        told = {one.place: _of(one) for one in self._done}
        for connection in self._collections.connections.values():
            if not connection.was_used:
                continue
            for name, documents in await self._stale(connection):
                place = CollectionRef(name, connection.id)
                failed = told.get(place)
                if not running and failed is not None and failed.status == "failed":
                    continue
                done, _ = self._progress.get(place, (0, documents))
                told[place] = ReindexedCollection(
                    collection=name,
                    connection=connection.id,
                    status="running" if running else "needed",
                    documents=documents,
                    done=done,
                )
        return list(told.values())

    async def _stale(self, connection: Connection) -> list[tuple[str, int]]:
        try:
            return [(one.name, one.count) for one in await self._reindexing.needed(connection)]
        except RagContextError:
            return []

    async def _examine(self, connection: Connection) -> Finding:
        monitor = self._monitors.get(connection.id)
        if monitor is None:
            monitor = self._monitors[connection.id] = HealthMonitor([(ROLE, connection.dependency)], self._clock)
        (finding,) = await monitor.examine()
        if finding.status is not Status.HEALTHY:
            return finding
        names = await self._mismatching(connection)
        if not names:
            return finding
        listed = ", ".join(f"'{name}'" for name in names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "")
        detail = f"{finding.detail}; vectors of another model in {listed}: run `rag-context reindex`"
        return replace(finding, status=Status.DEGRADED, detail=detail)

    async def _mismatching(self, connection: Connection) -> list[str]:
        """Names of collections that another model made, as they were half a minute ago at most."""
        until, names = self._needed.get(connection.id, (0.0, []))
        if self._clock() < until:
            return names
        try:
            found = await Deadline.after(LOOK_S, self._clock).bound(ROLE, self._reindexing.needed(connection))
        except RagContextError:
            return names
        names = [one.name for one in found]
        self._needed[connection.id] = (self._clock() + BELIEVED_S, names)
        return names


def _of(one: Reindexed) -> ReindexedCollection:
    return ReindexedCollection(
        collection=one.place.name,
        connection=one.place.connection,
        status="done" if one.error is None else "failed",
        documents=one.documents,
        done=one.documents if one.error is None else 0,
        detail=one.error,
    )

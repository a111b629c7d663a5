"""Maintenance of collections: the health of their connections, and embedding their documents again."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from rag_context.api.maintenance import ReindexedCollection, ReindexRequest, ReindexResponse
from rag_context.collections.collections import Collections
from rag_context.collections.connections import CollectionRef, Connection
from rag_context.collections.reindexing import CollectionReindexing, OnProgress, Reindexed
from rag_context.domain.documents import Status
from rag_context.errors import RagContextError
from rag_context.resilience.deadline import Deadline
from rag_context.service.health import SUCCESS_TTL_S, Finding, HealthMonitor

logger = logging.getLogger(__name__)

ROLE = "collections"
LISTING_TIMEOUT_S = 2.0
"""Longest wait for the list of a connection's collections in a health report."""

WAIT_S = 300.0
MAX_ATTEMPTS = 10
FIRST_RETRY_S = 1.0
MAX_RETRY_S = 60.0


class CollectionMaintenance:
    """Health and reindexing of collections.

    Args:
        collections: the collections of all connections.
        clock: monotonic seconds.
    """

    def __init__(self, collections: Collections, clock: Callable[[], float] = time.monotonic) -> None:
        self._collections = collections
        self._clock = clock
        self._reindexing = CollectionReindexing(collections)
        self._monitors: dict[str, HealthMonitor] = {}
        self._needed: dict[str, tuple[float, list[str]]] = {}
        self._running: asyncio.Task[None] | None = None
        self._attempted = asyncio.Event()
        """Set once every collection was tried, even if some of them are tried again."""

        self._done: list[Reindexed] = []
        self._progress: dict[CollectionRef, tuple[int, int]] = {}

    async def examine(self) -> list[Finding]:
        """Check the connections that were used since the start; a success is cached for half a minute."""
        used = [connection for connection in self._collections.connections.values() if connection.was_used]
        return list(await asyncio.gather(*(self._examine(connection) for connection in used)))

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
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await self._attempted.wait()
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
        """Names of the collections that another model embedded; cached for half a minute."""
        until, names = self._needed.get(connection.id, (0.0, []))
        if self._clock() < until:
            return names
        try:
            found = await Deadline.after(LISTING_TIMEOUT_S, self._clock).bound(
                ROLE, self._reindexing.needed(connection)
            )
        except RagContextError:
            return names
        names = [one.name for one in found]
        self._needed[connection.id] = (self._clock() + SUCCESS_TTL_S, names)
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

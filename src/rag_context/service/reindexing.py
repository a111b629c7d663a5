"""Embedding all documents again, and completing restored ones: in the foreground, or started in the background.

The state of a run is in the store alone, so a run survives the end of the process, and every process that uses the
index sees its progress.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from rag_context.api.maintenance import ReindexRequest, ReindexResponse
from rag_context.domain.documents import Counts
from rag_context.errors import BackendError, BackendRejectedError
from rag_context.ingest.indexer import STORE_S, Indexer
from rag_context.ports.writing import ModelRegistry
from rag_context.search.retrievers import Backends
from rag_context.service.background_maintenance import SWEEP_TOGETHER, BackgroundMaintenance
from rag_context.service.index_model import BoundEmbedder, Rebuilding

WAIT_S = 300.0
POLL_EVERY_S = 0.1

OnReindexed: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Called with the number of documents that are done, and of all documents."""


class Reindexing:
    """Starts runs, waits for them, and reports their progress.

    Args:
        backends: the ports.
        embedder: the model in use, compared with the model of the index.
        registry: deletes all vectors and records the model.
        indexer: chunks documents again.
        maintenance: completes pending documents.
        clock: monotonic seconds.
        rebuilding: embeds into new vectors while the old ones still answer. None: all vectors are deleted first.
    """

    def __init__(
        self,
        backends: Backends,
        embedder: BoundEmbedder,
        registry: ModelRegistry,
        indexer: Indexer,
        maintenance: BackgroundMaintenance,
        clock: Callable[[], float] = time.monotonic,
        rebuilding: Rebuilding | None = None,
    ) -> None:
        store = backends.document_store
        self._documents = store.guard(backends.documents, STORE_S)
        self._rebuilding = rebuilding
        self._rebuilding_state = None if rebuilding is None else store.guard(rebuilding, STORE_S)
        self._embedder = embedder
        self._registry = registry
        self._indexer = indexer
        self._maintenance = maintenance
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def run(self, on_progress: Callable[[int, int], None]) -> int:
        """Embed all documents again with the configured model and wait for the end; returns their number.

        Searches use the old vectors meanwhile. The next start, or the next call, finishes an interrupted run.

        Args:
            on_progress: called with the number of documents that are done, and of all documents.

        Raises:
            BackendError: the model or the store is unavailable, or another process reindexes with another model.
        """
        rebuilding = self._rebuilding
        if rebuilding is not None:
            await rebuilding.begin()
            total = await rebuilding.remaining() or 0
            on_progress(0, total)
            while not await rebuilding.work(lambda done: on_progress(done, max(total, done)), together=SWEEP_TOGETHER):
                left = await rebuilding.remaining()
                if left is None:  # the background maintenance or another process has finished it, or replaced it
                    await rebuilding.require_ended()
                    break
                on_progress(max(total - left, 0), total)
                await asyncio.sleep(POLL_EVERY_S)
            counts = await self._documents.counts()  # the background maintenance may have done all before `begin`
            return counts.documents - counts.pending
        total = await self._registry.drop_vectors()
        await self._embedder.bind()
        _ = self._embedder.model  # raises if another process has recorded its own model meanwhile
        on_progress(0, total)
        await self._maintenance.sweep(lambda done: on_progress(done, max(total, done)))
        # The sweep of the background maintenance may have completed a part of them.
        return total - (await self._documents.counts()).pending

    async def restore(self, broken: Sequence[str], on_progress: Callable[[int, int], None]) -> int:
        """Chunk documents again from their stored content, then embed all pending ones; returns their number.

        Args:
            broken: ids of the documents to chunk again.
            on_progress: called with the number of documents that are embedded, and of all pending ones.

        Raises:
            BackendError: the model or the store is unavailable; the documents that are left stay pending.
        """
        for id_ in broken:
            await self._indexer.rechunk(id_)
        total = (await self._documents.counts()).pending
        return await self._maintenance.sweep(lambda done: on_progress(done, max(total, done)))

    async def reindex(self, request: ReindexRequest, on_progress: OnReindexed) -> ReindexResponse:
        """Start a run in the background if one is needed and none runs; waits for its end if the request says so.

        Raises:
            BackendError: the model or the store is unavailable.
        """
        if not request.status_only:
            async with self._one_at_a_time:
                await self._begin(force=request.force)
        counts = await self._count()
        if request.wait:
            counts = await self._wait(counts, on_progress)
        return await self._report(counts)

    async def _wait(self, counts: Counts, on_progress: OnReindexed) -> Counts:
        until = self._clock() + WAIT_S
        reported = -1
        while True:
            done = counts.documents - counts.pending
            if done > reported:
                reported = done
                await on_progress(done, counts.documents)
            if not counts.pending or self._clock() >= until:
                return counts
            await asyncio.sleep(POLL_EVERY_S)
            counts = await self._count()

    async def _begin(self, *, force: bool) -> None:
        pending = (await self._count()).pending
        try:
            _ = self._embedder.model
        except BackendRejectedError:
            is_needed = True
        else:
            # A run that has begun is finished first: otherwise repeated calls would restart it without end.
            is_needed = force and not pending
        if is_needed and self._rebuilding is not None:
            await self._rebuilding.begin()
        elif is_needed:
            await self._registry.drop_vectors()
            await self._embedder.bind()
        self._maintenance.sweep_soon()

    async def _report(self, counts: Counts) -> ReindexResponse:
        status: Literal["current", "running", "waiting", "needed"] = "running" if counts.pending else "current"
        detail = None
        try:
            _ = self._embedder.model
        except BackendRejectedError as error:
            if not await self._is_under_way():
                status, detail = "needed", str(error)
        except BackendError as error:
            if counts.pending:
                status, detail = "waiting", str(error)
        return ReindexResponse(
            status=status,
            documents=counts.documents,
            done=counts.documents - counts.pending,
            pending=counts.pending,
            detail=detail,
        )

    async def _is_under_way(self) -> bool:
        return self._rebuilding is not None and await self._rebuilding.remaining() is not None

    async def _count(self) -> Counts:
        """The counts, in which a document without its new vectors counts as pending during a run."""
        counts = await self._documents.counts()
        if self._rebuilding_state is None:
            return counts
        left = await self._rebuilding_state.remaining()
        # At 0 the new vectors are complete and about to replace the old ones: the run is not over yet.
        return counts if left is None else replace(counts, pending=max(left, counts.pending, 1))

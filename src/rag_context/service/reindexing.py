"""Making all vectors anew behind the searches: begun on request, carried on by the upkeep, told as it is.

Nothing of a run is kept here. What it has still to do is in the store, so a run survives the end of the process, and
every process that uses the index sees how far it is.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal, TypeAlias

from rag_context.api.maintenance import ReindexRequest, ReindexResponse
from rag_context.domain.documents import Counts
from rag_context.errors import BackendError, BackendRejectedError
from rag_context.ingest.indexer import STORE_S
from rag_context.ports.maintenance import ModelRegistry
from rag_context.resilience.deadline import Deadline
from rag_context.search.retrievers import Backends
from rag_context.service.binding import BoundEmbedder
from rag_context.service.rebuilding import Rebuilding

WAIT_S = 300.0
LOOK_EVERY_S = 0.1

Progress: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Told how many documents are done, and of how many."""


class Reindexing:
    """Begins a run, and says how far it is.

    Args:
        sources: the ports.
        embedder: the model and whether it is the index's.
        registry: forgets vectors.
        sweep_soon: has pending documents completed now rather than later.
        clock: monotonic seconds.
        rebuilding: makes vectors beside those that answer; without it, those go first.
    """

    def __init__(
        self,
        sources: Backends,
        embedder: BoundEmbedder,
        registry: ModelRegistry,
        sweep_soon: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        rebuilding: Rebuilding | None = None,
    ) -> None:
        self._rebuilding = rebuilding
        self._sources = sources
        self._embedder = embedder
        self._registry = registry
        self._sweep_soon = sweep_soon
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def reindex(self, request: ReindexRequest, on_progress: Progress) -> ReindexResponse:
        """Begin a run where one is needed and none is under way.

        Raises:
            BackendError: the model or the store is not there.
        """
        if not request.status_only:
            async with self._one_at_a_time:
                await self._begin(force=request.force)
        counts = await self._count()
        if request.wait:
            counts = await self._wait(counts, on_progress)
        return await self._report(counts)

    async def _wait(self, counts: Counts, on_progress: Progress) -> Counts:
        until = self._clock() + WAIT_S
        told = -1
        while True:
            done = counts.documents - counts.pending
            if done > told:
                told = done
                await on_progress(done, counts.documents)
            if not counts.pending or self._clock() >= until:
                return counts
            await asyncio.sleep(LOOK_EVERY_S)
            counts = await self._count()

    async def _begin(self, *, force: bool) -> None:
        pending = (await self._count()).pending
        try:
            _ = self._embedder.model
        except BackendRejectedError:
            is_needed = True
        else:
            # A run under way is carried on, or an impatient caller would start it over and over.
            is_needed = force and not pending
        if is_needed and self._rebuilding is not None:
            await self._rebuilding.begin()
        elif is_needed:
            await self._registry.drop_vectors()
            await self._embedder.bind()
        self._sweep_soon()

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
        """The counts; documents that lack new vectors while they are made are taken for pending."""
        store, documents = self._sources.document_store, self._sources.documents
        counts = await store.call(documents.counts, Deadline.after(STORE_S, self._clock))
        if self._rebuilding is None:
            return counts
        left = await store.call(self._rebuilding.remaining, Deadline.after(STORE_S, self._clock))
        # At 0 they are about to take the place of the old ones.
        return counts if left is None else replace(counts, pending=max(left, counts.pending, 1))

"""A run that embeds all documents again with another model, while the old vectors still answer.

It makes the new vectors beside the old ones and then replaces these. Its state is in the store, so that it survives the
end of a process: the next process with the run's model continues it. Several processes may use one index; one of them
works on a run, and another one takes over if there was no progress for some seconds.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from rag_context.domain.vectors import EmbeddingModel, Rebuild, same_vectors
from rag_context.errors import BackendDataError, BackendRejectedError
from rag_context.ingest.indexer import Indexer
from rag_context.memory.bound_embedder import BoundEmbedder
from rag_context.ports.models import Embedder
from rag_context.ports.writing import VectorRebuilder
from rag_context.tracing import span

logger = logging.getLogger(__name__)

LEASE_S = 5.0
"""A run with progress in the last so many seconds belongs to a process that still works on it."""

ABANDONED_S = 600.0
"""A process that uses the index's model abandons a run of another model that had no progress for so long."""

BATCH = 100

OnDone = Callable[[int], None]


@dataclass(eq=False)
class Rebuilding:
    rebuilder: VectorRebuilder
    inner: Embedder
    bound: BoundEmbedder
    indexer: Indexer
    _: KW_ONLY
    begin_on_mismatch: bool = False
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._is_ours = False
        self._one_at_a_time = asyncio.Lock()
        self._beginning = asyncio.Lock()

    async def begin(self) -> None:
        """Begin a run, unless one with the same model exists. Raises: BackendError (no model, no store)."""
        async with self._beginning:  # or two callers would both find no run, and begin two
            model = self.inner.model
            run = await self.rebuilder.under_way()
            if run is None or not same_vectors(run.model, model):
                self._is_ours = await self.rebuilder.begin(model)
        await self._compare()

    async def _compare(self) -> None:
        """Compare the model with the index's; old vectors that it can never be used with do not matter in a run."""
        with suppress(BackendRejectedError):
            await self.bound.bind()

    async def remaining(self) -> int | None:
        """How many documents have no new vectors; None if there is no run. Raises: BackendError."""
        return None if await self.rebuilder.under_way() is None else await self.rebuilder.remaining()

    async def require_ended(self) -> None:
        """Check that the index has vectors of the model in use. Raises: BackendRejectedError."""
        await self.bound.bind()
        recorded = self.bound.recorded
        if recorded is None or not same_vectors(self.inner.model, recorded):
            raise BackendRejectedError(
                "vectors", "another process ended the reindexing; run `rag-context reindex` to start it again"
            )

    async def work(self, on_done: OnDone = lambda _done: None, *, together: int = 1) -> bool:
        """Finish the run of the model in use; False if there is none, or another works on it. Raises: BackendError."""
        # Another task of this process works on it; a caller that waits polls `remaining`.
        if self._one_at_a_time.locked():
            return False
        async with self._one_at_a_time:
            run = await self._due()
            if run is None:
                return False
            logger.info("all documents are embedded again with %s; the old vectors answer meanwhile", run.model.name)
            done = 0

            def count() -> None:
                nonlocal done
                done += 1
                on_done(done)

            # The model's own fingerprint may differ from the run's by float noise.
            embedder = _Named(self.inner, run.model)
            # Documents that were stored during a pass have no new vectors yet: the switch fails, and the next pass
            # embeds them. Those that cannot be embedded are left out, or the run would never end.
            while not await self.rebuilder.switch(run.model.fingerprint, await self._pass(embedder, count, together)):
                pass
            self._is_ours = False
            await self.bound.bind()
            logger.info("the vectors of %s are complete: searches use them from now on", run.model.name)
            return True

    async def _due(self) -> Rebuild | None:
        """The run to work on, or None; abandons a run of another model that no process continues."""
        run = await self.rebuilder.under_way()
        if run is None and not self.begin_on_mismatch:
            return None
        model = self.inner.model
        await self._compare()  # another process may have ended a run just now
        is_current = self.bound.recorded is not None and same_vectors(model, self.bound.recorded)
        idle_s = math.inf if run is None else self.now() - run.touched
        # A clock that was set back makes the idle time negative: such a run is free, not busy for hours.
        is_free = self._is_ours or not 0.0 <= idle_s < LEASE_S
        if run is not None and same_vectors(model, run.model):
            return run if is_free else None
        if self.begin_on_mismatch and not is_current and is_free:
            await self.begin()
            return await self.rebuilder.under_way()
        if run is not None and is_current and idle_s > ABANDONED_S:
            logger.warning("the new vectors of %s are deleted: no process continues them", run.model.name)
            await self.rebuilder.abandon()
        return None

    async def _pass(self, embedder: Embedder, count: Callable[[], None], together: int) -> set[str]:
        """Embed every document that has no new vectors; returns the ids of those that failed."""
        left: set[str] = set()
        last = ""
        semaphore = asyncio.Semaphore(together)

        async def complete(id_: str) -> None:
            async with semaphore:
                try:
                    with span("index.reembed"):
                        is_complete = await self.indexer.complete_beside(id_, embedder, self.rebuilder)
                except (BackendDataError, BackendRejectedError) as error:
                    logger.warning("document %s cannot be embedded again: %s", id_, error)
                    is_complete = False
            if is_complete:
                count()
            else:
                left.add(id_)

        while ids := await self.rebuilder.missing(last, BATCH):
            try:
                async with asyncio.TaskGroup() as group:
                    for id_ in ids:
                        group.create_task(complete(id_))
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from failures
            last = ids[-1]
        return left


class _Named:
    def __init__(self, inner: Embedder, model: EmbeddingModel) -> None:
        self.model = model
        self.provenance = inner.provenance
        self.tokenizer = inner.tokenizer
        self.embed_query = inner.embed_query
        self.embed_documents = inner.embed_documents
        self.ping = inner.ping

"""Makes all vectors anew beside those that answer, until they are complete and take their place.

What a run has still to do is in the store, so that it survives the end of a process: the next one that works with
the run's model goes on with it. Several processes may use one index; one of them works on a run, and another takes
over where it has not got on for a while.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable

from rag_context.domain.embedding_model import EmbeddingModel, Rebuild
from rag_context.errors import BackendDataError, BackendRejectedError
from rag_context.ingest.indexer import Indexer
from rag_context.ports.maintenance import VectorRebuilder
from rag_context.ports.models import Embedder
from rag_context.service.binding import BoundEmbedder, same_vectors

logger = logging.getLogger(__name__)

LEASE_S = 5.0
"""A run that has got on within so many seconds has somebody who works on it."""

ABANDONED_S = 600.0
"""A run of another model that has not got on for so long is given up by whoever works with the index's model."""

BATCH = 100

Told = Callable[[int], None]
"""Told how many documents are done so far."""


class Rebuilding:
    """Begins a run, works on it, and ends it.

    Args:
        rebuilder: keeps the new vectors.
        inner: the model in use.
        bound: the model that answers.
        indexer: embeds documents.
        begin_on_mismatch: whether a run begins by itself where another model made the index.
        now: the wall clock, in seconds since 1970.
    """

    def __init__(
        self,
        rebuilder: VectorRebuilder,
        inner: Embedder,
        bound: BoundEmbedder,
        indexer: Indexer,
        *,
        begin_on_mismatch: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._rebuilder = rebuilder
        self._inner = inner
        self._bound = bound
        self._indexer = indexer
        self._begin_on_mismatch = begin_on_mismatch
        self._now = now
        self._is_ours = False
        self._one_at_a_time = asyncio.Lock()
        self._beginning = asyncio.Lock()

    async def begin(self) -> None:
        """Begin a run, unless one of the model in use is under way. Raises: BackendError (no model, no store)."""
        async with self._beginning:
            model = self._inner.model
            run = await self._rebuilder.under_way()
            if run is None or not same_vectors(run.model, model):
                self._is_ours = await self._rebuilder.begin(model)
        await self._bound.bind()

    async def remaining(self) -> int | None:
        """How many documents lack new vectors; None where no run is under way. Raises: BackendError."""
        return None if await self._rebuilder.under_way() is None else await self._rebuilder.remaining()

    async def require_ended(self) -> None:
        """Make sure that the index has the vectors of the model in use.

        Raises:
            BackendRejectedError: it has not: another process put an end to the run.
        """
        await self._bound.bind()
        recorded = self._bound.recorded
        if recorded is None or not same_vectors(self._inner.model, recorded):
            raise BackendRejectedError(
                "vectors", "another process ended the run; `rag-context reindex` begins it again"
            )

    async def work(self, on_done: Told = lambda _done: None, *, together: int = 1) -> bool:
        """Go on with the run under way, where there is one for the model in use, to its end.

        Returns whether it did: another task or process may be at it.

        Raises:
            BackendError: an embedder or the store is not there; the run goes on later.
        """
        if self._one_at_a_time.locked():
            return False
        async with self._one_at_a_time:
            run = await self._due()
            if run is None:
                return False
            logger.info("the vectors of %s are made beside those that answer", run.model.name)
            done = 0

            def tell() -> None:
                nonlocal done
                done += 1
                on_done(done)

            # Its own fingerprint may differ from the run's by float noise.
            embedder = _Named(self._inner, run.model)
            while not await self._rebuilder.switch(run.model.fingerprint, await self._pass(embedder, tell, together)):
                pass
            self._is_ours = False
            await self._bound.bind()
            logger.info("the vectors of %s are complete and answer from now on", run.model.name)
            return True

    async def _due(self) -> Rebuild | None:
        """The run to work on; a run that nobody will end is given up."""
        run = await self._rebuilder.under_way()
        if run is None and not self._begin_on_mismatch:
            return None
        model = self._inner.model
        await self._bound.bind()  # another process may have ended a run just now
        is_current = self._bound.recorded is not None and same_vectors(model, self._bound.recorded)
        still_s = math.inf if run is None else self._now() - run.touched
        is_free = self._is_ours or not 0.0 <= still_s < LEASE_S
        if run is not None and same_vectors(model, run.model):
            return run if is_free else None
        if self._begin_on_mismatch and not is_current and is_free:
            await self.begin()
            return await self._rebuilder.under_way()
        if run is not None and is_current and still_s > ABANDONED_S:
            logger.warning("the vectors of %s are given up: nobody goes on with them", run.model.name)
            await self._rebuilder.abandon()
        return None

    async def _pass(self, embedder: Embedder, tell: Callable[[], None], together: int) -> set[str]:
        """Complete every document that lacks new vectors; returns the ids of those that cannot be."""
        left: set[str] = set()
        last = ""
        places = asyncio.Semaphore(together)

        async def complete(id_: str) -> None:
            async with places:
                try:
                    is_complete = await self._indexer.complete_beside(id_, embedder, self._rebuilder)
                except (BackendDataError, BackendRejectedError) as error:
                    logger.warning("document %s cannot have new vectors: %s", id_, error)
                    is_complete = False
            if is_complete:
                tell()
            else:
                left.add(id_)

        while ids := await self._rebuilder.lacking(last, BATCH):
            try:
                async with asyncio.TaskGroup() as group:
                    for id_ in ids:
                        group.create_task(complete(id_))
            except ExceptionGroup as failures:
                raise failures.exceptions[0] from failures
            last = ids[-1]
        return left


class _Named:
    """An embedder under the name and fingerprint that the run records."""

    def __init__(self, inner: Embedder, model: EmbeddingModel) -> None:
        self.model = model
        self.tokenizer = inner.tokenizer
        self.embed_query = inner.embed_query
        self.embed_documents = inner.embed_documents
        self.ping = inner.ping

"""Background work: probes failed backends, compares the model with the index, and embeds pending documents."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from rag_context.domain.documents import counted
from rag_context.domain.reports import IssueKind
from rag_context.errors import BackendError, BackendStartingError, BackendUnavailableError
from rag_context.ingest.indexer import Indexer
from rag_context.ingest.split_stores import Divergence, Reconciler
from rag_context.memory.bound_embedder import BoundEmbedder, Rebuilding
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import IndexAuditor
from rag_context.resilience.deadline import Deadline, set_within, together
from rag_context.resilience.dependency import BreakerState, Dependency
from rag_context.resilience.memory import keep_trimmed

logger = logging.getLogger(__name__)

T = TypeVar("T")

PROBE_EVERY_S = 0.25
PROBE_TIMEOUT_S = 5.0
BIND_EVERY_S = 1.0
BIND_SOON_S = 0.02
SWEEP_EVERY_S = 10.0
REBUILD_EVERY_S = 1.0
RECONCILE_EVERY_S = 10.0
DIFFER_EVERY_S = 1.0
RECONCILE_TIMEOUT_S = 30.0
MISMATCHES_BEFORE_COMPARING = 2
"""Checks in a row that find a wrong number of vectors, before all documents and vectors are compared."""

SWEEP_DELAY_S = 1.0
"""The sweep waits while documents arrive whose vectors were deferred, until none came for so long."""

SWEEP_CHECK_S = 0.1
MAX_SWEEP_DELAY_S = 120.0
"""But no longer than this after the first of them: a stream without end must not keep vectors away for ever."""

MAX_UNFINISHED = 100
"""Documents in the queue of those to finish; further ones are left to the sweep."""

SWEEP_BATCH = 100
"""Pending documents that are listed at a time."""

SWEEP_TOGETHER = 4
"""Pending documents that are completed at once when a caller waits for the result."""

SWEEP_BESIDE = 2
"""Pending documents that are completed at once in the background: while one is read and stored, the model has another.
No more: a store that has just restarted is still slow, and searches come first."""


class Duties(Enum):
    ALL = "all"
    OWN = "own"
    """Only what concerns the process itself; another process of the same server looks after the index."""


@dataclass(eq=False)
class BackgroundMaintenance:
    dependencies: Sequence[Dependency]
    embedder: BoundEmbedder
    indexer: Indexer
    documents: DocumentStore
    clock: Callable[[], float]
    reconciler: Reconciler | None = None
    rebuilding: Rebuilding | None = None
    load: Callable[[], Awaitable[object]] | None = None
    duties: Duties = Duties.ALL
    on_available: Callable[[], None] = lambda: None
    auditor: IndexAuditor | None = None

    def __post_init__(self) -> None:
        self._sweep_now = asyncio.Event()
        self._deferred_at = self._delayed_since = self._delayed_until = float("-inf")
        self.problem: str | None = None
        """How many documents the last sweep could not embed, and why; None if there were none."""
        self._rebuild_now = asyncio.Event()
        self._unfinished: asyncio.Queue[str] = asyncio.Queue(MAX_UNFINISHED)
        self.bound = asyncio.Event()
        """Set once the model is loaded and has been compared with the index."""
        self.bind_tried = asyncio.Event()
        """Set once the comparison has succeeded (then `bound` is set too) or has failed."""

    async def run(self) -> None:
        works = [*map(self._probe, self.dependencies), self._bind(), self._finish(), self._reconcile(), keep_trimmed()]
        if self.duties is Duties.ALL:
            works += [self._sweep(), self._rebuild()]
        await together(*works)

    async def _probe(self, part: Dependency) -> None:
        """Probe a backend while its breaker is open: each by itself, as one that hangs must not delay the others."""
        was_available = True
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            if part.breaker.state is BreakerState.HALF_OPEN:
                try:
                    await part.probe(PROBE_TIMEOUT_S)
                except BackendError as error:
                    logger.info("%s is still unavailable: %s", part.name, error)
            if part.breaker.closed and not was_available:  # by this probe, or by one of a health report
                logger.info("%s is available again", part.name)
                self._sweep_now.set()
                self.on_available()
            was_available = part.breaker.closed

    async def _bind(self) -> None:
        """Compare the model with the index, again and again: another process may reindex with another model."""
        while True:
            try:
                await self.embedder.bind()
                if not self.bound.is_set():
                    if self.load is not None:
                        await self.load()
                    self.bound.set()
                    self._sweep_now.set()
                self.bind_tried.set()
            except BackendStartingError:
                pass
            except BackendError as error:
                logger.debug("the model cannot be compared with the index yet: %s", error)
                self.bind_tried.set()
            await asyncio.sleep(BIND_EVERY_S if self.bind_tried.is_set() else BIND_SOON_S)

    async def _sweep(self) -> None:
        while True:
            await set_within(self._sweep_now, SWEEP_EVERY_S)
            self._sweep_now.clear()
            try:
                await self._await_lost_vectors()
                await self.sweep(lambda _done: None, together=SWEEP_BESIDE)
            except BackendError as error:
                logger.debug("pending documents cannot be completed now: %s", error)

    async def _await_lost_vectors(self) -> None:
        """Make documents pending whose vectors are gone although no document waits for any. Raises: BackendError."""
        if self.auditor is None:
            return
        counts = await self.documents.counts()
        if not counts.pending and counts.vectors < counts.chunks:
            logger.warning("%d chunks lost their vectors: they are embedded again", counts.chunks - counts.vectors)
            await self.auditor.repair([IssueKind.MISSING_VECTORS])

    async def _finish(self) -> None:
        """Complete documents whose embedding ran out of time, one by one; the sweep retries those that fail."""
        while True:
            id_ = await self._unfinished.get()
            try:
                await self.indexer.finish(id_)
            except BackendError as error:
                logger.debug("document %s is left to the next sweep: %s", id_, error)

    async def _reconcile(self) -> None:
        """Compare the sizes of both stores, and, with all duties, their contents if the sizes differ twice in a row.

        One mismatch is normal: a write reaches one store after the other. Equal sizes can hide differences, so one page
        of documents is compared from time to time too.
        """
        if (reconciler := self.reconciler) is None:
            return
        mismatches, compare_at = 0, float("-inf" if self.duties is Duties.ALL else "inf")
        while True:
            try:
                # Every second, because searches and the health report must say that vectors are lost.
                differs = await self.stores_differ(RECONCILE_TIMEOUT_S)
                mismatches = mismatches + 1 if differs else 0
                if self.clock() >= compare_at and (not differs or mismatches >= MISMATCHES_BEFORE_COMPARING):
                    compare_at = self.clock() + RECONCILE_EVERY_S
                    compared = reconciler.compare() if differs else self._with_timeout(reconciler.compare_some())
                    await self._repair(reconciler, await compared)
            except BackendError as error:
                mismatches = 0
                logger.debug("documents and vectors cannot be compared now: %s", error)
            await asyncio.sleep(DIFFER_EVERY_S)

    async def _rebuild(self) -> None:
        """Continue a run that this or another process has begun, once no other process works on it."""
        while self.rebuilding is not None:
            try:
                await self.rebuilding.work()
            except BackendError as error:
                logger.debug("the documents cannot be embedded again now: %s", error)
            await set_within(self._rebuild_now, REBUILD_EVERY_S)
            self._rebuild_now.clear()

    async def stores_differ(self, timeout_s: float) -> bool:
        """Compare how much both stores hold, and note what is lost; False for one store. Raises: BackendError."""
        return self.reconciler is not None and await self._with_timeout(self.reconciler.differ(), timeout_s)

    async def _with_timeout(self, work: Awaitable[T], timeout_s: float = RECONCILE_TIMEOUT_S) -> T:
        return await Deadline.after(timeout_s, self.clock).bound("vectors", work)

    async def _repair(self, reconciler: Reconciler, found: Divergence) -> None:
        """Embed documents again whose vectors are missing; vectors of unknown documents stay."""
        if found.missing or found.stale:
            logger.warning(
                "%d documents have no vectors and %d have vectors of another version: they are embedded again",
                len(found.missing),
                len(found.stale),
            )
            await reconciler.repair(found)
            self._sweep_now.set()
        if found.orphans:
            logger.warning(
                "there are vectors of %d documents that are not stored: another index may use the same vector store; "
                "`rag-context check --repair` deletes them",
                len(found.orphans),
            )

    def finish_soon(self, document_id: str) -> None:
        """Queue a document whose embedding was not done within its caller's time budget."""
        with suppress(asyncio.QueueFull):  # the document is stored as pending, so the next sweep finds it
            self._unfinished.put_nowait(document_id)

    def delay_sweep(self) -> None:
        """Have the sweep wait a moment: documents arrive whose vectors were deferred, and the sweep would slow them."""
        now = self.clock()
        if now - self._deferred_at > SWEEP_DELAY_S:
            self._delayed_since = now
        self._deferred_at = now
        self._delayed_until = min(now + SWEEP_DELAY_S, self._delayed_since + MAX_SWEEP_DELAY_S)
        self._sweep_now.set()

    def sweep_soon(self) -> None:
        """Start the next sweep, and the next round of a run that embeds all documents again, at once."""
        self._sweep_now.set()
        self._rebuild_now.set()

    async def _released(self) -> None:
        """Wait as long as the sweep is held."""
        while (left_s := self._delayed_until - self.clock()) > 0.0:  # noqa: ASYNC110  (a time ends it, no event)
            await asyncio.sleep(min(left_s, SWEEP_CHECK_S))

    async def sweep(self, on_done: Callable[[int], None], *, together: int = SWEEP_TOGETHER) -> int:
        """Embed and store pending documents, `together` at once, until no more can be completed; returns how many were.

        `on_done` is called with their number after each. One that fails or changed is left to the next sweep.
        Raises: BackendUnavailableError (the embedder or the store; the other documents stay pending).
        """
        done = 0
        is_unavailable = False
        left: set[str] = set()
        failures: list[BackendError] = []
        semaphore = asyncio.Semaphore(together)

        async def complete(id_: str) -> None:
            nonlocal done, is_unavailable
            async with semaphore:
                await self._released()
                if is_unavailable:  # embeddings that cannot be stored would be wasted
                    return
                try:
                    is_complete = await self.indexer.complete(id_)
                except BackendUnavailableError:
                    is_unavailable = True
                    raise
                except BackendError as error:
                    left.add(id_)
                    failures.append(error)
                    logger.warning("document %s stays pending: %s", id_, error)
                    return
            if not is_complete:
                left.add(id_)  # not retried in this sweep: a document whose content is lost would loop without end
                return
            done += 1
            on_done(done)

        while waiting := [id_ for id_ in await self.documents.pending(SWEEP_BATCH + len(left)) if id_ not in left]:
            # All end before the first failure is raised, so that none writes after the sweep has ended.
            results = await asyncio.gather(*(complete(id_) for id_ in waiting), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        self.problem = f"{counted(len(failures), 'document')} cannot be embedded: {failures[0]}" if failures else None
        return done

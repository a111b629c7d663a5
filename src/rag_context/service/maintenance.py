"""Background work with an owner: probing what is dead, binding the model, giving pending documents their vectors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from rag_context.errors import BackendError, BackendStartingError, BackendUnavailableError
from rag_context.ingest.indexer import Indexer
from rag_context.ingest.reconciliation import Divergence, Reconciler
from rag_context.ports.reading import DocumentStore
from rag_context.resilience.breaker import BreakerState
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.service.binding import BoundEmbedder
from rag_context.service.rebuilding import Rebuilding

logger = logging.getLogger(__name__)

T = TypeVar("T")

PROBE_EVERY_S = 0.25
PROBE_PATIENCE_S = 5.0
BIND_EVERY_S = 1.0
BIND_SOON_S = 0.02
SWEEP_EVERY_S = 10.0
REBUILD_EVERY_S = 1.0
RECONCILE_EVERY_S = 10.0
RECONCILE_SOON_S = 1.0
RECONCILE_PATIENCE_S = 30.0
LOOKS = 2
"""Looks in a row that find other numbers of vectors than there should be, before everything is compared."""

MOST_UNFINISHED = 100
"""Documents that wait to be finished at once; further ones are left to the sweep."""

SWEEP_BATCH = 100
"""Pending documents looked up at a time."""

SWEEP_TOGETHER = 4
"""Pending documents completed at once where somebody waits for it."""

SWEEP_BESIDE = 1
"""Pending documents completed at once beside searches, which a store that has just come back is slow to answer."""


class Upkeep:
    """Runs beside the requests until it is cancelled.

    Args:
        dependencies: what is probed when its breaker is open.
        embedder: what is compared with the index.
        indexer: completes pending documents.
        documents: knows which are pending.
        clock: monotonic seconds.
        reconciler: compares documents and vectors where two stores keep them.
        rebuilding: makes all vectors anew where that was begun.
        load: reads into memory what the first search needs; `bound` is set after it.
    """

    def __init__(
        self,
        dependencies: Sequence[Dependency],
        embedder: BoundEmbedder,
        indexer: Indexer,
        documents: DocumentStore,
        clock: Callable[[], float],
        reconciler: Reconciler | None = None,
        rebuilding: Rebuilding | None = None,
        load: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._reconciler = reconciler
        self._rebuilding = rebuilding
        self._load = load
        self._dependencies = tuple(dependencies)
        self._embedder = embedder
        self._indexer = indexer
        self._documents = documents
        self._clock = clock
        self._sweep_now = asyncio.Event()
        self.trouble: str | None = None
        """Which documents could not be given vectors by the last sweep, and why; None where all could, or may yet."""

        self._rebuild_now = asyncio.Event()
        self._unfinished: asyncio.Queue[str] = asyncio.Queue(MOST_UNFINISHED)
        self.bound = asyncio.Event()
        """Set once the model is loaded and has been compared with the index."""

        self.settled = asyncio.Event()
        """Set with `bound`, or once it is known that the model cannot be had for now."""

    async def run(self) -> None:
        """Everything, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._probe())
            group.create_task(self._bind())
            group.create_task(self._sweep())
            group.create_task(self._finish())
            group.create_task(self._reconcile())
            group.create_task(self._rebuild())

    async def _probe(self) -> None:
        away: set[str] = set()
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            due = [part for part in self._dependencies if part.breaker.state is BreakerState.HALF_OPEN]
            await asyncio.gather(*(self._probe_one(part) for part in due))
            still_away = {part.name for part in self._dependencies if not part.breaker.closed}
            for name in away - still_away:  # a report of health may have found it first
                logger.info("%s is back", name)
                self._sweep_now.set()
            away = still_away

    async def _probe_one(self, part: Dependency) -> None:
        try:
            await part.probe(Deadline.after(PROBE_PATIENCE_S, self._clock))
        except BackendError as error:
            logger.info("%s is still unavailable: %s", part.name, error)

    async def _bind(self) -> None:
        """Compare the model with the index as soon as it can be, and again ever after: others may reindex."""
        while True:
            try:
                await self._embedder.bind()
                if not self.bound.is_set():
                    if self._load is not None:
                        await self._load()
                    self.bound.set()
                    self._sweep_now.set()
                self.settled.set()
            except BackendStartingError:
                pass
            except BackendError as error:
                logger.debug("the model cannot be compared with the index yet: %s", error)
                self.settled.set()
            await asyncio.sleep(BIND_EVERY_S if self.settled.is_set() else BIND_SOON_S)

    async def _sweep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SWEEP_EVERY_S):
                    await self._sweep_now.wait()
            except TimeoutError:
                pass
            self._sweep_now.clear()
            try:
                await self.sweep(lambda _done: None, together=SWEEP_BESIDE)
            except BackendError as error:
                logger.debug("pending documents wait: %s", error)

    async def _finish(self) -> None:
        """Go on with documents that only lacked time, one after the other; one that fails is left to the sweep."""
        while True:
            id_ = await self._unfinished.get()
            try:
                await self._indexer.finish(id_)
            except BackendError as error:
                logger.debug("document %s waits for the sweep: %s", id_, error)

    async def _reconcile(self) -> None:
        """Look whether both stores hold as much as each other; twice, because a write touches one after the other.

        What numbers cannot tell is found by comparing a page of documents in every round.
        """
        if self._reconciler is None:
            return
        looks = 0
        while True:
            try:
                differs = await self._within_reason(self._reconciler.differ())
                looks = looks + 1 if differs else 0
                if looks == LOOKS:
                    looks = 0
                    await self._mend(self._reconciler, await self._reconciler.compare())
                elif not differs:
                    await self._mend(self._reconciler, await self._within_reason(self._reconciler.compare_some()))
            except BackendError as error:
                looks = 0
                logger.debug("documents and vectors cannot be compared now: %s", error)
            await asyncio.sleep(RECONCILE_SOON_S if looks else RECONCILE_EVERY_S)

    async def _rebuild(self) -> None:
        """Go on with what was begun, here or by another process, as soon as nobody else does."""
        while self._rebuilding is not None:
            try:
                await self._rebuilding.work()
            except BackendError as error:
                logger.debug("new vectors wait: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(REBUILD_EVERY_S):
                    await self._rebuild_now.wait()
            self._rebuild_now.clear()

    async def _within_reason(self, work: Awaitable[T]) -> T:
        return await Deadline.after(RECONCILE_PATIENCE_S, self._clock).bound("vectors", work)

    async def _mend(self, reconciler: Reconciler, found: Divergence) -> None:
        """Have embedded again what lacks its vectors. Vectors of unknown documents are not ours to forget."""
        if found.missing or found.stale:
            logger.warning(
                "%d documents lack vectors and %d have those of another version: they are embedded again",
                len(found.missing),
                len(found.stale),
            )
            await reconciler.repair(found)
            self._sweep_now.set()
        if found.orphans:
            logger.warning(
                "%d documents that are not there have vectors: another index may use the same vector store; "
                "`rag-context check --repair` forgets them",
                len(found.orphans),
            )

    def finish_soon(self, document_id: str) -> None:
        """Have a document embedded further that was not done in the time its caller had."""
        with suppress(asyncio.QueueFull):
            self._unfinished.put_nowait(document_id)

    def sweep_soon(self) -> None:
        """Have pending documents completed, and a run gone on with, now rather than at the next turn."""
        self._sweep_now.set()
        self._rebuild_now.set()

    async def sweep(self, on_done: Callable[[int], None], *, together: int = SWEEP_TOGETHER) -> int:
        """Complete pending documents until none is left that can be; returns how many were.

        One that cannot be completed now, or that went away or changed meanwhile, is left to the next sweep.

        Args:
            on_done: told after each document how many are done so far.
            together: how many are completed at once.

        Raises:
            BackendUnavailableError: the embedder or the store is not there; the rest stays pending.
        """
        done = 0
        is_away = False
        left: set[str] = set()
        failures: list[BackendError] = []
        places = asyncio.Semaphore(together)

        async def complete(id_: str) -> None:
            nonlocal done, is_away
            async with places:
                if is_away:  # embedding what cannot be stored is of no use
                    return
                try:
                    is_complete = await self._indexer.complete(id_)
                except BackendUnavailableError:
                    is_away = True
                    raise
                except BackendError as error:
                    left.add(id_)
                    failures.append(error)
                    logger.warning("document %s stays pending: %s", id_, error)
                    return
            if not is_complete:  # asked for again at once, one whose content is lost would be asked for without end
                left.add(id_)
                return
            done += 1
            on_done(done)

        while waiting := [id_ for id_ in await self._documents.pending(SWEEP_BATCH + len(left)) if id_ not in left]:
            results = await asyncio.gather(*(complete(id_) for id_ in waiting), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        self.trouble = f"{len(failures)} documents cannot be given vectors: {failures[0]}" if failures else None
        return done

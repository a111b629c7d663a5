"""The MongoDB store as a whole: one client, its ports, and the task that maintains the index.

That task follows other processes' writes, creates missing indexes and repairs counters.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rag_context.errors import BackendError
from rag_context.stores.mongodb.audit import MongoAuditor
from rag_context.stores.mongodb.document_store import MongoDocuments
from rag_context.stores.mongodb.indexes import Indexes
from rag_context.stores.mongodb.keyword_search import MongoTexts
from rag_context.stores.mongodb.mongo import Mongo, connect, ended
from rag_context.stores.mongodb.revisions import Revisions
from rag_context.stores.mongodb.search_records import MongoMetrics
from rag_context.stores.mongodb.state import IndexState, Snapshot, Totals

INTERVAL_S = 0.25
LONGEST_INTERVAL_S = 4.0
"""After failures the pauses double up to this."""

PROGRESS_S = 1.0
"""How long the record of the progress may be behind."""

STALLED_S = 5.0
"""If some change was open at any time for so long, one of them was interrupted."""

INDEXES_S = 60.0
"""How often it is made sure that all indexes are there."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MongoStore:
    """The ports of one database. `documents` is the document store, its writer and the model registry."""

    documents: MongoDocuments
    texts: MongoTexts
    metrics: MongoMetrics
    auditor: MongoAuditor


@asynccontextmanager
async def open_mongodb(
    uri: str, *, documents: str = "C0N7EXT", metrics: str = "R4G_M37R1C5"
) -> AsyncIterator[MongoStore]:
    """Open the database of `uri` (P4NTH30N if it names none); missing indexes are created in the background.

    An unreachable server is not an error here: the ports raise `BackendError` until it is available.

    Args:
        uri: the server's address, with user, password, database and the driver's options.
        documents: the collection of documents; their chunks are kept in `{documents}_chunks`, a record
            of their state in `{documents}_state`.
        metrics: the collection of search records.

    Raises:
        ConfigurationError: the address is invalid.
    """
    mongo = connect(uri, documents=documents, metrics=metrics)
    state = IndexState(mongo)
    indexes = Indexes(mongo)
    revisions = Revisions(mongo, state)
    document_store = MongoDocuments(mongo, state, indexes, revisions)
    watching = asyncio.create_task(Watch(mongo, state, indexes, revisions).run(time.monotonic), name="mongodb watch")
    watching.add_done_callback(_log_crash)
    try:
        yield MongoStore(
            document_store,
            MongoTexts(mongo, state, indexes),
            MongoMetrics(mongo),
            MongoAuditor(mongo, state, indexes, revisions),
        )
    finally:
        await ended(watching)
        await revisions.close()
        await state.close()
        await document_store.close()
        await indexes.close()
        await mongo.close()


class Watch:
    """Looks every quarter of a second.

    Args:
        mongo: the database.
        state: what the index has come to.
        indexes: its indexes.
        revisions: the chunks of its documents.
        stalled_s: how long a change may stay open before the counters are counted again.
    """

    def __init__(
        self, mongo: Mongo, state: IndexState, indexes: Indexes, revisions: Revisions, stalled_s: float = STALLED_S
    ) -> None:
        self._mongo = mongo
        self._state = state
        self._indexes = indexes
        self._revisions = revisions
        self._stalled_s = stalled_s
        self._index: str | None = None
        self._looks: deque[tuple[float, int]] = deque()
        self._shown: Totals | None = None
        self._shown_at = 0.0
        self._ensured_at: float | None = None
        self._failed = False

    async def run(self, clock: Callable[[], float]) -> None:
        """Run until cancelled; a server that fails is read less often."""
        pause_s = INTERVAL_S
        while True:
            try:
                await self.round(clock())
            except BackendError as error:
                pause_s = min(2 * pause_s, LONGEST_INTERVAL_S)
                self._note(error)
            else:
                pause_s = INTERVAL_S
                self._note(None)
            await asyncio.sleep(pause_s)

    async def round(self, now_s: float) -> None:
        """Look once. Raises: BackendError."""
        seen = await self._state.look()
        if self._ensured_at is None or now_s - self._ensured_at >= INDEXES_S:
            self._indexes.ensure_soon()  # which takes long where there are many documents already
            self._ensured_at = now_s
            await self._revisions.sweep()
            self._revisions.migrate_soon()
        if self._is_off(seen, now_s):
            await self._count_again(seen)
        if seen.totals != self._shown and now_s - self._shown_at >= PROGRESS_S:
            await self._show(seen.totals)
            self._shown, self._shown_at = seen.totals, now_s

    def _is_off(self, seen: Snapshot, now_s: float) -> bool:
        """Whether the counters must be counted again, and can be counted now.

        Interrupted changes stay open, others are completed: the least number of open changes over a while is that of
        the interrupted ones, and when no more than these are open, no change is under way that would be counted twice.
        """
        still_open = seen.begun - seen.version
        if self._index != seen.name or seen.settled:
            self._index, self._looks = seen.name, deque()
        self._looks.append((now_s, still_open))
        while now_s - self._looks[0][0] > self._stalled_s + INTERVAL_S:
            self._looks.popleft()
        long_enough = now_s - self._looks[0][0] >= self._stalled_s
        if still_open == 0 or (long_enough and still_open == min(count for _, count in self._looks)):
            self._looks = deque()
            return not seen.settled
        return False

    async def _count_again(self, seen: Snapshot) -> None:
        if await self._state.correct(seen, await self._state.count()):
            logger.info("the counters of the index were counted again")

    async def _show(self, totals: Totals) -> None:
        """Keep the progress of embedding where people and other programs can see it."""
        progress = {
            "documents": totals.documents,
            "indexed": totals.documents - totals.pending,
            "pending": totals.pending,
            "updatedAt": datetime.now(UTC),
        }
        async with self._mongo.writing.reached():
            await self._mongo.writing.progress.update_one(
                {"_id": self._mongo.documents.name}, {"$set": progress}, upsert=True
            )

    def _note(self, error: BackendError | None) -> None:
        if error is not None and not self._failed:
            logger.warning("%s", error)
        elif error is None and self._failed:
            logger.warning("MongoDB at %s can be used again", self._mongo.place)
        self._failed = error is not None


def _log_crash(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("background task %s crashed", task.get_name(), exc_info=error)

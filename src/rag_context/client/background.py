"""Indexing behind a program's back: submit a text and go on; it is stored soon, or its failure is reported."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import Generic, Self, TypeVar
from uuid import NAMESPACE_URL, uuid5

from rag_context.api.index import IndexRequest
from rag_context.client.async_client import AsyncClient
from rag_context.client.blocking_client import Client
from rag_context.client.call import request_of
from rag_context.client.parameters import IndexOptions, index_fields
from rag_context.client.repeats import Retries
from rag_context.domain.documents import CHAT, CODE, DECISION
from rag_context.errors import RagContextError

Item = TypeVar("Item")


class QueueClosedError(Exception):
    """The queue accepts no more items."""


class KeyedQueue(Generic[Item]):
    """Filled from any thread, emptied by tasks of one event loop; the items of one key keep their order."""

    def __init__(self, capacity: int, key_of: Callable[[Item], Hashable]) -> None:
        self._capacity = capacity
        self._key_of = key_of
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._waiting: OrderedDict[Hashable, deque[Item]] = OrderedDict()
        self._busy: set[Hashable] = set()
        self._count = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """How many items wait."""
        return self._count

    def put(self, item: Item) -> bool:
        """Add an item; False where there is no room. Raises: QueueClosedError."""
        with self._lock:
            if self._is_closed:
                raise QueueClosedError
            if self._count >= self._capacity:
                return False
            self._count += 1
            self._waiting.setdefault(self._key_of(item), deque()).append(item)
        # An asyncio event belongs to its loop; any thread may call this.
        self._loop.call_soon_threadsafe(self._changed.set)
        return True

    async def take(self) -> Item:
        """The next item whose key is free; its key is busy until `done`."""
        # No wake-up is lost: a `put` after `_next` sets the event in a later turn of the loop, after this `clear`.
        while (item := self._next()) is None:
            self._changed.clear()
            await self._changed.wait()
        # Several items may have come with one wake-up: the next worker has to look too.
        self._changed.set()
        return item

    def done(self, item: Item) -> None:
        """Free the key of an item."""
        with self._lock:
            self._busy.discard(self._key_of(item))
        self._changed.set()

    async def wait_for_room(self) -> None:
        """Wait until an item would be taken, or none will be any more."""
        # Without the lock: only tasks of this loop take items out, so the count cannot fall between check and wait.
        while self._count >= self._capacity and not self._is_closed:
            self._changed.clear()
            await self._changed.wait()

    async def wait_until_done(self) -> None:
        """Wait until nothing waits and no key is busy."""
        while self._count or self._busy:
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """Accept no more items."""
        with self._lock:
            self._is_closed = True
        self._changed.set()

    def empty(self) -> list[Item]:
        """Take out all that waits, and free all keys: no task works on them any more."""
        with self._lock:
            items = [item for waiting in self._waiting.values() for item in waiting]
            self._waiting.clear()
            self._busy.clear()
            self._count = 0
        self._changed.set()
        return items

    def _next(self) -> Item | None:
        with self._lock:
            for key, items in self._waiting.items():
                if key not in self._busy:
                    item = items.popleft()
                    if items:  # behind the other keys, so that one with many items does not keep them waiting
                        self._waiting.move_to_end(key)
                    else:
                        del self._waiting[key]
                    self._busy.add(key)
                    self._count -= 1
                    return item
        return None


logger = logging.getLogger(__name__)

CONCURRENCY = 5
CAPACITY = 1000
DRAIN_S = 30.0
BACKGROUND_RETRIES = Retries(tries=10, base_s=0.5, cap_s=30.0)
"""About a minute of trying, on top of what the context itself does."""

_OUTSIDE = "a BackgroundIndexer takes documents inside its `async with` block only"


class QueueFullError(RagContextError):
    """As many documents wait as may; this one was not taken."""


@dataclass(frozen=True, slots=True)
class QueuedDocument:
    """A document that waits to be indexed."""

    content: str = field(repr=False)
    content_type: str
    session_id: str
    source: str
    options: IndexOptions = field(repr=False)

    @property
    def key(self) -> tuple[str, str, str]:
        """What must keep its order: versions of one thing, and the messages of one conversation."""
        return self.content_type, self.session_id, self.source


@dataclass(frozen=True, slots=True)
class Failure:
    """A document that is not known to be kept. `error` is None where there was no time left for it."""

    document: QueuedDocument
    error: Exception | None


class BackgroundIndexer:
    """A bounded queue in front of an `AsyncClient`, for the time of an `async with` block.

    Five documents are indexed at once, those of one source and session in their order. A server that is away is tried
    again for about a minute. At the end of the block the queue is worked off for `drain_s` seconds; what is left then
    is in `left`. Whatever could not be kept is counted, logged without its text, and passed to `on_failure`.

    Args:
        context: where documents go.
        concurrency: documents indexed at once.
        capacity: most documents that wait.
        retries: how long an absent server is tried again.
        drain_s: how long the end of the block waits for the queue.
        on_failure: is called with each document that could not be stored.
    """

    def __init__(
        self,
        context: AsyncClient,
        *,
        concurrency: int = CONCURRENCY,
        capacity: int = CAPACITY,
        retries: Retries = BACKGROUND_RETRIES,
        drain_s: float = DRAIN_S,
        on_failure: Callable[[Failure], None] | None = None,
    ) -> None:
        if isinstance(context, Client):
            raise TypeError("a BackgroundIndexer works with an AsyncClient, or with what open_context gives")
        if min(concurrency, capacity) < 1:
            raise ValueError("concurrency and capacity of a BackgroundIndexer must be at least 1")
        self._context = context
        self._concurrency = concurrency
        self._capacity = capacity
        self._retries = retries
        self._drain_s = drain_s
        self._on_failure = on_failure
        self._queue: KeyedQueue[QueuedDocument] | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._running: list[QueuedDocument] = []
        self.indexed = 0
        """Documents that are kept."""
        self.failed = 0
        """Documents that could not be kept."""
        self.left: tuple[QueuedDocument, ...] = ()
        """Documents for which the end of the block left no time."""

    async def __aenter__(self) -> Self:
        self._queue = KeyedQueue(self._capacity, lambda document: document.key)
        self._workers = [asyncio.create_task(self._work(self._queue)) for _ in range(self._concurrency)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def waiting(self) -> int:
        """Documents that are queued or being indexed."""
        return len(self._queue or ()) + len(self._running)

    def queue_chat_session(self, session_id: str, content: str, agent: str | None = None) -> None:
        """Have a chat kept. Raises as `queue` does."""
        self.queue(
            content,
            content_type=CHAT,
            session_id=session_id,
            source=_source(CHAT, session_id),
            options={"metadata": {"agent": agent}, "agent": agent},
        )

    def queue_decision(self, decision_id: str, content: str, category: str | None = None) -> None:
        """Have a decision kept; a later one of the same id replaces it. Raises as `queue` does."""
        self.queue(
            content,
            content_type=DECISION,
            session_id=decision_id,
            source=_source(DECISION, decision_id),
            options={"metadata": {"category": category, "decision_id": decision_id}},
        )

    def queue_code_documentation(self, file_path: str, content: str) -> None:
        """Have what is said of a file kept; later words on the same file replace it. Raises as `queue` does."""
        session_id = str(uuid5(NAMESPACE_URL, file_path))
        self.queue(content, content_type=CODE, session_id=session_id, source=file_path, options={})

    def queue(
        self, content: str, *, content_type: str, session_id: str, source: str, options: IndexOptions | None = None
    ) -> None:
        """Have a document kept; any thread may call this.

        Raises:
            InvalidInputError: It cannot be a document.
            QueueFullError: Too many wait; see `wait_for_room`.
            RuntimeError: Outside the `async with` block.
        """
        document = QueuedDocument(content, content_type, session_id, source, options or {})
        request_of(IndexRequest, index_fields(content, content_type, session_id, source, document.options))
        queue = self._queue
        if queue is None:
            raise RuntimeError(_OUTSIDE)
        try:
            is_accepted = queue.put(document)
        except QueueClosedError:
            raise RuntimeError(_OUTSIDE) from None
        if not is_accepted:
            raise QueueFullError(
                f"{self._capacity} documents wait already; try again later, or `await wait_for_room()`"
            )

    async def wait_for_room(self) -> None:
        """Wait until a document would be taken, or the block ends: how a producer keeps pace."""
        if self._queue is not None:
            await self._queue.wait_for_room()

    async def wait_until_done(self) -> None:
        """Wait until everything submitted so far is stored, has failed, or is left."""
        if self._queue is not None:
            await self._queue.wait_until_done()

    async def close(self) -> None:
        """Take no more, work the queue off for as long as there is time, and say what is left."""
        queue, self._queue = self._queue, None  # from here on `queue` rejects documents
        if queue is None:
            return
        queue.close()
        try:
            async with asyncio.timeout(self._drain_s):
                await queue.wait_until_done()
        except TimeoutError:
            logger.warning("documents are left in the queue: %d", len(queue) + len(self._running))
        finally:
            for worker in self._workers:
                worker.cancel()
            await asyncio.wait(self._workers)
            self.left = (*self._running, *queue.empty())
            self._running.clear()
            for document in self.left:
                self._report(Failure(document, None))

    async def _work(self, queue: KeyedQueue[QueuedDocument]) -> None:
        while True:
            document = await queue.take()
            self._running.append(document)
            failure = await self._index(document)  # cancelled, it stays among those that run, and so is left
            self._running.remove(document)
            queue.done(document)
            if failure is None:
                self.indexed += 1
            else:
                self.failed += 1
                self._report(failure)

    async def _index(self, document: QueuedDocument) -> Failure | None:
        try:
            await self._retries.until_available(
                lambda: self._context.index(
                    document.content,
                    content_type=document.content_type,
                    session_id=document.session_id,
                    source=document.source,
                    **document.options,
                )
            )
        except RagContextError as error:
            logger.warning("%s %r could not be indexed: %s", document.content_type, document.source, error)
            return Failure(document, error)
        except Exception as error:
            logger.exception("%s %r could not be indexed", document.content_type, document.source)
            return Failure(document, error)
        return None

    def _report(self, failure: Failure) -> None:
        if self._on_failure is None:
            return
        try:
            self._on_failure(failure)
        except Exception:
            logger.exception("on_failure failed")


def _source(content_type: str, session_id: str) -> str:
    return f"h0und://{content_type}/{session_id}"

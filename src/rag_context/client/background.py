"""Indexing behind a program's back: submit a text and go on; it is stored soon, or its failure is reported."""

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import Self
from uuid import NAMESPACE_URL, uuid5

from rag_context.api.index import IndexRequest
from rag_context.client.async_client import AsyncClient
from rag_context.client.blocking_client import Client
from rag_context.client.call import request_of
from rag_context.client.parameters import IndexOptions, index_fields
from rag_context.client.repeats import Retries
from rag_context.domain.documents import CHAT, CODE, DECISION
from rag_context.errors import RagContextError

logger = logging.getLogger(__name__)

CONCURRENCY = 5
CAPACITY = 1000
DRAIN_S = 30.0
BACKGROUND_RETRIES = Retries(tries=10, base_s=0.5, cap_s=30.0)
"""About a minute of trying, on top of what the context itself does."""


class QueueFullError(RagContextError):
    """As many documents wait as may; this one was not taken."""


@dataclass(frozen=True, slots=True)
class QueuedDocument:
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
        self._capacity = capacity
        self._retries = retries
        self._drain_s = drain_s
        self._on_failure = on_failure
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of the block; None outside of it."""
        self._lock = Lock()
        self._queued = 0
        self._tasks: dict[asyncio.Task[None], QueuedDocument] = {}
        """Of all documents that are not done, in the order in which they came; many wait for their turn."""
        self._last: dict[Hashable, asyncio.Task[None]] = {}
        """The last document of each key, behind which the next one waits."""
        self._running = 0
        self._slots = asyncio.Semaphore(concurrency)
        self._changed = asyncio.Event()
        self.indexed = 0
        """Documents that are kept."""
        self.failed = 0
        """Documents that could not be kept."""
        self.left: tuple[QueuedDocument, ...] = ()
        """Documents for which the end of the block left no time."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def waiting(self) -> int:
        return self._queued + self._running

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
        with self._lock:
            if self._loop is None:
                raise RuntimeError("a BackgroundIndexer takes documents inside its `async with` block only")
            if self._queued >= self._capacity:
                raise QueueFullError(
                    f"{self._capacity} documents wait already; try again later, or `await wait_for_room()`"
                )
            self._queued += 1
            self._loop.call_soon_threadsafe(self._begin, document)

    async def wait_for_room(self) -> None:
        """Wait until a document would be taken, or the block ends: how a producer keeps pace."""
        await self._until(lambda: self._queued < self._capacity or self._loop is None)

    async def wait_until_done(self) -> None:
        """Wait until everything submitted so far is stored, has failed, or is left."""
        await self._until(lambda: not (self._queued or self._tasks))

    async def close(self) -> None:
        """Take no more, work the queue off for as long as there is time, and say what is left."""
        with self._lock:  # from here on `queue` rejects documents
            loop, self._loop = self._loop, None
        if loop is None:
            return
        self._changed.set()
        try:
            async with asyncio.timeout(self._drain_s):
                await self.wait_until_done()
        except TimeoutError:
            logger.warning("documents are left in the queue: %d", self.waiting)
        finally:
            self.left = tuple(document for task, document in self._tasks.items() if not task.done())
            self._queued = 0
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for document in self.left:
                self._report(Failure(document, None))

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            self._changed.clear()
            await self._changed.wait()

    def _begin(self, document: QueuedDocument) -> None:
        task = asyncio.create_task(self._keep(document, self._last.get(document.key)))
        self._tasks[task] = document
        self._last[document.key] = task
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        document = self._tasks.pop(task)
        if self._last[document.key] is task:
            del self._last[document.key]
        self._changed.set()

    async def _keep(self, document: QueuedDocument, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        async with self._slots:
            with self._lock:
                self._queued -= 1
            self._changed.set()
            self._running += 1
            try:
                failure = await self._index(document)
            finally:
                self._running -= 1
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

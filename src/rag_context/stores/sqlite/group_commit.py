"""Group commit: the thread that writes commits all queued requests as one transaction.

A commit costs a flush of the disk, however much is in it. Each of several requests has its own savepoint, so that a
failure does not affect the others; no result is returned before the commit.
"""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from rag_context.errors import BackendError, BackendTimeoutError, BackendUnavailableError
from rag_context.stores.sqlite import faults
from rag_context.stores.sqlite.database_file import LEAST_FREE_BYTES, DatabaseFile, FileUser

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]

STATE = "SELECT version, documents, (SELECT count(*) FROM collections) FROM totals"

GROUP = 256
"""A commit is closed with so many requests, and so many callers wait for one; the rest wait for their turn."""

ERASE_AFTER_S = 30.0
"""By when deleted content is erased from the log: it would stay there until it is overwritten."""

PROBE_BYTES = LEAST_FREE_BYTES // 2
"""Written to test whether a file that rejected a write accepts one again."""


@dataclass(slots=True)
class _WriteRequest:
    work: Work
    future: asyncio.Future[Any]
    result: object = None
    error: Exception | None = None


class Writer(FileUser):
    """Queues changes and commits them in groups; waits so long for other processes that write.

    `publish` is called with the index's version and size after each commit, before its callers get their results.
    """

    def __init__(
        self, file: DatabaseFile, publish: Callable[[int, int, int], None], lock_timeout_s: float, erase_after_s: float
    ) -> None:
        super().__init__(file)
        self._publish = publish
        self._lock_timeout_s = lock_timeout_s
        # Three attempts: while a connection reads from the log, it cannot be emptied.
        self._erase_every_s = erase_after_s / 3
        self._erase_at = time.monotonic() + self._erase_every_s
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Semaphore(GROUP)
        self._requests: queue.SimpleQueue[Sequence[_WriteRequest] | None] = queue.SimpleQueue()
        self._closing = False
        self._was_rejected = False
        """Whether the file rejected a write, and has not accepted one of `PROBE_BYTES` since."""
        self._thread = threading.Thread(target=self._serve, name="rag-context-writer", daemon=True)
        self._thread.start()

    async def submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction; returns once it is on disk. May run twice, if the first was rolled back.

        A call cancelled before its turn is not run; one cancelled later may have been.
        """
        async with self._turns:
            return await self._post([work])[0]

    async def submit_all(self, works: Sequence[Callable[[sqlite3.Connection], T]]) -> list[T | Exception]:
        """As `submit` for many in one commit: what each returned or raised. They take one turn.

        Raises: BackendUnavailableError (the file was closed).
        """
        async with self._turns:
            done: list[T | BaseException] = await asyncio.gather(*self._post(works), return_exceptions=True)
        return [_result_or_error(each) for each in done]

    def _post(self, works: Sequence[Callable[[sqlite3.Connection], T]]) -> list[asyncio.Future[T]]:
        if self._closing:
            raise BackendUnavailableError(faults.COMPONENT, f"{self._file.path.name!r} was closed.")
        requests = [_WriteRequest(work, self._loop.create_future()) for work in works]
        self._requests.put(requests)
        return [request.future for request in requests]

    async def try_write(self) -> None:
        """Write something that changes nothing of the index.

        After a rejected write it is as large as a large document, because a small one may fit on a full disk.
        """
        shortage = await asyncio.to_thread(self._file.shortage)
        try:
            if self._was_rejected and shortage is None:
                await self.submit(partial(_probe, f"randomblob({PROBE_BYTES})"))
                self._was_rejected = False
            await self.submit(partial(_probe, "hex(randomblob(8))"))
        except BackendTimeoutError:  # another process writes
            raise
        except BackendUnavailableError as error:
            obstacle = await asyncio.to_thread(self._file.obstacle)
            raise BackendUnavailableError(faults.COMPONENT, obstacle or str(error)) from error
        if shortage is not None:
            raise BackendUnavailableError(faults.COMPONENT, shortage)

    def close(self) -> None:
        """Commit the queued requests, close the connection, and wait for the thread. Blocks."""
        self._closing = True
        self._requests.put(None)
        self._thread.join()

    def _serve(self) -> None:
        last = False
        while not last:
            batch, last = self._take()
            if batch:
                self._file.await_log()
                with self.lock:
                    self._commit(batch)
                with suppress(RuntimeError):  # the loop was closed with requests still under way
                    self._loop.call_soon_threadsafe(_complete, batch)
            if time.monotonic() >= self._erase_at:
                self._empty_log()
        with self.lock:
            self.close_connection()

    def _take(self) -> tuple[list[_WriteRequest], bool]:
        batch: list[_WriteRequest] = []
        # Waits for the first request only. What came during the previous commit forms the next batch, so a batch grows
        # with the load, and a single write does not wait for others.
        try:
            requests = self._requests.get(timeout=max(self._erase_at - time.monotonic(), 0.0))
        except queue.Empty:
            return batch, False
        while requests is not None:
            batch += [request for request in requests if not request.future.cancelled()]
            if len(batch) >= GROUP or self._requests.empty():
                return batch, False
            requests = self._requests.get()
        return batch, True

    def _empty_log(self) -> None:
        """Write the log to the database, where deleted content is overwritten with zeros, and truncate it."""
        self._erase_at = time.monotonic() + self._erase_every_s
        if not self._file.has_log():
            return
        # Locked, replaced, read-only, damaged: the next time.
        with suppress(BackendError, sqlite3.Error, OSError), self.lock:
            self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _commit(self, batch: Sequence[_WriteRequest]) -> None:
        """Run and commit; leaves in every request its result or its error."""
        try:
            connection = self._connected()
            self._begin(connection)
            self._file.require_log()  # what is written to a removed one may be lost
            if len(batch) == 1:
                # Without a savepoint, whose journal SQLite walks through after each statement that has triggers.
                if not self._attempt(connection, batch[0]):
                    connection.execute("ROLLBACK")
                    self._begin(connection)
            else:
                for request in batch:
                    connection.execute("SAVEPOINT request")
                    if not self._attempt(connection, request):
                        connection.execute("ROLLBACK TO request")
                    connection.execute("RELEASE request")
            # Before the commit: after it another process may already have written, and its version is not this one.
            state = connection.execute(STATE).fetchone()
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  (a thread's edge: the error belongs to the callers)
            self._recover(error)
            # One large request may have filled the disk for all: alone, the others may still succeed.
            # Where the file could not even be opened or locked, each alone would end the same way.
            is_locked = isinstance(error, sqlite3.Error) and faults.is_busy(error)
            if len(batch) > 1 and not (is_locked or isinstance(error, BackendError)):
                for request in batch:
                    self._commit([request])
                return
            self._file.saw(error)
            ours = faults.translated(error, self._file.path) if faults.is_fault(error) else error
            # A timeout means that another process holds the lock, which says nothing about the disk or the permissions.
            if isinstance(ours, BackendUnavailableError) and not isinstance(ours, BackendTimeoutError):
                self._was_rejected = True
            for request in batch:
                request.error = ours
            return
        # Before the callers get their results: a search after its own write must not find a cached answer of before.
        self._publish(*state)

    def _attempt(self, connection: sqlite3.Connection, request: _WriteRequest) -> bool:
        """Run one request; returns whether it succeeded.

        Raises only what ended the whole transaction (no space, a broken disk).
        """
        request.error = None
        try:
            request.result = request.work(connection)
        except Exception as error:
            if not connection.in_transaction or (isinstance(error, sqlite3.Error) and faults.is_access_fault(error)):
                raise  # the same failure affects all requests, and the connection may be its cause
            self._file.saw(error)
            request.error = faults.translated(error, self._file.path) if faults.is_fault(error) else error
        return request.error is None

    def _begin(self, connection: sqlite3.Connection) -> None:
        deadline = time.monotonic() + self._lock_timeout_s
        while True:
            try:
                # Takes the write lock now. A deferred transaction that has read cannot get it once another process has
                # written, and SQLite would report that as busy without waiting.
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not faults.is_busy(error):
                    raise
                # No pause before the next attempt: SQLite itself waited for WRITER_SLICE_S.
                if self._closing or time.monotonic() >= deadline:
                    raise BackendTimeoutError(
                        faults.COMPONENT,
                        f"Another process has been writing to {str(self._file.path)!r} for"
                        f" {self._lock_timeout_s:g} s; nothing was stored, try again.",
                    ) from error
            else:
                return

    def _connected(self) -> sqlite3.Connection:
        """The connection; a new one if the file was replaced, because writes to a removed file are lost."""
        self._file.notice_replacement()
        self._file.damage.require_none()
        return self.connection()

    def _open(self) -> sqlite3.Connection:
        return self._file.writer()

    def _recover(self, error: Exception) -> None:
        connection = self.open_connection
        if connection is None:
            return
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.rollback()
        # A transaction that cannot be rolled back would swallow the next batch; closing the connection ends it.
        if faults.breaks_connection(error) or connection.in_transaction:
            self.close_connection()


def _probe(value: str, connection: sqlite3.Connection) -> None:
    connection.execute(f"INSERT OR REPLACE INTO meta VALUES ('probe', {value})")  # noqa: S608


def _result_or_error(outcome: T | BaseException) -> T | Exception:
    if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
        raise outcome  # a cancellation is not a result of the work
    return outcome


def _complete(batch: Sequence[_WriteRequest]) -> None:
    """Give each caller the result or the error of its request, unless it was cancelled; called in their loop."""
    for request in batch:
        if request.future.done():
            continue
        if request.error is not None:
            request.future.set_exception(request.error)
        else:
            request.future.set_result(request.result)

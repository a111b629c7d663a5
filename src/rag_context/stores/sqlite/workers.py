"""Threads that read, each with one connection and one call at a time; and the lock that they share with a writer."""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from rag_context.errors import BackendError, BackendUnavailableError
from rag_context.stores.sqlite.connections import DatabaseFile, Reader
from rag_context.stores.sqlite.faults import COMPONENT, backend_error, breaks_connection, is_fault, is_undecodable

T = TypeVar("T")

ATTEMPTS = 5
"""How often a call is repeated if its snapshot was changed."""


class Call(Generic[T]):
    """One call on its way through a thread; its result goes back to the caller's loop."""

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._given_up = False
        self.future: asyncio.Future[T] = self._loop.create_future()

    def give_up(self) -> None:
        """The caller was cancelled: do not start, or stop at the next row."""
        with self._lock:
            self._given_up = True
            if self._connection is not None:
                self._connection.interrupt()

    def run(self, reader: Reader) -> bool:
        """Run the work within one read snapshot and pass its result on. Raises what the work raises.

        Returns False, without a result, if a frozen file was changed meanwhile: read again.
        """
        connection = reader.connection()
        with self._lock:
            if self._given_up:
                return True
            self._connection = connection
        try:
            connection.execute("BEGIN")
            result = self._work(connection)
        except sqlite3.Error:
            if reader.is_intact():
                raise
            return False
        finally:
            with self._lock:
                self._connection = None
            connection.rollback()
        if not reader.is_intact():
            return False
        self._hand_over(self._settle, result)
        return True

    def fail(self, error: Exception) -> None:
        """Pass `error` on in place of a result."""
        self._hand_over(self._settle_error, error)

    def _hand_over(self, settle: Callable[..., None], outcome: object) -> None:
        with suppress(RuntimeError):  # the loop was closed with calls still under way
            self._loop.call_soon_threadsafe(settle, outcome)

    def _settle(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _settle_error(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Readers:
    """A fixed number of reading threads on one queue. Connections are opened at first use and after a fault."""

    def __init__(self, file: DatabaseFile, size: int) -> None:
        self._file = file
        self._calls: queue.SimpleQueue[Call[object] | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"rag-context-reader-{number}", daemon=True)
            for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one of the threads; a cancelled call stops the statement that it runs.

        Raises:
            BackendError: the file could not be read.
        """
        if self._closed:
            raise BackendUnavailableError(COMPONENT, f"{self._file.path.name!r} was closed.")
        call = Call(work)
        self._calls.put(call)  # type: ignore[arg-type]
        try:
            return await call.future
        except asyncio.CancelledError:
            call.give_up()
            raise

    def close(self) -> None:
        """Let the threads finish their calls, close their connections, and wait for them. Blocks."""
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        reader = self._file.reader()
        while (call := self._calls.get()) is not None:
            try:
                _run(call, reader)
            except BackendError as error:
                call.fail(error)
            except Exception as error:  # noqa: BLE001  (a thread's edge: the error belongs to the caller)
                if breaks_connection(error):
                    reader.close()
                call.fail(translated(error, self._file) if is_fault(error) else error)
            reader.release()
            del call
        reader.close()


def _run(call: Call[object], reader: Reader) -> None:
    """Run a call, and repeat it if a frozen file was changed meanwhile."""
    for _ in range(ATTEMPTS):
        if call.run(reader):
            return
    raise BackendUnavailableError(COMPONENT, "The file is being changed by a process that may write it; try again.")


def translated(error: Exception, file: DatabaseFile) -> BackendError:
    """`error` of SQLite as one of ours, without its cause if that may contain stored data."""
    ours = backend_error(error, file.path)
    if not is_undecodable(error):
        ours.__cause__ = error
    return ours


class ReadWriteLock:
    """A read-write lock that prefers writers: a waiting writer blocks new readers."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._writers = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Lock for reading."""
        with self._condition:
            while self._writers:
                self._condition.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock for writing. The owner must ensure that there is only one writer at a time."""
        with self._condition:
            self._writers += 1
            while self._readers:
                self._condition.wait()
        try:
            yield
        finally:
            with self._condition:
                self._writers -= 1
                self._condition.notify_all()

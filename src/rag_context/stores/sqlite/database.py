"""The database in use: its threads, of which those that read are here, and the state of the index.

And the lock of what is kept of it in memory, which readers share with the thread that follows the file.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from rag_context.errors import BackendError, BackendUnavailableError
from rag_context.stores.sqlite.connections import DatabaseFile, Stamp, stamp_of
from rag_context.stores.sqlite.faults import COMPONENT, breaks_connection, is_fault, translated
from rag_context.stores.sqlite.mark import IndexSize
from rag_context.stores.sqlite.threads import STATE, Watcher, Writer

T = TypeVar("T")

READERS = 4

ATTEMPTS = 5
"""How often a call is repeated if its snapshot was changed."""


class Database:
    """One SQLite file, opened by its threads when they first need it; `close` ends them all.

    Args:
        file: the file; created if it is missing. If it is damaged, locked or deleted, every call raises until it is
            usable again.
        lock_timeout_s: how long a write waits for other processes that write.
    """

    def __init__(self, file: DatabaseFile, *, lock_timeout_s: float) -> None:
        self.file = file
        self._version = 0
        self._base = 0
        self._generation = 0
        self._name: str | None = None
        self._stored = 0
        self._version_lock = threading.Lock()
        self._readers = Readers(self.file, READERS)
        self._writer = Writer(self.file, self._publish, lock_timeout_s)
        self._watcher: Watcher | None = None

    @property
    def version(self) -> int:
        """Grows with every change of the index that this process knows of."""
        return self._version

    @property
    def stamp(self) -> str | None:
        """Identifies this state of this file in every process; None before the file was read."""
        with self._version_lock:
            return None if self._name is None else f"{self._name}:{self._stored}"

    def follow(self, follower: Callable[[sqlite3.Connection], None]) -> None:
        """Start watching the file; `follower` is called with a connection in every round."""
        self._watcher = Watcher(self.file, Reader(self.file), partial(self._look, follower))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a reading thread, in one snapshot.

        Raises:
            BackendError: the file could not be read.
        """
        return await self._readers.run(work)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in the writing thread; what it changed is on disk when this returns. It may run twice.

        Raises:
            BackendError: nothing was changed.
        """
        return await self._writer.submit(work)

    async def write_all(self, works: Sequence[Callable[[sqlite3.Connection], T]]) -> list[T | Exception]:
        """As `write` for many in one transaction: what each returned or raised."""
        return await self._writer.submit_all(works)

    async def try_write(self) -> None:
        """Write something that changes nothing of the index. Raises: BackendError (why a write would fail)."""
        await self._writer.try_write()

    async def round(self) -> None:
        """Wait until the file was read.

        Raises:
            BackendError: it cannot be used.
        """
        if self._watcher is not None:
            await self._watcher.round()

    async def look(self) -> None:
        """Bring `version` up to what any process has committed by now. Raises: BackendError."""
        version, *size = await self.read(lambda connection: connection.execute(STATE).fetchone())
        self._publish(version, IndexSize(*size))

    async def close(self) -> None:
        """Commit the queued writes and close every connection."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self._readers.close()
        self._writer.close()

    def _look(self, follower: Callable[[sqlite3.Connection], None], connection: sqlite3.Connection) -> None:
        version, *size = connection.execute(STATE).fetchone()
        (name,) = connection.execute("SELECT max(value) FROM meta WHERE name = 'index'").fetchone()
        self._publish(version, IndexSize(*size))
        with self._version_lock:
            self._name = name
        follower(connection)

    def _publish(self, stored: int, size: IndexSize) -> None:
        """Keep the file's version, which starts again when the file is replaced."""
        if self.file.mark is not None:
            self.file.mark.note(size)
        with self._version_lock:
            if self._generation != self.file.generation:
                self._generation = self.file.generation
                # Another file counts from the start again. Counting on from here, its versions match no cached
                # answer of the former file.
                self._base = self._version + 1
                self._name = None
                self._stored = 0
            # Reading and writing threads publish in any order; a version never goes back.
            self._stored = max(self._stored, stored)
            self._version = max(self._version, self._base + stored)


class Reader:
    """One thread's connection, which cannot write: opened by the first use, and again after the file was replaced."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None
        self._epoch = -1
        self._frozen: Stamp | None = None
        self._is_kept = True

    def connection(self) -> sqlite3.Connection:
        """The connection. Raises: BackendError, sqlite3.Error, OSError."""
        if self._connection is None or self._epoch != self._file.epoch:
            self.close()
            self._epoch = self._file.epoch
            self._connection, self._frozen = self._file.open_reader()
            self._is_kept = self._frozen is not None or self._file.can_be_kept()
        return self._connection

    def is_intact(self) -> bool:
        """Whether the reads are consistent; False if a frozen file was changed meanwhile."""
        if self._frozen is None or self._frozen == stamp_of(self._file.path):
            return True
        self._file.notice_replacement()
        return False

    def release(self) -> None:
        """Nothing is read for now."""
        if not self._is_kept:
            self.close()

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


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
        # `give_up` knows the connection only while this call uses it: a later interrupt would stop the next call.
        with self._lock:
            if self._given_up:
                return True
            self._connection = connection
        try:
            # Deferred: the first read fixes the snapshot, which all further reads of the work then share.
            connection.execute("BEGIN")
            result = self._work(connection)
        # Pages of a frozen file that change during the reads look like damage; only then is the call repeated.
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
        self._pass_on(self.future.set_result, result)
        return True

    def fail(self, error: Exception) -> None:
        """Pass `error` on in place of a result."""
        self._pass_on(self.future.set_exception, error)

    def _pass_on(self, complete: Callable[[Any], None], outcome: object) -> None:
        with suppress(RuntimeError):  # the loop was closed with calls still under way
            # Whether the caller was cancelled is known in its loop only: between here and there it can still be.
            self._loop.call_soon_threadsafe(lambda: None if self.future.done() else complete(outcome))


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
        reader = Reader(self._file)
        while (call := self._calls.get()) is not None:
            try:
                _run(call, reader)
            except BackendError as error:
                call.fail(error)
            except Exception as error:  # noqa: BLE001  (a thread's edge: the error belongs to the caller)
                if breaks_connection(error):
                    reader.close()
                call.fail(translated(error, self._file.path) if is_fault(error) else error)
            # Otherwise the finished call and its result would stay in memory until the next one comes.
            reader.release()
            del call
        reader.close()


def _run(call: Call[object], reader: Reader) -> None:
    """Run a call, and repeat it if a frozen file was changed meanwhile."""
    for _ in range(ATTEMPTS):
        if call.run(reader):
            return
    raise BackendUnavailableError(COMPONENT, "The file is being changed by a process that may write it; try again.")


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
            # A waiting writer goes first, or a steady stream of searches would keep it out for ever. So `reading`
            # must not nest: a writer between the two would wait for the outer one, and the inner one for it.
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

"""The database in use: its reading threads, its writing thread, the state of the index.

And the lock of what is kept of it in memory, which readers share with the thread that follows the file.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Generic, TypeVar

from rag_context.errors import BackendError, BackendTimeoutError, BackendUnavailableError
from rag_context.stores.sqlite.connections import LEAST_FREE_BYTES, DatabaseFile, Reader
from rag_context.stores.sqlite.faults import COMPONENT, breaks_connection, is_fault, translated
from rag_context.stores.sqlite.mark import IndexSize
from rag_context.stores.sqlite.watcher import Watcher
from rag_context.stores.sqlite.writer import STATE, Writer

T = TypeVar("T")

READERS = 4

PROBE_BYTES = LEAST_FREE_BYTES // 2
"""Written to test whether a file that rejected a write accepts one again."""

_PROBE = "INSERT INTO meta VALUES ('probe', {value}) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

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
        self._followers: list[Callable[[sqlite3.Connection], None]] = []
        self._readers = Readers(self.file, READERS)
        self._writer = Writer(self.file, self._publish, lock_timeout_s)
        self._watcher: Watcher | None = None

    @property
    def version(self) -> int:
        """Grows with every change of the index that this process knows of."""
        return self._version

    @property
    def stored(self) -> int:
        """The newest count of the file itself that this process knows of."""
        return self._stored

    @property
    def stamp(self) -> str | None:
        """Identifies this state of this file in every process; None before the file was read."""
        with self._version_lock:
            return None if self._name is None else f"{self._name}:{self._stored}"

    def follow(self, *followers: Callable[[sqlite3.Connection], None]) -> None:
        """Start looking at the file; each follower is called with a connection in every round."""
        self._followers.extend(followers)
        self._watcher = Watcher(self.file, self._look)

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

    def post(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """As `write`, without back-pressure and without waiting."""
        return self._writer.post(work)

    async def try_write(self) -> None:
        """Write something that changes nothing of the index.

        After a rejected write it is as large as a large document, because a small one may fit on a full disk.

        Raises:
            BackendError: a write would fail now; the message has the reason.
        """
        shortage = await asyncio.to_thread(self.file.shortage)
        try:
            if self._writer.refused is not None and shortage is None:
                await self.write(partial(_write_much, PROBE_BYTES))
                self._writer.clear_failure()
            await self.write(_write_little)
        except BackendTimeoutError:  # another process writes
            raise
        except BackendUnavailableError as error:
            obstacle = await asyncio.to_thread(self.file.obstacle)
            raise BackendUnavailableError(COMPONENT, obstacle or str(error)) from error
        if shortage is not None:
            raise BackendUnavailableError(COMPONENT, shortage)

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

    def _look(self, connection: sqlite3.Connection) -> None:
        version, *size = connection.execute(STATE).fetchone()
        (name,) = connection.execute("SELECT max(value) FROM meta WHERE name = 'index'").fetchone()
        self._publish(version, IndexSize(*size))
        with self._version_lock:
            self._name = name
        for follower in self._followers:
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


def _write_little(connection: sqlite3.Connection) -> None:
    connection.execute(_PROBE.format(value="hex(randomblob(8))"))


def _write_much(size: int, connection: sqlite3.Connection) -> None:
    connection.execute(_PROBE.format(value="randomblob(?)"), (size,))


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

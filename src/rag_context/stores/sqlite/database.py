"""The database in use: the threads that read it and the one that watches it, and the state of the index.

Four threads read, each call in one snapshot. The watcher notices other processes' writes, and the file's recovery after
failures. Readers and watcher share what is kept of the file in memory, under the lock that is here too.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from rag_context.errors import BackendError, BackendUnavailableError
from rag_context.stores.sqlite import faults
from rag_context.stores.sqlite.database_file import LOCK_TIMEOUT_S, DatabaseFile, Reader
from rag_context.stores.sqlite.group_commit import ERASE_AFTER_S, STATE, Writer
from rag_context.stores.sqlite.mark import IndexSize

P = ParamSpec("P")
S = TypeVar("S", bound="HasDatabase")
T = TypeVar("T")

logger = logging.getLogger(__name__)

READERS = 4

INTERVAL_S = 0.25
LONGEST_INTERVAL_S = 4.0
"""How often the file is watched; after failures the pauses double up to the longest. A request ends a pause."""

CHECK_EVERY_S = 1.0
"""How long after its start, and after a check, a process looks: short commands end before, and no start is delayed."""

MOST_SHARE = 50
"""The pause after a check is at least so many times its CPU time: a large file costs no more than 2 % of a core."""

ATTEMPTS = 5
"""How often a call is repeated if its snapshot was changed."""


class Database:
    """One SQLite file, opened by its threads when they first need it; `close` ends them all.

    A missing file is created. While it is damaged, locked or deleted, every call raises.
    """

    def __init__(
        self, file: DatabaseFile, *, lock_timeout_s: float = LOCK_TIMEOUT_S, erase_after_s: float = ERASE_AFTER_S
    ) -> None:
        self.file = file
        self._version = 0
        self._base = 0
        self._generation = 0
        self._version_lock = threading.Lock()
        self._is_closed = False
        self._calls: queue.SimpleQueue[DatabaseCall[object] | None] = queue.SimpleQueue()
        self._readers = [Reader(file) for _ in range(READERS)]
        self._threads = [
            threading.Thread(target=self._serve, args=(reader,), name=f"rag-context-reader-{number}", daemon=True)
            for number, reader in enumerate(self._readers)
        ]
        for thread in self._threads:
            thread.start()
        self._writer = Writer(self.file, self._publish, lock_timeout_s, erase_after_s)
        self.write, self.write_all = self._writer.submit, self._writer.submit_all
        self.try_write = self._writer.try_write
        self._watcher: Watcher | None = None
        self._page_check: PageCheck | None = None

    @property
    def version(self) -> int:
        return self._version

    def follow(self, follower: Callable[[sqlite3.Connection], None]) -> None:
        """Start watching the file; `follower` is called with a connection in every round."""
        reader = Reader(self.file)
        self._watcher = Watcher(self.file, reader, partial(self._observe, follower), self._restore_log)
        self._readers.append(reader)

    def check_pages(self, every_s: float) -> None:
        """Have all pages of the file checked soon, and again after each change; damage stops writes."""
        reader = Reader(self.file)
        self._page_check = PageCheck(self.file, reader, every_s)
        self._readers.append(reader)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a reading thread, in one snapshot; if the caller is cancelled, its statement is stopped."""
        if self._is_closed:
            raise BackendUnavailableError(faults.COMPONENT, f"{self.file.path.name!r} was closed.")
        call = DatabaseCall(work)
        self._calls.put(call)  # type: ignore[arg-type]
        try:
            return await call.future
        except asyncio.CancelledError:
            call.give_up()
            raise

    async def round(self) -> None:
        if self._watcher is not None:
            await self._watcher.round()

    async def refresh_version(self) -> None:
        """Bring `version` up to what any process has committed by now. Raises: BackendError."""
        self._publish(*await self.read(lambda connection: connection.execute(STATE).fetchone()))

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if self._page_check is not None:
            self._page_check.close()
        if self._watcher is not None:
            self._watcher.close()
        # The threads end after the calls that are queued before them.
        self._is_closed = True
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()
        self._writer.close()

    def _serve(self, reader: Reader) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._run(call, reader)
            except BackendError as error:
                self.file.saw(error)
                call.fail(error)
            except Exception as error:  # noqa: BLE001  (a thread's edge: the error belongs to the caller)
                self.file.saw(error)
                call.fail(faults.translated(error, self.file.path) if faults.is_fault(error) else error)
            # Otherwise the finished call and its result would stay in memory until the next one comes.
            del call
        with reader.lock:
            reader.close_connection()

    def _run(self, call: "DatabaseCall[object]", reader: Reader) -> None:
        """Run a call, and repeat it if a frozen file was changed meanwhile, or the log had to be made again."""
        for _ in range(ATTEMPTS):
            self.file.await_log()
            with reader.lock:
                try:
                    if call.run(reader):
                        return
                except Exception as error:
                    if faults.breaks_connection(error):
                        reader.close_connection()
                    if not (isinstance(error, sqlite3.Error | BackendUnavailableError) and self.file.has_lost_log()):
                        raise
                finally:
                    reader.release()
        raise BackendUnavailableError(
            faults.COMPONENT, "The file is being changed by a process that may write it; try again."
        )

    def _restore_log(self) -> None:
        """Make a log again that was removed while it is used; called in the watcher's thread, outside its rounds.

        Raises: BackendUnavailableError (another process reads from it; the next round tries again).
        """
        users: tuple[Reader | Writer, ...] = (*self._readers, self._writer)
        if self._page_check is not None:
            self._page_check.interrupt()
        with ExitStack() as locks:
            # Nothing reads or writes until all connections are closed: SQLite keeps the locks of a process together,
            # and a new connection would share those of a removed file with the old ones.
            for user in users:
                locks.enter_context(user.lock)
            self.file.save_log([user.open_connection for user in users if user.open_connection is not None])
            for user in users:
                user.close_connection()

    def _observe(self, follower: Callable[[sqlite3.Connection], None], connection: sqlite3.Connection) -> None:
        self._publish(*connection.execute(STATE).fetchone())
        follower(connection)

    def _publish(self, stored: int, documents: int, collections: int) -> None:
        """Keep the file's version, which starts again when the file is replaced, and its size."""
        if self.file.mark is not None:
            self.file.mark.note(IndexSize(documents, collections))
        with self._version_lock:
            if self._generation != self.file.generation:
                self._generation = self.file.generation
                # Another file counts from the start again. Counting on from here, its versions match no cached
                # answer of the former file.
                self._base = self._version + 1
            # Reading and writing threads publish in any order; a version never goes back.
            self._version = max(self._version, self._base + stored)


class HasDatabase(Protocol):
    """What has methods that run in the threads of a database."""

    @property
    def _database(self) -> Database: ...


def reading(
    work: Callable[Concatenate[S, sqlite3.Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """A method that is awaited, and runs as `Database.read` runs work: its second parameter is the connection."""

    @wraps(work)
    async def read(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(lambda connection: work(self, connection, *args, **kwargs))

    return read


def reads(
    work: Callable[Concatenate[sqlite3.Connection, P], T],
) -> Callable[Concatenate[HasDatabase, P], Coroutine[Any, Any, T]]:
    """As `reading`, for a function that is a method as it is: its first parameter is the connection."""

    @wraps(work)
    async def read(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(lambda connection: work(connection, *args, **kwargs))

    return read


def writing(
    work: Callable[Concatenate[S, sqlite3.Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """As `reading`, as `Database.write` runs work."""

    @wraps(work)
    async def write(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(lambda connection: work(self, connection, *args, **kwargs))

    return write


class DatabaseCall(Generic[T]):
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
        self._pass_on(self.future.set_exception, error)

    def _pass_on(self, complete: Callable[[Any], None], outcome: object) -> None:
        with suppress(RuntimeError):  # the loop was closed with calls still under way
            # Whether the caller was cancelled is known in its loop only: between here and there it can still be.
            self._loop.call_soon_threadsafe(lambda: None if self.future.done() else complete(outcome))


class Watcher:
    """Reads the file every quarter of a second, and at once on request."""

    def __init__(
        self,
        file: DatabaseFile,
        reader: Reader,
        follow: Callable[[sqlite3.Connection], None],
        restore_log: Callable[[], None],
    ) -> None:
        self._file = file
        self._follow = follow
        self._restore_log = restore_log
        self._loop = asyncio.get_running_loop()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self._reader = reader
        self._connection: sqlite3.Connection | None = None
        self._closing = False
        self._failed = False
        self._thread = threading.Thread(target=self._serve, name="rag-context-watcher", daemon=True)
        self._thread.start()

    async def round(self) -> None:
        """Wait for the end of the round under way, or of a new one."""
        if self._closing:
            raise BackendUnavailableError(faults.COMPONENT, f"{self._file.path.name!r} was closed.")
        future: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            self._waiting.append(future)
        self._wake.set()
        await future

    def close(self) -> None:
        """Stop, even in the middle of a round, and wait for the thread. Blocks."""
        self._closing = True
        self._wake.set()
        with self._lock:
            if self._connection is not None:
                self._connection.interrupt()
        self._thread.join()

    def _serve(self) -> None:
        pause_s = INTERVAL_S
        while not self._closing:
            # Before the round, so that a request during it starts another one without a pause.
            self._wake.clear()
            error = self._try_round()
            if error is not None and not self._failed:
                logger.warning("%s cannot be used: %s", self._file.path.name, error)
            elif error is None and self._failed:
                logger.warning("%s can be used again", self._file.path.name)
            self._failed = error is not None
            self._release(error)
            pause_s = INTERVAL_S if error is None else min(2 * pause_s, LONGEST_INTERVAL_S)
            self._wake.wait(pause_s)
        self._release(BackendUnavailableError(faults.COMPONENT, f"{self._file.path.name!r} was closed."))
        with self._reader.lock:
            self._reader.close_connection()

    def _try_round(self) -> Exception | None:
        try:
            self._file.notice_replacement()
            if self._file.has_lost_log():
                self._restore_log()
            with self._reader.lock:
                try:
                    self._read()
                except Exception:
                    self._reader.close_connection()
                    raise
                self._reader.release()
        except BackendError as error:
            self._file.saw(error)
            return error
        except Exception as error:  # noqa: BLE001  (a thread's edge: the error belongs to those who wait)
            self._file.saw(error)
            return faults.translated(error, self._file.path) if faults.is_fault(error) else error
        return None

    def _read(self) -> None:
        connection = self._reader.connection()
        with self._lock:
            self._connection = connection
        try:
            connection.execute("BEGIN")
            self._follow(connection)
        finally:
            with self._lock:
                self._connection = None
            connection.rollback()
        self._reader.is_intact()  # otherwise the next round opens the file again

    def _release(self, error: Exception | None) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if waiting:
            with suppress(RuntimeError):  # the loop was closed while a caller waited
                self._loop.call_soon_threadsafe(_end_round, waiting, error)


def _end_round(waiting: Sequence[asyncio.Future[None]], error: Exception | None) -> None:
    for future in waiting:
        if future.done():  # its caller was cancelled
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(None)


class PageCheck:
    """A thread that has SQLite check all pages of a file, at first and after each change of it.

    SQLite checks a page when it reads it, so writes may go on for long beside damaged pages that none of them touches.
    """

    def __init__(self, file: DatabaseFile, reader: Reader, every_s: float) -> None:
        self._every_s = every_s
        self._file = file
        self._reader = reader
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._checked: list[int] | None = None
        self._thread = threading.Thread(target=self._serve, name="rag-context-pages", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, even in the middle of a check, and wait for the thread. Blocks."""
        self._stop.set()
        self.interrupt()
        self._thread.join()

    def interrupt(self) -> None:
        """End a check that is under way; it is made again later."""
        with self._lock:
            if self._connection is not None:
                self._connection.interrupt()

    def _serve(self) -> None:
        damage = self._file.damage
        pause_s = self._every_s
        while not self._stop.wait(pause_s):
            pause_s = self._every_s
            # Before the check: what changes during it is checked again.
            stamp = faults.stamp_of(self._file.path)
            if stamp is None or stamp == self._checked or damage.is_of(stamp):
                continue
            started, begun_ns = time.thread_time(), time.time_ns()
            try:
                with self._reader.lock:
                    problem = self._problem()
            except (BackendError, sqlite3.Error, OSError):  # locked, no descriptor, stopped: the next round tries again
                continue
            pause_s = max(self._every_s, MOST_SHARE * (time.thread_time() - started))
            # A file may change twice within one step of its clock, with one stamp: what is so young is checked again.
            self._checked = stamp if abs(begun_ns - stamp[-1]) > faults.CLOCK_STEP_NS else None
            if problem is not None:
                self._file.saw(problem)
            elif not damage.is_of(stamp):  # a read that met damage meanwhile knows better
                damage.clear()

    def _problem(self) -> sqlite3.Error | None:
        """The damage that SQLite finds. Raises: BackendError, sqlite3.Error, OSError (it could not look)."""
        try:
            connection = self._reader.connection()
            with self._lock:
                self._connection = connection
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            if not faults.is_damage(error):
                raise
            return error
        finally:
            with self._lock:
                self._connection = None
            self._reader.close_connection()  # with the pages that it has read
        return None if found == "ok" else faults.damaged(str(found))


class ReadWriteLock:
    """A read-write lock that prefers writers: a waiting writer blocks new readers."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._writers = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
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

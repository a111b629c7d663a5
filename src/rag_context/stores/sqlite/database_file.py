"""The database file: its path and identity, and the connections to it, opened again once it was replaced."""

import errno
import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeAlias

from rag_context import errors
from rag_context.errors import BackendDataError, BackendUnavailableError, ConfigurationError, LostIndexError
from rag_context.stores.sqlite.faults import COMPONENT, Damage, is_access_fault, is_damage
from rag_context.stores.sqlite.mark import IndexMark
from rag_context.stores.sqlite.migration import bring_up_to_date
from rag_context.stores.sqlite.shared_log import Connection, SharedLog

logger = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 4.0
"""How long a write waits for other processes that write."""

READER_TIMEOUT_S = 0.25
WRITER_SLICE_S = 0.05
"""How long one attempt for the write lock takes: SQLite's own backoff grows and would starve."""

LOG_WAIT_S = 2.0
LOG_POLL_S = 0.02
"""How long a call waits until a log that was removed is made again."""

THAW_EVERY_S = 1.0
"""How often a file that is read as a frozen one is tried in the normal way."""

LEAST_FREE_BYTES = 4 << 20
"""With less free space than this, writes of usual documents are about to fail."""

_OLDEST_SQLITE = (3, 31, 0)
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})
"""Why a directory cannot be made now, although it can be made later."""

Stamp: TypeAlias = tuple[int, ...]


def _read_little(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


class DatabaseFile:
    """The file at `path`; opens connections to it and detects when it was replaced by another file.

    SQLite needs a file beside a database in WAL mode even to read it. Where that one cannot be made (a read-only
    directory, a full disk), and no log holds changes, the file is read *frozen*: without locks, as if it could not
    change. Another process may change it nevertheless, so every frozen read is checked afterwards
    (`Reader.is_intact`), and the normal way is tried again every second.
    """

    def __init__(self, path: Path, *, is_marked: bool = True) -> None:
        self.path = path
        self.mark = IndexMark(path.with_name(f"{path.name}.json")) if is_marked else None
        self.damage = Damage(path)
        self.generation = 0
        """Grows when the file was replaced: caches of an older one are invalid."""
        self.epoch = 0
        """Grows when connections must be opened again: with the generation, and when a frozen file thaws."""
        self._identity: tuple[int, int] | None = None
        self._shared_log = SharedLog(path)
        self._prepared = False
        self._has_directory = True
        self._frozen: Stamp | None = None
        self._thaw_at = 0.0
        self._attempts = 0
        self._failure: Exception | None = None
        self._lock = threading.Lock()

    def check_path(self) -> None:
        """Create the directory, and check that the file can be read or created. Raises: ConfigurationError."""
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise ConfigurationError(f"SQLite {sqlite3.sqlite_version} is too old; use a Python with 3.31 or newer.")
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in _PASSING:
                self._has_directory = False
                return
            raise ConfigurationError(
                f"The data directory {str(directory)!r} cannot be created ({error.strerror}); choose another."
            ) from error
        if not os.access(directory, os.X_OK):
            raise ConfigurationError(_no_rights(directory, "read"))
        if self.path.is_dir():
            raise ConfigurationError(f"{str(self.path)!r} is a directory, not a database file; choose another path.")
        if self.path.exists():
            if not os.access(self.path, os.R_OK):
                raise ConfigurationError(_no_rights(self.path, "read"))
        elif not os.access(directory, os.W_OK):
            raise ConfigurationError(_no_rights(directory, "written"))

    def open_reader(self) -> tuple[sqlite3.Connection, Stamp | None]:
        """A connection that cannot write, and the stamp of a frozen file.

        Raises: BackendError (the file is another program's, newer than this program, or deleted), sqlite3.Error,
        OSError (it cannot be opened).
        """
        attempts = self._attempts
        with self._lock:
            self._make_ready(attempts)
            frozen = self._frozen
        # Outside the lock: opening may wait for a lock of the file, and the other threads need not.
        connection = self._open(READER_TIMEOUT_S) if frozen is None else _open_frozen(self.path)
        connection.executescript("PRAGMA query_only = ON; PRAGMA cache_size = -2048; PRAGMA temp_store = MEMORY")
        return connection, frozen

    def writer(self) -> sqlite3.Connection:
        """A connection whose commits are on disk when they return.

        Raises: BackendError (the file is another program's, newer than this program, deleted, or cannot be written
        now), sqlite3.Error, OSError (it cannot be opened).
        """
        attempts = self._attempts
        with self._lock:
            self._make_ready(attempts)
            if self._frozen is not None:
                raise BackendUnavailableError(
                    COMPONENT, self.obstacle() or f"{str(self.path)!r} cannot be written now."
                )
        connection = self._open(WRITER_SLICE_S)
        connection.executescript(
            "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384;"
            "PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON"
        )
        return connection

    def notice_replacement(self) -> bool:
        """Whether the file was deleted or replaced since it was prepared; it is then prepared again by the next use."""
        with self._lock:
            return self._is_replaced()

    def has_log(self) -> bool:
        """Whether there is a log with content."""
        try:
            return _log(self.path).stat().st_size > 0
        except OSError:
            return False

    def has_lost_log(self) -> bool:
        """Whether another program removed or replaced the log or its index while connections of this file use them.

        What is committed then is lost when the last process that uses them is killed.
        """
        return self._shared_log.is_lost()

    def await_log(self) -> bool:
        """Wait a little while the log is being made again; False if it is still lost."""
        end = time.monotonic() + LOG_WAIT_S
        while self.has_lost_log():
            if time.monotonic() >= end:
                return False
            time.sleep(LOG_POLL_S)
        return True

    def require_log(self) -> None:
        """Raises: BackendUnavailableError (the log was removed)."""
        if self.has_lost_log():
            raise BackendUnavailableError(
                COMPONENT, f"The log of {str(self.path)!r} was removed, and is being made again; try again."
            )

    def save_log(self, connections: Sequence[sqlite3.Connection]) -> None:
        """Write what a removed log holds to the database; the caller then closes all connections, none in use.

        Raises: BackendUnavailableError (another process reads from the log; try again).
        """
        with self._lock:
            if not self.has_lost_log():
                return
            if connections and not any(map(_saves, connections)):
                self.require_log()
            logger.warning("the log of %s was removed or replaced while in use; it is made again", self.path.name)
            self.epoch += 1

    def saw(self, error: Exception) -> None:
        """Stop writes if `error` shows that this file is damaged, and is not merely another one by now."""
        cause = error.__cause__ if isinstance(error, errors.BackendError) else error
        if not is_damage(cause) or self._frozen is not None or not self._prepared:
            return
        if not self.has_lost_log() and self._identity == _identity(self.path):
            self.damage.note(str(cause))

    def can_be_kept(self) -> bool:
        """Whether a connection for reading may stay open between two uses.

        All connections of a process share SQLite's index of the log. One that was opened without the right to write
        makes it read-only for all that come while it is open, also once the right is there.
        """
        return all(os.access(file, os.W_OK) for file in _existing(self.path))

    def obstacle(self) -> str | None:
        """One sentence with the reason why nothing can be written now; None if there is none."""
        for path in (*_existing(self.path), self.path.parent):
            if not os.access(path, os.W_OK):
                kind = "directory" if path == self.path.parent else "file"
                return f"The {kind} {str(path)!r} cannot be written; give this program the permission to write there."
        return self.shortage()

    def shortage(self) -> str | None:
        """One sentence about a nearly full disk; None if there is enough space."""
        try:
            free = shutil.disk_usage(self.path.parent).free
        except OSError:
            return None
        if free < LEAST_FREE_BYTES:
            return f"No more than {free >> 10} KiB are left on the disk of {str(self.path.parent)!r}; free some space."
        return None

    def _open(self, timeout_s: float, first: Callable[[Connection], object] = _read_little) -> Connection:
        """A connection that uses the same log as all others; `first` reads with it.

        Raises: BackendUnavailableError (a log that was removed is still used by connections of this or another
        process), sqlite3.Error, OSError, BackendError (it cannot be opened).
        """

        def connect() -> Connection:
            connection = _connected(self.path, "mode=rw", timeout_s)
            try:
                first(connection)
            except BaseException:
                connection.close()
                raise
            return connection

        end = time.monotonic() + LOG_WAIT_S
        while (connection := self._shared_log.join(connect)) is None:
            self.require_log()
            if time.monotonic() >= end:
                raise BackendUnavailableError(
                    COMPONENT, f"Another process still uses a log of {str(self.path)!r} that was removed; try again."
                )
            time.sleep(LOG_POLL_S)
        return connection

    def _make_ready(self, attempts: int) -> None:
        """Prepare the file unless it is; called with the lock, which the caller has waited for since `attempts`."""
        # Threads that waited here share the outcome of the one that tried. Each trying for itself would cost the
        # timeout of the file's lock once more, one thread after the other.
        if self._failure is not None and self._attempts != attempts:
            raise self._failure  # of another thread, while this one waited for its turn
        self._is_replaced()  # otherwise this connection would know a state that older ones do not
        if self._prepared and self.path.exists():
            return
        self._attempts += 1
        try:
            self._frozen = self._prepare()
        except (sqlite3.Error, BackendDataError, BackendUnavailableError, OSError) as error:
            self._failure = error
            raise
        self._failure = None
        self._identity = _identity(self.path)
        self._prepared = self._has_directory = True
        self._thaw_at = time.monotonic() + THAW_EVERY_S

    def _prepare(self) -> Stamp | None:
        """Make sure that the file is a database of ours in the newest form; returns its stamp where it is frozen.

        A file that is not ours is left as it is.
        """
        self._make_new()
        stamp = _stamp_of(self.path)
        # A database that cannot be written must not get a log of the same rights, which would stay when they change.
        if stamp is None or os.access(self.path, os.W_OK):
            try:
                self._open(READER_TIMEOUT_S, partial(bring_up_to_date, path=self.path)).close()
            except sqlite3.Error as error:
                # Taken again: if another process has begun a log meanwhile, frozen reads would miss its changes.
                stamp = _stamp_of(self.path)
                if stamp is None or not is_access_fault(error):
                    raise
            else:
                return None
        # Only checks that the file is current: an older one cannot be migrated here, and raises.
        with closing(_open_frozen(self.path)) as connection:
            bring_up_to_date(connection, self.path)
        logger.warning("%s is read only: %s", self.path.name, self.obstacle() or "it cannot be written now")
        return stamp

    def _make_new(self) -> None:
        """Create the file if it is missing, unless an index was there before."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            size = None
        if size:
            return
        directory = self.path.parent
        if self._has_directory and not directory.is_dir():
            raise BackendUnavailableError(
                COMPONENT, f"The data directory {str(directory)!r} is gone; put it back, or restore it from a backup."
            )
        if self.mark is not None and (recorded := self.mark.last_size()):
            raise LostIndexError(
                COMPONENT,
                f"{str(self.path)!r} is {'missing' if size is None else 'empty'}, but it had {recorded}; "
                "restore it from a backup, or begin an empty index with `rag-context check --start-empty`.",
            )
        if size is None:
            if not self._has_directory:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Created here, because SQLite would create it readable for everyone whom the umask allows.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))

    def _is_replaced(self) -> bool:
        if not self._prepared:
            return False
        if self._identity != _identity(self.path):
            logger.warning("%s was removed or replaced while in use; opening what is there now", self.path.name)
        elif self._frozen is None:
            return False
        # A frozen file with another stamp counts as replaced: nothing tells which of its pages changed.
        elif self._frozen == _stamp_of(self.path):
            self._try_to_thaw()
            return False
        self.generation += 1
        self.epoch += 1
        self._prepared = False
        self._frozen = None
        return True

    def _try_to_thaw(self) -> None:
        """See whether a frozen file can be opened in the normal way by now."""
        if time.monotonic() < self._thaw_at:
            return
        self._thaw_at = time.monotonic() + THAW_EVERY_S
        if not os.access(self.path, os.W_OK):
            return
        try:
            self._open(READER_TIMEOUT_S).close()
        except (sqlite3.Error, BackendUnavailableError):
            return
        logger.warning("%s can be written again", self.path.name)
        # The content is the same, so caches stay valid (`generation`); only connections are opened again.
        self._frozen = None
        self.epoch += 1


class FileUser:
    """One thread's connection: opened by the first use, and again after the file was replaced."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self.lock = threading.Lock()
        """Held while the connection is used. Who holds it may close the connection from another thread."""
        self.open_connection: sqlite3.Connection | None = None
        self._epoch = -1

    def connection(self) -> sqlite3.Connection:
        """The connection. Raises: BackendError, sqlite3.Error, OSError."""
        if self.open_connection is None or self._epoch != self._file.epoch:
            self.close_connection()
            self._epoch = self._file.epoch
            self.open_connection = self._open()
        return self.open_connection

    def close_connection(self) -> None:
        connection, self.open_connection = self.open_connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        raise NotImplementedError


class Reader(FileUser):
    """A connection that cannot write."""

    def __init__(self, file: DatabaseFile) -> None:
        super().__init__(file)
        self._frozen: Stamp | None = None
        self._is_kept = True

    def _open(self) -> sqlite3.Connection:
        connection, self._frozen = self._file.open_reader()
        self._is_kept = self._frozen is not None or self._file.can_be_kept()
        return connection

    def is_intact(self) -> bool:
        if self._frozen is None or self._frozen == _stamp_of(self._file.path):
            return True
        self._file.notice_replacement()
        return False

    def release(self) -> None:
        """Nothing is read for now."""
        if not self._is_kept:
            self.close_connection()


def checked_file(path: Path, *, is_marked: bool = True) -> DatabaseFile:
    file = DatabaseFile(path, is_marked=is_marked)
    file.check_path()
    return file


def _no_rights(path: Path, what: str) -> str:
    return f"{str(path)!r} cannot be {what}; change its permissions or choose another."


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _saves(connection: sqlite3.Connection) -> bool:
    """Whether a connection could write all of its log to the database."""
    try:
        (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:  # it was opened on the log that is no more complete
        return False
    return not is_busy


def _existing(path: Path) -> list[Path]:
    """The database's own files, as far as they are there."""
    return [file for file in (path, _log(path), path.with_name(f"{path.name}-shm")) if os.path.exists(file)]  # noqa: PTH110  (no error without the permission to read it)


def _identity(path: Path) -> tuple[int, int] | None:
    """The identity of the file; None if it is missing or empty."""
    try:
        status = path.stat()
    except OSError:
        return None
    # A file that was emptied in place keeps its inode, and is lost all the same.
    return (status.st_dev, status.st_ino) if status.st_size else None


def _stamp_of(path: Path) -> Stamp | None:
    """A stamp of the file's content; None if it cannot be read frozen because its log has changes."""
    try:
        if _log(path).exists() and _log(path).stat().st_size:
            return None
        status = path.stat()
    except OSError:
        return None
    # The ctime too: programs that copy or restore files set the mtime back.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _open_frozen(path: Path) -> Connection:
    return _connected(path, "mode=ro&immutable=1", READER_TIMEOUT_S)


def _connected(path: Path, mode: str, timeout_s: float) -> Connection:
    # `mode=rw` creates nothing: a deleted index must be noticed, not replaced by an empty one. Transactions are begun
    # explicitly. `interrupt` is called from the event loop's thread.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=Connection,
    )

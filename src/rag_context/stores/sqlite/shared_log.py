"""Which log the open connections to a database use: those of all processes one and the same.

SQLite opens a database's log (`-wal`) and the log's index (`-shm`) by their names. If another program removes them,
connections that are open go on with the removed files, and those that come later make new ones. What the two sides
commit overwrites each other, or is lost with its process. Therefore a file beside the database records which log is
used, and each connection holds a shared lock on it for as long as it is open. Only a connection that is alone begins a
log; the others join if the recorded one is still there. So a removed log is left by all before another one is begun.
"""

import os
import sqlite3
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypeAlias

FileId: TypeAlias = tuple[int, int]
"""The device and the number of a file, which another one of the same name does not have; zeros if it is missing."""

_MISSING = (0, 0)
_RECORD = struct.Struct("<6Q")


class Log(NamedTuple):
    """The identity of a database, its log and the log's index."""

    database: FileId
    wal: FileId
    shm: FileId


class Connection(sqlite3.Connection):
    """A connection that leaves the log when it is closed."""

    leave: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it. The lock comes last: SQLite may remove the log with its last connection."""
        super().close()
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()


class SharedLog:
    """The log that this process' connections to the database at `path` use. Used by several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._used: Log | None = None
        self._connections = 0

    def is_lost(self) -> bool:
        """Whether another program removed or replaced the log or its index while connections use them.

        SQLite notices neither.
        """
        used, now = self._used, log_of(self._path)
        return used is not None and used != now and used.database == now.database

    def join(self, connect: Callable[[], Connection]) -> Connection | None:
        """Open a connection that uses the log which all others use, or begins one.

        Args:
            connect: opens it, and reads, because SQLite opens the log only then.

        Returns None while another connection begins a log, or not all have left a log that was removed.

        Raises: sqlite3.Error, OSError, BackendError (what `connect` raises).
        """
        with ExitStack() as stack:
            file = self._open_file()
            if file is None:
                connection = connect()
                self._enter(connection, log_of(self._path), lambda: None)
                return connection
            stack.callback(file.close)
            is_alone = _try_lock(file, "LOCK_EX")
            if not is_alone and not _try_lock(file, "LOCK_SH"):
                return None
            recorded, now = _recorded(file), log_of(self._path)
            # After the database was replaced, some may have the former one open, which has a log of its own.
            begins = is_alone or recorded.database != now.database
            if not begins and recorded != now:
                return None
            connection = connect()
            stack.callback(connection.close)
            used = log_of(self._path)
            # What was removed meanwhile may be open, or not: this connection may have an index of another log.
            if _lacks_log(connection, used) if begins else used != recorded:
                return None
            if begins:
                os.pwrite(file.fileno(), _RECORD.pack(*used.database, *used.wal, *used.shm), 0)
            if is_alone:
                # Another connection may get the lock between the exclusive and the shared one. It finds this log.
                _lock_shared(file)
            self._enter(connection, used, file.close)
            stack.pop_all()
            return connection

    def _enter(self, connection: Connection, used: Log, unlock: Callable[[], None]) -> None:
        def leave() -> None:
            unlock()
            with self._lock:
                self._connections -= 1
                if not self._connections:
                    self._used = None

        with self._lock:
            self._connections += 1
            self._used = used
        connection.leave = leave

    def _open_file(self) -> BinaryIO | None:
        """The file to lock, with the database's owner and rights; None if this process cannot write it."""
        if sys.platform == "win32":  # where a file that is open cannot be removed
            return None
        try:
            owner = self._path.stat()
            descriptor = os.open(
                self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, owner.st_mode & 0o666
            )
        except OSError:  # a read-only directory, a full disk: the connection has the same trouble, or only reads
            return None
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        return os.fdopen(descriptor, "r+b", buffering=0)


def is_used(path: Path) -> bool:
    """Whether a process has the database at `path` open; False where that cannot be known (Windows)."""
    lock = path.with_name(f"{path.name}.lock")
    if sys.platform == "win32" or not lock.exists():
        return False
    with lock.open("rb") as file:
        return not _try_lock(file, "LOCK_EX")


def log_of(path: Path) -> Log:
    return Log(*map(_file_id, _names(path)))


@lru_cache
def _names(path: Path) -> tuple[str, str, str]:
    """The names of a database and its log, which every read compares."""
    return str(path), f"{path}-wal", f"{path}-shm"


def _file_id(name: str) -> FileId:
    try:
        status = os.stat(name)  # noqa: PTH116  (a Path takes longer than the call)
    except OSError:
        return _MISSING
    return status.st_dev, status.st_ino


def _lacks_log(connection: Connection, used: Log) -> bool:
    """Whether the log that a connection has read is not there; one to a copy made by `VACUUM INTO` reads none."""
    return _MISSING in used and connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def _recorded(file: BinaryIO) -> Log:
    fields = os.pread(file.fileno(), _RECORD.size, 0)
    if len(fields) < _RECORD.size:  # a new file
        return Log(_MISSING, _MISSING, _MISSING)
    numbers = _RECORD.unpack(fields)
    return Log(numbers[:2], numbers[2:4], numbers[4:])


def _try_lock(file: BinaryIO, kind: Literal["LOCK_EX", "LOCK_SH"]) -> bool:
    import fcntl  # noqa: PLC0415  (only Unix has it)

    try:
        fcntl.flock(file, getattr(fcntl, kind) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_shared(file: BinaryIO) -> None:
    import fcntl  # noqa: PLC0415  (only Unix has it)

    fcntl.flock(file, fcntl.LOCK_SH)

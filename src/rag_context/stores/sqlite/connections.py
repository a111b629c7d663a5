"""Opening the file: where it is, whether it is still the same one, and what every connection is told first."""

import logging
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from rag_context.errors import BackendDataError, ConfigurationError
from rag_context.stores.sqlite.migration import bring_up_to_date

logger = logging.getLogger(__name__)

READER_TIMEOUT_S = 0.25
WRITER_SLICE_S = 0.05
"""The writer asks for the lock this long at a time: SQLite's own waiting gets slower and slower, and starves."""

_OLDEST_SQLITE = (3, 31, 0)


class DatabaseFile:
    """The file at `path`; makes connections to it and notices when another file took its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        """Grows when the file was replaced: older connections lead to a file that nobody else sees."""
        self._identity: tuple[int, int] | None = None
        self._prepared = False
        self._attempts = 0
        self._failure: Exception | None = None
        self._lock = threading.Lock()

    def check_place(self) -> None:
        """Make the directory and see that it can be written.

        Raises:
            ConfigurationError: the file can never be kept at this path.
        """
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise ConfigurationError(f"SQLite {sqlite3.sqlite_version} is too old; use a Python with 3.31 or newer.")
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"The data directory {str(directory)!r} cannot be made ({error.strerror}); choose another."
            ) from error
        _check_rights(directory, os.W_OK | os.X_OK)
        if self.path.is_dir():
            raise ConfigurationError(f"{str(self.path)!r} is a directory, not a database file; choose another path.")
        if self.path.exists():
            _check_rights(self.path, os.W_OK)

    def reader(self) -> sqlite3.Connection:
        """A connection that cannot write.

        Raises:
            BackendDataError: the file is not ours, or newer than this program.
            sqlite3.Error: it cannot be opened.
        """
        connection = self._connect(READER_TIMEOUT_S)
        connection.executescript("PRAGMA query_only = ON; PRAGMA cache_size = -2048; PRAGMA temp_store = MEMORY")
        return connection

    def writer(self) -> sqlite3.Connection:
        """A connection whose commits are on disk when they return.

        Raises:
            BackendDataError: the file is not ours, or newer than this program.
            sqlite3.Error: it cannot be opened.
        """
        connection = self._connect(WRITER_SLICE_S)
        connection.executescript(
            "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384;"
            "PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY"
        )
        return connection

    def notice_replacement(self) -> bool:
        """Whether the file is gone or is another one since it was prepared; it is then prepared anew when next used."""
        with self._lock:
            return self._is_replaced()

    def _connect(self, timeout_s: float) -> sqlite3.Connection:
        attempts = self._attempts
        with self._lock:
            if self._failure is not None and self._attempts != attempts:
                raise self._failure  # of another thread, while this one waited for its turn
            self._is_replaced()  # or this connection would know what older ones are never told
            if not self._prepared or not self.path.exists():
                self._attempts += 1
                try:
                    _prepare(self.path)
                except (sqlite3.Error, BackendDataError) as error:
                    self._failure = error
                    raise
                self._failure = None
                self._identity = _identity(self.path)
                self._prepared = True
        return _open(self.path, timeout_s)

    def _is_replaced(self) -> bool:
        if not self._prepared or self._identity == _identity(self.path):
            return False
        logger.warning("%s was removed or replaced while in use; opening what is there now", self.path.name)
        self.generation += 1
        self._prepared = False
        return True


def _check_rights(place: Path, mode: int) -> None:
    if not os.access(place, mode):
        raise ConfigurationError(f"{str(place)!r} cannot be written; change its permissions or choose another.")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _open(path: Path, timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def _prepare(path: Path) -> None:
    """Make sure that the file is a database of ours in the newest form; a file that is not is left as it is."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    with closing(_open(path, READER_TIMEOUT_S)) as connection:
        bring_up_to_date(connection, path)

"""What is known of damage of the database file; nothing is written to it from then on, until a check finds it sound."""

import json
import logging
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

from rag_context.errors import BackendDataError
from rag_context.stores.sqlite.faults import COMPONENT, result_code
from rag_context.whole_files import write_whole

logger = logging.getLogger(__name__)

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class Damage:
    """The damage that a process has seen in the database at `path`.

    It is recorded in a small file beside it, which all processes on the directory respect, also later ones. Used by
    several threads.
    """

    def __init__(self, path: Path) -> None:
        self._database = path
        self._path = path.with_name(f"{path.name}.damaged")
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._stamp: list[int] | None = None
        self._is_recorded = False

    def reason(self) -> str | None:
        """What is damaged; None if nothing is known to be."""
        with self._lock:
            try:
                recorded = json.loads(self._path.read_text(encoding="utf-8"))
                self._reason, self._stamp, self._is_recorded = str(recorded["reason"]), recorded["stamp"], True
            except FileNotFoundError:
                if self._is_recorded:  # a check in another process has removed it
                    self._reason, self._is_recorded = None, False
            except (OSError, ValueError, TypeError, KeyError):
                self._reason = self._reason or "its record of damage cannot be read"
            return self._reason

    def note(self, reason: str) -> None:
        if self.reason() is None:
            logger.error("%s is damaged, and nothing is written to it any more: %s", self._database.name, reason)
        with self._lock:
            self._reason, self._stamp = reason, stamp_of(self._database)
            try:
                write_whole(self._path, json.dumps({"reason": reason, "stamp": self._stamp}).encode())
            except OSError:  # a full disk: this process knows it all the same
                self._is_recorded = False
            else:
                self._is_recorded = True

    def clear(self) -> None:
        """The file was checked as a whole, and is sound."""
        if self.reason() is None:
            return
        with self._lock:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._reason, self._is_recorded = None, False
        logger.warning("%s is sound, and is written to again", self._database.name)

    def is_of(self, stamp: list[int] | None) -> bool:
        """Whether the damage was seen in this state of the file."""
        return self.reason() is not None and self._stamp == stamp

    def require_none(self) -> None:
        """Raises: BackendDataError (the file is known to be damaged)."""
        reason = self.reason()
        if reason is not None:
            raise BackendDataError(
                COMPONENT,
                f"{str(self._database)!r} is damaged ({reason}), so nothing is written to it; "
                "`rag-context check` says how to recover it.",
            )


def is_damage(error: BaseException | None) -> bool:
    return isinstance(error, sqlite3.Error) and result_code(error) in _DAMAGE


def damaged(found: str) -> sqlite3.DatabaseError:
    """What SQLite would raise where it read what its check has found."""
    error = sqlite3.DatabaseError(" ".join(found.split()))
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def stamp_of(path: Path) -> list[int] | None:
    """What changes with every write to the file; None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]

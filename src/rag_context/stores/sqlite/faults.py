"""Maps SQLite's result codes to our errors, and keeps what is known of damage of the database file.

Nothing is written to a damaged file, until a check finds it sound.
"""

import json
import logging
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

from rag_context import errors
from rag_context.whole_files import write_whole

logger = logging.getLogger(__name__)

COMPONENT = "sqlite"

CLOCK_STEP_NS = 2_000_000_000
"""The steps in which file systems count times: at most two seconds (FAT), here and there some milliseconds."""

_DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR})
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_REJECTED = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH})
_ACCESS = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_KEEPS_CONNECTION = _REJECTED | _BUSY | {sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_FULL}


def result_code(error: sqlite3.Error) -> int | None:
    """SQLite's primary result code; None for an error of Python's module itself."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    return result_code(error) in _BUSY


def breaks_connection(error: Exception) -> bool:
    """Whether the connection that raised `error` should be opened again before its next use."""
    cause = error.__cause__ if isinstance(error, errors.BackendError) else error
    return isinstance(cause, sqlite3.Error) and result_code(cause) not in _KEEPS_CONNECTION


def is_access_fault(error: sqlite3.Error) -> bool:
    """Whether the file may be sound, and cannot be opened or written as it should be: rights, space, descriptors."""
    return result_code(error) in _ACCESS


def is_undecodable(error: Exception) -> bool:
    """Whether a row has invalid UTF-8, for which Python's module raises an error without a code of SQLite."""
    return isinstance(error, sqlite3.OperationalError) and result_code(error) is None


def is_fault(error: Exception) -> bool:
    """Whether `error` came from SQLite, the file system, or what they cannot hold, and not from a mistake of ours."""
    if isinstance(error, sqlite3.Error):
        return result_code(error) is not None or is_undecodable(error)
    return isinstance(error, UnicodeEncodeError | OverflowError | OSError)


def translated(error: Exception, path: Path) -> errors.BackendError:
    """Our error, with its cause unless that may contain stored data."""
    kind, message = _meaning(error, path)
    ours = kind(COMPONENT, message)
    if not is_undecodable(error):
        ours.__cause__ = error
    return ours


def _meaning(error: Exception, path: Path) -> tuple[type[errors.BackendError], str]:
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        return errors.BackendUnavailableError, f"{str(path)!r} cannot be opened ({reason}); it is tried again."
    if not isinstance(error, sqlite3.Error):
        return errors.BackendRejectedError, f"{path.name!r} cannot store this text or number: {error}."
    if is_undecodable(error):
        return errors.BackendDataError, f"{path.name!r} contains text that cannot be read; run `rag-context check`."
    if is_busy(error):
        return errors.BackendTimeoutError, f"{str(path)!r} is locked by another process; try again."
    match result_code(error):
        case code if code in _DAMAGED:
            return errors.BackendDataError, f"{str(path)!r} is not a usable rag-context database ({error})."
        case code if code in _REJECTED:
            return errors.BackendRejectedError, f"{path.name!r} rejected the change: {error}."
        case sqlite3.SQLITE_INTERRUPT:
            return errors.BackendTimeoutError, f"The call to {path.name!r} was interrupted."
        case sqlite3.SQLITE_FULL:
            return errors.BackendUnavailableError, f"No space left for {str(path)!r}; free some and try again."
        case sqlite3.SQLITE_READONLY:
            advice = "give this program the permission to write it and its directory"
            return errors.BackendUnavailableError, f"{str(path)!r} cannot be written; {advice}."
        case _:
            return errors.BackendUnavailableError, f"{str(path)!r} cannot be read or written ({error})."


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
        stamp = stamp_of(self._database)
        # A file that has just changed may be another one than was read: the next check of its pages decides.
        is_old = stamp is not None and abs(time.time_ns() - stamp[-1]) > CLOCK_STEP_NS
        with self._lock:
            self._reason, self._stamp = reason, stamp if is_old else None
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
            raise errors.BackendDataError(
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

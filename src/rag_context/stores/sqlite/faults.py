"""Maps SQLite's result codes to our errors."""

import sqlite3
from pathlib import Path

from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
)

COMPONENT = "sqlite"

_DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR})
_REJECTED = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH})
_ACCESS = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})
_KEEPS_CONNECTION = _REJECTED | {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_FULL,
}


def result_code(error: sqlite3.Error) -> int | None:
    """SQLite's primary result code; None for an error of Python's module itself."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    return result_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def breaks_connection(error: Exception) -> bool:
    """Whether the connection that raised `error` should be opened again before its next use."""
    cause = error.__cause__ if isinstance(error, BackendError) else error
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


def backend_error(error: Exception, path: Path) -> BackendError:
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        return BackendUnavailableError(COMPONENT, f"{str(path)!r} cannot be opened ({reason}); it is tried again.")
    if not isinstance(error, sqlite3.Error):
        return BackendRejectedError(COMPONENT, f"{path.name!r} cannot store this text or number: {error}.")
    if is_undecodable(error):
        return BackendDataError(COMPONENT, f"{path.name!r} contains text that cannot be read; run `rag-context check`.")
    code = result_code(error)
    if code in _DAMAGED:
        return BackendDataError(COMPONENT, f"{str(path)!r} is not a usable rag-context database ({error}).")
    if code in _REJECTED:
        return BackendRejectedError(COMPONENT, f"{path.name!r} rejected the change: {error}.")
    if is_busy(error):
        return BackendTimeoutError(COMPONENT, f"{str(path)!r} is locked by another process; try again.")
    if code == sqlite3.SQLITE_INTERRUPT:
        return BackendTimeoutError(COMPONENT, f"The call to {path.name!r} was interrupted.")
    if code == sqlite3.SQLITE_FULL:
        return BackendUnavailableError(COMPONENT, f"No space left for {str(path)!r}; free some and try again.")
    if code == sqlite3.SQLITE_READONLY:
        return BackendUnavailableError(
            COMPONENT,
            f"{str(path)!r} cannot be written; give this program the permission to write it and its directory.",
        )
    return BackendUnavailableError(COMPONENT, f"{str(path)!r} cannot be read or written ({error}).")


def translated(error: Exception, path: Path) -> BackendError:
    """As `backend_error`, with its cause unless that may contain stored data."""
    ours = backend_error(error, path)
    if not is_undecodable(error):
        ours.__cause__ = error
    return ours

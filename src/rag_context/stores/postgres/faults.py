"""The driver's errors as ours. The server's messages are never quoted: they may contain stored data."""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
)

COMPONENT = "postgres"

_NOT_NOW = ("08", "40", "53", "55", "57", "58")
"""Classes of states in which the same call may succeed later: connections, conflicts, resources, locks, shutdowns."""

_READ_ONLY = "25006"
_OTHER_DIMENSION = "22000"
_NO_TABLE = "42P01"


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise what the driver raises inside the block as our errors; `place` names the server.

    Raises:
        BackendError: the driver failed.
    """
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, UnicodeError, OverflowError) as error:
        raise backend_error(error, place) from error


def is_missing_table(error: BackendError) -> bool:
    """Whether the table is gone: the vectors of a generation that was replaced."""
    return _state(error.__cause__) == _NO_TABLE


def is_other_dimension(error: BackendError) -> bool:
    """Whether two vectors were compared that have different dimensions."""
    return _state(error.__cause__) == _OTHER_DIMENSION and _is_servers(error.__cause__)


def is_read_only(error: BaseException) -> bool:
    """Whether the server accepts no writes, as a standby does."""
    return _state(error) == _READ_ONLY


def backend_error(error: Exception, place: str) -> BackendError:
    """Our error for `error`; raise it `from error`."""
    match error:
        case TimeoutError():
            return BackendTimeoutError(COMPONENT, f"PostgreSQL at {place} did not answer in time.")
        case asyncpg.DataError() if not _is_servers(error):
            return BackendRejectedError(COMPONENT, "PostgreSQL cannot store this text or number.")
        case UnicodeError() | OverflowError():
            return BackendRejectedError(COMPONENT, "PostgreSQL cannot store this text or number.")
        case asyncpg.PostgresError():
            return _by_state(_state(error), place)
        case asyncpg.ClientConfigurationError():
            return BackendRejectedError(
                COMPONENT,
                "The address of PostgreSQL is not valid; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE,"
                " user and password percent-encoded.",
            )
        case OSError():
            return BackendUnavailableError(COMPONENT, f"PostgreSQL at {place} cannot be reached.")
        case _:
            return BackendUnavailableError(COMPONENT, f"PostgreSQL at {place} cannot be used ({type(error).__name__}).")


def _by_state(state: str, place: str) -> BackendError:
    match state:
        case "28000" | "28P01":
            return BackendRejectedError(
                COMPONENT, f"PostgreSQL at {place} rejected the user or the password; correct the address."
            )
        case "3D000":
            return BackendRejectedError(COMPONENT, f"There is no such database: {place}; create it (`createdb`).")
        case "42501":
            return BackendRejectedError(
                COMPONENT, f"The user may not do this in the database {place}; make it the owner of the database."
            )
        case "57014":
            return BackendTimeoutError(COMPONENT, f"PostgreSQL at {place} did not answer in time.")
        case "53100":
            return BackendUnavailableError(COMPONENT, f"No space left for PostgreSQL at {place}; free some.")
        case "53300":
            return BackendUnavailableError(
                COMPONENT, f"PostgreSQL at {place} has no connection left; raise its max_connections."
            )
        case "25006":
            return BackendUnavailableError(COMPONENT, f"PostgreSQL at {place} is read-only, as a standby is.")
        case "XX001" | "XX002":
            return BackendDataError(COMPONENT, f"PostgreSQL at {place} found damaged data ({state}); see its log.")
        case "22021" | "22P05":
            return BackendRejectedError(COMPONENT, "PostgreSQL cannot store this text.")
    if state.startswith(_NOT_NOW):
        return BackendUnavailableError(COMPONENT, f"PostgreSQL at {place} cannot serve this now (state {state}).")
    return BackendRejectedError(COMPONENT, f"PostgreSQL at {place} rejected the operation (state {state}).")


def _is_servers(error: BaseException | None) -> bool:
    """Whether the server sent an error, which the driver also raises by itself for what it cannot encode."""
    return getattr(error, "severity", None) is not None


def _state(error: BaseException | None) -> str:
    return str(getattr(error, "sqlstate", None) or "")

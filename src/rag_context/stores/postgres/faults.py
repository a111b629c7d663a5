"""The driver's errors as ours. The server's messages are never quoted: they may contain stored data."""

from collections.abc import Iterator, Mapping
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
_NO_ROOM = "53100"
_OTHER_DIMENSION = "22000"
_NO_TABLE = "42P01"


_INCOMPLETE = ("3F000", "42P01", "42703", "42704", "42883")
"""A schema, a table, a column, a type or a function is missing."""

_STOPS = "PostgreSQL at {place} is starting or stopping, or an administrator ended the connection."
_LOST = "The connection to PostgreSQL at {place} was lost."
_DAMAGED = "PostgreSQL at {place} found damaged data; its log says where: restore the database from a backup."
_NO_LOGIN = "PostgreSQL at {place} rejected the user or the password; correct the address."
_NO_TEXT = "PostgreSQL cannot store this text."
_POOLED = (
    "PgBouncer at {place} keeps no settings and no prepared statements of a session;"
    " set stores.postgres_statement_cache_size to 0."
)

_MEANINGS: Mapping[str, tuple[type[BackendError], str]] = {
    "28000": (BackendRejectedError, _NO_LOGIN),
    "28P01": (BackendRejectedError, _NO_LOGIN),
    "3D000": (BackendRejectedError, "There is no such database: {place}; create it (`createdb`)."),
    "42501": (
        BackendRejectedError,
        "The user may not do this in the database {place}; make it the owner of the database.",
    ),
    "08000": (BackendUnavailableError, _LOST),
    "08003": (BackendUnavailableError, _LOST),
    "08006": (BackendUnavailableError, _LOST),
    "57014": (
        BackendUnavailableError,
        "PostgreSQL at {place} cancelled a statement; unless an administrator did, raise its statement_timeout.",
    ),
    "55P03": (
        BackendUnavailableError,
        "Another session has locked the index in {place}; end it, or wait for its end (pg_locks names it).",
    ),
    "57P01": (BackendUnavailableError, _STOPS),
    "57P02": (BackendUnavailableError, _STOPS),
    "57P03": (BackendUnavailableError, _STOPS),
    "26000": (BackendRejectedError, _POOLED),
    "42P05": (BackendRejectedError, _POOLED),
    "53100": (BackendUnavailableError, "No space left for PostgreSQL at {place}; free some on its disk."),
    "53300": (BackendUnavailableError, "PostgreSQL at {place} has no connection left; raise its max_connections."),
    "25006": (
        BackendUnavailableError,
        "PostgreSQL at {place} is read-only, as a standby is, or by its setting default_transaction_read_only.",
    ),
    "54000": (
        BackendRejectedError,
        "PostgreSQL at {place} cannot store a value of this size; an id may have some 2 600 bytes there.",
    ),
    "XX001": (BackendDataError, _DAMAGED),
    "XX002": (BackendDataError, _DAMAGED),
    "22021": (BackendRejectedError, _NO_TEXT),
    "22P05": (BackendRejectedError, _NO_TEXT),
}
"""What some of the server's states mean, and what to do."""


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise what the driver raises inside the block as our errors; `place` names the server.

    Raises:
        BackendError: the driver failed.
    """
    try:
        yield
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,  # what it reads is not the protocol
        OSError,
        UnicodeError,
        OverflowError,
    ) as error:
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


def is_no_room(error: BaseException) -> bool:
    """Whether the server's disk is full."""
    return _state(error) == _NO_ROOM


def incomplete(place: str, what: str) -> str:
    """What to do where tables, columns or types of the index are gone; a server begins none in their place."""
    return (
        f"The index in {place} is not complete ({what}): restore the database from a backup, or run"
        " `DROP SCHEMA rag_context CASCADE` there, restart rag-context, and index again."
    )


def backend_error(error: Exception, place: str) -> BackendError:
    """Our error for `error`; raise it `from error`."""
    match error:
        case TimeoutError():
            return BackendTimeoutError(COMPONENT, f"PostgreSQL at {place} did not answer in time.")
        case asyncpg.DataError() if not _is_servers(error):
            return BackendRejectedError(COMPONENT, "PostgreSQL cannot store this text or number.")
        case UnicodeError() | OverflowError():
            return BackendRejectedError(COMPONENT, "PostgreSQL cannot store this text or number.")
        case asyncpg.ProtocolViolationError() if "startup parameter" in str(error):
            return BackendRejectedError(COMPONENT, _POOLED.format(place=place))
        case asyncpg.PostgresError():
            return _by_state(_state(error), place)
        case asyncpg.ClientConfigurationError():
            return BackendRejectedError(
                COMPONENT,
                "The address of PostgreSQL is not valid; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE,"
                " user and password percent-encoded.",
            )
        case asyncpg.TargetServerAttributeNotMatched():
            return BackendUnavailableError(COMPONENT, f"No server of {place} accepts writes; promote a standby.")
        case OSError():
            return BackendUnavailableError(COMPONENT, f"PostgreSQL at {place} cannot be reached.")
        case _:
            return BackendUnavailableError(COMPONENT, f"PostgreSQL at {place} cannot be used ({type(error).__name__}).")


def _by_state(state: str, place: str) -> BackendError:
    if state in _MEANINGS:
        kind, message = _MEANINGS[state]
        return kind(COMPONENT, message.format(place=place))
    if state in _INCOMPLETE:
        return BackendDataError(COMPONENT, incomplete(place, f"state {state}"))
    if state.startswith(_NOT_NOW):
        return BackendUnavailableError(COMPONENT, f"PostgreSQL at {place} cannot serve this now (state {state}).")
    return BackendRejectedError(COMPONENT, f"PostgreSQL at {place} rejected the operation (state {state}).")


def _is_servers(error: BaseException | None) -> bool:
    """Whether the server sent an error, which the driver also raises by itself for what it cannot encode."""
    return getattr(error, "severity", None) is not None


def _state(error: BaseException | None) -> str:
    return str(getattr(error, "sqlstate", None) or "")

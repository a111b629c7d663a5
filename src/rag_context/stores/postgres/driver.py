"""The driver: hosts, connections and plans as this package uses them, and its errors as ours.

The server's messages are never quoted: they may contain stored data.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from itertools import product
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import numpy as np

from rag_context import errors
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError, BackendError, BackendRejectedError, BackendUnavailableError

CONNECT_S = 5.0
"""Longest wait for a new connection; a search gives up earlier, at its own deadline."""

IDLE_S = 300.0

POLL_S = 0.01
"""Interval between checks for a free connection, while the server accepts no more."""

_WANTED = {"": ("primary",), "prefer-standby": ("standby", "any")}
"""By `target_session_attrs` of an address with several hosts: which kind is taken, and which where none is such. Its
other values are judged host by host."""


class Plan(Enum):
    """When the server plans a prepared statement."""

    EACH_TIME = "force_custom_plan"
    """For its values: what a filter lets through decides on the plan."""

    ONCE = "force_generic_plan"
    """For each connection, and again when a table was analysed: planning a search takes as long as a part of it."""

    EITHER = "either"
    """As the connection was used last: the statement has one plan only."""


class Connector:
    """Opens connections to the host of an address that can be used.

    The driver tries one host after the other, and one that never answers takes all the time. Here each host has its
    share of it, and the one that was connected to last is tried first.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        places = [f"{user}{at}{host}" for host in hosts.split(",")]
        self._urls = [urlunsplit((parts.scheme, place, parts.path, parts.query, parts.fragment)) for place in places]
        (stated,) = parse_qs(parts.query).get("target_session_attrs", [""])[:1]
        self._wanted = _WANTED.get(stated, (None,)) if len(places) > 1 else (None,)

    async def connect(self, _url: str, **options: Any) -> Any:
        """A connection. Raises: what the driver raises; where no host is of the kind that is requested, that."""
        failures: list[Exception] = []
        # The pool allows one timeout for all hosts, which a dead first host would use up.
        timeout_s = CONNECT_S / len(self._urls) / len(self._wanted)
        for wanted, url in product(self._wanted, tuple(self._urls)):
            try:
                given = {**options, "target_session_attrs": wanted, "timeout": timeout_s}
                connection = await asyncpg.connect(url, **given)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
                failures.append(error)  # TargetServerAttributeNotMatched is of the last kind
            except ValueError as error:  # of an option of the address
                invalid = asyncpg.ClientConfigurationError("the address cannot be read")
                invalid.__cause__ = error
                failures.append(invalid)
            else:
                # The primary seldom changes: trying the last one first saves the timeouts of dead hosts.
                self._urls.remove(url)
                self._urls.insert(0, url)
                return connection
        raise next(
            (each for each in failures if isinstance(each, asyncpg.TargetServerAttributeNotMatched)), failures[0]
        )


class ConnectionPool:
    """A pool of connections, opened as they are needed."""

    def __init__(self, pool: Any, size: int) -> None:
        self.connections = pool
        self._size = size
        self._in_need = asyncio.Lock()
        self._plans: dict[int, Plan] = {}
        """By process of the server, where it was changed. A number may come again: that costs time, but no answer."""

    async def acquire(self) -> Any:
        """A connection; where the server accepts no more, the next one of ours that is free.

        Raises: asyncpg.TooManyConnectionsError (the server accepts no more, and there is none), OSError,
        asyncpg.PostgresError, asyncpg.InterfaceError (none can be opened).
        """
        try:
            return await self.connections.acquire(timeout=CONNECT_S)
        except asyncpg.TooManyConnectionsError:
            if not self.connections.get_size():
                raise
        # Other clients may have taken the server's last connection although ours has room for more. One caller at a
        # time looks for a free one, or each would hold what the others look for.
        async with asyncio.timeout(CONNECT_S), self._in_need:
            while True:
                connection = await self._free() if self.connections.get_idle_size() else None
                if connection is not None:
                    return connection
                await asyncio.sleep(POLL_S)

    async def plan(self, connection: Any, plan: Plan) -> None:
        """Have the next statements of a connection planned so; a round trip where the last ones were not."""
        process = connection.get_server_pid()
        if plan is Plan.EITHER or plan is self._plans.get(process, Plan.EACH_TIME):
            return
        self._plans[process] = Plan.EITHER  # cancelled before the answer, the plan is unknown
        await connection.execute(f"SET plan_cache_mode = {plan.value}", timeout=CONNECT_S)
        self._plans[process] = plan

    async def close(self, timeout_s: float) -> None:
        try:
            # The pool waits for connections in use, and one to a frozen server is in use for ever.
            await asyncio.wait_for(self.connections.close(), timeout_s)
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self.connections.terminate()

    async def _free(self) -> Any:
        """A free connection that is open; None if it was acquired meanwhile.

        The pool tries the address that was released last. Where that has no connection it cannot get one now, and would
        be tried again and again. A request for all places at once reaches one that has.
        """
        tasks = [asyncio.ensure_future(self.connections.acquire(timeout=CONNECT_S)) for _ in range(self._size)]
        running = set(tasks)
        connections: list[Any] = []
        try:
            while running and not connections:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                connections = [task.result() for task in done if task.exception() is None]
            return connections.pop() if connections else None
        finally:
            for task in running:
                task.cancel()
            # A request that was cancelled too late has a connection, which must go back.
            others = await asyncio.gather(*running, return_exceptions=True)
            for connection in (*connections, *(each for each in others if not isinstance(each, BaseException))):
                await self.connections.release(connection)


COMPONENT = "postgres"

_NOT_NOW = ("08", "40", "53", "55", "57", "58")
"""Classes of states in which the same call may succeed later: connections, conflicts, resources, locks, shutdowns."""

_INCOMPLETE = ("3F000", "42P01", "42703", "42704", "42883")
"""A schema, a table, a column, a type or a function is missing."""

_STOPS = "PostgreSQL at {address} is starting or stopping, or an administrator ended the connection."
_LOST = "The connection to PostgreSQL at {address} was lost."
_DAMAGED = "PostgreSQL at {address} found damaged data; its log says where: restore the database from a backup."
_NO_LOGIN = "PostgreSQL at {address} rejected the user or the password; correct the address."
_NO_TEXT = "PostgreSQL cannot store this text."
_POOLED = (
    "PgBouncer at {address} keeps no settings and no prepared statements of a session;"
    " set stores.postgres_statement_cache_size to 0."
)

_MEANINGS: Mapping[str, tuple[type[BackendError], str]] = {
    **dict.fromkeys(("28000", "28P01"), (BackendRejectedError, _NO_LOGIN)),
    **dict.fromkeys(("08000", "08003", "08006"), (BackendUnavailableError, _LOST)),
    **dict.fromkeys(("57P01", "57P02", "57P03"), (BackendUnavailableError, _STOPS)),
    **dict.fromkeys(("26000", "42P05"), (BackendRejectedError, _POOLED)),
    **dict.fromkeys(("XX001", "XX002"), (BackendDataError, _DAMAGED)),
    **dict.fromkeys(("22021", "22P05"), (BackendRejectedError, _NO_TEXT)),
    "3D000": (BackendRejectedError, "There is no such database: {address}; create it (`createdb`)."),
    "42501": (
        BackendRejectedError,
        "The user may not do this in the database {address}; make it the owner of the database.",
    ),
    "57014": (
        BackendUnavailableError,
        "PostgreSQL at {address} cancelled a statement; unless an administrator did, raise its statement_timeout.",
    ),
    "55P03": (
        BackendUnavailableError,
        "Another session has locked the index in {address}; end it, or wait for its end (pg_locks names it).",
    ),
    "53100": (BackendUnavailableError, "No space left for PostgreSQL at {address}; free some on its disk."),
    "53300": (BackendUnavailableError, "PostgreSQL at {address} has no connection left; raise its max_connections."),
    "25006": (
        BackendUnavailableError,
        "PostgreSQL at {address} is read-only, as a standby is, or by its setting default_transaction_read_only.",
    ),
    "54000": (
        BackendRejectedError,
        "PostgreSQL at {address} cannot store a value of this size; an id may have some 2 600 bytes there.",
    ),
}
"""What some of the server's states mean, and what to do."""


def encoded_vector(vector: Vector) -> bytes:
    """A vector `(dim,) float32` as pgvector sends and receives it."""
    return len(vector).to_bytes(2, "big") + b"\0\0" + np.asarray(vector, dtype=">f4").tobytes()


def decoded_vector(stored: bytes) -> Vector:
    vector: Vector = np.frombuffer(stored, dtype=">f4", offset=4).astype(np.float32)
    return vector


@contextmanager
def translated(address: str) -> Iterator[None]:
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
        raise backend_error(error, address) from error


def is_missing_table(error: BackendError) -> bool:
    """Whether the table is gone: the vectors of a generation that was replaced."""
    return _state(error.__cause__) == "42P01"


def ends_sessions(error: Exception) -> bool:
    """Whether open connections are of no more use: the server is ending them, or is no primary any more."""
    # The driver's own error is that of a connection whose end was announced while no statement ran.
    return isinstance(error, asyncpg.InternalClientError) or _state(error).startswith(("08", "57P", "25006"))


def is_other_dimension(error: BackendError) -> bool:
    """Whether two vectors were compared that have different dimensions."""
    return _state(error.__cause__) == "22000" and _is_servers(error.__cause__)


def incomplete(address: str, what: str) -> str:
    """What to do where tables, columns or types of the index are gone; a server begins none in their place."""
    return (
        f"The index in {address} is not complete ({what}): restore the database from a backup, or run"
        " `DROP SCHEMA rag_context CASCADE` there, restart rag-context, and index again."
    )


def backend_error(error: Exception, address: str) -> BackendError:
    """Our error for `error`; raise it `from error`."""
    match error:
        case TimeoutError():
            return errors.BackendTimeoutError(COMPONENT, f"PostgreSQL at {address} did not answer in time.")
        # Raised by the driver itself: a value that it cannot encode, of which the server knows nothing.
        case asyncpg.DataError() | UnicodeError() | OverflowError() if not _is_servers(error):
            return BackendRejectedError(COMPONENT, "PostgreSQL cannot store this text or number.")
        case asyncpg.ProtocolViolationError() if "startup parameter" in str(error):
            return BackendRejectedError(COMPONENT, _POOLED.format(address=address))
        case asyncpg.PostgresError():
            return _by_state(_state(error), address)
        case asyncpg.ClientConfigurationError():
            return BackendRejectedError(
                COMPONENT,
                "The address of PostgreSQL is not valid; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE,"
                " user and password percent-encoded.",
            )
        case asyncpg.TargetServerAttributeNotMatched():
            missing = "is a standby" if "standby" in str(error) else "accepts writes; promote a standby"
            return BackendUnavailableError(COMPONENT, f"No server of {address} {missing}.")
        case OSError():
            return BackendUnavailableError(COMPONENT, f"PostgreSQL at {address} cannot be reached.")
        case _:
            return BackendUnavailableError(
                COMPONENT, f"PostgreSQL at {address} cannot be used ({type(error).__name__})."
            )


def _by_state(state: str, address: str) -> BackendError:
    if state in _MEANINGS:
        kind, message = _MEANINGS[state]
        return kind(COMPONENT, message.format(address=address))
    if state in _INCOMPLETE:
        return BackendDataError(COMPONENT, incomplete(address, f"state {state}"))
    if state.startswith(_NOT_NOW):
        return BackendUnavailableError(COMPONENT, f"PostgreSQL at {address} cannot serve this now (state {state}).")
    return BackendRejectedError(COMPONENT, f"PostgreSQL at {address} rejected the operation (state {state}).")


def _is_servers(error: BaseException | None) -> bool:
    """Whether the server sent an error, which the driver also raises by itself for what it cannot encode."""
    return getattr(error, "severity", None) is not None


def _state(error: BaseException | None) -> str:
    return str(getattr(error, "sqlstate", None) or "")

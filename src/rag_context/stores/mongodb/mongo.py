"""The connection to MongoDB: the clients with their read and write concerns, and the driver's errors as ours.

The server's messages are never quoted: they may contain stored data.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from bson.errors import BSONError, InvalidDocument
from pymongo import AsyncMongoClient
from pymongo import errors as driver
from pymongo.asynchronous.collection import AsyncCollection

from rag_context import errors
from rag_context.resilience.deadline import ended
from rag_context.stores.server_stores import log_failure

COMPONENT = "mongodb"

INDEX_NOT_FOUND = 27
TIME_EXPIRED = 50

_UNKNOWN_USER = frozenset({11, 13, 18, 33, 8000})
_FULL = 14031
_TOO_LARGE = frozenset({10334, 17419, 17420})
_TRANSIENT = frozenset(
    {1, 6, 7, 8, 89, 91, 112, 189, 262, 317, 358, 462, 9001, 10058, 10107, 11600, 11602, 13388, 13435, 13436, 17280}
)
"""Codes with which a server that changes its role, starts, stops, is overloaded or broken rejects an operation; as
in the drivers' rules for retries, with those of failed write concerns."""

_WRITE_CONCERN_TIMEOUT = 64
_NO_MAJORITY = (
    "No majority of the members of MongoDB at {} had the write in time, so it may yet be undone;"
    " it is safe to write it again once enough members are up."
)
_TOO_LARGE_SAYS = "The document is larger than one MongoDB record may be (16 MB); split it."

Collection: TypeAlias = AsyncCollection[dict[str, Any]]

DEFAULT_DATABASE = "P4NTH30N"

ERRORS = "errors"

PROGRESS = "_indexing_progress"

SERVER_SELECTION_MS = 250
"""How long a search waits for an unavailable server: well within its time budget."""

ELECTION_MS = 12_000
"""A write waits so long for a new primary; members elect one within twelve seconds of losing the last."""

MAJORITY_MS = 4_000
"""A write waits so long for a majority of the members to have it."""

_PREFERENCES: Mapping[str, object] = {
    "appname": "rag-context",
    "maxPoolSize": 50,
    "minPoolSize": 10,
    "maxIdleTimeMS": 30_000,
    "waitQueueTimeoutMS": 5_000,
    "serverSelectionTimeoutMS": SERVER_SELECTION_MS,
    "connectTimeoutMS": 2_000,
    "socketTimeoutMS": 20_000,
}
"""Defaults that the address can override."""

_WRITING: Mapping[str, object] = {
    "minPoolSize": 0,
    "serverSelectionTimeoutMS": ELECTION_MS,
    "socketTimeoutMS": 2 * MAJORITY_MS,
    "wTimeoutMS": MAJORITY_MS,
}
"""Defaults for writes, which wait for an election, but not without limit for a majority."""

_PROMISES: Mapping[str, object] = {"w": "majority", "journal": True, "readConcernLevel": "majority", "tz_aware": True}
"""What the address cannot override: durable writes, and no reads of data that may be rolled back."""


class ServerSearch:
    """Selects a usable server, with one attempt for all waiting callers."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]], unreachable_s: float | None = None) -> None:
        self._client = client
        self._wait_s = float(client.options.server_selection_timeout)
        self._unreachable_s = self._wait_s if unreachable_s is None else min(self._wait_s, unreachable_s)
        self._search: asyncio.Task[object] | None = None

    async def found(self) -> bool:
        """Whether there is a server before the caller's time is over. Raises: PyMongoError.

        It waits for a primary if other members are reachable, because they are about to elect one.
        """
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._client.admin.command("ping"), name="mongodb server search")
            self._search.add_done_callback(log_failure())
        # `wait` leaves the task running when a caller's time is over: others wait for it too.
        done, _ = await asyncio.wait({self._search}, timeout=self._unreachable_s)
        if not done and self._client.topology_description.has_known_servers:
            done, _ = await asyncio.wait({self._search}, timeout=self._wait_s - self._unreachable_s)
        for ping in done:
            ping.result()
        return bool(done)

    async def close(self) -> None:
        if self._search is not None:
            await ended(self._search)


@dataclass(frozen=True, slots=True)
class Mongo:
    """One database in use. `address` names the server in messages, without user or password; `writer` is the same
    database through the client for writes, where this is the one for searches."""

    client: AsyncMongoClient[dict[str, Any]]
    search: ServerSearch
    address: str
    documents: Collection
    metrics: Collection
    errors: Collection
    progress: Collection
    state: Collection
    chunks: Collection
    writer: "Mongo | None" = None

    @property
    def writing(self) -> "Mongo":
        return self.writer or self

    @asynccontextmanager
    async def reached(self) -> AsyncIterator[None]:
        """Use the server inside the block; without a known usable server, wait for one for a short while.

        The driver itself would wait twice as long: at least for its heartbeat. Raises: BackendError.
        """
        with translated(self.address):
            if not self.client.topology_description.has_writable_server() and not await self.search.found():
                raise errors.BackendUnavailableError(COMPONENT, self._unusable())
            yield

    async def close(self) -> None:
        await self.search.close()
        await self.client.close()
        if self.writer is not None:
            await self.writer.close()

    def _unusable(self) -> str:
        if self.client.topology_description.has_known_servers:
            return (
                f"MongoDB at {self.address} has no primary: it is electing one, or a majority of its members is down."
            )
        return f"MongoDB at {self.address} cannot be reached."


def connect(uri: str, *, documents: str, metrics: str) -> Mongo:
    """Two clients, one with the longer timeouts of writes; nothing is sent yet. Raises: ConfigurationError."""
    try:
        # A search gives up at once where there is no server, a write waits for an election: a client has one timeout.
        parts = urlsplit(uri)
        in_address = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        searching = _mongo(uri, _PREFERENCES, in_address, documents, metrics)
        writing = _mongo(uri, {**_PREFERENCES, **_WRITING}, in_address, documents, metrics)
        search_timeout_s = float(searching.client.options.server_selection_timeout)
        return replace(searching, writer=replace(writing, search=ServerSearch(writing.client, search_timeout_s)))
    except (driver.ConfigurationError, driver.InvalidName, ValueError, TypeError):
        # Without its cause: the driver's messages may quote a piece of the password.
        raise errors.ConfigurationError(
            "stores.mongodb_uri is not a valid address of a MongoDB (mongodb://HOST:PORT/DATABASE, user and password "
            "percent-encoded), or the names of its collections are invalid."
        ) from None


def _mongo(uri: str, preferred: Mapping[str, object], in_address: set[str], documents: str, metrics: str) -> Mongo:
    preferences = {name: value for name, value in preferred.items() if name.lower() not in in_address}
    if "maxpoolsize" in in_address:
        preferences.pop("minPoolSize", None)  # which may be more
    options: dict[str, Any] = {**preferences, **_PROMISES}
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, **options)
    database = client.get_default_database(DEFAULT_DATABASE)
    return Mongo(
        client=client,
        search=ServerSearch(client),
        address=urlsplit(uri).netloc.rpartition("@")[2],
        documents=database[documents],
        metrics=database[metrics],
        errors=database[ERRORS],
        progress=database[PROGRESS],
        state=database[f"{documents}_state"],
        chunks=database[f"{documents}_chunks"],
    )


@contextmanager
def translated(address: str) -> Iterator[None]:
    """Raise what the driver raises inside the block as our errors; `address` names the server."""
    try:
        yield
    except (driver.PyMongoError, BSONError, UnicodeEncodeError, OverflowError) as error:
        raise backend_error(error, address) from error


def is_code(error: driver.PyMongoError, *codes: int) -> bool:
    return isinstance(error, driver.OperationFailure) and error.code in codes


def backend_error(error: Exception, address: str) -> errors.BackendError:
    """Our error for `error`; raise it `from error`."""
    # Kinds of failure before their bases: a write concern that timed out is a failed operation too.
    match error:
        case driver.DocumentTooLarge():
            return errors.BackendRejectedError(COMPONENT, _TOO_LARGE_SAYS)
        # What the driver cannot encode came from the caller; what it cannot decode came from the server.
        case InvalidDocument() | UnicodeEncodeError() | OverflowError():
            return errors.BackendRejectedError(COMPONENT, "MongoDB cannot store this text or number.")
        case BSONError():
            return errors.BackendDataError(COMPONENT, f"MongoDB at {address} returned an invalid response.")
        case driver.WTimeoutError():
            return errors.BackendTimeoutError(COMPONENT, _NO_MAJORITY.format(address))
        case driver.NetworkTimeout() | driver.WaitQueueTimeoutError() | driver.ExecutionTimeout():
            return errors.BackendTimeoutError(COMPONENT, f"MongoDB at {address} did not answer in time.")
        case driver.OperationFailure():
            return _failed_operation(error, address)
        case driver.ConnectionFailure():
            return errors.BackendUnavailableError(COMPONENT, f"MongoDB at {address} cannot be reached.")
        case driver.ConfigurationError():
            return errors.BackendUnavailableError(
                COMPONENT, f"The address of MongoDB at {address} cannot be resolved or used."
            )
        case driver.PyMongoError() if error.timeout:
            return errors.BackendTimeoutError(COMPONENT, f"MongoDB at {address} did not answer in time.")
        case _:
            return errors.BackendUnavailableError(
                COMPONENT, f"MongoDB at {address} cannot be used ({type(error).__name__})."
            )


def _failed_operation(error: driver.OperationFailure, address: str) -> errors.BackendError:
    codes = _codes(error)
    code = f"code {error.code}" if error.code is not None else type(error).__name__
    if codes & _UNKNOWN_USER:
        return errors.BackendRejectedError(
            COMPONENT, f"MongoDB at {address} rejected the user or the password of stores.mongodb_uri ({code})."
        )
    if _WRITE_CONCERN_TIMEOUT in codes:
        return errors.BackendTimeoutError(COMPONENT, _NO_MAJORITY.format(address))
    if _FULL in codes:
        return errors.BackendUnavailableError(
            COMPONENT, f"No space left for MongoDB at {address}; free some and try again."
        )
    if codes & _TOO_LARGE:
        return errors.BackendRejectedError(COMPONENT, _TOO_LARGE_SAYS)
    if codes & _TRANSIENT or error.has_error_label("RetryableWriteError"):
        return errors.BackendUnavailableError(COMPONENT, f"MongoDB at {address} cannot serve this now ({code}).")
    return errors.BackendRejectedError(COMPONENT, f"MongoDB at {address} rejected the operation ({code}).")


def _codes(error: driver.OperationFailure) -> set[int]:
    """Every code that a failure names: its own, and those of the single writes of a batch."""
    codes = {error.code} if error.code is not None else set()
    details = error.details or {}
    if isinstance(error, driver.BulkWriteError):
        codes |= {each["code"] for each in (*details["writeErrors"], *details["writeConcernErrors"])}
    return codes

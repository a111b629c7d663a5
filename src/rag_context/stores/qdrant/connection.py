"""The connection to Qdrant: a client that opens without a server, the calls to one collection, and errors as ours."""

import asyncio
import json
import math
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import grpc  # type: ignore[import-untyped]
import httpx
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from rag_context.domain.vectors import Vector
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
)

COMPONENT = "qdrant"

FAULTS = (
    ApiException,
    QdrantException,
    grpc.aio.AioRpcError,
    TimeoutError,
    AssertionError,
    ValidationError,
    json.JSONDecodeError,
    UnicodeDecodeError,
    PydanticSerializationError,
    UnicodeEncodeError,
)
"""What a call may raise where the server, the way to it or the text is at fault. The client asserts that an answer
has a result, and lets some answers that are no JSON through to its caller."""

_KEY_REJECTED = (
    "Qdrant rejected the key: check stores.qdrant_api_key (a connection's api_key) and that key's permissions."
)
_UNREADABLE = "Qdrant's answer cannot be read."
_LONGEST_REASON = 200

_UNAVAILABLE = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
    }
)
_KEY_CODES = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_INVALID = frozenset({grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNIMPLEMENTED})

Transport: TypeAlias = Literal["http", "grpc"]

Consistency: TypeAlias = Literal["one", "majority", "quorum", "all"]
"""How many replicas of a shard a read compares, and which one counts where they differ."""

T = TypeVar("T")

Payload: TypeAlias = bool | list[str]
"""Whether points come with their payloads, or with which of its fields."""

Vectors: TypeAlias = bool | list[str]
"""The same of their vectors, by name."""

PAGE = 1000
"""Points per call that come with little of their payloads."""

ORDERING = models.WriteOrdering.MEDIUM
"""Writes go through one replica of a shard at a time, so that two writers leave all replicas the same; should it fail,
another one takes its place. (`strong` would reject writes meanwhile.)"""

_TRIES = 3
"""How often a write is repeated that the server accepted without confirming that it was applied."""

_CONNECTIONS = 64

_IDLE_S = 2.0
"""Qdrant closes idle connections after five seconds; ours are closed before it does."""

_LONGEST_NAME = 255

_FORBIDDEN = frozenset('<>:"/\\|?*\0\x1f')
"""Names of collections are names of folders to Qdrant."""

_LONGEST_PAUSE_MS = 2000
"""Left to itself, gRPC would wait up to two minutes before it tries a dead server again."""


class NoCollectionError(BackendRejectedError):
    """The collection does not exist on a running server; a write may create it again."""


class NoPointError(BackendRejectedError):
    """A point that is to be changed does not exist."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A client bound to one collection. Every call ends in time, with an answer or an error of ours."""

    client: AsyncQdrantClient
    collection: str
    timeout_s: float
    consistency: models.ReadConsistency | None = None
    """The read consistency; None: any one replica answers."""

    async def call(self, work: Awaitable[T]) -> T:
        """Await one call of the client.

        Raises:
            NoCollectionError: the collection does not exist.
            BackendError: it failed otherwise.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                return await work
        except FAULTS as error:
            raise backend_error(error, self.collection) from error

    async def update(self, work: Callable[[], Awaitable[models.UpdateResult]]) -> None:
        """Repeat an idempotent write until the server confirms that it was applied.

        A server that is busy answers before it is (`acknowledged`, `wait_timeout`): what was written may not be found
        yet, or not on all replicas. The same again waits for what came before it.

        Raises:
            BackendTimeoutError: it was accepted, but not confirmed.
            BackendError: it failed otherwise.
        """
        for _ in range(_TRIES):
            if (await self.call(work())).status is models.UpdateStatus.COMPLETED:
                return
        raise BackendTimeoutError(COMPONENT, "Qdrant accepted a write and did not confirm it; it is repeated.")

    def to(self, collection: str) -> "Connection":
        """The same connection, for another collection."""
        return replace(self, collection=collection)

    async def info(self) -> models.CollectionInfo:
        """The collection as the server has it. Raises: NoCollectionError, BackendError."""
        return await self.call(self.client.get_collection(self.collection))

    async def create(self, work: Awaitable[bool]) -> models.CollectionInfo | None:
        """Create the collection by `work`; where another process was faster, returns the existing one instead.

        Raises:
            BackendRejectedError: the server rejects it.
        """
        try:
            await self.call(work)
        except BackendRejectedError as rejection:
            try:
                return await self.info()
            except NoCollectionError:
                raise rejection from rejection.__cause__
        return None

    async def index(self, field: str, schema: models.PayloadSchemaParams) -> None:
        """Create a payload index. Raises: BackendError."""
        made = partial(self.client.create_payload_index, self.collection, field, wait=True, ordering=ORDERING)
        await self.update(partial(made, field_schema=schema))

    async def drop(self) -> None:
        """Remove the collection with all that is in it; it may be removed already. Raises: BackendError."""
        await self.call(self.client.delete_collection(self.collection))

    async def count(self) -> int:
        """How many points there are, exactly. Raises: NoCollectionError, BackendError."""
        return (await self.call(self.client.count(self.collection, exact=True))).count

    async def upsert(self, points: Sequence[models.PointStruct]) -> None:
        """Store points, in place of those of the same ids. Raises: NoCollectionError, BackendError."""
        await self.update(partial(self.client.upsert, self.collection, list(points), wait=True, ordering=ORDERING))

    async def delete(self, selector: models.PointsSelector) -> None:
        """Remove points. Raises: NoCollectionError, BackendError."""
        await self.update(partial(self.client.delete, self.collection, selector, wait=True, ordering=ORDERING))

    async def retrieve(
        self, ids: Sequence[models.ExtendedPointId], *, page: int, payload: Payload = True, vectors: Vectors = False
    ) -> list[models.Record]:
        """The points that exist of `ids`, which are distinct, `page` of them by a call. Raises: as `count`."""
        found: list[models.Record] = []
        for start in range(0, len(ids), page):
            some = ids[start : start + page]
            found += await self.call(
                self.client.retrieve(
                    self.collection, some, with_payload=payload, with_vectors=vectors, consistency=self.consistency
                )
            )
        return found

    async def scroll(
        self, where: models.Filter | None, payload: Payload, page: int = PAGE
    ) -> AsyncIterator[models.Record]:
        """All points that a filter lets through, without their vectors. Raises: as `count`."""
        offset: models.ExtendedPointId | None = None
        while True:
            call = self.client.scroll(
                self.collection,
                scroll_filter=where,
                limit=page,
                offset=offset,
                with_payload=payload,
                with_vectors=False,
                consistency=self.consistency,
            )
            records, offset = await self.call(call)
            for record in records:
                yield record
            if offset is None:
                return

    async def nearest(
        self,
        vector: Vector,
        limit: int,
        *,
        where: models.Filter | None = None,
        params: models.SearchParams | None = None,
        payload: Payload = True,
        vectors: Vectors = False,
        using: str | None = None,
    ) -> list[models.ScoredPoint]:
        """The points nearest to a vector that pass a filter. Raises: as `count`."""
        call = self.client.query_points(
            self.collection,
            query=vector.tolist(),
            using=using,
            query_filter=where,
            limit=limit,
            search_params=params,
            with_payload=payload,
            with_vectors=vectors,
            consistency=self.consistency,
        )
        return (await self.call(call)).points


def connect(
    url: str,
    collection: str,
    *,
    api_key: str | None,
    transport: Transport,
    grpc_port: int,
    timeout_s: float,
    consistency: Consistency = "one",
) -> Connection:
    """A connection that is made with the first call; nothing is sent to the server here.

    Raises:
        ConfigurationError: the address, or the collection's name, is invalid.
    """
    if not collection or len(collection) > _LONGEST_NAME or collection in (".", "..") or _FORBIDDEN & set(collection):
        raise ConfigurationError(
            f"Qdrant cannot have a collection named {collection!r}: choose another stores.qdrant_collection."
        )
    try:
        client = _client(url, api_key, transport, grpc_port, timeout_s)
        read_consistency = None if consistency == "one" else models.ReadConsistencyType(consistency)
        return Connection(client, collection, timeout_s, read_consistency)
    except ValueError:  # which repeats the address, and a password in it
        message = "stores.qdrant_url (a connection's url) is not an address that Qdrant can be reached at."
        raise ConfigurationError(message) from None


def _client(url: str, api_key: str | None, transport: Transport, grpc_port: int, timeout_s: float) -> AsyncQdrantClient:
    return AsyncQdrantClient(
        url=url,
        prefer_grpc=transport == "grpc",
        grpc_port=grpc_port,
        # Whole seconds only; `Connection.call` keeps the exact time.
        timeout=math.ceil(timeout_s),
        # The key as a header: given as a key, it makes the client print a warning on every plain connection.
        headers={"api-key": api_key} if api_key else None,
        check_compatibility=False,  # it would print; `QdrantVectors.ping` checks by Qdrant's own rule, and logs
        # Certificates that nothing is compared with take a tenth of a second to load.
        verify=url.lower().startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        limits=httpx.Limits(
            max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=_IDLE_S
        ),
        grpc_options={
            "grpc.initial_reconnect_backoff_ms": 200,
            "grpc.min_reconnect_backoff_ms": 200,
            "grpc.max_reconnect_backoff_ms": _LONGEST_PAUSE_MS,
        },
    )


def backend_error(error: BaseException, collection: str) -> BackendError:
    """Our error for one of `FAULTS`; raise it `from error`."""
    match error:
        case TimeoutError():
            return BackendTimeoutError(COMPONENT, "Qdrant did not answer in time.")
        case ResponseHandlingException():
            return _broken(error.source)
        case UnexpectedResponse():
            return _rejected(error.status_code or 0, _reason(error.content), collection)
        case ResourceExhaustedResponse():
            return BackendUnavailableError(
                COMPONENT,
                "Qdrant limits the rate of requests: try again later.",
                retry_after_s=float(error.retry_after_s),
            )
        case QdrantException():  # a Retry-After that is not a number of seconds
            return BackendUnavailableError(COMPONENT, "Qdrant limits the rate of requests: try again later.")
        case grpc.aio.AioRpcError():
            return _failed_call(error, collection)
        case PydanticSerializationError() | UnicodeEncodeError():
            return BackendRejectedError(COMPONENT, "Qdrant cannot store this text: it is not valid Unicode.")
        case AssertionError():
            return BackendDataError(COMPONENT, "Qdrant's response has no result.")
        case _:
            return BackendDataError(COMPONENT, _UNREADABLE)


def _broken(source: Exception) -> BackendError:
    """The error for no response, or an invalid one."""
    match source:
        case httpx.TimeoutException():
            return BackendTimeoutError(COMPONENT, "Qdrant did not answer in time.")
        case httpx.RemoteProtocolError() if "without sending a response" not in str(source):
            return BackendDataError(COMPONENT, "Qdrant's answer broke off, or is no HTTP.")
        case httpx.TransportError():
            return BackendUnavailableError(COMPONENT, f"Qdrant cannot be reached ({type(source).__name__}).")
        case AttributeError():  # uvloop: a connection reset while it was made has no socket, which anyio reads
            return BackendUnavailableError(COMPONENT, "Qdrant cannot be reached (reset).")
        case _:
            return BackendDataError(COMPONENT, _UNREADABLE)


def _rejected(status: int, reason: str | None, collection: str) -> BackendError:
    if status in (401, 403):
        return BackendRejectedError(COMPONENT, _KEY_REJECTED)
    if status == 408:
        return BackendTimeoutError(COMPONENT, "Qdrant gave up: it did not answer in the time it allows itself.")
    if status == 429 or status >= 500:
        return BackendUnavailableError(COMPONENT, f"Qdrant answered {status}.")
    if reason is None:
        return BackendDataError(COMPONENT, f"What answers at Qdrant's address ({status}) is no Qdrant.")
    if status == 404:
        return _missing(reason, collection)
    return BackendRejectedError(COMPONENT, f"Qdrant rejected the request ({status}): {reason}.")


def _missing(reason: str, collection: str) -> BackendError:
    """The error for what is missing: a collection that exists may still miss shards, aliases and snapshots."""
    if re.search(r"collection .*(doesn't|does not) exist", reason, re.IGNORECASE):
        return NoCollectionError(COMPONENT, f"Qdrant has no collection {collection!r}.")
    if re.search(r"\bpoints?\b", reason, re.IGNORECASE):
        return NoPointError(COMPONENT, f"Qdrant misses a point in {collection!r}: {reason}.")
    return BackendUnavailableError(COMPONENT, f"Qdrant cannot serve {collection!r} now: {reason}.")


def _failed_call(error: grpc.aio.AioRpcError, collection: str) -> BackendError:
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return BackendTimeoutError(COMPONENT, "Qdrant did not answer in time.")
    if code in _UNAVAILABLE:
        return BackendUnavailableError(COMPONENT, f"Qdrant cannot be reached, or failed, over gRPC ({code.name}).")
    if code in _KEY_CODES:
        return BackendRejectedError(COMPONENT, _KEY_REJECTED)
    if code is grpc.StatusCode.NOT_FOUND:
        return _missing(_short(error.details() or ""), collection)
    if code in _INVALID:
        return BackendDataError(
            COMPONENT, f"What answers at Qdrant's gRPC port ({code.name}) is no Qdrant, or damaged."
        )
    return BackendRejectedError(
        COMPONENT, f"Qdrant rejected the request ({code.name}): {_short(error.details() or '')}."
    )


def _reason(body: bytes) -> str | None:
    """Qdrant's own message; None if the body is not one of its errors."""
    try:
        reason = json.loads(body)["status"]["error"]
    except (ValueError, TypeError, KeyError):
        return None
    return _short(reason) if isinstance(reason, str) else None


def _short(reason: str) -> str:
    return reason[:_LONGEST_REASON].rstrip(". ")

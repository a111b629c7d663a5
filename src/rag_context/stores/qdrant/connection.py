"""The client, made so that opening needs no server, and the one way to call it."""

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import httpx
from qdrant_client import AsyncQdrantClient, models

from rag_context.errors import BackendTimeoutError, ConfigurationError
from rag_context.stores.qdrant.faults import COMPONENT, FAULTS, backend_error

Transport: TypeAlias = Literal["http", "grpc"]

Consistency: TypeAlias = Literal["one", "majority", "quorum", "all"]
"""How many replicas of a shard a read compares, and which one counts where they differ."""

T = TypeVar("T")

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
            NoCollectionError: the collection is not there.
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
        wanted = None if consistency == "one" else models.ReadConsistencyType(consistency)
        return Connection(client, collection, timeout_s, wanted)
    except ValueError:  # which repeats the address, and a password in it
        message = "stores.qdrant_url (a connection's url) is not an address that Qdrant can be reached at."
        raise ConfigurationError(message) from None


def _client(url: str, api_key: str | None, transport: Transport, grpc_port: int, timeout_s: float) -> AsyncQdrantClient:
    return AsyncQdrantClient(
        url=url,
        prefer_grpc=transport == "grpc",
        grpc_port=grpc_port,
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

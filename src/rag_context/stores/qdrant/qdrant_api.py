"""The calls of Qdrant: clients of its nodes that open without a server, bound to one collection."""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit

import httpx
import numpy as np
from qdrant_client import AsyncQdrantClient, models

from rag_context import errors
from rag_context.domain.documents import slices
from rag_context.domain.vectors import Vector
from rag_context.settings.values import Consistency, hosts_of
from rag_context.stores.qdrant.qdrant_errors import COMPONENT, FAULTS, NoCollectionError, backend_error

Transport: TypeAlias = Literal["http", "grpc"]

T = TypeVar("T")

Parts: TypeAlias = bool | list[str]
"""Whether points come with their payloads or vectors, or with which fields and vectors."""

PAGE = 1000
"""Points per call that come with little of their payloads."""

ORDERING = models.WriteOrdering.MEDIUM
"""Writes go through one replica of a shard at a time, so that two writers leave all replicas the same; should it fail,
another one takes its place. (`strong` would reject writes meanwhile.)"""

TIMEOUT_S = 30.0

_TRIES = 3
"""How often a write is repeated that the server accepted without confirming that it was applied."""

_CREATION_TRIES = 20
_CREATION_PAUSE_S = 0.1
"""Qdrant fails to describe a collection while it creates its shards for another client."""

_CONNECTIONS = 64

_IDLE_S = 2.0
"""Qdrant closes idle connections after five seconds; ours are closed before it does."""

_LONGEST_NAME = 255

_FORBIDDEN = frozenset('<>:"/\\|?*\0\x1f')
"""Names of collections are names of folders to Qdrant."""

MOST_TIED = 4096
"""More points than this are never requested to see which of equally near ones are first."""

_LONGEST_PAUSE_MS = 2000
"""Left to itself, gRPC would wait up to two minutes before it tries a dead server again."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Node:
    """One node of a cluster; and when it answered last, by `time.monotonic`."""

    host: str
    client: AsyncQdrantClient
    answered: float = -math.inf


@dataclass(frozen=True, slots=True)
class QdrantConnection:
    """The nodes of a server, bound to one collection. Every call ends in time, with an answer or an error of ours.

    A call goes to the first node. One that cannot be reached or fails becomes the last, and the call goes to the next;
    one that is silent becomes the last for the calls to come.
    """

    nodes: list[Node]
    collection: str
    timeout_s: float
    consistency: models.ReadConsistency | None
    """The read consistency; None: any one replica answers."""
    replicas: int | None
    """Of each shard of a new collection; the server chooses where it is None."""

    async def call(self, work: Callable[[AsyncQdrantClient], Awaitable[T]]) -> T:
        """Await one call of a client. Raises: NoCollectionError (the collection does not exist)."""
        *others, last = self.nodes
        for node in others:
            try:
                return await self._call(node, work)
            except errors.BackendTimeoutError:
                raise
            except errors.BackendUnavailableError as error:
                logger.warning("qdrant: the node %s failed, another one is called: %s", node.host, error)
        return await self._call(last, work)

    async def _call(self, node: Node, work: Callable[[AsyncQdrantClient], Awaitable[T]]) -> T:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.timeout_s):
                result = await work(node.client)
        except asyncio.CancelledError:
            # A caller whose time is up: a node that has answered nothing since then may be paused.
            self.nodes.sort(key=lambda other: other is node and node.answered < began)
            raise
        except FAULTS as error:
            failure = backend_error(error, self.collection)
            if isinstance(failure, errors.BackendUnavailableError):
                self.nodes.sort(key=lambda other: other is node)
            raise failure from error
        node.answered = time.monotonic()
        return result

    async def update(self, work: Callable[[AsyncQdrantClient], Awaitable[models.UpdateResult]]) -> None:
        """Repeat an idempotent write until the server confirms that it was applied. Raises: BackendTimeoutError.

        A server that is busy answers before it is (`acknowledged`, `wait_timeout`): what was written may not be found
        yet, or not on all replicas. The same again waits for what came before it.
        """
        for _ in range(_TRIES):
            if (await self.call(work)).status is models.UpdateStatus.COMPLETED:
                return
        raise errors.BackendTimeoutError(COMPONENT, "Qdrant accepted a write and did not confirm it; it is repeated.")

    def to(self, collection: str) -> "QdrantConnection":
        return replace(self, collection=collection)

    async def info(self) -> models.CollectionInfo:
        return await self.call(lambda client: client.get_collection(self.collection))

    async def create(
        self, vectors: models.VectorParams, shards: int | None = None, quantize: models.QuantizationConfig | None = None
    ) -> models.CollectionInfo | None:
        """Create the collection; where another process was faster, returns the existing one instead."""
        # More than half of three and more replicas must have a write; of two one, so that either may be down.
        written = None if self.replicas is None else self.replicas // 2 + (self.replicas != 2)
        # Payloads are read for the few results of a search only: on disk they leave the memory to the vectors.
        work = partial(
            AsyncQdrantClient.create_collection,
            collection_name=self.collection,
            vectors_config=vectors,
            shard_number=shards,
            replication_factor=self.replicas,
            write_consistency_factor=written,
            on_disk_payload=True,
            quantization_config=quantize,
        )
        try:
            await self.call(work)
        except errors.BackendRejectedError as rejection:
            try:
                return await self._made_by_another()
            except NoCollectionError:
                raise rejection from rejection.__cause__
        return None

    async def _made_by_another(self) -> models.CollectionInfo:
        for _ in range(_CREATION_TRIES):
            try:
                return await self.info()
            except errors.BackendTimeoutError:
                raise
            except errors.BackendUnavailableError as error:
                logger.debug("qdrant: collection %r is being created: %s", self.collection, error)
                await asyncio.sleep(_CREATION_PAUSE_S)
        return await self.info()

    async def index(self, field: str, schema: models.PayloadSchemaParams) -> None:
        await self.update(
            lambda client: client.create_payload_index(self.collection, field, schema, wait=True, ordering=ORDERING)
        )

    async def drop(self) -> None:
        await self.call(lambda client: client.delete_collection(self.collection))

    async def count(self, where: models.Filter | None = None) -> int:
        return (await self.call(lambda client: client.count(self.collection, where, exact=True))).count

    async def upsert(self, points: Sequence[models.PointStruct]) -> None:
        await self.update(lambda client: client.upsert(self.collection, [*points], wait=True, ordering=ORDERING))

    async def delete(self, selector: models.PointsSelector) -> None:
        await self.update(lambda client: client.delete(self.collection, selector, wait=True, ordering=ORDERING))

    async def retrieve(
        self, ids: Sequence[models.ExtendedPointId], *, page: int, payload: Parts = True, vectors: Parts = False
    ) -> list[models.Record]:
        """The points that exist of `ids`, which are distinct, `page` of them by a call. Raises: as `count`."""
        found: list[models.Record] = []
        for some in slices(ids, page):
            work = partial(
                AsyncQdrantClient.retrieve,
                collection_name=self.collection,
                ids=some,
                with_payload=payload,
                with_vectors=vectors,
                consistency=self.consistency,
            )
            found += await self.call(work)
        return found

    async def scroll(
        self, where: models.Filter | None, payload: Parts, page: int = PAGE
    ) -> AsyncIterator[models.Record]:
        """All points that a filter lets through, without their vectors. Raises: as `count`."""
        offset: models.ExtendedPointId | None = None
        while True:
            work = partial(
                AsyncQdrantClient.scroll,
                collection_name=self.collection,
                scroll_filter=where,
                limit=page,
                offset=offset,
                with_payload=payload,
                with_vectors=False,
                consistency=self.consistency,
            )
            records, offset = await self.call(work)
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
        payload: Parts = True,
        vectors: Parts = False,
        using: str | None = None,
    ) -> list[models.ScoredPoint]:
        """The points nearest to a vector that pass a filter. Raises: as `count`."""
        work = partial(
            AsyncQdrantClient.query_points,
            collection_name=self.collection,
            query=vector.tolist(),
            using=using,
            query_filter=where,
            limit=limit,
            search_params=params,
            with_payload=payload,
            with_vectors=vectors,
            consistency=self.consistency,
        )
        return (await self.call(work)).points


class QdrantOptions(TypedDict, total=False):
    """How a server is reached; the key, where it needs one, which replicas a read compares, and how many are made."""

    api_key: str | None
    transport: Transport
    grpc_port: int
    timeout_s: float
    read_consistency: Consistency
    replicas: int | None


@asynccontextmanager
async def connected(url: str, collection: str, **options: Unpack[QdrantOptions]) -> AsyncIterator[QdrantConnection]:
    """A connection to the nodes that `url` names, made with the first call. Raises: ConfigurationError."""
    if not collection or len(collection) > _LONGEST_NAME or collection in (".", "..") or _FORBIDDEN & set(collection):
        raise errors.ConfigurationError(
            f"Qdrant cannot have a collection named {collection!r}: choose another stores.qdrant_collection."
        )
    try:
        timeout_s, compared = options.get("timeout_s", TIMEOUT_S), options.get("read_consistency", "one")
        consistency = None if compared == "one" else models.ReadConsistencyType(compared)
        nodes = [Node(str(urlsplit(each).hostname), _client(each, timeout_s, options)) for each in hosts_of(url)]
        connection = QdrantConnection(nodes, collection, timeout_s, consistency, options.get("replicas"))
    except ValueError:  # which repeats the address, and a password in it
        message = "stores.qdrant_url (a connection's url) is not an address that Qdrant can be reached at."
        raise errors.ConfigurationError(message) from None
    try:
        yield connection
    finally:
        for node in connection.nodes:
            await node.client.close()


def _client(url: str, timeout_s: float, options: QdrantOptions) -> AsyncQdrantClient:
    if not urlsplit(url).hostname:
        raise ValueError(url)
    api_key = options.get("api_key")
    return AsyncQdrantClient(
        url=url,
        prefer_grpc=options.get("transport") == "grpc",
        grpc_port=options.get("grpc_port", 6334),
        # Whole seconds only; `QdrantConnection.call` keeps the exact time.
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


def vector_of(record: models.Record) -> Vector:
    if not isinstance(record.vector, list):
        raise errors.BackendDataError(COMPONENT, f"The point {str(record.id)!r} in Qdrant came without its vector.")
    return np.asarray(record.vector, dtype=np.float32)


async def nearest(
    request: Callable[[int], Awaitable[list[models.ScoredPoint]]],
    limit: int,
    passes: Callable[[models.ScoredPoint], bool] = lambda _: True,
) -> list[models.ScoredPoint]:
    """The nearest points that pass, `limit` at least if there are as many, and all that equal the last of these.

    Which of equally near ones are shown must not depend on the server: more are requested until one is farther away.
    """
    # One more than requested shows whether the last one is tied.
    count = limit + 1
    while True:
        near = await request(count)
        found = [point for point in near if passes(point)]
        is_enough = len(found) >= limit
        are_tied = is_enough and found[limit - 1].score == near[-1].score
        if len(near) < count or (is_enough and not (are_tied and count <= MOST_TIED)):
            return found
        count *= 4

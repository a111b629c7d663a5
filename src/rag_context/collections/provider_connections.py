"""Connections to providers of collections. Each is opened once, on first use, and has a circuit breaker.

So has the embedder of a connection. Where a provider has no calls for many documents at once, they are done page by
page.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from rag_context import errors
from rag_context.collections.registry import examined
from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.documents import Status, counted, slices
from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.domain.where import matches
from rag_context.ingest.text_vectors import SLICE, SLICE_S
from rag_context.ports.models import Embedder
from rag_context.ports.provider import BulkCalls, Entry, Provider, ProviderHealth, Switching
from rag_context.resilience.dependency import Dependency

logger = logging.getLogger(__name__)

QUERY_S = 5.0
PROBE_S = 5.0

T = TypeVar("T")


class TextEmbedder:
    def __init__(self, embedder: Embedder, dependency: Dependency) -> None:
        self._embedder = embedder
        self._for_queries = dependency.guard(embedder, QUERY_S)
        self._for_documents = dependency.guard(embedder, SLICE_S)

    @property
    def model(self) -> EmbeddingModel:
        """The model in use. Raises: BackendError before it is loaded."""
        return self._embedder.model

    async def query(self, text: str) -> Vector:
        return await self._for_queries.embed_query(text)

    async def documents(self, texts: Sequence[str]) -> Matrix:
        """Embed passages, after queries that wait: `(n, dim) float32`. Raises: BackendError."""
        # Slice by slice: a query that comes meanwhile goes ahead of the next one.
        return np.concatenate([await self._for_documents.embed_documents(part) for part in slices(texts, SLICE)])


DEFAULT = "default"

OPEN_S = 60.0
"""Time budget for opening a provider; some client libraries take seconds to import."""

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Provider]]


@dataclass(frozen=True, slots=True)
class CollectionRef:
    """The address of a collection: its name, and the id of its connection."""

    name: str
    connection: str = DEFAULT


class ProviderConnection:
    """A provider that is opened on the first call, and again after a failure; while its breaker is open, calls fail."""

    def __init__(
        self,
        id_: str,
        provider: str,
        opener: Opener,
        embedder: TextEmbedder | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        note: str | None = None,
    ) -> None:
        self.id = id_
        self.provider = provider
        self.note = note
        self._embedder = embedder
        self._opener = opener
        self._clock = clock
        self.dependency = Dependency(f"vectors of connection {id_}", self._ping, clock, probe_s=PROBE_S)
        """The provider's breaker and timeouts."""
        self._open_provider: _OpenProvider | None = None
        self._guards: dict[float, ProviderCalls] = {}

    @property
    def embedder(self) -> TextEmbedder:
        """The embedder for texts. Raises: BackendUnavailableError if none is configured."""
        if self._embedder is None:
            raise errors.BackendUnavailableError(
                "embedder", "no embedder is configured: send embeddings instead of texts"
            )
        return self._embedder

    async def within(self, seconds: float) -> "ProviderCalls":
        """The provider, opened if needed; each of its calls ends within `seconds`. Raises: BackendError.

        Opening it has a time budget of its own: seconds of imports would else use up that of the first call.
        """
        if not self.is_open:
            await self.dependency.call(self.opened, OPEN_S)
        if seconds not in self._guards:
            self._guards[seconds] = self.dependency.guard(cast("ProviderCalls", _OpenedCalls(self)), seconds)
        return self._guards[seconds]

    async def call(self, work: Callable[[Provider], Awaitable[T]], seconds: float) -> T:
        """Do `work`, calls of the provider that are tried again as one, within `seconds`. Raises: BackendError."""

        await self.within(seconds)
        return await self.dependency.call(partial(self.attempt, work), seconds)

    async def attempt(self, work: Callable[[Provider], Awaitable[T]]) -> T:
        """Do `work`; any error of a plug-in becomes ours: its text may contain secrets and is only logged."""
        provider = await self.opened()
        try:
            return await work(provider)
        except errors.RagContextError:
            raise
        except Exception as error:
            logger.error("the provider %r of connection %s failed", self.provider, self.id, exc_info=error)
            raise errors.ProviderFailedError(self.dependency.name, self.provider, self.id, error) from error

    @property
    def was_used(self) -> bool:
        return self._open_provider is not None

    @property
    def is_open(self) -> bool:
        found = self._open_provider
        return found is not None and found.opened.done() and not found.task.done()

    async def opened(self) -> Provider:
        """The open provider, without breaker and timeouts, for long tasks. Raises: BackendError."""
        # An opening that failed is repeated by the next call; the breaker bounds how often there is one.
        if self._open_provider is None or self._open_provider.task.done():
            self._open_provider = _OpenProvider(self._opener, f"connection {self.id}")
        try:
            # Shielded: a caller that is cancelled must not cancel the opening for the others.
            return await asyncio.shield(self._open_provider.opened)
        except errors.ConfigurationError as error:
            raise errors.BackendUnavailableError(self.dependency.name, str(error)) from error

    async def health(self) -> ProviderHealth:
        """Check the provider now."""

        async def ask() -> ProviderHealth:
            return await (await self.opened()).health()

        return await examined(ask, PROBE_S, self._clock)

    async def close(self) -> None:
        if self._open_provider is not None:
            await self._open_provider.end()

    async def _ping(self) -> str:
        health = await (await self.opened()).health()
        if health.status is Status.UNAVAILABLE:
            raise errors.BackendUnavailableError(self.dependency.name, health.error or "it did not answer")
        count = "" if health.collections is None else f", {counted(health.collections, 'collection')}"
        return f"{self.provider}{count}"


class ProviderCalls(Provider, BulkCalls, Switching, Protocol):
    """A provider behind its breaker. It has the bulk calls of every provider; `switch` only if the provider has it."""


class _OpenedCalls:
    """The calls of a connection's provider, by name, as `resilience.dependency` guards them."""

    def __init__(self, connection: ProviderConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            async def work(provider: Provider) -> Any:
                return await getattr(bulk(provider) if name in _BULK_CALLS else provider, name)(*args, **kwargs)

            return await self._connection.attempt(work)

        return call


class Connections(dict[str, ProviderConnection]):
    def __init__(self, connections: Sequence[ProviderConnection]) -> None:
        super().__init__((connection.id, connection) for connection in connections)

    def require(self, id_: str) -> ProviderConnection:
        found = self.get(id_)
        if found is None:
            raise errors.NotFoundError(f"Connection '{id_[:64]}' not found; known are {', '.join(self)}")
        return found

    def ref(self, text: str) -> CollectionRef:
        """Parse `connection:name`; if the text does not begin with the id of a connection, all of it is the name."""
        connection, colon, name = text.partition(":")
        if colon and connection in self:
            return CollectionRef(name, connection)
        return CollectionRef(text)

    async def aclose(self) -> None:
        """Close the open connections, the last one first."""
        for connection in reversed(list(self.values())):
            await connection.close()


class _OpenProvider:
    """A provider that a task of its own opens and closes: both must happen in the same task."""

    def __init__(self, opener: Opener, name: str) -> None:
        self.opened: asyncio.Future[Provider] = asyncio.get_running_loop().create_future()
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._run(opener), name=name)

    async def end(self) -> None:
        self._end.set()
        if not self.opened.done():
            self.task.cancel()
        await asyncio.wait({self.task})

    # A library's cancel scopes, such as anyio's, may be left only in the task that entered them.
    async def _run(self, opener: Opener) -> None:
        try:
            async with opener() as provider:
                self.opened.set_result(provider)
                await self._end.wait()
        except Exception as error:
            if self.opened.done():
                raise
            self.opened.set_exception(error)
            self.opened.exception()  # marks it as retrieved: asyncio logs it otherwise if no caller waits
        finally:
            self.opened.cancel()


_PAGE = 1000
_BULK_CALLS = frozenset({"ids", "get", "delete_many"})


def bulk(provider: Provider) -> BulkCalls:
    """The provider's own bulk calls, or the same operations page by page."""
    return provider if isinstance(provider, BulkCalls) else _Paged(provider)


class _Paged:
    """Implements `BulkCalls` with several calls per operation."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def ids(self, name: str, where: Clause) -> list[str]:
        return [entry.id for entry in await self._all(name, where)]

    async def get(self, name: str, ids: Sequence[str]) -> dict[str, Entry]:
        # All pages: a provider without bulk calls finds documents by filters on metadata only, not by ids.
        requested = set(ids)
        return {entry.id: entry for entry in await self._all(name, EVERYTHING) if entry.id in requested}

    async def delete_many(self, name: str, ids: Sequence[str], where: Clause) -> int:
        stored = await self.get(name, ids)
        matching = [entry.id for entry in stored.values() if matches(where, entry.metadata)]
        return sum([await self._provider.delete(name, id_) for id_ in matching])

    async def _all(self, name: str, where: Clause) -> list[Entry]:
        found: list[Entry] = []
        while True:
            page = await self._provider.entries(name, where, limit=_PAGE, offset=len(found))
            found += page.entries
            if len(page.entries) < _PAGE:
                return found

"""Connections: where collections live. Each is opened when it is first used, once, and is kept behind a breaker."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias, TypeVar

from rag_context.collections.embedding import PROBE_S, TextEmbedder, through
from rag_context.collections.plugins import sentence_of
from rag_context.domain.documents import Status
from rag_context.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    NotFoundError,
    ProviderFailedError,
    RagContextError,
)
from rag_context.ports.provider import Provider, ProviderHealth
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency

DEFAULT = "default"

OPEN_S = 60.0
"""Longest wait for a provider to be opened: some import a client library of seconds."""

logger = logging.getLogger(__name__)

T = TypeVar("T")
Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Provider]]


@dataclass(frozen=True, slots=True)
class CollectionRef:
    """A collection: its name, and the connection that it lives on."""

    name: str
    connection: str = DEFAULT


class Connection:
    """A provider that is opened when it is first called, and skipped while it is known to be dead.

    Args:
        id_: as the settings call it.
        provider: name of the kind of provider.
        opener: opens it; called again after a failure.
        embedder: makes vectors of texts for its collections.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        id_: str,
        provider: str,
        opener: Opener,
        embedder: TextEmbedder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = id_
        self.provider = provider
        self._embedder = embedder
        self._opener = opener
        self._clock = clock
        self.dependency = Dependency(f"vectors of connection {id_}", self._ping, clock)
        """Guards the provider."""

        self._tenancy: _Tenancy | None = None

    @property
    def embedder(self) -> TextEmbedder:
        """What embeds texts. Raises: BackendUnavailableError where nothing does."""
        if self._embedder is None:
            raise BackendUnavailableError("embedder", "there is nothing here that embeds texts")
        return self._embedder

    async def call(self, work: Callable[[Provider], Awaitable[T]], seconds: float) -> T:
        """Do `work` with the provider within `seconds`; opening it, before the first work, has a time of its own.

        Raises:
            BackendError: it failed, did not answer in time, or is known to be dead.
        """

        async def done() -> T:
            return await self._guarded(work, await self.opened())

        if not self.is_open:
            await through(self.dependency, self.opened, OPEN_S, self._clock)
        return await through(self.dependency, done, seconds, self._clock)

    async def _guarded(self, work: Callable[[Provider], Awaitable[T]], provider: Provider) -> T:
        """Whatever a plug-in raises is a failure of that plug-in; what it says may hold secrets, and is only logged."""
        try:
            return await work(provider)
        except RagContextError:
            raise
        except Exception as error:
            logger.exception("the provider %r of connection %s failed", self.provider, self.id)
            raise ProviderFailedError(self.dependency.name, self.provider, self.id, error) from error

    @property
    def was_used(self) -> bool:
        """Whether it was opened, or that was tried."""
        return self._tenancy is not None

    @property
    def is_open(self) -> bool:
        """Whether the provider was opened, and not lost since."""
        return self._tenancy is not None and self._tenancy.is_open

    async def opened(self) -> Provider:
        """The provider itself, past the breaker, for work that takes long. Raises: BackendError."""
        if self._tenancy is None or self._tenancy.failed:
            self._tenancy = _Tenancy(self._opener, f"connection {self.id}")
        try:
            return await self._tenancy.provider()
        except ConfigurationError as error:
            raise BackendUnavailableError(self.dependency.name, str(error)) from error

    async def health(self) -> ProviderHealth:
        """How it is now; never raises."""
        return await examined(self.opened, self._clock)

    async def close(self) -> None:
        """Close the provider, if it was opened."""
        if self._tenancy is not None:
            await self._tenancy.end()

    async def _ping(self) -> str:
        health = await (await self.opened()).health()
        if health.status is Status.UNAVAILABLE:
            raise BackendUnavailableError(self.dependency.name, health.error or "it did not answer")
        count = "" if health.collections is None else f", {health.collections} collections"
        return f"{self.provider}{count}"


class Connections(Mapping[str, Connection]):
    """The connections by id."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = {connection.id: connection for connection in connections}

    def __getitem__(self, id_: str) -> Connection:
        return self._connections[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    def known(self, id_: str) -> Connection:
        """A connection by its id. Raises: NotFoundError."""
        found = self._connections.get(id_)
        if found is None:
            raise NotFoundError(f"Connection '{id_[:64]}' not found; known are {', '.join(self._connections)}")
        return found

    def place(self, text: str) -> CollectionRef:
        """What `connection:name` means; without the id of a connection in front, all of it is a name."""
        connection, colon, name = text.partition(":")
        if colon and connection in self._connections:
            return CollectionRef(name, connection)
        return CollectionRef(text)


@asynccontextmanager
async def closing(connections: Connections) -> AsyncIterator[Connections]:
    """Close all that were opened at the end of the block, the last one first."""
    try:
        yield connections
    finally:
        for connection in reversed(list(connections.values())):
            await connection.close()


async def examined(provider: Callable[[], Awaitable[Provider]], clock: Callable[[], float]) -> ProviderHealth:
    """How a provider is, asked within a bound; never raises."""
    started = clock()

    async def ask() -> ProviderHealth:
        return await (await provider()).health()

    try:
        return await Deadline.after(PROBE_S, clock).bound("provider", ask())
    except BackendError as failure:
        error = str(failure)
    except Exception as failure:  # noqa: BLE001  (a stranger's provider may do anything)
        error = f"It failed: {sentence_of(failure)}."
    return ProviderHealth(Status.UNAVAILABLE, datetime.now(UTC), (clock() - started) * 1000.0, error=error)


class _Tenancy:
    """A provider held open by a task of its own, since it must be closed by the task that opened it."""

    def __init__(self, opener: Opener, name: str) -> None:
        self._opened: asyncio.Future[Provider] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task = asyncio.create_task(self._hold(opener), name=name)

    @property
    def failed(self) -> bool:
        return self._task.done()

    @property
    def is_open(self) -> bool:
        return self._opened.done() and not self._task.done()

    async def provider(self) -> Provider:
        # A caller that gives up must not end an opening that others wait for.
        return await asyncio.shield(self._opened)

    async def end(self) -> None:
        self._leave.set()
        if not self._opened.done():
            self._task.cancel()
        await asyncio.wait({self._task})

    async def _hold(self, opener: Opener) -> None:
        try:
            async with opener() as provider:
                self._opened.set_result(provider)
                await self._leave.wait()
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)
            self._opened.exception()  # if nobody waits any more, it is no news
        finally:
            self._opened.cancel()

"""Opens the connections of collections, each with its provider and embedder."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from pydantic import BaseModel

from rag_context.collections.addresses import AllowedAddresses
from rag_context.collections.collections import Collections
from rag_context.collections.connections import DEFAULT, Connection, Connections, Opener, closing
from rag_context.collections.embedding import TextEmbedder
from rag_context.collections.registry import ProviderRegistry, Registered
from rag_context.embedders.cached import CachedEmbedder
from rag_context.errors import ConfigurationError, InvalidInputError
from rag_context.resilience.admission import Admissions
from rag_context.resilience.dependency import Dependency
from rag_context.service.collections import CollectionService
from rag_context.settings import ConnectionSettings, Settings
from rag_context.wiring.embedder import open_embedder
from rag_context.wiring.providers import provider_registry

_DEFAULT = ConnectionSettings(provider="embedded")


@asynccontextmanager
async def open_connections(
    settings: Settings, registry: ProviderRegistry, own: TextEmbedder | None = None
) -> AsyncIterator[Connections]:
    """The configured connections, none of them opened yet; `default` is the data directory unless it is configured.

    Args:
        settings: the configuration.
        registry: the provider kinds.
        own: the embedder of connections without one of their own.

    Raises:
        ConfigurationError: a connection can never work.
    """
    tables = {DEFAULT: _DEFAULT, **settings.connections}
    openers = {id_: _opener(id_, chosen, registry) for id_, chosen in tables.items()}
    async with AsyncExitStack() as stack:
        made = []
        for id_, chosen in tables.items():
            embedder = own if chosen.embedder is None else await _embedder(id_, settings, chosen, stack)
            made.append(Connection(id_, chosen.provider, openers[id_], embedder))
        yield await stack.enter_async_context(closing(Connections(made)))


@asynccontextmanager
async def open_collection_service(
    settings: Settings, own: TextEmbedder, admissions: Admissions
) -> AsyncIterator[CollectionService]:
    """Open the use cases of collections.

    Raises:
        ConfigurationError: a connection can never work.
    """
    registry = provider_registry(settings)
    allowed = AllowedAddresses(settings.server.test_addresses, tuple(_addresses(settings, registry)))
    async with open_connections(settings, registry, own) as connections:
        service = CollectionService(Collections(connections), registry, admissions, allowed)
        try:
            yield service
        finally:
            await service.close()


@asynccontextmanager
async def open_all_connections(settings: Settings) -> AsyncIterator[Connections]:
    """The configured connections without embedders, to copy stored vectors.

    Raises:
        ConfigurationError: a connection can never work.
    """
    async with open_connections(settings, provider_registry(settings)) as connections:
        yield connections


def _addresses(settings: Settings, registry: ProviderRegistry) -> Iterator[str]:
    """The addresses of all connections."""
    for id_, chosen in settings.connections.items():
        registered = _known(id_, chosen, registry)
        yield from registered.addresses(_configuration(id_, chosen, registered))


def _opener(id_: str, chosen: ConnectionSettings, registry: ProviderRegistry) -> Opener:
    registered = _known(id_, chosen, registry)
    return partial(registered.open, _configuration(id_, chosen, registered))


def _known(id_: str, chosen: ConnectionSettings, registry: ProviderRegistry) -> Registered:
    registered = registry.get(chosen.provider)
    if registered is None:
        known = ", ".join(dict.fromkeys(one.name for one in registry))
        raise ConfigurationError(
            f"connections.{id_}.provider is {chosen.provider!r}, which is unknown; choose one of {known}."
        )
    if not registered.available:
        raise ConfigurationError(
            f"connections.{id_}: provider {chosen.provider!r} is not available: {registered.reason}"
        )
    return registered


def _configuration(id_: str, chosen: ConnectionSettings, registered: Registered) -> BaseModel:
    try:
        return registered.validated(chosen.configuration)
    except InvalidInputError as error:
        raise ConfigurationError(f"connections.{id_}: {error}") from error


async def _embedder(id_: str, settings: Settings, chosen: ConnectionSettings, stack: AsyncExitStack) -> TextEmbedder:
    configured = settings.model_copy(update={"embedder": chosen.embedder})
    embedder = CachedEmbedder(await stack.enter_async_context(open_embedder(configured)))
    return TextEmbedder(embedder, Dependency(f"embedder of connection {id_}", embedder.ping))

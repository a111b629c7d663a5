"""Use cases of collections over providers that are open."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from rag_context.collections.collection_service import CollectionService
from rag_context.collections.collections import Collections
from rag_context.collections.provider_connections import DEFAULT, PROBE_S, Connections, ProviderConnection, TextEmbedder
from rag_context.collections.registry import ProviderRegistry
from rag_context.ports.provider import Provider
from rag_context.resilience.dependency import Dependency
from rag_context.testing.fakes import FakeEmbedder
from tests.collections.memory_collections import MemoryCollections

DIMENSION = 64
"""Of the embedder that stands in for the server's own."""


@asynccontextmanager
async def kept(provider: Provider) -> AsyncIterator[Provider]:
    """A provider that another program closes."""
    yield provider


def text_embedder(embedder: FakeEmbedder) -> TextEmbedder:
    return TextEmbedder(embedder, Dependency("embedder", embedder.ping, probe_s=PROBE_S))


def connections_to(
    providers: Mapping[str, Provider], embedder: FakeEmbedder | None = None, kind: str = "memory"
) -> Connections:
    """Connections by id, each to a provider that is open."""
    own = text_embedder(embedder or FakeEmbedder())
    return Connections([ProviderConnection(id_, kind, partial(kept, p), own) for id_, p in providers.items()])


def service_over(
    providers: Mapping[str, Provider],
    embedder: FakeEmbedder | None = None,
    registry: ProviderRegistry | None = None,
    kind: str = "memory",
) -> CollectionService:
    """The use cases over providers that are open, all of one kind."""
    return CollectionService(
        Collections(connections_to(providers, embedder, kind)), registry or ProviderRegistry((), lambda: ())
    )


def memory_service() -> CollectionService:
    return service_over({DEFAULT: MemoryCollections()})

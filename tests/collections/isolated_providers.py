"""Providers on servers that tests share: each gets a prefix of its own, and leaves nothing behind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from qdrant_client import AsyncQdrantClient

from rag_context.ports.provider import Provider
from rag_context.stores.chroma.chroma_collections import open_chroma_collections
from rag_context.stores.postgres.collections import open_postgres_collections
from rag_context.stores.qdrant.qdrant_api import Transport
from rag_context.stores.qdrant.qdrant_collections import open_qdrant_collections
from tests.servers.qdrant import Endpoint


@asynccontextmanager
async def qdrant_collections(server: Endpoint, *, transport: Transport = "http") -> AsyncIterator[Provider]:
    """A provider on a Qdrant server, without collections."""
    prefix = f"test-{uuid4().hex[:16]}"
    async with open_qdrant_collections(
        server.url, prefix=prefix, api_key=server.api_key, transport=transport, grpc_port=server.grpc_port
    ) as provider:
        yield provider
        await drop_all(provider)
    client = AsyncQdrantClient(server.url, api_key=server.api_key, check_compatibility=False)
    await client.delete_collection(f"{prefix}-catalogue")
    await client.close()


@asynccontextmanager
async def postgres_collections(url: str) -> AsyncIterator[Provider]:
    """A provider on a database that tests share one after the other, without collections."""
    async with open_postgres_collections(url) as provider:
        yield provider
        await drop_all(provider)


@asynccontextmanager
async def chroma_collections(place: str | Path) -> AsyncIterator[Provider]:
    """A provider on a Chroma server, or on a folder in this process, without collections."""
    prefix = f"test-{uuid4().hex[:16]}"
    async with open_chroma_collections(place, prefix=prefix) as provider:
        yield provider
        await drop_all(provider)


async def drop_all(provider: Provider) -> None:
    """Remove all collections of a provider."""
    for collection in await provider.collections():
        if not collection.foreign:
            await provider.drop(collection.name)

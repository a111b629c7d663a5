"""Connections that are reset as they are made, on the event loop that the server runs on."""

import asyncio
import random
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import pytest
import uvloop

from rag_context.embedders.openai_embedder import OpenAIEmbedder
from rag_context.errors import BackendUnavailableError
from rag_context.stores.chroma import open_chroma
from rag_context.stores.mongodb import open_mongodb
from rag_context.stores.qdrant import CollectionPlan, open_qdrant
from rag_context.stores.redis import open_redis
from tests.servers.process import HOST

ROUNDS, TOGETHER = 60, 5
LATEST_S = 0.001
"""Whether a reset comes while the loop is busy with the new connection is a matter of chance."""

Ping = Callable[[], Awaitable[str]]


@asynccontextmanager
async def embedder(address: str) -> AsyncIterator[Ping]:
    client = OpenAIEmbedder(f"http://{address}", model="stub", check_every_s=3600.0)
    try:
        yield client.ping
    finally:
        await client.close()


@asynccontextmanager
async def qdrant(address: str) -> AsyncIterator[Ping]:
    async with open_qdrant(f"http://{address}", CollectionPlan("c")) as vectors:
        yield vectors.ping


@asynccontextmanager
async def chroma(address: str) -> AsyncIterator[Ping]:
    async with open_chroma(f"http://{address}", "resets") as vectors:
        yield vectors.ping


@asynccontextmanager
async def mongodb(address: str) -> AsyncIterator[Ping]:
    async with open_mongodb(f"mongodb://{address}/x?directConnection=true&serverSelectionTimeoutMS=1") as store:
        yield store.documents.ping


@asynccontextmanager
async def redis(address: str) -> AsyncIterator[Ping]:
    async with open_redis(f"redis://{address}/0", "c") as cache:
        yield cache.ping


@pytest.fixture
def resetting() -> Iterator[str]:
    """A server that resets every connection before its client has checked it."""
    with socket.create_server((HOST, 0)) as listener:
        rng = random.Random(1)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    time.sleep(rng.uniform(0.0, LATEST_S))
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"{HOST}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("opened", [embedder, qdrant, chroma, mongodb, redis])
def test_a_connection_that_is_reset_as_it_is_made_is_a_server_that_cannot_be_reached(
    opened: Callable[[str], AbstractAsyncContextManager[Ping]], resetting: str
) -> None:
    async def ask() -> None:
        async with opened(resetting) as ping:
            for _ in range(ROUNDS):
                came = await asyncio.gather(*(ping() for _ in range(TOGETHER)), return_exceptions=True)
                assert [each for each in came if not isinstance(each, BackendUnavailableError)] == []

    uvloop.run(ask())

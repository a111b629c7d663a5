"""The three ways to the memory, all made to look alike."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from rag_context.client import AsyncClient, Client, open_context
from rag_context.client.blocking_client import Collections
from rag_context.settings import Settings

CLIENT_KINDS = ("client", "async client", "in process")


class Threaded:
    """A `Client`, each call of which is made in a thread."""

    def __init__(self, client: Client | Collections) -> None:
        self._client = client

    @property
    def collections(self) -> "Threaded":
        assert isinstance(self._client, Client)
        return Threaded(self._client.collections)

    def on(self, connection: str) -> "Threaded":
        assert isinstance(self._client, Collections)
        return Threaded(self._client.on(connection))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def stream(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
            for item in await asyncio.to_thread(lambda: list(method(*arguments, **named))):
                yield item

        async def run(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **named)

        return stream if name in {"bulk", "list_all"} else run


@asynccontextmanager
async def opened(client_kind: str, url: str, data_dir: Path) -> AsyncIterator[AsyncClient]:
    """The memory of a server, or one in this process."""
    match client_kind:
        case "client":
            with Client(url, api_key="") as client:
                yield cast("AsyncClient", Threaded(client))
        case "async client":
            async with AsyncClient(url, api_key="") as async_client:
                yield async_client
        case _:
            async with open_context(Settings(data_dir=data_dir)) as context:
                yield context

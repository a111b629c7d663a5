"""The whole memory inside this process: the same application as a server's, without a socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from rag_context.api.wire import Vocabulary
from rag_context.client.async_client import AsyncClient
from rag_context.server.options import ServerOptions
from rag_context.settings import Settings, load_settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

MODEL_WAIT_S = 10.0
"""How long opening waits for the model, so that the first search has both retrievers."""

CALLS_AT_ONCE = 100
"""Calls that are worked on at the same time, as many as an `AsyncClient` has connections; further ones wait."""

_URL = "http://localhost"


@asynccontextmanager
async def open_context(settings: Settings | None = None, *, data_dir: Path | None = None) -> AsyncIterator[AsyncClient]:
    """Open the memory in this process; several processes may use one data directory at once.

    Args:
        settings: the configuration; else that of files and environment.
        data_dir: folder of the index; takes the place of the configured one.

    Raises:
        ConfigurationError: The configuration cannot work.
    """
    if settings is None:
        settings = load_settings(flags={"data_dir": data_dir}, cwd=Path.cwd()).settings
    elif data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir})
    # A client of a server starts faster without the libraries of the server, the model and the stores.
    from rag_context.server.app import create_app  # noqa: PLC0415
    from rag_context.wiring import open_service  # noqa: PLC0415

    async with open_service(settings) as service:
        await service.wait_ready(MODEL_WAIT_S)
        app = create_app(service, _options(settings))
        async with AsyncClient(_URL, api_key="", transport=Inside(app)) as context:
            yield context


class Inside(httpx2.AsyncBaseTransport):
    """Requests that go straight to the application."""

    def __init__(self, app: "ASGIApp") -> None:
        self._transport = httpx2.ASGITransport(app)
        self._room = asyncio.Semaphore(CALLS_AT_ONCE)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Run one request."""
        async with self._room:
            return await self._transport.handle_async_request(request)


def _options(settings: Settings) -> ServerOptions:
    """Options for one caller, who needs no key."""
    vocabulary = Vocabulary.extended(settings.vocabulary.content_types, settings.vocabulary.categories)
    return ServerOptions(
        vocabulary=vocabulary,
        body_bytes=settings.server.max_body_bytes,
        index_body_bytes=settings.server.max_index_body_bytes,
        collection_body_bytes=settings.server.max_collection_body_bytes,
        bulk_concurrency=settings.indexing.concurrency,
    )

"""The real application over any provider, without a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from rag_context.collections.collection_service import CollectionService
from rag_context.server.app import create_app
from rag_context.server.options import ServerOptions
from tests.server.stub_service import StubService, as_service


@asynccontextmanager
async def asgi_client(service: CollectionService, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the application."""
    stub = StubService()
    stub.collections = service
    app = create_app(as_service(stub), ServerOptions(**options))
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        yield client

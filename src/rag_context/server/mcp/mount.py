"""`/mcp` in the application: its library is loaded by the first request that needs it.

It takes most of a second and some forty megabytes, which a server without such clients should not pay.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from rag_context.api.failure import ErrorCode
from rag_context.server.options import ServerOptions
from rag_context.server.requests import RequestRejectedError
from rag_context.server.tools import Registry, Service

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[ASGIApp]]


class McpMount:
    """The ASGI endpoint of `/mcp`, between `running` and its end."""

    def __init__(self, service: Service, tools: Registry, options: ServerOptions) -> None:
        self._service = service
        self._tools = tools
        self._options = options
        self._keeper: asyncio.Task[None] | None = None
        self._endpoint: asyncio.Future[ASGIApp] | None = None
        self._running = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if not self._running:
            raise RequestRejectedError(503, ErrorCode.SERVICE_UNAVAILABLE, "Not ready yet", retry_after="1")
        if self._endpoint is None:
            self._endpoint = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._endpoint), name="mcp")
        # One request that gives up must not take the opening from the others.
        endpoint = await asyncio.shield(self._endpoint)
        await endpoint(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let requests in for the time of the block."""
        self._running = True
        try:
            yield
        finally:
            self._running = False
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.wait({self._keeper})
            self._keeper = self._endpoint = None

    async def _keep(self, endpoint: "asyncio.Future[ASGIApp]") -> None:
        """Open the endpoint and keep it open; a task of its own, for what it opens must be closed where it was."""
        try:
            opener = await asyncio.to_thread(_load, self._service, self._tools, self._options)
            async with opener() as opened:
                endpoint.set_result(opened)
                await asyncio.Event().wait()
        except Exception as error:
            if endpoint.done():
                raise
            endpoint.set_exception(error)
            self._endpoint = None  # what was missing, such as descriptors or memory, may be there for the next request


def _load(service: Service, tools: Registry, options: ServerOptions) -> Opener:
    from rag_context.server.mcp.protocol import Memory  # noqa: PLC0415
    from rag_context.server.mcp.streamable_http import open_endpoint  # noqa: PLC0415

    return lambda: open_endpoint(Memory(service, tools), options)

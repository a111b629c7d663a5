"""The HTTP application: routes over the registry, inside the middleware."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from rag_context._version import __version__
from rag_context.api import index, maintenance, operations, parsing
from rag_context.api.handlers import CallContext
from rag_context.client.address import CHALLENGE, proof_of
from rag_context.domain.journal import acting
from rag_context.memory import accesses
from rag_context.memory.service import Service
from rag_context.server import bulk, embedding_routes, middleware, openapi, pages, requests
from rag_context.server.collection_routes import collection_routes
from rag_context.server.options import METADATA, ServerOptions
from rag_context.server.tools import Registry, Tool, build_tools

_NDJSON_KINDS = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")


@dataclass(eq=False)
class App:
    """The ASGI application. `tools` is its registry, which MCP shares; `router` is what stands behind the checks."""

    service: Service
    options: ServerOptions
    tools: Registry
    router: ASGIApp
    stack: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.stack(scope, receive, send)


def create_app(
    service: Service, options: ServerOptions, *, front: Callable[[ASGIApp], ASGIApp] = lambda router: router
) -> App:
    """The application over an open service; `front` stands between the checks of a request and the routes."""
    tools = build_tools(service, options.vocabulary)
    handlers = _Handlers(service, options, tools)
    mcp = McpMount(service, tools, options)

    routes = [*handlers.routes(), *collection_routes(service, options), Route("/mcp", mcp)]
    router = Router(routes, redirect_slashes=False, lifespan=lambda _app: mcp.running())
    return App(service, options, tools, router, middleware.guarded(front(router), options))


class _Bulk:
    def __init__(self, service: Service, options: ServerOptions) -> None:
        self._service = service
        self._options = options
        self._model = index.BulkLine.with_vocabulary(options.vocabulary)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        opened = requests.http_request(scope)
        requests.require(operations.Access.ADD, opened)
        requests.check_media_type(opened, _NDJSON_KINDS, "Send Content-Type: application/x-ndjson")
        run = bulk.BulkRun(
            service=self._service.bound_to(requests.caller_id(opened).bounds),
            model=self._model,
            line_bytes=self._options.bulk_line_bytes,
            concurrency=self._options.bulk_concurrency,
            request_id=opened.request_id,
        )
        caller, client = requests.caller_id(opened), requests.actor_of(opened)
        with (
            accesses.recording("POST /bulk", key=caller.key, client=client),
            acting(client, only_adds=caller.only_adds),
        ):
            await run.run(receive, send)


class _Handlers:
    def __init__(self, service: Service, options: ServerOptions, tools: Registry) -> None:
        self._service = service
        self._options = options
        self._tools = tools
        self._descriptions: dict[str, asyncio.Future[requests.Reply]] = {}

    def routes(self) -> list[Route]:
        gets: dict[str, requests.Handler] = {
            "/health": self._health,
            "/live": self._live,
            "/ready": self._ready,
            "/metrics": self._metrics,
            "/tools": self._described,
            "/openapi.json": self._described,
            "/docs": self._page,
            "/": self._page,
            f"{pages.PAGE_PREFIX}{{name}}": self._page,
        }
        if self._options.issuer is not None:
            gets[self._options.issuer.metadata_path] = gets[METADATA] = self._whose_tokens
        return [
            Route("/tools/{name}", requests.Endpoint(self._run_tool)),
            Route("/bulk", _Bulk(self._service, self._options), methods=["POST"]),
            Route("/bulk/versions", requests.Endpoint(self._versions), methods=["POST"]),
            *embedding_routes.EmbeddingHandlers(self._service).routes(),
            Route(pages.EVENTS_PATH, pages.Events(self._service), methods=["GET"]),
            *(Route(path, requests.Endpoint(handle), methods=["GET"]) for path, handle in gets.items()),
        ]

    async def _whose_tokens(self, scope: Scope, receive: Receive) -> requests.Reply:
        issuer = self._options.issuer
        return requests.Reply.json(issuer.metadata() if issuer is not None else {})

    async def _run_tool(self, scope: Scope, receive: Receive) -> requests.Reply:
        opened = requests.http_request(scope)
        name = scope["path_params"]["name"]
        tool = self._tools.get(name)
        if tool is None:
            raise requests.RequestRejectedError(404, f"Tool {name[: embedding_routes.NAME_CHARS]} not found")
        requests.require(tool.access, opened)
        request = await _read_request(tool, opened, scope, receive)
        may = opened.caller is not None and opened.caller.access.allows(operations.Access.WRITE)
        with acting(requests.actor_of(opened)):
            context = CallContext(opened.request_id, caller=requests.caller_id(opened), may_write=may)
            answer = tool.run(request, context)
            response = await (
                requests.while_connected(receive, answer) if tool.read_only and opened.body_read else answer
            )
        return requests.Reply(response.to_json())

    async def _versions(self, scope: Scope, receive: Receive) -> requests.Reply:
        requests.check_media_type(requests.http_request(scope), requests.JSON_KINDS, requests.SEND_JSON)
        request = parsing.read_json(index.VersionsRequest, await requests.read_body(receive))
        return requests.Reply((await self._service.missing(request)).to_json())

    async def _health(self, scope: Scope, _receive: Receive) -> requests.Reply:
        report = await self._service.health()
        caller = requests.http_request(scope).caller
        if caller is None or caller.bounds is not None:
            return requests.Reply(maintenance.BareHealth(healthy=report.healthy).to_json())
        return requests.Reply(report.to_json())

    async def _live(self, scope: Scope, _receive: Receive) -> requests.Reply:
        alive = {"status": "ok", "instance": self._options.instance_id, "version": __version__}
        challenge = requests.http_request(scope).header(CHALLENGE.encode())
        if challenge and self._options.secret:
            alive["proof"] = proof_of(self._options.secret, challenge)
        return requests.Reply.json(alive)

    async def _ready(self, _scope: Scope, _receive: Receive) -> requests.Reply:
        if not await self._service.ready():
            raise requests.RequestRejectedError(503, "Not ready yet", retry_after_s=1)
        return requests.Reply.json({"status": "ready"})

    async def _metrics(self, _scope: Scope, _receive: Receive) -> requests.Reply:
        return requests.Reply(await self._service.prometheus(), media_type=CONTENT_TYPE_LATEST.encode())

    async def _page(self, scope: Scope, _receive: Receive) -> requests.Reply:
        page = "docs.html" if scope["path"] == "/docs" else "index.html"
        return pages.page_part(scope["path_params"].get("name", page), requests.http_request(scope))

    async def _described(self, scope: Scope, _receive: Receive) -> requests.Reply:
        """A description of this server, made once, in a thread: it takes most of a second, in which others ask."""
        path = scope["path"]
        made = self._descriptions.get(path)
        if made is None or (made.done() and made.exception() is not None):
            made = self._descriptions[path] = asyncio.ensure_future(asyncio.to_thread(self._description, path))
        return await asyncio.shield(made)

    def _description(self, path: str) -> requests.Reply:
        if path == "/tools":
            return requests.Reply.json({"tools": self._tools.listing()})
        return requests.Reply.json(openapi.build_openapi(self._tools, self._options, __version__))


async def _read_request(tool: Tool[Any], opened: requests.HttpRequest, scope: Scope, receive: Receive) -> Any:
    method = scope["method"]
    if method == "POST":
        if opened.has_body():
            requests.check_media_type(opened, requests.JSON_KINDS, requests.SEND_JSON)
        return parsing.read_json(tool.request, await requests.read_body(receive) or b"{}")
    if tool.in_url and method in {"GET", "HEAD"}:
        return parsing.read_fields(tool.request, requests.query_fields(scope))
    allowed = "GET, HEAD, POST" if tool.in_url else "POST"
    raise requests.RequestRejectedError(405, "Method not allowed", allow=allowed)


logger = logging.getLogger(__name__)

MODEL_S: Final = 30.0
"""How long loading MCP's library waits for the model, which searches need first."""

LOAD_AFTER_S: Final = 3.0
"""How long it then leaves the processor to the first requests."""

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[ASGIApp]]


class McpMount:
    """The ASGI endpoint of `/mcp`, between `running` and its end.

    Agents wait a second or so for the list of tools, and loading its library takes most of that, on a busy machine
    several. So it is loaded as soon as the model is there, or by the first request.
    """

    def __init__(self, service: Service, tools: Registry, options: ServerOptions) -> None:
        self._service = service
        self._tools = tools
        self._options = options
        self._keeper: asyncio.Task[None] | None = None
        self._endpoint: asyncio.Future[ASGIApp] | None = None
        self._running = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._running:
            raise requests.RequestRejectedError(503, "Not ready yet", retry_after_s=1)
        # One request that gives up must not take the opening from the others.
        endpoint = await asyncio.shield(self._opened())
        await endpoint(scope, receive, send)

    def _opened(self) -> "asyncio.Future[ASGIApp]":
        if self._endpoint is None:
            self._endpoint = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._endpoint), name="mcp")
        return self._endpoint

    async def _open_soon(self) -> None:
        if await self._service.wait_ready(MODEL_S):
            await asyncio.sleep(LOAD_AFTER_S)
            opened = self._opened()
            await asyncio.wait({opened})
            if not opened.cancelled() and opened.exception() is None:  # else the next request tries it, and reports it
                logger.info("agents are answered at once")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._running = True
        soon = asyncio.create_task(self._open_soon(), name="mcp soon")
        try:
            yield
        finally:
            self._running = False
            soon.cancel()
            await asyncio.wait({soon})
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

    for tool in tools.values():
        _ = tool.input_schema  # computed here, in a thread, and kept: the list of tools has them all
    return lambda: open_endpoint(Memory(service, tools), options)

"""The protocol's server over the registry: what is listed, called, read and prompted, and how failures are reported."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit
from urllib.request import url2pathname

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from rag_context._version import __version__
from rag_context.api.handlers import CallContext
from rag_context.api.operations import Access, Operation, Reach
from rag_context.api.parsing import ErrorCode, read_fields
from rag_context.api.search import SearchRequest
from rag_context.api.stored_documents import GetRequest, ListedDocument, ListRequest
from rag_context.api.toolsets import MEMORY_TOOLS, Toolsets
from rag_context.api.wire import WireRequest, WireResponse
from rag_context.domain.callers import ANONYMOUS, CallerId, cached_apart
from rag_context.domain.documents import DECISION, DOCUMENTATION
from rag_context.errors import InvalidInputError, NotFoundError, RagContextError
from rag_context.logs import REQUEST_ID
from rag_context.memory import accesses
from rag_context.memory.service import Service
from rag_context.server import failures, options, requests
from rag_context.server.mcp.handshake import DESCRIPTION, LISTS_TTL_MS, NAME, PROMPTED_BY, TITLE, instructions
from rag_context.server.mcp.messages import client_name
from rag_context.server.mcp.readable import for_clients, for_models, readable
from rag_context.server.tools import Registry, Tool

PREFIX = "rag-context://documents/"
_PLAIN = "text/plain"
TEMPLATE = types.ResourceTemplate(
    name="document",
    title="Document",
    uri_template=f"{PREFIX}{{id}}",
    description="A document of the shared memory by the documentId that searches and lists give.",
    mime_type=_PLAIN,
)
PAGE = 50
_NOT_FOUND_BEFORE_2026 = -32002
_MIME = {DOCUMENTATION: "text/markdown"}


def _resource(listed: ListedDocument) -> types.Resource:
    return types.Resource(
        uri=PREFIX + quote(listed.document_id, safe=""),
        name=listed.title or listed.source,
        description=f"{listed.content_type} from {listed.source}, session {listed.session_id}",
        mime_type=_MIME.get(listed.content_type, _PLAIN),
        annotations=types.Annotations(last_modified=listed.timestamp.isoformat()),
    )


RECALL = types.Prompt(
    name="recall",
    title="Recall",
    description="Look in the shared memory for what is known about a topic, and answer from it with its sources.",
    arguments=[types.PromptArgument(name="topic", description="A question, a name or an error code", required=True)],
)
REMEMBER = types.Prompt(
    name="remember",
    title="Remember",
    description="Keep something in the shared memory, so that other agents and later sessions find it.",
    arguments=[
        types.PromptArgument(name="text", description="What to keep", required=True),
        types.PromptArgument(
            name="kind", description="chat, decision, code or documentation; default: decision", required=False
        ),
    ],
)
_INDEX = "rag_context_index"


def _prompt(name: str, **values: str) -> str:
    """The text of a prompt, a paragraph in one line."""
    paragraphs = Path(__file__).with_name("prompts").joinpath(f"{name}.txt").read_text("utf-8").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs).format(**values)


def _remember(index: Tool[Any], text: str, kind: str) -> str:
    try:
        # What the model still has to choose is filled in with something that fits.
        read_fields(index.request, {"content": text, "contentType": kind, "sessionId": "s", "source": "s"})
    except InvalidInputError as error:
        raise MCPError(types.INVALID_PARAMS, f"Prompt remember: {error}") from None
    return _prompt("remember", kind=kind, text=text)


def _check(known: types.Prompt, arguments: Mapping[str, str]) -> None:
    """Raises: MCPError (an argument is unknown or missing)."""
    names = {argument.name: argument for argument in known.arguments or ()}
    for name in arguments:
        if name not in names:
            raise MCPError(
                types.INVALID_PARAMS, f"Prompt {known.name} has no argument {name[:64]!r}; known are {', '.join(names)}"
            )
    for name, argument in names.items():
        if argument.required and not arguments.get(name, "").strip():
            raise MCPError(types.INVALID_PARAMS, f"Prompt {known.name} needs the argument {name!r}")


logger = logging.getLogger(__name__)

_NAME_CHARS = 128
ROOTS_S = 5.0
"""How long a client may take to say in which folders it works."""

_LISTS = CacheHint(ttl_ms=LISTS_TTL_MS, scope="private")
_CHANGING = CacheHint(ttl_ms=0, scope="private")

_INTRODUCTIONS = frozenset({"initialize", "server/discover"})

Context = ServerRequestContext[Any, Any]
_Page: TypeAlias = types.PaginatedRequestParams | None


async def already_ready() -> None:
    """The memory can be used at once."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The open memory. `ready` is awaited before work, and may take its time while a model loads."""

    service: Service
    tools: Registry
    ready: Callable[[], Awaitable[object]] = already_ready


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who calls, under which correlation id, and which tools are offered to them."""

    request_id: str
    access: Access
    toolsets: Toolsets
    caller: CallerId = ANONYMOUS
    client: str | None = None
    """What the client's program calls itself."""
    structured: bool = False
    """Whether answers come as structured content, for programs, instead of as text, for models. Never as both: of
    clients that are given both, some show the model both, and some the structured half alone."""
    issuer: options.TrustedIssuer | None = None
    """Whose token the caller bears."""


_CLIENT: ContextVar[RequestContext] = ContextVar("client")


class McpServer:
    """The handlers of the protocol's requests.

    The memory may be waited for while it is opened. Prompts that need other tools than `context_of` offers are not
    listed.
    """

    def __init__(
        self, memory: Callable[[], Awaitable[Memory]], context_of: Callable[[Context], RequestContext]
    ) -> None:
        self._memory = memory
        self._context_of = context_of
        self._listed: dict[bool, dict[str, types.Tool]] = {}

    def server(self) -> Server[Any]:
        server: Server[Any] = Server(
            NAME,
            version=__version__,
            title=TITLE,
            description=DESCRIPTION,
            cache_hints={
                "tools/list": _LISTS,
                "prompts/list": _LISTS,
                "resources/templates/list": _LISTS,
                "server/discover": _LISTS,
                "resources/list": _CHANGING,
                "resources/read": _CHANGING,
            },
            get_tool_input_schema=self._known_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        server.middleware.append(self._guarded)
        return server

    async def _list_tools(self, _context: Context, params: _Page) -> types.ListToolsResult:
        _one_page(params)
        tools = (await self._memory()).tools
        client = _CLIENT.get()
        if client.structured not in self._listed:
            self._listed[client.structured] = {
                tool.name: listed_tool(tool, structured=client.structured) for tool in tools.values()
            }
        listed = self._listed[client.structured]
        # A tool that this key may not use would only be tried in vain.
        is_bound = client.caller.bounds is not None
        return types.ListToolsResult(
            tools=[
                listed[tool.name]
                for tool in tools.only(client.toolsets).values()
                if client.access.allows(tool.access) and not (is_bound and tool.reach is Reach.EVERYTHING)
            ]
        )

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        memory = await self._memory()
        client = _CLIENT.get()
        tool = memory.tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:_NAME_CHARS]}")
        if tool.toolset not in client.toolsets:
            raise MCPError(
                types.INVALID_PARAMS,
                f"{tool.name} is not offered here: add the set {tool.toolset} (`--tools {tool.toolset}`, or "
                f"`?tools={tool.toolset}` behind the address)",
            )
        try:
            if not client.access.allows(tool.access):
                raise requests.lacking(tool.access, client.access, client.issuer)
            request = _by_client(read_fields(tool.request, params.arguments or {}), client.client)
            await memory.ready()
            session = context.session
            call = CallContext(
                client.request_id,
                session.report_progress,
                client.caller,
                may_write=client.access.allows(Access.WRITE),
                client_roots=partial(_roots, session),
            )
            response = await tool.run(request, call)
        except (RagContextError, requests.RequestRejectedError) as error:
            # What the caller can act on does not fit the tool's own schema, so it is not structured content.
            failure = failures.failure_of(error, client.request_id).body
            if failure.code == ErrorCode.FORBIDDEN and isinstance(error, requests.RequestRejectedError):
                accesses.record(tool.name, "403", key=client.caller.key, client=client.client)
            headers = dict(getattr(error, "headers", ()))
            challenge = headers.get(b"www-authenticate")  # by which ChatGPT requests more rights
            meta = {"mcp/www_authenticate": [challenge.decode()]} if challenge else None
            return types.CallToolResult(content=_text(failure, structured=client.structured), is_error=True, _meta=meta)
        if not client.structured:
            return types.CallToolResult(content=_text(response, structured=False))
        body = json.loads(response.to_json())
        long = response.text_only & body.keys()
        structure = {name: value for name, value in body.items() if name not in long}
        # What is long stands in the readable text, and only there.
        return types.CallToolResult(content=_text(response, structured=not long), structured_content=structure)

    async def _list_resources(self, _context: Context, params: _Page) -> types.ListResourcesResult:
        cursor = params.cursor if params is not None else None
        try:
            page = await (await self._service()).listing(read_fields(ListRequest, {"limit": PAGE, "cursor": cursor}))
        except InvalidInputError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        resources = [_resource(document) for document in page.documents]
        return types.ListResourcesResult(resources=resources, next_cursor=page.next_cursor)

    async def _list_templates(self, _context: Context, params: _Page) -> types.ListResourceTemplatesResult:
        _one_page(params)
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri, is_modern = params.uri, context.protocol_version in MODERN_PROTOCOL_VERSIONS
        missing = types.INVALID_PARAMS if is_modern else _NOT_FOUND_BEFORE_2026
        not_found = MCPError(missing, f"Resource not found: {uri[:512]}", {"uri": uri[:512]})
        if not uri.startswith(PREFIX):
            raise not_found
        service = await self._service()
        try:
            request = read_fields(GetRequest, {"documentId": unquote(uri.removeprefix(PREFIX), errors="strict")})
            found = await service.get(request)
        except (InvalidInputError, NotFoundError, UnicodeDecodeError):
            raise not_found from None
        kind = _MIME.get(found.content_type, _PLAIN)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=found.content)]
        )

    async def _list_prompts(self, _context: Context, params: _Page) -> types.ListPromptsResult:
        _one_page(params)
        return types.ListPromptsResult(prompts=self._prompts())

    async def _get_prompt(self, _context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        arguments, offered = params.arguments or {}, self._prompts()
        known = next((prompt for prompt in offered if prompt.name == params.name), None)
        if known is None:
            names = " and ".join(prompt.name for prompt in offered) or "none"
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name[:128]}; known are {names}")
        _check(known, arguments)
        memory = await self._memory()
        await memory.ready()
        if known is RECALL:
            text = await self._recall(arguments["topic"])
        else:
            text = _remember(memory.tools[_INDEX], arguments["text"], arguments.get("kind", "").strip() or DECISION)
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=known.description, messages=[message])

    async def _recall(self, topic: str) -> str:
        try:
            request = read_fields(SearchRequest, {"query": topic, "agent": "prompt-recall"})
        except InvalidInputError as error:
            raise MCPError(types.INVALID_PARAMS, f"topic: {error}") from None
        response = await (await self._service()).search(request, CallContext(_CLIENT.get().request_id))
        return _prompt("recall", topic=topic, found=readable(response))

    async def _service(self) -> Service:
        return (await self._memory()).service.bound_to(_CLIENT.get().caller.bounds)

    def _prompts(self) -> list[types.Prompt]:
        client = _CLIENT.get()
        if PROMPTED_BY not in client.toolsets:
            return []
        return [RECALL, REMEMBER] if client.access.allows(Access.ADD) else [RECALL]

    def _known_schema(self, name: str) -> dict[str, Any] | None:
        tool = next((listed[name] for listed in self._listed.values() if name in listed), None)
        return tool.input_schema if tool is not None else None

    async def _guarded(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer for whatever a handler raises: nothing internal gets out."""
        client = self._context_of(ctx)
        request_id = client.request_id
        _CLIENT.set(client)
        REQUEST_ID.set(request_id)
        bounds = client.caller.bounds
        try:
            with nullcontext() if bounds is None else cached_apart(bounds):
                return _introduced(ctx.method, await call_next(ctx), client)
        except (MCPError, ValidationError):
            raise
        except RagContextError as error:
            sentence = failures.failure_of(error, request_id).body.error
            raise MCPError(types.INTERNAL_ERROR, sentence, {"requestId": request_id}) from None
        except Exception as error:
            logger.exception("unexpected %s in %s", type(error).__name__, ctx.method)
            raise MCPError(types.INTERNAL_ERROR, "Internal server error", {"requestId": request_id}) from None


def _introduced(method: str, result: HandlerResult, client: RequestContext) -> HandlerResult:
    """The result; one that introduces the server with the instructions for the tools that are offered."""
    if method not in _INTRODUCTIONS or not isinstance(result, dict):
        return result
    return {**result, "instructions": instructions(client.toolsets)}


def client_of(context: Context) -> str | None:
    params = context.session.client_params
    return client_name(params.client_info.name) if params is not None else None


def _by_client(request: WireRequest, client: str | None) -> WireRequest:
    if client is None or getattr(request, "agent", client) is not None:
        return request
    return request.model_copy(update={"agent": client})


async def _roots(session: ServerSession) -> list[str] | None:
    """The local folders that a client says it works in; None if it does not say."""
    capabilities = session.client_capabilities
    if capabilities is None or capabilities.roots is None or not session.can_send_request:
        return None
    try:
        found = await session.send_request(types.ListRootsRequest(), types.ListRootsResult, ROOTS_S)
    except MCPError as error:
        logger.warning("the client did not say in which folders it works: %s", error)
        return None
    urls = [urlsplit(str(root.uri)) for root in found.roots]
    return [url2pathname(url.path) for url in urls if url.scheme == "file" and url.netloc in ("", "localhost")]


def listed_tool(tool: Operation[Any, Any], *, structured: bool) -> types.Tool:
    """A tool as it is listed; `structured`: with the schema of its answers."""
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=for_models(tool.input_schema, tool.request.unlisted()),
        output_schema=for_clients(tool.output_schema) if structured else None,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
        # Claude Code keeps other tools back until its model looks for them.
        _meta={"anthropic/alwaysLoad": True} if tool.toolset in MEMORY_TOOLS else None,
    )


def _text(body: WireResponse, *, structured: bool) -> list[Any]:
    """One block: for a model to read, or the JSON, which clients that know no structured content read instead."""
    as_json = structured or body.is_json_text
    return [types.TextContent(type="text", text=body.to_json().decode() if as_json else readable(body))]


def _one_page(params: _Page) -> None:
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "Unknown cursor: this list has one page")

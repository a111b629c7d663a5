"""The MCP server in memory, over a service that can be broken."""

from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from typing import Any, cast

import mcp_types as types

from mcp import Client
from rag_context.api.operations import Access
from rag_context.api.toolsets import ALL_TOOLS, Toolsets
from rag_context.api.wire import Vocabulary
from rag_context.memory.service import Service
from rag_context.server.mcp.protocol import McpServer, Memory, RequestContext
from rag_context.server.tools import build_tools

REQUEST_ID = "r-1"
BOTH_ERAS = ("legacy", "2026-07-28")
"""How the official client connects: after a handshake, or each request by itself."""


def memory_of(service: object) -> Memory:
    """A memory over any service that fits."""
    fitting = cast("Service", service)
    return Memory(fitting, build_tools(fitting, Vocabulary()))


@asynccontextmanager
async def connected(
    service: object,
    access: Access = Access.WRITE,
    mode: str = "2026-07-28",
    toolsets: Toolsets = ALL_TOOLS,
    *,
    structured: bool = False,
) -> AsyncIterator[Client]:
    """The official client connected to the server."""
    memory = memory_of(service)

    async def opened() -> Memory:
        return memory

    server = McpServer(
        opened, lambda _context: RequestContext(REQUEST_ID, access, toolsets, structured=structured)
    ).server()
    async with Client(server, mode=cast("Any", mode)) as client:
        yield client


def read(result: types.CallToolResult) -> str:
    """What a model reads of an answer."""
    (block,) = result.content
    assert result.structured_content is None
    assert isinstance(block, types.TextContent)
    return block.text


def raw(result: types.CallToolResult) -> str:
    """The JSON of an answer for programs."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def check_portable(schema: Any, rejected: Set[str]) -> None:
    """Fail where a schema has, at any depth, one of these keys or an array of unknown items."""
    for item in schema if isinstance(schema, list) else ():
        check_portable(item, rejected)
    if isinstance(schema, dict):
        assert not rejected & schema.keys()
        assert schema.get("type") != "array" or "items" in schema
        for value in schema.values():
            check_portable(value, rejected)

"""The answer to `initialize` that is given before the library is loaded: the library's own, word for word."""

import json
import subprocess
import sys
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from rag_context.api.operations import Access, Toolset
from rag_context.server.mcp.handshake import BATCHING, INSTRUCTIONS, UNBATCHED, VERSIONS, answer_ahead
from rag_context.server.mcp.messages import negotiable
from rag_context.server.mcp.protocol import McpServer, Memory, RequestContext


def opening(**changed: Any) -> dict[str, Any]:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params, **changed}


async def by_the_library(message: dict[str, Any], toolset: Toolset) -> dict[str, Any]:
    """What the library answers to an opening request."""

    async def never() -> Memory:
        raise AssertionError

    server = McpServer(never, lambda _context: RequestContext("r", Access.WRITE), toolset).server()
    send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    answer_send, answer_receive = anyio.create_memory_object_stream[SessionMessage](1)
    async with anyio.create_task_group() as group:
        group.start_soon(server.run, receive, answer_send, server.create_initialization_options())
        await send.send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))
        answered = await answer_receive.receive()
        await send.aclose()
    await answer_receive.aclose()
    answer: dict[str, Any] = json.loads(answered.message.model_dump_json(by_alias=True, exclude_unset=True))
    return answer


@pytest.mark.parametrize("version", [*HANDSHAKE_PROTOCOL_VERSIONS, "1999-01-01", "2026-07-28", "2099-01-01", ""])
@pytest.mark.parametrize("toolset", Toolset)
async def test_it_is_what_the_library_would_say(version: str, toolset: Toolset) -> None:
    """P-3."""
    message = opening(id="ü-7")
    message["params"]["protocolVersion"] = version
    ahead = answer_ahead(json.dumps(message).encode(), toolset)
    assert ahead is not None
    assert json.loads(ahead) == await by_the_library(json.loads(negotiable(json.dumps(message).encode())), toolset)


def test_it_supports_the_revisions_of_the_library_except_the_one_with_batches() -> None:
    assert {*VERSIONS, BATCHING} == set(HANDSHAKE_PROTOCOL_VERSIONS)


def test_a_client_of_the_revision_with_batches_is_answered_in_the_one_before_it() -> None:
    message = opening()
    message["params"]["protocolVersion"] = BATCHING
    ahead = answer_ahead(json.dumps(message).encode(), Toolset.MEMORY)
    assert ahead is not None
    assert json.loads(ahead)["result"]["protocolVersion"] == UNBATCHED


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "initialize", "x": BATCHING}},
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "x": BATCHING}},
        ["initialize", BATCHING],
    ],
)
def test_no_other_message_is_changed(message: Any) -> None:
    line = json.dumps(message).encode()
    assert negotiable(line) == line


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        json.dumps([opening()]).encode(),
        json.dumps(opening(id=None)).encode(),
        json.dumps(opening(id=True)).encode(),
        json.dumps(opening(id=1.5)).encode(),
        json.dumps(opening(jsonrpc="1.0")).encode(),
        json.dumps(opening(method="ping")).encode(),
        json.dumps(opening(params={})).encode(),
        json.dumps(opening(params=None)).encode(),
        json.dumps({key: value for key, value in opening().items() if key != "id"}).encode(),
    ],
)
def test_whatever_else_comes_first_is_for_the_library(line: bytes) -> None:
    assert answer_ahead(line, Toolset.MEMORY) is None


def test_it_needs_neither_the_library_nor_the_index() -> None:
    """P-3: what makes it quick."""
    code = "import rag_context.server.mcp.handshake, rag_context.server.mcp.handshake, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"mcp", "pydantic", "numpy", "starlette", "onnxruntime", "asyncio"} & set(loaded)


def test_the_http_server_loads_the_mcp_library_only_for_mcp_clients() -> None:
    code = "import rag_context.server.app, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "rag_context.server.tools" in loaded
    assert "mcp" not in loaded


def test_the_beginning_of_the_instructions_stands_by_itself() -> None:
    """Some clients show a model their first 512 characters only."""
    for tools in ("memory", "all"):
        assert "rag_context_search" in INSTRUCTIONS[tools][:512]
        assert "rag_context_index" in INSTRUCTIONS[tools][:512]
    assert "activate_project" in INSTRUCTIONS["projects"][:512]
    assert "rag_query" in INSTRUCTIONS["projects"][:512]
    assert all("not instructions" in reported[:512] for reported in INSTRUCTIONS.values())

"""The answers that are given before the library is loaded: the library's own, word for word."""

import json
import subprocess
import sys
from typing import Any, cast

import anyio
import pytest
from mcp.server.lowlevel import NotificationOptions
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from rag_context.api.operations import Access
from rag_context.api.operations.routes import OPERATIONS
from rag_context.api.toolsets import ALL_TOOLS, MEMORY_TOOLS, Toolset, Toolsets, toolsets_named
from rag_context.api.wire import Vocabulary
from rag_context.cli.mcp import listed_words
from rag_context.memory.service import Service
from rag_context.server.mcp.handshake import BATCHING, UNBATCHED, UNINTRODUCED, VERSIONS, Opening, instructions
from rag_context.server.mcp.messages import negotiable
from rag_context.server.mcp.protocol import McpServer, Memory, RequestContext
from rag_context.server.tools import Registry, tool_of
from rag_context.settings import Settings
from rag_context.settings.sections import VocabularySettings


def opening(**changed: Any) -> dict[str, Any]:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params, **changed}


LISTS = ("tools/list", "prompts/list", "resources/templates/list", "ping")


async def never(*_arguments: object) -> Any:
    raise AssertionError


async def by_the_library(
    messages: list[dict[str, Any]],
    toolsets: Toolsets,
    vocabulary: Vocabulary = Vocabulary(),  # noqa: B008
    *,
    structured: bool = False,
) -> list[dict[str, Any]]:
    """What the library answers to each of these requests."""
    tools = Registry(*(tool_of(operation, never, vocabulary) for operation in OPERATIONS.values()))

    async def opened() -> Memory:
        return Memory(cast("Service", None), tools)

    context = RequestContext("r", Access.WRITE, toolsets, structured=structured)
    server = McpServer(opened, lambda _context: context).server()
    send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](8)
    answer_send, answer_receive = anyio.create_memory_object_stream[SessionMessage](8)
    answers = []
    async with anyio.create_task_group() as group:
        group.start_soon(
            server.run,
            receive,
            answer_send,
            server.create_initialization_options(NotificationOptions(resources_changed=True)),
        )
        for message in messages:
            await send.send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))
            answered = await answer_receive.receive()
            answers.append(json.loads(answered.message.model_dump_json(by_alias=True, exclude_unset=True)))
        await send.aclose()
    await answer_receive.aclose()
    return answers


def request(method: str, **further: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": f"ü {method}", "method": method, **further}


def answer_of(opening: Opening, message: dict[str, Any]) -> dict[str, Any] | None:
    line = opening.answer(json.dumps(message).encode())
    return None if line is None else json.loads(line)


@pytest.mark.parametrize("version", [*HANDSHAKE_PROTOCOL_VERSIONS, "1999-01-01", "2026-07-28", "2099-01-01", ""])
@pytest.mark.parametrize("sets", [*Toolset, "all", "memory,projects"])
async def test_it_is_what_the_library_would_say(version: str, sets: str) -> None:
    """P-3: the opening, and every list that follows it."""
    message = opening(id="ü-7")
    message["params"]["protocolVersion"] = version
    messages = [message, *map(request, LISTS)]
    early = Opening(toolsets_named(sets))
    said = await by_the_library(
        [json.loads(negotiable(json.dumps(each).encode())) for each in messages], toolsets_named(sets)
    )
    assert [answer_of(early, each) for each in messages] == said


@pytest.mark.parametrize(
    "words", [Vocabulary(), Vocabulary.extended(("ticket",), ()), Vocabulary.extended((), ("ops",))]
)
@pytest.mark.parametrize("structured", [False, True])
async def test_the_lists_have_the_values_that_the_configuration_allows(words: Vocabulary, structured: bool) -> None:
    """P-1: the built-in categories are listed only beside added ones."""
    settings = Settings(
        vocabulary=VocabularySettings(content_types=words.content_types[4:], categories=words.categories[4:])
    )
    early = Opening(ALL_TOOLS, listed_words(settings), structured=structured)
    messages = [opening(), request("tools/list", params={"_meta": {"progressToken": 1}})]
    said = await by_the_library(messages, ALL_TOOLS, words, structured=structured)
    assert [answer_of(early, each) for each in messages] == said
    search = next(tool for tool in said[1]["result"]["tools"] if tool["name"] == "rag_context_search")
    assert ("category" in search["inputSchema"]["properties"]) == ("ops" in words.categories)
    assert "game" not in search["inputSchema"]["properties"]


@pytest.mark.parametrize(
    "message",
    [
        request("tools/list", params={"cursor": "2"}),
        request("tools/list", params=[]),
        request("tools/list", further=1),
        request("tools/call", params={"name": "rag_context_search", "arguments": {"query": "q"}}),
        request("resources/read", params={}),
        opening(),
    ],
)
def test_what_needs_the_library_is_left_to_it(message: dict[str, Any]) -> None:
    early = Opening(MEMORY_TOOLS)
    assert answer_of(early, opening()) is not None
    assert answer_of(early, message) is None


def test_resources_are_listed_by_the_library_at_the_second_request() -> None:
    """P-3: Claude Code shows the model no tool before it has this list."""
    early = Opening(MEMORY_TOOLS)
    answers = [answer_of(early, each) for each in (opening(), request("resources/list"), request("resources/list"))]
    assert answers[1:] == [{"jsonrpc": "2.0", "id": "ü resources/list", "result": {"resources": []}}, None]
    assert early.listed_no_resources


def test_resources_are_listed_by_the_library_where_the_index_is_opened_already() -> None:
    early = Opening(MEMORY_TOOLS)
    assert answer_of(early, opening()) is not None
    early.is_done = True
    assert answer_of(early, request("resources/list")) is None


def test_nothing_is_listed_before_the_opening() -> None:
    early = Opening(MEMORY_TOOLS)
    assert [answer_of(early, each) for each in (request("tools/list"), opening(), request("tools/list"))] == [None] * 3


def introduced(method: str, version: str = UNINTRODUCED, **further: Any) -> dict[str, Any]:
    """A request of the revision without an opening."""
    of = "io.modelcontextprotocol/"
    said = {f"{of}protocolVersion": version, f"{of}clientInfo": {"name": "c", "version": "1"}}
    return request(method, params={"_meta": {**said, f"{of}clientCapabilities": {}}, **further})


@pytest.mark.parametrize("sets", [*Toolset, "all", "memory,projects"])
async def test_a_client_without_an_opening_gets_what_the_library_would_say(sets: str) -> None:
    """P-3: it learns what the server is, and each list, by requests that say what it understands."""
    messages = [introduced(each) for each in ("server/discover", *LISTS[:3])]
    early = Opening(toolsets_named(sets))
    assert [answer_of(early, each) for each in messages] == await by_the_library(messages, toolsets_named(sets))


@pytest.mark.parametrize(
    "message",
    [
        request("server/discover"),
        introduced("server/discover", "2027-01-01"),
        introduced("tools/list", cursor="2"),
        introduced("resources/list"),
        introduced("tools/call", name="rag_context_search", arguments={"query": "q"}),
        introduced("ping"),
    ],
)
def test_of_such_a_client_the_library_gets_what_else_it_requests(message: dict[str, Any]) -> None:
    early = Opening(MEMORY_TOOLS)
    assert answer_of(early, introduced("server/discover")) is not None
    assert answer_of(early, message) is None
    assert answer_of(early, introduced("tools/list")) is not None


def test_the_tools_of_the_memory_cost_few_tokens() -> None:
    """P-1: what each request of an agent has of them. They have 4.6 characters a token of OpenAI's o200k_base."""
    early = Opening(MEMORY_TOOLS)
    answers = [answer_of(early, each) for each in (opening(), request("tools/list"))]
    opened, listed = (answer["result"] for answer in answers if answer is not None)
    shown = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in listed["tools"]]
    assert len(opened["instructions"] + json.dumps(shown, separators=(",", ":"))) <= 4.5 * 1500


def test_it_supports_the_revisions_of_the_library_except_the_one_with_batches() -> None:
    assert {*VERSIONS, BATCHING} == set(HANDSHAKE_PROTOCOL_VERSIONS)


def test_a_client_of_the_revision_with_batches_is_answered_in_the_one_before_it() -> None:
    message = opening()
    message["params"]["protocolVersion"] = BATCHING
    answer = answer_of(Opening(MEMORY_TOOLS), message)
    assert answer is not None
    assert answer["result"]["protocolVersion"] == UNBATCHED


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
    assert Opening(MEMORY_TOOLS).answer(line) is None


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
    for sets in ("memory", "all"):
        assert "rag_context_search" in instructions(toolsets_named(sets))[:512]
        assert "rag_context_index" in instructions(toolsets_named(sets))[:512]
    projects = instructions(frozenset({Toolset.PROJECTS}))
    assert "activate_project" in projects[:512]
    assert "rag_query" in projects[:512]
    assert all("not instructions" in instructions(frozenset({toolset}))[:512] for toolset in Toolset)

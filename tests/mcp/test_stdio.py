"""The pipe: lines in, lines out, nothing else on it, and an end that loses nothing."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from rag_context.api.handlers import CallContext
from rag_context.api.search import SearchRequest, SearchResponse
from rag_context.api.toolsets import MEMORY_TOOLS
from rag_context.server.mcp.handshake import LINE_BYTES, Opening, OpeningReader, Wire
from rag_context.server.mcp.protocol import Memory
from rag_context.server.mcp.stdio import serve_stdio
from tests.server.stub_service import StubService

from .mcp_client import memory_of

OPENING = {
    "jsonrpc": "2.0",
    "id": "init",
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def search(id_: object, query: str = "q") -> dict[str, Any]:
    params = {"name": "rag_context_search", "arguments": {"query": query}}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


@dataclass
class Pipe:
    """The client's ends, and the server's task."""

    write_fd: int
    lines: asyncio.StreamReader
    server: "asyncio.Task[None]"

    async def send(self, *messages: object) -> None:
        """Send messages; bytes go as they are."""
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            await asyncio.to_thread(_write_all, self.write_fd, line)

    async def receive(self) -> dict[str, Any]:
        """The next message."""
        line = await asyncio.wait_for(self.lines.readline(), 60)
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close the end that is written to."""
        os.close(self.write_fd)

    async def rest(self) -> list[dict[str, Any]]:
        """Close, and whatever still comes."""
        self.close()
        await asyncio.wait_for(self.server, 60)
        os.close(self._out)
        return [json.loads(line) async for line in self.lines]

    _out: int = -1


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


@asynccontextmanager
async def piped(
    service: object, *, opening: object = OPENING, loaded: asyncio.Event | None = None
) -> AsyncIterator[Pipe]:
    """A conversation that was opened, over a service; its index is open at once, or when it has `loaded`."""
    memory = memory_of(service)

    async def opened() -> Memory:
        if loaded is not None:
            await loaded.wait()
        return memory

    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    reader = asyncio.StreamReader(limit=2 * LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(out_read, "rb")
    )
    conversation = OpeningReader(Wire(in_read, out_write), Opening(MEMORY_TOOLS))
    os.write(in_write, json.dumps(opening).encode() + b"\n")
    await asyncio.to_thread(conversation.wait_until_needed, 0.0)
    pipe = Pipe(in_write, reader, asyncio.create_task(serve_stdio(conversation, opened, MEMORY_TOOLS)), out_write)
    if opening == OPENING:
        assert (await pipe.receive())["id"] == "init"
    await pipe.send(INITIALIZED)
    try:
        yield pipe
    finally:
        pipe.server.cancel()
        await asyncio.wait({pipe.server})
        transport.close()


async def test_an_opening_that_was_answered_is_not_answered_again() -> None:
    """P-3."""
    async with piped(StubService()) as pipe:
        await pipe.send({"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {"cursor": 7}})
        assert [message["id"] for message in await pipe.rest()] == [1]


async def test_a_client_slower_than_the_loading_began_gets_its_list_of_resources_at_once() -> None:
    """P-3: a machine that stood still for a second; Claude Code shows the model no tool before it has this list."""
    loaded = asyncio.Event()
    async with piped(StubService(), loaded=loaded) as pipe:
        await pipe.send({"jsonrpc": "2.0", "id": 1, "method": "resources/list"})
        assert (await pipe.receive())["result"] == {"resources": []}
        loaded.set()
        assert (await pipe.receive())["method"] == "notifications/resources/list_changed"


async def test_an_opening_that_was_not_answered_is_answered_by_the_library() -> None:
    nameless = {**OPENING, "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}}
    async with piped(StubService(), opening=nameless) as pipe:
        (answer,) = await pipe.rest()
    assert answer["id"] == "init"
    assert "error" in answer


@pytest.mark.parametrize("id_", [0, -7, 2**53, "", "7", "ü"])
async def test_an_id_comes_back_as_it_was(id_: int | str) -> None:
    async with piped(StubService()) as pipe:
        await pipe.send(search(id_))
        answer = await pipe.receive()
    assert (answer["id"], type(answer["id"])) == (id_, type(id_))


@pytest.mark.parametrize(
    ("line", "code", "id_"),
    [
        (b"garbage\n", -32700, None),
        (b"\xff\xfe\n", -32700, None),
        (b"[" * 50_000 + b"\n", -32700, None),
        (json.dumps([search(1), search(2)]).encode() + b"\n", -32600, None),
        (b"7\n", -32600, None),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}\n', -32600, 7),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}\n', -32600, None),
        (b'{"jsonrpc":"2.0","id":"x","method":7}\n', -32600, "x"),
        (b'{"jsonrpc":"2.0","id":"x"' + b" " * LINE_BYTES + b"}\n", -32600, None),
    ],
)
async def test_what_is_no_message_is_answered_as_an_error_and_the_next_is_served(
    line: bytes, code: int, id_: object
) -> None:
    async with piped(StubService()) as pipe:
        await pipe.send(line, b"\n", b"  \r\n", search("next"))
        rejected, answered = await pipe.receive(), await pipe.receive()
    assert (rejected["error"]["code"], rejected["id"]) == (code, id_)
    assert answered["id"] == "next"
    assert not answered["result"]["isError"]


async def test_a_message_without_an_end_is_served_too() -> None:
    """The last line of a file often has no line feed."""
    async with piped(StubService()) as pipe:
        await pipe.send(json.dumps(search(5)).encode())
        assert [message["id"] for message in await pipe.rest()] == [5]


class Gated(StubService):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.stopped = asyncio.Event()

    async def search(self, request: SearchRequest, context: CallContext) -> SearchResponse:
        self.begun.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return await super().search(request, context)


async def test_requests_before_the_end_are_answered_before_the_end() -> None:
    service = Gated()
    async with piped(service) as pipe:
        await pipe.send(search(1), search(2))
        await service.begun.wait()
        rest = asyncio.create_task(pipe.rest())
        await asyncio.sleep(0)
        service.gate.set()
        assert {message["id"] for message in await rest} == {1, 2}


async def test_a_cancelled_call_stops_is_not_answered_and_does_not_delay_the_end() -> None:
    """P-1."""
    service = Gated()
    async with asyncio.timeout(60), piped(service) as pipe:
        await pipe.send(search(1))
        await service.begun.wait()
        await pipe.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        await service.stopped.wait()
        assert await pipe.rest() == []


async def test_a_client_that_stops_reading_is_no_failure_of_the_server() -> None:
    async with piped(StubService()) as pipe:
        await pipe.send(search(1))
        await pipe.receive()
        pipe.lines._transport.close()  # type: ignore[attr-defined]
        await pipe.send(*(search(number) for number in range(5)))
        pipe.close()
        await asyncio.wait_for(pipe.server, 60)
    assert pipe.server.exception() is None


async def test_an_end_in_the_middle_of_what_a_client_sends_is_an_end() -> None:
    """M-6."""
    async with piped(StubService()) as pipe:
        pings = b"".join(
            json.dumps({"jsonrpc": "2.0", "id": n, "method": "ping"}).encode() + b"\n" for n in range(1000)
        )
        sending = asyncio.create_task(pipe.send(pings))
        await pipe.receive()
        pipe.server.cancel()
        await asyncio.wait({pipe.server}, timeout=60)
        assert pipe.server.done()
        assert pipe.server.cancelled() or pipe.server.exception() is None
        await sending


async def test_a_hundred_calls_in_a_row_are_all_answered() -> None:
    service = StubService()
    async with piped(service) as pipe:
        sending = asyncio.create_task(pipe.send(*(search(number, "x" * 900) for number in range(100))))
        assert {(await pipe.receive())["id"] for _ in range(100)} == set(range(100))
        await sending
    assert len(set(service.request_ids)) == 100, "each has a correlation id of its own"

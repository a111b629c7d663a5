"""MCP over a pipe: lines in, lines out, in step with the process that holds the other end.

Messages that are none are answered as errors, where the library would pass over them; and when the client closes its
end, its earlier requests are answered first.
"""

import asyncio
import logging
import os
import queue
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from rag_context.api.operations import Access, Toolset
from rag_context.projects.callers import CallerId
from rag_context.server.mcp.handshake import OversizedLineError, Wire
from rag_context.server.mcp.protocol import (
    Context,
    McpServer,
    Memory,
    RequestContext,
    has_bad_id,
    has_repeated_key,
    negotiable,
    oversized,
    parse_error,
)

logger = logging.getLogger(__name__)

STDIO = CallerId(session="stdio")
"""A process has one client."""

DRAIN_S = 10.0
"""How long calls in progress may take once the client has closed its end."""

Incoming = SessionMessage | Exception


async def serve_stdio(
    wire: Wire,
    memory: Callable[[], Awaitable[Memory]],
    toolset: Toolset,
    *,
    first: bytes,
    answered_ahead: bool,
    structured: bool = False,
) -> None:
    """Serve one client until it closes its end.

    Args:
        wire: The pipe.
        memory: The open memory; calls that need it wait for it.
        toolset: Which of its tools are offered.
        first: A line that was already read.
        answered_ahead: Whether that line has been answered too.
        structured: Whether answers are for programs.
    """
    server = McpServer(memory, partial(_request_context, structured=structured), toolset).server()
    # No buffers: a client that sends faster than the server works fills its own pipe, and waits.
    incoming_writer, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, outgoing_reader = anyio.create_memory_object_stream[SessionMessage](0)
    traffic = _Traffic(wire, first, answered_ahead=answered_ahead)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(traffic.write_all, outgoing_reader)
            group.start_soon(traffic.read_all, incoming_writer)
            await server.run(incoming, outgoing, server.create_initialization_options())
            group.cancel_scope.cancel()
    except* anyio.BrokenResourceError:
        # Where the server is stopped, what was being handed to it has nowhere to go.
        logger.debug("stopped in the middle of a message")


class _Traffic:
    """What goes over the wire, and which requests are still unanswered."""

    def __init__(self, wire: Wire, first: bytes, *, answered_ahead: bool) -> None:
        self._wire = wire
        self._first = first
        self._answered_ahead = answered_ahead
        self._ahead_id: types.RequestId | None = None
        self._open: set[types.RequestId] = set()
        self._settled = asyncio.Event()
        self._writer = _Writer(wire)

    async def read_all(self, incoming: MemoryObjectSendStream[Incoming]) -> None:
        """Hand on every message, then wait for what is unanswered."""
        lines = _Reader(self._wire)
        async with incoming:
            await self._take(self._first, incoming)
            while (line := await lines.next()) is not None:
                if isinstance(line, OversizedLineError):
                    await self._writer.write(_line(oversized()))
                else:
                    await self._take(line, incoming)
            # Closing the stream ends the server, and with it the calls that are still running.
            await self._drain()

    async def write_all(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write every message, except the one that was answered ahead."""
        async with outgoing:
            async for item in outgoing:
                message = item.message
                if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                    # The library answers `initialize` too, but the client has had that answer already.
                    is_answered = self._ahead_id is not None and message.id == self._ahead_id
                    if is_answered:
                        self._ahead_id = None
                    else:
                        await self._writer.write(_line(message))
                    self._close(message.id)
                else:
                    await self._writer.write(_line(message))

    async def _take(self, line: bytes, incoming: MemoryObjectSendStream[Incoming]) -> None:
        line = negotiable(line)
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            await self._writer.write(_line(parse_error(line)))
            return
        if has_repeated_key(line) or (isinstance(message, types.JSONRPCNotification) and has_bad_id(line)):
            await self._writer.write(_line(parse_error(line)))
            return
        if isinstance(message, types.JSONRPCRequest):
            self._open.add(message.id)
            if self._answered_ahead:
                self._ahead_id, self._answered_ahead = message.id, False
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            # A cancelled request is never answered.
            self._close((message.params or {}).get("requestId"))
        await incoming.send(SessionMessage(message))

    def _close(self, id_: Any) -> None:
        if isinstance(id_, str | int):
            self._open.discard(id_)
        self._settled.set()

    async def _drain(self) -> None:
        with anyio.move_on_after(DRAIN_S):
            while self._open:
                self._settled.clear()
                await self._settled.wait()


class _Reader:
    """Lines, read in a thread that the process does not wait for at its end."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | OversizedLineError | None] = asyncio.Queue()
        self._wanted = threading.Semaphore(0)
        threading.Thread(target=self._run, name="mcp stdin", daemon=True).start()

    async def next(self) -> bytes | OversizedLineError | None:
        # A line is read only when it is needed: until then the pipe fills, and the client waits.
        self._wanted.release()
        return await self._lines.get()

    def _run(self) -> None:
        line: bytes | OversizedLineError | None = b""
        while line is not None:
            self._wanted.acquire()
            try:
                line = self._wire.read_line()
            except OversizedLineError as error:
                line = error
            except (OSError, ValueError):
                line = None
            _call_soon(self._loop, self._lines.put_nowait, line)


class _Writer:
    """Lines, written in order in a thread that the process does not wait for at its end."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="mcp stdout", daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Return once the line is out, or the client has stopped reading."""
        written = self._loop.create_future()
        self._lines.put((line, written))
        await written

    def _run(self) -> None:
        while True:
            line, written = self._lines.get()
            try:
                self._wire.write_line(line)
            except OSError as error:
                logger.debug("the client has stopped reading: %s", error)
            _call_soon(self._loop, _complete, written)


def _complete(written: "asyncio.Future[None]") -> None:
    if not written.done():
        written.set_result(None)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        logger.debug("the loop is closed")


def _line(message: types.JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _request_context(_context: Context, *, structured: bool) -> RequestContext:
    return RequestContext(os.urandom(12).hex(), Access.WRITE, STDIO, structured)

"""MCP over a pipe: the library's transport, between what it misreads and the process that holds the other end.

Bytes that are no message are answered with an error, where the library would pass over them; and when the client
closes its end, its earlier requests are answered first. Lines are read and written in threads of our own, because the
process waits for the library's at its end.
"""

import asyncio
import json
import logging
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from rag_context.api.operations import Access
from rag_context.api.toolsets import Toolsets
from rag_context.domain.callers import CallerId
from rag_context.server.mcp.handshake import OpeningReader, OversizedLineError, Wire
from rag_context.server.mcp.messages import InvalidMessageError, line_of, negotiable, oversized, read_message
from rag_context.server.mcp.protocol import Context, McpServer, Memory, RequestContext, client_of

logger = logging.getLogger(__name__)

STDIO = CallerId(session="stdio")
"""A process has one client."""

_NOTIFIES = NotificationOptions(resources_changed=True)
_RESOURCES_CHANGED = '{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}'

DRAIN_S = 10.0
"""How long calls in progress may take once the client has closed its end."""


async def serve_stdio(
    conversation: OpeningReader,
    memory: Callable[[], Awaitable[Memory]],
    toolsets: Toolsets,
    *,
    structured: bool = False,
) -> None:
    """Serve one client, whose opening is answered, until it closes its end; calls that need the memory wait for it."""
    server = McpServer(memory, partial(_request_context, toolsets=toolsets, structured=structured)).server()
    traffic = _Traffic(conversation)
    # The library's transport needs no more of its two files than what `_Traffic` has.
    stdin, stdout = cast("anyio.AsyncFile[str]", traffic.lines()), cast("anyio.AsyncFile[str]", traffic)
    try:
        async with stdio_server(stdin, stdout) as (incoming, outgoing), asyncio.TaskGroup() as group:
            notifying = group.create_task(_notify_of_resources(conversation, memory, traffic))
            await server.run(incoming, outgoing, server.create_initialization_options(_NOTIFIES))
            notifying.cancel()
    except* anyio.BrokenResourceError:
        # The server was stopped while a message was being passed to it.
        logger.debug("stopped in the middle of a message")


async def _notify_of_resources(
    conversation: OpeningReader, memory: Callable[[], Awaitable[Memory]], traffic: "_Traffic"
) -> None:
    """Notify a client that got an empty list of resources, once there is an index to list."""
    with suppress(MCPError):  # it cannot be opened, and calls report that
        await memory()
        conversation.opening.is_done = True
        if conversation.opening.listed_no_resources:
            await traffic.write(_RESOURCES_CHANGED)


class _Traffic:
    def __init__(self, conversation: OpeningReader) -> None:
        self._answered_id: types.RequestId | None = conversation.opening.request_id
        self._open: set[types.RequestId] = set()
        self._settled = asyncio.Event()
        self._reader = _InputReader(conversation)
        self._writer = _Writer(conversation.wire)

    async def lines(self) -> AsyncIterator[str]:
        """The valid messages, as they come; ends once the client has closed its end and all requests are answered."""
        while (line := await self._reader.next()) is not None:
            if isinstance(line, OversizedLineError):
                await self._writer.write(line_of(oversized()))
            else:
                line = negotiable(line)
                try:
                    self._note(read_message(line))
                except InvalidMessageError as error:
                    await self._writer.write(line_of(error.response))
                else:
                    yield line.decode()
        # The end of the lines ends the server, and with it the calls that are still running.
        with anyio.move_on_after(DRAIN_S):
            while self._open:
                self._settled.clear()
                await self._settled.wait()

    async def write(self, line: str) -> None:
        """Write a message, unless it answers the `initialize` that was answered before."""
        message = json.loads(line)
        id_ = None if "method" in message else message.get("id")
        if id_ is not None and id_ == self._answered_id:
            self._answered_id = None
        else:
            await self._writer.write(line.rstrip("\n").encode())
        self._close(id_)

    async def flush(self) -> None:
        """Nothing is buffered."""

    def _note(self, message: types.JSONRPCMessage) -> None:
        """Note which requests are to be answered, before the library can answer them."""
        if isinstance(message, types.JSONRPCRequest):
            self._open.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            # A cancelled request is never answered.
            self._close((message.params or {}).get("requestId"))

    def _close(self, id_: Any) -> None:
        if isinstance(id_, str | int):
            self._open.discard(id_)
        self._settled.set()


class _InputReader:
    """Lines of a conversation, waited for in a thread that the process does not wait for at its end."""

    def __init__(self, conversation: OpeningReader) -> None:
        self._conversation = conversation
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | OversizedLineError | None] = asyncio.Queue()
        self._requested = threading.Semaphore(0)
        threading.Thread(target=self._run, name="mcp lines", daemon=True).start()

    async def next(self) -> bytes | OversizedLineError | None:
        # A line is taken only when it is needed: until then they wait with the conversation, or in the pipe.
        self._requested.release()
        return await self._lines.get()

    def _run(self) -> None:
        line: bytes | OversizedLineError | None = b""
        while line is not None:
            self._requested.acquire()
            try:
                line = self._conversation.read_line()
            except OversizedLineError as error:
                line = error
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


def _request_context(context: Context, *, toolsets: Toolsets, structured: bool) -> RequestContext:
    return RequestContext(os.urandom(12).hex(), Access.ADMIN, toolsets, STDIO, client_of(context), structured)

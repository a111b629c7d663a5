"""Running the application: its socket, the file by which commands find it, and uvicorn, whose protocol gets limits."""

import asyncio
import ctypes
import errno
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from rag_context.api.parsing import ErrorCode
from rag_context.client.address import FILE_NAME, Announcement, read_announcement
from rag_context.errors import ConfigurationError
from rag_context.resilience.deadline import set_within
from rag_context.server.failures import error_body
from rag_context.server.options import ServerOptions
from rag_context.server.pages import EVENTS_PATH
from rag_context.whole_files import write_whole

T = TypeVar("T")
_BACKLOG = 2048
_HOW = "--port, or MCP_SERVER_PORT"


def bind(options: ServerOptions) -> socket.socket:
    """A listening socket at the configured address, so that a taken port is known before anything is opened.

    Raises: ConfigurationError (the address is taken, not ours, or open to the network without a key).
    """
    options.check()
    host, port = options.host.strip("[]"), options.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"Cannot listen on {host!r}: it is not an address of this machine") from error
    try:
        if os.name == "posix":
            # Lets a server start again while connections of the last one linger (TIME_WAIT). On Windows it would let
            # two programs share the port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(_cannot_listen(host, port, error)) from error
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} on {host} is in use: stop the other program, or choose another ({_HOW})"
        case errno.EACCES:
            return f"Port {port} needs more rights than this program has: choose one above 1023 ({_HOW})"
        case errno.EADDRNOTAVAIL:
            return f"Cannot listen on {host!r}: it is not an address of this machine"
    return f"Cannot listen on {host} port {port}: {error.strerror}"


def bound_address(host: str, port: int) -> str:
    """An address and its port as people write them, from what a listening socket says of itself."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's server, for which a signal to stop is a normal end: the process exits with status 0."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

    def stop(self) -> None:
        self.should_exit = True


def build_server(app: ASGIApp, options: ServerOptions) -> Server:
    return Server(server_config(app, options))


def server_config(app: ASGIApp, options: ServerOptions) -> Config:
    return Config(
        app,
        http=protocol_with(options),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        forwarded_allow_ips="",
        workers=1,
        backlog=_BACKLOG,
        timeout_keep_alive=options.keep_alive_s,
        timeout_graceful_shutdown=options.grace_s,
    )


async def serve(app: ASGIApp, sockets: Sequence[socket.socket], options: ServerOptions) -> None:
    """Serve on bound sockets until SIGTERM or SIGINT; running requests get the grace period to end."""
    await build_server(app, options).serve(sockets=list(sockets))


_HEAP_LIMITS = {-1: 4 << 20, -3: 4 << 20, -8: 2}
"""By their numbers in glibc's `malloc.h`: bytes of a heap that may lie free at its end, bytes from which on memory is
taken from the system and given back by itself, and heaps, of which each thread has its own otherwise. What loading
the index leaves in them stays resident."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the fastest event loop at hand."""
    with suppress(AttributeError, OSError, TypeError):  # another C library; TypeError: Windows names each
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _HEAP_LIMITS.items():
            mallopt(parameter, value)
    factory = uvicorn.Config("", loop="auto", log_config=None, workers=1).get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


logger = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
"""How often a server checks that it, or another one, is still announced."""

STOP_S = 2.0


def announce(data_dir: Path, announcement: Announcement) -> None:
    """Write the file, whole or not at all, readable by this user only. Raises: OSError."""
    write_whole(data_dir / FILE_NAME, json.dumps(asdict(announcement)).encode())


def withdraw(data_dir: Path, instance: str) -> None:
    """Remove the file, unless another server has replaced it."""
    announcement = read_announcement(data_dir)
    if announcement is not None and announcement.instance == instance:
        with suppress(OSError):
            (data_dir / FILE_NAME).unlink()


@asynccontextmanager
async def announced(data_dir: Path, announcement: Announcement) -> AsyncIterator[None]:
    """Have the file there for the time of the block, as far as it can be written.

    The last of several servers on one directory to start is the one that is announced. When it stops or dies, another
    one takes its place. A file that cannot be written is no reason not to serve: it is tried again.
    """
    keeper = _Keeper(data_dir, announcement)
    await asyncio.to_thread(keeper.begin)
    stop = asyncio.Event()
    keeping = asyncio.create_task(keeper.run(stop), name="announce this server")
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait({keeping}, timeout=STOP_S)
        keeping.cancel()
        await asyncio.to_thread(withdraw, data_dir, announcement.instance)


class _Keeper:
    """Writes the file, and writes it again if it, or the server that it names, no longer exists."""

    def __init__(self, data_dir: Path, announcement: Announcement) -> None:
        self._data_dir = data_dir
        self._announcement = announcement
        self._replaced: set[str] = set()
        self._has_failed = False

    def begin(self) -> None:
        with suppress(OSError):  # said by what follows
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._announce()

    async def run(self, stop: asyncio.Event) -> None:
        while not await set_within(stop, CHECK_EVERY_S):
            await asyncio.to_thread(self._check)

    def _check(self) -> None:
        found = read_announcement(self._data_dir)
        if found is None:
            self._announce()
        elif found.instance not in self._replaced and not found.is_running:
            # Once only: one that announces itself again lives where its process has another number.
            self._replaced.add(found.instance)
            self._announce()

    def _announce(self) -> None:
        try:
            announce(self._data_dir, self._announcement)
        except OSError as error:
            if not self._has_failed:
                logger.warning("commands will not find this server: %s cannot be written: %s", FILE_NAME, error)
            self._has_failed = True
        else:
            self._has_failed = False


_TOO_LARGE = "Request head too large"
_HEADER_SIGNS = len(": \r\n")


class _InOnePiece(asyncio.Transport):
    """The transport of one answer: its head goes out with its body, for which ASGI has a server wait.

    uvicorn writes them one after the other, and the client wakes up twice. The head of a stream, whose length is not
    known, is written at once: nothing may follow for long.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        super().__init__()
        self._cycle, self._transport = cycle, cycle.transport
        self._head: bytes | bytearray | memoryview = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        cycle = self._cycle
        if cycle.response_started:
            if not self._head and cycle.expected_content_length and cycle.scope["method"] != "HEAD":
                self._head = data
                return
            cycle.transport = self._transport  # which ends a cycle of references, too
        self._transport.write(b"".join((self._head, data)) if self._head else data)
        self._head = b""

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()


class GuardedProtocol(HttpToolsProtocol):
    """One connection, with limits on the head of a request, on slow senders and on connections.

    uvicorn's httptools protocol bounds neither the size of a head nor the time a client takes to send a request, takes
    trailers for headers, and forgets requests in a pipeline when their connection is lost. The timer is armed only
    while a request is incomplete, so that ordinary requests, which arrive whole, pay nothing.
    Rejections made here have the same error shape as everywhere, without a request id.
    """

    options = ServerOptions()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._in_head = True
        self._head_bytes = 0
        """Of a head that is not complete, as it came."""
        self._parsed_bytes = 0
        """Of the current head's address, names and values."""
        self._answering: list[RequestResponseCycle] = []
        self._timer: asyncio.TimerHandle | None = None
        # `BodyLimit` answers a stalled body better, once some of it has come; this is for those it cannot see.
        self._body_timer_s = self.options.body_timeout_s * 1.25

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.options.max_connections:
            self._reject(503, "Too many connections", ErrorCode.OVERLOADED, b"retry-after: 1\r\n")
            return
        self._arm(self.options.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer with the connection, and end all of its requests: no client waits for their answers."""
        self._disarm()
        super().connection_lost(exc)
        self.pipeline.clear()
        for cycle in self._answering:
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            # Wakes an application that waits for the rest of the body.
            cycle.message_event.set()
        self._answering.clear()

    def shutdown(self) -> None:
        """Let the request in progress end; a stream of events, which has no end, is ended here."""
        super().shutdown()
        if any(not cycle.response_complete and cycle.scope["path"] == EVENTS_PATH for cycle in self._answering):
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            # The parser reports a header once it is complete: one without an end would never be counted there.
            self._head_bytes += len(data)
            if self._head_bytes > self.options.head_bytes:
                self._reject(431, _TOO_LARGE)
            elif self._timer is None:
                self._arm(self.options.head_timeout_s)
        elif self.cycle.more_body and not self.cycle.response_complete:
            self._disarm()
            self._arm(self._body_timer_s)
        else:
            self._disarm()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._parsed_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that comes behind the body is a trailer, and says nothing that is read here."""
        if self._in_head:
            self._count(len(name) + len(value) + _HEADER_SIGNS)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is here; the parser runs on with the body."""
        self._in_head = False
        self._head_bytes = 0
        super().on_headers_complete()
        self._answering = [cycle for cycle in self._answering if not cycle.response_complete]
        if self.cycle is not None:
            self.cycle.transport = _InOnePiece(self.cycle)
            self._answering.append(self.cycle)

    def send_400_response(self, msg: str) -> None:
        if self._parsed_bytes > self.options.head_bytes:
            self._reject(431, _TOO_LARGE)
        else:
            self._reject(400, msg)

    def _count(self, size: int) -> None:
        """A head that comes in one piece is counted by its parts. Raises: ValueError, which ends the parser."""
        self._parsed_bytes += size
        if self._parsed_bytes > self.options.head_bytes:
            raise ValueError(_TOO_LARGE)

    def _arm(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        # The server has stopped reading, because the application is slow: that is not the client's fault.
        if self.flow.read_paused:
            self._arm(self._body_timer_s)
        # A response has begun: another head in the middle of it would be taken for its body.
        elif not self._in_head and self.cycle.response_started:
            self.transport.close()
        elif self._head_bytes or not self._in_head:
            self._reject(408, "Request took too long")
        # Nothing was sent at all, as when browsers open a connection in advance: no request, no response.
        else:
            self.transport.close()

    def _reject(self, status: int, message: str, code: ErrorCode | None = None, header: bytes = b"") -> None:
        body = error_body(status, message, code=code).to_json()
        head = [STATUS_LINE[status], b"content-type: application/json\r\nconnection: close\r\n", header]
        head.append(b"content-length: %d\r\n\r\n" % len(body))
        self.transport.write(b"".join(head) + body)
        self.transport.close()


def protocol_with(options: ServerOptions) -> type[asyncio.Protocol]:
    return type("GuardedProtocol", (GuardedProtocol,), {"options": options})

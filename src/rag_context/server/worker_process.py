"""A worker of several: its server, and the two ends of the socket pair between it and the supervisor.

The supervisor sends what the worker starts with, then connections, and how many of them to end. The end of its stream
requests the stop, so that a worker also stops when the supervisor dies. The worker sends reports, a line of JSON each.
Requests of the other workers come from a socket file.
"""

import asyncio
import json
import pickle
import signal
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_context.server.options import ServerOptions
from rag_context.server.running import Server, protocol_with, server_config

_LENGTH = struct.Struct("!Q")
_CONNECTION = b"c"
_SURPLUS = b"s"
_READ_BYTES = 4096


class WorkerEvent(StrEnum):
    SERVING = "serving"
    """It answers."""
    READY = "ready"
    """Its model is loaded: it answers searches at level 1."""
    CLOSED = "closed"
    """One of its connections has ended."""
    FAILED = "failed"
    """It cannot start, for a reason that people can remove."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """One report; `status` and `message` belong to a failure: the status to exit with, and a line per problem."""

    event: WorkerEvent
    status: int = 0
    message: str = ""


class Surplus:
    """A worker has a connection that another one can serve."""


class SupervisorEnd:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send_start(self, start: Any) -> None:
        """Send what the worker starts with; it is read by `WorkerEnd.receive_start`. Blocking."""
        packed = pickle.dumps(start)
        # Blocking, so that all of it is sent, however long it is; then the loop has the socket.
        self._socket.sendall(_LENGTH.pack(len(packed)) + packed)
        self._socket.setblocking(False)

    def pass_on(self, connection: socket.socket) -> bool:
        """Give a connection to the worker; False where it takes none: it has ended, or does not read."""
        try:
            socket.send_fds(self._socket, [_CONNECTION], [connection.fileno()])
        except OSError:
            return False
        return True

    def end_some(self, connections: int) -> None:
        """Have the worker end so many connections, each after its next answer: their clients connect again."""
        with suppress(OSError):
            self._socket.send(_SURPLUS * connections)

    async def reports(self) -> AsyncIterator[WorkerReport]:
        loop, rest = asyncio.get_running_loop(), b""
        with suppress(OSError):
            while received := await loop.sock_recv(self._socket, _READ_BYTES):
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    fields = json.loads(line)
                    yield WorkerReport(WorkerEvent(fields.pop("event")), **fields)

    def ask_to_stop(self) -> None:
        """Send no more connections; the worker answers what it has, and ends."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


class WorkerEnd:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._unsent = b""

    def receive_start(self) -> Any:
        """What the supervisor sent first. Blocking. Raises: EOFError (the supervisor has ended)."""
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        start = pickle.loads(self._read(size))  # noqa: S301  (from our own parent process, over our own socket)
        self._socket.setblocking(False)
        return start

    def fileno(self) -> int:
        return self._socket.fileno()

    def next_connection(self) -> socket.socket | Surplus | None:
        """The next connection, or that one is to be ended; None at the end. Raises: BlockingIOError (nothing now)."""
        try:
            # One byte at a time: each is a message of its own, with a descriptor or without one.
            data, descriptors, _, _ = socket.recv_fds(self._socket, len(_CONNECTION), 1)
        except ConnectionError:
            return None
        if data == _SURPLUS:
            return Surplus()
        return socket.socket(fileno=descriptors[0]) if data and descriptors else None

    def report(self, report: WorkerReport) -> None:
        """Send a report. The supervisor reads at all times; what it has no room for now is sent with the next one."""
        self._unsent += json.dumps(asdict(report)).encode() + b"\n"
        with suppress(OSError):
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def _read(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            received = self._socket.recv(size - len(read))
            if not received:
                raise EOFError
            read += received
        return read


def channel() -> tuple[SupervisorEnd, socket.socket]:
    ours, theirs = socket.socketpair()
    return SupervisorEnd(ours), theirs


class _Ending:
    """An app of which so many connections end after their next answer as there are too many of."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.surplus = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def ending(message: Message) -> None:
            if self.surplus and message["type"] == "http.response.start":
                self.surplus -= 1
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, ending)


class WorkerServer(Server):
    """uvicorn's server without a listening socket of its own.

    `inner` answers the other workers, at the socket `file`; `ready` returns once searches are answered at level 1.
    """

    def __init__(
        self,
        app: ASGIApp,
        inner: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
        file: Path,
        link: WorkerEnd,
        options: ServerOptions,
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        self._ending = _Ending(app)
        super().__init__(server_config(self._ending, options))
        self._inner = inner
        self._file = file
        self._link = link
        self._ready = ready
        self._tasks: set[asyncio.Task[None]] = set()
        self._protocol = _closing_protocol(options, lambda: link.report(WorkerReport(WorkerEvent.CLOSED)))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; SIGINT, which the supervisor sends at its second signal, stops without waiting.

        A service manager may send SIGTERM to the supervisor and to the workers alike: that is one stop, not two.
        """
        self.force_exit = self.force_exit or sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # connections come from the supervisor
        loop = asyncio.get_running_loop()
        self._file.unlink(missing_ok=True)  # of a worker that was killed
        self.servers.append(await asyncio.start_unix_server(self._answer_peer, self._file))
        loop.add_reader(self._link.fileno(), self._receive)
        self._link.report(WorkerReport(WorkerEvent.SERVING))
        self._run(self._report_ready())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # No connection is taken from here on: its first request would be cut off by the end.
        asyncio.get_running_loop().remove_reader(self._link.fileno())
        for task in self._tasks:
            task.cancel()
        self._file.unlink(missing_ok=True)
        await super().shutdown(sockets)

    def _receive(self) -> None:
        """Take the connections that have come; at the end of their stream, stop."""
        while True:
            try:
                connection = self._link.next_connection()
            except BlockingIOError:
                return
            if connection is None:
                asyncio.get_running_loop().remove_reader(self._link.fileno())
                self.stop()
                return
            if isinstance(connection, Surplus):
                self._ending.surplus += 1
            else:
                self._run(self._take(connection))

    async def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: self._protocol(self.config, self.server_state, self.lifespan.state), connection
            )
        except OSError:  # its client has gone
            connection.close()
            self._link.report(WorkerReport(WorkerEvent.CLOSED))

    async def _answer_peer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        self.server_state.tasks.add(task)  # which a stop waits for, as for those of clients
        task.add_done_callback(self.server_state.tasks.discard)
        await self._inner(reader, writer)

    async def _report_ready(self) -> None:
        await self._ready()
        self._link.report(WorkerReport(WorkerEvent.READY))

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _closing_protocol(options: ServerOptions, closed: Callable[[], None]) -> Any:
    """The protocol class that keeps to these options, and calls `closed` at the end of each connection."""
    base: Any = protocol_with(options)

    class Closing(base):  # type: ignore[misc]
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            closed()

    return Closing

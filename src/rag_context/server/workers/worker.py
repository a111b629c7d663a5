"""A worker's server: it takes connections from the supervisor, and requests of the other workers from a socket file."""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_context.server.options import ServerOptions
from rag_context.server.running import Server, protocol_with, server_config
from rag_context.server.workers.channel import Event, Report, Surplus, WorkerEnd

INNER_CONNECTIONS = 10_000
"""Most connections at once, with those of other workers; those of clients were counted where they came in."""


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

    Args:
        app: answers clients.
        inner: answers the other workers.
        file: the socket file where those connect.
        link: to the supervisor.
        options: of the server.
        ready: returns once searches are answered at level 1.
    """

    def __init__(
        self,
        app: ASGIApp,
        inner: ASGIApp,
        file: Path,
        link: WorkerEnd,
        options: ServerOptions,
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        self._ending = _Ending(app)
        super().__init__(server_config(self._ending, options))
        self._inner = server_config(inner, replace(options, max_connections=INNER_CONNECTIONS), lifespan="off")
        self._inner.load()
        self._file = file
        self._link = link
        self._ready = ready
        self._tasks: set[asyncio.Task[None]] = set()
        self._protocol = _closing_protocol(options, lambda: link.report(Report(Event.CLOSED)))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; SIGINT, which the supervisor sends at its second signal, stops without waiting.

        A service manager may send SIGTERM to the supervisor and to the workers alike: that is one stop, not two.
        """
        self.force_exit = self.force_exit or sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, and report it."""
        await super().startup(sockets=[])
        loop = asyncio.get_running_loop()
        self._file.unlink(missing_ok=True)  # of a worker that was killed
        inner_protocol: Any = self._inner.http_protocol_class
        self.servers.append(
            await loop.create_unix_server(
                lambda: inner_protocol(self._inner, self.server_state, self.lifespan.state), path=self._file
            )
        )
        loop.add_reader(self._link.fileno(), self._receive)
        self._link.report(Report(Event.SERVING))
        self._run(self._report_ready())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that run, and end."""
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
            self._link.report(Report(Event.CLOSED))

    async def _report_ready(self) -> None:
        await self._ready()
        self._link.report(Report(Event.READY))

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

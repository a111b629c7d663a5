"""Running the application: its socket, and uvicorn over it."""

import asyncio
import errno
import os
import socket
from collections.abc import Coroutine, Sequence
from types import FrameType
from typing import Any, TypeVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config

from rag_context.errors import ConfigurationError
from rag_context.server.guarded_protocol import protocol_with
from rag_context.server.options import ServerOptions

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


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the fastest event loop at hand."""
    factory = uvicorn.Config("", loop="auto", log_config=None, workers=1).get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)

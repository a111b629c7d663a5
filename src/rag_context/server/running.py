"""Running the application: its socket, and uvicorn over it."""

import asyncio
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

from rag_context.client.address import FILE_NAME, Announcement, read_announcement
from rag_context.errors import ConfigurationError
from rag_context.resilience.deadline import set_within
from rag_context.server.guarded_protocol import protocol_with
from rag_context.server.options import ServerOptions
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


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the fastest event loop at hand."""
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

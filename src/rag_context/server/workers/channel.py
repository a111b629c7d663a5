"""The two ends of the socket pair between the supervisor and a worker.

The supervisor sends what the worker starts with, then connections, and how many of them to end. The end of its stream
requests the stop, so that a worker also stops when the supervisor dies. The worker sends reports, a line of JSON each.
"""

import asyncio
import json
import pickle
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

_LENGTH = struct.Struct("!Q")
_CONNECTION = b"c"
_SURPLUS = b"s"
_READ_BYTES = 4096


class Event(StrEnum):
    """What a worker reports."""

    SERVING = "serving"
    """It answers."""
    READY = "ready"
    """Its model is loaded: it answers searches at level 1."""
    CLOSED = "closed"
    """One of its connections has ended."""
    FAILED = "failed"
    """It cannot start, for a reason that people can remove."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report; `status` and `message` belong to a failure: the status to exit with, and a line per problem."""

    event: Event
    status: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Surplus:
    """A worker has a connection that another one can serve."""


class SupervisorEnd:
    """The supervisor's end, for an event loop."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send_start(self, start: Any) -> None:
        """Send what the worker starts with; it is read by `WorkerEnd.receive_start`. Blocking."""
        packed = pickle.dumps(start)
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

    async def reports(self) -> AsyncIterator[Report]:
        """What the worker reports, until it ends."""
        loop, rest = asyncio.get_running_loop(), b""
        with suppress(OSError):
            while received := await loop.sock_recv(self._socket, _READ_BYTES):
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    fields = json.loads(line)
                    yield Report(Event(fields.pop("event")), **fields)

    def ask_to_stop(self) -> None:
        """Send no more connections; the worker answers what it has, and ends."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


class WorkerEnd:
    """The worker's end."""

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
        """The descriptor, readable where a connection or the end has come."""
        return self._socket.fileno()

    def next_connection(self) -> socket.socket | Surplus | None:
        """The next connection, or that one is to be ended; None at the end. Raises: BlockingIOError (nothing now)."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, len(_CONNECTION), 1)
        except ConnectionError:
            return None
        if data == _SURPLUS:
            return Surplus()
        return socket.socket(fileno=descriptors[0]) if data and descriptors else None

    def report(self, report: Report) -> None:
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
    """A new channel: the supervisor's end, and the socket to hand to the worker."""
    ours, theirs = socket.socketpair()
    return SupervisorEnd(ours), theirs

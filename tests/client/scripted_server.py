"""A server that does what a script says, one step a request: what no well server would do."""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """What is done with one request: bytes are sent, and then the connection is closed, or reset.

    With `trickle`, so many blanks follow one by one before that, for as long as someone listens.
    """

    send: bytes = b""
    reset: bool = False
    trickle: int = 0


def reply(status: int, body: Any, **headers: str) -> Step:
    """An answer in JSON, or of bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return Step("\r\n".join(lines).encode() + b"\r\n\r\n" + data)


def cut(status: int, body: bytes, *, promised: int) -> Step:
    """An answer that breaks off: `promised` bytes were announced."""
    return Step(f"HTTP/1.1 {status} Whatever\r\nContent-Length: {promised}\r\n\r\n".encode() + body)


RESET = Step(reset=True)
SILENCE = Step()


@dataclass
class ReceivedRequest:
    """A request as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """The running server, and the requests it received."""

    url: str
    requests: list[ReceivedRequest] = field(default_factory=list)


@contextmanager
def scripted(steps: Sequence[Step]) -> Iterator[Scripted]:
    """Follow the script, then close the port: it refuses connections."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Scripted(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def serve() -> None:
        for step in steps:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                server.requests.append(_read(connection))
                _follow(connection, step)
        listener.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.close()


def _read(connection: socket.socket) -> ReceivedRequest:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    return ReceivedRequest(first, headers, body)


def _follow(connection: socket.socket, step: Step) -> None:
    if step.reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return
    connection.sendall(step.send)
    for _ in range(step.trickle):
        time.sleep(0.02)
        try:
            connection.sendall(b" ")
        except OSError:  # the caller has gone
            return

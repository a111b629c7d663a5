"""A real server on a loopback port, in a thread of its own, and functions to call it."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from rag_context.server.app import create_app
from rag_context.server.options import ServerOptions
from rag_context.server.running import bind, build_server

from .stub_service import StubService, as_service

SEARCH = "/tools/rag_context_search"
INDEX = "/tools/rag_context_index"
DOCUMENT = {"content": "text", "contentType": "chat", "sessionId": "s1", "source": "talk"}


@dataclass(frozen=True)
class Running:
    """A running server and the stub behind it."""

    host: str
    port: int
    service: StubService

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def client(self, **headers: str) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, headers=headers, trust_env=False, timeout=20)

    def raw(self, request: bytes) -> "RawReply":
        """Send bytes as they are and read the reply until the server closes or is done."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_reply(connection)

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=20)


@dataclass(frozen=True)
class RawReply:
    """A reply as it came off the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def read_reply(connection: socket.socket) -> RawReply:
    """One reply with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers["content-length"]):
        body += _more(connection)
    return RawReply(int(first.split()[1]), headers, body)


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("closed before the reply was complete")
    return data


@contextmanager
def running(service: StubService, options: ServerOptions) -> Iterator[Running]:
    """Serve `service` on a free port until the block ends."""
    listener = bind(options)
    host, port = listener.getsockname()[:2]
    server = build_server(create_app(as_service(service), options), options)

    def serve() -> None:
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve(sockets=[listener]))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        yield Running("127.0.0.1" if host == "0.0.0.0" else host, port, service)
    finally:
        server.stop()
        thread.join()

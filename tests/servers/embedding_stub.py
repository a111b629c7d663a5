"""An embedding server over real sockets that answers what a test says: vectors, other servers' oddities, faults."""

import asyncio
import base64
import hashlib
import json
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rag_context.domain.vectors import Vector


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it came in; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    fields: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        return list(self.fields["input"])


@dataclass(frozen=True)
class Wire:
    """What goes back over the wire, and what becomes of the connection. `until` is waited for before anything.

    With `drip`, its bytes follow one after the other, over and over, as long as someone listens.
    """

    data: bytes = b""
    drip: bytes = b""
    close: bool = False
    reset: bool = False
    until: asyncio.Event | None = None


Behaviour = Callable[[ReceivedRequest], Wire]


def reply(payload: object, status: int = 200, **headers: str) -> Behaviour:
    """Always this reply: JSON, or bytes as they are."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    lines = [f"HTTP/1.1 {status} Whatever", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return lambda _: Wire("\r\n".join([*lines, "", ""]).encode() + body)


def vector(text: str, dimension: int, seed: str) -> Vector:
    """A fixed unit vector of a text, another for every seed."""
    digest = hashlib.sha256(f"{seed}/{text}".encode()).digest()
    numbers = np.random.default_rng(list(digest[:8])).standard_normal(dimension)
    unit: Vector = (numbers / np.linalg.norm(numbers)).astype(np.float32)
    return unit


@dataclass
class EmbeddingStub:
    """A server whose "model" is a seed. `script` holds what the next requests for vectors meet; then it works."""

    dimension: int = 8
    seed: str = "one"
    name: str | None = "stub"
    noise: float = 0.0
    models: Behaviour = field(default_factory=lambda: reply({"object": "list", "data": [{"id": "stub"}]}))
    script: deque[Behaviour] = field(default_factory=deque)
    always: Behaviour | None = None
    """What every request for vectors meets once the script is done; None: vectors."""

    reranking: Behaviour | None = None
    """What requests to rerank meet."""

    requests: list[ReceivedRequest] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every request for vectors."""

    connections_made: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _connections: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def texts(self) -> list[list[str]]:
        """The texts of every request for vectors."""
        return [request.texts for request in self.requests if request.path.endswith("/embeddings")]

    async def start(self) -> None:
        """Listen; on the same port as before, if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and reset the open connections."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._connections):
            _reset(writer)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()
        self._server = None

    def embed(self, request: ReceivedRequest) -> Wire:
        """The vectors of the texts, as OpenAI writes them."""
        rows = [self.vector(text) for text in request.texts]
        data = [{"object": "embedding", "index": i, "embedding": row.tolist()} for i, row in enumerate(rows)]
        return reply({"object": "list", "data": data, **({"model": self.name} if self.name else {})})(request)

    def vector(self, text: str) -> Vector:
        """What the model gives a text, with this much noise."""
        exact = vector(text, self.dimension, self.seed)
        return exact + self.noise * vector(text, self.dimension, "noise")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(writer)
        self.connections_made += 1
        self._tasks.add(task)
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                wire = self._behaviour(request)(request)
                self.arrived.set()
                if wire.until is not None:
                    await wire.until.wait()
                writer.write(wire.data)
                if wire.reset:
                    _reset(writer)
                    return
                await writer.drain()
                while wire.drip:
                    await asyncio.sleep(0.005)
                    writer.write(wire.drip)
                    await writer.drain()
                if wire.close:
                    return
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._connections.discard(writer)
            self._tasks.discard(task)
            writer.close()

    def _behaviour(self, request: ReceivedRequest) -> Behaviour:
        if request.path.endswith("/models"):
            return self.models
        if self.reranking is not None and request.path.endswith("/rerank"):
            return self.reranking
        if not request.path.endswith("/v1/embeddings"):
            return reply({"error": f"Unexpected endpoint or method. ({request.method} {request.path})"})
        if self.script:
            return self.script.popleft()
        return self.always or self.embed


@asynccontextmanager
async def embedding_stub(**fields: Any) -> AsyncIterator[EmbeddingStub]:
    """A stub on a free port for the time of the block."""
    stub = EmbeddingStub(**fields)
    await stub.start()
    try:
        yield stub
    finally:
        await stub.stop()


def packed(vectors: Sequence[Vector]) -> list[str]:
    """Vectors in base64 of little-endian float32."""
    return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    """The next request of a connection; None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = first.split()
    return ReceivedRequest(method, path, headers, json.loads(body) if body else {})


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a TCP reset."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

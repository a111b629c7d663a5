"""A proxy that goes wrong on command, in front of any backend that speaks over TCP and lets its client speak first.

    async with fault_proxy("127.0.0.1", port) as proxy:
        client = connect(proxy.url("redis"))
        proxy.fault = HangAfter()

A fault holds for all connections at once, those that are open and idle too, until another one is set; a single
connection may be given one of its own (`proxy.connections[0].fault = ...`). What hangs or drips goes
on when the fault is lifted. Tests without an event loop use `fault_proxy_in_thread`.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias

CHUNK = 65536
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Pass:
    """No fault."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No server listens, and what was connected is cut off."""


@dataclass(frozen=True, slots=True)
class HangBefore:
    """Requests do not reach the backend."""


@dataclass(frozen=True, slots=True)
class HangAfter:
    """Requests reach the backend, its answers never the client."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Every connection is reset, open ones now and new ones as soon as they are made."""


@dataclass(frozen=True, slots=True)
class Drip:
    """Answers come a few bytes at a time."""

    size: int = 1
    pause_s: float = 0.02


@dataclass(frozen=True, slots=True)
class HalfBody:
    """Half of an answer (of its body, where it is HTTP), and then the end."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """Something else in place of an answer, and then the end."""

    content: bytes = bytes(range(128, 256)) + b"\r\n"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The proxy answers HTTP requests by itself; the backend never sees them."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        headers = {"Content-Type": "application/json", **self.headers, "Content-Length": str(len(self.body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{lines}\r\n".encode() + self.body


@dataclass(frozen=True, slots=True)
class Refusal:
    """The proxy answers HTTP requests whose first line holds `line` by itself; all others are passed on."""

    line: bytes
    answer: HttpAnswer


Fault: TypeAlias = Pass | Refuse | HangBefore | HangAfter | Reset | Drip | HalfBody | Garbage | HttpAnswer | Refusal

SERVER_ERROR = HttpAnswer(500, b'{"error": "internal"}')
UNAVAILABLE = HttpAnswer(503, b'{"error": "unavailable"}')
EMPTY_OK = HttpAnswer(200)


def too_many_requests(retry_after_s: int = 1) -> HttpAnswer:
    """429 with `Retry-After`."""
    return HttpAnswer(429, b'{"error": "slow down"}', {"Retry-After": str(retry_after_s)})


class Connection:
    """One client's connection and, once it has sent something that is passed on, one to the backend."""

    def __init__(self, proxy: "FaultProxy", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._backend: asyncio.StreamWriter | None = None
        self._answers: asyncio.Task[None] | None = None
        self._fault: Fault | None = None
        self._asked = b""

    @property
    def fault(self) -> Fault:
        """Its own fault, or the one of all."""
        return self._proxy.fault if self._fault is None else self._fault

    @fault.setter
    def fault(self, fault: Fault | None) -> None:
        self._fault = fault
        self._proxy.wake()
        self.obey()

    def obey(self) -> None:
        """Do at once what a new fault means for an open connection."""
        if isinstance(self.fault, Refuse | Reset):
            self.reset()

    def reset(self) -> None:
        """End it with RST instead of FIN."""
        for writer in (self._writer, self._backend):
            if writer is not None and not writer.transport.is_closing():
                peer: socket.socket = writer.get_extra_info("socket")
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()

    async def run(self) -> None:
        """Pass everything on, as the fault of the moment allows, until one side ends."""
        try:
            with suppress(OSError):
                await self._requests()
        finally:
            if self._answers is not None:
                self._answers.cancel()
            for writer in (self._writer, self._backend):
                if writer is not None:
                    writer.close()

    async def _requests(self) -> None:
        self.obey()
        while data := await self._reader.read(CHUNK):
            data = await self._held(data)
            if isinstance(self.fault, HttpAnswer):
                await self._answer_itself(data)
            elif isinstance(self.fault, Refusal) and self.fault.line in data.partition(b"\r\n")[0]:
                self._writer.write(self.fault.answer.encoded())
            elif data:
                await self._pass_on(data)

    async def _held(self, data: bytes) -> bytes:
        """The request once it may go on; nothing where the client gave up meanwhile."""
        while isinstance(self.fault, HangBefore):
            change = asyncio.create_task(self._proxy.changed())
            reading = asyncio.create_task(self._reader.read(CHUNK))
            try:
                await asyncio.wait({change, reading}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
                reading.cancel()
                await asyncio.wait({change, reading})
            if not reading.cancelled():
                more = reading.result()
                if not more:
                    return b""
                data += more
        return data

    async def _pass_on(self, data: bytes) -> None:
        if self._backend is None:
            reader, self._backend = await asyncio.open_connection(self._proxy.backend_host, self._proxy.backend_port)
            self._answers = asyncio.create_task(self._pass_back(reader))
        self._backend.write(data)
        await self._backend.drain()

    async def _answer_itself(self, data: bytes) -> None:
        self._asked += data
        while (length := _request_length(self._asked)) is not None:
            self._asked = self._asked[length:]
            if isinstance(self.fault, HttpAnswer):
                self._writer.write(self.fault.encoded())
        await self._writer.drain()

    async def _pass_back(self, backend: asyncio.StreamReader) -> None:
        try:
            with suppress(OSError):
                while data := await backend.read(CHUNK):
                    await self._unless(HangBefore, HangAfter)
                    if not await self._sent_back(data):
                        return
        finally:
            self._writer.close()

    async def _sent_back(self, data: bytes) -> bool:
        """Send an answer, or what becomes of it; whether more may follow."""
        match self.fault:
            case Drip(size, pause_s):
                while data and isinstance(self.fault, Drip | HangBefore | HangAfter):
                    await self._unless(HangBefore, HangAfter)
                    self._writer.write(data[:size])
                    data = data[size:]
                    await asyncio.sleep(pause_s)
                self._writer.write(data)
            case HalfBody():
                self._writer.write(_half(data))
            case Garbage(content):
                self._writer.write(content)
            case _:
                self._writer.write(data)
        await self._writer.drain()
        return not isinstance(self.fault, HalfBody | Garbage)

    async def _unless(self, *faults: type[Fault]) -> None:
        """Wait while one of these faults holds."""
        while isinstance(self.fault, faults):
            await self._proxy.changed()


class FaultProxy:
    """Listens on a free port of 127.0.0.1 in front of a backend; made by `fault_proxy`."""

    def __init__(self, backend_host: str, backend_port: int) -> None:
        self.backend_host = backend_host
        self.backend_port = backend_port
        self.host = "127.0.0.1"
        self._fault: Fault = Pass()
        self._socket = _bound(self.host, 0)
        self.port: int = self._socket.getsockname()[1]
        self._listening: asyncio.Task[None] | None = None
        self._tasks: dict[asyncio.Task[None], Connection] = {}
        self._changed = asyncio.Event()
        self.accepted = 0
        """Connections made so far."""
        self._listen()

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those that are open, oldest first."""
        return tuple(self._tasks.values())

    def url(self, scheme: str = "http") -> str:
        """Where clients shall connect to."""
        return f"{scheme}://{self.host}:{self.port}"

    @property
    def fault(self) -> Fault:
        """What goes wrong now. Setting it holds for everything from this moment on."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        rejected = isinstance(self._fault, Refuse)
        self._fault = fault
        if isinstance(fault, Refuse) and not rejected:
            self._stop_listening()
            self._socket = _bound(self.host, self.port)  # no one else shall get the port meanwhile
        elif rejected and not isinstance(fault, Refuse):
            self._listen()
        for connection in self.connections:
            connection.obey()
        self.wake()

    def wake(self) -> None:
        """Let everything that waits look at its fault again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next change of any fault."""
        await self._changed.wait()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        self._stop_listening()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _listen(self) -> None:
        """From now on the kernel takes connections; the loop comes to them as soon as it can."""
        self._socket.listen(128)
        self._socket.setblocking(False)
        self._listening = asyncio.create_task(self._accept(self._socket))

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
            asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listening)
            self.accepted += 1
            try:
                connection = Connection(self, *await asyncio.open_connection(sock=client))
            except asyncio.CancelledError:
                client.close()
                raise
            task = asyncio.create_task(connection.run())
            self._tasks[task] = connection
            task.add_done_callback(self._tasks.pop)


class ThreadedFaultProxy:
    """A `FaultProxy` whose loop runs in a thread of its own."""

    def __init__(self, proxy: FaultProxy, call: Callable[[Callable[[], None]], None]) -> None:
        self._proxy = proxy
        self._call = call
        self.host = proxy.host
        self.port = proxy.port

    @property
    def accepted(self) -> int:
        return self._proxy.accepted

    def url(self, scheme: str = "http") -> str:
        return self._proxy.url(scheme)

    @property
    def fault(self) -> Fault:
        return self._proxy.fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        """Returns when the fault holds."""
        self._call(lambda: setattr(self._proxy, "fault", fault))


@asynccontextmanager
async def fault_proxy(host: str, port: int) -> AsyncIterator[FaultProxy]:
    """A proxy in front of the backend at `host` and `port`, which need not be there yet."""
    proxy = FaultProxy(host, port)
    try:
        yield proxy
    finally:
        await proxy.close()


@contextmanager
def fault_proxy_in_thread(host: str, port: int) -> Iterator[ThreadedFaultProxy]:
    """As `fault_proxy`, for tests without an event loop."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name="fault proxy")
        thread.start()

        async def make() -> FaultProxy:
            return FaultProxy(host, port)

        def call(work: Callable[[], None]) -> None:
            async def do() -> None:
                work()

            asyncio.run_coroutine_threadsafe(do(), loop).result(TIMEOUT_S)

        proxy = asyncio.run_coroutine_threadsafe(make(), loop).result(TIMEOUT_S)
        try:
            yield ThreadedFaultProxy(proxy, call)
        finally:
            asyncio.run_coroutine_threadsafe(proxy.close(), loop).result(TIMEOUT_S)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has the port and rejects until it listens."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    return made


def _request_length(data: bytes) -> int | None:
    """Bytes of the first HTTP request in `data`; None while it is not there in full."""
    head, end, _ = data.partition(b"\r\n\r\n")
    if not end:
        return None
    start = len(head) + len(end)
    headers = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    if b"chunked" in headers.get(b"transfer-encoding", b""):
        last = data.find(b"0\r\n\r\n", start)
        return None if last < 0 else last + 5
    length = start + int(headers.get(b"content-length", b"0"))
    return length if len(data) >= length else None


def _half(data: bytes) -> bytes:
    head, end, body = data.partition(b"\r\n\r\n")
    if data.startswith(b"HTTP/") and end:
        return head + end + body[: len(body) // 2]
    return data[: len(data) // 2]

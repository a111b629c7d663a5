"""The fault proxy itself: what each fault looks like to a client, and that it holds at once."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx2
import pytest

from tests.servers.faults import (
    EMPTY_OK,
    SERVER_ERROR,
    UNAVAILABLE,
    Drip,
    Fault,
    FaultProxy,
    Garbage,
    HalfBody,
    HangAfter,
    HangBefore,
    HttpAnswer,
    Pass,
    Refuse,
    Reset,
    fault_proxy,
    fault_proxy_in_thread,
    too_many_requests,
)

BODY = b'{"said": "0123456789"}'
SOON_S = 0.1
"""Long enough for an answer that is on its way."""


@dataclass
class Backend:
    """Answers every HTTP request with the same, on connections that stay open."""

    port: int = 0
    asked: int = 0
    received: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.asked += 1
                self.received.set()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    made = Backend()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    await server.wait_closed()


@pytest.fixture
async def proxy(backend: Backend) -> AsyncIterator[FaultProxy]:
    async with fault_proxy("127.0.0.1", backend.port) as made:
        yield made


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[httpx2.AsyncClient]:
    """One that keeps its connection, and has used it once."""
    async with httpx2.AsyncClient(base_url=proxy.url(), timeout=20, trust_env=False) as made:
        assert (await made.get("/")).content == BODY
        yield made


async def answer_within(client: httpx2.AsyncClient, seconds: float) -> httpx2.Response:
    async with asyncio.timeout(seconds):
        return await client.get("/")


async def test_without_a_fault_everything_passes_on_one_connection(
    client: httpx2.AsyncClient, proxy: FaultProxy, backend: Backend
) -> None:
    assert (await client.get("/")).content == BODY
    assert (proxy.accepted, len(proxy.connections), backend.asked) == (1, 1, 2)


async def test_refusing_closes_open_connections_and_accepts_none(client: httpx2.AsyncClient, proxy: FaultProxy) -> None:
    proxy.fault = Refuse()
    with pytest.raises((httpx2.NetworkError, httpx2.RemoteProtocolError)):
        await client.get("/")
    with pytest.raises(httpx2.ConnectError):
        await client.get("/")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((proxy.host, proxy.port))
    proxy.fault = Pass()
    assert (await client.get("/")).content == BODY


async def test_it_refuses_connections_and_returns_on_the_same_port_repeatedly(proxy: FaultProxy) -> None:
    for _ in range(20):
        proxy.fault = Refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((proxy.host, proxy.port))
        proxy.fault = Pass()
        async with httpx2.AsyncClient(trust_env=False) as another:
            assert (await another.get(proxy.url())).content == BODY


async def test_a_request_that_hangs_before_the_backend_goes_on_when_the_fault_is_lifted(
    client: httpx2.AsyncClient, proxy: FaultProxy, backend: Backend
) -> None:
    proxy.fault = HangBefore()
    waiting = asyncio.create_task(client.get("/"))
    done, _ = await asyncio.wait({waiting}, timeout=SOON_S)
    assert (len(done), backend.asked) == (0, 1)
    proxy.fault = Pass()
    assert (await waiting).content == BODY


async def test_a_request_given_up_while_it_hangs_never_reaches_the_backend(
    client: httpx2.AsyncClient, proxy: FaultProxy, backend: Backend
) -> None:
    proxy.fault = HangBefore()
    with pytest.raises(TimeoutError):
        await answer_within(client, SOON_S)
    while proxy.connections:
        await asyncio.sleep(0.001)
    proxy.fault = Pass()
    assert (await client.get("/")).content == BODY
    assert backend.asked == 2


async def test_a_request_that_hangs_after_the_backend_was_done_there(
    client: httpx2.AsyncClient, proxy: FaultProxy, backend: Backend
) -> None:
    backend.received.clear()
    proxy.fault = HangAfter()
    waiting = asyncio.create_task(client.get("/"))
    await backend.received.wait()
    done, _ = await asyncio.wait({waiting}, timeout=SOON_S)
    assert (len(done), backend.asked) == (0, 2)
    proxy.fault = Pass()
    assert (await waiting).content == BODY


async def test_a_reset_comes_at_once_to_a_connection_that_waits(client: httpx2.AsyncClient, proxy: FaultProxy) -> None:
    proxy.fault = HangAfter()
    waiting = asyncio.create_task(client.get("/"))
    await asyncio.wait({waiting}, timeout=SOON_S)
    proxy.fault = Reset()
    with pytest.raises(httpx2.ReadError):
        await waiting
    with pytest.raises((httpx2.ReadError, httpx2.ConnectError, httpx2.RemoteProtocolError)):
        await client.get("/")


async def test_a_reset_is_one_on_the_wire(proxy: FaultProxy) -> None:
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read(1) == b"H"
    proxy.fault = Reset()
    with pytest.raises(ConnectionResetError):
        await reader.read(1000) and await reader.read(1000)
    writer.close()


async def test_an_answer_drips(client: httpx2.AsyncClient, proxy: FaultProxy) -> None:
    proxy.fault = Drip(size=16, pause_s=0)
    assert (await client.get("/")).content == BODY
    proxy.fault = Drip(size=1, pause_s=3600)
    with pytest.raises(TimeoutError):
        await answer_within(client, SOON_S)


@pytest.mark.parametrize("fault", [HalfBody(), Garbage()])
async def test_a_spoilt_answer_ends_the_connection(client: httpx2.AsyncClient, proxy: FaultProxy, fault: Fault) -> None:
    proxy.fault = fault
    for _ in range(2):
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/")
    proxy.fault = Pass()
    assert (await client.get("/")).content == BODY


async def test_half_a_body_comes_with_its_complete_head(proxy: FaultProxy) -> None:
    proxy.fault = HalfBody()
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert (head.split()[1], body) == (b"200", BODY[: len(BODY) // 2])
    writer.close()


@pytest.mark.parametrize(
    ("fault", "status"), [(too_many_requests(7), 429), (SERVER_ERROR, 500), (UNAVAILABLE, 503), (EMPTY_OK, 200)]
)
async def test_it_answers_http_by_itself_on_connections_that_stay(
    client: httpx2.AsyncClient, proxy: FaultProxy, backend: Backend, fault: HttpAnswer, status: int
) -> None:
    proxy.fault = fault
    for _ in range(2):
        said = await client.post("/", content=b"x" * 200_000)
        assert (said.status_code, said.content) == (status, fault.body)
        assert said.headers.get("Retry-After") == ("7" if status == 429 else None)
    assert (proxy.accepted, backend.asked) == (1, 1)
    proxy.fault = Pass()
    assert (await client.get("/")).content == BODY


async def test_it_answers_a_chunked_request_once(client: httpx2.AsyncClient, proxy: FaultProxy) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    proxy.fault = UNAVAILABLE
    assert (await client.post("/", content=pieces())).status_code == 503
    assert (await client.get("/")).status_code == 503


async def test_it_answers_where_there_is_no_backend() -> None:
    async with fault_proxy("127.0.0.1", 1) as proxy, httpx2.AsyncClient(trust_env=False) as client:
        proxy.fault = EMPTY_OK
        assert (await client.get(proxy.url())).content == b""
        proxy.fault = Pass()
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get(proxy.url())


async def test_one_connection_may_fail_alone(client: httpx2.AsyncClient, proxy: FaultProxy) -> None:
    (first,) = proxy.connections
    async with httpx2.AsyncClient(base_url=proxy.url(), trust_env=False) as other:
        assert (await other.get("/")).content == BODY
        first.fault = UNAVAILABLE
        assert (await client.get("/")).status_code == 503
        assert (await other.get("/")).content == BODY
        first.fault = None
        assert (await client.get("/")).content == BODY


async def test_one_connection_is_reset_alone(client: httpx2.AsyncClient, proxy: FaultProxy) -> None:
    (first,) = proxy.connections
    async with httpx2.AsyncClient(base_url=proxy.url(), trust_env=False) as other:
        assert (await other.get("/")).content == BODY
        first.fault = Reset()
        assert (await other.get("/")).content == BODY
        assert first not in proxy.connections


async def test_nothing_is_left_when_the_block_ends() -> None:
    before = asyncio.all_tasks()
    async with fault_proxy("127.0.0.1", 1) as proxy, httpx2.AsyncClient(base_url=proxy.url()) as client:
        proxy.fault = EMPTY_OK
        await client.get("/")
        proxy.fault = HangBefore()
        waiting = asyncio.create_task(client.get("/"))
        await asyncio.wait({waiting}, timeout=0.01)
        await proxy.close()
        with pytest.raises(httpx2.RemoteProtocolError):
            await waiting
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((proxy.host, proxy.port))
    assert asyncio.all_tasks() - before == set()


def test_a_test_without_a_loop_can_use_it_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        with fault_proxy_in_thread("127.0.0.1", port) as proxy, httpx2.Client(trust_env=False) as client:
            proxy.fault = SERVER_ERROR
            assert client.get(proxy.url()).status_code == 500
            proxy.fault = Refuse()
            with pytest.raises(httpx2.ConnectError):
                client.get(proxy.url())
            proxy.fault = EMPTY_OK
            assert client.get(proxy.url()).status_code == 200
            assert (proxy.accepted, isinstance(proxy.fault, HttpAnswer)) == (2, True)

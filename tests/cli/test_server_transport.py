"""HTTP to the server of this machine: what arrives whole, what breaks on the way, and how a wait is ended."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx2
import pytest

from rag_context.cli.server_transport import ServerTransport

MIB = 1 << 20


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does this with its only connection."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(5.0)
        assert not thread.is_alive()


def read_request(connection: socket.socket) -> None:
    """Read a request with an empty object as its body."""
    received = b""
    while not received.endswith(b"{}"):
        received += connection.recv(1 << 16)


def answering(response: bytes) -> Callable[[socket.socket], None]:
    """Read a request, and answer with these bytes."""

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(response)

    return answer


async def post(url: str, body: bytes = b"{}", timeout_s: float = 5.0) -> httpx2.Response:
    async with httpx2.AsyncClient(transport=ServerTransport(), timeout=timeout_s) as client:
        return await client.post(f"{url}/search", content=body)


async def test_a_body_of_chunks_arrives_whole() -> None:
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with listening(answering(chunks)) as url:
        reply = await post(url)

    assert (reply.status_code, reply.content) == (200, b"abcde")


@pytest.mark.parametrize(
    "cut_off",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
async def test_what_breaks_off_or_is_not_http_is_no_answer(cut_off: bytes) -> None:
    with listening(answering(cut_off)) as url, pytest.raises(httpx2.RemoteProtocolError):
        await post(url)


async def test_a_rejection_is_read_although_the_body_was_not() -> None:
    def reject(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    with listening(reject) as url:
        reply = await post(url, b" " * (64 * MIB))

    assert reply.status_code == 413


async def test_a_silent_server_is_given_up_in_time() -> None:
    released = threading.Event()

    def wait(_: socket.socket) -> None:
        released.wait(5.0)

    with listening(wait) as url:
        with pytest.raises(httpx2.ReadTimeout):
            await post(url, timeout_s=0.05)
        released.set()


async def test_a_cancelled_call_closes_its_connection_and_ends_its_thread() -> None:
    came, closed = threading.Event(), threading.Event()

    def wait(connection: socket.socket) -> None:
        read_request(connection)
        came.set()
        if not connection.recv(1):
            closed.set()

    with listening(wait) as url:
        call = asyncio.create_task(post(url))
        await asyncio.to_thread(came.wait, 5.0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.get_running_loop().shutdown_default_executor()

    assert closed.is_set()


async def test_a_closed_port_and_another_scheme_are_errors_of_their_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(httpx2.ConnectError):
        await post(f"http://127.0.0.1:{port}")
    with pytest.raises(httpx2.UnsupportedProtocol):
        await post(f"https://127.0.0.1:{port}")

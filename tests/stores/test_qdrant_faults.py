"""Whatever a Qdrant server, or the way to it, does wrong: a rag-context error, in time, that gives nothing away."""

import asyncio
import json
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from rag_context.domain.search import Filter
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
)
from rag_context.stores.qdrant import CollectionPlan, QdrantVectors, Transport, open_qdrant
from tests.servers.qdrant import running
from tests.stores.builders import axis, chunks_of, document, unit_vectors

PLAN = CollectionPlan("somewhere")
KEY = "s3cret-key"
EVERYTHING = Filter()
SHORT_S = 0.2
UUID = "5abb05ef-4000-5000-8000-000065016174"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def listening(handle: Handler) -> AsyncIterator[int]:
    """A server on a free port that does with every connection what `handle` does."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def saying(answer: bytes) -> Handler:
    """Answers every request with the same bytes, and closes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    return handle


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes everything in and says nothing."""
    while await reader.read(65536):
        pass


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Always says a bit more, so that no single read takes long."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(SHORT_S / 10)


def http(status: int, body: object = "", headers: str = "", length: int | None = None) -> bytes:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(data) if length is None else length}\r\n{headers}\r\n"
    return head.encode() + data


def complaint(reason: str) -> object:
    return {"status": {"error": reason}, "time": 0.0}


def calls(vectors: QdrantVectors) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every operation of the store."""
    written = document("a", "secret content")

    async def listed() -> list[str]:
        return [each async for each in vectors.stored_documents()]

    return {
        "search": lambda: vectors.search(axis(0), limit=5, where=EVERYTHING),
        "score": lambda: vectors.score(axis(0), [UUID]),
        "passages": lambda: vectors.passages([UUID]),
        "ping": vectors.ping,
        "put": lambda: vectors.put(written, chunks_of(written), unit_vectors(1)),
        "discard": lambda: vectors.discard([written.id]),
        "stored_vectors": lambda: vectors.stored_vectors([written.id]),
        "stored_documents": listed,
        "vectors": lambda: vectors.vectors([UUID]),
        "count": vectors.count,
        "clear": vectors.clear,
    }


async def failures(asked: Iterable[Callable[[], Awaitable[object]]]) -> list[BackendError]:
    """What each call raises, all made at the same time; any other outcome is a failure of the test."""

    async def failure(ask: Callable[[], Awaitable[object]]) -> BackendError:
        with pytest.raises(BackendError) as caught:
            await ask()
        return caught.value

    return list(await asyncio.gather(*(failure(ask) for ask in asked)))


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_opening_needs_no_server_and_every_call_says_that_it_is_down(transport: Transport) -> None:
    port = free_port()
    url = f"http://user:{KEY}@127.0.0.1:{port}"
    async with open_qdrant(url, PLAN, api_key=KEY, transport=transport, grpc_port=port) as vectors:
        errors = await failures(calls(vectors).values())
    assert {type(error) for error in errors} == {BackendUnavailableError}
    assert {error.component for error in errors} == {"qdrant"}
    assert not any(KEY in str(error) for error in errors)


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_a_server_that_hangs_is_given_up_in_time(transport: Transport) -> None:
    async with (
        listening(silent) as port,
        open_qdrant(
            f"http://127.0.0.1:{port}", PLAN, transport=transport, grpc_port=port, timeout_s=SHORT_S
        ) as vectors,
    ):
        errors = await failures(calls(vectors).values())
    assert {type(error) for error in errors} == {BackendTimeoutError}


async def test_an_answer_that_never_ends_is_given_up_in_time() -> None:
    async with listening(dripping) as port, open_qdrant(f"http://127.0.0.1:{port}", PLAN, timeout_s=SHORT_S) as vectors:
        with pytest.raises(BackendTimeoutError):
            await vectors.count()


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_a_call_that_is_cancelled_ends_at_once_and_spoils_nothing(transport: Transport) -> None:
    with running() as server:
        async with open_qdrant(server.url, PLAN, transport=transport, grpc_port=server.grpc_port) as vectors:
            written = document("a")
            await vectors.put(written, chunks_of(written), unit_vectors(1))
            for _ in range(5):
                searching = asyncio.create_task(vectors.search(axis(0), limit=5, where=EVERYTHING))
                await asyncio.sleep(0)
                searching.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await searching
            assert len(await vectors.search(axis(0), limit=5, where=EVERYTHING)) == 1


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


async def hung_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


ANSWERS = {
    "reset": (reset, BackendUnavailableError),
    "hung up": (hung_up, BackendUnavailableError),
    "500": (saying(http(500, complaint("Service internal error: disk"))), BackendUnavailableError),
    "503 of a proxy": (saying(http(503, "<html>no backend</html>")), BackendUnavailableError),
    "408": (saying(http(408, complaint("Timeout"))), BackendTimeoutError),
    "429": (saying(http(429, complaint("Too many"))), BackendUnavailableError),
    "400": (saying(http(400, complaint("Wrong input: strict mode"))), BackendRejectedError),
    "403": (saying(http(403, complaint("Forbidden"))), BackendRejectedError),
    "no HTTP": (saying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), BackendDataError),
    "half a body": (saying(http(200, '{"result": {"po', length=5000)), BackendDataError),
    "no JSON": (saying(http(200, "<html>hello</html>")), BackendDataError),
    "half of the JSON": (saying(http(200, '{"result": {"points": [{"id": ')), BackendDataError),
    "no result": (saying(http(200, {"result": None, "status": "ok"})), BackendDataError),
    "no text": (saying(http(200, "{}").replace(b"{}", b"\xff\xfe")), BackendDataError),
    "another result": (saying(http(200, {"result": ["yes"], "status": "ok"})), BackendDataError),
    "404 of another server": (saying(http(404, "Not Found")), BackendDataError),
    "404 in JSON of another server": (saying(http(404, {"error": "Unexpected endpoint"})), BackendDataError),
    "a redirect": (saying(http(302, "", "Location: /login\r\n")), BackendDataError),
}


@pytest.mark.parametrize("fault", ANSWERS)
async def test_every_wrong_answer_becomes_a_rag_context_error(fault: str) -> None:
    handle, expected = ANSWERS[fault]
    async with listening(handle) as port, open_qdrant(f"http://127.0.0.1:{port}", PLAN, api_key=KEY) as vectors:
        errors = await failures(calls(vectors).values())
    assert {type(error) for error in errors} == {expected}
    for error in errors:
        assert error.__cause__ is not None
        assert KEY not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "x" * 256])
async def test_a_name_that_no_collection_can_have_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"stores\.qdrant_collection"):
        async with open_qdrant("http://127.0.0.1:1", CollectionPlan(name)):
            pass


@pytest.mark.parametrize(
    "url", [f"http://user:{KEY}@[::1", f"http://user:{KEY}@host:99999", f"http://user:{KEY}@one,,two"]
)
async def test_an_invalid_address_stops_the_start_and_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"stores\.qdrant_url") as caught:
        async with open_qdrant(url, PLAN):
            pass
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None  # it would repeat the address


@pytest.mark.parametrize(
    ("header", "wish"),
    [("Retry-After: 7\r\n", 7.0), ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\n", None), ("", None)],
)
async def test_a_server_with_too_many_requests_says_when_to_come_back(header: str, wish: float | None) -> None:
    answer = saying(http(429, complaint("Too many requests"), header))
    async with listening(answer) as port, open_qdrant(f"http://127.0.0.1:{port}", PLAN) as vectors:
        with pytest.raises(BackendUnavailableError) as caught:
            await vectors.count()
    assert caught.value.retry_after_s == wish


@pytest.mark.parametrize("transport", ["http", "grpc"])
@pytest.mark.parametrize("key", [None, "another"])
async def test_without_the_right_key_the_setting_is_named(key: str | None, transport: Transport) -> None:
    with running(api_key=KEY) as server:
        async with open_qdrant(
            server.url, PLAN, api_key=key, transport=transport, grpc_port=server.grpc_port
        ) as vectors:
            errors = await failures(calls(vectors).values())
        assert {type(error) for error in errors} == {BackendRejectedError}
        assert all("stores.qdrant_api_key" in str(error) for error in errors)
        async with open_qdrant(
            server.url, PLAN, api_key=KEY, transport=transport, grpc_port=server.grpc_port
        ) as vectors:
            assert await vectors.count() == 0


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_it_comes_back_when_the_server_does(transport: Transport) -> None:
    with running() as first:
        port, grpc_port = int(first.url.rsplit(":", 1)[1]), first.grpc_port
    async with open_qdrant(first.url, PLAN, transport=transport, grpc_port=grpc_port) as vectors:
        with pytest.raises(BackendUnavailableError):
            await vectors.count()
        with running(port=port, grpc_port=grpc_port):
            async with asyncio.timeout(20):
                while True:
                    try:
                        assert await vectors.count() == 0
                        break
                    except BackendUnavailableError:
                        await asyncio.sleep(0.02)


@contextmanager
def refusing(code: grpc.StatusCode, trailing: tuple[tuple[str, str], ...] = ()) -> Iterator[int]:
    """A gRPC server that fails every call in the same way."""

    class Refuse(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            def answer(request: bytes, context: Any) -> None:
                context.set_trailing_metadata(trailing)
                context.abort(code, "because of something")

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Refuse(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(grace=None).wait()


CODES = {
    "UNAVAILABLE": BackendUnavailableError,
    "INTERNAL": BackendUnavailableError,
    "UNKNOWN": BackendUnavailableError,
    "ABORTED": BackendUnavailableError,
    "RESOURCE_EXHAUSTED": BackendUnavailableError,
    "DEADLINE_EXCEEDED": BackendTimeoutError,
    "PERMISSION_DENIED": BackendRejectedError,
    "UNAUTHENTICATED": BackendRejectedError,
    "INVALID_ARGUMENT": BackendRejectedError,
    "FAILED_PRECONDITION": BackendRejectedError,
    "DATA_LOSS": BackendDataError,
    "UNIMPLEMENTED": BackendDataError,
}


@pytest.mark.parametrize("code", CODES)
async def test_every_failure_over_grpc_becomes_a_rag_context_error(code: str) -> None:
    with refusing(grpc.StatusCode[code]) as port:
        async with open_qdrant("http://127.0.0.1:1", PLAN, transport="grpc", grpc_port=port) as vectors:
            with pytest.raises(BackendError) as caught:
                await vectors.stored_vectors(["a"])
    assert type(caught.value) is CODES[code]


async def test_a_retry_delay_comes_through_grpc_too() -> None:
    with refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, (("retry-after", "7"),)) as port:
        async with open_qdrant("http://127.0.0.1:1", PLAN, transport="grpc", grpc_port=port) as vectors:
            with pytest.raises(BackendUnavailableError) as caught:
                await vectors.stored_vectors(["a"])
    assert caught.value.retry_after_s == 7.0


async def test_a_web_server_on_the_grpc_port_is_a_rag_context_error() -> None:
    answer = saying(http(200, "<html>hello</html>"))
    async with (
        listening(answer) as port,
        open_qdrant("http://127.0.0.1:1", PLAN, transport="grpc", grpc_port=port, timeout_s=SHORT_S) as vectors,
    ):
        with pytest.raises(BackendError):
            await vectors.count()

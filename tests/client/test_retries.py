"""What happens when the server is away, busy, broken, or not from rag-context; both clients do the same."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from rag_context.api.operations import Access
from rag_context.client import (
    AccessDeniedError,
    AsyncClient,
    Client,
    ClientError,
    ConflictError,
    InvalidResponseError,
    Retries,
    ServerBusyError,
    ServerError,
    ServerTimeoutError,
    ServerUnreachableError,
)
from rag_context.client.call import Call
from rag_context.errors import BackendError, BackendTimeoutError, BackendUnavailableError, ConfigurationError
from rag_context.server.options import HashedKey, ServerOptions, hash_key
from tests.server.server_thread import running
from tests.server.stub_service import StubService

from .client_kinds import Threaded
from .scripted_server import RESET, SILENCE, Scripted, Step, cut, reply, scripted

QUICK = Retries(tries=3, base_s=0.0, cap_s=1.0)
STATS = {
    "totalDocuments": 1, "totalQueries": 2, "avgLatency": 1.0, "p95Latency": 1.0, "p99Latency": 1.0,
    "cacheHitRate": 0.0, "fallbackRate": 0.0, "queriesByAgent": {}, "queriesByLevel": {}, "queriesByGame": {},
    "timeline": [], "aFieldOfALaterVersion": 1,
}  # fmt: skip
ANSWER = reply(200, STATS)
BUSY = reply(503, {"error": "Database unavailable", "code": "SERVICE_UNAVAILABLE", "requestId": "r-9"}, Retry_After="0")
LINE = {"content": "text", "contentType": "chat", "sessionId": "s", "source": "talk"}

FORKED = """
import os, sys
from rag_context.client import Client
with Client(sys.argv[1], api_key="") as client:
    client.stats()
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    client.stats()
"""


@pytest.fixture(params=["client", "async client"])
def client_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def connected(client_kind: str, url: str, **options: Any) -> AsyncIterator[AsyncClient]:
    """A client of either kind that does not wait between its tries."""
    options = {"api_key": "", "retries": QUICK, **options}
    if client_kind == "client":
        with Client(url, **options) as client:
            yield cast("AsyncClient", Threaded(client))
        return
    async with AsyncClient(url, **options) as async_client:
        yield async_client


async def failure(client_kind: str, server: Scripted, **options: Any) -> ClientError:
    async with connected(client_kind, server.url, **options) as context:
        with pytest.raises(ClientError) as reported:
            await context.stats(request_id="r-1")
    return reported.value


@pytest.mark.parametrize("trouble", [RESET, SILENCE, BUSY, cut(200, b'{"total', promised=99), reply(502, b"<html>")])
async def test_what_passes_is_tried_again_under_the_same_id(client_kind: str, trouble: Any) -> None:
    with scripted([trouble, trouble, ANSWER]) as server:
        async with connected(client_kind, server.url) as context:
            assert (await context.stats(request_id="r-1")).total_queries == 2
    assert [request.headers["x-request-id"] for request in server.requests] == ["r-1", "r-1", "r-1"]


async def test_after_three_tries_it_is_reported(client_kind: str) -> None:
    with scripted([BUSY] * 3) as server:
        error = await failure(client_kind, server)
    assert isinstance(error, ServerBusyError)
    assert isinstance(error, BackendUnavailableError)
    assert str(error) == "Database unavailable"
    assert (error.status, error.code, error.request_id) == (503, "SERVICE_UNAVAILABLE", "r-9")
    assert error.server_message == "Database unavailable"
    assert (error.retry_after_s, error.component) == (0.0, "server")
    assert len(server.requests) == 3


async def test_a_longer_wait_than_a_caller_would_sit_out_is_reported_at_once(client_kind: str) -> None:
    with scripted(
        [reply(429, {"error": "Circuit breaker is open", "code": "CIRCUIT_OPEN"}, Retry_After="60")]
    ) as server:
        error = await failure(client_kind, server)
    assert isinstance(error, ServerBusyError)
    assert (error.status, error.code, error.retry_after_s) == (429, "CIRCUIT_OPEN", 60.0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AccessDeniedError),
        (403, AccessDeniedError),
        (409, ConflictError),
        (500, ServerError),
        (302, InvalidResponseError),
    ],
)
async def test_what_would_fail_again_is_not_tried_again(client_kind: str, status: int, kind: type[ClientError]) -> None:
    with scripted([reply(status, {"error": "No", "code": "SOME_CODE"}), ANSWER]) as server:
        error = await failure(client_kind, server)
    assert type(error) is kind
    assert (error.status, str(error)) == (status, "No")
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"{}", b"\xff\xfe", b"[]"])
async def test_a_response_of_another_server_is_reported_as_one(client_kind: str, body: bytes) -> None:
    with scripted([reply(200, body)]) as server:
        error = await failure(client_kind, server)
    assert isinstance(error, InvalidResponseError)
    assert "another server, or another version" in str(error)


async def test_an_error_without_a_message_still_says_where_and_what(client_kind: str) -> None:
    with scripted([reply(500, b"<html>oops</html>")]) as server:
        error = await failure(client_kind, server)
    assert isinstance(error, BackendError)
    assert str(error) == f"{server.url} answered HTTP 500"
    assert error.server_message is None


async def test_where_no_server_listens_the_error_says_what_to_do(client_kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://name:secret@127.0.0.1:{port}/under"
    async with connected(client_kind, url) as context:
        with pytest.raises(ServerUnreachableError, match="rag-context serve") as reported:
            await context.search("anything")
    assert isinstance(reported.value, BackendUnavailableError)
    assert f"127.0.0.1:{port}" in str(reported.value)
    assert "secret" not in str(reported.value)
    assert "under" not in str(reported.value)


async def test_a_server_that_does_not_answer_in_time_is_not_queried_again(client_kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with connected(client_kind, url, timeout_s=0.05) as context:
            with pytest.raises(ServerTimeoutError) as reported:
                await context.search("anything")
    assert isinstance(reported.value, BackendTimeoutError)


async def test_an_answer_that_trickles_in_is_given_up_like_one_that_does_not_come(client_kind: str) -> None:
    trickle = Step(b"HTTP/1.1 200 Whatever\r\nContent-Length: 9999\r\n\r\n", trickle=1000)
    with scripted([trickle]) as server:
        error = await failure(client_kind, server, timeout_s=0.3)
    assert isinstance(error, ServerTimeoutError)


async def test_a_server_that_does_not_speak_tls_is_not_reported_as_down(client_kind: str) -> None:
    with running(StubService(), ServerOptions(port=0)) as http_server:
        async with connected(client_kind, http_server.url.replace("http:", "https:")) as context:
            with pytest.raises(ServerUnreachableError, match="There is no TLS connection to https://127") as reported:
                await context.stats()
    assert reported.value.sent is False


async def test_a_redirect_names_its_target(client_kind: str) -> None:
    moved = reply(308, b"", Location="https://memory.example/tools/rag_context_stats")
    with scripted([moved]) as server:
        error = await failure(client_kind, server)
    assert isinstance(error, InvalidResponseError)
    assert str(error).endswith("answered HTTP 308 and sends callers on to https://memory.example: give that address")


def test_a_fork_has_connections_of_its_own() -> None:
    callers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            callers.append(self.client_address[1])
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps(STATS).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = subprocess.run([sys.executable, "-c", FORKED, url], capture_output=True, text=True, check=False)
        server.shutdown()
    parent, child, again = callers
    assert done.returncode == 0, done.stderr
    assert (again, child == parent) == (parent, False)


async def test_what_may_not_be_done_twice_is_repeated_only_if_it_was_never_sent() -> None:
    call = Call("/once", json.loads, b"{}", repeatable=False)
    with scripted([BUSY, SILENCE, reply(200, {})]) as server:
        async with AsyncClient(server.url, api_key="", retries=QUICK) as client:
            with pytest.raises(ServerUnreachableError):
                await client._send(call, "r-1")
    assert len(server.requests) == 2


async def test_a_bulk_run_that_breaks_off_goes_on_where_it_was(client_kind: str) -> None:
    receipts = [b'{"status":"indexed","line":%d}\n' % n for n in (1, 2, 3)]
    broken = cut(200, receipts[0] + receipts[1][:9], promised=999)
    with scripted([broken, reply(200, b'{"status":"unchanged","line":1}\n' + receipts[1])]) as server:
        async with connected(client_kind, server.url) as context:
            got = [receipt async for receipt in context.bulk([LINE, {**LINE, "source": "b"}, {**LINE, "source": "c"}])]
    assert [(r.line, r.status, r.source) for r in got] == [
        (1, "indexed", "talk"),
        (2, "unchanged", "b"),
        (3, "indexed", "c"),
    ]
    assert [request.body.count(b"\n") for request in server.requests] == [3, 2]


async def test_a_bulk_run_with_too_few_receipts_is_not_a_success(client_kind: str) -> None:
    one = reply(200, b'{"status":"indexed"}\n')
    with scripted([one, one, one]) as server:
        async with connected(client_kind, server.url) as context:
            with pytest.raises(ServerUnreachableError, match="broke off"):
                [receipt async for receipt in context.bulk([{**LINE, "source": str(n)} for n in range(9)])]
    with scripted([reply(401, {"error": "API key required", "code": "UNAUTHORIZED"})]) as server:
        async with connected(client_kind, server.url) as context:
            with pytest.raises(AccessDeniedError):
                [receipt async for receipt in context.bulk([LINE])]


async def test_a_line_separator_inside_a_receipt_does_not_end_it(client_kind: str) -> None:
    text = '{"status":"rejected","reason":"a\u2028b\u0085c"}\n'
    with scripted([reply(200, text.encode())]) as server:
        async with connected(client_kind, server.url) as context:
            (receipt,) = [receipt async for receipt in context.bulk([LINE])]
    assert receipt.reason == "a\u2028b\u0085c"


async def test_a_cancelled_call_ends_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with AsyncClient(f"http://127.0.0.1:{listener.getsockname()[1]}", api_key="") as client:
            task = asyncio.create_task(client.search("anything"))
            connection, _ = await asyncio.to_thread(listener.accept)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            connection.close()


async def test_only_a_strict_search_fails_when_nothing_can_be_searched(client_kind: str) -> None:
    with running(StubService(level=4, retry_after_s=42), ServerOptions(port=0)) as http_server:
        async with connected(client_kind, http_server.url) as context:
            assert (await context.search("q")).fallback_level == 4
            with pytest.raises(ServerBusyError) as reported:
                await context.search("q", strict=True)
    assert (reported.value.status, reported.value.code, reported.value.retry_after_s) == (429, "CIRCUIT_OPEN", 42.0)


async def test_a_key_opens_what_it_may(client_kind: str) -> None:
    keys = (HashedKey.parse("reader", hash_key("read-me"), Access.READ),)
    with running(StubService(), ServerOptions(port=0, api_keys=keys)) as http_server:
        async with connected(client_kind, http_server.url) as context:
            with pytest.raises(AccessDeniedError) as nobody:
                await context.search("q")
        async with connected(client_kind, http_server.url, api_key="read-me") as context:
            assert (await context.search("q")).fallback_level == 1
            with pytest.raises(AccessDeniedError, match="may only read") as reader:
                await context.index("c", content_type="chat", session_id="s", source="t")
    assert (nobody.value.status, reader.value.status) == (401, 403)


@pytest.mark.parametrize("timeout_s", [0, -1, None, "3", float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_time_out_that_cannot_be_one_is_rejected_when_it_is_given(kind: Any, timeout_s: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout_s must be a number of seconds above 0"):
        kind("http://localhost:3000", api_key="", timeout_s=timeout_s)


@pytest.mark.parametrize("url", ["localhost:3000", "ftp://host", "http://", "http://a b", "http://host?x=1"])
def test_an_invalid_address_is_rejected_when_it_is_given(url: str) -> None:
    with pytest.raises(ConfigurationError, match="address"):
        Client(url)


def test_a_key_that_cannot_be_one_is_rejected_without_being_shown() -> None:
    with pytest.raises(ConfigurationError) as reported:
        Client("http://localhost:3000", api_key="geheim\nniß")
    assert "geheim" not in str(reported.value)

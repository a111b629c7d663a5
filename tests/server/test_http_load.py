"""What the server does with calls that come too many, leave early, or take long to describe."""

import logging
import socket
import threading
import time
from collections.abc import Callable

import httpx2
import pytest

from rag_context.errors import BackendRejectedError, BackendUnavailableError, OverloadedError
from rag_context.resilience.dependency import BreakerOpenError
from rag_context.server.openapi import build_openapi
from rag_context.server.options import ServerOptions

from .server_thread import INDEX, SEARCH, Running, running
from .stub_service import StubService

TIMEOUT_S = 10.0


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@pytest.mark.parametrize("path", [SEARCH, INDEX])
def test_too_much_to_do_is_503_and_says_when_to_come_again(
    client: httpx2.Client, open_server: Running, path: str
) -> None:
    open_server.service.failure = OverloadedError("searches", "Too many searches at once", retry_after_s=3.0)
    document = {"content": "text", "contentType": "chat", "sessionId": "s1", "source": "talk"}
    reply = client.post(path, json={"query": "q"} if path == SEARCH else document)
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "3"
    body = reply.json()
    assert body.pop("requestId") == reply.headers["x-request-id"]
    assert body == {"error": "Too many searches at once", "code": "OVERLOADED", "fallback": True, "fallbackLevel": 3}


def test_a_search_whose_caller_has_disconnected_is_cancelled() -> None:
    service = StubService(delay_s=TIMEOUT_S)
    with running(service, ServerOptions(port=0)) as open_server:
        connection = open_server.connect()
        connection.sendall(request(SEARCH, b'{"query": "q"}'))
        wait_until(lambda: bool(service.searches))
        hang_up(connection)
        wait_until(lambda: service.given_up == 1)


def test_a_write_whose_caller_has_disconnected_goes_on() -> None:
    service = StubService(delay_s=0.3)
    with running(service, ServerOptions(port=0)) as open_server:
        connection = open_server.connect()
        body = b'{"content": "text", "contentType": "chat", "sessionId": "s1", "source": "talk"}'
        connection.sendall(request(INDEX, body))
        wait_until(lambda: bool(service.indexed))
        hang_up(connection)
        time.sleep(0.5)
        assert service.given_up == 0


def test_others_are_answered_while_the_description_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    making, made = threading.Event(), threading.Event()

    def slowly(*args: object) -> object:
        making.set()
        assert made.wait(TIMEOUT_S)
        return build_openapi(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("rag_context.server.openapi.build_openapi", slowly)
    with running(StubService(), ServerOptions(port=0)) as open_server, open_server.client() as client:
        described: list[int] = []
        threads = [
            threading.Thread(target=lambda: described.append(httpx2.get(f"{open_server.url}/openapi.json").status_code))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        assert making.wait(TIMEOUT_S)
        assert client.get("/live").status_code == 200
        assert not described
        made.set()
        for thread in threads:
            thread.join()
        assert described == [200, 200]


@pytest.mark.parametrize(
    ("failure", "has_traceback"),
    [
        (BackendRejectedError("documents", "refused"), True),
        (BackendUnavailableError("documents", "away"), False),
        (BreakerOpenError("documents", "documents is skipped after repeated failures"), False),
    ],
)
def test_a_component_that_is_known_to_be_down_is_a_line_in_the_log_without_a_traceback(
    client: httpx2.Client,
    open_server: Running,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    has_traceback: bool,
) -> None:
    open_server.service.failure = failure
    document = {"content": "text", "contentType": "chat", "sessionId": "s1", "source": "talk"}
    with caplog.at_level(logging.WARNING):
        assert client.post(INDEX, json=document).status_code == 503
    (record,) = [record for record in caplog.records if "documents failed" in record.message]
    assert bool(record.exc_info) is has_traceback

"""The process: binding, stopping, and the lines it writes."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from rag_context.errors import ConfigurationError
from rag_context.server.options import HashedKey, ServerOptions, hash_key
from rag_context.server.running import bind

from .server_thread import Running
from .stub_service import StubService

TESTS = Path(__file__).parent
PROGRAM = textwrap.dedent(
    """
    import sys
    from rag_context.logs import configure_logging
    from rag_context.server.app import create_app
    from rag_context.server.options import HashedKey, ServerOptions, hash_key
    from rag_context.server.running import bind, run, serve
    from stub_service import StubService

    configure_logging("info", sys.argv[1])
    options = ServerOptions(port=0, grace_s=2)
    listener = bind(options)
    print(listener.getsockname()[1], flush=True)
    service = StubService(delay_s=float(sys.argv[2]))
    run(serve(create_app(service, options), [listener], options))
    print("closed", flush=True)
    """
)


@contextmanager
def process(style: str = "console", delay_s: float = 0) -> Iterator[tuple["subprocess.Popen[str]", Running]]:
    """A server process of its own."""
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, style, str(delay_s)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with started:
        try:
            assert started.stdout is not None
            port = int(started.stdout.readline())
            yield started, Running("127.0.0.1", port, StubService())
        finally:
            started.kill()


def test_sigterm_ends_with_status_0() -> None:
    """M-6."""
    with process() as (server, open_server), open_server.client() as client:
        assert client.get("/live").status_code == 200
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=20)
    assert server.returncode == 0
    assert out == "closed\n"
    assert "Traceback" not in err


def test_a_running_request_is_finished_first() -> None:
    """M-6: stop accepting, finish what runs."""
    with process(delay_s=0.7) as (server, open_server):
        body = b'{"query":"q"}'
        with open_server.connect() as connection:
            connection.sendall(
                b"POST /tools/rag_context_search HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            with open_server.client() as client:
                assert client.get("/live").status_code == 200
            server.send_signal(signal.SIGTERM)
            reply = b""
            while piece := connection.recv(65536):
                reply += piece
        out, _ = server.communicate(timeout=20)
    assert reply.startswith(b"HTTP/1.1 200 OK")
    assert (server.returncode, out) == (0, "closed\n")


def test_a_request_that_never_ends_does_not_keep_the_process_alive() -> None:
    """M-6: within the grace period."""
    with process(delay_s=3600) as (server, open_server), open_server.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with open_server.client() as client:
            assert client.get("/live").status_code == 200
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=20)
    assert server.returncode == 0


def test_each_request_is_one_json_line_without_its_query() -> None:
    """T-9, O-3, X-5: on stderr, with the request id, and no text of the user's."""
    with process("json") as (server, open_server):
        with open_server.client(**{"x-request-id": "r-7"}) as client:
            client.post("/tools/rag_context_search", json={"query": "what is the password"})
            client.get("/tools/rag_context_stats?timeRange=secret")
            client.get("/no%0Awhere")
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=20)
    logged = [line for line in map(json.loads, err.splitlines()) if line["logger"] == "rag_context.access"]
    assert [(line["method"], line["path"], line["status"]) for line in logged] == [
        ("POST", "/tools/rag_context_search", 200),
        ("GET", "/tools/rag_context_stats", 400),
        ("GET", "/no%0Awhere", 404),
    ]
    assert {(line["requestId"], line["level"]) for line in logged} == {("r-7", "INFO")}
    assert all(line["ms"] >= 0 and line["timestamp"].endswith("Z") for line in logged)
    assert "password" not in err
    assert "secret" not in err


def test_a_port_in_use_is_one_clear_sentence() -> None:
    """M-5."""
    with bind(ServerOptions(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"Port {port} on 127.0.0.1 is in use: stop the other program"):
            bind(ServerOptions(port=port))


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_foreign_listen_address_is_one_clear_sentence(host: str) -> None:
    key = HashedKey.parse("k", hash_key("secret"))
    with pytest.raises(ConfigurationError, match="is not an address of this machine"):
        bind(ServerOptions(host=host, port=0, api_keys=(key,)))


def test_the_open_network_needs_a_key() -> None:
    """X-1."""
    with pytest.raises(ConfigurationError, match=r"Refusing to listen on 0\.0\.0\.0 without an API key"):
        bind(ServerOptions(host="0.0.0.0", port=0))


def test_ipv6_loopback_is_served() -> None:
    with bind(ServerOptions(host="::1", port=0)) as listener:
        assert listener.family == socket.AF_INET6


def test_the_reply_does_not_name_the_server_software(client: httpx2.Client) -> None:
    assert "server" not in client.get("/live").headers


def test_an_answered_request_is_kept_alive_by_nothing(client: httpx2.Client) -> None:
    def alive() -> int:
        return sum(isinstance(each, RequestResponseCycle) for each in gc.get_objects())

    gc.collect()
    before = alive()
    gc.disable()  # a cycle of references would wait for the garbage collector
    try:
        for _ in range(20):
            assert client.get("/live").status_code == 200
        assert alive() <= before + 2  # the last one of a connection, and one that ends just now
    finally:
        gc.enable()

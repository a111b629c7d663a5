"""Who may come in: Host, Origin, API keys, rate."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from rag_context.api.operations import Access
from rag_context.cli.serve import server_options
from rag_context.errors import ConfigurationError
from rag_context.server.failures import RequestIdMiddleware
from rag_context.server.middleware import AuthMiddleware, RateLimit, guarded
from rag_context.server.options import HashedKey, ServerOptions, hash_key
from rag_context.settings import Settings
from rag_context.settings.sections import ServerSettings

from .server_thread import DOCUMENT, INDEX, SEARCH, Running, running
from .stub_service import StubService


def status_with_host(open_server: Running, host: str) -> int:
    return open_server.raw(f"GET /live HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1")).status


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST:3000", "127.0.0.1:1", "[::1]", "[::1]:3000"])
def test_loopback_names_are_this_server(open_server: Running, host: str) -> None:
    """X-2."""
    assert status_with_host(open_server, host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:3000", "", "10.0.0.1", "[", ":"],
)
def test_a_rebound_host_is_rejected(open_server: Running, host: str) -> None:
    """X-2: DNS rebinding."""
    reply = open_server.raw(f"GET /live HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
    assert reply.status == 403
    assert reply.json()["code"] == "FORBIDDEN"


def test_a_missing_or_double_host_is_rejected(open_server: Running) -> None:
    assert open_server.raw(b"GET /live HTTP/1.1\r\n\r\n").status == 403
    assert open_server.raw(b"GET /live HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n").status == 400


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost:1", "https://localhost", "file://", "", "http://localhost.evil"],
)
def test_a_foreign_origin_is_rejected(client: httpx2.Client, open_server: Running, origin: str) -> None:
    """X-2: a web page of another program cannot ask through the browser; CORS is off."""
    for method, path in (("POST", SEARCH), ("OPTIONS", SEARCH), ("GET", "/health")):
        reply = client.request(method, path, headers={"origin": origin})
        assert reply.status_code == 403
        assert "access-control-allow-origin" not in reply.headers
    assert open_server.service.searches == []


def test_the_servers_own_pages_may_send_requests(client: httpx2.Client, open_server: Running) -> None:
    assert client.get("/health", headers={"origin": open_server.url}).status_code == 200
    own = b"GET /live HTTP/1.1\r\nHost: localhost\r\nOrigin: http://LOCALHOST:80\r\n\r\n"
    assert open_server.raw(own).status == 200


def test_allowed_hosts_are_answered_too() -> None:
    options = ServerOptions(port=0, allowed_hosts=("rag.example.com", "*.svc.local"))
    with running(StubService(), options) as open_server:
        assert status_with_host(open_server, "rag.example.com") == 200
        assert status_with_host(open_server, "a.b.svc.local:80") == 200
        assert status_with_host(open_server, "svc.local") == 403
        assert status_with_host(open_server, "other.example.com") == 403


PAGE = "https://app.example.com"


def test_pages_of_configured_origins_may_call_and_read_errors_too() -> None:
    """X-2: no others, also not those of a similar name; a key is required as of every caller."""
    key = HashedKey.parse("k", hash_key("secret"))
    options = ServerOptions(port=0, api_keys=(key,), cors_origins=frozenset({PAGE}))
    with running(StubService(), options) as open_server, open_server.client() as client:
        wanted = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        preflight = client.options(SEARCH, headers={"origin": PAGE, **wanted})
        assert (preflight.status_code, preflight.content) == (204, b"")
        assert preflight.headers["access-control-allow-headers"] == "authorization"
        assert "POST" in preflight.headers["access-control-allow-methods"]
        for headers, status in (({"authorization": "Bearer secret"}, 200), ({}, 401), ({"x-api-key": "wrong"}, 401)):
            reply = client.post(SEARCH, json={"query": "q"}, headers={"origin": PAGE, **headers})
            assert reply.status_code == status
            assert reply.headers["access-control-allow-origin"] == PAGE
            assert "Origin" in reply.headers["vary"]
            assert "access-control-allow-credentials" not in reply.headers
        for origin in ("https://app.example.com.evil.example", "http://app.example.com", "null"):
            for reply in (
                client.options(SEARCH, headers={"origin": origin, **wanted}),
                client.post(SEARCH, json={"query": "q"}, headers={"origin": origin, "x-api-key": "secret"}),
            ):
                assert reply.status_code == 403
                assert "access-control-allow-origin" not in reply.headers


def test_by_default_no_page_of_another_origin_may_call(open_server: Running) -> None:
    with open_server.client() as client:
        reply = client.options(SEARCH, headers={"origin": PAGE, "access-control-request-method": "POST"})
    assert reply.status_code == 403
    assert "access-control-allow-origin" not in reply.headers


def test_bound_to_all_addresses_any_address_is_its_own_but_no_name() -> None:
    """A probe calls by address; a rebound name is never one."""
    key = HashedKey.parse("k", hash_key("secret"))
    with running(StubService(), ServerOptions(host="0.0.0.0", port=0, api_keys=(key,))) as open_server:
        assert status_with_host(open_server, "10.1.2.3:3000") == 200
        assert status_with_host(open_server, "evil.example") == 403


def test_requests_for_oauth_metadata_get_404(locked: Running) -> None:
    """X-1: a 401 here would be taken for an authorization server that fails."""
    with locked.client() as client:
        for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server/mcp"):
            assert client.get(path).status_code == 404, path
        for path in ("/.well-known", "/.well-known/../metrics", "/.well-known/%2e%2e/metrics"):
            assert locked.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()).status in {401, 404}, path


def test_without_a_key_only_the_open_paths_answer(locked: Running) -> None:
    """X-1."""
    with locked.client() as client:
        for path in ("/live", "/ready", "/", "/docs", "/page/main.js", "/page/style.css"):
            assert client.get(path).status_code == 200, path
        assert client.get("/page/nothing.js").status_code == 404
        assert client.get("/health").json() == {"healthy": True}
        for method, path in (
            ("GET", "/tools"),
            ("GET", "/metrics"),
            ("GET", "/openapi.json"),
            ("GET", "/nowhere"),
            ("GET", "/events"),
            ("GET", "/pages/main.js"),
            ("GET", "/tools/rag_context_stats"),
            ("POST", "/tools/rag_context_health"),
            ("POST", SEARCH),
            ("POST", "/bulk"),
        ):
            reply = client.request(method, path)
            assert reply.status_code == 401, path
            assert reply.json()["code"] == "UNAUTHORIZED"
            assert reply.headers["www-authenticate"] == "Bearer"
            assert reply.json()["requestId"] == reply.headers["x-request-id"]


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer read-me"}, {"authorization": "bearer  read-me"}, {"x-api-key": "read-me"}]
)
def test_a_reading_key_reads_and_does_not_write(locked: Running, headers: dict[str, str]) -> None:
    """X-1."""
    with locked.client(**headers) as client:
        assert client.post(SEARCH, json={"query": "q"}).status_code == 200
        assert client.get("/health").json()["indexedDocuments"] == 523
        assert client.get("/metrics").status_code == 200
        for reply in (
            client.post(INDEX, json=DOCUMENT),
            client.post("/bulk", content=b"{}", headers={"content-type": "application/x-ndjson"}),
        ):
            assert reply.status_code == 403
            assert reply.json()["error"] == "This API key may only read"
    assert locked.service.indexed == []


def test_a_writing_key_writes(locked: Running) -> None:
    with locked.client(authorization="Bearer write-me") as client:
        assert client.post(INDEX, json=DOCUMENT).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "wrong"},
        {"x-api-key": "read-m"},
        {"x-api-key": hash_key("read-me")},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer read-me write-me"},
        {"authorization": "Bearer räd-me"},
    ],
)
def test_a_wrong_key_is_rejected_even_where_none_is_needed(locked: Running, headers: dict[str, str]) -> None:
    encoded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    with httpx2.Client(base_url=locked.url, headers=encoded, trust_env=False) as client:
        reply = client.get("/health")
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        assert "wrong" not in reply.text


@pytest.mark.parametrize("header", ["Authorization: Basic cmVhZC1tZQ==", "Authorization: Bearer", "X-API-Key: "])
def test_another_kind_of_credential_is_no_key(locked: Running, header: str) -> None:
    assert locked.raw(f"GET /tools HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode()).status == 401


def test_a_key_is_kept_as_its_hash_only() -> None:
    """X-1, X-5."""
    key = HashedKey.parse("ci", hash_key("secret"), Access.READ)
    assert "secret" not in repr(key)
    assert key.digest.hex() not in repr(key)
    with pytest.raises(ConfigurationError, match="'ci' must be stored as sha256") as caught:
        HashedKey.parse("ci", "plain-secret")
    assert "plain-secret" not in str(caught.value)


def test_an_open_server_without_a_key_is_rejected() -> None:
    """X-1."""
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com", ""):
        with pytest.raises(ConfigurationError, match="RAG_CONTEXT_API_KEY"):
            ServerOptions(host=host).check()
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"):
        ServerOptions(host=host).check()


class Ticks:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


async def _ok(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def ask(app: Any, *, key: str = "", client: str = "10.0.0.1", path: str = "/tools") -> dict[str, Any]:
    """Status and Retry-After of one request to a stack of middlewares."""
    seen: dict[str, Any] = {}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            seen["status"] = message["status"]
            seen["wait"] = dict(message["headers"]).get(b"retry-after")

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", b"localhost"), *([(b"x-api-key", key.encode())] if key else [])]
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "client": (client, 1)}
    await app(scope, receive, send)
    return seen


def test_the_rate_is_limited_per_key() -> None:
    """X-2: a burst, then a steady rate; one caller's haste is not another's."""
    clock = Ticks()
    keys = tuple(HashedKey.parse(name, hash_key(name)) for name in ("a", "b"))
    limited = RateLimit(_ok, per_s=0.5, burst=2, clock=clock)
    app = RequestIdMiddleware(AuthMiddleware(limited, ServerOptions(api_keys=keys)), max_requests=9)

    async def scenario() -> None:
        assert [(await ask(app, key="a"))["status"] for _ in range(3)] == [200, 200, 429]
        assert (await ask(app, key="a"))["wait"] == b"2"
        assert (await ask(app, key="a", path="/live"))["status"] == 200
        assert (await ask(app, key="b"))["status"] == 200
        clock.now += 2
        assert [(await ask(app, key="a"))["status"] for _ in range(2)] == [200, 429]

    asyncio.run(scenario())


def test_the_rate_is_limited_per_address_where_there_are_no_keys() -> None:
    app = RequestIdMiddleware(
        AuthMiddleware(RateLimit(_ok, per_s=1, burst=1, clock=Ticks()), ServerOptions()), max_requests=9
    )

    async def scenario() -> None:
        assert [(await ask(app, client="10.0.0.1"))["status"] for _ in range(2)] == [200, 429]
        assert (await ask(app, client="10.0.0.2"))["status"] == 200

    asyncio.run(scenario())


def test_a_server_limits_the_rate_by_default_and_lets_every_agent_through() -> None:
    """X-6: no agent comes near it, a loop that went wild does."""
    by_default = server_options(Settings())
    assert by_default.rate_per_s == 1000
    assert server_options(Settings(server=ServerSettings(requests_per_s=0))).rate_per_s == 0

    async def scenario() -> None:
        app = guarded(_ok, by_default)
        assert {(await ask(app))["status"] for _ in range(2000)} == {200}
        app = guarded(_ok, replace(by_default, rate_per_s=0.001))
        assert [(await ask(app))["status"] for _ in range(51)] == [*[200] * 50, 429]

    asyncio.run(scenario())


def test_too_many_at_once_get_a_retry_delay() -> None:
    """T-6: 503 with Retry-After, and /live still answers."""
    gate = asyncio.Event

    async def scenario() -> None:
        released = gate()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == "/slow":
                await released.wait()
            await _ok(scope, receive, send)

        app = RequestIdMiddleware(slow, max_requests=2)
        first = [asyncio.create_task(ask(app, path="/slow")) for _ in range(2)]
        await asyncio.sleep(0)
        assert await ask(app) == {"status": 503, "wait": b"1"}
        assert (await ask(app, path="/live"))["status"] == 200
        released.set()
        assert [(await task)["status"] for task in first] == [200, 200]
        assert (await ask(app))["status"] == 200

    asyncio.run(scenario())


def test_rejections_whose_body_does_not_come_take_no_place_of_others() -> None:
    """Who has no key may keep a connection waiting for a moment, and not the requests of those who have one."""

    async def scenario() -> None:
        keys = (HashedKey.parse("a", hash_key("a")),)
        app = RequestIdMiddleware(AuthMiddleware(_ok, ServerOptions(api_keys=keys)), max_requests=2)

        async def no_body() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def ignore(_message: Message) -> None: ...

        headers = [(b"host", b"localhost"), (b"content-length", b"9")]
        scopes = [
            {"type": "http", "method": "POST", "path": "/bulk", "headers": headers, "client": ("10.0.0.1", 1)}
            for _ in range(3)
        ]
        waiting = [asyncio.create_task(app(scope, no_body, ignore)) for scope in scopes]
        await asyncio.sleep(0)
        assert (await ask(app, key="a"))["status"] == 200
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/tools", "/tools/rag_context_search?query=x", "/health", "/metrics", "/nowhere"])
def test_no_cache_on_the_way_keeps_a_reply(locked: Running, path: str) -> None:
    """Caches keep no answers to requests with Authorization, but know nothing of X-API-Key."""
    with locked.client(**{"X-API-Key": "read-me"}) as client:
        assert client.get(path).headers["cache-control"] == "no-store"


def test_what_a_stopping_server_waits_for_no_longer_may_be_tried_again() -> None:
    async def scenario() -> None:
        async def endless(_scope: Scope, _receive: Receive, _send: Send) -> None:
            await asyncio.Event().wait()

        asked = asyncio.create_task(ask(RequestIdMiddleware(endless, max_requests=1)))
        await asyncio.sleep(0)
        asked.cancel()
        assert await asked == {"status": 503, "wait": b"1"}

    asyncio.run(scenario())


def test_too_many_connections_are_rejected_in_our_shape() -> None:
    with (
        running(StubService(), ServerOptions(port=0, max_connections=2)) as open_server,
        open_server.connect(),
        open_server.connect(),
    ):
        live = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
        reply = open_server.raw(live)
        assert reply.status == 503
        assert reply.json()["code"] == "OVERLOADED"
        assert reply.headers["retry-after"] == "1"


def test_an_index_request_leaves_no_trace_where_it_is_rejected(locked: Running) -> None:
    with locked.client() as client:
        assert client.post(INDEX, json=DOCUMENT).status_code == 401
    assert locked.service.indexed == []

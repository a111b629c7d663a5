"""`/mcp` over a real socket: what is a message, who may send one, and what happens to those who leave."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any, cast

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from mcp import Client
from rag_context.api.handlers import CallContext
from rag_context.api.maintenance import ReindexRequest, ReindexResponse
from rag_context.api.operations import Access
from rag_context.api.search import SearchRequest, SearchResponse
from rag_context.server.mcp.handshake import BATCHING, UNBATCHED
from rag_context.server.mcp.streamable_http import IDLE_S, MAX_SESSIONS, McpSessions
from rag_context.server.options import HashedKey, ServerOptions, hash_key
from rag_context.testing import FrozenClock
from tests.server.server_thread import Running, running
from tests.server.stub_service import StubService

from .mcp_client import BOTH_ERAS, read

ACCEPT = {"Accept": "application/json, text/event-stream"}
MODERN = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "rag_context_search"}
ENVELOPE = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class SlowService(StubService):
    """Searches for "hang" without end, and reindexes in three steps."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.stopped = threading.Event()

    async def search(self, request: SearchRequest, context: CallContext) -> SearchResponse:
        if request.query != "hang":
            return await super().search(request, context)
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        raise AssertionError

    async def reindex(self, request: ReindexRequest, context: CallContext) -> ReindexResponse:
        for done in range(1, 4):
            await context.on_progress(done, 3)
        return await super().reindex(request, context)


@pytest.fixture(scope="module")
def _http_server() -> Iterator[Running]:
    with running(SlowService(), ServerOptions(port=0, index_body_bytes=300_000)) as http_server:
        yield http_server


@pytest.fixture
def http_server(_http_server: Running) -> Running:
    """A server without keys; its service starts afresh."""
    cast("SlowService", _http_server.service).__init__()  # type: ignore[misc]
    return _http_server


@pytest.fixture
def client(http_server: Running) -> Iterator[httpx2.Client]:
    with http_server.client(**ACCEPT) as client:
        yield client


def call(query: str = "q", **changed: Any) -> dict[str, Any]:
    params = {"name": "rag_context_search", "arguments": {"query": query}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, **changed}


def modern_call(query: str = "q", **changed: Any) -> dict[str, Any]:
    message = call(query, **changed)
    message["params"]["_meta"] = dict(ENVELOPE)
    return message


def test_what_could_not_be_loaded_is_loaded_by_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(StubService(), ServerOptions(port=0)) as server, server.client(**ACCEPT) as client:
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "rag_context.server.mcp.streamable_http", None)
            assert client.post("/mcp", json=call()).status_code == 500
        assert client.post("/mcp", json=call()).status_code == 200


@pytest.mark.parametrize("mode", [*BOTH_ERAS, "auto"])
async def test_the_official_client_lists_searches_and_reads(http_server: Running, mode: str) -> None:
    """P-1."""
    async with Client(f"{http_server.url}/mcp", mode=cast("Any", mode)) as client:
        assert "rag_context_search" in {tool.name for tool in (await client.list_tools()).tools}
        found = await client.call_tool("rag_context_search", {"query": "mongodb", "limit": 2})
        (resource,) = (await client.list_resources()).resources
        document = await client.read_resource(resource.uri)
        await client.get_prompt("recall", {"topic": "mongodb"})
    assert read(found).startswith("2 passages from 523 documents, best first.")
    assert document.contents[0].uri == "rag-context://documents/d1"


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_every_revision_gets_its_own_back(client: httpx2.Client, version: str) -> None:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    reply = client.post("/mcp", json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["result"]["protocolVersion"] == (UNBATCHED if version == BATCHING else version)
    assert reply.headers["mcp-session-id"]


def test_the_request_id_is_the_correlation_id_of_the_response(client: httpx2.Client, http_server: Running) -> None:
    """T-9."""
    reply = client.post("/mcp?structured=true", json=call(), headers={"X-Request-ID": "trace-7"})
    assert reply.headers["x-request-id"] == "trace-7"
    assert reply.json()["result"]["structuredContent"]["requestId"] == "trace-7"
    assert http_server.service.request_ids == ["trace-7"]


@pytest.mark.parametrize("id_", [0, -1, 2**53, "", "a", "ü" * 500])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_an_id_comes_back_as_it_was(client: httpx2.Client, era: str, id_: int | str) -> None:
    modern = era == "modern"
    body = modern_call(id=id_) if modern else call(id=id_)
    reply = client.post("/mcp", json=body, headers=MODERN if modern else {})
    assert reply.status_code == 200
    assert reply.json()["id"] == id_
    assert type(reply.json()["id"]) is type(id_)


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    ("body", "code", "id_"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b"null", -32600, None),
        (b"7", -32600, None),
        (b'"text"', -32600, None),
        (b"[]", -32600, None),
        (b"[" * 50_000, -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"{}", -32600, None),
        (json.dumps([call(), call(id=2)]).encode(), -32600, None),
        (json.dumps({**call(), "jsonrpc": "1.0"}).encode(), -32600, 1),
        (json.dumps({**call(), "id": {"a": 1}}).encode(), -32600, None),
        (json.dumps({**call(), "method": 7}).encode(), -32600, 1),
        (json.dumps({**call(), "params": ["very private words"]}).encode(), -32600, 1),
    ],
)
def test_what_is_no_message_is_a_protocol_error(
    client: httpx2.Client, era: str, body: bytes, code: int, id_: int | None
) -> None:
    """The same as over the pipe, with messages of rag-context."""
    headers = {"Content-Type": "application/json", **(MODERN if era == "modern" else {})}
    reply = client.post("/mcp", content=body, headers=headers)
    assert reply.status_code == 400
    answer = reply.json()
    assert (answer["error"]["code"], answer["id"]) == (code, id_)
    assert "pydantic" not in reply.text
    assert "very private words" not in reply.text


@pytest.mark.parametrize("arguments", [[], "text", 7, True])
def test_arguments_that_are_no_object_are_a_protocol_error(client: httpx2.Client, arguments: Any) -> None:
    params = {"name": "rag_context_search", "arguments": arguments}
    reply = client.post("/mcp", json=call(params=params))
    assert reply.json()["error"]["code"] == -32602


def test_a_lone_surrogate_is_rejected_and_breaks_nothing(client: httpx2.Client) -> None:
    for body, headers in ((call("\ud800"), {}), (modern_call("\ud800"), MODERN)):
        content = json.dumps(body).encode()
        reply = client.post("/mcp", content=content, headers={"Content-Type": "application/json", **headers})
        assert reply.status_code in {200, 400}
        assert "error" in reply.json() or reply.json()["result"]["isError"]


def test_a_notification_is_accepted_without_an_answer(client: httpx2.Client) -> None:
    reply = client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (reply.status_code, reply.content) == (202, b"")


def test_an_unknown_method_is_reported_as_unknown(client: httpx2.Client) -> None:
    reply = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/erase"})
    assert reply.json()["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_there_is_nothing_to_listen_to(client: httpx2.Client, method: str) -> None:
    reply = client.request(method, "/mcp")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST, DELETE")


def test_a_session_is_named_to_be_ended(client: httpx2.Client) -> None:
    assert client.delete("/mcp").status_code == 400
    assert client.delete("/mcp", headers={"Mcp-Session-Id": "none"}).status_code == 404


def test_a_handshake_that_fails_opens_no_session(client: httpx2.Client) -> None:
    reply = client.post("/mcp", json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})
    assert "error" in reply.json()
    assert "mcp-session-id" not in reply.headers


def test_revisions_without_sessions_pass_over_the_name_of_one(client: httpx2.Client) -> None:
    reply = client.post("/mcp", json=modern_call(), headers={**MODERN, "Mcp-Session-Id": "none"})
    assert reply.status_code == 200
    assert "mcp-session-id" not in reply.headers


def test_foreign_pages_and_names_are_rejected(client: httpx2.Client) -> None:
    """X-2."""
    assert client.post("/mcp", json=call(), headers={"Origin": "https://evil.example"}).status_code == 403
    assert client.post("/mcp", json=call(), headers={"Host": "evil.example"}).status_code == 403


def test_too_long_a_message_is_413(client: httpx2.Client) -> None:
    """X-2."""
    assert client.post("/mcp", json=call("x" * 300_000)).status_code == 413


def test_a_message_of_another_kind_is_rejected(client: httpx2.Client) -> None:
    reply = client.post("/mcp", content=json.dumps(call()), headers={"Content-Type": "text/plain"})
    assert reply.status_code == 415
    assert reply.json()["error"] == "Send Content-Type: application/json"


@pytest.fixture(scope="module")
def locked() -> Iterator[Running]:
    """A server with a key that may read and a key that may write."""
    keys = (
        HashedKey.parse("reader", hash_key("read-me"), Access.READ),
        HashedKey.parse("writer", hash_key("write-me"), Access.WRITE),
    )
    with running(StubService(), ServerOptions(port=0, api_keys=keys)) as http_server:
        yield http_server


def test_without_a_key_nothing_is_answered(locked: Running) -> None:
    """X-1."""
    with locked.client(**ACCEPT) as client:
        reply = client.post("/mcp", json=call())
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(("key", "may_write"), [("read-me", False), ("write-me", True)])
async def test_a_key_is_a_bearer_and_may_do_what_it_may(locked: Running, key: str, may_write: bool) -> None:
    """X-1."""
    locked.service.deleted.clear()
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, trust_env=False) as http,
        Client(streamable_http_client(f"{locked.url}/mcp", http_client=http)) as client,
    ):
        offered = {tool.name for tool in (await client.list_tools()).tools}
        reported = await client.call_tool("rag_context_delete", {"sessionId": "s"})
    assert ("rag_context_delete" in offered) is may_write
    assert reported.is_error is not may_write
    assert len(locked.service.deleted) == may_write


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_progress_comes_before_the_answer(http_server: Running, mode: str) -> None:
    """P-1."""
    received: list[float] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        assert (total, message) == (3, None)
        received.append(progress)

    async with Client(f"{http_server.url}/mcp?tools=operations", mode=cast("Any", mode)) as client:
        reported = await client.call_tool("rag_context_reindex", {"wait": True}, progress_callback=listen)
    assert not reported.is_error
    assert received == [1, 2, 3]


def test_who_does_not_ask_for_progress_gets_plain_json(client: httpx2.Client) -> None:
    for body, headers in ((call(), {}), (modern_call(), MODERN)):
        assert client.post("/mcp", json=body, headers=headers).headers["content-type"] == "application/json"


@pytest.mark.parametrize("era", ["legacy", "modern", "progress"])
def test_a_client_that_disconnects_cancels_its_work(http_server: Running, era: str) -> None:
    """P-1."""
    service = cast("SlowService", http_server.service)
    message = call("hang") if era == "legacy" else modern_call("hang")
    if era == "progress":
        message["params"]["_meta"]["progressToken"] = "p"
    headers = {**ACCEPT, "Content-Type": "application/json", "Host": "localhost", **(MODERN if era != "legacy" else {})}
    body = json.dumps(message).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "Content-Length": len(body)}.items())
    with http_server.connect() as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        assert service.begun.wait(10)
    assert service.stopped.wait(10)
    with http_server.client(**ACCEPT) as client:
        assert client.post("/mcp", json=call()).status_code == 200


async def test_a_hundred_calls_at_once_are_all_answered(http_server: Running) -> None:
    async with asyncio.timeout(30), Client(f"{http_server.url}/mcp?structured=true") as client:
        answers = await asyncio.gather(
            *(client.call_tool("rag_context_search", {"query": f"question {number}"}) for number in range(100))
        )
    assert not any(answer.is_error for answer in answers)
    assert len({answer.structured_content["requestId"] for answer in answers}) == 100


def test_a_session_lives_as_long_as_it_is_used() -> None:
    clock = FrozenClock()
    sessions = McpSessions(clock)
    received, silent = sessions.open(None), sessions.open(None)
    clock.advance(IDLE_S * 0.6)
    assert sessions.enter(received, None)
    clock.advance(IDLE_S * 0.6)
    assert sessions.enter(received, None)
    assert not sessions.enter(silent, None)


def test_a_session_is_its_keys_own() -> None:
    sessions = McpSessions()
    session = sessions.open("alice")
    assert not sessions.enter(session, "bob")
    assert not sessions.end(session, "bob")
    assert sessions.enter(session, "alice")
    assert sessions.end(session, "alice")
    assert not sessions.enter(session, "alice")


def test_of_too_many_sessions_the_one_that_is_used_stays() -> None:
    sessions = McpSessions()
    bobs, used, unused = sessions.open("bob"), sessions.open("alice"), sessions.open("alice")
    for _ in range(MAX_SESSIONS - 1):
        sessions.open("alice")
        assert sessions.enter(used, "alice")
    assert not sessions.enter(unused, "alice")
    assert sessions.enter(bobs, "bob")

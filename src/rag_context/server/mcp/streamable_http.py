"""Streamable HTTP at `/mcp`: each request is answered by itself, as JSON unless the caller requested progress.

A session is an identifier, given with the answer to `initialize` and returned by the client in a header. It keeps
nothing but its row in `McpSessions`, so that a server can have many.
"""

import asyncio
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import Message, Receive, Scope, Send

from rag_context.api.operations import Access
from rag_context.api.toolsets import Toolset, Toolsets, toolsets_named
from rag_context.server import requests
from rag_context.server.mcp import messages
from rag_context.server.mcp.protocol import Context, McpServer, Memory, RequestContext, client_of
from rag_context.server.options import ServerOptions

_PROGRESS = b'"progressToken"'
_JSON = "application/json"
_STREAM = "text/event-stream"
_SESSION = "rag_context.mcp_session"
_CLIENT = "rag_context.mcp_client"
_TOOLSETS = "rag_context.mcp_toolsets"
HEADER = b"mcp-session-id"

IDLE_S = 24 * 3600.0
"""A session that was not used for so long is forgotten."""

MAX_SESSIONS = 1000
"""Sessions of one key that are remembered; of more, those that were not used for longest are forgotten."""

_ID_BYTES = 24
_BUSY_S = 5.0
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS sessions (
    turn INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, used_s REAL NOT NULL,
    client TEXT
);
CREATE INDEX IF NOT EXISTS sessions_by_use ON sessions (owner, used_s);
"""
"""Not synchronous: the sessions end with the server, and so does the file."""


class McpSessions:
    """The sessions that were opened, by the key that opened them: another key cannot use them.

    Processes that share `file` share them, and need the same clock; None: they are in memory.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, file: Path | None = None) -> None:
        self._clock = clock
        self._rows = sqlite3.connect(file or ":memory:", timeout=_BUSY_S, isolation_level=None)
        self._rows.executescript(_SCHEMA)

    def close(self) -> None:
        """Forget them, or leave them to the other processes."""
        self._rows.close()

    def open(self, key: str | None, client: str | None = None) -> str:
        """A new session of a key, None where no key is needed, and of a program that calls itself so."""
        session, owner, now = secrets.token_urlsafe(_ID_BYTES), _owner(key), self._clock()
        with self._rows as rows:
            # One step for the other workers, which share the file: none sees more sessions than may be.
            rows.execute("BEGIN IMMEDIATE")
            rows.execute("DELETE FROM sessions WHERE owner = ? AND used_s < ?", (owner, now - IDLE_S))
            rows.execute(
                "INSERT INTO sessions (id, owner, used_s, client) VALUES (?, ?, ?, ?)", (session, owner, now, client)
            )
            # Of two with the same time the one that was opened first goes first.
            rows.execute(
                """DELETE FROM sessions WHERE turn IN (
                    SELECT turn FROM sessions WHERE owner = ? ORDER BY used_s DESC, turn DESC LIMIT -1 OFFSET ?)""",
                (owner, MAX_SESSIONS),
            )
        return session

    def enter(self, session: str, key: str | None) -> bool:
        """Whether there is such a session of this key; it counts as used, then."""
        now = self._clock()
        used = self._rows.execute(
            "UPDATE sessions SET used_s = ? WHERE id = ? AND owner = ? AND used_s >= ?",
            (now, session, _owner(key), now - IDLE_S),
        )
        return used.rowcount > 0

    def client(self, session: str) -> str | None:
        row = self._rows.execute("SELECT client FROM sessions WHERE id = ?", (session,)).fetchone()
        return row[0] if row is not None else None

    def end(self, session: str, key: str | None) -> bool:
        ended = self._rows.execute("DELETE FROM sessions WHERE id = ? AND owner = ?", (session, _owner(key)))
        return ended.rowcount > 0


def _owner(key: str | None) -> str:
    """No key is not a key without a name."""
    return "" if key is None else f"key {key}"


class McpEndpoint:
    """The ASGI endpoint: `plain` replies are one JSON document, `streaming` ones carry progress before the reply."""

    def __init__(
        self, plain: StreamableHTTPSessionManager, streaming: StreamableHTTPSessionManager, sessions: McpSessions
    ) -> None:
        self._plain = plain
        self._streaming = streaming
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = requests.http_request(scope)
        if scope["method"] == "DELETE":
            await self._end_session(request, send)
            return
        if scope["method"] != "POST":
            # A GET would open a stream for messages that answer no request: this server has none.
            raise requests.RequestRejectedError(405, "Method not allowed", allow="POST, DELETE")
        kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
        if kind != _JSON:
            raise requests.RequestRejectedError(415, f"Send Content-Type: {_JSON}")
        toolsets = toolsets_named(requests.query_fields(scope).get("tools") or Toolset.MEMORY)
        session = _session_named(request)
        body = messages.negotiable(await requests.read_body(receive))
        try:
            message = messages.read_message(body)
        except messages.InvalidMessageError as error:
            await requests.Reply(messages.line_of(error.response), 400).send(send)
            return
        if session is not None and not self._sessions.enter(session, requests.caller_id(request).key):
            await _no_session().send(send)
            return
        open_session = None
        if isinstance(message, types.JSONRPCRequest) and message.method == "initialize":
            open_session = partial(self._sessions.open, requests.caller_id(request).key, messages.named_client(message))
        answer = _HttpAnswer(send, open_session)
        await self._answer(scope, receive, body, answer, session=session, toolsets=toolsets)
        if not answer.begun:
            raise requests.ClientGoneError

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        body: bytes,
        answer: "_HttpAnswer",
        *,
        session: str | None,
        toolsets: Toolsets,
    ) -> None:
        request = requests.http_request(scope)
        # Searching the bytes is enough: where the word stands in a text only, the answer is a stream all the same.
        asks_for_progress = _PROGRESS in body and _STREAM in (request.header(b"accept") or "")
        manager = self._streaming if asks_for_progress else self._plain
        # httptools keeps white space around header values, and the library compares them as they are.
        headers = [(name, value.strip()) for name, value in scope["headers"]]
        client = self._sessions.client(session) if session is not None else None
        state = {**scope["state"], _SESSION: session, _CLIENT: client, _TOOLSETS: toolsets}
        scope = {**scope, "headers": headers, "state": state}
        # Whichever ends first ends the other: a client that goes away the work, and the finished work the watcher.
        async with anyio.create_task_group() as group:
            group.start_soon(_watch, receive, group.cancel_scope)
            await manager.handle_request(scope, _Replay(body), answer)
            group.cancel_scope.cancel()

    async def _end_session(self, request: requests.HttpRequest, send: Send) -> None:
        session = _session_named(request)
        if session is None:
            raise requests.RequestRejectedError(400, "Send the Mcp-Session-Id of the session to end")
        ended = self._sessions.end(session, requests.caller_id(request).key)
        await (requests.Reply(b"", 200) if ended else _no_session()).send(send)


class _HttpAnswer:
    """A `send` that notices whether an answer was begun, and adds the session that an answer to `initialize` opens."""

    def __init__(self, send: Send, open_session: Callable[[], str] | None) -> None:
        self._send = send
        self._open_session = open_session
        self._head: Message | None = None
        """The head of an answer to `initialize`, until its body says whether there is a session."""
        self.begun = False

    async def __call__(self, message: Message) -> None:
        is_head = message["type"] == "http.response.start"
        if is_head and message["status"] == HTTPStatus.OK and self._open_session is not None:
            self._head = message
            return
        if self._head is not None and self._open_session is not None:
            head, self._head = self._head, None
            # An error opens no session, so the head waits for the body, which says which it is.
            if b'"result"' in message.get("body", b""):
                head = {**head, "headers": [*head["headers"], (HEADER, self._open_session().encode())]}
            await self._send(head)
        self.begun = True
        await self._send(message)


class _Replay:
    """A `receive` that gives a body that was already read, and then nothing more."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        if self._body is None:  # the library waits for a disconnect here, which `_watch` sees instead
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _session_named(request: requests.HttpRequest) -> str | None:
    """The session that a request names; revisions without sessions, which say so in a header, name none."""
    if request.header(b"mcp-protocol-version") in MODERN_PROTOCOL_VERSIONS:
        return None
    return request.header(HEADER) or None


def _no_session() -> requests.Reply:
    """What tells a client to begin again with `initialize`."""
    sentence = "Session not found: it has ended, or the server was restarted; begin again with initialize"
    return requests.Reply.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": sentence}}, 404)


@asynccontextmanager
async def open_endpoint(memory: Memory, options: ServerOptions) -> AsyncIterator[McpEndpoint]:
    async def opened() -> Memory:
        return memory

    server = McpServer(opened, _request_context).server()
    plain = _manager(server, options, json_response=True)
    streaming = _manager(server, options, json_response=False)
    with closing(McpSessions(file=options.sessions_file)) as sessions:
        async with plain.run(), streaming.run():
            yield McpEndpoint(plain, streaming, sessions)


def _manager(server: Server[Any], options: ServerOptions, *, json_response: bool) -> StreamableHTTPSessionManager:
    # Host and Origin were checked by our own guard, which knows the settings.
    return StreamableHTTPSessionManager(
        server,
        json_response=json_response,
        stateless=True,
        security_settings=None,
        max_request_body_size=options.index_body_bytes,
    )


def _request_context(context: Context) -> RequestContext:
    starlette_request = context.request
    assert starlette_request is not None  # noqa: S101  (this transport sets it on every message)
    request = requests.http_request(starlette_request.scope)
    access = request.caller.access if request.caller is not None else Access.READ
    structured = requests.query_fields(starlette_request.scope).get("structured") == "true"
    state = starlette_request.scope["state"]
    # Revisions without sessions name the client in each request.
    client = state[_CLIENT] or client_of(context)
    caller = requests.caller_id(request, state[_SESSION])
    issuer = request.caller.issuer if request.caller is not None else None
    return RequestContext(request.request_id, access, state[_TOOLSETS], caller, client, structured, issuer)

"""Streamable HTTP at `/mcp`: each request stands by itself, no sessions, JSON unless the caller asked for progress."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Message, Receive, Scope, Send

from rag_context.contract.failure import ErrorCode
from rag_context.server.endpoint import query_fields
from rag_context.server.exchange import ClientGoneError, RefusalError, Reply, exchange, read_body, session_of
from rag_context.server.mcp.door import Context, Door, Memory, Visit
from rag_context.server.mcp.messages import has_bad_id, has_repeated_key, is_message, negotiable, refusal
from rag_context.server.options import Access, ServerOptions
from rag_context.server.registry import Toolset

_PROGRESS = b'"progressToken"'
_JSON = "application/json"
_STREAM = "text/event-stream"


class Endpoint:
    """The ASGI endpoint.

    Args:
        plain: Answers with one JSON document.
        streaming: Answers with a stream that carries progress before the answer.
    """

    def __init__(self, plain: StreamableHTTPSessionManager, streaming: StreamableHTTPSessionManager) -> None:
        self._plain = plain
        self._streaming = streaming

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; the work ends when its client goes away."""
        opened = exchange(scope)
        if scope["method"] != "POST":
            # There are no sessions to end and nothing to say unasked.
            raise RefusalError(405, ErrorCode.METHOD_NOT_ALLOWED, "Method not allowed", allow="POST")
        kind = (opened.header(b"content-type") or "").partition(";")[0].strip().lower()
        if kind != _JSON:
            raise RefusalError(415, ErrorCode.UNSUPPORTED_MEDIA_TYPE, f"Send Content-Type: {_JSON}")
        body = await read_body(receive)
        if has_repeated_key(body):
            await _refuse(body, send)
            return
        body = negotiable(body)
        asks_for_progress = _PROGRESS in body and _STREAM in (opened.header(b"accept") or "")
        manager = self._streaming if asks_for_progress else self._plain
        scope = {**scope, "headers": [(name, value.strip()) for name, value in scope["headers"]]}
        answer = _Answer(send, body)
        async with anyio.create_task_group() as group:
            group.start_soon(_watch, receive, group.cancel_scope)
            await manager.handle_request(scope, _Replay(body), answer)
            group.cancel_scope.cancel()
        if answer.is_misled:
            await _refuse(body, send)
        elif not answer.begun:
            raise ClientGoneError


async def _refuse(body: bytes, send: Send) -> None:
    refused = refusal(body).model_dump(mode="json", by_alias=True, exclude_unset=True)
    await Reply.json(refused, 400).send(send)


class _Answer:
    """A `send` that notices whether an answer was begun.

    What the library says of bytes that are no message is held back: a receipt, where it took a request for a
    notification, or its validator's report.
    """

    def __init__(self, send: Send, body: bytes) -> None:
        self._send = send
        self._body = body
        self.begun = False
        self.is_misled = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_misled = _is_misled(message["status"], self._body)
        if not self.is_misled:
            self.begun = True
            await self._send(message)


def _is_misled(status: int, body: bytes) -> bool:
    if status == HTTPStatus.ACCEPTED:
        return has_bad_id(body)
    return status == HTTPStatus.BAD_REQUEST and not is_message(body)


class _Replay:
    """A `receive` that gives a body that was already read, and then nothing more."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


@asynccontextmanager
async def open_endpoint(memory: Memory, options: ServerOptions) -> AsyncIterator[Endpoint]:
    """The endpoint over a memory."""

    async def opened() -> Memory:
        return memory

    server = Door(opened, _visit, Toolset.ALL).server()
    plain = _manager(server, options, json_response=True)
    streaming = _manager(server, options, json_response=False)
    async with plain.run(), streaming.run():
        yield Endpoint(plain, streaming)


def _manager(server: Server[Any], options: ServerOptions, *, json_response: bool) -> StreamableHTTPSessionManager:
    # Host and Origin were checked by our own guard, which knows the settings.
    return StreamableHTTPSessionManager(
        server,
        json_response=json_response,
        stateless=True,
        security_settings=None,
        max_request_body_size=options.index_body_bytes,
    )


def _visit(context: Context) -> Visit:
    request = context.request
    assert request is not None  # noqa: S101  (this transport sets it on every message)
    opened = exchange(request.scope)
    access = opened.caller.access if opened.caller is not None else Access.READ
    structured = query_fields(request.scope).get("structured") == "true"
    return Visit(opened.request_id, access, session_of(opened), structured)

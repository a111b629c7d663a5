"""The outermost layer: every request gets an id, one log line, and on failure one shape of reply."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_context.api.failure import ErrorCode
from rag_context.logs import REQUEST_ID
from rag_context.server.failures import failure_reply
from rag_context.server.messages import ClientGoneError, HttpRequest, Reply, RequestRejectedError, attach_request

access = logging.getLogger("rag_context.access")

_GIVEN_ID = re.compile(rb"[!-~]{1,128}")
_SINGLE = (b"host", b"content-length", b"content-type", b"authorization", b"x-api-key", b"origin")
_CLIENT_GONE = 499
LINGER_BYTES = 1024 * 1024
LINGER_S = 1.0


class RequestIdMiddleware:
    """Attaches what is known of the request, runs the rest, and answers for whatever it raises."""

    def __init__(self, app: ASGIApp, *, max_requests: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._app = app
        self._max_requests = max_requests
        self._clock = clock
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; lifespan messages pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = self._clock()
        opened = _open(scope)
        REQUEST_ID.set(opened.request_id)
        status = 0
        id_header = (b"x-request-id", opened.request_id.encode())

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), id_header]
            await send(message)

        self._running += 1
        try:
            self._admit(scope)
            await self._app(scope, receive, tagged)
        except ClientGoneError:
            status = status or _CLIENT_GONE
        except Exception as error:
            if status:
                raise
            reply = failure_reply(error, opened.request_id, scope["path"])
            await _reject(reply, opened, receive, tagged)
        finally:
            self._running -= 1
            if access.isEnabledFor(logging.INFO):
                _log(scope, status, (self._clock() - started) * 1000)

    def _admit(self, scope: Scope) -> None:
        if self._running > self._max_requests and scope["path"] != "/live":
            raise RequestRejectedError(503, ErrorCode.OVERLOADED, "Too many requests at once", retry_after="1")
        headers = scope["headers"]
        if len({name for name, _ in headers}) != len(headers):
            for single in _SINGLE:
                if sum(name == single for name, _ in headers) > 1:
                    raise RequestRejectedError(400, ErrorCode.INVALID_INPUT, f"Header {single.decode()} given twice")


def _open(scope: Scope) -> HttpRequest:
    headers = dict(scope["headers"])
    given = headers.get(b"x-request-id", b"").strip()
    request_id = given.decode() if _GIVEN_ID.fullmatch(given) else os.urandom(12).hex()
    opened = HttpRequest(request_id, headers)
    attach_request(scope, opened)
    return opened


async def _reject(reply: Reply, opened: HttpRequest, receive: Receive, send: Send) -> None:
    unread = opened.has_body() and not opened.body_read
    announced = opened.headers.get(b"content-length", b"").strip()
    if unread and announced.isdigit() and int(announced[:20]) <= LINGER_BYTES:
        unread = not await _drain(receive)
    if not unread:
        await reply.send(send)
        return
    # An unread body must not be taken for the next request, nor read to its end. Some of it is taken off the
    # wire after the reply, because a connection closed on unread data resets, and the reply may be lost.
    closing = Reply(reply.body, reply.status, reply.media_type, (*reply.headers, (b"connection", b"close")))
    await closing.send(send, more=True)
    await _drain(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> bool:
    left = LINGER_BYTES
    try:
        async with asyncio.timeout(LINGER_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return True
    except TimeoutError:
        pass
    return False


def _log(scope: Scope, status: int, ms: float) -> None:
    method, path = scope["method"], scope.get("raw_path", b"").decode("latin-1")[:512]
    access.info(
        "%s %s %d %.1f ms",
        method,
        path,
        status,
        ms,
        extra={"method": method, "path": path, "status": status, "ms": round(ms, 3)},
    )

"""From an exception to the one shape of an error reply, and the outermost middleware, which answers for all of them.

Nothing internal gets out.
"""

import asyncio
import logging
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_context import errors
from rag_context.api import embeddings, search, wire
from rag_context.api.parsing import CODES, Detail, ErrorCode, ErrorResponse
from rag_context.logs import REQUEST_ID
from rag_context.memory import accesses
from rag_context.projects.records import ProjectError
from rag_context.server import requests
from rag_context.tracing import NOT_RECORDED, TraceSpan, server_span

logger = logging.getLogger(__name__)
_PLACE = re.compile(r"/(?:tools/)?[^/]{0,128}")

_HTTP = {404: "Not found", 405: "Method not allowed", 413: "Request body too large"}
_PROJECT_STATUS = {"PROJECT_NOT_ACTIVATED": 409, "DOCUMENT_NOT_FOUND": 404, "FILE_SYSTEM_ERROR": 503}
_STRICT_STATUS = {"CIRCUIT_OPEN": 429, "SERVICE_UNAVAILABLE": 503}
OPENAI_PREFIX = "/v1/"
_Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class FailureReport:
    """Why there is no answer: what HTTP writes, MCP shows and a client in this process raises."""

    status: int
    body: ErrorResponse | search.SearchFailure
    retry_after_s: int | None = None
    headers: _Headers = ()

    def reply(self, path: str = "") -> requests.Reply:
        """As a reply to a request for `path`; below `/v1/` it has the shape of OpenAI's API."""
        body: wire.WireResponse = self.body
        if path.startswith(OPENAI_PREFIX) and isinstance(self.body, ErrorResponse):
            body = embeddings.OpenAiErrorResponse.of(self.status, self.body)
        wait = () if self.retry_after_s is None else ((b"retry-after", b"%d" % self.retry_after_s),)
        return requests.Reply(body.to_json(), self.status, headers=(*self.headers, *wait))


def failure_of(error: Exception, request_id: str) -> FailureReport:
    """What `error` means to a caller. An error that is not ours is logged, and reported as 500."""

    def report(
        status: int,
        sentence: str = str(error),
        *,
        code: ErrorCode | None = None,
        details: tuple[errors.FieldError, ...] = (),
        wait: int | None = None,
        headers: _Headers = (),
    ) -> FailureReport:
        return FailureReport(status, error_body(status, sentence, request_id, code, details), wait, headers)

    match error:
        case search.SearchFailedError():
            return FailureReport(_STRICT_STATUS[error.failure.code], error.failure, retry_after(error.retry_after_s))
        case requests.RequestRejectedError():
            return report(error.status, code=error.code, wait=error.retry_after_s, headers=error.headers)
        case errors.InvalidInputError():
            return report(400, details=error.details)
        case ProjectError():
            return report(_PROJECT_STATUS.get(error.code, 400), code=ErrorCode(error.code), details=error.details)
        case errors.NotFoundError():
            return report(404)
        case errors.ForbiddenError():
            return report(403)
        case errors.ConflictError() | errors.ForeignDataError():
            return report(409)
        case errors.OverloadedError():
            return report(503, code=ErrorCode.OVERLOADED, wait=retry_after(error.retry_after_s))
        case errors.BackendError():
            log_failure(logger, error)
            # What a plug-in raised says nothing about a database, and its author needs to know whose fault it is.
            is_plugin = isinstance(error, errors.ProviderFailedError)
            seconds = error.retry_after_s if isinstance(error, errors.BackendUnavailableError) else None
            return report(
                503, str(error) if is_plugin else component_sentence(error.component), wait=retry_after(seconds)
            )
        case HTTPException() if error.status_code in _HTTP:
            headers = tuple((k.lower().encode(), v.encode()) for k, v in (error.headers or {}).items())
            return report(error.status_code, _HTTP[error.status_code], headers=headers)
    logger.error("unexpected %s", type(error).__name__, exc_info=error)
    return report(500, "Internal server error")


def error_body(
    status: int,
    message: str,
    request_id: str = "",
    code: ErrorCode | None = None,
    details: tuple[errors.FieldError, ...] = (),
) -> ErrorResponse:
    """An error in its one shape; 5xx tell the client to go on without context."""
    failed = status >= 500
    return ErrorResponse(
        error=message,
        code=code or CODES[status],
        details=Detail.list_of(details) or None,
        request_id=request_id,
        fallback=True if failed else None,
        fallback_level=3 if failed else None,
    )


_STOPPING = FailureReport(
    503, error_body(503, "The server stops before this is done", code=ErrorCode.SERVICE_UNAVAILABLE), retry_after_s=1
)


def log_failure(log: logging.Logger, error: errors.BackendError) -> None:
    """Log a failure with its traceback; an outage, which every caller meets until it is over, in one line."""
    if isinstance(error, errors.BackendUnavailableError | errors.LostIndexError):
        log.warning("%s failed: %s", error.component, error)
    else:
        log.warning("%s failed: %s", error.component, type(error).__name__, exc_info=error)


def component_sentence(component: str) -> str:
    if component.startswith("embed"):
        return "Embedding service unavailable"
    if component.startswith(("vector", "qdrant", "chroma")):
        return "Vector database unavailable"
    return "Database unavailable"


def retry_after(seconds: float | None) -> int:
    """After how long a caller may try again: whole seconds, at least one."""
    return max(1, math.ceil(seconds or 1))


access = logging.getLogger("rag_context.access")

_REQUEST_ID_PATTERN = re.compile(rb"[!-~]{1,128}")
_SINGLE = (b"host", b"content-length", b"content-type", b"authorization", b"x-api-key", b"origin")
_CLIENT_GONE = 499
_PROBES = frozenset({"/live", "/ready", "/health", "/metrics"})
"""Called every few seconds by orchestrators."""
LINGER_BYTES = 1024 * 1024
LINGER_S = 1.0


@dataclass
class RequestIdMiddleware:
    """Attaches an `HttpRequest` with an id to the scope, calls the application, and replies to whatever it raises."""

    app: ASGIApp
    _: KW_ONLY
    max_requests: int
    may_record: Callable[[Scope], bool] = lambda _scope: True
    """Whether a rejection of a caller without a key is recorded: anyone can cause any number of them."""
    clock: Callable[[], float] = time.perf_counter
    log: logging.Logger = access
    _running: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = self.clock()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").strip()
        request_id = given.decode() if _REQUEST_ID_PATTERN.fullmatch(given) else os.urandom(12).hex()
        request = requests.HttpRequest(request_id, headers)
        requests.attach_request(scope, request)
        REQUEST_ID.set(request.request_id)
        status = 0
        id_header = (b"x-request-id", request.request_id.encode())

        async def tagged(message: Message) -> None:
            # The status is read off what is sent: the log line and the span cover every reply, errors too.
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), id_header]
            await send(message)

        # A probe every few seconds would be most of the traces.
        traced = NOT_RECORDED if scope["path"] in _PROBES else server_span(scope["method"], request.headers)
        try:
            with traced:
                try:
                    await self._counted(scope, receive, tagged)
                except requests.ClientGoneError:
                    status = status or _CLIENT_GONE
                except asyncio.CancelledError:
                    if status:
                        raise
                    await _STOPPING.reply(scope["path"]).send(tagged)  # the server waits for no request any longer
                except Exception as error:
                    if status:
                        raise  # a reply has begun: another head cannot follow, and the server ends the connection
                    reply = failure_of(error, request.request_id).reply(scope["path"])
                    await _reject(reply, request, receive, tagged)
                finally:
                    if traced is not NOT_RECORDED:
                        _describe(traced, scope, status)
        finally:
            if self.log.isEnabledFor(logging.INFO):
                _log(scope, status, (self.clock() - started) * 1000)
            if status in {401, 403} and (request.caller is not None or self.may_record(scope)):
                key = None if request.caller is None else request.caller.name
                client = (request.header(b"user-agent") or "")[: requests.ACTOR_CHARS]
                place = _PLACE.match(scope["path"])  # names of collections stay out
                accesses.record(f"{scope['method']} {place[0] if place else '/'}", str(status), key=key, client=client)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Without what follows a rejection: who sends no body for it must not take the place of another.
        self._running += 1
        try:
            self._admit(scope)
            await self.app(scope, receive, send)
        finally:
            self._running -= 1

    def _admit(self, scope: Scope) -> None:
        # A busy process is alive: an orchestrator that got 503 from /live would restart it.
        if self._running > self.max_requests and scope["path"] != "/live":
            raise requests.RequestRejectedError(
                503, "Too many requests at once", code=ErrorCode.OVERLOADED, retry_after_s=1
            )
        headers = scope["headers"]
        # Of a header given twice this process and a proxy before it might each read another one.
        if len({name for name, _ in headers}) != len(headers):
            for single in _SINGLE:
                if sum(name == single for name, _ in headers) > 1:
                    raise requests.RequestRejectedError(400, f"Header {single.decode()} given twice")


def _describe(traced: TraceSpan, scope: Scope, status: int) -> None:
    """Name the span by its route: names in addresses would be texts, and one name each."""
    route = getattr(scope.get("route"), "path", None)
    if route is not None:
        traced.rename(f"{scope['method']} {route}")
        traced.set({"http.route": route})
    traced.set({"http.response.status_code": status})
    if status >= 500:
        traced.fail(str(status))


async def _reject(reply: requests.Reply, request: requests.HttpRequest, receive: Receive, send: Send) -> None:
    unread = request.has_body() and not request.body_read
    announced = request.headers.get(b"content-length", b"").strip()
    if unread and announced.isdigit() and int(announced[:20]) <= LINGER_BYTES:
        unread = not await _drain(receive)
    if not unread:
        await reply.send(send)
        return
    # An unread body must not be taken for the next request, nor read to its end. Some of it is taken off the
    # wire after the reply, because a connection closed on unread data resets, and the reply may be lost.
    closing = requests.Reply(reply.body, reply.status, reply.media_type, (*reply.headers, (b"connection", b"close")))
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
    facts = {"method": method, "path": path, "status": status, "ms": round(ms, 3)}
    access.info("%s %s %d %.1f ms", method, path, status, ms, extra=facts)

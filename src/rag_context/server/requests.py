"""One HTTP request, its reply and its endpoint: plain ASGI, no request or response objects of a framework."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from rag_context.api.operations import Access
from rag_context.api.parsing import CODES, ErrorCode
from rag_context.domain.callers import CallerId
from rag_context.errors import FieldError, InvalidInputError
from rag_context.server.options import ANYONE, Caller, TrustedIssuer

JSON = b"application/json"
_STATE = "rag_context.request"

ACTOR_CHARS = 64

T = TypeVar("T")


@dataclass(slots=True)
class HttpRequest:
    """What is known of a request: its id, its headers (names in lower case), its caller, whether its body was read."""

    request_id: str
    headers: dict[bytes, bytes]
    caller: Caller | None = None
    body_read: bool = False

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def has_body(self) -> bool:
        return self.headers.get(b"content-length", b"0").strip() != b"0" or b"transfer-encoding" in self.headers


def http_request(scope: Scope) -> HttpRequest:
    found = scope["state"][_STATE]
    assert isinstance(found, HttpRequest)  # noqa: S101  (attached to every request)
    return found


def attach_request(scope: Scope, opened: HttpRequest) -> None:
    scope.setdefault("state", {})[_STATE] = opened


def caller_id(opened: HttpRequest, session: str | None = None) -> CallerId:
    """Who calls: the API key where there is one, and an MCP session that was found to be the caller's."""
    caller = opened.caller
    if caller is None or caller is ANYONE:
        return CallerId(session)
    return CallerId(session, caller.name, caller.bounds, only_adds=caller.access is Access.ADD)


def actor_of(opened: HttpRequest) -> str | None:
    """Who changes something by this request: the name of its key, else of its client."""
    agent = opened.header(b"user-agent") or ""
    return caller_id(opened).key or re.split(r"[/\s]", agent, maxsplit=1)[0][:ACTOR_CHARS] or None


class ClientGoneError(Exception):
    """The client disconnected before its request was complete; there is no one to answer."""


class RequestRejectedError(Exception):
    """A request is rejected, with this status and message, and the code of the status unless another one is given."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: ErrorCode | None = None,
        retry_after_s: int | None = None,
        **headers: str,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code or CODES[status]
        self.retry_after_s = retry_after_s
        self.headers = tuple(
            (name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()
        )


@dataclass(frozen=True, slots=True)
class Reply:
    body: bytes
    status: int = 200
    media_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())

    @classmethod
    def json(cls, value: Any, status: int = 200) -> "Reply":
        return cls(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), status)

    async def send(self, send: Send, *, more: bool = False) -> None:
        """Send it; with `more`, the caller ends the response itself."""
        headers = [(b"content-type", self.media_type), (b"content-length", b"%d" % len(self.body)), *self.headers]
        if not any(name == b"cache-control" for name, _ in self.headers):
            # A proxy that caches tells requests with X-API-Key apart by their addresses alone.
            headers.append((b"cache-control", b"no-store"))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": more})


WATCHED_AFTER_S = 0.05
"""How long a request runs before anything looks whether its caller is still connected; most are done by then."""


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Await `work` as long as its caller is connected: one that disconnects frees the place of its request.

    For work that may be ended at any point, after the body was read. Raises: ClientGoneError.
    """
    current = asyncio.current_task()
    assert current is not None  # noqa: S101  (for type checkers: a coroutine runs in a task)
    gone = False
    watching: asyncio.Task[None] | None = None

    async def watch() -> None:
        nonlocal gone
        with suppress(ClientGoneError):  # raised where it goes before its request was read, even one without a body
            while (await receive())["type"] != "http.disconnect":
                pass
        gone = True
        current.cancel()

    def start() -> None:
        nonlocal watching
        watching = asyncio.create_task(watch())

    timer = asyncio.get_running_loop().call_later(WATCHED_AFTER_S, start)
    try:
        return await work
    except asyncio.CancelledError:
        # Where something else has cancelled this task as well (a shutdown), it stays cancelled.
        if gone and current.uncancel() == 0:
            raise ClientGoneError from None
        raise
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()


async def read_body(receive: Receive) -> bytes:
    message = await receive()
    # Nearly every body arrives in one piece, and is not copied then.
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        return body
    parts = []
    while message["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()
    raise ClientGoneError


JSON_KINDS = ("application/json",)
SEND_JSON = "Send Content-Type: application/json"

Handler = Callable[[Scope, Receive], Awaitable[Reply]]


class Endpoint:
    def __init__(self, handle: Handler) -> None:
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._handle(scope, receive)
        await reply.send(send)


def query_fields(scope: Scope) -> dict[str, str]:
    """The fields of the query string. Raises: InvalidInputError where one is given twice."""
    fields: dict[str, str] = {}
    repeated = []
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name in fields:
            repeated.append(FieldError(name, f"{name} given twice"))
        fields[name] = value
    if repeated:
        raise InvalidInputError(repeated[0].message, repeated)
    return fields


def require(access: Access, opened: HttpRequest) -> None:
    if opened.caller is None or not opened.caller.access.allows(access):
        has, issuer = (opened.caller.access, opened.caller.issuer) if opened.caller else (Access.READ, None)
        raise lacking(access, has, issuer)


def lacking(needed: Access, has: Access, issuer: TrustedIssuer | None) -> RequestRejectedError:
    only = {Access.READ: "may only read", Access.ADD: "may add, but not change or delete"}.get(has)
    lacks = f"lacks the access {needed}"
    lacks = lacks if only is None or needed is Access.ADMIN else only
    if issuer is None:
        return RequestRejectedError(403, f"This API key {lacks}")
    return RequestRejectedError(403, f"This access token {lacks}", www_authenticate=issuer.missing_scope(needed))


def check_media_type(opened: HttpRequest, kinds: tuple[str, ...], advice: str) -> None:
    """Reject a body of another media type, charset or coding than the route reads."""
    given = opened.header(b"content-type") or ""
    kind, _, parameters = given.lower().partition(";")
    kind = kind.strip()
    fits = kind in kinds or ("application/json" in kinds and kind.startswith("application/") and kind.endswith("+json"))
    charset = parameters.strip().removeprefix("charset=").strip('"')
    encoded = opened.header(b"content-encoding")
    if not fits or charset not in {"", "utf-8", "utf8"} or encoded not in {None, "identity"}:
        raise RequestRejectedError(415, f"{advice} (UTF-8, not compressed)")

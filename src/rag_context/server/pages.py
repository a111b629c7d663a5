"""What browsers get: the page at `/`, the page of the API, their scripts and styles, and the stream of events.

Their content security policy allows nothing from other servers. The texts that they show come from documents, so it has
`require-trusted-types-for`: a browser interprets none of them as HTML.
"""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from starlette.types import Receive, Scope, Send

from rag_context._version import __version__
from rag_context.api import maintenance, parsing, stored_documents
from rag_context.errors import BackendError, OverloadedError
from rag_context.memory.service import Service
from rag_context.server import failures, options, requests

PAGE_PREFIX = "/page/"
"""Where the scripts and styles of the page are; served without a key, as the page is."""

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

EVENTS_PATH = "/events"
MAX_WATCHERS = 32
"""Streams at once, of one key half of them; each takes a connection and one of the requests that may run."""
LATEST = 8
"""Documents that an event names."""
_EVERY_S = 1.0
_SILENT_S = 15.0
"""A comment is sent after as long without an event, so that a connection that broke is noticed on both sides."""
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def page_part(name: str, request: requests.HttpRequest) -> requests.Reply:
    """A page, or one of the files of pages. Raises: RequestRejectedError where there is none of that name.

    A browser sends a request each time, and gets 304 if nothing changed: after an upgrade no old script is run.
    """
    reply = _parts().get(name)
    if reply is None:
        raise requests.RequestRejectedError(404, "Not found")
    etag = request.header(b"if-none-match")
    if etag is not None and etag.encode() == dict(reply.headers)[b"etag"]:
        return requests.Reply(b"", 304, reply.media_type, reply.headers)
    return reply


@cache
def _parts() -> dict[str, requests.Reply]:
    folder = resources.files("rag_context.server").joinpath("page")
    found = {}
    for file in folder.iterdir():
        kind = _TYPES.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            body = file.read_text("utf-8").replace("{{version}}", __version__).encode()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            headers = (*_HEADERS, (b"cache-control", b"no-cache"), (b"etag", etag.encode()))
            found[file.name] = requests.Reply(body, media_type=f"{kind}; charset=utf-8".encode(), headers=headers)
    return found


class Events:
    """The endpoint. Streams of the same time range share the calls of the service."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._watchers: Counter[str | None] = Counter()
        self._events: dict[maintenance.TimeRange, tuple[float, asyncio.Task[bytes]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a `state` event now and whenever the state has changed, until the client or the server goes."""
        request = parsing.read_fields(maintenance.StatsRequest, requests.query_fields(scope))
        caller = requests.http_request(scope).caller
        name = caller.name if caller is not None and caller is not options.ANYONE else None
        if self._watchers.total() >= MAX_WATCHERS or (name and self._watchers[name] >= MAX_WATCHERS // 2):
            raise requests.RequestRejectedError(
                503, "Too many watch already", code=parsing.ErrorCode.OVERLOADED, retry_after_s=10
            )
        self._watchers[name] += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            await requests.while_connected(receive, self._stream(request.time_range, send))
        finally:
            self._watchers[name] -= 1

    async def _stream(self, time_range: maintenance.TimeRange, send: Send) -> None:
        last, sent_at = b"", self._clock()
        while True:
            event = self._events.get(time_range)
            if event is None or (event[1].done() and self._clock() - event[0] >= _EVERY_S / 2):
                event = self._events[time_range] = (self._clock(), asyncio.create_task(self._event(time_range)))
            # A stream that ends must not cancel the calls that the others wait for.
            seen = await asyncio.shield(event[1])
            now = self._clock()
            if seen != last or now - sent_at >= _SILENT_S:
                await send(
                    {"type": "http.response.body", "body": seen if seen != last else b":\n\n", "more_body": True}
                )
                last, sent_at = seen, now
            await asyncio.sleep(_EVERY_S)

    async def _event(self, time_range: maintenance.TimeRange) -> bytes:
        service = self._service
        calls: dict[str, Any] = {
            "health": service.health(),
            "stats": service.stats(maintenance.StatsRequest(time_range=time_range)),
            "latest": service.listing(stored_documents.ListRequest(limit=LATEST)),
        }
        answers = await asyncio.gather(*calls.values(), return_exceptions=True)
        state = {name: _state_of(answer) for name, answer in zip(calls, answers, strict=True)}
        return f"event: state\ndata: {json.dumps(state, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _state_of(answer: Any) -> Any:
    """What an operation answered, or why it did not: a store that is down takes nothing else off the page."""
    match answer:
        case OverloadedError():
            return {"error": str(answer)}
        case BackendError():
            return {"error": failures.component_sentence(answer.component)}
        case BaseException():
            raise answer
    return json.loads(answer.to_json())

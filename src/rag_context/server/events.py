"""`GET /events`: the state of the memory as server-sent events."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from rag_context.api.maintenance import StatsRequest, TimeRange
from rag_context.api.parsing import ErrorCode, read_fields
from rag_context.api.stored_documents import ListRequest
from rag_context.errors import BackendError, OverloadedError
from rag_context.server.failures import component_sentence
from rag_context.server.requests import RequestRejectedError, query_fields, while_connected
from rag_context.server.tools import Service

EVENTS_PATH = "/events"
MAX_WATCHERS = 32
"""Streams at once; each takes a connection and one of the requests that may run."""
LATEST = 8
"""Documents that an event names."""
_EVERY_S = 1.0
_SILENT_S = 15.0
"""A comment is sent after as long without an event, so that a connection that broke is noticed on both sides."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Events:
    """The endpoint. Streams of the same time range share one look at the service."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._watchers = 0
        self._looks: dict[TimeRange, tuple[float, asyncio.Task[bytes]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a `state` event now and whenever the state has changed, until the client or the server goes."""
        asked = read_fields(StatsRequest, query_fields(scope))
        if self._watchers >= MAX_WATCHERS:
            raise RequestRejectedError(503, ErrorCode.OVERLOADED, "Too many watch already", retry_after="10")
        self._watchers += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            await while_connected(receive, self._stream(asked.time_range, send))
        finally:
            self._watchers -= 1

    async def _stream(self, time_range: TimeRange, send: Send) -> None:
        last, sent_at = b"", self._clock()
        while True:
            seen = await self._look(time_range)
            now = self._clock()
            if seen != last or now - sent_at >= _SILENT_S:
                await send(
                    {"type": "http.response.body", "body": seen if seen != last else b":\n\n", "more_body": True}
                )
                last, sent_at = seen, now
            await asyncio.sleep(_EVERY_S)

    async def _look(self, time_range: TimeRange) -> bytes:
        """The event as it is now; one look at the service is shared by all streams within the interval."""
        known = self._looks.get(time_range)
        if known is None or (known[1].done() and self._clock() - known[0] >= _EVERY_S / 2):
            known = self._looks[time_range] = (self._clock(), asyncio.create_task(self._event(time_range)))
        return await asyncio.shield(known[1])

    async def _event(self, time_range: TimeRange) -> bytes:
        service = self._service
        calls: dict[str, Any] = {
            "health": service.health(),
            "stats": service.stats(StatsRequest(time_range=time_range)),
            "latest": service.listing(ListRequest(limit=LATEST)),
        }
        answers = await asyncio.gather(*calls.values(), return_exceptions=True)
        state = {name: _part(answer) for name, answer in zip(calls, answers, strict=True)}
        return f"event: state\ndata: {json.dumps(state, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _part(answer: Any) -> Any:
    """What an operation answered, or why it did not: a store that is down takes nothing else off the page."""
    match answer:
        case OverloadedError():
            return {"error": str(answer)}
        case BackendError():
            return {"error": component_sentence(answer.component)}
        case BaseException():
            raise answer
    return json.loads(answer.to_json())

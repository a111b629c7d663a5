"""The HTTP protocol of uvicorn with limits on the head of a request, on slow senders and on connections."""

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from rag_context.api.parsing import ErrorCode
from rag_context.server.failures import error_body
from rag_context.server.options import ServerOptions
from rag_context.server.pages import EVENTS_PATH

_TOO_LARGE = "Request head too large"
_HEADER_SIGNS = len(": \r\n")


class GuardedProtocol(HttpToolsProtocol):
    """One connection, with limits on the head of a request, on slow senders and on connections.

    uvicorn's httptools protocol bounds neither the size of a head nor the time a client takes to send a request, takes
    trailers for headers, and forgets requests in a pipeline when their connection is lost. The timer is armed only
    while a request is incomplete, so that ordinary requests, which arrive whole, pay nothing.
    Rejections made here have the same error shape as everywhere, without a request id.
    """

    options = ServerOptions()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._in_head = True
        self._head_bytes = 0
        """Of a head that is not complete, as it came."""
        self._parsed_bytes = 0
        """Of the current head's address, names and values."""
        self._answering: list[RequestResponseCycle] = []
        self._timer: asyncio.TimerHandle | None = None
        # `BodyLimit` answers a stalled body better, once some of it has come; this is for those it cannot see.
        self._body_timer_s = self.options.body_timeout_s * 1.25

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.options.max_connections:
            self._reject(503, "Too many connections", ErrorCode.OVERLOADED, b"retry-after: 1\r\n")
            return
        self._arm(self.options.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer with the connection, and end all of its requests: no client waits for their answers."""
        self._disarm()
        super().connection_lost(exc)
        self.pipeline.clear()
        for cycle in self._answering:
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            # Wakes an application that waits for the rest of the body.
            cycle.message_event.set()
        self._answering.clear()

    def shutdown(self) -> None:
        """Let the request in progress end; a stream of events, which has no end, is ended here."""
        super().shutdown()
        if any(not cycle.response_complete and cycle.scope["path"] == EVENTS_PATH for cycle in self._answering):
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            # The parser reports a header once it is complete: one without an end would never be counted there.
            self._head_bytes += len(data)
            if self._head_bytes > self.options.head_bytes:
                self._reject(431, _TOO_LARGE)
            elif self._timer is None:
                self._arm(self.options.head_timeout_s)
        elif self.cycle.more_body and not self.cycle.response_complete:
            self._disarm()
            self._arm(self._body_timer_s)
        else:
            self._disarm()

    def on_message_begin(self) -> None:
        self._in_head = True
        self._parsed_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that comes behind the body is a trailer, and says nothing that is read here."""
        if self._in_head:
            self._count(len(name) + len(value) + _HEADER_SIGNS)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is here; the parser runs on with the body."""
        self._in_head = False
        self._head_bytes = 0
        super().on_headers_complete()
        self._answering = [cycle for cycle in self._answering if not cycle.response_complete]
        if self.cycle is not None:
            self._answering.append(self.cycle)

    def send_400_response(self, msg: str) -> None:
        if self._parsed_bytes > self.options.head_bytes:
            self._reject(431, _TOO_LARGE)
        else:
            self._reject(400, msg)

    def _count(self, size: int) -> None:
        """A head that comes in one piece is counted by its parts. Raises: ValueError, which ends the parser."""
        self._parsed_bytes += size
        if self._parsed_bytes > self.options.head_bytes:
            raise ValueError(_TOO_LARGE)

    def _arm(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        # The server has stopped reading, because the application is slow: that is not the client's fault.
        if self.flow.read_paused:
            self._arm(self._body_timer_s)
        # A response has begun: another head in the middle of it would be taken for its body.
        elif not self._in_head and self.cycle.response_started:
            self.transport.close()
        elif self._head_bytes or not self._in_head:
            self._reject(408, "Request took too long")
        # Nothing was sent at all, as when browsers open a connection in advance: no request, no response.
        else:
            self.transport.close()

    def _reject(self, status: int, message: str, code: ErrorCode | None = None, header: bytes = b"") -> None:
        body = error_body(status, message, code=code).to_json()
        head = [STATUS_LINE[status], b"content-type: application/json\r\nconnection: close\r\n", header]
        head.append(b"content-length: %d\r\n\r\n" % len(body))
        self.transport.write(b"".join(head) + body)
        self.transport.close()


def protocol_with(options: ServerOptions) -> type[asyncio.Protocol]:
    return type("GuardedProtocol", (GuardedProtocol,), {"options": options})

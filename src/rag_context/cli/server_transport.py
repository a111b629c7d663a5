"""HTTP to the server on this machine: a transport of httpx2 over the standard library's `http.client`.

httpx2's own transport imports httpcore2, AnyIO, h11 and h2 at its first request: a tenth of what `rag-context search`
costs from start to end. A server announces a plain http:// address, so that none of their further abilities is needed.
"""

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TypeVar

import httpx2

Result = TypeVar("Result")

CHUNK_BYTES = 1 << 16


class ServerTransport(httpx2.AsyncBaseTransport):
    """Sends each request over a connection of its own; waiting for the network is done in threads."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.scheme != "http":
            raise httpx2.UnsupportedProtocol("The server of a data directory is reached by http://", request=request)
        exchange = _Exchange(request)
        try:
            response = await exchange.begin(await request.aread())
        except BaseException:
            await exchange.aclose()
            raise
        return httpx2.Response(response.status, headers=response.getheaders(), stream=exchange)


class _Exchange(httpx2.AsyncByteStream):
    """A request and its response; as a stream, the response's body."""

    def __init__(self, request: httpx2.Request) -> None:
        self._request = request
        self._timeouts = request.extensions.get("timeout", {})
        self._connection = http.client.HTTPConnection(
            request.url.host, request.url.port or http.client.HTTP_PORT, timeout=self._timeouts.get("connect")
        )
        self._socket: socket.socket | None = None
        self._response: http.client.HTTPResponse | None = None

    async def begin(self, body: bytes) -> http.client.HTTPResponse:
        try:
            # Not in one step with sending: a call that is cancelled while it connects must not be sent any more.
            await asyncio.to_thread(self._connection.connect)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error), request=self._request) from error
        except OSError as error:
            raise httpx2.ConnectError(str(error), request=self._request) from error
        self._socket = self._connection.sock  # the connection forgets it once the head of the response is there
        self._socket.settimeout(self._timeouts.get("read"))
        self._response = await self._in_thread(lambda: self._send(body))
        return self._response

    def _send(self, body: bytes) -> http.client.HTTPResponse:
        headers = {**self._request.headers, "connection": "close"}
        # A server that rejects a large body answers, and closes the connection, before it has read all of it.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.request(self._request.method, self._request.url.raw_path.decode("ascii"), body, headers)
        return self._connection.getresponse()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self._in_thread(self._receive):
            yield part

    def _receive(self) -> bytes:
        assert self._response is not None  # noqa: S101  (httpx2 reads the body of a response that has begun)
        part = self._response.read1(CHUNK_BYTES)
        if not part and self._response.length:  # `read1` does not tell a broken connection from the end
            raise http.client.IncompleteRead(part, self._response.length)
        return part

    async def _in_thread(self, step: Callable[[], Result]) -> Result:
        try:
            return await asyncio.to_thread(step)
        except TimeoutError as error:
            raise httpx2.ReadTimeout(str(error), request=self._request) from error
        except http.client.HTTPException as error:
            raise httpx2.RemoteProtocolError(str(error), request=self._request) from error
        except OSError as error:
            raise httpx2.ReadError(str(error), request=self._request) from error

    async def aclose(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                # Wakes a thread that waits for the server, for which the end of the event loop would wait in turn.
                self._socket.shutdown(socket.SHUT_RDWR)
        if self._response is not None:
            self._response.close()
        self._connection.close()

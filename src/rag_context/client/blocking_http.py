"""HTTP that blocks, behind the interface for coroutines."""

from collections.abc import AsyncIterator, Iterator
from typing import cast

import httpx2


class BlockingTransport(httpx2.AsyncBaseTransport):
    """The transport of `httpx2.Client`, whose calls may come from several threads."""

    def __init__(self) -> None:
        self._transport = httpx2.HTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self._transport.handle_request(request)
        stream = _Body(cast("httpx2.SyncByteStream", response.stream))
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    async def aclose(self) -> None:
        self._transport.close()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: Iterator[bytes] = iter(self._stream)
        for part in parts:
            yield part

    async def aclose(self) -> None:
        self._stream.close()

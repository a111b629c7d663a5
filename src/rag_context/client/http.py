"""Calls over HTTP, once for coroutines and once for threads: find the server, ask, try again where that is right."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import httpx2

from rag_context.client.address import FIND_TIMEOUT_S, Address, is_announced
from rag_context.client.batches import NDJSON, Batch
from rag_context.client.calls import Call
from rag_context.client.errors import ServerUnreachableError
from rag_context.client.replies import answer_of, headers_of, no_answer, refusal, unreachable
from rag_context.client.retries import Retries

Answer = TypeVar("Answer")

CONNECT_TIMEOUT_S = 5.0
_BROKEN = (httpx2.HTTPError, httpx2.InvalidURL)
_BULK = Call("/bulk", bytes)


def timeout_of(timeout_s: float) -> httpx2.Timeout:
    """How long to wait for the server to be reached, and for each further byte. Calls wait for one another."""
    return httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S), pool=None)


class AsyncHttp:
    """The wire of an `AsyncClient`.

    Args:
        http: the connections; closed with this.
        address: where the server is.
        retries: when a call is tried again.
    """

    def __init__(self, http: httpx2.AsyncClient, address: Address, retries: Retries) -> None:
        self._http = http
        self._address = address
        self._retries = retries
        self._found: str | None = address.url

    async def send(self, call: Call[Answer], request_id: str) -> Answer:
        """Ask. Raises: ClientError."""
        async for attempt in self._retries.asynchronous(call.repeatable):
            with attempt:
                async with self._reached(request_id) as url:
                    reply = await self._http.request(
                        call.method, url + call.path, content=call.body, headers=self._headers(call, request_id)
                    )
                return answer_of(call, reply, request_id)
        raise AssertionError("tenacity either returns or raises")

    async def send_batch(self, batch: Batch, request_id: str) -> None:
        """Send documents until each has its receipt. Raises: ClientError; what has a receipt is safe."""
        if not batch.unanswered:
            return
        headers = {**self._headers(_BULK, request_id), **NDJSON}
        async for attempt in self._retries.asynchronous(_BULK.repeatable):
            with attempt:
                async with (
                    self._reached(request_id) as url,
                    self._http.stream("POST", url + _BULK.path, content=batch.begin(), headers=headers) as reply,
                ):
                    if not reply.is_success:
                        await reply.aread()
                        raise refusal(reply, request_id)
                    async for chunk in reply.aiter_bytes():
                        batch.take(chunk, reply, request_id)
                if batch.unanswered:
                    raise unreachable("The server broke off before all was answered", request_id, sent=True)

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    def _headers(self, call: Call[Answer], request_id: str) -> dict[str, str]:
        return headers_of(call, request_id, self._address.key)

    @asynccontextmanager
    async def _reached(self, request_id: str) -> AsyncIterator[str]:
        """The address for the time of one try; looked for anew after one that reached nothing."""
        url = self._found = self._found or await self._find()
        try:
            yield url
        except _BROKEN as error:
            failure = no_answer(error, url, request_id)
            if isinstance(failure, ServerUnreachableError):
                self._found = self._address.url
            raise failure from error

    async def _find(self) -> str:
        announcement = self._address.announced
        if announcement is not None:
            try:
                reply = await self._http.get(f"{announcement.url}/live", timeout=FIND_TIMEOUT_S)
            except _BROKEN:
                return self._address.without_asking
            if is_announced(reply.content, announcement):
                return announcement.url
        return self._address.without_asking


class BlockingHttp:
    """The wire of a `Client`; threads may share it.

    Args:
        http: the connections; closed with this.
        address: where the server is.
        retries: when a call is tried again.
    """

    def __init__(self, http: httpx2.Client, address: Address, retries: Retries) -> None:
        self._http = http
        self._address = address
        self._retries = retries
        self._found: str | None = address.url

    def send(self, call: Call[Answer], request_id: str) -> Answer:
        """Ask. Raises: ClientError."""
        for attempt in self._retries.blocking(call.repeatable):
            with attempt:
                with self._reached(request_id) as url:
                    reply = self._http.request(
                        call.method, url + call.path, content=call.body, headers=self._headers(call, request_id)
                    )
                return answer_of(call, reply, request_id)
        raise AssertionError("tenacity either returns or raises")

    def send_batch(self, batch: Batch, request_id: str) -> None:
        """Send documents until each has its receipt. Raises: ClientError; what has a receipt is safe."""
        if not batch.unanswered:
            return
        headers = {**self._headers(_BULK, request_id), **NDJSON}
        for attempt in self._retries.blocking(_BULK.repeatable):
            with attempt:
                with (
                    self._reached(request_id) as url,
                    self._http.stream("POST", url + _BULK.path, content=batch.begin(), headers=headers) as reply,
                ):
                    if not reply.is_success:
                        reply.read()
                        raise refusal(reply, request_id)
                    for chunk in reply.iter_bytes():
                        batch.take(chunk, reply, request_id)
                if batch.unanswered:
                    raise unreachable("The server broke off before all was answered", request_id, sent=True)

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def _headers(self, call: Call[Answer], request_id: str) -> dict[str, str]:
        return headers_of(call, request_id, self._address.key)

    @contextmanager
    def _reached(self, request_id: str) -> Iterator[str]:
        """The address for the time of one try; looked for anew after one that reached nothing."""
        url = self._found = self._found or self._find()
        try:
            yield url
        except _BROKEN as error:
            failure = no_answer(error, url, request_id)
            if isinstance(failure, ServerUnreachableError):
                self._found = self._address.url
            raise failure from error

    def _find(self) -> str:
        announcement = self._address.announced
        if announcement is not None:
            try:
                reply = self._http.get(f"{announcement.url}/live", timeout=FIND_TIMEOUT_S)
            except _BROKEN:
                return self._address.without_asking
            if is_announced(reply.content, announcement):
                return announcement.url
        return self._address.without_asking

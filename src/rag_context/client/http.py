"""Calls over HTTP, once for coroutines and once for threads: find the server, ask, try again where that is right."""

import math
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TypeVar

import httpx2

from rag_context.client.address import FIND_TIMEOUT_S, Address, is_announced
from rag_context.client.batches import NDJSON, Batch
from rag_context.client.calls import Call
from rag_context.client.errors import ServerUnreachableError
from rag_context.client.replies import Body, answer_of, headers_of, no_answer, refusal, unreachable
from rag_context.client.retries import Retries
from rag_context.errors import ConfigurationError

Answer = TypeVar("Answer")

CONNECT_TIMEOUT_S = 5.0
_BROKEN = (httpx2.HTTPError, httpx2.InvalidURL)
_BULK = Call("/bulk", bytes)


def timeout_of(timeout_s: object) -> httpx2.Timeout:
    """How long to wait for the server to be reached, and for each further byte. Calls wait for one another.

    Raises:
        ConfigurationError: It is no time.
    """
    if not isinstance(timeout_s, int | float) or not 0 < timeout_s < math.inf:
        raise ConfigurationError(f"timeout_s must be a number of seconds above 0, not {timeout_s!r}.")
    return httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S), pool=None)


class AsyncHttp:
    """The wire of an `AsyncClient`.

    Args:
        address: where the server is.
        retries: when a call is tried again.
        timeout_s: how long to wait for an answer.
        transport: how requests travel, where not over the network as they are; closed with this.
    """

    def __init__(
        self, address: Address, retries: Retries, timeout_s: float, transport: httpx2.AsyncBaseTransport | None
    ) -> None:
        self._http = httpx2.AsyncClient(timeout=timeout_of(timeout_s), trust_env=False, transport=transport)
        self._address = address
        self._retries = retries
        self._timeout_s = timeout_s
        self._found: str | None = address.url

    async def send(self, call: Call[Answer], request_id: str) -> Answer:
        """Ask. Raises: ClientError."""
        async for attempt in self._retries.asynchronous(call.repeatable):
            with attempt:
                headers = self._headers(call, request_id)
                async with (
                    self._reached(request_id) as url,
                    self._http.stream(call.method, url + call.path, content=call.body, headers=headers) as reply,
                ):
                    body = Body(reply, self._timeout_s)
                    async for part in reply.aiter_bytes():
                        body.take(part)
                return answer_of(call, body, request_id)
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
                        raise refusal(reply, await reply.aread(), request_id)
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
        address: where the server is.
        retries: when a call is tried again.
        timeout_s: how long to wait for an answer.
        transport: how requests travel, where not over the network as they are; closed with this.
    """

    def __init__(
        self, address: Address, retries: Retries, timeout_s: float, transport: httpx2.BaseTransport | None
    ) -> None:
        self._open = partial(httpx2.Client, timeout=timeout_of(timeout_s), trust_env=False, transport=transport)
        self._http = self._open()
        self._process = os.getpid()
        self._address = address
        self._retries = retries
        self._timeout_s = timeout_s
        self._found: str | None = address.url

    def send(self, call: Call[Answer], request_id: str) -> Answer:
        """Ask. Raises: ClientError."""
        for attempt in self._retries.blocking(call.repeatable):
            with attempt:
                headers = self._headers(call, request_id)
                with (
                    self._reached(request_id) as url,
                    self._connections().stream(
                        call.method, url + call.path, content=call.body, headers=headers
                    ) as reply,
                ):
                    body = Body(reply, self._timeout_s)
                    for part in reply.iter_bytes():
                        body.take(part)
                return answer_of(call, body, request_id)
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
                    self._connections().stream(
                        "POST", url + _BULK.path, content=batch.begin(), headers=headers
                    ) as reply,
                ):
                    if not reply.is_success:
                        raise refusal(reply, reply.read(), request_id)
                    for chunk in reply.iter_bytes():
                        batch.take(chunk, reply, request_id)
                if batch.unanswered:
                    raise unreachable("The server broke off before all was answered", request_id, sent=True)

    def close(self) -> None:
        """Give the connections back."""
        self._connections().close()

    def _connections(self) -> httpx2.Client:
        """Connections of this process alone: over those of its parent, a fork would read the parent's answers."""
        if self._process != os.getpid():
            self._http, self._process = self._open(), os.getpid()
        return self._http

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
                reply = self._connections().get(f"{announcement.url}/live", timeout=FIND_TIMEOUT_S)
            except _BROKEN:
                return self._address.without_asking
            if is_announced(reply.content, announcement):
                return announcement.url
        return self._address.without_asking

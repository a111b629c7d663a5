"""Calls over HTTP, one try each: find the server, ask it, and tell an answer from an error."""

import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

import httpx2

from rag_context.client.address import CHALLENGE, FIND_TIMEOUT_S, Address, Announcement
from rag_context.client.call import BULK, NDJSON, Answer, Call, headers_of
from rag_context.client.errors import ServerUnreachableError
from rag_context.client.replies import Body, answer_of, error_of, no_answer, unreachable, unreadable
from rag_context.errors import ConfigurationError

if TYPE_CHECKING:  # a command that only searches does without the models of documents
    from rag_context.client.batch import Batch


CONNECT_TIMEOUT_S = 5.0
_BROKEN = (httpx2.HTTPError, httpx2.InvalidURL)


def timeout_of(timeout_s: object) -> httpx2.Timeout:
    """How long to wait for the server to be reached, and for each further byte. Calls wait for one another.

    Raises: ConfigurationError (it is no time).
    """
    if not isinstance(timeout_s, int | float) or not 0 < timeout_s < math.inf:
        raise ConfigurationError(f"timeout_s must be a number of seconds above 0, not {timeout_s!r}.")
    return httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S), pool=None)


class AsyncTransport(Protocol):
    """How calls reach the memory, one try each. All raise `ClientError`."""

    async def send(self, call: Call[Answer], request_id: str) -> Answer: ...

    async def send_batch(self, batch: "Batch", request_id: str) -> None:
        """Send the documents that have no receipt yet; what has a receipt is safe."""
        ...

    async def aclose(self) -> None: ...


class AsyncHttp:
    """The HTTP client of our own API: both clients, the command line and validation send through it.

    `transport` makes what requests go through, once in each process; None: the library's own.

    Raises: ConfigurationError (the time-out cannot be used).
    """

    def __init__(
        self,
        address: Address,
        timeout_s: float,
        transport: Callable[[], httpx2.AsyncBaseTransport | None] = lambda: None,
    ) -> None:
        self._timeout = timeout_of(timeout_s)
        self._new_transport = transport
        self._http = self._open()
        self._process = os.getpid()
        self._address = address
        self._timeout_s = timeout_s
        self._found: str | None = address.url
        self._proven: Announcement | None = None

    async def find(self) -> str | None:
        """The address of the server; None where none announces itself and no other is known.

        An announcement is believed only when the server there proves that it wrote it, and no key is sent before that.
        """
        if self._proven is not None and not self._proven.is_running:
            self._found = self._proven = None  # who has its port now has not proved anything
        if self._found is None:
            announcement = self._address.announced
            if announcement is not None and await self._is_proven(announcement):
                self._proven, self._found = announcement, announcement.url
            elif announcement is None or announcement.url != self._address.default_url:
                self._found = self._address.default_url
        return self._found

    async def send(self, call: Call[Answer], request_id: str) -> Answer:
        headers = headers_of(call, request_id, self._address.key)
        async with (
            self._reached(request_id) as url,
            self._connections().stream(call.method, url + call.path, content=call.body, headers=headers) as reply,
        ):
            body = Body(reply, self._timeout_s)
            async for part in reply.aiter_bytes():
                body.take(part)
        return answer_of(call, body, request_id)

    async def send_batch(self, batch: "Batch", request_id: str, timeout_s: float | None = None) -> None:
        if not batch.unanswered:
            return
        headers = {**headers_of(BULK, request_id, self._address.key), **NDJSON}
        timeout = timeout_of(self._timeout_s if timeout_s is None else timeout_s)
        content = batch.begin()
        async with (
            self._reached(request_id) as url,
            self._connections().stream(
                "POST", url + BULK.path, content=content, headers=headers, timeout=timeout
            ) as reply,
        ):
            if not reply.is_success:
                raise error_of(reply, await reply.aread(), request_id)
            async for chunk in reply.aiter_bytes():
                try:
                    batch.take(chunk)
                except ValueError as error:
                    raise unreadable(reply, request_id) from error
        if batch.unanswered:
            raise unreachable("The server broke off before all was answered", request_id, sent=True)

    async def aclose(self) -> None:
        await self._connections().aclose()

    def _connections(self) -> httpx2.AsyncClient:
        """Connections of this process alone: over those of its parent, a fork would read the parent's answers."""
        if self._process != os.getpid():
            self._http, self._process = self._open(), os.getpid()
        return self._http

    def _open(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=self._timeout, trust_env=False, transport=self._new_transport())

    @asynccontextmanager
    async def _reached(self, request_id: str) -> AsyncIterator[str]:
        """The address for the time of one try; determined again after one that reached nothing."""
        url = await self.find()
        if url is None:
            raise unreachable("No server announces itself any more", request_id, sent=False)
        try:
            yield url
        except _BROKEN as error:
            failure = no_answer(error, url, request_id)
            # A server that was restarted may have another port: the next try reads its announcement again.
            if isinstance(failure, ServerUnreachableError):
                self._found, self._proven = self._address.url, None
            raise failure from error

    async def _is_proven(self, announcement: Announcement) -> bool:
        if not announcement.is_running:
            return False
        challenge = token_hex(32)
        try:
            reply = await self._connections().get(
                f"{announcement.url}/live", headers={CHALLENGE: challenge}, timeout=FIND_TIMEOUT_S
            )
        except _BROKEN:
            return False
        return announcement.is_proven_by(reply.content, challenge)

"""`POST /bulk`: a stream of documents in, a stream of receipts out, one line each and in order.

Lines are worked on several at a time; those that may replace one another keep their order. Receipts go out as
they are ready, and are held meanwhile for clients that read nothing before they have sent everything.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.types import Receive, Send

from rag_context.api.failure import Detail
from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.api.reading import read_json
from rag_context.errors import BackendError, InvalidInputError, RagContextError
from rag_context.files.sending import may_replace
from rag_context.server.failures import component_sentence, log_failure
from rag_context.server.requests import ClientGoneError, RequestRejectedError
from rag_context.server.tools import Service

logger = logging.getLogger(__name__)

NDJSON = b"application/x-ndjson"
HELD_BYTES = 32 * 1024 * 1024
"""Receipts held for a client that does not read them; then no further line is taken."""
UNREAD_S = 60.0
"""How long they are held before the client is given up."""


@dataclass(slots=True)
class _Outbox:
    """Receipts on their way out."""

    held: bytearray = field(default_factory=bytearray)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    async def put(self, receipt: bytes) -> None:
        while len(self.held) > HELD_BYTES:
            self.room.clear()
            async with asyncio.timeout(UNREAD_S):
                await self.room.wait()
        self.held += receipt + b"\n"
        self.ready.set()

    def close(self) -> None:
        self.closed = True
        self.ready.set()

    async def take(self) -> bytes:
        """All that is held; empty when there will be no more."""
        while not self.held and not self.closed:
            self.ready.clear()
            await self.ready.wait()
        taken = bytes(self.held)
        self.held.clear()
        self.room.set()
        return taken


@dataclass(frozen=True, slots=True)
class _TooLong:
    """A line that was longer than may be; it was skipped, not kept."""


@dataclass(slots=True)
class BulkRun:
    """One bulk request."""

    service: Service
    model: type[BulkLine]
    line_bytes: int
    concurrency: int
    request_id: str
    _last: dict[str, asyncio.Task[bytes]] = field(default_factory=dict)

    async def run(self, receive: Receive, send: Send) -> None:
        """Read every line, keep what can be kept, and send a receipt for each."""
        outbox = _Outbox()
        # Its size bounds the lines in progress: reading waits while as many tasks have no receipt yet.
        waiting: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(self.concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(receive, waiting, group))
                group.create_task(_collect(waiting, outbox))
                await _write(outbox, send)
        except* TimeoutError as group_error:
            raise ClientGoneError from group_error

    async def _read(
        self,
        receive: Receive,
        waiting: asyncio.Queue[asyncio.Task[bytes] | None],
        group: asyncio.TaskGroup,
    ) -> None:
        number = 0
        try:
            async for line in _lines(receive, self.line_bytes):
                number += 1
                if line != b"":
                    await waiting.put(self._start(line, number, group))
        except ClientGoneError:
            logger.info("bulk client went away after %d lines", number)
        except RequestRejectedError as error:
            await waiting.put(group.create_task(_rejected(number + 1, str(error))))
        await waiting.put(None)

    def _start(self, line: bytes | _TooLong, number: int, group: asyncio.TaskGroup) -> asyncio.Task[bytes]:
        if isinstance(line, _TooLong):
            return group.create_task(_rejected(number, f"Line too long (max {self.line_bytes} bytes)"))
        try:
            document = read_json(self.model, line)
        except InvalidInputError as error:
            return group.create_task(_rejected(number, str(error), Detail.list_of(error.details)))
        if not may_replace(document):
            return group.create_task(self._keep(document, number, None))
        # Several versions of a document are stored in the order of their lines: each waits for the one before.
        task = group.create_task(self._keep(document, number, self._last.get(document.source)))
        self._last[document.source] = task
        task.add_done_callback(lambda done: self._forget(document.source, done))
        return task

    def _forget(self, source: str, done: asyncio.Task[bytes]) -> None:
        if self._last.get(source) is done:  # else a later line of this source stands there by now
            del self._last[source]

    async def _keep(self, document: BulkLine, number: int, earlier: asyncio.Task[bytes] | None) -> bytes:
        if earlier is not None:
            await asyncio.wait([earlier])
        try:
            receipt = await self.service.bulk(document, request_id=self.request_id)
        except BackendError as error:
            log_failure(logger, error)
            receipt = BulkReceipt(status="rejected", reason=component_sentence(error.component), retryable=True)
        except RagContextError as error:
            receipt = BulkReceipt(status="rejected", reason=str(error))
        except Exception:
            logger.exception("bulk line %d failed", number)
            receipt = BulkReceipt(status="rejected", reason="Internal server error")
        return receipt.model_copy(update={"line": number, "source": receipt.source or document.source}).to_json()


async def _rejected(number: int, reason: str, details: list[Detail] | None = None) -> bytes:
    return BulkReceipt(status="rejected", line=number, reason=reason, details=details).to_json()


async def _collect(waiting: asyncio.Queue[asyncio.Task[bytes] | None], outbox: _Outbox) -> None:
    # Awaited in the order of the lines, whichever task is done first: so receipts keep that order.
    while (task := await waiting.get()) is not None:
        await outbox.put(await task)
    outbox.close()


async def _write(outbox: _Outbox, send: Send) -> None:
    # The reply begins with the first receipt: before that, the client may still wait for "100 Continue".
    receipts = await outbox.take()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", NDJSON)]})
    while receipts:
        await send({"type": "http.response.body", "body": receipts, "more_body": True})
        receipts = await outbox.take()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _lines(receive: Receive, limit: int) -> AsyncIterator[bytes | _TooLong]:
    """Lines of the body without the white space around them; at most `limit` bytes of one are ever held."""
    rest = bytearray()
    skipping = False
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        *ended, last = message.get("body", b"").split(b"\n")
        for piece in ended:
            rest += piece
            yield _TooLong() if skipping or len(rest) > limit else bytes(rest).strip()
            rest.clear()
            skipping = False
        rest += last
        if len(rest) > limit:
            skipping = True
            rest.clear()
    if skipping or rest:
        yield _TooLong() if skipping else bytes(rest).strip()

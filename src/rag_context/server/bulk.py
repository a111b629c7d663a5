"""`POST /bulk`: a stream of documents in, a stream of receipts out, one line each and in order.

Lines that have arrived are indexed together, in slices, and a few slices at a time; those that may replace one another
keep their order. Receipts go out as they are ready, and are held meanwhile for clients that read nothing before they
have sent everything.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.types import Receive, Send

from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.api.parsing import Detail, read_json
from rag_context.errors import BackendError, InvalidInputError, RagContextError
from rag_context.files.sending import VersionOrder, is_slice
from rag_context.memory.service import Service
from rag_context.server.failures import component_sentence, log_failure
from rag_context.server.requests import ClientGoneError, RequestRejectedError

logger = logging.getLogger(__name__)

NDJSON = b"application/x-ndjson"
BUFFER_BYTES = 32 * 1024 * 1024
"""Receipts buffered for a client that does not read them; then no further line is read."""
UNREAD_S = 60.0
"""How long they are buffered before the client is given up."""


@dataclass(slots=True)
class _Outbox:
    buffer: bytearray = field(default_factory=bytearray)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    space_available: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    async def put(self, receipts: bytes) -> None:
        while len(self.buffer) > BUFFER_BYTES:
            # Cleared and awaited in one turn of the loop: no `take` runs in between, whose signal would be lost.
            self.space_available.clear()
            async with asyncio.timeout(UNREAD_S):
                await self.space_available.wait()
        self.buffer += receipts
        self.ready.set()

    def close(self) -> None:
        self.closed = True
        self.ready.set()

    async def take(self) -> bytes:
        """All that is held; empty when there will be no more."""
        while not self.buffer and not self.closed:
            self.ready.clear()
            await self.ready.wait()
        taken = bytes(self.buffer)  # a copy: while it is sent, further receipts are added
        self.buffer.clear()
        self.space_available.set()
        return taken


@dataclass(frozen=True, slots=True)
class _TooLong:
    """A line that was longer than may be; it was skipped, not kept."""


@dataclass(slots=True)
class _Slice:
    """Lines that are indexed together: a document each, or the receipt of a line that holds none."""

    lines: list[tuple[int, BulkLine | BulkReceipt]] = field(default_factory=list)
    chars: int = 0

    def add(self, number: int, line: BulkLine | BulkReceipt) -> None:
        self.lines.append((number, line))
        self.chars += len(line.content) if isinstance(line, BulkLine) else 0

    @property
    def documents(self) -> list[BulkLine]:
        return [line for _, line in self.lines if isinstance(line, BulkLine)]


@dataclass(slots=True)
class BulkRun:
    service: Service
    model: type[BulkLine]
    line_bytes: int
    concurrency: int
    request_id: str
    _order: VersionOrder = field(default_factory=VersionOrder)

    async def run(self, receive: Receive, send: Send) -> None:
        outbox = _Outbox()
        # Its size bounds the slices in progress: reading waits while as many tasks have no receipts yet.
        waiting: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(self.concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(receive, waiting, group))
                group.create_task(_collect(waiting, outbox))
                await _write(outbox, send)
        except* TimeoutError as group_error:
            raise ClientGoneError from group_error

    async def _read(
        self, receive: Receive, waiting: asyncio.Queue[asyncio.Task[bytes] | None], group: asyncio.TaskGroup
    ) -> None:
        number = 0
        try:
            async for arrived in _lines(receive, self.line_bytes):
                part = _Slice()
                for line in arrived:
                    number += 1
                    if line != b"":
                        part.add(number, self._document(line))
                    if is_slice(len(part.lines), part.chars):
                        await waiting.put(self._start(part, group))
                        part = _Slice()
                if part.lines:  # without waiting for more: the client may wait for these receipts
                    await waiting.put(self._start(part, group))
        except ClientGoneError:
            logger.info("bulk client went away after %d lines", number)
        except RequestRejectedError as error:
            part = _Slice([(number + 1, BulkReceipt(status="rejected", reason=str(error)))])
            await waiting.put(self._start(part, group))
        await waiting.put(None)

    def _document(self, line: bytes | _TooLong) -> BulkLine | BulkReceipt:
        if isinstance(line, _TooLong):
            return BulkReceipt(status="rejected", reason=f"Line too long (max {self.line_bytes} bytes)")
        try:
            return read_json(self.model, line)
        except InvalidInputError as error:
            return BulkReceipt(status="rejected", reason=str(error), details=Detail.list_of(error.details))

    def _start(self, part: _Slice, group: asyncio.TaskGroup) -> asyncio.Task[bytes]:
        # Several versions of a document are stored in the order of their lines.
        task = group.create_task(self._keep(part, self._order.earlier(part.documents)))
        self._order.begin(task, part.documents)
        return task

    async def _keep(self, part: _Slice, earlier: set[asyncio.Future[bytes]]) -> bytes:
        if earlier:
            await asyncio.wait(earlier)
        documents = part.documents
        results = iter(await self._index(documents) if documents else ())
        receipts = [
            self._receipt(number, line.source, next(results) if isinstance(line, BulkLine) else line)
            for number, line in part.lines
        ]
        return b"".join(receipts)

    async def _index(self, documents: list[BulkLine]) -> list[BulkReceipt | Exception]:
        try:
            return await self.service.bulk_all(documents, request_id=self.request_id)
        except Exception as error:  # noqa: BLE001  (`_receipt` logs it)
            return [error] * len(documents)

    def _receipt(self, number: int, source: str | None, result: BulkReceipt | Exception) -> bytes:
        if isinstance(result, BackendError):
            log_failure(logger, result)
            reason = component_sentence(result.component)
            result = BulkReceipt(status="rejected", reason=reason, retryable=True)
        elif isinstance(result, RagContextError):
            result = BulkReceipt(status="rejected", reason=str(result))
        elif isinstance(result, Exception):
            logger.error("bulk line %d failed", number, exc_info=result)
            result = BulkReceipt(status="rejected", reason="Internal server error")
        return result.model_copy(update={"line": number, "source": result.source or source}).to_json() + b"\n"


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


async def _lines(receive: Receive, limit: int) -> AsyncIterator[list[bytes | _TooLong]]:
    """Lines of the body without the white space around them, those of one message together.

    At most `limit` bytes of an unfinished line are held.
    """
    rest = bytearray()
    skipping = False
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        *ended, last = message.get("body", b"").split(b"\n")
        lines: list[bytes | _TooLong] = []
        for piece in ended:
            rest += piece
            lines.append(_TooLong() if skipping or len(rest) > limit else bytes(rest).strip())
            rest.clear()
            skipping = False
        rest += last
        if len(rest) > limit:
            skipping = True
            rest.clear()
        yield lines
    if skipping or rest:
        yield [_TooLong() if skipping else bytes(rest).strip()]

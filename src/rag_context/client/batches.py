"""Bulk indexing in batches: each is one request, so that memory stays flat and a broken one is taken up again.

A batch that breaks off is not sent anew: the receipts that arrived are kept, and the rest is sent.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import httpx2

from rag_context.api.failure import Detail
from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.client.calls import BulkLike, bulk_line
from rag_context.client.replies import unreadable
from rag_context.errors import InvalidInputError

BATCH = 64
BATCH_BYTES = 1 << 20
"""A batch ends with the document that brings it above this size."""

NDJSON = {"Content-Type": "application/x-ndjson"}


@dataclass(slots=True)
class Batch:
    """Documents for one request. What is wrong by itself is not sent; its receipt stands at its place."""

    first: int
    """Number of its first document, counted from 1 over all batches."""
    sources: list[str | None] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    refused: dict[int, BulkReceipt] = field(default_factory=dict)
    received: list[BulkReceipt] = field(default_factory=list)
    _rest: bytearray = field(default_factory=bytearray)

    @property
    def is_full(self) -> bool:
        return len(self.sources) >= BATCH or self.size > BATCH_BYTES

    @property
    def unanswered(self) -> Sequence[bytes]:
        """Lines of which no receipt has arrived."""
        return self.lines[len(self.received) :]

    def add(self, document: BulkLike) -> None:
        """Take one more document."""
        self.sources.append(_source(document))
        try:
            line = bulk_line(document)
        except InvalidInputError as error:
            details = Detail.list_of(error.details) or None
            place = len(self.sources) - 1
            self.refused[place] = BulkReceipt(status="rejected", reason=str(error), details=details)
            return
        self.lines.append(line)
        self.size += len(line)

    def begin(self) -> bytes:
        """The body of a request for what is unanswered."""
        self._rest.clear()
        return b"".join(self.unanswered)

    def take(self, chunk: bytes, reply: httpx2.Response, request_id: str) -> None:
        """Read what arrived. Raises: InvalidResponseError."""
        *ended, rest = bytes(self._rest + chunk).split(b"\n")
        self._rest[:] = rest
        try:
            self.received.extend(BulkReceipt.model_validate_json(line) for line in ended if line)
        except ValueError as error:
            raise unreadable(reply, request_id) from error

    def receipts(self) -> Iterator[BulkReceipt]:
        """A receipt for every document, in their order."""
        arrived = iter(self.received)
        for place, source in enumerate(self.sources):
            receipt = self.refused.get(place) or next(arrived)
            yield receipt.model_copy(update={"line": self.first + place, "source": receipt.source or source})


def _source(document: object) -> str | None:
    if isinstance(document, BulkLine):
        return document.source
    source = document.get("source") if isinstance(document, Mapping) else None
    return source if isinstance(source, str) else None


def batches(documents: Iterable[BulkLike]) -> Iterator[Batch]:
    """Documents in batches, read no further than asked for."""
    batch = Batch(1)
    for document in documents:
        batch.add(document)
        if batch.is_full:
            yield batch
            batch = Batch(batch.first + len(batch.sources))
    if batch.sources:
        yield batch


async def batches_of(documents: AsyncIterable[BulkLike] | Iterable[BulkLike]) -> AsyncIterator[Batch]:
    """The same for documents that may have to be awaited."""
    if isinstance(documents, Iterable):
        for batch in batches(documents):
            yield batch
        return
    batch = Batch(1)
    async for document in documents:
        batch.add(document)
        if batch.is_full:
            yield batch
            batch = Batch(batch.first + len(batch.sources))
    if batch.sources:
        yield batch

"""Bulk indexing in batches: each is one request, so that memory stays flat and a broken one is taken up again.

A batch that breaks off is not sent anew: the receipts that arrived are kept, and the rest is sent.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import httpx2

from rag_context.api.failure import Detail
from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.client.call import BulkLike, bulk_line
from rag_context.client.replies import unreadable
from rag_context.errors import InvalidInputError

BATCH = 64
BATCH_BYTES = 1 << 20
"""A batch ends with the document that brings it above this size."""

Item = TypeVar("Item")

Documents: TypeAlias = Iterable[BulkLike]
AsyncDocuments: TypeAlias = AsyncIterable[BulkLike] | Iterable[BulkLike]
"""What `bulk` takes."""


@dataclass(slots=True)
class Batch:
    """Documents for one request. What is wrong by itself is not sent; its receipt stands at its place."""

    first: int
    """Number of its first document, counted from 1 over all batches."""
    sources: list[str | None] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    rejected: dict[int, BulkReceipt] = field(default_factory=dict)
    received: list[BulkReceipt] = field(default_factory=list)
    on_receipt: Callable[[int, BulkReceipt], None] | None = None
    """Hears of every receipt as it arrives, with the place of its line among those sent."""
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
            self.rejected[place] = BulkReceipt(status="rejected", reason=str(error), details=details)
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
        for line in ended:
            if line:
                self._receive(line, reply, request_id)

    def _receive(self, line: bytes, reply: httpx2.Response, request_id: str) -> None:
        try:
            receipt = BulkReceipt.model_validate_json(line)
        except ValueError as error:
            raise unreadable(reply, request_id) from error
        self.received.append(receipt)
        if self.on_receipt is not None:
            self.on_receipt(len(self.received) - 1, receipt)

    def receipts(self) -> Iterator[BulkReceipt]:
        """A receipt for every document, in their order."""
        arrived = iter(self.received)
        for place, source in enumerate(self.sources):
            receipt = self.rejected.get(place) or next(arrived)
            yield receipt.model_copy(update={"line": self.first + place, "source": receipt.source or source})


def _source(document: object) -> str | None:
    if isinstance(document, BulkLine):
        return document.source
    source = document.get("source") if isinstance(document, Mapping) else None
    return source if isinstance(source, str) else None


def each(items: Iterable[Item]) -> Iterator[Item]:
    """What comes one after the other: for a client of threads."""
    return iter(items)


async def async_each(items: AsyncIterable[Item] | Iterable[Item]) -> AsyncIterator[Item]:
    """What comes one after the other, awaited where it has to be: for a client of coroutines."""
    if isinstance(items, Iterable):
        for item in items:
            yield item
        return
    async for item in items:
        yield item

"""Documents that `bulk` sends: one request for each batch of them, so that memory stays flat.

A batch that is interrupted is not sent again as a whole: the receipts that arrived are kept, and the rest is sent.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from rag_context.api.index import BulkLine, BulkReceipt, VersionsRequest, VersionsResponse
from rag_context.api.parsing import Detail
from rag_context.client.call import Call, body_of, request_of
from rag_context.errors import InvalidInputError

BulkLike: TypeAlias = BulkLine | Mapping[str, object]
"""A document for `bulk`; a mapping has the fields of `BulkLine`, in camelCase or snake_case."""

BATCH = 64
BATCH_BYTES = 1 << 20
"""A batch ends with the document that brings it above this size."""

Item = TypeVar("Item")

Documents: TypeAlias = Iterable[BulkLike]
AsyncDocuments: TypeAlias = AsyncIterable[BulkLike] | Iterable[BulkLike]
"""What `bulk` takes."""


@dataclass(slots=True)
class Batch:
    """Documents for one request. What is wrong by itself is not sent; its receipt has its position."""

    first: int
    """Number of its first document, counted from 1 over all batches."""
    sources: list[str | None] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    rejected: dict[int, BulkReceipt] = field(default_factory=dict)
    received: list[BulkReceipt] = field(default_factory=list)
    on_receipt: Callable[[int, BulkReceipt], None] | None = None
    """Called with every receipt as it arrives, and the position of its line among those sent."""
    _rest: bytearray = field(default_factory=bytearray)

    @property
    def is_full(self) -> bool:
        return len(self.sources) >= BATCH or self.size > BATCH_BYTES

    @property
    def unanswered(self) -> Sequence[bytes]:
        return self.lines[len(self.received) :]

    def add(self, document: BulkLike) -> None:
        self.sources.append(_source(document))
        try:
            if not isinstance(document, BulkLine | Mapping):
                raise InvalidInputError("Not a JSON object")  # noqa: TRY301
            line = body_of(document if isinstance(document, BulkLine) else request_of(BulkLine, document)) + b"\n"
        except InvalidInputError as error:
            details = Detail.list_of(error.details) or None
            position = len(self.sources) - 1
            self.rejected[position] = BulkReceipt(status="rejected", reason=str(error), details=details)
            return
        self.lines.append(line)
        self.size += len(line)

    def begin(self) -> bytes:
        self._rest.clear()  # of a receipt that was cut off: its line is among the unanswered
        return b"".join(self.unanswered)

    def take(self, chunk: bytes) -> None:
        """Read what arrived. Raises: ValueError (it is no receipt)."""
        # A chunk may end within a receipt; its beginning waits for the rest.
        *ended, rest = bytes(self._rest + chunk).split(b"\n")
        self._rest[:] = rest
        for line in ended:
            if line:
                receipt = BulkReceipt.model_validate_json(line)
                self.received.append(receipt)
                if self.on_receipt is not None:
                    self.on_receipt(len(self.received) - 1, receipt)

    def receipts(self) -> Iterator[BulkReceipt]:
        arrived = iter(self.received)
        for position, source in enumerate(self.sources):
            receipt = self.rejected.get(position) or next(arrived)
            yield receipt.model_copy(update={"line": self.first + position, "source": receipt.source or source})


def _source(document: object) -> str | None:
    if isinstance(document, BulkLine):
        return document.source
    source = document.get("source") if isinstance(document, Mapping) else None
    return source if isinstance(source, str) else None


async def async_each(items: AsyncIterable[Item] | Iterable[Item]) -> AsyncIterator[Item]:
    """What comes one after the other, awaited where it has to be."""
    if isinstance(items, Iterable):
        for item in items:
            yield item
        return
    async for item in items:
        yield item


def missing(versions: Mapping[str, str]) -> Call[VersionsResponse]:
    """Ask which of these documents are not there with the given content hash."""
    body = body_of(VersionsRequest(versions=dict(versions)))
    return Call("/bulk/versions", VersionsResponse.model_validate_json, body)

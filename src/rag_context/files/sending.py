"""Sends many documents to an index: in batches, several at a time, with backpressure.

The next batch is read only when a worker is free to send it, so that the source is read no further than needed and
memory stays constant.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.domain.documents import CHAT

BATCH = 100
"""Documents in one batch."""

BATCH_CHARS = 1 << 20
"""A batch ends with the document that brings it above this size."""

CONCURRENCY = 5
"""Batches that are sent at once."""

OnReceipt = Callable[[int, BulkReceipt], None]
"""Called with the receipt of a line, by its position in the batch."""


class Target(Protocol):
    """An index that documents are sent to. All methods raise `RagContextError` only."""

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
        """Index documents; `on_receipt` is called for each one as soon as it is stored or rejected."""
        ...

    async def missing(self, versions: Mapping[str, str]) -> Collection[str]:
        """Those of the documents that are not stored with the given content hash."""
        ...

    async def remove(self, document_id: str) -> None:
        """Delete a document, if it exists."""
        ...

    def sources(self, prefix: str) -> AsyncIterator[tuple[str, str]]:
        """Source and id of every document whose source begins like this."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A document to send, and the callback for its receipt."""

    line: BulkLine
    done: Callable[[BulkReceipt], None]


def batched(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """Jobs in batches of bounded number and size."""
    batch: list[Job] = []
    chars = 0
    for job in jobs:
        batch.append(job)
        chars += len(job.line.content)
        if len(batch) >= BATCH or chars > BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def may_replace(line: BulkLine) -> bool:
    """Whether a line may be another version of an earlier one with the same source, so that their order counts."""
    return line.from_file or line.content_type != CHAT


async def send(batches: AsyncIterator[list[Job]], target: Target, concurrency: int = CONCURRENCY) -> None:
    """Send every batch; versions of one document in their order.

    Raises:
        RagContextError: the target failed; documents without a receipt must be sent again.
    """
    turn = asyncio.Lock()
    running: dict[asyncio.Event, frozenset[str]] = {}

    async def work() -> None:
        while True:
            done = asyncio.Event()
            async with turn:
                batch = await anext(batches, None)
                if batch is None:
                    return
                sources = frozenset(job.line.source for job in batch if may_replace(job.line))
                for earlier in [event for event, theirs in running.items() if not sources.isdisjoint(theirs)]:
                    await earlier.wait()
                running[done] = sources
            try:
                await target.bulk([job.line for job in batch], partial(_tell, batch))
            finally:
                del running[done]
                done.set()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise _first(errors) from None


async def in_thread(batches: Iterator[list[Job]]) -> AsyncIterator[list[Job]]:
    """Batches that are read in a thread, one at a time."""
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        yield batch


def _tell(batch: Sequence[Job], place: int, receipt: BulkReceipt) -> None:
    batch[place].done(receipt)


def _first(errors: ExceptionGroup) -> Exception:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error

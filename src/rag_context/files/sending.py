"""Sends many documents to an index: in batches, several at a time, with backpressure.

The next batch is read only when a worker is free to send it, so that the source is read no further than needed and
memory stays constant. A source may be a stream of any length, in a file or a pipe: one JSON object a line, as
`POST /bulk` takes them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.api.parsing import read_fields
from rag_context.api.wire import metadata_json
from rag_context.domain.documents import CHAT
from rag_context.errors import InvalidInputError
from rag_context.files.file_reading import FILES_SESSION, Labels, Rejected
from rag_context.files.target import IndexTarget

BATCH = 100
"""Documents in one batch."""

BATCH_CHARS = 1 << 20
"""A batch ends with the document that brings it above this size."""

SLICE = 32
"""Documents that are indexed together: few enough that no one waits long for the receipt of the first."""

SLICE_CHARS = 1 << 13
"""A slice ends with the document that brings it above this size: a larger one is worth a slice of its own."""

CONCURRENCY = 5
"""Batches that are sent at once."""

LINE_BYTES = 16 * 1024 * 1024
"""Longest line; a longer one is skipped, not kept."""

_SKIPPED_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Job:
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


def is_slice(lines: int, chars: int) -> bool:
    return lines >= SLICE or chars > SLICE_CHARS


def sliced(lines: Sequence[BulkLine]) -> Iterator[tuple[int, Sequence[BulkLine]]]:
    """Lines in slices, each with the position of its first line."""
    start = chars = 0
    for end, line in enumerate(lines, start=1):
        chars += len(line.content)
        if end == len(lines) or is_slice(end - start, chars):
            yield start, lines[start:end]
            start, chars = end, 0


class VersionOrder:
    """The order of parts that are indexed together: each waits for earlier ones with a source in common."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[Any]] = {}

    def earlier(self, lines: Iterable[BulkLine]) -> set[asyncio.Future[Any]]:
        """What a part of these lines has to wait for."""
        return {self._last[line.source] for line in lines if line.source in self._last and may_replace(line)}

    def begin(self, done: asyncio.Future[Any], lines: Iterable[BulkLine]) -> None:
        """Register a part; `done` is its task, or a future that ends with it."""
        sources = {line.source for line in lines if may_replace(line)}
        self._last.update(dict.fromkeys(sources, done))
        done.add_done_callback(lambda _: self._end(done, sources))

    def _end(self, done: asyncio.Future[Any], sources: Iterable[str]) -> None:
        for source in sources:
            if self._last.get(source) is done:  # else a later part has taken its place
                del self._last[source]


async def send(batches: AsyncIterator[list[Job]], target: IndexTarget, concurrency: int = CONCURRENCY) -> None:
    """Send every batch; versions of one document in their order. Raises: RagContextError."""
    reading = asyncio.Lock()
    order = VersionOrder()

    async def work() -> None:
        while True:
            # One worker at a time reads a batch and waits for earlier versions of its documents. The batch is
            # registered before the next worker reads one, which would not know of it otherwise.
            async with reading:
                batch = await anext(batches, None)
                if batch is None:
                    return
                lines = [job.line for job in batch]
                if earlier := order.earlier(lines):
                    await asyncio.wait(earlier)
                # A future and no task: when all batches fail at once, the error of a task that no worker awaits any
                # more would be logged as never retrieved.
                done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                order.begin(done, lines)
            try:
                await target.bulk(lines, partial(_report, batch))
            finally:
                done.set_result(None)

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


def _report(batch: Sequence[Job], position: int, receipt: BulkReceipt) -> None:
    batch[position].done(receipt)


def _first(errors: ExceptionGroup) -> Exception:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error


def read_documents(
    file: BinaryIO, name: str, labels: Labels, model: type[BulkLine] = BulkLine
) -> Iterator[BulkLine | Rejected]:
    """The documents of a stream, one at a time. `labels` are defaults for missing fields; tags are added to theirs."""
    for number, line in enumerate(_lines(file), start=1):
        try:
            if document := _document(line, labels, model):
                yield document
        except InvalidInputError as error:
            yield Rejected(f"{name}:{number}", str(error))


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines; None instead of one that is too long."""
    while line := file.readline(LINE_BYTES + 1):
        if len(line) <= LINE_BYTES:
            yield line.strip().removeprefix(b"\xef\xbb\xbf")
            continue
        # The rest is passed over in pieces, so that a line of any length takes little memory.
        while line and not line.endswith(b"\n"):
            line = file.readline(_SKIPPED_AT_ONCE)
        yield None


def _document(line: bytes | None, labels: Labels, model: type[BulkLine]) -> BulkLine | None:
    if line is None:
        raise InvalidInputError(f"Line too long (max {LINE_BYTES} bytes)")
    if not line:
        return None
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"Not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidInputError("Not a JSON object")
    return read_fields(model, _labelled(fields, labels))


def _labelled(fields: dict[str, object], labels: Labels) -> dict[str, object]:
    """The fields of a line over the defaults of all lines; null counts as missing."""
    given = {name: value for name, value in fields.items() if value is not None}
    labelled: dict[str, object] = {"sessionId": labels.session_id or FILES_SESSION}
    if labels.content_type is not None:
        labelled["contentType"] = labels.content_type
    labelled |= given
    metadata = given.get("metadata", {})
    if isinstance(metadata, dict):
        labelled["metadata"] = _metadata(metadata, labels)
    return labelled


def _metadata(given: dict[str, object], labels: Labels) -> dict[str, object]:
    defaults = labels.metadata
    merged = {**metadata_json(replace(defaults, tags=())), **given}
    tags = given.get("tags") or []
    if defaults.tags and isinstance(tags, list):
        merged["tags"] = [*tags, *defaults.tags]
    return merged

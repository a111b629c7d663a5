"""Takes over documents that other programs stored in a form of their own: reads them, and submits copies of them.

The form is that of `C0N7EXT` and of the points beside it: `sessionId`, `contentType`, `source`, `timestamp`, and
`tags` and the fields of `Metadata`, flat or under `metadata`. Everything else is kept as metadata. A
copy has an id of ours, which follows from these fields, so a repetition finds what is there and adds what is missing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.api.parsing import read_fields
from rag_context.domain import documents
from rag_context.errors import InvalidInputError
from rag_context.ports.reading import DocumentStore, ForeignRecord, ForeignSource

BATCH = 64

LEAST_OVERLAP, MOST_OVERLAP = 16, 1000
"""Characters that a passage may repeat of the one before it."""

SESSION = "adopted"
"""The session of a document without one."""

EXAMPLES = 5

_OWN = {"sessionId", "contentType", "source", "timestamp", "chunkId", "tenant", "metadata"}

Bulk: TypeAlias = Callable[[Sequence[BulkLine], Callable[[int, BulkReceipt], None]], Awaitable[None]]
"""Indexes documents, and calls back with the receipt of each by its position."""


@dataclass(slots=True)
class AdoptionPlan:
    """What a source holds, and which of it becomes documents.

    `superseded` are earlier versions of a document; `covered` are passages of documents that another source has.
    """

    records: int = 0
    superseded: int = 0
    covered: int = 0
    without_text: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    """By record id, why it cannot be a document."""
    chunk_ids: set[str] = field(default_factory=set)
    newest: dict[str, tuple[datetime, str]] = field(default_factory=dict)
    """By id of a document of ours, the time and the id of the record that becomes it."""


@dataclass(slots=True)
class Adopted:
    """What became of the documents of a source; `kept`: the index has a newer version."""

    outcomes: Counter[str] = field(default_factory=Counter)
    rejected: dict[str, str] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether everything is in the index; vectors of some of it may follow."""
        return not self.rejected


class RecordReader:
    """Reads records of other programs as documents of these kinds; those of others are documentation."""

    def __init__(self, content_types: Collection[str]) -> None:
        self._content_types = content_types

    async def plan(self, source: ForeignSource) -> AdoptionPlan:
        """Read all records, and decide which become documents. Raises: BackendError, NotFoundError."""
        plan = AdoptionPlan()
        async for record in source.records():
            plan.records += 1
            plan.chunk_ids |= record.chunk_ids
            if not record.text.strip():
                plan.without_text += 1
                continue
            try:
                line = self.line(record, source)
            except InvalidInputError as error:
                plan.rejected[record.id] = str(error)
                continue
            id_, this = _id(line), (line.occurred_at or documents.EPOCH, record.id)
            plan.superseded += id_ in plan.newest
            plan.newest[id_] = max(this, plan.newest.get(id_, this))
        if isinstance(source, Passages):
            plan.covered = source.covered
        return plan

    def line(self, record: ForeignRecord, source: ForeignSource) -> BulkLine:
        """The document of a record. Raises: InvalidInputError."""
        fields = _flat(record.fields)
        content_type = fields.get("contentType")
        metadata: dict[str, object] = {name: value for name, value in fields.items() if name not in _OWN}
        metadata |= {
            name: str(metadata[name])
            for name in map(documents.wire_name, documents.TEXT_FIELDS)
            if metadata.get(name) is not None
        }
        tags = metadata.get("tags")
        metadata["tags"] = [tag for tag in tags if isinstance(tag, str) and tag] if isinstance(tags, list) else None
        at = time_of(fields.get("timestamp"))
        line = {
            "content": record.text,
            "contentType": content_type if content_type in self._content_types else documents.DOCUMENTATION,
            "sessionId": str(fields.get("sessionId") or SESSION),
            "source": str(fields.get("source") or f"{source.label}/{record.id}"),
            "metadata": metadata,
            **({} if at is None else {"occurredAt": at.isoformat()}),
        }
        return read_fields(BulkLine, line)


class Adopter:
    def __init__(self, reader: RecordReader, documents: DocumentStore, bulk: Bulk) -> None:
        self._reader = reader
        self._documents = documents
        self._bulk = bulk

    async def adopt(
        self, source: ForeignSource, plan: AdoptionPlan, on_progress: Callable[[int, int], None]
    ) -> Adopted:
        """Submit the documents of a plan. What is done stays; the same call again continues. Raises: BackendError."""
        adopted = Adopted(rejected=dict(plan.rejected))
        batch: list[BulkLine] = []
        done = 0
        async for record in source.records():
            if not record.text.strip() or record.id in plan.rejected:
                continue
            line = self._reader.line(record, source)
            if plan.newest.get(_id(line), (documents.EPOCH, ""))[1] == record.id:
                batch.append(line)
            if len(batch) >= BATCH:
                done += await self._submit(batch, adopted)
                on_progress(done, len(plan.newest))
                batch = []
        done += await self._submit(batch, adopted)
        on_progress(done, len(plan.newest))
        return adopted

    async def _submit(self, lines: Sequence[BulkLine], adopted: Adopted) -> int:
        stored = await self._documents.states([_id(line) for line in lines])
        new: list[BulkLine] = []
        for line in lines:
            there = stored.get(_id(line))
            # What was written since must not be replaced by what it was before.
            if there is not None and (line.occurred_at is None or there.occurred_at > line.occurred_at):
                adopted.outcomes["kept"] += 1
            else:
                new.append(line)

        def note(position: int, receipt: BulkReceipt) -> None:
            if receipt.status == "rejected":
                adopted.rejected[new[position].source] = receipt.reason or "rejected"
            else:
                adopted.outcomes[receipt.status] += 1

        await self._bulk(new, note)
        return len(lines)


class Passages:
    """A `ForeignSource` of documents over one whose records are passages: those of one document become one text.

    Passages of one session, source and kind are of one document, in the order of their times; a message of a chat is a
    document by itself, and so is a passage without a source. `without`: ids of passages that another source's documents
    have.
    """

    def __init__(self, source: ForeignSource, without: Collection[str] = ()) -> None:
        self._source = source
        self.label = source.label
        self._without = frozenset(without)
        self.covered = 0
        """How many passages were left out in the last reading."""

    async def records(self) -> AsyncIterator[ForeignRecord]:
        groups: dict[tuple[object, ...], list[ForeignRecord]] = {}
        self.covered = 0
        async for record in self._source.records():
            if self._without & record.chunk_ids:
                self.covered += 1
                continue
            fields = _flat(record.fields)
            key = tuple(str(fields.get(name)) for name in ("sessionId", "contentType", "source"))
            if fields.get("contentType") == documents.CHAT or not fields.get("source"):
                key = (*key, str(fields.get("timestamp")), record.id)
            groups.setdefault(key, []).append(record)
        for group in groups.values():
            yield _joined(group)


def _joined(passages: list[ForeignRecord]) -> ForeignRecord:
    """One document of its passages; its time is that of the last one, its metadata that of the first."""
    if len(passages) == 1:
        return passages[0]
    ordered = sorted(passages, key=lambda each: time_of(_flat(each.fields).get("timestamp")) or documents.EPOCH)
    fields = {**ordered[0].fields, "timestamp": _flat(ordered[-1].fields).get("timestamp")}
    names = frozenset().union(*(each.chunk_ids for each in ordered))
    return ForeignRecord(ordered[0].id, joined_text([each.text for each in ordered]), fields, names)


def joined_text(passages: Iterable[str]) -> str:
    """Passages as one text, in which what a passage repeats of the one before it stands once."""
    text = ""
    for passage in passages:
        most = min(len(text), len(passage), MOST_OVERLAP)
        overlap = next((size for size in range(most, LEAST_OVERLAP - 1, -1) if text.endswith(passage[:size])), 0)
        text = text + passage[overlap:] if overlap or not text else f"{text}\n\n{passage}"
    return text


def time_of(value: object) -> datetime | None:
    """A time as programs write it: text in ISO form, or seconds or milliseconds since 1970; None if it is none."""
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, str):
            return documents.aware(datetime.fromisoformat(value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000.0 if abs(value) > 1e11 else value, UTC)
    return None


def _flat(fields: Mapping[str, object]) -> Mapping[str, object]:
    """All fields at one level: some programs keep labels under `metadata`."""
    metadata = fields.get("metadata")
    return {**fields, **metadata} if isinstance(metadata, Mapping) else fields


def _id(line: BulkLine) -> str:
    return documents.document_id(documents.DocumentInput(line.content, line.content_type, line.session_id, line.source))

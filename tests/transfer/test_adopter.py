"""Documents of other programs as documents of ours: which records become which, and what a repetition does."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.domain.documents import Stored
from rag_context.ports.reading import ForeignRecord
from rag_context.transfer.adopter import Adopter, Passages, RecordReader, joined_text, time_of
from tests.memory_stores import MemoryStore

KINDS = ("chat", "decision", "code", "documentation")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Source:
    """Records in memory."""

    found: list[ForeignRecord]
    label: str = "theirs"

    async def records(self) -> AsyncIterator[ForeignRecord]:
        for record in self.found:
            yield record


@dataclass
class Index(MemoryStore):
    """An index that notes what it is given; `states` are those of the documents with these sources."""

    lines: list[BulkLine] = field(default_factory=list)
    newer: set[str] = field(default_factory=set)
    rejects: set[str] = field(default_factory=set)

    async def states(self, document_ids: Sequence[str]) -> dict[str, Stored]:
        return {id_: Stored("hash", True, (), NOON) for id_ in document_ids if id_ in self.newer}

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: Callable[[int, BulkReceipt], None]) -> None:
        for position, line in enumerate(lines):
            self.lines.append(line)
            is_rejected = line.source in self.rejects
            rejected, indexed = BulkReceipt(status="rejected", reason="no"), BulkReceipt(status="indexed")
            on_receipt(position, rejected if is_rejected else indexed)


def record(id_: str, text: str = "text", **fields: Any) -> ForeignRecord:
    return ForeignRecord(id_, text, {"contentType": "documentation", "sessionId": "s", "source": "a.md", **fields})


async def taken(index: Index, *records: ForeignRecord) -> dict[str, int]:
    reader, source = RecordReader(KINDS), Source(list(records))
    plan = await reader.plan(source)
    adopted = await Adopter(reader, index, index.bulk).adopt(source, plan, lambda _done, _total: None)
    return {**adopted.outcomes, "rejected": len(adopted.rejected), "superseded": plan.superseded}


async def test_a_record_keeps_its_labels_time_and_further_fields() -> None:
    index = Index()
    labels = {"agent": "opus", "tags": ["x", 3], "category": "own", "game": "chess", "decisionId": 7, "weight": 2}
    await taken(index, record("1", metadata=labels, timestamp="2026-01-01T12:00:00Z", kind="note", contentType="odd"))
    (line,) = index.lines
    assert line.metadata is not None
    said = line.metadata.to_metadata()
    assert (said.agent, said.tags, said.category, said.game, said.decision_id) == ("opus", ("x",), "own", "chess", "7")
    assert said.extra == {"weight": 2, "kind": "note"}
    assert (line.content_type, line.session_id, line.source, line.occurred_at) == ("documentation", "s", "a.md", NOON)


async def test_of_several_records_of_one_document_the_newest_counts() -> None:
    index = Index()
    old, new = record("2", "old", timestamp="2026-01-01"), record("1", "new", timestamp="2026-01-02")
    assert await taken(index, new, old) == {"indexed": 1, "rejected": 0, "superseded": 1}
    assert [line.content for line in index.lines] == ["new"]


async def test_what_was_written_here_since_is_kept() -> None:
    plan = await RecordReader(KINDS).plan(Source([record("1")]))
    for timestamp, outcome in (("2025-12-31", "kept"), (None, "kept"), ("2026-01-01T12:00:00Z", "indexed")):
        index = Index(newer=set(plan.newest))
        assert (await taken(index, record("1", timestamp=timestamp)))[outcome] == 1


async def test_what_cannot_be_a_document_is_counted_and_stops_nothing() -> None:
    index = Index(rejects={"b.md"})
    records = (record("1", " "), record("2", "\0"), record("3", source="b.md"), record("4", source="c.md"))
    assert await taken(index, *records) == {"indexed": 1, "rejected": 2, "superseded": 0}


async def test_passages_of_one_document_become_one_text() -> None:
    tail = "a sentence that both of the passages have"
    passages = Passages(
        Source(
            [
                record("2", f"{tail} and the end", timestamp="2026-01-01T00:00:02Z"),
                record("1", f"The beginning, {tail}", timestamp="2026-01-01T00:00:01Z"),
                record("3", "hello", contentType="chat"),
                record("4", "hello again", contentType="chat"),
                record("5", "without a source", source=None),
                ForeignRecord("6", "of a document", {"source": "b.md"}, frozenset({"c-6"})),
            ]
        ),
        without={"c-6"},
    )
    texts = [each.text async for each in passages.records()]
    assert texts == [f"The beginning, {tail} and the end", "hello", "hello again", "without a source"]
    assert passages.covered == 1


def test_only_what_is_repeated_is_left_out() -> None:
    assert joined_text(["one", "two"]) == "one\n\ntwo"
    assert joined_text(["x" * 20, "x" * 20]) == "x" * 20


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01 12:00:00", NOON),
        (1767268800, NOON),
        (1767268800000, NOON),
        ("yesterday", None),
        (True, None),
        (1e300, None),
        (None, None),
    ],
)
def test_times_are_read_as_programs_write_them(value: object, expected: datetime | None) -> None:
    assert time_of(value) == expected

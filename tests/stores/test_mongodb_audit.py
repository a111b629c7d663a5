"""What can be untrue of an index in MongoDB is found, named, and repaired where that is possible."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from rag_context.domain.documents import (
    Chunk,
    Document,
    DocumentInput,
    Metadata,
    Span,
    chunk_ids,
    content_hash,
    document_id,
)
from rag_context.domain.reports import IntegrityReport, IssueKind, Thoroughness
from rag_context.domain.search import Filter
from rag_context.memory.index_maintenance import document_issues
from rag_context.stores.mongodb import MongoStore
from tests.servers.mongodb_fixtures import Raw, database, kept, mongodb, raw, server
from tests.stores.builders import NOON

__all__ = ["database", "kept", "mongodb", "raw", "server"]


QUICK, FULL = Thoroughness
DRAFT = DocumentInput("The wolf sleeps. The sheep do not.", "documentation", "s", "a.md", Metadata(tags=("t",)))


def sound(draft: DocumentInput = DRAFT) -> tuple[Document, list[Chunk]]:
    """A document as the write path would make it, in two chunks."""
    written = Document(
        id=document_id(draft),
        tenant=draft.tenant,
        content_type=draft.content_type,
        session_id=draft.session_id,
        source=draft.source,
        title="A",
        content=draft.content,
        content_hash=content_hash(draft),
        timestamp=NOON,
        occurred_at=NOON,
        metadata=draft.metadata,
        similarity_hash=0xF00D,
    )
    spans = [Span(0, 16, 1, 1), Span(16, len(draft.content), 1, 1)]
    texts = [draft.content[span.start : span.end] for span in spans]
    names = chunk_ids(written.id, [("A", text) for text in texts])
    chunks = [
        Chunk(id_, written.id, position, text, span, "A", occurred_at=NOON)
        for position, (id_, text, span) in enumerate(zip(names, texts, spans, strict=True))
    ]
    return written, chunks


@pytest.fixture
async def index(mongodb: MongoStore) -> MongoStore:
    """A sound index of one document, with all its indexes."""
    await mongodb.documents.put(*sound())
    while any(flaw.kind is IssueKind.TEXT_INDEX for flaw in (await examined(mongodb)).issues):
        await asyncio.sleep(0.01)
    return mongodb


async def examined(store: MongoStore, thoroughness: Thoroughness = FULL) -> IntegrityReport:
    return await store.auditor.examine(document_issues, thoroughness)


def kinds(found: IntegrityReport) -> set[IssueKind]:
    return {flaw.kind for flaw in found.issues}


@pytest.mark.parametrize("thoroughness", Thoroughness)
async def test_a_sound_index_has_no_issues(index: MongoStore, raw: Raw, thoroughness: Thoroughness) -> None:
    await raw["C0N7EXT"].insert_one({"content": "of another program"})
    found = await examined(index, thoroughness)
    assert found.issues == ()
    assert (found.counts.documents, found.counts.pending, found.counts.chunks) == (1, 1, 2)
    assert found.compared_terms == 2


async def test_wrong_counters_are_found_and_counted_again(index: MongoStore, raw: Raw) -> None:
    await raw["C0N7EXT_state"].update_one({"_id": "index"}, {"$inc": {"totals.chunks": 5, "totals.documents": -1}})
    version = index.documents.version
    found = await examined(index)
    assert kinds(found) == {IssueKind.WRONG_COUNTERS}
    assert found.counts.documents == 1
    await index.auditor.repair(kinds(found))
    assert (await examined(index)).issues == ()
    assert (await index.documents.counts()).documents == 1
    assert index.documents.version > version


@pytest.mark.parametrize(
    "change",
    [
        {"C0N7EXT_chunks": {"terms": ["sheep", "zebra"]}},
        {"C0N7EXT_chunks": {"counts": []}},
        {"C0N7EXT_chunks": {"repeated": ["wolf"]}},
        {"C0N7EXT_chunks": {"length": 7}},
        {"C0N7EXT": {"termCount": 7}},
        {"C0N7EXT": {"similarityBands": []}},
        {"C0N7EXT": {"analyser": 0}},
    ],
)
async def test_stale_terms_are_found_and_analysed_again(
    index: MongoStore, raw: Raw, change: Mapping[str, Mapping[str, Any]]
) -> None:
    for collection, fields in change.items():
        await raw[collection].update_many({}, {"$set": dict(fields)})
    found = await examined(index)
    assert kinds(found) - {IssueKind.WRONG_COUNTERS} == {IssueKind.STALE_TERMS}
    assert found.issues[-1].examples == (sound()[0].id,)
    await index.auditor.repair(kinds(found))
    assert (await examined(index)).issues == ()
    assert len(await index.texts.search("wolf", limit=5, where=Filter())) == 1
    assert await index.texts.search("zebra", limit=5, where=Filter()) == []


async def test_a_missing_text_index_is_found_and_made(index: MongoStore, raw: Raw) -> None:
    await raw["C0N7EXT"].drop_index("content_text_index")
    found = await examined(index)
    assert kinds(found) == {IssueKind.TEXT_INDEX}
    await index.auditor.repair(kinds(found))
    assert (await examined(index)).issues == ()


async def test_another_text_index_is_found_and_replaced(index: MongoStore, raw: Raw) -> None:
    await raw["C0N7EXT"].drop_index("content_text_index")
    await raw["C0N7EXT"].create_index([("content", "text")], name="mine", weights={"content": 3})
    found = await examined(index)
    assert kinds(found) == {IssueKind.TEXT_INDEX}
    await index.auditor.repair(kinds(found))
    assert (await examined(index)).issues == ()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"$set": {"content": "Something else."}}, IssueKind.CHANGED_CONTENT),
        ({"$unset": {"content": ""}}, IssueKind.LOST_CONTENT),
        ({"$set": {"sessionId": "another"}}, IssueKind.CHANGED_CONTENT),
    ],
)
async def test_the_issues_of_a_document_are_reported(
    index: MongoStore, raw: Raw, change: Mapping[str, Any], kind: IssueKind
) -> None:
    await raw["C0N7EXT"].update_one({"_id": sound()[0].id}, dict(change))
    assert kind in kinds(await examined(index, QUICK))


@pytest.mark.parametrize(
    "change",
    [
        {"$set": {"similarityHash": "x", "timestampMicros": "x"}},
        {"$set": {"chunks": "gone", "metadata": 7}},
        {"$set": {"metadata.extra": "no JSON", "tenant": "x"}},
    ],
)
async def test_an_invalid_record_is_examined_and_named(index: MongoStore, raw: Raw, change: Mapping[str, Any]) -> None:
    await raw["C0N7EXT"].update_one({"_id": sound()[0].id}, dict(change))
    assert any(sound()[0].id in flaw.examples for flaw in (await examined(index)).issues)


async def test_a_document_that_is_not_what_was_indexed_is_no_version_of_its_source(index: MongoStore, raw: Raw) -> None:
    written, chunks = sound()
    await raw["C0N7EXT"].update_one({"_id": written.id}, {"$set": {"content": "Something else."}})
    found = await examined(index)
    assert found.damaged == (written.id,)
    await index.auditor.invalidate(found.damaged)
    assert await index.documents.content_hashes([written.id]) == {written.id: ""}
    await index.documents.put(written, chunks)
    assert (await examined(index)).issues == ()


async def test_an_invalid_chunk_record_is_examined_and_its_document_named(index: MongoStore, raw: Raw) -> None:
    await raw["C0N7EXT_chunks"].update_many({}, {"$set": {"start": "a", "position": "b", "text": 7}})
    assert any(sound()[0].id in flaw.examples for flaw in (await examined(index)).issues)


async def test_a_document_that_names_other_chunks_than_are_there_is_broken(index: MongoStore, raw: Raw) -> None:
    await raw["C0N7EXT"].update_one({"_id": sound()[0].id}, {"$pop": {"chunks": 1}})
    assert (await examined(index)).broken == (sound()[0].id,)


async def test_documents_whose_chunks_are_broken_are_all_named(index: MongoStore, raw: Raw) -> None:
    await raw["C0N7EXT_chunks"].delete_one({})
    found = await examined(index)
    assert IssueKind.BROKEN_CHUNKS in kinds(found)
    assert found.broken == (sound()[0].id,)

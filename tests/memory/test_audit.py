"""Checking and repairing an index: each kind of issue, made by hand, is found, named and repaired where it can be."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag_context.domain.documents import DocumentInput, Metadata
from rag_context.domain.reports import IntegrityReport, IssueKind, SearchRecord, Thoroughness
from rag_context.domain.search import Filter
from rag_context.errors import BackendTimeoutError, ConfigurationError, ForeignIndexError
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.memory.bound_embedder import BoundEmbedder
from rag_context.memory.index_maintenance import ISSUE_TYPES, Audit, report
from rag_context.ports.writing import IndexAuditor, Version
from rag_context.resilience.dependency import Dependency
from rag_context.stores.sqlite.embedded import FILE_NAME, SqliteStore, open_auditor, open_database
from rag_context.testing import FakeEmbedder

QUICK, FULL = Thoroughness
TEXT = "# Valves\n\n" + " ".join(f"Valve {number} opens at {number * 3} bar." for number in range(80))
SEARCH = SearchRecord(datetime(2026, 1, 1, tzinfo=UTC), "r", "valves", 3, 5.0, None, None, None, 1, False, "anna")
DRAFTS = (
    DocumentInput(TEXT, "documentation", "s", "valves.md", Metadata(tags=("a", "b"), category="plant")),
    DocumentInput("Anna: is the pump on?\nBert: it is.", "chat", "talk", "chat", Metadata(agent="anna")),
    DocumentInput("def pump():\n    return 'on'\n", "code", "s", "pump.py"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@asynccontextmanager
async def indexing(path: Path) -> AsyncIterator[tuple[SqliteStore, Indexer]]:
    async with open_database(path) as store:
        bound = BoundEmbedder(FakeEmbedder(), store.documents)
        await bound.bind()
        yield (
            store,
            Indexer(
                embedder=bound,
                embedding=Dependency("embedder", bound.ping),
                documents=store.documents,
                document_store=Dependency("documents", store.documents.ping),
                writer=store.documents,
                policy=IndexingPolicy(254),
            ),
        )


@pytest.fixture
async def index(path: Path) -> Path:
    """A sound index of three documents."""
    async with indexing(path) as (store, indexer):
        for draft in DRAFTS:
            await indexer.index(draft)
        await store.metrics.append([SEARCH], [])
    return path


def sabotage(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def damage(path: Path) -> bytes:
    """Overwrite all pages but the first two."""
    whole = path.read_bytes()
    damaged = whole[: 2 * 8192] + b"\xa5" * (len(whole) - 2 * 8192)
    path.write_bytes(damaged)
    return damaged


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


async def examine(path: Path, thoroughness: Thoroughness = QUICK) -> IntegrityReport:
    async with open_auditor(path) as auditor:
        return await Audit(auditor).examine(thoroughness)


async def repair(path: Path) -> IntegrityReport:
    """All that `check --repair` does; returns what is left."""
    async with open_auditor(path) as auditor:
        found = await Audit(auditor).examine(FULL)
        await Audit(auditor).repair(found)
    async with indexing(path) as (store, indexer):
        for id_ in found.broken:
            await indexer.rechunk(id_)
        for id_ in await store.documents.pending(100):
            await indexer.complete(id_)
    return await examine(path, FULL)


def kinds(found: IntegrityReport) -> set[IssueKind]:
    return {flaw.kind for flaw in found.issues}


CASES: Sequence[tuple[str, set[IssueKind], str]] = (
    ("a counter", {IssueKind.WRONG_COUNTERS}, "UPDATE totals SET chunks = chunks + 7, terms = 1"),
    ("a lost vector", {IssueKind.MISSING_VECTORS}, "DELETE FROM vectors WHERE chunk = 1"),
    ("a vector of noughts", {IssueKind.BAD_VECTORS}, "UPDATE vectors SET vector = zeroblob(length(vector))"),
    ("a short vector", {IssueKind.BAD_VECTORS}, "UPDATE vectors SET vector = x'00000000' WHERE chunk = 1"),
    ("a forgotten model", {IssueKind.NO_MODEL}, "DELETE FROM meta WHERE name = 'model'"),
    ("a model nobody can read", {IssueKind.NO_MODEL}, "UPDATE meta SET value = '{}' WHERE name = 'model'"),
    ("a lost tag", {IssueKind.WRONG_TAGS}, "DELETE FROM document_tags WHERE tag = 'a'"),
    ("a tag too many", {IssueKind.WRONG_TAGS}, "INSERT INTO document_tags VALUES (2, 'z')"),
    ("a lost document", {IssueKind.ORPHANS}, "DELETE FROM documents WHERE key = 1"),
    ("a lost chunk", {IssueKind.ORPHANS, IssueKind.BROKEN_CHUNKS}, "DELETE FROM chunks WHERE key = 2"),
    ("chunks all lost", {IssueKind.ORPHANS, IssueKind.BROKEN_CHUNKS}, "DELETE FROM chunks WHERE document = 1"),
    ("a gap", {IssueKind.BROKEN_CHUNKS}, "UPDATE chunks SET start = start + 1 WHERE key = 2"),
    ("an end beyond the end", {IssueKind.BROKEN_CHUNKS}, 'UPDATE chunks SET "end" = 9999 WHERE document = 2'),
    ("another text", {IssueKind.BROKEN_CHUNKS}, "UPDATE passages SET text = upper(text) WHERE chunk = 1"),
    ("a drawn chunk id", {IssueKind.BROKEN_CHUNKS}, "UPDATE chunks SET id = 'drawn' WHERE key = 1"),
    ("old terms", {IssueKind.STALE_TERMS}, "UPDATE passages SET terms = zeroblob(10) WHERE chunk = 1"),
    ("a wrong length", {IssueKind.STALE_TERMS, IssueKind.WRONG_COUNTERS}, "UPDATE chunks SET length = 1 WHERE key = 1"),
    ("another category", {IssueKind.CHANGED_CONTENT}, "UPDATE documents SET category = 'x'"),
    ("no terms", {IssueKind.STALE_TERMS}, "UPDATE passages SET terms = x''"),
    ("forgotten sums", {IssueKind.STATISTICS}, "DELETE FROM search_sums"),
    ("a search too many", {IssueKind.STATISTICS}, "UPDATE search_tallies SET queries = 9 WHERE kind = 'level'"),
    ("lost content", {IssueKind.LOST_CONTENT}, "DELETE FROM contents WHERE document = 1"),
    (
        "changed content",
        {IssueKind.CHANGED_CONTENT, IssueKind.BROKEN_CHUNKS},
        "UPDATE contents SET content = content || ' And more.' WHERE document = 1",
    ),
    ("an id that is none", {IssueKind.WRONG_ID}, "UPDATE documents SET id = 'drawn' WHERE key = 2"),
    (
        "another id",
        {IssueKind.WRONG_ID, IssueKind.BROKEN_CHUNKS},
        "UPDATE documents SET id = '00000000-0000-5000-8000-000000000000' WHERE key = 2",
    ),
    ("a lost tenant", {IssueKind.WRONG_ID}, "DELETE FROM tenants"),
    (
        "tags that are none",
        {IssueKind.LOST_CONTENT, IssueKind.WRONG_TAGS},
        "UPDATE documents SET tags = '[' WHERE key = 1",
    ),
    ("metadata that is none", {IssueKind.LOST_CONTENT}, "UPDATE documents SET extra = '[1' WHERE key = 1"),
    ("a moment that is none", {IssueKind.LOST_CONTENT}, "UPDATE documents SET timestamp = 'noon' WHERE key = 1"),
    ("a moment past all time", {IssueKind.LOST_CONTENT}, "UPDATE documents SET timestamp = 1 << 62 WHERE key = 1"),
    (
        "a title that is no text",
        {IssueKind.LOST_CONTENT},
        "UPDATE documents SET title = CAST(x'ff41' AS TEXT) WHERE key = 1",
    ),
    ("a place that is none", {IssueKind.BROKEN_CHUNKS}, "UPDATE chunks SET start = 'a' WHERE key = 1"),
    (
        "a passage that is no text",
        {IssueKind.BROKEN_CHUNKS, IssueKind.STALE_TERMS},
        "UPDATE passages SET text = CAST(x'ff41' AS TEXT) WHERE chunk = 1",
    ),
    ("terms that are none", {IssueKind.STALE_TERMS}, "UPDATE passages SET terms = 'old' WHERE chunk = 1"),
    ("vectors all of a wrong length", {IssueKind.BAD_VECTORS}, "UPDATE vectors SET vector = x'0011223344'"),
)


def test_every_issue_says_what_it_is_and_what_a_repair_does() -> None:
    assert set(ISSUE_TYPES) == set(IssueKind)


async def test_a_sound_index_is_sound_however_closely_it_is_examined(index: Path) -> None:
    for thoroughness in Thoroughness:
        found = await examine(index, thoroughness)
        assert found.issues == ()
        assert found.counts.documents == 3
        assert found.counts.chunks == found.counts.vectors == found.compared_terms > 5
    checked = report(found, FULL)
    assert checked.sound
    assert checked.mended is None


@pytest.mark.parametrize(("expected", "statement"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_each_issue_is_found_and_repaired_where_it_can_be(
    index: Path, expected: set[IssueKind], statement: str
) -> None:
    sabotage(index, statement)
    found = await examine(index)
    assert kinds(found) == expected
    assert all(flaw.count >= len(flaw.examples) > 0 for flaw in found.issues)
    left = await repair(index)
    assert kinds(left) == {kind for kind in expected if not ISSUE_TYPES[kind].is_repairable}
    assert left.counts.pending == 0
    assert report(left, FULL, before=found).sound is (not left.issues)


async def test_what_was_repaired_is_found_again(index: Path) -> None:
    sabotage(
        index,
        "DELETE FROM vectors WHERE chunk = 1",
        "DELETE FROM chunks WHERE key = 2",
        "UPDATE passages SET terms = x''",
        "UPDATE totals SET vectors = 99",
    )
    assert (await repair(index)).issues == ()
    async with indexing(index) as (store, indexer):
        assert (await indexer.index(DRAFTS[0])).outcome.value == "unchanged"
        vector = await FakeEmbedder().embed_query("Valve 3 opens at 9 bar.")
        by_keywords = await store.texts.search("valve", limit=50, where=Filter(tags=("a", "b")))
        by_vector = await store.vectors.search(vector, limit=50, where=Filter(category="plant"))
        chunks = await store.documents.chunks(by_keywords[0].chunk.document_id)
        assert {hit.chunk.id for hit in by_keywords} == {hit.chunk.id for hit in by_vector} == {c.id for c in chunks}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM contents WHERE document = 1",
        "UPDATE contents SET content = upper(content) WHERE document = 1",
        "UPDATE documents SET title = CAST(x'ff41' AS TEXT), tags = '[' WHERE key = 1",
    ],
)
async def test_what_only_a_source_can_repair_is_replaced_once_that_is_indexed_again(
    index: Path, statement: str
) -> None:
    sabotage(index, statement)
    async with indexing(index) as (_, indexer):
        assert (await indexer.index(DRAFTS[0])).outcome.value == "unchanged"  # the stored content is not read
    assert (await repair(index)).issues != ()
    async with indexing(index) as (_, indexer):
        assert (await indexer.index(DRAFTS[0])).outcome.value == "replaced"
        assert (await indexer.index(DRAFTS[1])).outcome.value == "unchanged"
    assert (await examine(index, FULL)).issues == ()


async def test_a_pending_document_is_no_issue(index: Path) -> None:
    sabotage(index, "UPDATE documents SET status = 'pending' WHERE key = 1", "DELETE FROM vectors WHERE chunk = 1")
    found = await examine(index)
    assert found.issues == ()
    assert found.counts.pending == 1


async def test_a_newer_version_is_not_put_back_by_a_repair(index: Path) -> None:
    async with indexing(index) as (store, indexer):
        receipt = await indexer.index(DRAFTS[2])
        old = await store.documents.get(receipt.document_id)
        assert old is not None
        newer = DocumentInput("def pump():\n    return 'off'\n", "code", "s", "pump.py")
        await indexer.index(newer)
        assert not await store.documents.rechunk(Version(old, []))
        stored = await store.documents.get(receipt.document_id)
        assert stored is not None
        assert stored.content == newer.content


async def test_damaged_pages_are_a_finding_and_nothing_is_written(index: Path) -> None:
    sabotage(index, "PRAGMA wal_checkpoint(TRUNCATE)")
    before = damage(index)
    async with open_auditor(index) as auditor:
        found = await Audit(auditor).examine(QUICK)
        await Audit(auditor).repair(found)
    assert kinds(found) == {IssueKind.DAMAGED_FILE}
    assert ".recover" in report(found, QUICK).flaws[0].repair
    assert content(index) == before


async def test_another_programs_file_is_not_examined(path: Path) -> None:
    sabotage(path, "CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(ForeignIndexError, match="another program"):
        await examine(path)


async def test_where_there_is_no_index_none_is_made(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no index"):
        await examine(path)
    assert content(path) is None


async def test_a_writer_elsewhere_holds_up_a_repair_but_not_an_examination(index: Path) -> None:
    sabotage(index, "UPDATE totals SET chunks = 0")
    with closing(sqlite3.connect(index, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with open_auditor(index, lock_timeout_s=0.1) as auditor:
            fits: IndexAuditor = auditor
            found = await Audit(fits).examine(QUICK)
            assert kinds(found) == {IssueKind.WRONG_COUNTERS}
            with pytest.raises(BackendTimeoutError):
                await Audit(fits).repair(found)

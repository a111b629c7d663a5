"""What the embedded store promises beyond its ports."""

import asyncio
import re
import sqlite3
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_context.domain.documents import DEFAULT_TENANT, Chunk, Counts, Metadata, Origin, Span, Tenant
from rag_context.domain.reports import IssueKind, Thoroughness
from rag_context.domain.search import Filter
from rag_context.errors import BackendStartingError, ForeignIndexError
from rag_context.ports.writing import Version
from rag_context.stores.sql_journal import DROP_REASONS
from rag_context.stores.sqlite.changes import REMEMBERED_DELETIONS, delete_documents, forget_old_deletions
from rag_context.stores.sqlite.database import READERS, Database
from rag_context.stores.sqlite.database_file import checked_file
from rag_context.stores.sqlite.embedded import open_database
from rag_context.stores.sqlite.integrity import SqliteAuditor
from rag_context.stores.sqlite.memory import following
from rag_context.stores.sqlite.memory.chunk_index import Change, MemoryIndex
from rag_context.stores.sqlite.memory.following import IndexInMemory
from rag_context.stores.sqlite.memory.terms import packed
from tests.stores.builders import NOON, Stores, axis, document, ids, minutes, put, refs, unit_vectors
from tests.stores.older_files import older_file
from tests.stores.test_sqlite_faults import take_away
from tests.stores.test_text_index import plain_scores


async def test_everything_is_there_after_closing_and_opening_again(path: Path) -> None:
    async with open_database(path) as store:
        chunk_ids = await put(store, document("fox", "a fox", metadata=Metadata(tags=("t",))), vector=axis(3))
        await put(store, document("later", "pending"))
        version = store.documents.version
    async with open_database(path) as store:
        assert ids(await store.vectors.search(axis(3), limit=1, where=Filter(tags=("t",)))) == chunk_ids
        assert ids(await store.texts.search("fox", limit=1, where=Filter())) == chunk_ids
        assert await store.documents.pending(5) == [document("later").id]
        assert store.documents.version >= version


async def test_dropping_reasons_reads_the_entries_that_have_one(path: Path) -> None:
    """Each replaced and deleted document does it: with the index by tenant it would read the whole journal."""
    statement = re.sub(r"\$(\d)", r"?\1", DROP_REASONS.format(schema=""))
    async with open_database(path) as opened:
        plan = await opened.database.read(
            lambda connection: connection.execute(f"EXPLAIN QUERY PLAN {statement}", ("", "", "", "hash")).fetchall()
        )
    assert "journal_with_reason" in plan[0][3]


async def test_the_first_search_waits_for_the_vectors_to_load(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("fox"), vector=axis(3))
    async with open_database(path) as store:
        assert len(await store.vectors.search(axis(3), limit=5, where=Filter())) == 1


async def test_keyword_search_answers_while_vectors_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_database(path) as store:
        fox = await put(store, document("fox", "a fox"), vector=axis(3))
    may_go_on = threading.Event()
    read = IndexInMemory._read_vectors

    def slowly(self: IndexInMemory, *rest: Any) -> None:
        may_go_on.wait(30)
        read(self, *rest)

    monkeypatch.setattr(IndexInMemory, "_read_vectors", slowly)
    async with open_database(path) as store:
        assert ids(await store.texts.search("fox", limit=5, where=Filter())) == fox
        with pytest.raises(BackendStartingError, match="vectors are still being read"):
            await store.vectors.search(axis(3), limit=5, where=Filter())
        wolf = await put(store, document("wolf", "a wolf"), vector=axis(3))
        await store.documents.delete(document("fox").id)
        assert ids(await store.texts.search("fox wolf", limit=5, where=Filter())) == wolf
        may_go_on.set()
        await store.memory.loaded()
        assert ids(await store.vectors.search(axis(3), limit=5, where=Filter())) == wolf


async def test_a_search_does_not_wait_for_a_large_index_that_is_still_being_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_database(path) as store:
        fox = await put(store, document("fox", "a fox"), vector=axis(3))
    may_go_on = threading.Event()
    apply = MemoryIndex.apply

    def slowly(self: MemoryIndex, change: Change) -> None:
        may_go_on.wait(30)
        apply(self, change)

    monkeypatch.setattr(MemoryIndex, "apply", slowly)
    monkeypatch.setattr(following, "FEW_CHUNKS", 0)
    async with open_database(path) as store:
        with pytest.raises(BackendStartingError, match="chunks are still being read"):
            await store.texts.search("fox", limit=5, where=Filter())
        may_go_on.set()
        await store.memory.loaded()
        assert ids(await store.texts.search("fox", limit=5, where=Filter())) == fox


async def test_waiting_for_the_load_can_be_given_up(path: Path) -> None:
    async with open_database(path) as store:
        searching = asyncio.create_task(store.vectors.search(axis(3), limit=5, where=Filter()))
        await asyncio.sleep(0)
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
        assert await store.vectors.search(axis(3), limit=5, where=Filter()) == []


async def test_retrievals_of_a_document_add_up_with_the_last_of_their_times(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"))
        await put(store, document("b"))
        await store.documents.record_retrievals([document("a").id, document("b").id], NOON + minutes(2))
        await store.documents.record_retrievals([document("a").id, "unknown"], NOON)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT query_count, last_retrieved FROM retrievals ORDER BY document").fetchall()
    at = int((NOON + minutes(2)).timestamp() * 1_000_000)
    assert rows == [(2, at), (1, at)]


async def test_counters_agree_with_the_rows_after_any_changes(path: Path) -> None:
    rng = np.random.default_rng(3)
    async with open_database(path) as store:
        for _ in range(150):
            each = document(str(rng.integers(20)), "some words " * int(rng.integers(1, 9)))
            match rng.integers(4):
                case 0:
                    await store.documents.delete(each.id)
                case 1:
                    await put(store, each, "one", "two")
                case 2:
                    await store.documents.attach(each.id, each.content_hash, unit_vectors(2))
                case _:
                    await put(store, each, vector=axis(int(rng.integers(16))))
        counts = await store.documents.counts()
        found = await store.vectors.search(axis(0), limit=1000, where=Filter())
    with closing(sqlite3.connect(path)) as connection:
        documents, pending = connection.execute("SELECT count(*), sum(status = 'pending') FROM documents").fetchone()
        chunks, length = connection.execute("SELECT count(*), sum(length) FROM chunks").fetchone()
        vectors = connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
        assert counts == Counts(documents, pending, chunks, vectors)
        assert connection.execute("SELECT terms FROM totals").fetchone() == (length,)
        assert len({hit.chunk.id for hit in found}) == len(found) == vectors
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


async def test_the_file_says_whose_it_is_and_keeps_a_log_ahead(path: Path) -> None:
    async with open_database(path) as store:
        await store.documents.counts()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone()[0].to_bytes(4) == b"RAGC"
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_many_writes_at_once_are_all_stored(store: Stores) -> None:
    await asyncio.gather(*(put(store, document(str(number), f"word{number}"), vector=axis(0)) for number in range(600)))
    assert await store.documents.counts() == Counts(documents=600, pending=0, chunks=600, vectors=600)


async def test_what_is_written_together_is_one_commit(path: Path) -> None:
    seen: list[int] = []

    def names(connection: sqlite3.Connection) -> int:
        found: int = connection.execute("SELECT count(*) FROM meta WHERE name LIKE 'together%'").fetchone()[0]
        return found

    def write(number: int, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO meta VALUES (?, '')", (f"together {number}",))
        with closing(sqlite3.connect(path)) as other:
            seen.append(names(other))

    database = Database(checked_file(path), lock_timeout_s=5.0)
    try:
        await database.write_all([partial(write, number) for number in range(3)])
        assert seen == [0, 0, 0]
        assert await database.read(names) == 3
    finally:
        await database.close()


async def test_a_write_cancelled_before_its_turn_leaves_the_store_usable(store: Stores) -> None:
    writes = [asyncio.create_task(put(store, document(str(number)), vector=axis(0))) for number in range(50)]
    await asyncio.sleep(0)
    for write in writes[::2]:
        write.cancel()
    results = await asyncio.gather(*writes, return_exceptions=True)
    stored = (await store.documents.counts()).documents
    assert sum(isinstance(result, list) for result in results) <= stored <= 50
    assert len(await store.vectors.search(axis(0), limit=100, where=Filter())) == stored


async def test_terms_in_thousands_of_chunks_are_ranked_as_exactly_as_rare_ones(store: Stores) -> None:
    rng = np.random.default_rng(11)
    big = document("big", "x" * 10)
    texts = [
        " ".join(
            ["common"] * int(rng.integers(1, 4)) + ["often"] * int(rng.integers(2)) + ["filler"] * int(rng.integers(9))
        )
        + (" rare" if number % 40 == 0 else "")
        for number in range(4000)
    ]
    texts[3] = "common " * 12  # the best for one word, and old
    chunks = [
        Chunk(f"{number:04d}", big.id, number, text, Span(0, 1, 1, 1), occurred_at=NOON)
        for number, text in enumerate(texts)
    ]
    await store.documents.write(Version(big, chunks))
    hits = await store.texts.search("common often rare", limit=10, where=Filter())
    everything = await store.texts.score(
        "common often rare", refs(*(chunk.id for chunk in chunks)), tenant=DEFAULT_TENANT
    )
    best = sorted(everything.values(), key=lambda hit: (-hit.bm25, hit.chunk.id))
    assert [hit.bm25 for hit in hits] == pytest.approx([hit.bm25 for hit in best[:10]])
    (first,) = await store.texts.search("common", limit=1, where=Filter())
    only = await store.texts.score("common", refs(*(chunk.id for chunk in chunks)), tenant=DEFAULT_TENANT)
    top = max(only.values(), key=lambda hit: hit.bm25)
    assert (first.chunk.id, first.bm25) == (top.chunk.id, top.bm25)
    assert first.chunk.position == 3


async def test_the_score_is_bm25_over_all_chunks_of_the_store(store: Stores) -> None:
    documents = [document(f"number {number}", "wolf " * (number % 5) + "sheep") for number in range(30)]
    for each in documents:
        await put(store, each)
    expected = plain_scores("wolf", documents)
    for hit in await store.texts.search("wolf", limit=30, where=Filter()):
        assert (hit.bm25, hit.share) == pytest.approx(expected[hit.chunk.id])


async def test_terms_of_an_older_analyser_are_recreated_at_opening(path: Path) -> None:
    async with open_database(path) as store:
        chunk_ids = await put(store, document("fox", "brown foxes"), vector=axis(0))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE passages SET terms = zeroblob(10)")
        connection.execute("UPDATE chunks SET length = 1")
        connection.execute("UPDATE meta SET value = '0' WHERE name = 'analyser'")
        connection.commit()
    async with open_database(path) as store:
        (hit,) = await store.texts.search("fox", limit=5, where=Filter())
        assert hit.chunk.id == chunk_ids[0]
        assert (hit.bm25, hit.share) == pytest.approx(
            plain_scores("fox", [document("fox", "brown foxes")])[hit.chunk.id]
        )
        await store.documents.delete(document("fox").id)
        assert await store.texts.search("fox", limit=5, where=Filter()) == []


async def test_a_process_that_missed_a_long_list_of_deletions_starts_over(path: Path) -> None:
    def delete_much(connection: sqlite3.Connection) -> None:
        delete_documents([document("gone").id], connection)
        connection.executemany("INSERT INTO deletions (chunk) VALUES (?)", [(0,)] * (2 * REMEMBERED_DELETIONS))
        forget_old_deletions(connection)

    async with open_database(path) as store, open_database(path) as other:
        gone = await put(store, document("gone"), vector=axis(0))
        stays = await put(store, document("stays"), vector=axis(0))
        assert set(ids(await other.vectors.search(axis(0), limit=5, where=Filter()))) == {*gone, *stays}
        await store.database.write(delete_much)
        assert ids(await other.vectors.search(axis(0), limit=5, where=Filter())) == stays
    with closing(sqlite3.connect(path)) as connection:
        (left,) = connection.execute("SELECT count(*) FROM deletions").fetchone()
    assert left == REMEMBERED_DELETIONS


async def test_noted_retrievals_are_written_while_the_store_is_open(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"))
        await store.documents.record_retrievals([document("a").id], NOON)
        with closing(sqlite3.connect(path)) as connection:
            async with asyncio.timeout(30):
                while not connection.execute("SELECT * FROM retrievals").fetchall():
                    await asyncio.sleep(0.05)


async def test_a_reader_notices_that_its_file_was_replaced(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("old", "old"), vector=axis(0))
        # Every reading thread has the file open.
        await asyncio.gather(*(store.database.read(lambda _: time.sleep(0.05)) for _ in range(READERS)))
        take_away(path)
        async with open_database(path) as other:
            await put(other, document("new", "new"), vector=axis(1))
            async with asyncio.timeout(30):
                while await store.documents.get(document("new").id) is None:
                    await asyncio.sleep(0.05)
        hits = await store.vectors.search(axis(0), limit=5, where=Filter())
        assert [hit.chunk.document_id for hit in hits] == [document("new").id]


async def test_standing_instructions_of_older_conversations_are_found(path: Path) -> None:
    recorded = "/home/ana/.claude/projects/-w/1.jsonl"
    said = (
        ("chat", "User", "Always use metric units.", "s", "a"),
        ("chat", None, "From now on, call me Sam.", "s", "a"),
        ("chat", "Assistant", "Always close the valve.", "s", "a"),
        ("chat", "User", "> Always close the valve.", "s", "a"),
        ("documentation", None, "Always close the valve.", None, "a"),
        ("chat", "User", "Always close the valve.", None, "/talks/a.chat"),
        ("chat", "User", "Always use metric units.", None, recorded),
        ("documentation", None, "Always close the valve.", None, "https://valves.example"),
    )
    with older_file(path, version=8) as connection:
        connection.execute("INSERT INTO tenants VALUES (1, '', '', '')")
        for key, (kind, speaker, text, thread, source) in enumerate(said, 1):
            connection.execute(
                """INSERT INTO documents VALUES
                   (?, ?, 1, ?, 's', ?, 'Title', 'hash', 0, NULL, NULL, NULL, NULL, '[]', '{}', ?, 0, 'indexed',
                    0, NULL)""",
                (key, f"document {key}", kind, source, thread),
            )
            connection.execute("INSERT INTO contents VALUES (?, ?)", (key, text))
            chunk = (key, f"chunk {key}", key, 0, 0, len(text), 1, 1, "", 1, 0, speaker)
            connection.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", chunk)
            connection.execute("INSERT INTO passages VALUES (?, ?, '', ?)", (key, text, packed(["hello"])))
            connection.execute("INSERT INTO vectors (chunk, vector) VALUES (?, ?)", (key, axis(key).tobytes()))
    async with open_database(path) as store:
        found = await store.vectors.search(axis(1), limit=9, where=Filter(standing=True))
        assert set(ids(found)) == {"chunk 1", "chunk 7"}
        documents = [await store.documents.get(f"document {key}") for key in range(1, len(said) + 1)]
        whose = [each.origin.value for each in documents if each is not None]
        assert whose == ["owner", "unknown", "agent", "owner", "agent", "unknown", "owner", "web"]
        passages = await store.documents.passages([f"chunk {key}" for key in range(1, len(said) + 1)])
        assert passages["chunk 3"].chunk.origin is Origin.AGENT
        assert len(await store.vectors.search(axis(1), limit=9, where=Filter())) == len(said)


async def test_a_chunk_without_a_time_of_its_own_has_that_of_its_document(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("fox", "a fox", timestamp=NOON, occurred_at=NOON))
    with closing(sqlite3.connect(path)) as connection, connection:  # as an upgrade of an earlier version left it
        connection.execute("UPDATE chunks SET occurred_at = NULL")
    async with open_database(path) as store:
        assert await store.texts.search("fox", limit=1, where=Filter(since=NOON, until=NOON + minutes(1)))
        assert not await store.texts.search("fox", limit=1, where=Filter(since=NOON + minutes(1)))


async def test_a_file_in_an_early_form_is_rejected_and_left_as_it_is(path: Path) -> None:
    with older_file(path, version=6):
        pass
    with pytest.raises(ForeignIndexError, match=r"early form \(schema 6\)"):
        async with open_database(path) as store:
            await store.documents.counts()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (6,)


async def test_tenants_of_an_older_file_are_counted_when_it_is_opened(path: Path) -> None:
    with older_file(path, version=9) as connection:
        connection.execute("INSERT INTO tenants VALUES (1, '', '', ''), (2, 'shop', 'main', 'aa'), (3, 'gone', '', '')")
        for number, tenant in enumerate((1, 1, 2)):
            connection.execute(
                f"""INSERT INTO documents (id, tenant, content_type, session_id, source, title, content_hash, timestamp,
                                           tags, extra, similarity_hash, status)
                    VALUES ('{number}', {tenant}, 'documentation', 's', 'a', 'T', 'h', 1, '[]', '{{}}', 0, 'pending')"""
            )
            connection.execute("INSERT INTO contents SELECT key, 'text' FROM documents WHERE id = ?", (str(number),))
    tenants = [Tenant(), Tenant("shop", "main", "aa"), Tenant("gone")]
    async with open_database(path) as store:
        before = [await store.documents.tenant_state(tenant) for tenant in tenants]
        assert [each.documents for each in before] == [2, 1, 0]
        assert await store.documents.delete("2")
        after = [await store.documents.tenant_state(tenant) for tenant in tenants]
        assert [each.documents for each in after] == [2, 0, 0]
        assert [one == other for one, other in zip(before[:2], after, strict=False)] == [True, False]
        # A name that nothing refers to, as an earlier version left it, goes with the next deletion.
        assert "gone" not in await store.database.read(_names_of_tenants)


def _names_of_tenants(connection: sqlite3.Connection) -> list[str]:
    return [project for (project,) in connection.execute("SELECT project FROM tenants ORDER BY key")]


async def test_a_repair_counts_the_documents_of_tenants_again(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"))
        before = await store.documents.tenant_state(Tenant())
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE tenants SET documents = 7")
            connection.commit()
        auditor = SqliteAuditor(store.database)
        report = await auditor.examine(lambda _document, _chunks: [], Thoroughness.QUICK)
        assert [issue.kind for issue in report.issues] == [IssueKind.WRONG_COUNTERS]
        await auditor.repair([IssueKind.WRONG_COUNTERS])
        after = await store.documents.tenant_state(Tenant())
        assert after.documents == 1
        assert after.stamp != before.stamp

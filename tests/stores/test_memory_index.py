"""The index in memory: complete changes only, equal to the file after any changes, and no memory of deleted rows."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain import text as domain_text
from rag_context.domain.documents import DEFAULT_TENANT, Tenant
from rag_context.domain.search import ChunkRef, Filter, Neighbours, VectorHit
from rag_context.domain.vectors import Matrix, Vector
from rag_context.stores.sqlite.embedded import SqliteStore, open_database
from rag_context.stores.sqlite.memory import chunk_index, vector_scan
from rag_context.stores.sqlite.memory import terms as postings
from rag_context.stores.sqlite.memory.chunk_index import Change, MemoryIndex
from rag_context.stores.sqlite.memory.columns import DocumentFields, StoredChunk, StoredVector
from rag_context.stores.sqlite.memory.following import FEW_ROWS, IndexInMemory, IndexSnapshot
from rag_context.stores.sqlite.memory.terms import packed
from rag_context.stores.sqlite.memory.vector_scan import BLOCK_ROWS
from tests.stores.builders import NOON, axis, document, ids, minutes, put, refs

OWNER = DocumentFields(1, "d", "", "", "", "documentation", "s", "source", "[]", None)


def chunk(key: int, name: str, text: str = "") -> StoredChunk:
    words = text.split()
    return StoredChunk(key, name, 1, key, len(words), packed(words), 0)


def no_file(_seqs: Sequence[int]) -> Matrix:
    raise AssertionError("few vectors are in memory")


def test_no_search_sees_half_a_change() -> None:
    index = MemoryIndex()
    index.apply(Change(documents=[OWNER], chunks=[chunk(1, "1")], vectors=[StoredVector(1, axis(0).tobytes(), 1)]))
    done = threading.Event()
    seen: set[int] = set()

    def look() -> None:
        while not done.is_set():
            with index.reading():
                seen.add(len(index.vector_hits(axis(0), 5, Filter(), no_file)))

    with ThreadPoolExecutor(3) as threads:
        for _ in range(3):
            threads.submit(look)
        for key in range(2, 600):
            vectors = [StoredVector(key, axis(0).tobytes(), key)]
            index.apply(Change(deleted=[key - 1], chunks=[chunk(key, str(key))], vectors=vectors))
        done.set()
    assert seen == {1}


def test_rows_of_many_blocks_come_and_go() -> None:
    index = MemoryIndex()
    keys = range(1, 2 * BLOCK_ROWS + 101)
    vectors = [StoredVector(key, axis(key % 16).tobytes(), key) for key in keys]
    index.apply(Change(documents=[OWNER], chunks=[chunk(key, f"{key:06d}") for key in keys], vectors=vectors))
    kept = keys[::1000]
    index.apply(Change(deleted=[key for key in keys if key not in set(kept)]))
    assert (index.chunks, index.vectors) == (len(kept), len(kept))
    scores = index.cosines(axis(0), [f"{key:06d}" for key in keys], no_file)
    assert scores == {f"{key:06d}": float(key % 16 == 0) for key in kept}
    index.apply(Change(deleted=kept))
    assert index.vector_hits(axis(0), 5, Filter(), no_file) == []
    again = StoredVector(100_000, np.ones(3, np.float32).tobytes(), 100_000)
    index.apply(Change(chunks=[chunk(100_000, "again")], vectors=[again]))
    assert index.dimension == 3


def test_terms_of_deleted_rows_go_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_index, "LEAST_DEAD", 10)
    monkeypatch.setattr(postings, "TAIL", 16)
    index = MemoryIndex()
    index.apply(Change(documents=[OWNER]))
    for key in range(1, 500):
        text = "wolf sheep goat" if key % 3 else "sheep"
        index.apply(Change(deleted=[key - 7], chunks=[chunk(key, f"{key:04d}", text)]))
        hits = index.keyword_hits("wolf sheep", 100, Filter())
        live = [f"{each:04d}" for each in range(max(key - 6, 1), key + 1)]
        assert sorted(ids(hits)) == live
        wolves = [f"{each:04d}" for each in range(max(key - 6, 1), key + 1) if each % 3]
        assert sorted(hit.chunk.id for hit in hits if hit.share == 1.0) == (wolves or live)
        assert len(index._ids) <= 40


@pytest.mark.parametrize("in_memory_bytes", [1 << 30, 0])
async def test_after_any_changes_it_is_what_a_new_process_reads(
    path: Path, monkeypatch: pytest.MonkeyPatch, in_memory_bytes: int
) -> None:
    monkeypatch.setattr(vector_scan, "IN_MEMORY_BYTES", in_memory_bytes)
    monkeypatch.setattr(chunk_index, "LEAST_DEAD", 20)
    monkeypatch.setattr(postings, "TAIL", 64)
    monkeypatch.setattr(postings, "MOST_PIECES", 3)
    rng = np.random.default_rng(5)
    async with open_database(path) as store, open_database(path) as other:
        for step in range(120):
            await change_something(rng, store if rng.integers(2) else other)
            assert len(await store.vectors.search(axis(0), limit=50, where=Filter())) == await embedded(store)
            if step % 10 == 9:
                async with open_database(path) as fresh:
                    expected = await everything(fresh)
                    assert await everything(store) == expected
                    assert await everything(other) == expected


async def embedded(store: SqliteStore) -> int:
    counts = await store.documents.counts()
    return counts.vectors


async def change_something(rng: np.random.Generator, store: SqliteStore) -> None:
    name = str(rng.integers(15))
    thread = "talk" if int(name) % 2 else None
    words = ["wolf", "sheep", "goat", "cow"]
    texts = [" ".join(rng.choice(words, rng.integers(1, 6))) for _ in range(rng.integers(1, 4))]
    each = document(
        name, " ".join(texts), content_type="chat" if thread else "code", thread=thread, timestamp=NOON + minutes(1)
    )
    match rng.integers(6):
        case 0:
            await store.documents.delete(each.id)
        case 1:
            await put(store, each, *texts)
        case 2:
            stored = await store.documents.get(each.id)
            if stored is not None:
                chunks = await store.documents.chunks(each.id)
                vectors = np.stack([axis(int(rng.integers(16))) for _ in chunks])
                await store.documents.attach(each.id, stored.content_hash, vectors)
        case 3 if rng.integers(5) == 0:
            await store.documents.drop_vectors()
        case _:
            await put(store, each, vector=axis(int(rng.integers(16))))


async def everything(store: SqliteStore) -> tuple[object, ...]:
    query = np.linspace(1, 2, 16, dtype=np.float32)
    where = [Filter(), Filter(content_type="chat"), Filter(content_type="code")]
    by_vector = [await store.vectors.search(query, limit=50, where=each) for each in where]
    by_text = [await store.texts.search("wolf cow", limit=50, where=each) for each in where]
    known = [hit.chunk.id for hit in by_text[0]]
    scored = await store.texts.score("wolf cow", refs(*known), tenant=DEFAULT_TENANT)
    assert scored == {hit.chunk.id: hit for hit in by_text[0]}
    near = await store.documents.neighbours(known)
    assert near == neighbours_in(store.database.file.path, known)
    return by_vector, by_text, near


def neighbours_in(path: Path, chunk_ids: list[str]) -> dict[str, Neighbours]:
    """The neighbours by the rows of the file, one by one."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            """SELECT c.id, d.id, c.position, d.content_type, d.thread, d.key FROM chunks AS c
               JOIN documents AS d ON d.key = c.document ORDER BY d.occurred_at, d.key, c.position"""
        ).fetchall()
    found: dict[str, Neighbours] = {}
    for place, (id_, document_id, position, _, thread, _) in enumerate(rows):
        if id_ in chunk_ids:
            both: list[ChunkRef | None] = []
            for step, candidates in ((-1, rows[:place][::-1]), (1, rows[place + 1 :])):
                same = [row for row in candidates if row[1] == document_id and row[2] == position + step]
                turns = [row for row in candidates if thread is not None and row[4] == thread and row[1] != document_id]
                both.append(ChunkRef(*(same or turns)[0][:5]) if same or turns else None)
            found[id_] = Neighbours(*both)
    return found


def best_of(vector: Vector) -> Callable[[IndexSnapshot], list[str]]:
    return lambda at: owners(at.index.vector_hits(vector, 5, Filter(), at.stored_vectors))


def owners(hits: Sequence[VectorHit]) -> list[str]:
    return sorted(hit.chunk.document_id for hit in hits)


async def test_vectors_that_are_newer_than_a_snapshot_are_read_in_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_scan, "IN_MEMORY_BYTES", 0)
    async with open_database(path) as store:
        one, two = sorted((document("1"), document("2")), key=lambda each: each.id)
        await put(store, one, "wolf", vector=axis(0))
        assert owners(await store.vectors.search(axis(0), limit=5, where=Filter())) == [one.id]
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT version FROM totals").fetchone()
            await put(store, two, "sheep", vector=axis(0))
            assert owners(await store.vectors.search(axis(0), limit=5, where=Filter())) == [one.id, two.id]
            assert store.memory._answer(best_of(axis(0)), True, False, connection) is None
            connection.execute("ROLLBACK")
            assert store.memory._answer(best_of(axis(0)), True, False, connection) == ([one.id, two.id],)


async def test_vectors_that_the_file_has_lost_are_no_longer_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_scan, "IN_MEMORY_BYTES", 0)
    async with open_database(path) as store:
        one, two = sorted((document("1"), document("2")), key=lambda each: each.id)
        for each in (one, two):
            await put(store, each, "wolf", vector=axis(0))
        assert owners(await store.vectors.search(axis(0), limit=5, where=Filter())) == [one.id, two.id]
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TRIGGER vectors_removed")
            connection.execute("DELETE FROM vectors WHERE seq = 1")
            connection.commit()
        assert owners(await store.vectors.search(axis(0), limit=5, where=Filter())) == [two.id]


async def found(memory: IndexInMemory, timeout_s: float = 0.1) -> tuple[list[str], bool]:
    """The documents of the best five chunks, and whether the answer is of an earlier state."""
    query = best_of(axis(0))
    return await memory.read(
        lambda at: (query(at), at.is_behind(DEFAULT_TENANT)), needs_vectors=True, timeout_s=timeout_s
    )


async def test_a_search_does_not_wait_for_a_thread_that_applies_much(path: Path) -> None:
    async with open_database(path) as store:
        one, two = sorted((document("1"), document("2")), key=lambda each: each.id)
        await put(store, one, "wolf", vector=axis(0))
        assert await found(store.memory) == ([one.id], False)
        with store.memory._changing:
            await put(store, two, "sheep", vector=axis(0))
            assert await found(store.memory) == ([one.id], True)
            with pytest.raises(TimeoutError):  # keyword search alone has no label for it, and waits
                async with asyncio.timeout(0.3):
                    await store.texts.search("sheep", limit=1, where=Filter())
        assert await found(store.memory) == ([one.id, two.id], False)


async def test_an_answer_is_not_of_an_earlier_state_because_another_tenant_stores_much(path: Path) -> None:
    async with open_database(path) as store:
        one, of_another = document("1"), document("2", tenant=Tenant("other"))
        await put(store, one, "wolf", vector=axis(0))
        assert await found(store.memory) == ([one.id], False)
        with store.memory._changing:
            await put(store, of_another, "sheep", vector=axis(0))
            assert await found(store.memory) == ([one.id], False)
        assert await found(store.memory) == ([one.id], False)


async def test_terms_of_tenants_stay_apart_when_rows_move(path: Path) -> None:
    many, few, other = Tenant("many"), Tenant("few"), Tenant("other")
    async with open_database(path) as store:
        for number in range(8):
            await put(store, document(f"{number}", tenant=few), "wolf", f"sheep {number}")
            await put(store, document(f"{number} of many", tenant=many), *[f"wolf {each}" for each in range(200)])
            await put(store, document(f"{number} of another", tenant=other), "a wolf and a sheep")
        alone = {each: await store.texts.search("wolf sheep 5", limit=50, where=Filter(each)) for each in (few, other)}
        for number in range(8):
            await store.documents.delete(document(f"{number} of many").id)
            for each, before in alone.items():
                assert await store.texts.search("wolf sheep 5", limit=50, where=Filter(each)) == before
        assert await store.texts.search("wolf", limit=50, where=Filter(many)) == []
        assert len(store.memory._followed.index._ids) < 8 * 200  # type: ignore[union-attr]  # they have moved
        await put(store, document("new", tenant=many), "a wolf")
        assert len(await store.texts.search("wolf", limit=50, where=Filter(many))) == 1


async def test_many_new_chunks_are_in_memory_once_they_are_acknowledged(path: Path) -> None:
    async with open_database(path) as store:
        one, many = document("1"), document("2")
        await put(store, one, "wolf", vector=axis(0))
        assert await found(store.memory) == ([one.id], False)
        await put(store, many, *[f"sheep {number}" for number in range(3 * FEW_ROWS)])
        assert await found(store.memory, timeout_s=0.0) == ([one.id], False)
        hits = await store.texts.search("sheep 3071", limit=1, where=Filter())
        assert [hit.chunk.document_id for hit in hits] == [many.id]
        await store.documents.delete(many.id)
        assert await store.texts.search("sheep", limit=1, where=Filter()) == []
        assert await found(store.memory) == ([one.id], False)


KEYS = [0, 1, 2, 7, 1 << 40, (1 << 40) + 1, 1 << 63, (1 << 64) - 1]
"""Some of them differ in their lowest bits alone."""


def of_row(row: int, keys: set[int]) -> bytes:
    return np.array([(key, row % 5 + 1) for key in sorted(keys)], domain_text.STORED_TERMS).tobytes()


@given(batches=st.lists(st.lists(st.sets(st.sampled_from(KEYS)), min_size=1, max_size=9), max_size=12))
def test_postings_are_those_of_the_rows_whatever_the_pieces(batches: list[list[set[int]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "TAIL", 8)
        patch.setattr(postings, "MOST_PIECES", 2)
        patch.setattr(domain_text, "term_key", int)
        index, rows = postings.Postings(), list[set[int]]()
        for batch in batches:
            index.append(len(rows), [of_row(len(rows) + place, keys) for place, keys in enumerate(batch)])
            rows += batch
        for key in KEYS:
            found = [(row, count) for part in index.of(str(key)) for row, count in zip(*part, strict=True)]
            assert found == [(row, row % 5 + 1) for row, keys in enumerate(rows) if key in keys]

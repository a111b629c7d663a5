"""The embedded provider: on disk, shared by processes, and exact whatever has come and gone."""

import asyncio
import contextlib
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.clauses import EVERYTHING, Clause, Comparison, Operator
from rag_context.domain.documents import Json, Status
from rag_context.domain.vectors import Matrix, Vector
from rag_context.domain.where import matches, parse
from rag_context.errors import (
    BackendDataError,
    BackendTimeoutError,
    ConfigurationError,
    InvalidInputError,
    NotFoundError,
)
from rag_context.ports.provider import Collection, Entry, Provider
from rag_context.stores.sqlite.collection_view import FieldColumn
from rag_context.stores.sqlite.collections import REMEMBERED_DELETIONS, SqliteCollections, open_collections
from rag_context.stores.sqlite.embedded import FILE_NAME, begin_empty, open_database
from rag_context.stores.sqlite.loaded_collections import AT_ONCE, IDLE_S, LoadedCollection, LoadedCollections
from rag_context.stores.sqlite.memory.vector_scan import BLOCK_ROWS
from rag_context.testing.fakes import FrozenClock
from tests.collections.strategies import clauses, metadata
from tests.stores.test_quantised_vectors import DIMENSION, small_blocks

NAME = "notes"
ROOT = Path(__file__).parents[2]
TABLES = ("entries", "entry_texts", "entry_vectors", "discarded_collections")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture
async def collections(path: Path) -> AsyncIterator[SqliteCollections]:
    async with open_collections(path) as provider:
        await provider.create(Collection(NAME))
        yield provider


def vectors(count: int) -> Matrix:
    return np.tile(np.array([1.0, 0.0], np.float32), (count, 1))


async def put(provider: Provider, documents: dict[str, dict[str, Json]]) -> None:
    await provider.upsert(NAME, [Entry(id_, id_, values) for id_, values in documents.items()], vectors(len(documents)))


async def found(provider: Provider, where: Clause) -> list[str]:
    page = await provider.entries(NAME, where, limit=100_000)
    assert page.total == len(page.entries)
    hits = await provider.search(NAME, vectors(1)[0], limit=100_000, where=where)
    assert [hit.entry for hit in hits] == list(page.entries)
    return [entry.id for entry in page.entries]


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def put_back(copy: Path, path: Path) -> None:
    """As someone would who restores a backup."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    copy.replace(path)


def raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


class Countdown:
    """Interrupts a statement when it was called so often."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def __call__(self) -> int:
        self._left -= 1
        return int(self._left <= 0)


def rows_left(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES)


async def swept(path: Path) -> None:
    async with asyncio.timeout(30):
        while rows_left(path):
            await asyncio.sleep(0.01)


async def test_it_fits_the_port_and_touches_nothing_before_the_first_call(path: Path) -> None:
    async with open_collections(path) as opened:
        provider: Provider = opened
        assert content(path) is None
        assert await provider.collections() == []
        assert content(path) is not None


async def test_an_impossible_location_is_a_configuration_that_cannot_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="data directory"):
        async with open_collections(tmp_path / "file" / FILE_NAME):
            raise AssertionError("it was opened")


async def test_what_one_has_acknowledged_the_other_finds(collections: SqliteCollections, path: Path) -> None:
    async with open_collections(path) as other:
        await put(collections, {"a": {"n": 1}, "b": {"n": 1}})
        assert await found(other, parse({"n": 1})) == ["a", "b"]
        await put(other, {"c": {"n": 1}, "a": {"n": 2}})
        assert await found(collections, parse({"n": 1})) == ["b", "c"]
        await collections.delete(NAME, "b")
        assert await found(other, parse({"n": 1})) == ["c"]
        await other.merge_metadata(NAME, {"said": "by the other"})
        await other.empty(NAME)
        assert await found(collections, parse({"n": 1})) == []
        await collections.drop(NAME)
        with pytest.raises(NotFoundError):
            await found(other, parse({"n": 1}))


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdef"), metadata()),
        st.tuples(st.just("delete"), st.sampled_from("abcdef"), st.just({})),
        st.tuples(st.just("empty"), st.just(""), st.just({})),
        st.tuples(st.just("ask"), st.just(""), st.just({})),
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS, wheres=st.lists(clauses(), min_size=1, max_size=3))
async def test_whatever_came_and_went_two_of_them_agree_with_a_dictionary(
    collections: SqliteCollections, path: Path, steps: list[tuple[str, str, dict[str, Json]]], wheres: list[Clause]
) -> None:
    await collections.empty(NAME)
    model: dict[str, dict[str, Json]] = {}
    async with open_collections(path) as other:
        for number, (verb, id_, values) in enumerate([*steps, ("ask", "", {})]):
            provider = (collections, other)[number % 2]
            if verb == "put":
                model[id_] = values
                await put(provider, {id_: values})
            elif verb == "delete":
                assert await provider.delete(NAME, id_) is (model.pop(id_, None) is not None)
            elif verb == "empty":
                assert await provider.empty(NAME) == len(model)
                model.clear()
            else:
                for where in wheres:
                    expected = sorted(id_ for id_, values in model.items() if matches(where, values))
                    assert await found(provider, where) == expected


async def test_half_of_a_large_collection_is_deleted_at_once(collections: SqliteCollections) -> None:
    """V-7: a hundred thousand documents; a statement for each of them took more than a minute, and was given up."""
    ids = [f"{number:06d}" for number in range(100_000)]
    await collections.empty(NAME)
    await collections.upsert(NAME, [Entry(id_, id_, {}) for id_ in ids], np.ones((len(ids), 128), dtype=np.float32))
    async with asyncio.timeout(30.0):
        assert await collections.delete_many(NAME, ids[::2], EVERYTHING) == len(ids) / 2
    assert (await collections.entries(NAME, EVERYTHING, limit=1, offset=0)).total == len(ids) / 2


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(st.sampled_from(["put", "put", "delete"]), max_size=12),
    in_memory=st.sampled_from([1000, 30, 0]),
)
async def test_the_nearest_are_those_of_multiplying_every_vector(
    collections: SqliteCollections, seed: int, steps: list[str], in_memory: int
) -> None:
    await collections.empty(NAME)
    rng, model = np.random.default_rng(seed), dict[str, Vector]()
    with small_blocks(in_memory):
        for step in ["put", *steps]:
            some = [f"{number:03d}" for number in rng.choice(200, 25, replace=False).tolist()]
            if step == "put":
                rows = rng.standard_normal((len(some), DIMENSION), dtype=np.float32)
                await collections.upsert(NAME, [Entry(id_, id_, {"last": id_[-1]}) for id_ in some], rows)
                model.update(zip(some, rows, strict=True))
            else:
                await collections.delete_many(NAME, some, EVERYTHING)
                model = {id_: row for id_, row in model.items() if id_ not in some}
            query = rng.standard_normal(DIMENSION, dtype=np.float32)
            for where, last in ((EVERYTHING, ""), (parse({"last": "3"}), "3")):
                scored = [(-float(np.vecdot(row, query)), id_) for id_, row in model.items() if id_.endswith(last)]
                hits = await collections.search(NAME, query, limit=7, where=where)
                assert [(-hit.cosine, hit.entry.id) for hit in hits] == sorted(scored)[:7]


async def test_keyword_scores_of_the_best_and_of_others(collections: SqliteCollections) -> None:
    assert await collections.keyword_scores(NAME, "wolf", EVERYTHING, limit=3) == {}
    entries = [Entry(id_, text, {}) for id_, text in (("c", "wolf"), ("a", "wolf"), ("b", "wolf wolf"), ("d", "owl"))]
    await collections.upsert(NAME, entries, vectors(4))

    async def scored(limit: int, *also: str) -> list[str]:
        return list(await collections.keyword_scores(NAME, "wolf", EVERYTHING, limit=limit, also=also))

    assert await scored(3) == await scored(9) == ["b", "a", "c"]
    assert await scored(2) == ["b", "a"]
    assert await scored(1, "c", "d", "unknown") == ["b", "c"]
    assert await scored(0, "a") == ["a"]
    await collections.delete(NAME, "b")
    assert await scored(3, "b") == ["a", "c"]


async def test_rows_of_many_blocks_come_and_go(collections: SqliteCollections) -> None:
    names = [f"{number:05d}" for number in range(2 * BLOCK_ROWS + 100)]
    await put(collections, {name: {"n": int(name) % 7, "unique": name} for name in names})
    assert await found(collections, parse({"n": 3})) == names[3::7]
    gone = names[5::3]
    await asyncio.gather(*(collections.delete(NAME, name) for name in gone))
    kept = sorted(set(names) - set(gone))
    assert await found(collections, parse({"n": 3})) == [name for name in kept if int(name) % 7 == 3]
    assert await found(collections, parse({"unique": {"$gte": names[9000]}})) == [n for n in kept if n >= names[9000]]
    page = await collections.entries(NAME, parse({"n": {"$ne": None}}), limit=3, offset=5000)
    assert [entry.id for entry in page.entries] == kept[5000:5003]
    assert page.total == len(kept)


async def test_one_that_is_far_behind_reloads(collections: SqliteCollections, path: Path) -> None:
    async with open_collections(path) as other:
        await put(other, {name: {"n": 1} for name in "abc"})
        assert await found(other, parse({"n": 1})) == ["a", "b", "c"]
        await collections.delete(NAME, "b")
        await put(collections, {"d": {"n": 1}})
        with closing(raw(path)) as connection:
            connection.execute("DELETE FROM entry_deletions")
        assert await found(other, parse({"n": 1})) == ["a", "c", "d"]


async def test_all_of_an_upsert_is_seen_or_nothing_of_it(collections: SqliteCollections) -> None:
    names = [f"{number:03d}" for number in range(300)]
    seen: set[tuple[Json, ...]] = set()
    await put(collections, {name: {"edition": 0} for name in names})

    async def write() -> None:
        for edition in range(1, 20):
            await put(collections, {name: {"edition": edition} for name in names})

    async def read() -> None:
        while not writing.done():
            page = await collections.entries(NAME, parse({"edition": {"$exists": True}}), limit=1000)
            assert len(page.entries) == page.total == len(names)
            seen.add(tuple({entry.metadata["edition"] for entry in page.entries}))
            hits = await collections.search(NAME, vectors(1)[0], limit=1000, where=parse({"edition": {"$gte": 0}}))
            seen.add(tuple({hit.entry.metadata["edition"] for hit in hits}))

    writing = asyncio.create_task(write())
    await asyncio.gather(read(), read(), writing)
    assert all(len(editions) == 1 for editions in seen)


async def test_what_is_rejected_changes_nothing(collections: SqliteCollections) -> None:
    await put(collections, {"a": {"n": 1}})
    with pytest.raises(InvalidInputError, match=r"^The id 'x' is given twice\.$"):
        await collections.upsert(NAME, [Entry("x", ""), Entry("y", ""), Entry("x", "")], vectors(3))
    with pytest.raises(InvalidInputError, match=r"^Collection 'notes' holds vectors of 2 dimensions, not of 3$"):
        await collections.upsert(NAME, [Entry("a", "changed"), Entry("z", "")], np.ones((2, 3), np.float32))
    assert await found(collections, EVERYTHING) == ["a"]
    assert await found(collections, parse({"n": 1})) == ["a"]


async def test_what_is_dropped_or_emptied_leaves_no_row_behind(collections: SqliteCollections, path: Path) -> None:
    await put(collections, {f"{number}": {} for number in range(1200)})
    await collections.empty(NAME)
    await swept(path)
    await put(collections, {f"{number}": {} for number in range(700)})
    await collections.drop(NAME)
    await swept(path)


async def test_what_was_not_swept_is_swept_after_the_next_opening(path: Path) -> None:
    async with open_collections(path) as provider:
        await provider.create(Collection(NAME))
        await put(provider, {f"{number}": {"n": 1} for number in range(3000)})
        assert await provider.empty(NAME) == 3000
    assert rows_left(path) > 0
    async with open_collections(path) as provider:
        assert await found(provider, EVERYTHING) == await found(provider, parse({"n": 1})) == []
        await swept(path)


async def test_documents_and_collections_share_the_file_and_not_the_version(path: Path) -> None:
    async with open_database(path) as store, open_collections(path) as collections:
        await store.documents.ping()
        before = store.documents.version
        await collections.create(Collection(NAME))
        await put(collections, {"a": {"n": 1}})
        await store.documents.ping()
        assert store.documents.version == before
        assert await found(collections, parse({"n": 1})) == ["a"]
        assert (await store.documents.counts()).documents == 0


async def test_a_question_that_was_given_up_delays_no_other_answer(collections: SqliteCollections) -> None:
    await put(collections, {f"{number:05d}": {"n": number} for number in range(10_000)})
    for _ in range(5):
        asked = asyncio.create_task(collections.entries(NAME, parse({"n": {"$gte": 0}}), limit=1))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait({asked})
    page = await collections.entries(NAME, parse({"n": {"$gte": 9_999}}), limit=10)
    assert [entry.id for entry in page.entries] == ["09999"]


async def test_what_an_interrupted_reader_has_begun_is_no_answer_to_an_older_snapshot(
    collections: SqliteCollections, path: Path
) -> None:
    where = parse({"n": {"$exists": True}})

    def total(connection: sqlite3.Connection) -> int | None:
        key, version = connection.execute("SELECT key, version FROM collections").fetchone()
        assert key == 1
        answer = loaded.read(version, [("n",)], lambda view: view.matching(where, 0, 0)[1], connection)
        return None if answer is None else answer[0]

    loaded, steps = LoadedCollection(1), 3 * AT_ONCE
    await put(collections, {f"{number:05d}": {"n": 0} for number in range(AT_ONCE)})
    with closing(raw(path)) as older, closing(raw(path)) as newer:
        older.execute("BEGIN")
        assert total(older) == AT_ONCE
        await put(collections, {f"{number:05d}": {"n": 1} for number in range(AT_ONCE, steps)})
        newer.execute("BEGIN")
        for rounds in range(1, 60):
            newer.set_progress_handler(Countdown(rounds), 5_000)
            with contextlib.suppress(sqlite3.OperationalError):
                assert total(newer) == steps
            newer.set_progress_handler(None, 0)
            assert total(older) in (AT_ONCE, None)
        assert total(newer) == steps


async def test_a_killed_process_loses_nothing_acknowledged_and_keeps_nothing_partial(path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.collections.provider_process", str(path), NAME, stdout=PIPE, cwd=ROOT
    )
    assert child.stdout is not None
    async with asyncio.timeout(60):
        for _ in range(30):
            await child.stdout.readline()
    child.kill()
    acknowledged = 30 + len((await child.stdout.read()).split(b"\n")[:-1])
    await child.wait()
    async with open_collections(path) as provider:
        batches = await provider.values(NAME, ("batch",))
        assert set(range(acknowledged)) <= set(batches)
        for batch in (0, acknowledged - 1, len(batches) - 1):
            page = await provider.entries(NAME, parse({"batch": batch}), limit=100)
            assert page.total == len(page.entries) == 20


async def test_a_file_of_another_format_is_reported_and_left_alone(path: Path) -> None:
    fill(path, b"no database" * 1000)
    async with open_collections(path) as provider:
        with pytest.raises(BackendDataError, match="not a usable rag-context database"):
            await provider.collections()
        health = await provider.health()
        assert (health.status, health.collections) == (Status.UNAVAILABLE, None)
        assert "not a usable" in (health.error or "")
    assert content(path) == b"no database" * 1000


async def test_a_locked_file_is_read_and_rejects_what_cannot_be_stored(path: Path) -> None:
    async with open_collections(path, lock_timeout_s=0.1) as provider:
        await provider.create(Collection(NAME))
        with closing(raw(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(BackendTimeoutError, match="nothing was stored"):
                await put(provider, {"a": {}})
            assert await found(provider, EVERYTHING) == []
            connection.execute("ROLLBACK")
        await put(provider, {"a": {}})
        assert await found(provider, EVERYTHING) == ["a"]


async def test_another_file_in_its_place_is_noticed(collections: SqliteCollections, path: Path) -> None:
    await put(collections, {"a": {"n": 1}})
    assert await found(collections, parse({"n": 1})) == ["a"]
    for file in path.parent.iterdir():
        file.unlink()
    begin_empty(path)
    await collections.create(Collection(NAME))
    assert await found(collections, parse({"n": 1})) == []
    await put(collections, {"b": {"n": 1}})
    assert await found(collections, parse({"n": 1})) == ["b"]


async def test_an_older_copy_of_the_file_in_its_place_is_noticed(collections: SqliteCollections, path: Path) -> None:
    await put(collections, {"a": {"n": 1}})
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(path.with_name("copy"))) as copy:
        connection.backup(copy)
    for name in "bcdefgh":
        await put(collections, {name: {"n": 1}})
    assert await found(collections, parse({"n": 1})) == list("abcdefgh")
    put_back(path.with_name("copy"), path)
    async with asyncio.timeout(30):
        while (await collections.entries(NAME, parse({"n": 1}), limit=1)).total != 1:
            await asyncio.sleep(0.01)
    assert await found(collections, parse({"n": 1})) == ["a"]


async def test_vectors_of_different_lengths_are_reported_as_damaged(collections: SqliteCollections, path: Path) -> None:
    await put(collections, {"a": {}, "b": {}})
    with closing(raw(path)) as connection:
        connection.execute("UPDATE entry_vectors SET vector = zeroblob(12) WHERE entry = 2")
    with pytest.raises(BackendDataError, match="differ in length"):
        await found(collections, parse({"n": None}))


async def test_vectors_that_the_file_has_lost_are_reported(collections: SqliteCollections, path: Path) -> None:
    with small_blocks(in_memory=0):
        await put(collections, {"a": {}, "b": {}})
        assert await found(collections, EVERYTHING) == ["a", "b"]
        with closing(raw(path)) as connection:
            connection.execute("DELETE FROM entry_vectors WHERE entry = 1")
        with pytest.raises(BackendDataError, match="were lost"):
            await found(collections, EVERYTHING)


async def test_the_list_of_deletions_does_not_grow_for_ever(collections: SqliteCollections, path: Path) -> None:
    await put(collections, {"a": {}, "b": {}})
    with closing(raw(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO entry_deletions (collection, id) VALUES (7, ?)",
            [(str(n),) for n in range(3 * REMEMBERED_DELETIONS)],
        )
        connection.execute("COMMIT")
        assert await collections.delete(NAME, "b")
        (left,) = connection.execute("SELECT count(*) FROM entry_deletions").fetchone()
    assert left == REMEMBERED_DELETIONS
    assert await found(collections, parse({"n": None})) == ["a"]


async def test_health_counts_what_there_is(collections: SqliteCollections) -> None:
    before = await collections.health()
    await collections.create(Collection("other"))
    await put(collections, {f"{number}": {"text": "x" * 1000} for number in range(200)})
    after = await collections.health()
    assert (before.status, before.collections, after.collections) == (Status.HEALTHY, 1, 2)
    assert before.storage_bytes is not None
    assert after.storage_bytes is not None
    assert after.storage_bytes > before.storage_bytes + 100_000


def test_collections_leave_the_memory_when_they_are_gone_or_long_unused() -> None:
    clock = FrozenClock()
    memory = LoadedCollections(clock)
    first, second = memory.of(1, 0), memory.of(2, 0)
    assert memory.of(1, 0) is first
    memory.keep_only({1})
    assert memory.of(2, 0) is not second
    clock.advance(IDLE_S + 1)
    kept = memory.of(2, 0)
    memory.keep_only({1, 2})
    assert memory.of(2, 0) is kept
    assert memory.of(1, 0) is not first
    assert memory.of(2, 1) is not kept


def test_a_field_whose_values_have_mostly_gone_says_so() -> None:
    column = FieldColumn()
    for number in range(3000):
        column.append([f"value {number}"])
        if number:
            column.move_last_to(0)
    assert column.compared(Operator.EQUAL, "value 2999").tolist() == [True]
    assert column.has_mostly_unused_values
    assert column.distinct() == ["value 2999"]
    assert column.compared(Operator.GREATER, "value 0").tolist() == [True]


async def test_fields_beyond_those_cached_are_read_again(collections: SqliteCollections) -> None:
    fields: dict[str, Json] = {f"f{number}": number for number in range(100)}
    await put(collections, {"a": fields, "b": {}})
    for _ in range(2):
        for field, value in fields.items():
            assert await found(collections, Comparison((field,), Operator.EQUAL, value)) == ["a"]  # type: ignore[arg-type]

"""The embedded store on files that are broken, locked, full, foreign or gone."""

import asyncio
import itertools
import sqlite3
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from traceback import format_exception

import pytest

from rag_context.domain.search import Filter
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
)
from rag_context.stores.sqlite.database_file import DatabaseFile
from rag_context.stores.sqlite.embedded import SqliteStore, begin_empty, open_database
from rag_context.stores.sqlite.migration import bring_up_to_date, file_problem
from tests.stores.builders import NOON, Stores, axis, document, ids, minutes, put

CALLS: dict[str, Callable[[Stores], Awaitable[object]]] = {
    "counts": lambda store: store.documents.counts(),
    "get": lambda store: store.documents.get("x"),
    "write": lambda store: put(store, document("a"), vector=axis(0)),
    "vector search": lambda store: store.vectors.search(axis(0), limit=5, where=Filter()),
    "text search": lambda store: store.texts.search("word", limit=5, where=Filter()),
    "metrics": lambda store: store.metrics.summarise(NOON, NOON + minutes(1), 1),
    "ping": lambda store: store.documents.ping(),
    "vector ping": lambda store: store.vectors.ping(),
}


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    try:
        yield connection
    finally:
        connection.close()


def fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def content(path: Path) -> bytes:
    return path.read_bytes()


def take_away(path: Path) -> None:
    """The file, its log and its index: as someone would who clears a data directory."""
    for file in path.parent.iterdir():
        file.unlink()


def damage(path: Path) -> None:
    """All pages but the first two."""
    kept = path.read_bytes()
    path.write_bytes(kept[: 2 * 8192] + b"\xa5" * (len(kept) - 2 * 8192))


async def works(store: Stores) -> None:
    chunk_ids = await put(store, document("fox", "a fox"), vector=axis(1))
    assert ids(await store.vectors.search(axis(1), limit=1, where=Filter())) == chunk_ids
    assert ids(await store.texts.search("fox", limit=1, where=Filter())) == chunk_ids


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_garbage_is_reported_by_every_port_and_left_alone(
    path: Path, call: Callable[[Stores], Awaitable[object]]
) -> None:
    garbage = b"this is not a database, it is a letter to my aunt\n" * 400
    fill(path, garbage)
    async with open_database(path) as store:
        with pytest.raises(BackendDataError, match=r"rag-context\.db"):
            await call(store)
    assert content(path) == garbage


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_another_programs_database_is_left_alone(path: Path, call: Callable[[Stores], Awaitable[object]]) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = content(path)
    async with open_database(path) as store:
        with pytest.raises(BackendDataError, match="another program"):
            await call(store)
    assert content(path) == before


def test_the_head_of_a_file_shows_what_is_wrong_without_opening_it(path: Path) -> None:
    assert file_problem(path) is None
    path.write_bytes(b"")
    assert file_problem(path) is None
    with raw(path) as connection:
        connection.execute("CREATE TABLE some (thing)")
        connection.execute("PRAGMA user_version = 1")
    assert file_problem(path) is None
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 9000")
    assert file_problem(path) == "was written by a newer rag-context (schema 9000)"
    with raw(path) as connection:
        connection.execute("PRAGMA application_id = 7")
    assert file_problem(path) == "is another program's database"
    path.write_bytes(path.read_bytes()[:-1])
    assert file_problem(path) == "is truncated"
    path.write_bytes(path.read_bytes()[:50])
    assert file_problem(path) == "is truncated"
    path.write_bytes(b"no database" * 100)
    assert file_problem(path) == "is damaged, or no database"


async def test_a_file_of_a_newer_version_says_to_upgrade(path: Path) -> None:
    async with open_database(path) as store:
        await works(store)
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 9000")
    async with open_database(path) as store:
        with pytest.raises(BackendDataError, match="upgrade"):
            await store.documents.counts()


async def test_a_store_on_garbage_works_once_the_garbage_is_gone(path: Path) -> None:
    fill(path, b"garbage" * 1000)
    async with open_database(path) as store:
        for call in CALLS.values():
            with pytest.raises(BackendDataError):
                await call(store)
        take_away(path)
        await store.documents.ping()
        await works(store)


async def test_an_empty_file_is_a_new_database(path: Path) -> None:
    fill(path, b"")
    async with open_database(path) as store:
        await works(store)


async def test_a_locked_file_is_reported_and_used_as_soon_as_it_is_free(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"), vector=axis(0))
    with raw(path) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE totals SET version = version + 1")
        async with open_database(path, lock_timeout_s=0.1) as store:
            for call in CALLS.values():
                with pytest.raises(BackendTimeoutError, match=r"locked|writing"):
                    await call(store)
            other.execute("ROLLBACK")
            other.close()
            await works(store)


async def test_a_writer_elsewhere_holds_up_writes_but_not_reads(path: Path) -> None:
    async with open_database(path, lock_timeout_s=0.1) as store:
        await works(store)
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(BackendTimeoutError, match="nothing was stored"):
                await put(store, document("b"), vector=axis(2))
            assert (await store.documents.counts()).documents == 1
            assert len(await store.texts.search("fox", limit=1, where=Filter())) == 1
            other.execute("ROLLBACK")
        await put(store, document("b"), vector=axis(2))
        assert (await store.documents.counts()).documents == 2


async def test_a_write_waits_for_a_writer_elsewhere(path: Path) -> None:
    async with open_database(path, lock_timeout_s=30) as store:
        await works(store)
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(put(store, document("b"), vector=axis(2)))
            await store.documents.counts()
            assert not writing.done()
            other.execute("COMMIT")
        await writing
        assert (await store.documents.counts()).documents == 2


@pytest.mark.parametrize("place", ["file/inside.db", "directory"])
async def test_a_path_that_can_never_work_is_a_mistake_of_configuration(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    with pytest.raises(ConfigurationError, match="choose another"):
        async with open_database(tmp_path / place):
            pass


async def test_a_location_where_nothing_can_be_created_is_a_configuration_mistake() -> None:
    with pytest.raises(ConfigurationError, match="cannot be"):
        async with open_database(Path("/proc/self/rag-context/rag-context.db")):
            pass


async def test_directories_are_made_and_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where #1 ?%41" / "rag-context.db"
    async with open_database(path) as store:
        await works(store)
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {0o600}


async def _limit_pages(store: SqliteStore, more: int | None) -> None:
    """Let the writer's file grow by no more than so many pages, or freely again."""

    def limit(connection: sqlite3.Connection) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {2**31 if more is None else pages + more}")

    await store.database.write(limit)


async def test_a_full_disk_rejects_what_does_not_fit_and_keeps_what_was_acknowledged(path: Path) -> None:
    async with open_database(path) as store:
        await works(store)
        await _limit_pages(store, 60)
        documents = [document(f"number {number}", f"unique{number} " + "padding " * 900) for number in range(60)]
        results = await asyncio.gather(
            *(put(store, each, vector=axis(number % 16)) for number, each in enumerate(documents)),
            return_exceptions=True,
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        assert failures
        assert len(failures) < len(documents)
        for failure in failures:
            assert isinstance(failure, BackendUnavailableError)
            assert "No space left" in str(failure)
        for number, (each, result) in enumerate(zip(documents, results, strict=True)):
            stored = not isinstance(result, BaseException)
            found = await store.texts.search(f"unique{number}", limit=5, where=Filter())
            assert (await store.documents.get(each.id) is not None) is stored
            assert len(found) == int(stored)
        counts = await store.documents.counts()
        assert counts.documents == counts.vectors == 1 + len(documents) - len(failures)
        await _limit_pages(store, None)
        await put(store, documents[-1], vector=axis(0))
        assert await store.documents.get(documents[-1].id) == documents[-1]


async def test_a_replacement_that_does_not_fit_leaves_the_old_version(path: Path) -> None:
    async with open_database(path) as store:
        await works(store)
        await _limit_pages(store, 5)
        with pytest.raises(BackendUnavailableError, match="No space left"):
            await put(store, document("fox", "a dog " + "padding " * 20_000), vector=axis(2))
        assert await store.documents.get(document("fox").id) == document("fox", "a fox")
        assert len(await store.vectors.search(axis(1), limit=5, where=Filter())) == 1
        assert len(await store.texts.search("fox", limit=5, where=Filter())) == 1


async def test_damaged_pages_are_reported_and_not_returned(path: Path) -> None:
    async with open_database(path) as store:
        for number in range(50):
            await put(store, document(str(number), f"word{number} " + "padding " * 200), vector=axis(number % 16))
    damage(path)
    async with open_database(path) as store:
        for call in CALLS.values():
            with pytest.raises(BackendDataError):
                await call(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents SET extra = 'secret {' WHERE key = 1",
        "UPDATE documents SET timestamp = 'secret' WHERE key = 1",
        "UPDATE documents SET timestamp = 1 << 62 WHERE key = 1",
        "UPDATE documents SET title = CAST(x'ff' || 'secret' AS TEXT) WHERE key = 1",
    ],
)
async def test_a_damaged_document_is_a_rag_context_error_and_hides_no_other_document(
    path: Path, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_database(path) as store:
        (damaged,) = await put(store, document("fox", "a fox"), vector=axis(1))
        (whole,) = await put(store, document("wolf", "a wolf"), vector=axis(2))
    with raw(path) as connection:
        connection.execute(statement)
    async with open_database(path) as store:
        assert list(await store.documents.passages([damaged, whole])) == [whole]
        with pytest.raises(BackendDataError, match="rag-context check") as raised:
            await store.documents.get(document("fox").id)
        assert "secret" not in "".join(format_exception(raised.value))
        assert await store.documents.get(document("wolf").id) is not None
        assert ids(await store.texts.search("wolf", limit=5, where=Filter())) == [whole]
    assert damaged in caplog.text


async def test_a_damaged_document_alone_is_left_out_until_it_is_written_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_database(path) as store:
        await put(store, document("fox", "a fox"), vector=axis(1))
        await put(store, document("wolf", "a wolf"), vector=axis(2))
    with raw(path) as connection:
        connection.execute("UPDATE documents SET session_id = x'00' WHERE key = 2")
        connection.execute("UPDATE passages SET terms = 'none' WHERE chunk = 1")
    async with open_database(path) as store:
        assert len(await store.vectors.search(axis(1), limit=5, where=Filter())) == 1
        assert await store.texts.search("fox wolf", limit=5, where=Filter()) == []
        assert "damaged and left out; run `rag-context check`" in caplog.text
        await put(store, document("wolf", "a wolf"), vector=axis(2))
        assert len(await store.vectors.search(axis(1), limit=5, where=Filter())) == 2
        assert len(await store.texts.search("fox wolf", limit=5, where=Filter())) == 1


async def test_a_vector_of_another_dimension_stops_vector_search_alone_until_it_is_replaced(path: Path) -> None:
    async with open_database(path) as store:
        whole = await put(store, document("fox", "a fox"), vector=axis(1))
        await put(store, document("wolf", "a wolf"), vector=axis(2))
        with raw(path) as connection:
            connection.execute("UPDATE vectors SET vector = x'00000000' WHERE chunk = 2")
    async with open_database(path) as store:
        with pytest.raises(BackendDataError, match="rag-context check"):
            await store.vectors.search(axis(1), limit=5, where=Filter())
        assert ids(await store.texts.search("fox", limit=5, where=Filter())) == whole
        await put(store, document("goat", "a goat"), vector=axis(3))
        assert len(await store.texts.search("goat", limit=5, where=Filter())) == 1
        await put(store, document("wolf", "a wolf"), vector=axis(2))
        assert len(await store.vectors.search(axis(1), limit=5, where=Filter())) == 3


async def test_damaged_numbers_of_a_chunk_leave_it_out_alone(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("fox", "a fox"), vector=axis(1))
        whole = await put(store, document("wolf", "a wolf"), vector=axis(2))
    with raw(path) as connection:
        connection.execute("UPDATE chunks SET position = 'first' WHERE key = 1")
    async with open_database(path) as store:
        assert ids(await store.texts.search("fox wolf", limit=5, where=Filter())) == whole
        assert ids(await store.vectors.search(axis(1), limit=5, where=Filter())) == whole


async def test_a_file_that_was_taken_away_is_missed_until_an_empty_one_is_begun_on_purpose(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("before", "before"), vector=axis(0))
        version = store.documents.version
        take_away(path)
        with pytest.raises(BackendDataError, match=r"missing, but it had 1 document; restore .*--start-empty"):
            await put(store, document("after", "after"), vector=axis(1))
        assert not list(path.parent.glob(path.name))
        begin_empty(path)
        await put(store, document("after", "after"), vector=axis(1))
        assert store.documents.version > version
        assert len(await store.vectors.search(axis(0), limit=5, where=Filter())) == 1
        assert (await store.documents.counts()).documents == 1
        async with open_database(path) as other:
            assert await other.documents.get(document("after").id) is not None


def test_a_connection_to_another_file_in_its_place_outdates_the_older_ones(path: Path) -> None:
    """Or one reader would answer from the new file while another still has the old one open."""
    file = DatabaseFile(path)
    older = DatabaseFile(path.with_name("older"))
    with closing(file.open_reader()[0]), closing(older.open_reader()[0]):
        generation = file.generation
    older.path.replace(path)
    with closing(file.open_reader()[0]):
        assert file.generation == generation + 1
    with closing(file.open_reader()[0]):
        assert file.generation == generation + 1


async def test_a_cancelled_read_gives_its_thread_back(path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"

    def read_for_ever(connection: sqlite3.Connection) -> None:
        connection.execute(endless).fetchone()

    async with open_database(path) as store:
        await store.documents.counts()
        for _ in range(8):
            reading = asyncio.create_task(store.database.read(read_for_ever))
            await asyncio.sleep(0.02)
            reading.cancel()
        await works(store)


async def test_a_closed_store_says_that_it_is_closed(path: Path) -> None:
    async with open_database(path) as store:
        await works(store)
    for call in CALLS.values():
        with pytest.raises(BackendUnavailableError, match="closed"):
            await call(store)


async def test_text_that_no_file_can_contain_is_rejected(path: Path) -> None:
    async with open_database(path) as store:
        with pytest.raises(BackendError, match="cannot store"):
            await put(store, document("a", "half a pair: \ud800"), "its chunk")
        await works(store)


@pytest.mark.parametrize("moment", range(4))
def test_a_file_that_another_process_creates_meanwhile_is_used(path: Path, moment: int) -> None:
    """Whichever statement of the look at it comes after the file was made."""
    statements = itertools.count()
    with closing(sqlite3.connect(path, isolation_level=None)) as looking:

        def received(_statement: str) -> None:
            if next(statements) == moment:
                with closing(DatabaseFile(path).writer()):
                    pass

        looking.set_trace_callback(received)
        bring_up_to_date(looking, path)
    assert next(statements) > 0

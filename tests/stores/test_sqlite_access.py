"""The embedded store where the file may not be written, is gone for a while, or must be tried; and its mark."""

import errno
import json
import sqlite3
from pathlib import Path

import pytest

from rag_context.errors import BackendTimeoutError, BackendUnavailableError, ConfigurationError, LostIndexError
from rag_context.stores.sqlite.database_file import DatabaseFile
from rag_context.stores.sqlite.embedded import begin_empty, open_auditor, open_database
from rag_context.stores.sqlite.faults import is_fault, translated
from rag_context.stores.sqlite.mark import RETRY_S, IndexMark, IndexSize
from rag_context.testing import FrozenClock
from tests.stores.builders import axis, document, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "rag-context.db"


def rewrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def remove(path: Path) -> None:
    path.unlink()


def mark_of(path: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads(path.with_name("rag-context.db.json").read_text())
    return found


async def test_a_trial_write_changes_nothing_of_the_index(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"), vector=axis(0))
        version = store.documents.version
        await store.documents.try_write()
        assert store.documents.version == version


async def test_after_a_rejected_write_a_small_one_that_fits_proves_nothing(path: Path) -> None:
    async with open_database(path) as store:
        pages = await store.database.write(lambda writer: writer.execute("PRAGMA page_count").fetchone()[0])
        await store.database.write(lambda writer: writer.execute(f"PRAGMA max_page_count = {pages + 20}").fetchone())
        with pytest.raises(BackendUnavailableError, match="No space left"):
            await store.database.write(lambda writer: writer.execute("CREATE TABLE t AS SELECT zeroblob(1000000) AS x"))
        for _ in range(2):
            with pytest.raises(BackendUnavailableError, match="No space left"):
                await store.documents.try_write()
        await store.database.write(lambda writer: writer.execute("PRAGMA max_page_count = 1000000").fetchone())
        await store.documents.try_write()


async def test_a_writer_in_another_process_is_reported_as_one(path: Path) -> None:
    async with open_database(path, lock_timeout_s=0.2) as store:
        await store.documents.try_write()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendTimeoutError, match="Another process has been writing"):
            await store.documents.try_write()
        other.close()
        await store.documents.try_write()


async def test_a_disk_that_is_nearly_full_is_reported_before_it_is_full(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_database(path) as store:
        await store.documents.try_write()
        monkeypatch.setattr("rag_context.stores.sqlite.database_file.LEAST_FREE_BYTES", 1 << 60)
        with pytest.raises(BackendUnavailableError, match=r"No more than \d+ KiB are left"):
            await store.documents.try_write()


async def test_a_directory_that_is_moved_away_is_missed_not_made_and_used_when_it_is_back(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"), vector=axis(0))
        path.parent.rename(path.parent.with_name("away"))
        for _ in range(2):
            with pytest.raises(BackendUnavailableError, match=r"data directory .* is gone; put it back"):
                await put(store, document("b"), vector=axis(1))
        path.parent.with_name("away").rename(path.parent)
        await put(store, document("b"), vector=axis(1))
        assert (await store.documents.counts()).documents == 2


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EACCES, errno.ENOSPC, errno.ENOENT])
def test_what_the_file_system_rejects_is_a_rag_context_error(code: int, path: Path) -> None:
    error = OSError(code, "refused")
    assert is_fault(error)
    assert isinstance(translated(error, path), BackendUnavailableError)


async def test_an_emptied_file_is_noticed_by_every_process_that_opens_it(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"), vector=axis(0))
    rewrite(path, b"")
    async with open_database(path) as store:
        with pytest.raises(LostIndexError, match="is empty, but it had 1 document;"):
            await store.documents.counts()
    remove(path)
    async with open_auditor(path):
        pass
    rewrite(path.with_name("rag-context.db-wal"), b"what is left")
    assert str(begin_empty(path)) == "1 document"
    assert path.with_name("rag-context.db-wal.lost").read_bytes() == b"what is left"
    with pytest.raises(ConfigurationError, match="is not empty"):
        begin_empty(path)
    async with open_database(path) as store:
        assert (await store.documents.counts()).documents == 0


async def test_an_index_that_was_emptied_by_its_users_may_go(path: Path) -> None:
    async with open_database(path) as store:
        await put(store, document("a"), vector=axis(0))
        await store.documents.delete(document("a").id)
    assert mark_of(path) == {"documents": 0, "collections": 0}
    remove(path)
    async with open_database(path) as store:
        assert (await store.documents.counts()).documents == 0


def test_a_mark_is_written_for_news_only_and_again_later_where_it_could_not_be(tmp_path: Path) -> None:
    clock = FrozenClock()
    mark = IndexMark(tmp_path / "sub" / "mark.json", clock)
    mark.note(IndexSize(1, 0))
    assert mark.last_size() == IndexSize(1, 0)
    (tmp_path / "sub").mkdir()
    mark.note(IndexSize(1, 0))
    assert not mark.path.exists()
    clock.advance(RETRY_S)
    for documents, written in ((1, 1), (2, 1), (3, 3), (6, 3), (7, 7), (3, 3), (0, 0)):
        mark.note(IndexSize(documents, 0))
        assert json.loads(mark.path.read_text())["documents"] == written
    mark.note(IndexSize(0, 2))
    assert str(IndexMark(mark.path).last_size()) == "2 collections"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"documents": "x"}', "\0"])
def test_a_mark_that_cannot_be_read_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "mark.json").write_text(content)
    assert not IndexMark(tmp_path / "mark.json").last_size()


def test_a_location_without_room_for_a_directory_is_no_configuration_mistake(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = DatabaseFile(path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", full)
        file.check_path()
    file.writer().close()
    assert path.exists()

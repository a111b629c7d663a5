"""The table of files: what it remembers, and what becomes of it in bad hands."""

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from rag_context.domain.documents import FileDocument, FileEntry, FileStamp
from rag_context.ports.writing import FileManifest
from rag_context.stores.machine_tables import FILES_NAME, SqliteFileManifest, open_file_manifest


def entry(path: str, *, digest: bytes = b"d", documents: int = 1) -> FileEntry:
    made = tuple(FileDocument(f"{path}#{number}", f"id-{number}", "hash") for number in range(documents))
    return FileEntry(path, FileStamp(1, 2, 3, (1 << 64) - 1), 4, digest, b"recipe", True, made)


def fits(ledger: SqliteFileManifest) -> FileManifest:
    return ledger


def test_what_was_put_in_comes_out(tmp_path: Path) -> None:
    made = [entry("/a"), entry("/b/\N{PILE OF POO}.md", documents=3), entry("/c", documents=0)]
    with open_file_manifest(tmp_path) as ledger:
        fits(ledger).put(made)
    with open_file_manifest(tmp_path) as ledger:
        assert ledger.entries([each.path for each in made] + ["/no"]) == {each.path: each for each in made}


def test_what_is_below_a_place_is_not_what_only_begins_alike(tmp_path: Path) -> None:
    paths = ["/a", "/a.md", "/a/b", "/a/b/c", "/a-b", "/b"]
    with open_file_manifest(tmp_path) as ledger:
        ledger.put([entry(path) for path in paths])

        assert [each.path for each in ledger.below("/a")] == ["/a", "/a/b", "/a/b/c"]
        assert [each.path for each in ledger.below("/")] == sorted(paths)


def test_more_files_than_a_page_are_all_below(tmp_path: Path) -> None:
    with open_file_manifest(tmp_path) as ledger:
        ledger.put([entry(f"/a/{number:05}") for number in range(1203)])

        assert len({each.path for each in ledger.below("/a")}) == 1203


def test_files_are_found_by_what_they_contain(tmp_path: Path) -> None:
    with open_file_manifest(tmp_path) as ledger:
        ledger.put([entry("/a", digest=b"1"), entry("/b", digest=b"1"), entry("/c", digest=b"")])

        assert {each.path for each in ledger.with_digest(b"1", 5)} == {"/a", "/b"}
        assert len(ledger.with_digest(b"1", 1)) == 1
        assert ledger.with_digest(b"", 5) == []


def test_the_latest_entry_counts_and_a_forgotten_one_is_gone(tmp_path: Path) -> None:
    with open_file_manifest(tmp_path) as ledger:
        ledger.put([entry("/a"), entry("/b")])
        ledger.put([entry("/a", digest=b"2")])
        ledger.forget(["/b", "/no"])

        assert [each.digest for each in ledger.below("/")] == [b"2"]


def test_two_processes_may_use_it_at_once(tmp_path: Path) -> None:
    with open_file_manifest(tmp_path) as one, open_file_manifest(tmp_path) as two:
        one.put([entry("/a")])
        two.put([entry("/b")])

        assert [each.path for each in one.below("/")] == ["/a", "/b"]


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_recreated(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILES_NAME).write_bytes(content)
    for expected in ([], ["/a"]):
        with open_file_manifest(tmp_path) as ledger:
            assert [each.path for each in ledger.below("/")] == expected
            ledger.put([entry("/a")])


def test_one_of_another_version_is_recreated(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILES_NAME)) as other:
        other.executescript("CREATE TABLE files (name TEXT); PRAGMA user_version = 99")
    with open_file_manifest(tmp_path) as ledger:
        ledger.put([entry("/a")])

        assert [each.path for each in ledger.below("/")] == ["/a"]


def test_without_a_directory_for_it_the_manifest_lasts_as_long_as_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILES_NAME).mkdir()
    with open_file_manifest(tmp_path) as ledger:
        ledger.put([entry("/a")])

        assert [each.path for each in ledger.below("/")] == ["/a"]
    assert "so files are read again" in caplog.text


def test_a_manifest_that_breaks_while_it_is_used_is_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_file_manifest(tmp_path) as ledger:
        ledger.put([entry("/a")])
        with closing(sqlite3.connect(tmp_path / FILES_NAME)) as other:
            other.execute("DROP TABLE files")
        ledger.put([entry("/a")])

        assert ledger.entries(["/a"]) == {}
        assert list(ledger.below("/")) == []
    assert "cannot be written" in caplog.text


def test_threads_that_are_still_at_work_when_it_is_closed_do_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite ends the process where a connection is closed under a statement."""
    stop = threading.Event()

    def work(ledger: SqliteFileManifest, name: str) -> None:
        while not stop.is_set():
            ledger.put([entry(f"/{name}/{number}") for number in range(50)])
            list(ledger.below(f"/{name}"))

    for _ in range(10):
        with ThreadPoolExecutor() as threads:
            with open_file_manifest(tmp_path) as ledger:
                working = [threads.submit(work, ledger, name) for name in "abc"]
                time.sleep(0.01)
            stop.set()
            for each in working:
                each.result()
            stop.clear()
        assert ledger.entries(["/a/0"]) == {}
    assert caplog.text == ""

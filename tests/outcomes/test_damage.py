"""A database that is damaged, or whose log is removed, while servers use it: nothing that was acknowledged is lost."""

import itertools
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.end_to_end.process import Served, command, served, wait_until

PAGE_BYTES = 8192


def try_index(server: Served, word: str) -> int:
    body = {"content": f"The key of locker {word} hangs in the harbour office.", "contentType": "documentation"}
    return server.tool("index", {**body, "sessionId": "s", "source": word}).status_code


def finds(server: Served, word: str) -> bool:
    answer = server.search(word, mode="text", minScore=0, limit=1)
    return any(word in result["content"] for result in answer["results"])


@pytest.mark.parametrize("suffixes", [("wal",), ("shm",), ("wal", "shm")], ids="-".join)
def test_a_log_that_is_removed_under_two_servers_costs_nothing_that_was_acknowledged(
    tmp_path: Path, suffixes: tuple[str, ...]
) -> None:
    data_dir = tmp_path / "data"
    acknowledged = []
    with served(data_dir) as one, served(data_dir) as other:
        one.wait_ready()
        other.wait_ready()
        for step in ("before", "after", "later"):
            if step == "after":
                for suffix in suffixes:
                    (data_dir / f"rag-context.db-{suffix}").unlink()
            for number in range(6):
                word = f"{step}{number}x"
                if try_index(one if number % 2 else other, word) == 200:
                    acknowledged.append(word)
            wait_until(lambda: one.health()["healthy"] and other.health()["healthy"])
        assert len(acknowledged) > 12
        assert (data_dir / "rag-context.db-wal").exists()
        one.kill()
        other.kill()
    with served(data_dir) as again:
        again.wait_ready()
        assert [word for word in acknowledged if not finds(again, word)] == []
    assert command("check", "--full", data_dir=data_dir).returncode == 0


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Served]:
    """A server with documents, all of them in the database, none in the log."""
    with served(tmp_path / "data") as server:
        server.wait_ready()
        for number in range(12):
            assert try_index(server, f"kept{number}x") == 200
        with closing(sqlite3.connect(tmp_path / "data" / "rag-context.db")) as other:
            wait_until(lambda: other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
        yield server


def damage(path: Path, table: str) -> tuple[int, bytes]:
    """Overwrite the first page of a table; returns where, and what was there."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    at = (page - 1) * PAGE_BYTES
    with path.open("r+b") as file:
        file.seek(at)
        before = file.read(PAGE_BYTES)
        file.seek(at)
        file.write(b"\xa5" * PAGE_BYTES)
    return at, before


def put_back(path: Path, at: int, before: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(before)


def test_damage_that_no_write_touches_stops_writes_until_a_check_finds_the_file_sound(
    filled: Served, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    path = data_dir / "rag-context.db"
    at, before = damage(path, "next_vectors")  # read by none of the requests below
    wait_until(lambda: not filled.health()["healthy"])
    documents = next(part for part in filled.health()["components"] if part["name"] == "documents")
    assert "is damaged" in documents["detail"]
    assert "`rag-context check` says how to recover it" in documents["detail"]
    assert try_index(filled, "refused") == 503
    assert finds(filled, "kept3x"), "searches go on"
    checked = command("check", data_dir=data_dir)
    assert checked.returncode == 1
    assert "unknown" in checked.stdout
    assert "0 documents" not in checked.stdout
    filled.kill()
    with served(data_dir) as again:
        assert try_index(again, "refused") == 503, "known from the start"
        put_back(path, at, before)
        assert command("check", data_dir=data_dir).returncode == 0
        again.wait_ready()
        wait_until(lambda: again.health()["healthy"])
        assert try_index(again, "accepted") == 200
        assert all(finds(again, f"kept{number}x") for number in range(12))
        assert again.health()["indexedDocuments"] == 13


def test_of_damage_under_load_nothing_is_accepted_once_it_is_known_and_nothing_accepted_before_is_lost(
    filled: Served, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    path = data_dir / "rag-context.db"
    tried: list[tuple[str, float, int]] = []
    is_over = threading.Event()

    def write(lane: int) -> None:
        for number in itertools.count():
            if is_over.is_set():
                return
            word, began = f"lane{lane}n{number}x", time.monotonic()
            tried.append((word, began, try_index(filled, word)))

    with ThreadPoolExecutor(4) as pool:
        lanes = [pool.submit(write, lane) for lane in range(4)]
        try:
            wait_until(lambda: len(tried) > 20)
            at, before = damage(path, "next_vectors")
            wait_until(lambda: not filled.health()["healthy"])
            known_at = time.monotonic()
            wait_until(lambda: sum(began > known_at for _, began, _ in tried) > 20)
            assert filled.search("kept3x", mode="text", minScore=0)["results"]
        finally:
            is_over.set()
    for lane in lanes:
        lane.result()
    assert {status for _, began, status in tried if began > known_at} == {503}
    assert {status for _, began, status in tried if began <= known_at} <= {200, 503}
    filled.kill()
    put_back(path, at, before)
    accepted = [word for word, _, status in tried if status == 200]
    with served(data_dir) as again:
        again.wait_ready()
        assert [word for word in accepted if not finds(again, word)] == []
        wait_until(lambda: again.health()["healthy"])
    assert command("check", "--full", data_dir=data_dir).returncode == 0


def test_damage_at_the_moment_of_a_stop_costs_nothing_that_was_accepted(filled: Served, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    path = data_dir / "rag-context.db"
    accepted = [word for word in (f"last{number}x" for number in range(6)) if try_index(filled, word) == 200]
    at, before = damage(path, "next_vectors")
    assert filled.stop() == 0
    with served(data_dir) as again:
        wait_until(lambda: "is damaged" in again.get("/health").text)  # and not only still starting
        assert try_index(again, "refused") == 503
        put_back(path, at, before)
        assert command("check", data_dir=data_dir).returncode == 0
        again.wait_ready()
        wait_until(lambda: again.health()["healthy"])
        assert len(accepted) == 6
        assert [word for word in accepted if not finds(again, word)] == []

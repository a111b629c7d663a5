"""A disk that is full, a file that is damaged, and two servers at once on one directory: real servers, real files."""

import resource
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.process import Served, command, served, wait_until

TEXT = "MongoDB connections use retry logic with exponential backoff, five times at most."
FILLER = " ".join(f"padding{number}" for number in range(1500))


@contextmanager
def file_size_limit(server: Served, limit: int) -> Iterator[None]:
    """For the block, no file of the server's can grow beyond `limit` bytes: what a full disk looks like to it."""
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))


def try_index(server: Served, number: int) -> httpx2.Response:
    body = {"content": f"Entry note{number}x. {FILLER}", "contentType": "documentation", "sessionId": "s"}
    return server.tool("index", {**body, "source": f"note-{number}"})


def finds(server: Served, number: int) -> bool:
    answer = server.search(f"note{number}x", mode="text", minScore=0)
    return any(f"note{number}x" in result["content"] for result in answer["results"])


def test_a_full_disk_rejects_writes_keeps_what_was_acknowledged_and_heals(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with served(data_dir, RAG_CONTEXT_INDEXING__TIMEOUT_S="0.1") as server:
        server.wait_ready()
        acknowledged = [number for number in range(3) if try_index(server, number).status_code == 200]
        assert len(acknowledged) == 3
        largest = max(file.stat().st_size for file in data_dir.iterdir())
        with file_size_limit(server, largest):
            rejected = 0
            for number in range(3, 40):
                reply = try_index(server, number)
                if reply.status_code == 200:
                    acknowledged.append(number)
                    continue
                assert reply.status_code == 503
                assert reply.json()["code"] == "SERVICE_UNAVAILABLE"
                assert reply.headers["Retry-After"]
                rejected += 1
                if rejected == 2:
                    break
            assert rejected == 2
            assert all(finds(server, number) for number in acknowledged)
            assert not finds(server, number)
        wait_until(lambda: try_index(server, 99).status_code == 200)
        assert all(finds(server, number) for number in [*acknowledged, 99])
        server.kill()
    checked = command("check", "--full", data_dir=data_dir)
    assert checked.returncode == 0, checked.stdout


def test_two_servers_write_and_read_one_directory_at_the_same_time(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with served(data_dir) as one, served(data_dir) as other:
        one.wait_ready()
        other.wait_ready()
        missing: list[str] = []

        def work(lane: int) -> None:
            writer, reader = (one, other) if lane % 2 else (other, one)
            for number in range(12):
                word = f"lane{lane}n{number}x"
                writer.index(f"The key of locker {word} hangs in the harbour office.", source=word)
                answer = reader.search(word, mode="text", minScore=0)
                if answer["fallbackLevel"] == 1 and word not in answer["results"][0]["content"]:
                    missing.append(word)

        threads = [threading.Thread(target=work, args=(lane,)) for lane in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert missing == []
        for server in (one, other):
            wait_until(lambda server=server: server.health()["pendingDocuments"] == 0)
            assert server.health()["indexedDocuments"] == 48
            answer = server.search("where does the key of a locker hang", mode="vector", minScore=0, limit=20)
            assert len({result["chunkId"] for result in answer["results"]}) == 20
        assert command("check", "--full", data_dir=data_dir).returncode == 0


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A data directory whose file has lost all pages but its first two."""
    data_dir = tmp_path / "data"
    with served(data_dir) as server:
        server.wait_ready()
        for number in range(20):
            try_index(server, number)
        server.stop()
    path = data_dir / "rag-context.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = path.read_bytes()
    path.write_bytes(whole[: 2 * 8192] + b"\xa5" * (len(whole) - 2 * 8192))
    return data_dir


def test_a_damaged_file_is_level_3_rejects_writes_and_is_left_as_it_is(damaged: Path) -> None:
    before = (damaged / "rag-context.db").read_bytes()
    with served(damaged) as server:
        answer = server.search("retry logic")
        assert answer["fallbackLevel"] == 3
        assert answer["warning"] == "All search methods failed, returning empty results"
        assert try_index(server, 1).status_code == 503
        assert server.health()["mongoStatus"] == "unavailable"
        assert server.get("/ready").status_code == 503
        assert server.stop() == 0
    checked = command("check", "--repair", data_dir=damaged)
    assert checked.returncode == 1
    assert ".recover" in checked.stdout
    assert "Traceback" not in checked.stderr
    assert (damaged / "rag-context.db").read_bytes() == before

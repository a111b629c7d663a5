"""What was deleted is in no file of the data directory any more, soon after; only its owner may read those files."""

import random
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.process import TIMEOUT_S, Served, command, served, wait_until
from tests.outcomes.repositories import Caller, repository

ERASED_SOON = {"RAG_CONTEXT_STORES__ERASE_AFTER_S": "1"}
"""The usual half minute, made short."""

FILLER = " ".join(f"padding{number}" for number in range(400))


class Markers:
    """Words that stand in no other text."""

    def __init__(self) -> None:
        self._random = random.Random(7)
        self.made: list[str] = []

    def __call__(self, what: str) -> str:
        self.made.append(f"{what}{self._random.randrange(10**12):012}q")
        return self.made[-1]


def in_files(data_dir: Path, words: list[str]) -> set[tuple[str, str]]:
    """Which words are in which files."""
    found = set()
    for file in data_dir.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        found |= {(word.rstrip("0123456789q"), file.name) for word in words if word.encode() in content}
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "data", **ERASED_SOON) as server:
        server.wait_ready()
        yield server


def fill(server: Served, marker: Markers, place: Path) -> None:
    """One marker in each place that a caller can write to, among others that stay."""
    for number in range(12):
        server.index(f"Kept {number}. {FILLER}", source=f"kept-{number}.md")
        server.index(
            f"# {marker('heading')}\n\n{marker('content')} {FILLER}\n\n{marker('end')}",
            source=marker("source"),
            sessionId=marker("session"),
            metadata={marker("key"): marker("value"), "agent": marker("agent"), "tags": [marker("tag")]},
        )
        server.index(f"{marker('earlier')} {FILLER}", source="changed.md")
    for name in ("emptied", marker("dropped")):
        created = {"name": name, "metadata": {"note": marker("note")}, "embedding_provider": "rag-context"}
        assert server.post("/collections", created).is_success
        entry = {"id": marker("entry"), "text": f"{marker('text')} {FILLER}", "metadata": {"key": marker("field")}}
        assert server.post(f"/collections/{name}/documents", {"documents": [entry]}).is_success
    shop = repository(place, marker("shop"), page=f"# Page\n\n{marker('page')} {FILLER}\n")
    Caller(server.url).call("activate_project", config_path=shop.config)
    (place / "notes").mkdir()
    (place / "notes" / f"{marker('file')}.md").write_text(f"{marker('note')} {FILLER}")
    indexed = command("index", str(place / "notes"), data_dir=place / "data")
    assert indexed.returncode == 0, indexed.stderr


def delete(server: Served, marker: Markers, place: Path) -> None:
    """Everything that `fill` has marked."""
    sources = [word for word in marker.made if word.startswith("source")]
    for source in sources:
        assert server.tool("delete", {"source": source}).json()["deletedCount"] == 1
    server.index("Changed.", source="changed.md")
    (dropped,) = (word for word in marker.made if word.startswith("dropped"))
    for path in (f"/collections/{dropped}", "/collections/emptied"):
        assert httpx2.delete(server.url + path, timeout=TIMEOUT_S).is_success
    (shop,) = (word for word in marker.made if word.startswith("shop"))
    Caller(server.url).call("delete_documents", project_name=shop)
    (file,) = (place / "notes").iterdir()
    file.unlink()
    synced = command("index", str(place / "notes"), "--prune", data_dir=place / "data")
    assert synced.returncode == 0, synced.stderr


def test_what_was_deleted_is_in_no_file_also_after_kill_9(server: Served, tmp_path: Path) -> None:
    marker, data_dir = Markers(), tmp_path / "data"
    fill(server, marker, tmp_path)
    assert len({what for what, _ in in_files(data_dir, marker.made)}) > 10, "the scan finds what is stored"
    delete(server, marker, tmp_path)
    server.kill()
    with served(data_dir, **ERASED_SOON) as again:
        wait_until(lambda: not in_files(data_dir, marker.made))
        assert again.health()["indexedDocuments"] == 13


def test_what_was_deleted_is_in_no_file_of_a_server_that_goes_on(server: Served, tmp_path: Path) -> None:
    marker, data_dir = Markers(), tmp_path / "data"
    fill(server, marker, tmp_path)
    delete(server, marker, tmp_path)
    wait_until(lambda: not in_files(data_dir, marker.made))
    assert {stat.S_IMODE(file.stat().st_mode) for file in data_dir.iterdir() if file.is_file()} == {0o600}
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700


def test_reindexing_an_index_without_documents_has_nothing_to_do(server: Served) -> None:
    for body in ({"force": True}, {"force": True, "wait": True}):
        response = server.tool("reindex", body)
        assert response.status_code == 200, response.text
        assert (response.json()["status"], response.json()["done"]) == ("current", 0)

"""The main job as a newcomer meets it: real processes, real HTTP, the real model."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.process import command, served, wait_until

RETRY = "# Retries\n\nMongoDB connections use retry logic with exponential backoff, five times at most.\n"
JACKPOT = "# Jackpots\n\nFireKirin pays the grand jackpot at five hundred dollars.\n"
BROWSER = "# Browser\n\nSelenium waits thirty seconds for a page to load before it gives up.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in (("retry", RETRY), ("jackpot", JACKPOT), ("browser", BROWSER)):
        (docs / f"{name}.md").write_text(text)
    return docs


def test_index_and_search_without_a_server(tmp_path: Path, folder: Path) -> None:
    indexed = command("index", str(folder), "--json", data_dir=tmp_path / "data")
    assert indexed.returncode == 0, indexed.stderr
    receipts = [json.loads(line) for line in indexed.stdout.splitlines()]
    assert [receipt["status"] for receipt in receipts] == ["indexed"] * 3
    found = command("search", "how long does selenium wait", "--json", data_dir=tmp_path / "data")
    assert found.returncode == 0, found.stderr
    answer = json.loads(found.stdout)
    assert answer["fallbackLevel"] == 1
    assert answer["results"][0]["source"] == (folder / "browser.md").as_posix()


def test_index_and_search_through_a_server(tmp_path: Path, folder: Path) -> None:
    with served(tmp_path / "data") as server:
        server.wait_ready()
        assert command("index", str(folder), data_dir=tmp_path / "data").returncode == 0
        answer = server.search("how often is a mongodb connection retried")
        assert answer["fallbackLevel"] == 1
        assert answer["results"][0]["source"].endswith("retry.md")
        assert answer["totalIndexed"] == 3
        shown = command("search", "grand jackpot", data_dir=tmp_path / "data")
        assert shown.returncode == 0
        assert "jackpot.md" in shown.stdout
        again = command("index", str(folder), "--json", data_dir=tmp_path / "data")
        assert {json.loads(line)["status"] for line in again.stdout.splitlines()} == {"unchanged"}
        assert command("health", data_dir=tmp_path / "data").returncode == 0
        stats = json.loads(command("stats", "--json", data_dir=tmp_path / "data").stdout)
        assert stats["totalQueries"] == 2
        assert server.stop() == 0
    assert not (tmp_path / "data" / "server.json").exists()


def test_the_port_opens_before_the_model_is_there_and_every_answer_is_labelled(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        receipt = server.index(RETRY)
        assert receipt["success"]
        answer = server.search("mongodb retry logic")
        assert answer["fallbackLevel"] in (1, 2)
        assert answer["fallback"] == (answer["fallbackLevel"] > 1)
        assert len(answer["results"]) == 1
        server.wait_ready()
        wait_until(lambda: server.health()["pendingDocuments"] == 0)
        assert server.search("how are connections tried again")["fallbackLevel"] == 1


def test_two_servers_on_one_directory_find_each_others_documents(tmp_path: Path) -> None:
    with served(tmp_path / "data") as one, served(tmp_path / "data") as other:
        one.wait_ready()
        other.wait_ready()
        for i in range(5):
            text = f"Fact number {i}: the {['red', 'blue', 'green', 'white', 'black'][i]} valve opens on Mondays."
            (one, other)[i % 2].index(text, source=f"fact-{i}")
            reader = (other, one)[i % 2]
            wait_until(lambda text=text, reader=reader: _finds(reader, text))
        for server in (one, other):
            assert server.search("valve opens", limit=20, minScore=0)["totalIndexed"] == 5


def _finds(server: object, text: str) -> bool:
    return any(result["content"] == text for result in server.search(text)["results"])  # type: ignore[attr-defined]


def test_it_stops_when_requested_while_it_is_busy(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        server.wait_ready()
        receipt = server.index(RETRY)
        assert server.stop() == 0
    with served(tmp_path / "data") as server:
        server.wait_ready()
        assert server.search("mongodb retry")["results"][0]["documentId"] == receipt["documentId"]

"""`DATABASE_URL=postgresql://... rag-context serve` gives what the embedded store gives, on any number of servers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.process import command, served, wait_until
from tests.servers.postgres import FAST, postgres_process, query, url_of
from tests.servers.postgres_fixtures import empty, server

__all__ = ["empty", "server"]

DECISION = "We keep bearing tolerances at 0.3 mm because the lathe drifts when it is warm."


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    yield tmp_path


def test_what_one_server_acknowledged_another_one_finds_within_a_second(folder: Path, empty: str) -> None:
    with served(folder / "one", DATABASE_URL=empty) as one, served(folder / "two", POSTGRES_URL=empty) as two:
        one.wait_ready()
        two.wait_ready()
        wait_until(lambda: one.health()["healthy"] and two.health()["healthy"])
        assert two.search("how exact are bearings?")["results"] == []
        receipt = one.index(DECISION, contentType="decision", metadata={"tags": ["lathe"]})
        assert (receipt["status"], len(receipt["vectorIds"])) == ("indexed", 1)
        began = time.monotonic()
        while not (answer := two.search("how exact are bearings?"))["results"]:
            assert time.monotonic() - began < 1.0
        assert answer["fallbackLevel"] == 1
        assert answer["results"][0]["content"] == DECISION
        for filters, found in (({"tags": ["lathe"]}, 1), ({"tags": ["mill"]}, 0), ({"contentType": "code"}, 0)):
            assert len(two.search("bearing tolerances", **filters)["results"]) == found
        assert one.index(DECISION, contentType="decision", metadata={"tags": ["lathe"]})["status"] == "unchanged"
        health = two.health()
        assert {health["qdrantStatus"], health["mongoStatus"], health["lmStudioStatus"]} == {"healthy"}
        assert health["indexedDocuments"] == 1
        roles = " ".join(component["role"] for component in health["components"])
        assert roles.count("PostgreSQL") == 2, roles
        assert two.tool("delete", {"documentId": receipt["documentId"]}).json()["deletedCount"] == 1
        wait_until(lambda: one.search("bearing tolerances")["results"] == [])
        assert one.tool("stats", {}).json()["totalQueries"] >= 1
        assert one.post("/collections", {"name": "notes", "embedding_provider": "rag-context"}).status_code == 201
        assert one.post("/collections/notes/documents", {"documents": [{"text": DECISION}]}).json()["count"] == 1
        asked = {"text": "bearing tolerances", "mode": "hybrid"}
        assert [hit["text"] for hit in two.post("/collections/notes/query", asked).json()["results"]] == [DECISION]
        assert (one.stop(), two.stop()) == (0, 0)


def test_the_commands_work_on_the_database(folder: Path, empty: str) -> None:
    data_dir = folder / "one"
    note = folder / "note.md"
    note.write_text(f"# Lathe\n\n{DECISION}\n")
    assert command("index", str(note), data_dir=data_dir, DATABASE_URL=empty).returncode == 0
    found = command("search", "bearing tolerances", "--json", data_dir=data_dir, DATABASE_URL=empty)
    assert DECISION in json.loads(found.stdout)["results"][0]["content"]
    checked = command("check", "--full", data_dir=data_dir, DATABASE_URL=empty)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    exported = command("export", str(folder / "all.jsonl"), data_dir=data_dir, DATABASE_URL=empty)
    assert exported.returncode == 0, exported.stderr
    moved = command("import", str(folder / "all.jsonl"), data_dir=folder / "two")
    assert moved.returncode == 0, moved.stderr
    there = command("search", "bearing tolerances", "--json", data_dir=folder / "two")
    assert DECISION in json.loads(there.stdout)["results"][0]["content"]
    assert command("reindex", data_dir=data_dir, DATABASE_URL=empty).returncode == 0
    assert query(empty, "SELECT count(*), min(source) FROM rag_context.documents")[0] == (1, str(note))


def test_documents_and_vectors_are_in_postgresql_together_or_not_at_all(folder: Path, empty: str) -> None:
    apart = {"DATABASE_URL": empty, "RAG_CONTEXT_STORES__VECTORS": "embedded"}
    rejected = command("serve", "--port", "0", data_dir=folder / "one", **apart)
    assert rejected.returncode == 78
    assert 'set both to "postgres", or neither' in rejected.stderr
    assert "Traceback" not in rejected.stderr


def test_a_server_starts_without_the_database_and_heals_by_itself(folder: Path) -> None:
    with postgres_process(*FAST) as process:
        url = url_of(process.port)
        process.kill()
        with served(folder / "one", DATABASE_URL=url, CIRCUIT_BREAKER_TIMEOUT="500") as server:
            wait_until(lambda: "cannot be reached" in json.dumps(server.health()))
            assert server.search("anything")["fallbackLevel"] == 3
            process.start()
            server.wait_ready()
            wait_until(lambda: server.health()["healthy"])
            assert server.index(DECISION)["status"] == "indexed"
            process.kill()
            assert server.search("bearing tolerances")["fallbackLevel"] >= 3
            process.start()
            wait_until(lambda: server.search("bearing tolerances")["results"])
            wait_until(lambda: server.health()["healthy"])

"""Each level of the chain, proved by making a real part of a real server fail."""

import itertools
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rag_context.embedders.onnx import BUNDLED
from tests.end_to_end.process import command, served, wait_until

TEXT = "MongoDB connections use retry logic with exponential backoff, five times at most."


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLED, tmp_path / "model"))


def test_without_its_model_file_keyword_search_answers_and_once_it_is_back_so_do_vectors(
    tmp_path: Path, model_dir: Path
) -> None:
    (model_dir / "model.onnx").rename(tmp_path / "away")
    with served(tmp_path / "data", RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(model_dir)) as server:
        receipt = server.index(TEXT)
        assert receipt["status"] == "pending"
        assert receipt["vectorIds"] == []
        answer = server.search("mongodb retry")
        assert answer["fallbackLevel"] == 2
        assert answer["warning"] == "Vector search unavailable, using text search fallback"
        assert [result["content"] for result in answer["results"]] == [TEXT]
        health = server.health()
        assert not health["healthy"]
        assert health["lmStudioStatus"] == "unavailable"
        assert health["pendingDocuments"] == 1
        assert server.get("/ready").status_code == 503
        (tmp_path / "away").rename(model_dir / "model.onnx")
        wait_until(lambda: server.health()["healthy"])
        wait_until(lambda: server.search("how are connections tried again")["fallbackLevel"] == 1)
        answer = server.search("how are connections tried again")
        assert answer["results"][0]["documentId"] == receipt["documentId"]


def test_a_model_file_of_garbage_is_level_2_and_no_traceback(tmp_path: Path, model_dir: Path) -> None:
    (model_dir / "manifest.json").unlink()
    (model_dir / "model.onnx").write_bytes(b"no model at all" * 1000)
    with served(tmp_path / "data", RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(model_dir)) as server:
        server.index(TEXT)
        assert server.search("mongodb retry")["fallbackLevel"] == 2


def test_a_store_of_garbage_is_never_overwritten_and_answers_go_down_to_level_4(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    garbage = b"this is not a database " * 1000
    (data_dir / "rag-context.db").write_bytes(garbage)
    with served(data_dir, RAG_CONTEXT_SEARCH__DEADLINE_MS="450") as server:  # failures within one count once
        answers: list[dict[str, Any]] = []
        while not answers or not answers[-1]["circuitBreakerOpen"]:
            answers.append(server.search(f"question {len(answers)}"))
        assert len(answers) >= 5  # and more where several began within one deadline
        assert {answer["fallbackLevel"] for answer in answers} == {3}
        assert server.search("one more")["fallbackLevel"] == 4
        assert server.health()["mongoStatus"] == "unavailable"
        rejected = server.tool("index", {"content": TEXT, "contentType": "code", "sessionId": "s", "source": "x"})
        assert rejected.status_code == 503
        assert rejected.json()["code"] == "SERVICE_UNAVAILABLE"
        assert rejected.headers["Retry-After"]
        strict = server.tool("search", {"query": "question", "strict": True})
        assert strict.status_code == 429
        assert strict.json()["code"] == "CIRCUIT_OPEN"
        assert server.stop() == 0
    assert (data_dir / "rag-context.db").read_bytes() == garbage


def test_a_store_replaced_by_garbage_while_running_is_level_3_and_heals(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with served(data_dir, CIRCUIT_BREAKER_THRESHOLD="1000") as server:
        server.wait_ready()
        server.index(TEXT)
        assert server.search("mongodb retry")["fallbackLevel"] == 1
        for name in ("rag-context.db", "rag-context.db-wal", "rag-context.db-shm"):
            if (data_dir / name).exists():
                (data_dir / name).rename(tmp_path / name)
        (data_dir / "rag-context.db").write_bytes(b"garbage " * 4096)
        questions = (f"question {number}" for number in itertools.count())
        wait_until(lambda: server.search(next(questions))["fallbackLevel"] == 3)
        (data_dir / "rag-context.db").unlink()
        for name in ("rag-context.db", "rag-context.db-wal", "rag-context.db-shm"):
            if (tmp_path / name).exists():
                (tmp_path / name).rename(data_dir / name)
        wait_until(lambda: server.search(next(questions))["fallbackLevel"] == 1)
        assert len(server.search("mongodb retry", limit=7)["results"]) == 1


def test_a_store_locked_by_another_writer_still_answers_and_rejects_writes_with_a_message(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with served(data_dir) as server:
        server.wait_ready()
        server.index(TEXT)
        other = sqlite3.connect(data_dir / "rag-context.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert server.search("mongodb retry")["fallbackLevel"] == 1
        body = {"content": "Something new.", "contentType": "code", "sessionId": "s", "source": "new"}
        rejected = server.tool("index", body)
        assert rejected.status_code == 503
        assert rejected.headers["Retry-After"]
        other.execute("ROLLBACK")
        other.close()
        assert server.tool("index", body).json()["status"] == "indexed"


def test_an_index_of_another_model_stops_the_start_and_says_what_to_do(tmp_path: Path, model_dir: Path) -> None:
    data_dir = tmp_path / "data"
    with served(data_dir) as server:
        server.wait_ready()
        server.index(TEXT)
        server.stop()
    (model_dir / "manifest.json").unlink()
    with (model_dir / "model.onnx").open("ab") as file:
        file.write(b"\x72\x00")  # an empty field more: the same model under another hash
    other = {"RAG_CONTEXT_EMBEDDER__MODEL_DIR": str(model_dir)}
    rejected = command("serve", "--port", "0", data_dir=data_dir, **other)
    assert rejected.returncode == 78
    assert "rag-context reindex" in rejected.stderr
    assert "serve --reindex" in rejected.stderr
    assert "Traceback" not in rejected.stderr
    with served(data_dir, "--reindex", **other) as server:
        wait_until(lambda: server.health()["healthy"] and not server.health()["indexing"])
        # The new vectors are read into memory after the switch; until then keyword search answers, and says so.
        wait_until(lambda: server.search("how are connections tried again")["fallbackLevel"] == 1)
        server.stop()
    back = command("reindex", data_dir=data_dir)
    assert back.returncode == 0, back.stderr
    found = command("search", "mongodb retry", "--json", data_dir=data_dir)
    assert '"fallbackLevel": 1' in found.stdout or '"fallbackLevel":1' in found.stdout


@pytest.mark.parametrize(
    ("arguments", "extra", "says"),
    [
        (("serve", "--host", "0.0.0.0", "--port", "0"), {}, "API key"),
        (("serve",), {"RAG_CONTEXT_SERVER__PROT": "1"}, "RAG_CONTEXT_SERVER__PORT"),
        (
            ("serve", "--port", "0"),
            {"QDRANT_URL": "http://localhost:6333", "RAG_CONTEXT_STORES__QDRANT_COLLECTION": "a/b"},
            "qdrant_collection",
        ),
        (("serve",), {"MCP_SERVER_PORT": "many"}, "MCP_SERVER_PORT"),
    ],
)
def test_a_configuration_that_cannot_work_stops_with_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], extra: dict[str, str], says: str
) -> None:
    rejected = command(*arguments, data_dir=tmp_path, **extra)
    assert rejected.returncode == 78
    assert says in rejected.stderr
    assert "Traceback" not in rejected.stderr


def test_a_port_in_use_stops_with_one_sentence(tmp_path: Path) -> None:
    with served(tmp_path / "one") as server:
        port = server.url.rpartition(":")[2]
        rejected = command("serve", "--port", port, data_dir=tmp_path / "two")
    assert rejected.returncode == 78
    assert "in use" in rejected.stderr

"""`rag-context validate` against real servers, and against some that have gone wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from rag_context.domain.samples import documents, questions
from tests.end_to_end.process import command, served

from .stub_server import HEALTHY, embedding, healthy_server, stub_server


def report(*arguments: str, data_dir: Path, status: int, **extra: str) -> dict[str, Any]:
    """What `validate --json` says."""
    done = command("validate", "--json", *arguments, data_dir=data_dir, **extra)
    assert done.returncode == status, done.stdout + done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert outcome["passed"] == (status == 0)
    return outcome


def failed(outcome: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["detail"] for step in outcome["steps"] if not step["passed"]}


def test_a_sound_server_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    """G-1: health, five samples, accuracy, latency, verdict; nothing stays behind."""
    with served(tmp_path) as server:
        server.wait_ready()
        kept = server.index("MongoDB retry logic is written down elsewhere.")
        done = command("validate", data_dir=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        for words in (
            "Phase 1: Infrastructure Health",
            "Phase 2: Embedding Quality Validation",
            "Testing: Embedding Quality Sample 5/5... PASSED",
            "Dimensions: 384, Magnitude: 1.000",
            "Phase 3: Retrieval Accuracy Gate",
            "'FireKirin jackpot Grand threshold amount' looking for '$500'",
            "Phase 4: Performance Analysis",
            "P99 Latency:",
            "✓ PRE-VALIDATION PASSED",
            "Accuracy gate: 100.0% (required: 80%)",
        ):
            assert words in done.stdout
        assert server.health()["indexedDocuments"] == 1
        found = server.search("mongodb retry logic implementation", limit=20, minScore=0)
        assert [result["documentId"] for result in found["results"]] == [kept["documentId"]]


def test_programs_get_the_same_and_a_quick_check_indexes_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server.wait_ready()
        outcome = report("--url", server.url, data_dir=tmp_path / "elsewhere", status=0)
        assert outcome["url"] == server.url
        assert outcome["accuracy"]["value"] == 1.0
        assert [check["found"] for check in outcome["accuracy"]["checks"]] == [True] * 3
        assert set(outcome["latency"]) == {"averageMs", "p95Ms", "p99Ms"}
        assert all("latency" in text.lower() for text in outcome["warnings"])  # of a busy machine
        quick = report("--skip-accuracy", data_dir=tmp_path, status=0)
        assert quick["accuracy"] is None
        assert not [step for step in quick["steps"] if "Index" in step["name"]]


def test_a_server_with_keys_is_validated_with_the_key_of_the_settings(tmp_path: Path) -> None:
    with served(tmp_path, RAG_CONTEXT_API_KEY="open-sesame") as server:
        report("--url", server.url, data_dir=tmp_path, status=0, RAG_CONTEXT_API_KEY="open-sesame")
        outcome = report("--url", server.url, "--skip-accuracy", data_dir=tmp_path, status=1)
        assert "401" in failed(outcome)["MCP Server Health"]


def test_fifty_questions_find_their_documents_among_the_first_three(tmp_path: Path) -> None:
    """G-3: success@3 > 85 %, fallback rate < 5 %, and the verdict follows the three gates."""
    with served(tmp_path) as server:
        server.wait_ready()
        done = command("validate", "--end-to-end", "--json", data_dir=tmp_path)
        ended = json.loads(done.stdout)["endToEnd"]
        assert (ended["documents"], ended["questions"]) == (50, 50)
        assert ended["successAt3"] > 0.85, ended["missed"]
        assert ended["fallbackRate"] < 0.05
        assert ended["passed"] == (ended["p99Ms"] < 500.0)
        assert server.health()["indexedDocuments"] == 0


def test_the_fifty_documents_are_of_the_kinds_that_were_requested() -> None:
    """G-3: 20 chats, 15 decisions, 10 pieces of code, 5 edge cases, each with a question that paraphrases it."""
    rows = {row["id"]: row for row in documents()}
    kinds = [row["contentType"] for id_, row in rows.items() if not id_.startswith("edge")]
    assert {kind: kinds.count(kind) for kind in kinds} == {"chat": 20, "decision": 15, "code": 10}
    assert len(rows) == 50
    assert sorted(row["document"] for row in questions()) == sorted(rows)
    for row in questions():
        if not row["document"].startswith("edge"):
            assert row["question"].strip("?").lower() not in rows[row["document"]]["content"].lower()


def test_an_unreachable_server_is_a_failure_of_every_component(tmp_path: Path) -> None:
    with stub_server({}) as gone:
        url = gone.url
    outcome = report("--url", url, data_dir=tmp_path, status=1)
    assert "did not answer" in failed(outcome)["MCP Server Health"]
    assert outcome["accuracy"]["value"] == 0.0


def test_without_a_server_people_get_a_message_on_how_to_start_one(tmp_path: Path) -> None:
    with stub_server({}) as gone:
        url = gone.url

    done = command("validate", "--skip-accuracy", "--url", url, data_dir=tmp_path)

    assert "`rag-context serve` starts a server" in done.stderr


def test_finding_too_little_fails_although_all_parts_are_there(tmp_path: Path) -> None:
    with stub_server(healthy_server()) as server:
        done = command("validate", "--url", server.url, data_dir=tmp_path)
        assert done.returncode == 1
        assert "⚠ INFRASTRUCTURE PASSED, ACCURACY FAILED" in done.stdout
        assert "0.0% (0/3)" in done.stdout
        assert "WARNING: 3 test documents could not be deleted" in done.stdout
        projects = {body["project"] for body in server.bodies("/tools/rag_context_index")}
        assert len(projects) == 1
        assert projects.pop().startswith("validate-")


@pytest.mark.parametrize(
    ("vector", "outcome"),
    [
        ((3.0, 4.0), "Vector magnitude 5.000 outside [0.9, 1.1]"),
        ((0.5, 0.5, 0.5, 0.5), "Expected 2 dimensions, got 4"),
        ((), "Expected 2 dimensions, got 0"),
    ],
)
def test_unsound_vectors_fail_every_sample(tmp_path: Path, vector: tuple[float, ...], outcome: str) -> None:
    with stub_server({**healthy_server(), "/v1/embeddings": embedding(*vector)}) as server:
        found = failed(report("--url", server.url, "--skip-accuracy", data_dir=tmp_path, status=1))
    assert found == {f"Embedding Quality Sample {number}/5": outcome for number in range(1, 6)}


def test_a_failing_component_is_named(tmp_path: Path) -> None:
    ailing = {**HEALTHY, "healthy": False, "mongoStatus": "unavailable"}
    with stub_server({**healthy_server(), "/tools/rag_context_health": ailing}) as server:
        found = failed(report("--url", server.url, "--skip-accuracy", data_dir=tmp_path, status=1))
    assert set(found) == {"MCP Server Health", "Document Store Health Check"}


def test_backends_that_are_named_are_examined_themselves(tmp_path: Path) -> None:
    """G-1: Qdrant is healthy when it answers 200; samples come from the server that is named."""
    nomic = {
        "/v1/models": {"data": [{"id": "llama"}, {"id": "text-embedding-nomic-embed-text-v1.5"}]},
        "/v1/embeddings": embedding(*([0.5] * 4)),
        "/healthz": "healthz check passed",
    }
    with stub_server(healthy_server()) as server, stub_server(nomic) as backend:
        report(
            *("--url", server.url, "--skip-accuracy"),
            *("--lm-studio-url", backend.url, "--qdrant-url", backend.url),
            data_dir=tmp_path,
            status=0,
        )
        assert len(backend.bodies("/healthz")) == 1
        samples = backend.bodies("/v1/embeddings")
        assert {body["model"] for body in samples} == {"text-embedding-nomic-embed-text-v1.5"}
        assert samples[0]["input"] == "mongodb connection retry logic"
        assert len(samples) == 5


def test_backends_that_are_named_and_gone_fail(tmp_path: Path) -> None:
    with stub_server({}) as gone:
        url = gone.url
    with stub_server(healthy_server()) as server:
        outcome = report(
            *("--url", server.url, "--skip-accuracy", "--qdrant-url", url, "--lm-studio-url", url),
            *("--mongodb-uri", url.replace("http", "mongodb"), "--timeout", "2"),
            data_dir=tmp_path,
            status=1,
        )
    assert {"Qdrant Health Check", "LM Studio API Availability", "MongoDB Connectivity"} < set(failed(outcome))


@pytest.mark.parametrize("words", [("--url", "localhost:3000"), ("--timeout", "0"), ("--qdrant-url", "ftp://x")])
def test_invalid_options_are_rejected(tmp_path: Path, words: tuple[str, str]) -> None:
    done = command("validate", *words, data_dir=tmp_path)
    assert done.returncode == 2
    assert words[0] in done.stderr

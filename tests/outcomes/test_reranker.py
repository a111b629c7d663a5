"""A reranker, seen from outside: its order, its place in the answer, and an answer without it."""

from pathlib import Path
from typing import Any

from tests.embedders.test_rerankers import write_cross_encoder
from tests.end_to_end.process import Served, served, wait_until
from tests.servers.process import free_port

QUESTION = "When does the gate open?"
TEXTS = {
    "hours": "The gate opens at nine and closes at six.",
    "song": "Gate after gate after gate: the song of the gate keeper.",
    "bakery": "The bakery opens at five.",
}


def ask(server: Served) -> dict[str, Any]:
    return server.search(QUESTION, minScore=0, explain=True)


def fill(server: Served) -> None:
    server.wait_ready()
    for source, text in TEXTS.items():
        server.index(text, source=source)


def sources(answer: dict[str, Any]) -> list[str]:
    return [result["source"] for result in answer["results"]]


def test_a_cross_encoder_in_a_folder_orders_the_results(tmp_path: Path) -> None:
    folder = write_cross_encoder(tmp_path / "model")
    with served(tmp_path / "data", RAG_CONTEXT_RERANKER__MODEL_DIR=str(folder)) as server:
        fill(server)
        wait_until(lambda: ask(server)["legs"]["rerank"]["status"] == "ok")
        answer = ask(server)
        assert sources(answer) == ["song", "hours", "bakery"], "by how often they say it, as this model does"
        assert [result["explain"]["signals"]["rerank"] for result in answer["results"]] == [4.0, 1.0, 0.0]
        assert (answer["fallbackLevel"], "warning" in answer) == (1, False)
        reranker = [each for each in server.health()["components"] if each["name"] == "reranker"]
        assert [each["status"] for each in reranker] == ["healthy"]


def test_an_answer_without_the_reranker_is_whole_and_labelled_and_health_is_degraded(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    settings = {"RAG_CONTEXT_RERANKER__URL": address, "RAG_CONTEXT_RERANKER__MODEL": "none"}
    with served(tmp_path / "data", **settings) as server:
        fill(server)
        answer = ask(server)
        assert sources(answer)[0] == "hours"
        assert answer["fallbackLevel"] == 1
        assert answer["warning"] == "The reranker did not answer, passages are in the order of the search"
        assert answer["legs"]["rerank"]["status"] in {"failed", "open"}
        report = server.health()
        (reranker,) = (each for each in report["components"] if each["name"] == "reranker")
        assert (reranker["status"], report["healthy"]) == ("degraded", True), "searches are answered completely"
        assert "cannot be reached" in reranker["detail"]

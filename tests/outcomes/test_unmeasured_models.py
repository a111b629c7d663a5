"""An unmeasured model ranks as well as one whose unrelated texts have a cosine near 0 (R-5)."""

from pathlib import Path

from tests.end_to_end.process import Served, served, wait_until
from tests.outcomes.embedding_server import EmbeddingServer, embedding_server
from tests.outcomes.quotations import index_all, texts

COUNT = 120
QUESTIONS = ("the bridge above the harbour and its engine", "copper market", "which lantern stands in the orchard?")


def orders(server: Served) -> list[list[str]]:
    answers = [server.search(question, minScore=0, limit=20)["results"] for question in QUESTIONS]
    return [[result["source"] for result in results] for results in answers]


def scores(server: Served) -> list[float]:
    return [result["score"] for result in server.search("zebra quasar", minScore=0, limit=20, mode="vector")["results"]]


def indexed(data_dir: Path, embedder: EmbeddingServer) -> tuple[list[list[str]], list[float]]:
    """The orders of the answers, and the scores of a question that nothing answers."""
    settings = {
        "RAG_CONTEXT_EMBEDDER__KIND": "openai_compatible",
        "RAG_CONTEXT_EMBEDDER__URL": embedder.url,
        "RAG_CONTEXT_EMBEDDER__MODEL": "words",
        "RAG_CONTEXT_SEARCH__DEADLINE_MS": "10000",
        "RAG_CONTEXT_SEARCH__CACHE_SIZE": "0",
    }
    with served(data_dir, **settings) as server:
        server.wait_ready()
        index_all(server, [{"content": text, "source": f"/{i}.md"} for i, text in enumerate(texts(COUNT))])
        wait_until(lambda: server.health()["pendingDocuments"] == 0)
        # The model is calibrated beside the first searches; before, nothing is labelled.
        wait_until(lambda: server.search("zebra quasar", mode="vector", limit=5).get("noAnswer", False))
        found = orders(server), scores(server)
        server.stop()
    return found


def test_vectors_moved_by_a_constant_direction_are_ranked_and_scored_alike(tmp_path: Path) -> None:
    with embedding_server() as embedder:
        embedder.moved = 0.5
        plain, unrelated = indexed(tmp_path / "plain", embedder)
        embedder.moved = 2.0
        squeezed, as_unrelated = indexed(tmp_path / "squeezed", embedder)
    assert squeezed == plain
    assert max(unrelated) < 0.5
    assert max(as_unrelated) < 0.5, "a cosine of .8 means nothing here"

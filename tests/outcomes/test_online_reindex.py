"""Vectors are recreated beside those that answer: questions are answered as before until the new ones are complete."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.process import Served, served, wait_until
from tests.outcomes.embedding_server import EmbeddingServer, embedding_server
from tests.outcomes.quotations import found, index_all, quotation, texts

COUNT = 120
SLOWLY_S = 0.05
"""How long a document's vectors take while a run is watched."""

TEXTS = {f"/{i}.md": text for i, text in enumerate(texts(COUNT))}
ASKED = [f"/{i}.md" for i in range(0, COUNT, 20)]


def settings(embedder: EmbeddingServer, model: str = "words") -> dict[str, str]:
    return {
        "RAG_CONTEXT_EMBEDDER__KIND": "openai_compatible",
        "RAG_CONTEXT_EMBEDDER__URL": embedder.url,
        "RAG_CONTEXT_EMBEDDER__MODEL": model,
        "RAG_CONTEXT_SEARCH__DEADLINE_MS": "10000",
        "RAG_CONTEXT_SEARCH__CACHE_SIZE": "0",
    }


@pytest.fixture(scope="module")
def embedder() -> Iterator[EmbeddingServer]:
    with embedding_server() as server:
        server.models = {"words", "letters"}
        yield server


@pytest.fixture(scope="module")
def indexed(embedder: EmbeddingServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a server has indexed all documents with the model `words`."""
    made = tmp_path_factory.mktemp("indexed") / "data"
    with served(made, **settings(embedder)) as server:
        server.wait_ready()
        index_all(server, [{"content": text, "source": source} for source, text in TEXTS.items()])
        assert complete(server)
        server.stop()
    return made


@pytest.fixture
def data_dir(indexed: Path, embedder: EmbeddingServer, tmp_path: Path) -> Path:
    """A copy of its own for each test."""
    embedder.long_text_s = 0.0
    embedder.models = {"words", "letters"}
    return Path(shutil.copytree(indexed, tmp_path / "data"))


def complete(server: Served) -> bool:
    """Whether quotations are found, at level 1 and without a warning."""
    answers = list(found(server, ASKED, lambda source: quotation(TEXTS[source])))
    labels = {(answer["fallbackLevel"], answer.get("warning")) for answer in answers}
    return labels == {(1, None)} and sum(answer["isFound"] for answer in answers) >= len(ASKED) - 1


def run(server: Served, **fields: Any) -> dict[str, Any]:
    reply = server.tool("reindex", fields)
    assert reply.status_code == 200, reply.text
    response: dict[str, Any] = reply.json()
    return response


def has_embedded(server: Served, documents: int) -> bool:
    """Whether a run has begun and is past so many documents; before it begins, all of the old model's are done."""
    report = run(server, statusOnly=True)
    return bool(report["status"] == "running" and report["done"] > documents)


def model(server: Served) -> str:
    return str(server.health()["embeddingModel"]["name"])


def vectors_of(data_dir: Path) -> int:
    """How many there are in the file, old and new ones."""
    with closing(sqlite3.connect(data_dir / "rag-context.db")) as file:
        tables = ("vectors", "next_vectors")
        return sum(file.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)


def test_a_forced_reindex_is_not_noticed_by_those_who_ask(embedder: EmbeddingServer, data_dir: Path) -> None:
    with served(data_dir, **settings(embedder)) as server:
        server.wait_ready()
        before = vectors_of(data_dir)
        embedder.long_text_s = SLOWLY_S
        assert run(server, force=True)["status"] == "running"
        rounds = 0
        while run(server, statusOnly=True)["status"] == "running":
            assert complete(server)
            vectors = server.search(quotation(TEXTS["/0.md"]), mode="vector")
            assert (vectors["fallbackLevel"], bool(vectors["results"])) == (1, True)
            assert server.health()["pendingDocuments"] == 0
            rounds += 1
        assert rounds >= 2
        assert complete(server)
        assert vectors_of(data_dir) == before, "the old vectors are gone"


def test_what_is_written_and_deleted_meanwhile_is_right_afterwards(embedder: EmbeddingServer, data_dir: Path) -> None:
    with served(data_dir, "--reindex", **settings(embedder, "letters")) as server:
        server.wait_ready()
        embedder.long_text_s = SLOWLY_S
        wait_until(lambda: has_embedded(server, 5))
        assert model(server) == "words", "the old model answers"
        assert complete(server)
        new, changed = "a heron waits at the lower weir", "the sluice keeper counts seven grey geese"
        server.index(f"{new} until the sluice is opened.", source="/new.md")
        index_all(server, [{"content": f"Meanwhile {changed} before noon.", "source": "/1.md"}])
        gone = server.search(quotation(TEXTS["/13.md"]))["results"][0]
        assert server.tool("delete", {"documentId": gone["documentId"]}).json()["deletedCount"] == 1
        assert server.search(new)["results"][0]["source"] == "/new.md"
        embedder.long_text_s = 0.0
        wait_until(lambda: model(server) == "letters" and run(server, statusOnly=True)["status"] == "current")
        for question, source in ((new, "/new.md"), (changed, "/1.md")):
            answer = server.search(question, mode="vector")
            assert (answer["fallbackLevel"], answer["results"][0]["source"]) == (1, source)
        sources = [each["source"] for each in server.search(quotation(TEXTS["/13.md"]), limit=20)["results"]]
        assert gone["source"] not in sources
        assert server.health()["healthy"]


def test_killed_in_the_middle_the_old_vectors_answer_and_the_next_start_goes_on(
    embedder: EmbeddingServer, data_dir: Path
) -> None:
    new = settings(embedder, "letters")
    with served(data_dir, "--reindex", **new) as server:
        embedder.long_text_s = SLOWLY_S
        wait_until(lambda: has_embedded(server, 20))
        server.kill()
    with served(data_dir, **settings(embedder)) as server:  # after a change back to the old model everything is found
        server.wait_ready()
        assert complete(server)
        server.kill()
    with served(data_dir, **new) as server:  # without --reindex: it was begun
        server.wait_ready()
        assert (model(server), run(server, statusOnly=True)["done"] > 20) == ("words", True)
        assert complete(server)
        embedder.long_text_s = 0.0
        wait_until(lambda: model(server) == "letters")
        assert complete(server)


def test_where_the_old_model_is_gone_keyword_search_answers_and_says_so(
    embedder: EmbeddingServer, data_dir: Path
) -> None:
    embedder.models = {"letters"}
    embedder.long_text_s = SLOWLY_S
    with served(data_dir, "--reindex", **settings(embedder, "letters")) as server:
        wait_until(lambda: has_embedded(server, 5))
        answer = server.search(quotation(TEXTS["/24.md"]))
        assert (answer["fallbackLevel"], answer["results"][0]["source"]) == (2, "/24.md")
        assert answer["warning"] == "Vector search unavailable, using text search fallback"
        assert server.index("A heron waits at the weir.", source="/new.md")["status"] == "pending"
        embedder.long_text_s = 0.0
        wait_until(lambda: run(server, statusOnly=True)["status"] == "current")
        wait_until(lambda: complete(server))
        assert server.search("heron weir", mode="vector")["results"][0]["source"] == "/new.md"

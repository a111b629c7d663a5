"""An embedding server that has other weights for a moment, under the same name: nothing of it outlives the moment."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.process import Served, served, wait_until
from tests.outcomes.embedding_server import EmbeddingServer, embedding_server
from tests.outcomes.quotations import index_all
from tests.servers.redis import redis_server

WITHIN_S = 2.0
ANIMALS = ("heron", "otter", "badger", "falcon", "salmon")
PLACES = ("harbour", "quarry", "meadow", "chapel", "orchard")
TEXTS = {f"{animal}-{place}": f"{animal} {place}" for animal in ANIMALS for place in PLACES}
COLLECTION = "animals"


@dataclass(frozen=True, slots=True)
class Reply:
    began: float
    question: str
    level: int
    first: str | None
    is_cached: bool

    @property
    def is_wrong(self) -> bool:
        """Whether it passes for a whole answer, and is another."""
        return self.level == 1 and self.first != self.question


@dataclass
class Set:
    """A server over a model that may be swapped, and what it answered."""

    server: Served
    embedder: EmbeddingServer
    data_dir: Path
    settings: dict[str, str]
    replies: list[Reply] = field(default_factory=list)

    def ask(self, question: str) -> Reply:
        began = time.monotonic()
        answer = self.server.search(TEXTS[question], mode="vector", limit=1)
        first = answer["results"][0]["source"] if answer["results"] else None
        reply = Reply(began, question, answer["fallbackLevel"], first, bool(answer.get("cached")))
        self.replies.append(reply)
        return reply

    def ask_collection(self, question: str) -> Reply:
        """As `ask`, of the collection; level 2 where it is not answered."""
        began = time.monotonic()
        response = self.server.post(f"/collections/{COLLECTION}/query", {"text": TEXTS[question], "top_k": 1})
        found: list[dict[str, Any]] = response.json()["results"] if response.status_code == 200 else []
        reply = Reply(began, question, 1 if found else 2, found[0]["id"] if found else None, is_cached=False)
        self.replies.append(reply)
        return reply

    def ask_all(self, until: float) -> None:
        """Every question again and again, of both, each twice in a row."""
        while time.monotonic() < until:
            for question in QUESTIONS:
                self.ask(question)
                self.ask(question)
                self.ask_collection(question)


QUESTIONS = [f"{animal}-{place}" for animal, place in zip(ANIMALS, PLACES, strict=True)]


@pytest.fixture(scope="module", params=["without Redis", "with Redis"])
def swapped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Set]:
    data_dir = tmp_path_factory.mktemp("swapped") / "data"
    with ExitStack() as stack:
        embedder = stack.enter_context(embedding_server())
        settings = {
            "RAG_CONTEXT_EMBEDDER__KIND": "openai_compatible",
            "RAG_CONTEXT_EMBEDDER__URL": embedder.url,
            "RAG_CONTEXT_EMBEDDER__MODEL": "words",
        }
        if request.param == "with Redis":
            cache = stack.enter_context(redis_server())
            settings["REDIS_URL"] = f"redis://127.0.0.1:{cache.port}/0"
        server = stack.enter_context(served(data_dir, **settings))
        server.wait_ready()
        index_all(server, [{"content": text, "source": source} for source, text in TEXTS.items()])
        wait_until(lambda: server.health()["pendingDocuments"] == 0)
        made = {"name": COLLECTION, "embedding_provider": "rag-context"}
        assert server.post("/collections", made).status_code == 201
        documents = [{"id": source, "text": text} for source, text in TEXTS.items()]
        added = server.post(f"/collections/{COLLECTION}/documents", {"documents": documents})
        assert added.status_code in (200, 201), added.text
        yield Set(server, embedder, data_dir, settings)


@pytest.mark.parametrize("seconds", [1.0, 3.5])
def test_nothing_of_the_other_model_outlives_it(swapped: Set, seconds: float) -> None:
    asked = swapped
    asked.replies.clear()
    for question in QUESTIONS[:2]:
        assert not asked.ask(question).is_wrong
    health: list[dict[str, Any]] = []

    def look() -> None:
        time.sleep(WITHIN_S)
        health.append(asked.server.health())

    looking = threading.Thread(target=look)
    asked.embedder.weights = " of others"
    swapped_at = time.monotonic()
    looking.start()
    asked.ask_all(swapped_at + seconds)
    asked.embedder.weights = ""
    back_at = time.monotonic()
    asked.ask_all(back_at + WITHIN_S)
    looking.join()
    before = len(asked.replies)
    asked.ask_all(time.monotonic() + 0.01)
    late = [reply for reply in asked.replies if swapped_at + WITHIN_S <= reply.began < back_at and reply.is_wrong]
    assert not late, (len(late), late[0])
    assert not [reply for reply in asked.replies if reply.is_cached and reply.is_wrong]
    assert {reply.level for reply in asked.replies if reply.began < back_at} >= {2}, "nobody noticed"
    assert [reply for reply in asked.replies[before:] if reply.is_wrong or reply.level != 1] == []
    assert any(reply.is_cached for reply in asked.replies[before:])
    if seconds > WITHIN_S:
        assert (health[0]["healthy"], health[0]["lmStudioStatus"]) == (False, "unavailable")
    assert asked.server.health()["healthy"]


def test_a_restarted_server_finds_nothing_of_it_in_a_cache(swapped: Set) -> None:
    """The last of this file: it stops the server of the others."""
    assert swapped.server.stop() == 0
    with served(swapped.data_dir, **swapped.settings) as server:
        server.wait_ready()
        again = Set(server, swapped.embedder, swapped.data_dir, swapped.settings)
        replies = [again.ask(question) for question in QUESTIONS]
    assert [reply for reply in replies if reply.is_wrong or reply.level != 1] == []
    assert any(reply.is_cached for reply in replies) == ("REDIS_URL" in swapped.settings)

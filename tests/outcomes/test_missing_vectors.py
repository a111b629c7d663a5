"""While documents wait for their vectors, quotations are found as if by keyword search, and the answer says so."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcp import Client
from tests.end_to_end.process import Served, command, served, wait_until
from tests.outcomes.embedding_server import EmbeddingServer, embedding_server
from tests.outcomes.quotations import found, index_all, quotation, texts

SHARES = (0, 3, 10, 50, 95, 100)
EACH = 140
ASKED = 20


@dataclass
class Waiting:
    """A server with a session of `EACH` documents for every share in `SHARES`, of which so many per cent wait."""

    server: Served
    embedder: EmbeddingServer
    data_dir: Path
    texts: dict[str, str]
    """By source."""

    def answers(self, share: int, **fields: Any) -> list[dict[str, Any]]:
        step = EACH // ASKED
        sources = [f"/{share}-{i}.md" for i in range(step // 2, EACH, step)]
        asked = found(self.server, sources, lambda source: quotation(self.texts[source]), **fields)
        return list(asked)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Waiting]:
    made = texts(EACH * len(SHARES))
    documents = [
        {"content": made[n * EACH + i], "source": f"/{share}-{i}.md", "sessionId": f"{share} per cent"}
        for n, share in enumerate(SHARES)
        for i in range(EACH)
    ]

    def is_late(document: dict[str, Any]) -> bool:
        share, number = document["source"][1:-3].split("-")
        return int(number) * 37 % 140 < 1.4 * int(share)

    data_dir: Path = tmp_path_factory.mktemp("missing") / "data"
    with (
        embedding_server() as embedder,
        served(
            data_dir,
            RAG_CONTEXT_EMBEDDER__KIND="openai_compatible",
            RAG_CONTEXT_EMBEDDER__URL=embedder.url,
            RAG_CONTEXT_EMBEDDER__MODEL="words",
            RAG_CONTEXT_SEARCH__DEADLINE_MS="10000",
        ) as server,
    ):
        server.wait_ready()
        index_all(server, [each for each in documents if not is_late(each)])
        embedder.is_down = True
        late = index_all(server, [each for each in documents if is_late(each)])
        assert {receipt["status"] for receipt in late} == {"deferred"}
        embedder.is_down, embedder.long_text_s = False, 25.0  # questions are embedded at once, documents hardly
        wait_until(lambda: server.search("river", sessionId="0 per cent")["fallbackLevel"] == 1)
        yield Waiting(server, embedder, data_dir, {each["source"]: each["content"] for each in documents})
        embedder.long_text_s = 0.0


@pytest.mark.parametrize("share", SHARES)
def test_quotations_are_found_as_often_as_by_keyword_search_alone(waiting: Waiting, share: int) -> None:
    where = {"sessionId": f"{share} per cent"}
    by_keywords = sum(answer["isFound"] for answer in waiting.answers(share, mode="text", **where))
    assert by_keywords >= ASKED / 2
    for mode in ("hybrid", "vector") if share else ("hybrid",):
        assert sum(answer["isFound"] for answer in waiting.answers(share, mode=mode, **where)) >= by_keywords, mode


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
@pytest.mark.parametrize("share", SHARES)
def test_the_label_says_how_many_vectors_are_missing(waiting: Waiting, share: int, mode: str) -> None:
    answer = waiting.server.search("river bridge", sessionId=f"{share} per cent", mode=mode)
    if share == 0:
        assert (answer["fallbackLevel"], answer.get("warning")) == (1, None)
        return
    assert answer["fallbackLevel"] == (1 if share == 3 else 2)
    missing, _, passages = answer["warning"].split(" passages have no vectors yet")[0].split()
    assert int(passages) == EACH
    # Their vectors come in slowly.
    assert share / 100 * EACH - 10 <= int(missing) <= share / 100 * EACH + 2


def test_a_requested_keyword_search_is_complete(waiting: Waiting) -> None:
    answer = waiting.server.search("river bridge", sessionId="95 per cent", mode="text")
    assert (answer["fallbackLevel"], answer.get("warning")) == (1, None)


def test_an_incomplete_answer_is_not_cached(waiting: Waiting) -> None:
    for share in (3, 10):
        answers = [waiting.server.search("lantern", sessionId=f"{share} per cent") for _ in range(2)]
        assert not any(answer.get("cached") for answer in answers), share


@pytest.mark.parametrize(
    ("share", "called"),
    [(10, "level 2 (hybrid search, vectors incomplete)"), (100, "level 2 (keyword search alone)"), (3, "level 1 ·")],
)
def test_an_answer_is_called_what_it_is(waiting: Waiting, share: int, called: str) -> None:
    ended = command("search", "river bridge", "--session", f"{share} per cent", data_dir=waiting.data_dir)
    assert called in ended.stdout, ended.stdout[:200]


async def test_both_kinds_of_level_2_are_counted_apart(waiting: Waiting) -> None:
    """Answers with incomplete vectors are no fallbacks: those of a first hour are not shown as failures."""

    def stats() -> dict[str, Any]:
        return dict(waiting.server.tool("stats", {}).json())

    def kinds(report: dict[str, Any]) -> tuple[int, int, int]:
        incomplete = report["queriesWithVectorsIncomplete"]
        return report["queriesByLevel"]["2"], incomplete, round(report["fallbackRate"] * report["totalQueries"])

    for share in (10, 50, 100):
        waiting.server.search("meadow", sessionId=f"{share} per cent")
    before = stats()
    for share in (10, 50, 100):
        waiting.server.search("thunder", sessionId=f"{share} per cent")
    wait_until(lambda: stats()["totalQueries"] == before["totalQueries"] + 3)
    after = stats()
    assert [now - then for now, then in zip(kinds(after), kinds(before), strict=True)] == [3, 2, 1]

    level_2, incomplete, _ = kinds(after)
    shown = command("stats", data_dir=waiting.data_dir).stdout
    assert f"2 (hybrid search, vectors incomplete): {incomplete}" in shown
    assert f"2 (keyword search alone): {level_2 - incomplete}" in shown
    share_incomplete = f"{incomplete / after['totalQueries']:.1%} with vectors incomplete"
    assert share_incomplete in command("status", data_dir=waiting.data_dir).stdout.replace("\n", " ")
    async with Client(f"{waiting.server.url}/mcp?tools=operations") as client:
        reported = (await client.call_tool("rag_context_stats", {})).model_dump_json()
    assert f"2 (hybrid search, vectors incomplete): {incomplete}" in reported


def test_when_the_vectors_are_there_the_answer_is_complete_again(waiting: Waiting) -> None:
    """The last of this file: it lets the documents have their vectors."""
    question = {"query": "river glacier", "sessionId": "10 per cent"}
    assert waiting.server.search(**question)["fallbackLevel"] == 2
    waiting.embedder.long_text_s = 0.0
    wait_until(lambda: waiting.server.search(**question).get("warning") is None)
    assert waiting.server.search(**question)["fallbackLevel"] == 1

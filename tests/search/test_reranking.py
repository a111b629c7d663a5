"""A reranker orders the best passages, in what is left of the deadline; its failure changes nothing but the order."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rag_context.errors import BackendUnavailableError
from rag_context.ports.models import Reranker
from rag_context.resilience.dependency import FAILURES_TO_OPEN, Dependency
from rag_context.search.chain import NOT_RERANKED, RERANK_LEG, Reranking, SearchChain
from rag_context.search.query import Answer, Level, Mode, Query, ResultCache, RetrieverStatus
from rag_context.testing import FakeReranker, Fault, Faulty, FrozenClock
from tests.search.harness import ChainHarness

DEAD = Fault(error=BackendUnavailableError("reranker", "refused"))
HANGS = Fault(hang=True)
ASK = Query("gate opens", limit=3, min_score=0.0)
NOTES = 12


class Fixed:
    """A reranker that returns what it was given."""

    def __init__(self, scores: Sequence[float]) -> None:
        self._scores = scores

    async def scores(self, query: str, passages: Sequence[str]) -> Sequence[float]:
        return self._scores

    async def ping(self) -> str:
        return "fixed"


class Setup:
    """A chain with a reranker that can be made to fail, over notes that end with their number."""

    def __init__(self, reranker: Reranker | None = None, *, deadline_s: float = 1.0) -> None:
        self.harness = ChainHarness(deadline_s=deadline_s)
        self.reranker: Faulty[Reranker] = Faulty(reranker or FakeReranker(), "scores")
        guard = Dependency("reranker", FakeReranker().ping)
        reranking = Reranking(self.reranker.port, guard, passages=10, timeout_s=deadline_s)
        self.plain = self.harness.chain
        self.chain = SearchChain(self.harness.sources, self.harness.breaker, deadline_s=deadline_s, reranking=reranking)

    async def fill(self) -> "Setup":
        for number in range(NOTES):
            await self.harness.add(f"note{number:02}", f"The gate opens {'often ' * number} at {number}")
        return self


def found(answer: Answer) -> list[str]:
    return [result.passage.document_id for result in answer.results]


async def test_the_best_passages_are_in_the_order_of_the_reranker() -> None:
    setup = await Setup().fill()
    pool = found(await setup.plain.search(replace(ASK, limit=10)))
    answer = await setup.chain.search(ASK)
    assert found(answer) == sorted(pool, reverse=True)[:3]
    assert found(answer) != pool[:3], "the reranker moves passages up from below the limit"
    assert [result.rerank_score for result in answer.results] == [float(name[-2:]) for name in found(answer)]
    assert (answer.level, answer.warning) == (Level.PRIMARY, None)
    assert answer.legs[RERANK_LEG].status is RetrieverStatus.OK


async def test_passages_beyond_the_reranked_ones_keep_their_places() -> None:
    setup = await Setup().fill()
    before = found(await setup.plain.search(replace(ASK, limit=NOTES)))
    after = found(await setup.chain.search(replace(ASK, limit=NOTES)))
    assert after == [*sorted(before[:10], reverse=True), *before[10:]]


@pytest.mark.parametrize("mode", list(Mode))
async def test_every_mode_is_reranked(mode: Mode) -> None:
    setup = await Setup().fill()
    answer = await setup.chain.search(replace(ASK, mode=mode))
    assert answer.legs[RERANK_LEG].status is RetrieverStatus.OK
    assert found(answer) == sorted(found(answer), reverse=True)


@pytest.mark.parametrize(
    ("fault", "status"), [(DEAD, RetrieverStatus.FAILED), (HANGS, RetrieverStatus.TIMEOUT)], ids=["dead", "hangs"]
)
async def test_a_failure_changes_nothing_but_the_order_and_is_labelled(fault: Fault, status: RetrieverStatus) -> None:
    setup = await Setup(deadline_s=0.4).fill()
    expected = await setup.plain.search(ASK)
    setup.reranker.fault = fault
    started = time.monotonic()
    answer = await setup.chain.search(ASK)
    assert time.monotonic() - started < 5.0, "it waited for the reranker"
    assert found(answer) == found(expected)
    assert (answer.level, answer.warning) == (Level.PRIMARY, NOT_RERANKED)
    assert answer.legs[RERANK_LEG].status is status
    cache = ResultCache(10, 60.0, FrozenClock())
    cache.put(ASK, 1, answer)
    assert cache.get(ASK, 1) is None, "the next search may be reranked"


async def test_a_reranker_that_is_down_costs_a_few_searches_and_then_none() -> None:
    setup = await Setup().fill()
    setup.reranker.fault = DEAD
    for _ in range(FAILURES_TO_OPEN):
        await setup.chain.search(ASK)
    calls = setup.reranker.calls
    answer = await setup.chain.search(ASK)
    assert (answer.legs[RERANK_LEG].status, setup.reranker.calls) == (RetrieverStatus.OPEN, calls)
    assert answer.level is Level.PRIMARY


async def test_level_2_is_reranked_and_keeps_its_own_warning() -> None:
    setup = await Setup().fill()
    setup.harness.embedder.fault = Fault(error=BackendUnavailableError("embedder", "refused"))
    answer = await setup.chain.search(ASK)
    assert (answer.level, answer.legs[RERANK_LEG].status) == (Level.TEXT, RetrieverStatus.OK)
    setup.reranker.fault = DEAD
    failed = await setup.chain.search(ASK)
    assert failed.warning == answer.warning != NOT_RERANKED
    assert failed.legs[RERANK_LEG].status is RetrieverStatus.FAILED


@pytest.mark.parametrize("scores", [[1.0], [math.nan] * 10, [math.inf] * 10])
async def test_scores_that_are_not_one_number_each_are_not_used(scores: Sequence[float]) -> None:
    setup = await Setup(Fixed(scores)).fill()
    answer = await setup.chain.search(ASK)
    assert answer.legs[RERANK_LEG].status is RetrieverStatus.FAILED
    assert found(answer) == found(await setup.plain.search(ASK))


async def test_equal_scores_leave_the_order_of_the_search() -> None:
    setup = await Setup(Fixed([0.5] * 10)).fill()
    assert found(await setup.chain.search(ASK)) == found(await setup.plain.search(ASK))


async def test_without_text_or_with_one_result_there_is_nothing_to_rerank() -> None:
    setup = await Setup().fill()
    vector = await setup.harness.fake.embed_query("gate")
    answer = await setup.chain.search(Query("", vector=vector, limit=3, min_score=0.0))
    assert len(answer.results) == 3
    alone = await setup.chain.search(Query("nothing like it", limit=3, min_score=1.0))
    assert (setup.reranker.calls, RERANK_LEG in answer.legs, RERANK_LEG in alone.legs) == (0, False, False)

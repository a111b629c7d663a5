"""The fallback chain: each level by the fault that leads to it, and nothing unlabelled."""

import asyncio
from dataclasses import replace

import pytest

from rag_context.domain.documents import Tenant
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import Filter
from rag_context.errors import (
    BackendDataError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
)
from rag_context.ports.reading import DocumentStore, IndexVectors
from rag_context.search.chain import INEXACT, TEXT_MISSING, VECTOR_ONLY, WARNINGS, SearchChain
from rag_context.search.query import Answer, Level, Mode, Query, ResultCache, RetrieverStatus
from rag_context.testing import Fault, Faulty, FrozenClock
from tests.search.harness import TEXTS, ChainHarness

ASK = Query("how often are mongodb connections retried")
DEAD = Fault(BackendUnavailableError("x", "connection refused"))
HANGS = Fault(hang=True)


def found(answer: Answer) -> list[str]:
    return [result.passage.document_id for result in answer.results]


async def test_level_1_unites_both_retrievers(harness: ChainHarness) -> None:
    answer = await harness.chain.search(ASK)
    assert answer.level is Level.PRIMARY
    assert found(answer)[0] == "retry"
    assert answer.warning is None
    assert {name: leg.status for name, leg in answer.legs.items()} == dict.fromkeys(
        ("embedding", "vector", "text"), RetrieverStatus.OK
    )
    assert answer.total_indexed == 3
    assert answer.results[0].vector_rank == 1
    assert answer.results[0].text_rank == 1


@pytest.mark.parametrize(
    "fault",
    [
        DEAD,
        HANGS,
        Fault(BackendDataError("x", "half a body")),
        Fault(BackendRejectedError("x", "wrong dimension")),
        Fault(BackendTimeoutError("x", "late")),
        Fault(BackendStartingError("x", "loading")),
    ],
    ids=["refused", "hangs", "nonsense", "rejected", "late", "loading"],
)
@pytest.mark.parametrize("part", ["embedder", "vectors"])
@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.VECTOR])
async def test_any_failure_of_level_1_ends_in_level_2(
    harness: ChainHarness, part: str, fault: Fault, mode: Mode
) -> None:
    getattr(harness, part).fault = fault
    answer = await harness.chain.search(Query(ASK.text, mode=mode))
    assert answer.level is Level.TEXT
    assert found(answer)[0] == "retry"
    assert answer.warning == "Vector search unavailable, using text search fallback"
    assert answer.legs["text"].status is RetrieverStatus.OK
    assert answer.total_indexed == 3
    assert answer.results[0].ranked.score == answer.results[0].ranked.candidate.share


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (DEAD, RetrieverStatus.FAILED),
        (HANGS, RetrieverStatus.TIMEOUT),
        (Fault(BackendStartingError("x", "loading")), RetrieverStatus.LOADING),
    ],
)
async def test_a_retriever_reports_how_it_failed(harness: ChainHarness, fault: Fault, status: RetrieverStatus) -> None:
    harness.embedder.fault = fault
    answer = await harness.chain.search(ASK)
    assert answer.legs["embedding"].status is status
    assert "vector" not in answer.legs


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_without_keyword_search_level_1_says_so(harness: ChainHarness, fault: Fault) -> None:
    harness.texts.fault = fault
    answer = await harness.chain.search(ASK)
    assert answer.level is Level.PRIMARY
    assert found(answer)[0] == "retry"
    assert answer.warning == TEXT_MISSING


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_when_everything_fails_the_answer_is_empty_and_says_so(harness: ChainHarness, fault: Fault) -> None:
    harness.embedder.fault = harness.texts.fault = fault
    answer = await harness.chain.search(ASK)
    assert answer.level is Level.EMPTY
    assert answer.results == ()
    assert answer.total_indexed == 0
    assert answer.warning == "All search methods failed, returning empty results"
    assert answer.error


async def test_a_store_that_cannot_give_the_passages_is_level_3(harness: ChainHarness) -> None:
    harness.documents.fault = DEAD
    assert (await harness.chain.search(Query(ASK.text, mode=Mode.TEXT))).level is Level.EMPTY


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_a_document_store_that_dies_between_finding_and_ranking_leaves_what_was_found(fault: Fault) -> None:
    harness = ChainHarness(deadline_s=1.0)
    for name, text in TEXTS.items():
        await harness.add(name, text)
    harness.documents.fault = fault
    answer = await harness.chain.search(ASK)
    assert (answer.level, answer.warning) == (Level.PRIMARY, INEXACT)
    assert answer.legs["text"].status is RetrieverStatus.OK
    assert answer.legs["ranking"].status is (RetrieverStatus.TIMEOUT if fault is HANGS else RetrieverStatus.FAILED)
    assert found(answer)[0] == "retry"
    assert (answer.results[0].vector_rank, answer.results[0].text_rank) == (1, 1)
    assert answer.results[0].passage.chunk.text == TEXTS["retry"]


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_a_vector_store_that_dies_between_finding_and_ranking_leaves_what_was_found(
    harness: ChainHarness, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chunk is found by its vector, another by keyword search, and the cosine of the other is unavailable."""
    monkeypatch.setattr("rag_context.search.question_rules.POOL_FLOOR", 1)
    monkeypatch.setattr("rag_context.search.question_rules.POOL_PER_RESULT", 0)
    scores: Faulty[IndexVectors] = Faulty(harness.sources.vectors, "score")
    scores.fault = fault
    sources = replace(harness.sources, vectors=scores.port)
    chain = SearchChain(sources, harness.breaker, deadline_s=0.4, without=(Rule.CODE,))
    query = Query("jackpot", vector=await harness.fake.embed_query(TEXTS["browser"]), min_score=0.0)
    answer = await chain.search(query)
    assert (answer.level, answer.warning) == (Level.PRIMARY, INEXACT)
    assert set(found(answer)) == {"browser", "jackpot"}
    assert {name: leg.status is RetrieverStatus.OK for name, leg in answer.legs.items()} == {
        "vector": True,
        "text": True,
        "ranking": False,
    }


@pytest.mark.parametrize("fault", [DEAD, HANGS])
@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.VECTOR])
async def test_a_dead_document_store_leaves_level_1_with_what_the_vector_store_has(fault: Fault, mode: Mode) -> None:
    harness = ChainHarness(deadline_s=1.0)
    for name, text in TEXTS.items():
        await harness.add(name, text)
    await harness.chain.search(ASK)
    harness.texts.fault = harness.documents.fault = harness.counts.fault = fault
    answer = await harness.chain.search(Query(ASK.text, mode=mode))
    assert answer.level is Level.PRIMARY
    assert found(answer)[0] == "retry"
    assert answer.results[0].passage.chunk.text == TEXTS["retry"]
    assert answer.warning == (TEXT_MISSING if mode is Mode.HYBRID else None)
    assert answer.total_indexed == 3


async def test_surroundings_that_do_not_come_are_done_without_and_waited_for_once(harness: ChainHarness) -> None:
    """F-4: the document store is late once, and the vector store dies meanwhile."""
    late: Faulty[DocumentStore] = Faulty(harness.sources.documents, "neighbours")
    late.fault = HANGS
    dying: Faulty[IndexVectors] = Faulty(harness.sources.vectors, "passages")
    dying.fault = DEAD
    sources = replace(harness.sources, documents=late.port, vectors=dying.port)
    answer = await SearchChain(sources, harness.breaker, deadline_s=0.4).search(ASK)
    assert (answer.level, answer.warning) == (Level.PRIMARY, INEXACT)
    assert found(answer)[0] == "retry"
    assert answer.legs["text"].status is RetrieverStatus.OK
    assert answer.legs["ranking"].status is RetrieverStatus.TIMEOUT
    assert late.calls == 1


@pytest.mark.parametrize(
    ("mode", "level", "warning"), [(Mode.HYBRID, Level.TEXT, WARNINGS[Level.TEXT]), (Mode.TEXT, Level.PRIMARY, INEXACT)]
)
async def test_keyword_search_without_neighbours_in_time_answers_with_a_warning(
    harness: ChainHarness, mode: Mode, level: Level, warning: str
) -> None:
    surroundings: Faulty[DocumentStore] = Faulty(harness.sources.documents, "neighbours")
    surroundings.fault = HANGS
    chain = SearchChain(replace(harness.sources, documents=surroundings.port), harness.breaker, deadline_s=0.4)
    harness.embedder.fault = DEAD
    answer = await chain.search(replace(ASK, mode=mode))
    assert (answer.level, answer.warning) == (level, warning)
    assert found(answer)[0] == "retry"
    assert answer.legs["ranking"].status is RetrieverStatus.TIMEOUT
    cache = ResultCache(10, 60.0, FrozenClock())
    cache.put(ASK, 1, answer)
    assert cache.get(ASK, 1) is None


@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.VECTOR])
async def test_level_2_is_prepared_while_the_vectors_are_late(harness: ChainHarness, mode: Mode) -> None:
    """F-4: what the retrievers leave of the deadline is too short for a slow document store; the waiting is not."""
    slow: Faulty[DocumentStore] = Faulty(harness.sources.documents, "neighbours", "passages")
    slow.fault = Fault(delay_s=0.08)
    chain = SearchChain(replace(harness.sources, documents=slow.port), harness.breaker, deadline_s=0.6)
    harness.embedder.fault = HANGS
    answer = await chain.search(replace(ASK, mode=mode))
    assert answer.level is Level.TEXT
    assert {name: leg.status for name, leg in answer.legs.items()} == {
        "embedding": RetrieverStatus.TIMEOUT,
        "text": RetrieverStatus.OK,
    }
    assert slow.calls == 2, "it was made ready once"


async def test_the_prepared_fallback_is_dropped_where_the_vectors_come_after_all(harness: ChainHarness) -> None:
    harness.embedder.fault = Fault(delay_s=0.25)
    chain = SearchChain(harness.sources, harness.breaker, deadline_s=0.4)
    answer = await chain.search(ASK)
    assert (answer.level, answer.warning) == (Level.PRIMARY, None)
    assert {leg.status for leg in answer.legs.values()} == {RetrieverStatus.OK}
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_keyword_search_needs_the_document_store(harness: ChainHarness) -> None:
    harness.texts.fault = harness.documents.fault = DEAD
    answer = await harness.chain.search(Query(ASK.text, mode=Mode.TEXT))
    assert answer.level is Level.EMPTY


async def test_an_answer_is_not_lost_for_want_of_a_count(harness: ChainHarness) -> None:
    await harness.chain.search(ASK)
    await harness.add("fourth", "Something else.")
    harness.counts.fault = DEAD
    answer = await harness.chain.search(ASK)
    assert answer.level is Level.PRIMARY
    assert answer.total_indexed == 3


async def test_the_fifth_total_failure_opens_the_breaker_and_says_so(harness: ChainHarness) -> None:
    harness.embedder.fault = harness.texts.fault = Fault(BackendDataError("x", "garbage"))
    answers = [await harness.chain.search(ASK) for _ in range(5)]
    assert [answer.level for answer in answers] == [Level.EMPTY] * 5
    assert [answer.breaker_open for answer in answers] == [False] * 4 + [True]
    assert answers[-1].retry_after_s == 60.0


async def test_an_open_breaker_touches_no_backend(harness: ChainHarness) -> None:
    await harness.chain.search(ASK)
    await open_breaker(harness)
    calls = [part.calls for part in (harness.embedder, harness.vectors, harness.texts, harness.documents)]
    answer = await harness.chain.search(ASK)
    assert answer.level is Level.OPEN
    assert answer.breaker_open
    assert answer.warning == "Circuit breaker is open - too many failures"
    assert answer.total_indexed == 3
    assert {leg.status for leg in answer.legs.values()} == {RetrieverStatus.SKIPPED}
    assert [part.calls for part in (harness.embedder, harness.vectors, harness.texts, harness.documents)] == calls


async def test_after_a_minute_one_search_probes_and_closes_it(harness: ChainHarness) -> None:
    await open_breaker(harness)
    harness.clock.advance(60.0)
    harness.embedder.fault = Fault(delay_s=0.02)
    answers = await asyncio.gather(*(harness.chain.search(ASK) for _ in range(3)))
    assert sorted(answer.level for answer in answers) == [Level.PRIMARY, Level.OPEN, Level.OPEN]
    assert harness.breaker.closed


async def test_a_cancelled_probe_frees_its_place(harness: ChainHarness) -> None:
    await open_breaker(harness)
    harness.clock.advance(60.0)
    harness.embedder.fault = harness.texts.fault = HANGS
    probe = asyncio.create_task(harness.chain.search(ASK))
    await asyncio.sleep(0.01)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    harness.embedder.fault = harness.texts.fault = None
    assert (await harness.chain.search(ASK)).level is Level.PRIMARY


async def test_a_level_2_answer_counts_as_success(harness: ChainHarness) -> None:
    for _ in range(3):
        harness.embedder.fault = harness.texts.fault = Fault(BackendRejectedError("x", "no"))
        for _ in range(4):
            await harness.chain.search(ASK)
        harness.texts.fault = None
        assert (await harness.chain.search(ASK)).level is Level.TEXT
    assert harness.breaker.closed


async def test_a_dead_dependency_is_skipped_after_three_failures(harness: ChainHarness) -> None:
    harness.embedder.fault = Fault(BackendDataError("embedder", "garbage"))
    for _ in range(3):
        await harness.chain.search(ASK)
    calls = harness.embedder.calls
    answer = await harness.chain.search(ASK)
    assert answer.level is Level.TEXT
    assert answer.legs["embedding"].status is RetrieverStatus.OPEN
    assert harness.embedder.calls == calls


async def test_a_loading_model_counts_for_no_breaker(harness: ChainHarness) -> None:
    harness.embedder.fault = Fault(BackendStartingError("embedder", "loading"))
    for _ in range(10):
        assert (await harness.chain.search(ASK)).level is Level.TEXT
    harness.embedder.fault = None
    assert (await harness.chain.search(ASK)).level is Level.PRIMARY


async def test_a_hiccup_is_tried_once_more(harness: ChainHarness) -> None:
    calls = 0

    async def hiccup() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise BackendUnavailableError("x", "reset")
        return "there"

    assert await harness.sources.embedding.call(hiccup, 1.0) == "there"
    assert harness.sources.embedding.breaker.closed


async def test_text_mode_on_request_is_level_1(harness: ChainHarness) -> None:
    harness.embedder.fault = DEAD
    answer = await harness.chain.search(Query(ASK.text, mode=Mode.TEXT))
    assert answer.level is Level.PRIMARY
    assert answer.warning is None
    assert set(answer.legs) == {"text"}
    assert found(answer)[0] == "retry"


async def test_vector_mode_on_request_is_ordered_by_cosine_alone(harness: ChainHarness) -> None:
    answer = await harness.chain.search(Query("jackpot", mode=Mode.VECTOR, min_score=0.0, limit=20))
    cosines = [result.ranked.candidate.cosine for result in answer.results]
    assert len(cosines) == 3
    assert cosines == sorted(cosines, key=lambda cosine: -(cosine or 0.0))
    assert "text" not in answer.legs


async def test_min_score_0_returns_everything_found(harness: ChainHarness) -> None:
    everything = await harness.chain.search(Query(ASK.text, min_score=0.0))
    assert set(found(everything)) == {"retry", "jackpot", "browser"}
    default = await harness.chain.search(ASK)
    assert found(default) == ["retry"]


async def test_a_threshold_that_nothing_reaches_leaves_an_empty_level_1(harness: ChainHarness) -> None:
    answer = await harness.chain.search(Query("quantum chromodynamics lattice", min_score=1.0))
    assert answer.level is Level.PRIMARY
    assert answer.results == ()
    assert answer.unanswerable


async def test_the_holder_of_a_rare_term_is_never_lost_to_the_models_threshold(harness: ChainHarness) -> None:
    long = "Restart the pump when ERR4711 shows up in the log, then wait a while for pressure, and go home. "
    await harness.add("code", long + " ".join(f"word{number}" for number in range(60)))
    answer = await harness.chain.search(Query("ERR4711"))
    assert found(answer) == ["code"]
    assert answer.results[0].ranked.score < harness.fake.model.calibration.threshold


@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.TEXT])
async def test_a_requested_minimum_applies_to_the_holder_of_rare_terms_too(harness: ChainHarness, mode: Mode) -> None:
    await harness.add("code", "Restart the pump when ERR4711 shows up in the log, then wait a while for pressure.")
    answer = await harness.chain.search(Query("ERR4711 turbine manifold", mode=mode, min_score=0.99))
    assert found(answer) == []


async def test_one_large_document_leaves_room_for_the_others(harness: ChainHarness) -> None:
    await harness.add("large", "MongoDB connections are retried again.", copies=150)
    for number in range(5):
        await harness.add(f"small-{number}", f"MongoDB connections, told in the way of team {number}.")
    query = Query("MongoDB connections retried again", limit=16, min_score=0.0)
    assert set(found(await harness.chain.search(query))) == {"large"}
    spread = found(await harness.chain.search(replace(query, per_document=2)))
    assert {"large", *(f"small-{number}" for number in range(5))} <= set(spread)
    assert spread.count("large") == 2


async def test_a_deleted_document_is_not_found(harness: ChainHarness) -> None:
    answer_before = await harness.chain.search(ASK)
    assert found(answer_before) == ["retry"]
    await harness.store.delete("retry")
    assert "retry" not in found(await harness.chain.search(ASK))


async def test_no_other_tenants_document_is_returned(harness: ChainHarness) -> None:
    other = Tenant("other", "main", "0123456789abcdef")
    await harness.add("secret", "MongoDB connections of the other tenant retry ten times.", tenant=other)
    for mode in Mode:
        assert "secret" not in found(await harness.chain.search(Query(ASK.text, mode=mode, min_score=0.0, limit=20)))
        theirs = await harness.chain.search(Query(ASK.text, mode=mode, min_score=0.0, where=Filter(other)))
        assert found(theirs) == ["secret"]


async def test_an_empty_index_answers_empty_at_level_1() -> None:
    answer = await ChainHarness().chain.search(ASK)
    assert answer.level is Level.PRIMARY
    assert answer.results == ()
    assert answer.total_indexed == 0
    assert answer.unanswerable


async def test_an_error_of_no_backend_is_a_bug_and_stays_one(harness: ChainHarness) -> None:
    harness.embedder.fault = Fault(TypeError("bug"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bug"):
        await harness.chain.search(ASK)


async def test_nothing_is_left_running_after_an_answer(harness: ChainHarness) -> None:
    harness.texts.fault = HANGS
    await harness.chain.search(Query(ASK.text, mode=Mode.VECTOR))
    harness.embedder.fault = HANGS
    harness.texts.fault = None
    await harness.chain.search(ASK)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def open_breaker(harness: ChainHarness) -> None:
    harness.embedder.fault = harness.texts.fault = Fault(BackendRejectedError("x", "no"))
    for _ in range(5):
        await harness.chain.search(ASK)
    assert not harness.breaker.closed
    harness.embedder.fault = harness.texts.fault = None


async def test_a_vector_alone_runs_the_vector_retriever_alone(harness: ChainHarness) -> None:
    vector = await harness.fake.embed_query(ASK.text)
    harness.embedder.fault = harness.texts.fault = DEAD
    answer = await harness.chain.search(Query("", vector=vector))
    assert (answer.level, answer.warning, list(answer.legs)) == (Level.PRIMARY, None, ["vector"])
    assert found(answer)[0] == "retry"


async def test_a_vector_beside_a_text_saves_embedding_the_text(harness: ChainHarness) -> None:
    whole = await harness.chain.search(ASK)
    vector = await harness.fake.embed_query(ASK.text)
    harness.embedder.fault = DEAD
    answer = await harness.chain.search(replace(ASK, vector=vector))
    assert set(answer.legs) == {"vector", "text"}
    assert [result.ranked for result in answer.results] == [result.ranked for result in whole.results]


async def test_a_vector_without_a_vector_store_is_level_3_and_counts_for_no_breaker(harness: ChainHarness) -> None:
    vector = await harness.fake.embed_query(ASK.text)
    harness.vectors.fault = DEAD
    for _ in range(6):
        answer = await harness.chain.search(Query("", vector=vector))
        assert (answer.level, answer.results, answer.warning) == (Level.EMPTY, (), VECTOR_ONLY)
    assert harness.breaker.closed
    assert (await harness.chain.search(ASK)).level is Level.TEXT

"""The fallback chain: each level by the fault that leads to it, and nothing that is not said."""

import asyncio
from dataclasses import replace

import pytest

from rag_context.domain.documents import Tenant
from rag_context.domain.search import Filter
from rag_context.errors import (
    BackendDataError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
)
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.resilience.deadline import Deadline
from rag_context.search.cache import ResultCache
from rag_context.search.chain import INEXACT, TEXT_MISSING, VECTOR_ONLY, WARNINGS, SearchChain
from rag_context.search.query import Answer, Level, Mode, Query, RetrieverStatus
from rag_context.testing import Fault, Faulty, FrozenClock
from tests.search.harness import TEXTS, Bench

ASK = Query("how often are mongodb connections retried")
DEAD = Fault(BackendUnavailableError("x", "connection refused"))
HANGS = Fault(hang=True)


def found(answer: Answer) -> list[str]:
    return [result.passage.document_id for result in answer.results]


async def test_level_1_unites_both_retrievers(bench: Bench) -> None:
    answer = await bench.chain.search(ASK)
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
async def test_any_failure_of_level_1_leads_to_level_2(bench: Bench, part: str, fault: Fault, mode: Mode) -> None:
    getattr(bench, part).fault = fault
    answer = await bench.chain.search(Query(ASK.text, mode=mode))
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
async def test_a_retriever_reports_how_it_failed(bench: Bench, fault: Fault, status: RetrieverStatus) -> None:
    bench.embedder.fault = fault
    answer = await bench.chain.search(ASK)
    assert answer.legs["embedding"].status is status
    assert "vector" not in answer.legs


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_without_keyword_search_level_1_says_so(bench: Bench, fault: Fault) -> None:
    bench.texts.fault = fault
    answer = await bench.chain.search(ASK)
    assert answer.level is Level.PRIMARY
    assert found(answer)[0] == "retry"
    assert answer.warning == TEXT_MISSING


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_when_everything_fails_the_answer_is_empty_and_says_so(bench: Bench, fault: Fault) -> None:
    bench.embedder.fault = bench.texts.fault = fault
    answer = await bench.chain.search(ASK)
    assert answer.level is Level.EMPTY
    assert answer.results == ()
    assert answer.total_indexed == 0
    assert answer.warning == "All search methods failed, returning empty results"
    assert answer.error


async def test_a_store_that_cannot_give_the_passages_is_level_3(bench: Bench) -> None:
    bench.documents.fault = DEAD
    assert (await bench.chain.search(Query(ASK.text, mode=Mode.TEXT))).level is Level.EMPTY


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_a_document_store_that_dies_between_finding_and_ranking_leaves_what_was_found(fault: Fault) -> None:
    bench = Bench(deadline_s=1.0)
    for name, text in TEXTS.items():
        await bench.add(name, text)
    bench.documents.fault = fault
    answer = await bench.chain.search(ASK)
    assert (answer.level, answer.warning) == (Level.PRIMARY, INEXACT)
    assert answer.legs["text"].status is RetrieverStatus.OK
    assert answer.legs["ranking"].status is (RetrieverStatus.TIMEOUT if fault is HANGS else RetrieverStatus.FAILED)
    assert found(answer)[0] == "retry"
    assert (answer.results[0].vector_rank, answer.results[0].text_rank) == (1, 1)
    assert answer.results[0].passage.chunk.text == TEXTS["retry"]


@pytest.mark.parametrize("fault", [DEAD, HANGS])
async def test_a_vector_store_that_dies_between_finding_and_ranking_leaves_what_was_found(
    bench: Bench, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chunk is found by its vector, another by its words, and the cosine of the other is not to be had."""
    monkeypatch.setattr("rag_context.search.retrievers.POOL_FLOOR", 1)
    monkeypatch.setattr("rag_context.search.retrievers.POOL_PER_RESULT", 0)
    scores: Faulty[VectorStore] = Faulty(bench.sources.vectors, "score")
    scores.fault = fault
    chain = SearchChain(replace(bench.sources, vectors=scores.port), bench.breaker, deadline_s=0.4)
    query = Query("jackpot", vector=await bench.fake.embed_query(TEXTS["browser"]), min_score=0.0)
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
    bench = Bench(deadline_s=1.0)
    for name, text in TEXTS.items():
        await bench.add(name, text)
    await bench.chain.search(ASK)
    bench.texts.fault = bench.documents.fault = bench.counts.fault = fault
    answer = await bench.chain.search(Query(ASK.text, mode=mode))
    assert answer.level is Level.PRIMARY
    assert found(answer)[0] == "retry"
    assert answer.results[0].passage.chunk.text == TEXTS["retry"]
    assert answer.warning == (TEXT_MISSING if mode is Mode.HYBRID else None)
    assert answer.total_indexed == 3


async def test_surroundings_that_do_not_come_are_done_without_and_waited_for_once(bench: Bench) -> None:
    """F-4: the document store is late once, and the vector store dies meanwhile."""
    late: Faulty[DocumentStore] = Faulty(bench.sources.documents, "neighbours")
    late.fault = HANGS
    dying: Faulty[VectorStore] = Faulty(bench.sources.vectors, "passages")
    dying.fault = DEAD
    sources = replace(bench.sources, documents=late.port, vectors=dying.port)
    answer = await SearchChain(sources, bench.breaker, deadline_s=0.4).search(ASK)
    assert (answer.level, answer.warning) == (Level.PRIMARY, INEXACT)
    assert found(answer)[0] == "retry"
    assert answer.legs["text"].status is RetrieverStatus.OK
    assert answer.legs["ranking"].status is RetrieverStatus.TIMEOUT
    assert late.calls == 1


@pytest.mark.parametrize(
    ("mode", "level", "warning"),
    [(Mode.HYBRID, Level.TEXT, WARNINGS[Level.TEXT]), (Mode.TEXT, Level.PRIMARY, INEXACT)],
)
async def test_keyword_search_without_neighbours_in_time_answers_with_a_warning(
    bench: Bench, mode: Mode, level: Level, warning: str
) -> None:
    surroundings: Faulty[DocumentStore] = Faulty(bench.sources.documents, "neighbours")
    surroundings.fault = HANGS
    chain = SearchChain(replace(bench.sources, documents=surroundings.port), bench.breaker, deadline_s=0.4)
    bench.embedder.fault = DEAD
    answer = await chain.search(replace(ASK, mode=mode))
    assert (answer.level, answer.warning) == (level, warning)
    assert found(answer)[0] == "retry"
    assert answer.legs["ranking"].status is RetrieverStatus.TIMEOUT
    cache = ResultCache(10, 60.0, FrozenClock())
    cache.put(ASK, 1, answer)
    assert cache.get(ASK, 1) is None


@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.VECTOR])
async def test_level_2_is_prepared_while_the_vectors_are_late(bench: Bench, mode: Mode) -> None:
    """F-4: what the legs leave of the deadline is too short for a slow document store; the waiting is not."""
    slow: Faulty[DocumentStore] = Faulty(bench.sources.documents, "neighbours", "passages")
    slow.fault = Fault(delay_s=0.08)
    chain = SearchChain(replace(bench.sources, documents=slow.port), bench.breaker, deadline_s=0.6)
    bench.embedder.fault = HANGS
    answer = await chain.search(replace(ASK, mode=mode))
    assert answer.level is Level.TEXT
    assert {name: leg.status for name, leg in answer.legs.items()} == {
        "embedding": RetrieverStatus.TIMEOUT,
        "text": RetrieverStatus.OK,
    }
    assert slow.calls == 2, "it was made ready once"


async def test_the_prepared_fallback_is_dropped_where_the_vectors_come_after_all(bench: Bench) -> None:
    bench.embedder.fault = Fault(delay_s=0.25)
    chain = SearchChain(bench.sources, bench.breaker, deadline_s=0.4)
    answer = await chain.search(ASK)
    assert (answer.level, answer.warning) == (Level.PRIMARY, None)
    assert {leg.status for leg in answer.legs.values()} == {RetrieverStatus.OK}
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_keyword_search_needs_the_document_store(bench: Bench) -> None:
    bench.texts.fault = bench.documents.fault = DEAD
    answer = await bench.chain.search(Query(ASK.text, mode=Mode.TEXT))
    assert answer.level is Level.EMPTY


async def test_an_answer_is_not_lost_for_want_of_a_count(bench: Bench) -> None:
    await bench.chain.search(ASK)
    await bench.add("fourth", "Something else.")
    bench.counts.fault = DEAD
    answer = await bench.chain.search(ASK)
    assert answer.level is Level.PRIMARY
    assert answer.total_indexed == 3


async def test_the_fifth_total_failure_opens_the_breaker_and_says_so(bench: Bench) -> None:
    bench.embedder.fault = bench.texts.fault = Fault(BackendDataError("x", "garbage"))
    answers = [await bench.chain.search(ASK) for _ in range(5)]
    assert [answer.level for answer in answers] == [Level.EMPTY] * 5
    assert [answer.breaker_open for answer in answers] == [False] * 4 + [True]
    assert answers[-1].retry_after_s == 60.0


async def test_an_open_breaker_touches_no_backend(bench: Bench) -> None:
    await bench.chain.search(ASK)
    await open_breaker(bench)
    calls = [part.calls for part in (bench.embedder, bench.vectors, bench.texts, bench.documents)]
    answer = await bench.chain.search(ASK)
    assert answer.level is Level.OPEN
    assert answer.breaker_open
    assert answer.warning == "Circuit breaker is open - too many failures"
    assert answer.total_indexed == 3
    assert {leg.status for leg in answer.legs.values()} == {RetrieverStatus.SKIPPED}
    assert [part.calls for part in (bench.embedder, bench.vectors, bench.texts, bench.documents)] == calls


async def test_after_a_minute_one_search_probes_and_closes_it(bench: Bench) -> None:
    await open_breaker(bench)
    bench.clock.advance(60.0)
    bench.embedder.fault = Fault(delay_s=0.02)
    answers = await asyncio.gather(*(bench.chain.search(ASK) for _ in range(3)))
    assert sorted(answer.level for answer in answers) == [Level.PRIMARY, Level.OPEN, Level.OPEN]
    assert bench.breaker.closed


async def test_a_cancelled_probe_frees_its_place(bench: Bench) -> None:
    await open_breaker(bench)
    bench.clock.advance(60.0)
    bench.embedder.fault = bench.texts.fault = HANGS
    probe = asyncio.create_task(bench.chain.search(ASK))
    await asyncio.sleep(0.01)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    bench.embedder.fault = bench.texts.fault = None
    assert (await bench.chain.search(ASK)).level is Level.PRIMARY


async def test_a_level_2_answer_counts_as_success(bench: Bench) -> None:
    for _ in range(3):
        bench.embedder.fault = bench.texts.fault = Fault(BackendRejectedError("x", "no"))
        for _ in range(4):
            await bench.chain.search(ASK)
        bench.texts.fault = None
        assert (await bench.chain.search(ASK)).level is Level.TEXT
    assert bench.breaker.closed


async def test_a_dead_dependency_is_skipped_after_three_failures(bench: Bench) -> None:
    bench.embedder.fault = Fault(BackendDataError("embedder", "garbage"))
    for _ in range(3):
        await bench.chain.search(ASK)
    calls = bench.embedder.calls
    answer = await bench.chain.search(ASK)
    assert answer.level is Level.TEXT
    assert answer.legs["embedding"].status is RetrieverStatus.OPEN
    assert bench.embedder.calls == calls


async def test_a_loading_model_counts_for_no_breaker(bench: Bench) -> None:
    bench.embedder.fault = Fault(BackendStartingError("embedder", "loading"))
    for _ in range(10):
        assert (await bench.chain.search(ASK)).level is Level.TEXT
    bench.embedder.fault = None
    assert (await bench.chain.search(ASK)).level is Level.PRIMARY


async def test_a_hiccup_is_tried_once_more(bench: Bench) -> None:
    calls = 0

    async def hiccup() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise BackendUnavailableError("x", "reset")
        return "there"

    assert await bench.sources.embedding.call(hiccup, Deadline.after(1.0, bench.clock)) == "there"
    assert bench.sources.embedding.breaker.closed


async def test_text_mode_on_request_is_level_1(bench: Bench) -> None:
    bench.embedder.fault = DEAD
    answer = await bench.chain.search(Query(ASK.text, mode=Mode.TEXT))
    assert answer.level is Level.PRIMARY
    assert answer.warning is None
    assert set(answer.legs) == {"text"}
    assert found(answer)[0] == "retry"


async def test_vector_mode_on_request_is_ordered_by_cosine_alone(bench: Bench) -> None:
    answer = await bench.chain.search(Query("jackpot", mode=Mode.VECTOR, min_score=0.0, limit=20))
    cosines = [result.ranked.candidate.cosine for result in answer.results]
    assert len(cosines) == 3
    assert cosines == sorted(cosines, key=lambda cosine: -(cosine or 0.0))
    assert "text" not in answer.legs


async def test_min_score_0_returns_everything_found(bench: Bench) -> None:
    everything = await bench.chain.search(Query(ASK.text, min_score=0.0))
    assert set(found(everything)) == {"retry", "jackpot", "browser"}
    default = await bench.chain.search(ASK)
    assert found(default) == ["retry"]


async def test_a_threshold_that_nothing_reaches_leaves_an_empty_level_1(bench: Bench) -> None:
    answer = await bench.chain.search(Query("quantum chromodynamics lattice", min_score=1.0))
    assert answer.level is Level.PRIMARY
    assert answer.results == ()
    assert answer.unanswerable


async def test_the_holder_of_a_rare_term_is_never_lost_to_the_models_threshold(bench: Bench) -> None:
    long = "Restart the pump when ERR4711 shows up in the log, then wait a while for pressure, and go home. "
    await bench.add("code", long + " ".join(f"word{number}" for number in range(60)))
    answer = await bench.chain.search(Query("ERR4711"))
    assert found(answer) == ["code"]
    assert answer.results[0].ranked.score < bench.fake.model.calibration.threshold


@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.TEXT])
async def test_a_requested_minimum_applies_to_the_holder_of_rare_terms_too(bench: Bench, mode: Mode) -> None:
    await bench.add("code", "Restart the pump when ERR4711 shows up in the log, then wait a while for pressure.")
    answer = await bench.chain.search(Query("ERR4711 turbine manifold", mode=mode, min_score=0.99))
    assert found(answer) == []


async def test_one_large_document_leaves_room_for_the_others(bench: Bench) -> None:
    await bench.add("large", "MongoDB connections are retried again.", copies=150)
    for number in range(5):
        await bench.add(f"small-{number}", f"MongoDB connections, told in the way of team {number}.")
    query = Query("MongoDB connections retried again", limit=16, min_score=0.0)
    assert set(found(await bench.chain.search(query))) == {"large"}
    spread = found(await bench.chain.search(replace(query, per_document=2)))
    assert {"large", *(f"small-{number}" for number in range(5))} <= set(spread)
    assert spread.count("large") == 2


async def test_a_deleted_document_is_not_found(bench: Bench) -> None:
    answer_before = await bench.chain.search(ASK)
    assert found(answer_before) == ["retry"]
    await bench.store.delete("retry")
    assert "retry" not in found(await bench.chain.search(ASK))


async def test_no_other_tenants_document_is_returned(bench: Bench) -> None:
    other = Tenant("other", "main", "0123456789abcdef")
    await bench.add("secret", "MongoDB connections of the other tenant retry ten times.", tenant=other)
    for mode in Mode:
        assert "secret" not in found(await bench.chain.search(Query(ASK.text, mode=mode, min_score=0.0, limit=20)))
        theirs = await bench.chain.search(Query(ASK.text, mode=mode, min_score=0.0, where=Filter(other)))
        assert found(theirs) == ["secret"]


async def test_an_empty_index_answers_empty_at_level_1() -> None:
    answer = await Bench().chain.search(ASK)
    assert answer.level is Level.PRIMARY
    assert answer.results == ()
    assert answer.total_indexed == 0
    assert answer.unanswerable


async def test_an_error_of_no_backend_is_a_bug_and_stays_one(bench: Bench) -> None:
    bench.embedder.fault = Fault(TypeError("bug"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bug"):
        await bench.chain.search(ASK)


async def test_nothing_is_left_running_after_an_answer(bench: Bench) -> None:
    bench.texts.fault = HANGS
    await bench.chain.search(Query(ASK.text, mode=Mode.VECTOR))
    bench.embedder.fault = HANGS
    bench.texts.fault = None
    await bench.chain.search(ASK)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def open_breaker(bench: Bench) -> None:
    bench.embedder.fault = bench.texts.fault = Fault(BackendRejectedError("x", "no"))
    for _ in range(5):
        await bench.chain.search(ASK)
    assert not bench.breaker.closed
    bench.embedder.fault = bench.texts.fault = None


async def test_a_vector_alone_runs_the_vector_retriever_alone(bench: Bench) -> None:
    vector = await bench.fake.embed_query(ASK.text)
    bench.embedder.fault = bench.texts.fault = DEAD
    answer = await bench.chain.search(Query("", vector=vector))
    assert (answer.level, answer.warning, list(answer.legs)) == (Level.PRIMARY, None, ["vector"])
    assert found(answer)[0] == "retry"


async def test_a_vector_beside_a_text_saves_embedding_the_text(bench: Bench) -> None:
    whole = await bench.chain.search(ASK)
    vector = await bench.fake.embed_query(ASK.text)
    bench.embedder.fault = DEAD
    answer = await bench.chain.search(replace(ASK, vector=vector))
    assert set(answer.legs) == {"vector", "text"}
    assert [result.ranked for result in answer.results] == [result.ranked for result in whole.results]


async def test_a_vector_without_a_vector_store_is_level_3_and_counts_for_no_breaker(bench: Bench) -> None:
    vector = await bench.fake.embed_query(ASK.text)
    bench.vectors.fault = DEAD
    for _ in range(6):
        answer = await bench.chain.search(Query("", vector=vector))
        assert (answer.level, answer.results, answer.warning) == (Level.EMPTY, (), VECTOR_ONLY)
    assert bench.breaker.closed
    assert (await bench.chain.search(ASK)).level is Level.TEXT

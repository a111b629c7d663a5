"""Searching through the service: the envelope, the cache, and what is remembered."""

import pytest

from rag_context.api.handlers import CallContext
from rag_context.api.maintenance import StatsRequest
from rag_context.api.search import SearchFailedError, SearchRequest
from rag_context.errors import BackendDataError, BackendUnavailableError
from rag_context.testing import Fault
from rag_context.testing.fakes import WordTokenizer
from tests.memory.harness import ServiceHarness

TEXT = "MongoDB connections use retry logic with exponential backoff."


async def test_every_promised_field_is_there(harness: ServiceHarness) -> None:
    receipt = await harness.index(TEXT, metadata={"agent": "oracle", "tags": ["db"], "ticket": 7})
    answer = await harness.search("mongodb retry logic")
    (result,) = answer.results
    assert result.content == TEXT
    assert result.source == "notes"
    assert result.session_id == "s"
    assert result.document_id == receipt.document_id
    assert result.chunk_id == receipt.vector_ids[0]
    assert (result.start_line, result.end_line) == (1, 1)
    assert result.metadata == {"agent": "oracle", "tags": ["db"], "ticket": 7}
    assert 0.3 <= result.score <= 1.0
    assert result.explain is None
    assert (answer.fallback, answer.fallback_level, answer.circuit_breaker_open) == (False, 1, False)
    assert answer.total_indexed == 1
    assert answer.request_id == "r-1"
    assert answer.warning is None
    assert set(answer.legs) == {"embedding", "vector", "text"}


async def test_explain_reports_rank_and_raw_score_of_each_retriever(harness: ServiceHarness) -> None:
    await harness.index(TEXT)
    answer = await harness.search("mongodb retry logic", explain=True)
    explain = answer.results[0].explain
    assert explain is not None
    assert {name: leg.rank for name, leg in explain.legs.items()} == {"vector": 1, "text": 1}
    assert explain.signals["idfShare"] == 1.0
    assert explain.legs["vector"].score == explain.signals["cosine"]
    assert explain.fused > 0


async def test_the_second_answer_comes_from_the_cache_and_says_so(harness: ServiceHarness) -> None:
    await harness.index(TEXT)
    first = await harness.search("mongodb retry logic")
    calls = harness.documents.calls
    second = await harness.search("mongodb retry logic")
    assert first.cached is None
    assert second.cached
    assert second.fallback_level == 1
    assert second.results == first.results
    assert harness.documents.calls == calls


async def test_a_write_invalidates_the_cache(harness: ServiceHarness) -> None:
    await harness.index(TEXT)
    await harness.search("mongodb retry logic")
    await harness.index("MongoDB retry logic again, elsewhere.", source="other")
    answer = await harness.search("mongodb retry logic")
    assert answer.cached is None
    assert len(answer.results) == 2


async def test_another_filter_is_another_answer(harness: ServiceHarness) -> None:
    await harness.index(TEXT)
    await harness.index("Red foxes live here.", project="other")
    await harness.search("mongodb retry logic")
    assert (await harness.search("mongodb retry logic", sessionId="none")).results == []
    assert (await harness.search("mongodb retry logic", project="other")).results == []


async def test_a_cached_answer_outlives_its_backends_but_not_its_time_to_live(harness: ServiceHarness) -> None:
    await harness.index(TEXT)
    await harness.search("mongodb retry logic")
    harness.documents.fault = harness.embedder.fault = Fault(BackendDataError("x", "dead"))
    assert (await harness.search("mongodb retry logic")).cached
    harness.clock.advance(301.0)
    assert (await harness.search("mongodb retry logic")).fallback_level in (2, 3)


async def test_a_degraded_answer_is_not_cached(harness: ServiceHarness) -> None:
    await harness.index(TEXT)
    harness.embedder.fault = Fault(BackendDataError("embedder", "dead"))
    assert (await harness.search("mongodb retry logic")).fallback_level == 2
    harness.embedder.fault = None
    again = await harness.search("mongodb retry logic")
    assert again.fallback_level == 1
    assert again.cached is None


async def test_a_source_with_a_star_is_a_prefix(harness: ServiceHarness) -> None:
    await harness.index(TEXT, source="docs/a.md")
    await harness.index(TEXT, source="notes/b.md")
    assert [r.source for r in (await harness.search("mongodb retry", source="docs/*")).results] == ["docs/a.md"]
    assert (await harness.search("mongodb retry", source="docs/")).results == []
    assert len((await harness.search("mongodb retry", source="*")).results) == 2


async def test_each_search_leaves_one_record(harness: ServiceHarness) -> None:
    await harness.index(TEXT)
    await harness.search("mongodb retry logic " + "x" * 300, agent="oracle", game="FireKirin", category="casino")
    await harness.search("mongodb retry logic")
    await harness.search("mongodb retry logic")
    await harness.telemetry.flush()
    first, second, third = harness.store.searches
    assert len(first.query) == 200
    assert (first.agent, first.game, first.category, first.level) == ("oracle", "FireKirin", "casino", 1)
    assert first.embedding_latency_ms is not None
    assert (second.agent, second.cache_hit, third.cache_hit) == ("unknown", False, True)
    assert third.embedding_latency_ms is None
    assert [r.results_count for r in (second, third)] == [1, 1]


async def test_what_failed_is_recorded_without_the_query(harness: ServiceHarness) -> None:
    harness.embedder.fault = harness.documents.fault = Fault(BackendUnavailableError("x", "refused"))
    answer = await harness.search("a very private question")
    assert answer.fallback_level == 3
    harness.documents.fault = None
    await harness.telemetry.flush()
    assert harness.store.searches[0].error
    assert "private" not in "".join(error.message for error in harness.store.errors)


async def test_level_3_and_4_say_when_to_come_back(harness: ServiceHarness) -> None:
    harness.embedder.fault = harness.documents.fault = Fault(BackendDataError("x", "dead"))
    request = SearchRequest(query="anything", strict=True)
    failures = []
    for _ in range(6):
        with pytest.raises(SearchFailedError) as failed:
            await harness.service.search(request, CallContext("r"))
        failures.append(failed.value)
    assert [each.failure.fallback_level for each in failures] == [3, 3, 3, 3, 3, 4]
    assert failures[0].retry_after_s
    assert failures[4].failure.circuit_breaker_open
    assert 0 < (failures[5].retry_after_s or 0) <= 60


async def test_meters_count_by_level_and_agent(harness: ServiceHarness) -> None:
    await harness.index(TEXT)
    await harness.search("mongodb retry logic", agent="oracle")
    text = (await harness.service.prometheus()).decode()
    assert 'rag_queries_total{agent="oracle",level="1"} 1.0' in text
    assert "rag_latency_seconds_bucket" in text
    assert "rag_circuit_breaker_state 0.0" in text
    for i in range(150):
        await harness.search("mongodb retry logic", agent=f"agent-{i}")
    assert 'rag_queries_total{agent="other"' in (await harness.service.prometheus()).decode()


async def test_meters_count_the_vectors_that_are_there(harness: ServiceHarness) -> None:
    """O-3: also without health reports; a store that does not answer leaves the last count."""
    await harness.index(TEXT)
    assert "rag_vectors_total 1.0" in (await harness.service.prometheus()).decode()
    harness.documents.fault = Fault(BackendDataError("documents", "garbage"))
    assert "rag_vectors_total 1.0" in (await harness.service.prometheus()).decode()


async def test_metrics_report_lost_records(harness: ServiceHarness) -> None:
    """O-1."""
    assert "rag_records_dropped_total 0.0" in (await harness.service.prometheus()).decode()
    harness.metrics.fault = Fault(BackendUnavailableError("documents", "locked"))
    for number in range(101):
        await harness.search(f"question {number}")
    assert "rag_records_dropped_total 1.0" in (await harness.service.prometheus()).decode()


def words(text: str) -> int:
    return len(WordTokenizer().offsets(text))


async def filled(harness: ServiceHarness) -> ServiceHarness:
    for number in range(4):
        await harness.index(f"Fox number {number} hunts mice.", source=str(number))
    return harness


async def test_an_answer_is_cut_after_the_last_passage_that_fits(harness: ServiceHarness) -> None:
    whole = await (await filled(harness)).search("fox hunts mice")
    assert len(whole.results) == 4
    assert whole.omitted is None
    each = words(whole.results[0].content)
    cut = await harness.search("fox hunts mice", maxTokens=3 * each - 1)
    assert [result.chunk_id for result in cut.results] == [result.chunk_id for result in whole.results[:2]]
    assert cut.omitted == 2


async def test_what_just_fits_is_kept(harness: ServiceHarness) -> None:
    whole = await (await filled(harness)).search("fox hunts mice")
    total = sum(words(result.content) for result in whole.results)
    assert (await harness.search("fox hunts mice", maxTokens=total)).omitted == 0


async def test_where_not_even_one_fits_all_are_left_out_and_counted(harness: ServiceHarness) -> None:
    cut = await (await filled(harness)).search("fox hunts mice", maxTokens=1)
    assert (cut.results, cut.omitted, cut.fallback_level) == ([], 4, 1)


async def test_a_cached_answer_is_cut_to_each_callers_budget(harness: ServiceHarness) -> None:
    await (await filled(harness)).search("fox hunts mice", maxTokens=1)
    again = await harness.search("fox hunts mice")
    assert again.cached
    assert len(again.results) == 4


async def test_statistics_list_the_latest_searches_and_those_without_an_answer(harness: ServiceHarness) -> None:
    """W-4."""
    assert (await harness.service.stats(StatsRequest(include="recent"))).recent == []
    await harness.search("zzzz")  # nothing is stored
    await harness.index("Red foxes live here.")
    await harness.search("red foxes", agent="opus")
    stats = await harness.service.stats(StatsRequest(include="recent"))
    assert {(each.query, each.agent, each.answered) for each in stats.recent or ()} == {
        ("zzzz", "unknown", False), ("red foxes", "opus", True)
    }  # fmt: skip
    assert (await harness.service.stats(StatsRequest())).recent is None


async def test_a_section_is_shown_with_what_stands_between_two_pieces_that_were_found(harness: ServiceHarness) -> None:
    """The keywords find the first and the last piece; the one between them has nothing of the question."""
    fill = "so it is as we go on " * 16
    parts = [f"{begin} {fill.strip()}" for begin in ("Valves close at noon.", "Tea is served.", "Valves open at dusk.")]
    await harness.index("# House\n\n" + "\n\n".join(parts))
    for number in range(5):
        await harness.index(f"Valves of house {number} are painted in blue.", source=f"other{number}")
    (best, *_) = (await harness.search("when do valves close and open at dusk or noon", mode="text", limit=3)).results
    assert all(part in best.content for part in parts)

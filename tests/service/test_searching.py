"""Searching through the service: the envelope, the cache, and what is remembered."""

from rag_context.api.search import SearchRequest
from rag_context.errors import BackendDataError, BackendUnavailableError
from rag_context.testing import Fault
from tests.service.harness import House

TEXT = "MongoDB connections use retry logic with exponential backoff."


async def test_every_promised_field_is_there(house: House) -> None:
    receipt = await house.index(TEXT, metadata={"agent": "oracle", "tags": ["db"], "ticket": 7})
    answer = await house.search("mongodb retry logic")
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


async def test_explain_reports_rank_and_raw_score_of_each_retriever(house: House) -> None:
    await house.index(TEXT)
    answer = await house.search("mongodb retry logic", explain=True)
    explain = answer.results[0].explain
    assert explain is not None
    assert {name: leg.rank for name, leg in explain.legs.items()} == {"vector": 1, "text": 1}
    assert explain.signals["idfShare"] == 1.0
    assert explain.legs["vector"].score == explain.signals["cosine"]
    assert explain.fused > 0


async def test_the_second_answer_comes_from_the_cache_and_says_so(house: House) -> None:
    await house.index(TEXT)
    first = await house.search("mongodb retry logic")
    calls = house.documents.calls
    second = await house.search("mongodb retry logic")
    assert first.cached is None
    assert second.cached
    assert second.fallback_level == 1
    assert second.results == first.results
    assert house.documents.calls == calls


async def test_a_write_invalidates_the_cache(house: House) -> None:
    await house.index(TEXT)
    await house.search("mongodb retry logic")
    await house.index("MongoDB retry logic again, elsewhere.", source="other")
    answer = await house.search("mongodb retry logic")
    assert answer.cached is None
    assert len(answer.results) == 2


async def test_another_filter_is_another_answer(house: House) -> None:
    await house.index(TEXT)
    await house.index("Red foxes live here.", project="other")
    await house.search("mongodb retry logic")
    assert (await house.search("mongodb retry logic", sessionId="none")).results == []
    assert (await house.search("mongodb retry logic", project="other")).results == []


async def test_a_cached_answer_outlives_its_backends_but_not_its_time_to_live(house: House) -> None:
    await house.index(TEXT)
    await house.search("mongodb retry logic")
    house.documents.fault = house.embedder.fault = Fault(BackendDataError("x", "dead"))
    assert (await house.search("mongodb retry logic")).cached
    house.clock.advance(301.0)
    assert (await house.search("mongodb retry logic")).fallback_level in (2, 3)


async def test_a_degraded_answer_is_not_cached(house: House) -> None:
    await house.index(TEXT)
    house.embedder.fault = Fault(BackendDataError("embedder", "dead"))
    assert (await house.search("mongodb retry logic")).fallback_level == 2
    house.embedder.fault = None
    again = await house.search("mongodb retry logic")
    assert again.fallback_level == 1
    assert again.cached is None


async def test_a_source_with_a_star_is_a_prefix(house: House) -> None:
    await house.index(TEXT, source="docs/a.md")
    await house.index(TEXT, source="notes/b.md")
    assert [r.source for r in (await house.search("mongodb retry", source="docs/*")).results] == ["docs/a.md"]
    assert (await house.search("mongodb retry", source="docs/")).results == []
    assert len((await house.search("mongodb retry", source="*")).results) == 2


async def test_each_search_leaves_one_record(house: House) -> None:
    await house.index(TEXT)
    await house.search("mongodb retry logic " + "x" * 300, agent="oracle", game="FireKirin", category="casino")
    await house.search("mongodb retry logic")
    await house.search("mongodb retry logic")
    await house.telemetry.flush()
    first, second, third = house.store.searches
    assert len(first.query) == 200
    assert (first.agent, first.game, first.category, first.level) == ("oracle", "FireKirin", "casino", 1)
    assert first.embedding_latency_ms is not None
    assert (second.agent, second.cache_hit, third.cache_hit) == ("unknown", False, True)
    assert third.embedding_latency_ms is None
    assert [r.results_count for r in (second, third)] == [1, 1]


async def test_what_failed_is_recorded_without_the_query(house: House) -> None:
    house.embedder.fault = house.documents.fault = Fault(BackendUnavailableError("x", "refused"))
    answer = await house.search("a very private question")
    assert answer.fallback_level == 3
    house.documents.fault = None
    await house.telemetry.flush()
    assert house.store.searches[0].error
    assert "private" not in "".join(error.message for error in house.store.errors)


async def test_level_3_and_4_say_when_to_come_back(house: House) -> None:
    house.embedder.fault = house.documents.fault = Fault(BackendDataError("x", "dead"))
    request = SearchRequest(query="anything")
    outcomes = [await house.service.search(request, request_id="r") for _ in range(6)]
    assert [o.response.fallback_level for o in outcomes] == [3, 3, 3, 3, 3, 4]
    assert outcomes[0].retry_after_s
    assert outcomes[4].response.circuit_breaker_open
    assert 0 < (outcomes[5].retry_after_s or 0) <= 60


async def test_meters_count_by_level_and_agent(house: House) -> None:
    await house.index(TEXT)
    await house.search("mongodb retry logic", agent="oracle")
    text = (await house.service.prometheus()).decode()
    assert 'rag_queries_total{agent="oracle",level="1"} 1.0' in text
    assert "rag_latency_seconds_bucket" in text
    assert "rag_circuit_breaker_state 0.0" in text
    for i in range(150):
        await house.search("mongodb retry logic", agent=f"agent-{i}")
    assert 'rag_queries_total{agent="other"' in (await house.service.prometheus()).decode()


async def test_meters_count_the_vectors_that_are_there(house: House) -> None:
    """O-3: also where nobody asks for the health; a store that does not tell leaves the last count."""
    await house.index(TEXT)
    assert "rag_vectors_total 1.0" in (await house.service.prometheus()).decode()
    house.documents.fault = Fault(BackendDataError("documents", "garbage"))
    assert "rag_vectors_total 1.0" in (await house.service.prometheus()).decode()


async def test_metrics_report_lost_records(house: House) -> None:
    """O-1."""
    assert "rag_records_dropped_total 0.0" in (await house.service.prometheus()).decode()
    house.metrics.fault = Fault(BackendUnavailableError("documents", "locked"))
    await house.search("a question")
    await house.telemetry.flush()
    assert "rag_records_dropped_total 1.0" in (await house.service.prometheus()).decode()

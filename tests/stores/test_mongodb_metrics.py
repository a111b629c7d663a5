"""What MongoDB keeps of searches and failures, and what they add up to."""

from datetime import datetime
from typing import Any

import pytest

from rag_context.domain.reports import ErrorRecord, SearchRecord
from rag_context.stores.mongodb import MongoStore
from rag_context.stores.mongodb.search_records import MongoMetrics
from tests.servers.mongodb_fixtures import Raw, database, kept, mongodb, raw, server
from tests.stores.builders import NOON, minutes

__all__ = ["database", "kept", "mongodb", "raw", "server"]


def searched(at: datetime = NOON, latency_ms: float = 10.0, **fields: Any) -> SearchRecord:
    defaults = {"level": 1, "cache_hit": False, "agent": "opus"}
    vector_ms = fields.pop("vector_ms", None)
    return SearchRecord(at, "id", "q" * 500, 3, latency_ms, 1.0, vector_ms, 2.0, **{**defaults, **fields})


async def test_a_search_and_an_error_are_kept_in_the_fields_that_others_know(mongodb: MongoStore, raw: Raw) -> None:
    error = ErrorRecord(NOON, "error", "embedder", "embed", "down", "r-1", {"fallbackLevel": 3})
    await mongodb.metrics.append([searched(level=3, game="chess", error="down")], [error])
    kept_ = await raw["R4G_M37R1C5"].find_one({}, {"_id": 0})
    assert kept_ == {
        "timestamp": NOON,
        "requestId": "id",
        "query": "q" * 200,
        "resultsCount": 3,
        "latencyMs": 10.0,
        "embeddingLatencyMs": 1.0,
        "textLatencyMs": 2.0,
        "fallback": True,
        "fallbackLevel": 3,
        "cacheHit": False,
        "agent": "opus",
        "game": "chess",
        "error": "down",
    }
    assert await raw["errors"].find_one({}, {"_id": 0}) == {
        "timestamp": NOON,
        "level": "error",
        "component": "embedder",
        "operation": "embed",
        "error": "down",
        "requestId": "r-1",
        "context": {"fallbackLevel": 3},
    }


async def test_many_searches_are_summed_up_by_the_server_as_closely_as_promised(mongodb: MongoStore) -> None:
    records = [
        searched(
            NOON + minutes(number % 60),
            0.5 * 1.05**number,
            level=1 + number % 2,
            cache_hit=number % 4 == 0,
            game="go",
            vector_ms=1.0 if number % 3 else None,
        )
        for number in range(150)
    ]
    await mongodb.metrics.append(records, [])
    exact = await mongodb.metrics.summarise(NOON, NOON + minutes(60), 7)
    binned = await MongoMetrics(mongodb.documents._mongo, exact_records=1).summarise(NOON, NOON + minutes(60), 7)
    assert binned.queries == exact.queries == 150
    assert (binned.fallback_rate, binned.cache_hit_rate) == (exact.fallback_rate, exact.cache_hit_rate)
    assert binned.vectors_incomplete == exact.vectors_incomplete == 50
    assert (binned.by_agent, binned.by_level, binned.by_field) == ({"opus": 150}, {1: 75, 2: 75}, {"game": {"go": 150}})
    for one, other in ((binned.p50_ms, exact.p50_ms), (binned.p95_ms, exact.p95_ms), (binned.p99_ms, exact.p99_ms)):
        assert one == pytest.approx(other, rel=0.01)
    assert binned.average_ms == pytest.approx(exact.average_ms)
    for part, whole in zip(binned.timeline, exact.timeline, strict=True):
        assert (part.start, part.queries, part.fallbacks) == (whole.start, whole.queries, whole.fallbacks)
        assert part.p95_ms == pytest.approx(whole.p95_ms, rel=0.01)


async def test_an_empty_span_adds_up_to_nothing(mongodb: MongoStore) -> None:
    await mongodb.metrics.append([searched()], [])
    summary = await mongodb.metrics.summarise(NOON, NOON, 3)
    assert (summary.queries, [bucket.queries for bucket in summary.timeline]) == (0, [])

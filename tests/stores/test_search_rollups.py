"""The sums of every ten minutes say what the records say: counts exactly, percentiles within 1 %."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.reports import SearchRecord, SearchSummary
from rag_context.stores.sqlite.embedded import SqliteStore
from rag_context.stores.sqlite.search_rollups import SqliteMetrics
from tests.stores.builders import NOON, minutes
from tests.stores.test_metrics_store import nearest_rank, record

SPAN = timedelta(hours=5)
LATENCIES = st.one_of(st.just(0.0), st.floats(0.001, 100_000))

searches_of_hours = st.lists(
    st.builds(
        record,
        at=st.integers(-600, int(SPAN.total_seconds()) + 600).map(lambda seconds: NOON + timedelta(seconds=seconds)),
        latency_ms=LATENCIES,
        level=st.integers(1, 4),
        cache_hit=st.booleans(),
        agent=st.sampled_from(["a", "b", "007"]),
        game=st.sampled_from([None, "go", "12"]),
        vector_ms=st.sampled_from([None, 1.0]),
    ),
    max_size=80,
)


def check(summary: SearchSummary, searches: Sequence[SearchRecord], since: datetime, until: datetime) -> None:
    """Compare with the plain computation."""
    inside = [each for each in searches if since <= each.timestamp < until]
    latencies = [each.latency_ms for each in inside]
    assert summary.queries == len(inside)
    assert summary.average_ms == pytest.approx(sum(latencies) / max(len(inside), 1), abs=1e-6)
    for percent, found in ((50, summary.p50_ms), (95, summary.p95_ms), (99, summary.p99_ms)):
        assert found == pytest.approx(nearest_rank(latencies, percent), rel=0.01, abs=0.001)
    assert summary.fallback_rate == pytest.approx(sum(each.is_fallback for each in inside) / max(len(inside), 1))
    assert summary.vectors_incomplete == sum(each.level > 1 and not each.is_fallback for each in inside)
    assert summary.cache_hit_rate == pytest.approx(sum(each.cache_hit for each in inside) / max(len(inside), 1))
    assert summary.by_agent == Counter(each.agent for each in inside)
    assert summary.by_level == Counter(each.level for each in inside)
    assert summary.by_field["game"] == Counter(each.game for each in inside if each.game is not None)
    ends = [*(bucket.start for bucket in summary.timeline[1:]), until]
    for bucket, end in zip(summary.timeline, ends, strict=True):
        slice_ = [each for each in inside if bucket.start <= each.timestamp < end]
        assert (bucket.queries, bucket.fallbacks) == (len(slice_), sum(each.is_fallback for each in slice_))
        expected = nearest_rank([each.latency_ms for each in slice_], 95)
        assert bucket.p95_ms == pytest.approx(expected, rel=0.01, abs=0.001)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    searches=searches_of_hours, buckets=st.integers(1, 9), shift_s=st.integers(0, 599), pruned_s=st.integers(0, 9000)
)
async def test_rollups_match_the_records_also_after_pruning(
    store: SqliteStore, searches: list[SearchRecord], buckets: int, shift_s: int, pruned_s: int
) -> None:
    metrics = SqliteMetrics(store.database, exact_rows=0)
    await metrics.prune(NOON + 2 * SPAN)
    await metrics.append(searches[::2], [])
    await metrics.append(searches[1::2], [])
    since, until = NOON + timedelta(seconds=shift_s), NOON + SPAN - timedelta(seconds=shift_s)
    check(await metrics.summarise(since, until, buckets), searches, since, until)
    limit = NOON + timedelta(seconds=pruned_s)
    kept = [each for each in searches if each.timestamp >= limit]
    assert await metrics.prune(limit) == len(searches) - len(kept)
    check(await metrics.summarise(since, until, buckets), kept, since, until)


async def test_sums_of_a_version_that_counted_every_search_of_level_2_are_no_reason_to_fail(store: SqliteStore) -> None:
    searches = [record(NOON + minutes(number), level=2, vector_ms=1.0) for number in range(9)]
    await store.metrics.append(searches, [])
    await store.database.write(lambda connection: connection.execute("UPDATE search_sums SET fallbacks = queries"))
    await store.metrics.prune(NOON + minutes(5))
    summary = await SqliteMetrics(store.database, exact_rows=0).summarise(NOON, NOON + minutes(10), 1)
    assert (summary.queries, summary.fallback_rate, summary.vectors_incomplete) == (4, 1.0, 0)


async def test_few_searches_are_summed_up_exactly_and_many_within_one_percent(store: SqliteStore) -> None:
    rng = random.Random(5)
    searches = [record(NOON + minutes(rng.uniform(0, 600)), rng.lognormvariate(2, 1)) for _ in range(9_999)]
    latencies = [each.latency_ms for each in searches]
    await store.metrics.append(searches, [])
    exact = await store.metrics.summarise(NOON, NOON + minutes(600), 7)
    assert exact.p99_ms == nearest_rank(latencies, 99)
    await store.metrics.append([record(NOON + minutes(1), 5.0)] * 2, [])
    close = await store.metrics.summarise(NOON, NOON + minutes(600), 7)
    assert close.queries == 10_001
    assert close.p99_ms != exact.p99_ms
    assert math.isclose(close.p99_ms, nearest_rank([*latencies, 5.0, 5.0], 99), rel_tol=0.01)

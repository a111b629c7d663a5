"""What every metrics store does: keep records, and sum them up by definition."""

import json
import math
from collections import Counter
from dataclasses import replace
from datetime import datetime
from secrets import token_hex

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.reports import ACCESS, ERROR, ErrorRecord, SearchRecord
from rag_context.errors import InvalidInputError
from rag_context.transfer.beside_documents import BesideDocuments
from tests.memory_stores import MemoryStore
from tests.stores.builders import NOON, Stores, minutes


def record(
    at: datetime = NOON,
    latency_ms: float = 10.0,
    *,
    level: int = 1,
    cache_hit: bool = False,
    agent: str = "opus",
    game: str | None = None,
    vector_ms: float | None = None,
) -> SearchRecord:
    return SearchRecord(
        at, token_hex(8), "query", 3, latency_ms, 1.0, vector_ms, 2.0, level, cache_hit, agent, game=game
    )


def nearest_rank(values: list[float], percent: int) -> float:
    return sorted(values)[math.ceil(percent * len(values) / 100) - 1] if values else 0.0


@pytest.fixture(params=["sqlite", "postgres", "mongodb"])
def store_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_no_searches_add_up_to_zeros_and_empty_slices(store: Stores) -> None:
    summary = await store.metrics.summarise(NOON, NOON + minutes(60), 4)
    assert (summary.queries, summary.average_ms, summary.p99_ms, summary.fallback_rate) == (0, 0.0, 0.0, 0.0)
    assert [bucket.start for bucket in summary.timeline] == [NOON + minutes(15 * number) for number in range(4)]
    assert {bucket.queries for bucket in summary.timeline} == {0}


async def test_percentiles_are_by_nearest_rank(store: Stores) -> None:
    await store.metrics.append([record(latency_ms=float(number)) for number in range(1, 101)], [])
    summary = await store.metrics.summarise(NOON, NOON + minutes(1), 1)
    assert (summary.p50_ms, summary.p95_ms, summary.p99_ms) == (50.0, 95.0, 99.0)
    assert summary.average_ms == pytest.approx(50.5)


async def test_rates_are_shares_of_all_searches(store: Stores) -> None:
    await store.metrics.append([record(level=level, cache_hit=level == 1) for level in (1, 1, 1, 2, 3, 4, 1, 1)], [])
    summary = await store.metrics.summarise(NOON, NOON + minutes(1), 1)
    assert summary.cache_hit_rate == pytest.approx(5 / 8)
    assert summary.fallback_rate == pytest.approx(3 / 8)
    assert summary.by_level == {1: 5, 2: 1, 3: 1, 4: 1}


async def test_answers_with_incomplete_vectors_are_counted_apart_from_keyword_search_alone(store: Stores) -> None:
    parts = [(1, 1.0), (1, None), (2, 1.0), (2, 0.0), (2, 1.0), (2, None), (3, 1.0), (4, None)]
    await store.metrics.append([record(level=level, vector_ms=vector_ms) for level, vector_ms in parts], [])
    summary = await store.metrics.summarise(NOON, NOON + minutes(1), 1)
    assert (summary.by_level[2], summary.vectors_incomplete) == (4, 3)
    assert summary.fallback_rate == pytest.approx(3 / 8)
    assert [bucket.fallbacks for bucket in summary.timeline] == [3]


async def test_searches_are_counted_by_agent_and_by_game(store: Stores) -> None:
    await store.metrics.append([record(agent="a", game="go"), record(agent="b"), record(agent="a", game="chess")], [])
    summary = await store.metrics.summarise(NOON, NOON + minutes(1), 1)
    assert (summary.by_agent, summary.by_field["game"]) == ({"a": 2, "b": 1}, {"chess": 1, "go": 1})


async def test_the_latest_searches_are_listed(store: Stores) -> None:
    made = [record(NOON + minutes(count), level=count + 1, cache_hit=count == 1) for count in range(4)]
    made[2] = replace(made[2], error="unanswered", results_count=0, query="wer trägt den Schlüssel?")
    await store.metrics.append(made, [])
    assert await store.metrics.recent(NOON + minutes(1), 2) == [made[3], made[2]]
    assert len(await store.metrics.recent(NOON + minutes(1), 9)) == 3
    assert await store.metrics.recent(NOON, 2, NOON + minutes(2)) == [made[2], made[1]]


async def test_exported_searches_come_in_once(store: Stores) -> None:
    made = [record(NOON + minutes(number // 3), level=number % 4 + 1, vector_ms=number / 7) for number in range(1203)]
    await store.metrics.append(made, [])
    source, target = BesideDocuments(searches=store.metrics), MemoryStore()
    lines = [line async for line in source.lines()]
    assert (len(lines), source.recorded) == (3, 1203)
    took = BesideDocuments(searches=target)
    for line in (*lines, *lines):
        await took.take_searches(line)
    assert took.recorded == 1203
    assert sorted(target.searches, key=lambda each: each.request_id) == sorted(made, key=lambda each: each.request_id)
    back = BesideDocuments(searches=store.metrics)
    await back.take_searches(lines[1])
    assert back.recorded == 0


@pytest.mark.parametrize("searches", [[{}], [{"timestamp": "soon"}], [7]])
async def test_records_of_searches_that_are_not_valid_are_rejected(searches: list[object]) -> None:
    target = MemoryStore()
    with pytest.raises(InvalidInputError):
        await BesideDocuments(searches=target).take_searches(json.dumps({"searches": searches}).encode())
    assert target.searches == []


async def test_the_beginning_belongs_to_the_span_and_its_end_does_not(store: Stores) -> None:
    await store.metrics.append([record(NOON), record(NOON + minutes(1))], [])
    assert (await store.metrics.summarise(NOON, NOON + minutes(1), 1)).queries == 1


async def test_nothing_to_append_is_no_error(store: Stores) -> None:
    await store.metrics.append([], [])


async def test_pruning_removes_what_is_older_and_says_how_much(store: Stores) -> None:
    error = ErrorRecord(NOON, "error", "embedder", "embed", "down", context={"tries": 3})
    await store.metrics.append([record(NOON), record(NOON + minutes(5))], [error])
    assert await store.metrics.prune(NOON + minutes(1)) == 2
    assert await store.metrics.prune(NOON + minutes(1)) == 0
    assert (await store.metrics.summarise(NOON, NOON + minutes(10), 1)).queries == 1


async def test_who_changed_something_is_listed_and_kept_for_days_of_its_own(store: Stores) -> None:
    about: dict[str, str | int | list[str]] = {"key": "ana\0", "target": ["id-1", "sha256:0"]}
    stored = [ErrorRecord(NOON + minutes(at), ACCESS, "api", f"call {at}", "ok", "r", about) for at in range(3)]
    failed = ErrorRecord(NOON + minutes(9), ERROR, "embedder", "embed", "down")
    await store.metrics.append([], [*stored, failed])
    assert await store.metrics.accesses(10) == stored[::-1]
    assert await store.metrics.accesses(1) == stored[2:]
    assert await store.metrics.prune(NOON + minutes(60)) == 1  # as when records of searches are cleared
    assert await store.metrics.prune(NOON + minutes(60), NOON + minutes(1)) == 1
    assert await store.metrics.accesses(10) == stored[:0:-1]


@pytest.mark.parametrize("store_name", ["sqlite", "postgres"], indirect=True)  # MongoDB prunes in one step
async def test_many_records_are_pruned_to_the_last(store: Stores) -> None:
    await store.metrics.append([record() for _ in range(12_345)], [])
    assert await store.metrics.prune(NOON + minutes(1)) == 12_345


records = st.lists(
    st.builds(
        record,
        at=st.integers(0, 59).map(lambda count: NOON + minutes(count)),
        latency_ms=st.floats(0, 1000),
        level=st.integers(1, 4),
        cache_hit=st.booleans(),
        agent=st.sampled_from(["a", "b"]),
        vector_ms=st.sampled_from([None, 1.0]),
    ),
    max_size=60,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(searches=records, buckets=st.integers(1, 7))
async def test_a_summary_matches_the_records(store: Stores, searches: list[SearchRecord], buckets: int) -> None:
    await store.metrics.prune(NOON + minutes(60))
    await store.metrics.append(searches, [])
    summary = await store.metrics.summarise(NOON, NOON + minutes(60), buckets)
    latencies = [each.latency_ms for each in searches]
    assert summary.queries == len(searches)
    for percent, found in ((50, summary.p50_ms), (95, summary.p95_ms), (99, summary.p99_ms)):
        assert found == nearest_rank(latencies, percent)
    assert summary.by_agent == Counter(each.agent for each in searches)
    assert len(summary.timeline) == buckets
    ends = [*(bucket.start for bucket in summary.timeline[1:]), NOON + minutes(60)]
    for bucket, end in zip(summary.timeline, ends, strict=True):
        inside = [each for each in searches if bucket.start <= each.timestamp < end]
        assert (bucket.queries, bucket.fallbacks) == (len(inside), sum(each.is_fallback for each in inside))
        assert bucket.p95_ms == nearest_rank([each.latency_ms for each in inside], 95)


async def test_a_batch_that_is_sent_again_is_stored_once(store: Stores) -> None:
    """A writer whose first attempt was stored, but not answered, does not count its records twice."""
    searches = [record(latency_ms=float(number)) for number in range(3)]
    error = ErrorRecord(NOON, "error", "embedder", "search", "refused", "id")
    other = ErrorRecord(NOON, "error", "vectors", "search", "refused", "id")
    for _ in range(2):
        await store.metrics.append(searches, [error])
    for _ in range(2):
        await store.metrics.append([], [other])
    assert (await store.metrics.summarise(NOON, NOON + minutes(1), 1)).queries == 3
    assert await store.metrics.prune(NOON + minutes(1)) == 5

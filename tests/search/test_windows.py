"""What a time in a question does: how near a passage is, what it gains, and where further candidates come from."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from rag_context.domain.documents import microseconds
from rag_context.domain.search import ChunkRef, Filter, VectorHit
from rag_context.search.query import Mode, Query
from rag_context.search.question_rules import with_windows
from rag_context.search.question_times import Window, merged, near_filters, nearnesses, threshold_shares, time_boosts
from rag_context.search.retrievers import spread_hits
from rag_context.search.rules import OUTSIDE, THRESHOLD_SHARE, TIME_WEIGHT, YEARS_BACK
from tests.search.harness import ChainHarness

DAY = timedelta(days=1)


def at(year: int, month: int, day: int) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


WEEK = Window("last week", at(2026, 3, 9), at(2026, 3, 16))
MARCH = Window("in March", at(2026, 3, 1), at(2026, 4, 1), yearly=True)


def chunk(moment: datetime | None) -> ChunkRef:
    return ChunkRef("c", "d", 0, "chat", occurred_us=None if moment is None else microseconds(moment))


@pytest.mark.parametrize(
    ("windows", "moment", "near"),
    [
        ((), at(2026, 3, 9), 0.0),
        ((WEEK,), at(2026, 3, 9), 1.0),
        ((WEEK,), at(2026, 3, 16) - timedelta(microseconds=1), 1.0),
        ((WEEK,), at(2026, 3, 16), OUTSIDE),
        ((WEEK,), at(2026, 3, 23), OUTSIDE / 2),
        ((WEEK,), at(2026, 3, 2), OUTSIDE / 2),
        ((WEEK,), at(2026, 4, 6), OUTSIDE / 8),
        ((WEEK,), at(2006, 4, 6), 0.0),
        ((WEEK, Window("in May", at(2026, 5, 1), at(2026, 6, 1))), at(2026, 5, 2), 1.0),
        ((Window("since", at(2026, 3, 9)),), at(2027, 1, 1), 1.0),
        ((Window("before", None, at(2026, 3, 9)),), at(2026, 3, 16), OUTSIDE / 2),
        ((MARCH,), at(2021, 3, 31), 1.0),
        ((MARCH,), at(2021, 4, 8), OUTSIDE / 2),
        ((Window("January", at(2026, 1, 1), at(2026, 2, 1), yearly=True),), at(2021, 12, 25), OUTSIDE / 2),
        ((Window("29 February", at(2024, 2, 29), at(2024, 3, 1), yearly=True),), at(1, 3, 1), OUTSIDE),
        ((MARCH,), datetime.max.replace(tzinfo=UTC), 0.0),
    ],
)
def test_nearness_is_1_within_and_half_a_week_later(windows: tuple[Window, ...], moment: datetime, near: float) -> None:
    assert nearnesses(windows, [chunk(moment)]) == pytest.approx([near], abs=1e-6)


def test_a_boost_is_a_share_of_the_best_score_and_none_without_a_time() -> None:
    chunks = [chunk(at(2026, 3, 10)), chunk(at(2026, 3, 23)), chunk(None)]
    scores = np.array([0.2, 0.8, 0.4])
    expected = TIME_WEIGHT * 0.8 * np.array([1.0, OUTSIDE / 2, 0.0])
    assert time_boosts([WEEK], chunks, scores) == pytest.approx(expected)
    assert time_boosts([], chunks, scores).tolist() == [0.0, 0.0, 0.0]
    assert nearnesses([], chunks).tolist() == [0.0, 0.0, 0.0]


def test_less_of_the_threshold_applies_within_a_time_that_has_both_ends() -> None:
    inside = chunk(at(2026, 3, 10))
    chunks = [inside, chunk(at(2026, 3, 16)), chunk(None)]
    assert threshold_shares([WEEK], chunks).tolist() == [THRESHOLD_SHARE, 1.0, 1.0]
    assert threshold_shares([Window("since", at(2026, 3, 9))], chunks).tolist() == [1.0, 1.0, 1.0]
    assert threshold_shares([], chunks).tolist() == [1.0, 1.0, 1.0]


def test_further_candidates_are_from_a_week_around_and_pass_the_filter() -> None:
    where = Filter(content_type="chat")
    (near,) = near_filters([WEEK], where)
    assert (near.since, near.until, near.content_type) == (at(2026, 3, 2), at(2026, 3, 23), "chat")
    (bounded,) = near_filters([WEEK], Filter(since=at(2026, 3, 10), until=at(2026, 3, 12)))
    assert (bounded.since, bounded.until) == (at(2026, 3, 10), at(2026, 3, 12))
    (open_,) = near_filters([Window("before", None, at(2026, 3, 9))], where)
    assert (open_.since, open_.until) == (None, at(2026, 3, 16))
    assert list(near_filters([WEEK], Filter(until=at(2026, 1, 1)))) == []
    assert list(near_filters([], where)) == []
    (earliest,) = near_filters([Window("the beginning", datetime.min.replace(tzinfo=UTC), at(1, 1, 2))], where)
    assert earliest.since is None


def test_a_time_without_a_year_is_searched_in_several() -> None:
    found = list(near_filters([MARCH], Filter()))
    assert [each.since for each in found] == [at(2026 - back, 3, 1) - 7 * DAY for back in range(YEARS_BACK + 1)]


def test_several_times_are_shown_as_one() -> None:
    assert merged([]) is None
    assert merged([WEEK]) == WEEK
    assert merged([WEEK, MARCH]) == Window("last week, in March", at(2026, 3, 1), at(2026, 4, 1), yearly=True)
    assert merged([WEEK, Window("since May", at(2025, 5, 1))]) == Window("last week, since May", at(2025, 5, 1), None)


def test_a_query_that_names_no_time_is_left_as_it_is() -> None:
    for query in (Query("how do we retry payments, and may I?"), Query("what happened last week?", mode=Mode.TEXT)):
        assert with_windows(query, at(2026, 3, 18)) is query
    assert with_windows(Query("what happened last week?"), at(2026, 3, 18)).windows == (WEEK,)


async def test_what_is_near_is_found_behind_a_pool_that_others_fill(harness: ChainHarness) -> None:
    for number in range(60):
        moment = at(2026, 5, 1) + number * DAY
        await harness.add(f"far-{number}", "We decided on the retry logic of payments.", at=moment)
    await harness.add("near", "We decided on the retry logic of payments and refunds, too.", at=at(2026, 3, 11))
    question = "What did we decide on the retry logic of payments"
    for asked, found in ((question, False), (f"{question} last week?", True)):
        answer = await harness.chain.search(with_windows(Query(asked, min_score=0.0), at(2026, 3, 18)))
        assert ("near" in {result.passage.document_id for result in answer.results}) is found
        assert len(answer.results) == 5, "a time excludes nothing"
    best = answer.results[0].ranked
    assert best.by_time > 0.0


@pytest.mark.parametrize(
    ("inside", "found", "searched"),
    [(20, 120, 1), (19, 120, 2), (3, 119, 1)],
    ids=["enough inside", "too few inside", "all there is"],
)
async def test_a_time_is_searched_by_itself_where_the_first_hits_have_too_few_of_it(
    inside: int, found: int, searched: int
) -> None:
    days = [at(2026, 3, 10)] * inside + [at(2025, 3, 10)] * (found - inside)
    hits = [
        VectorHit(ChunkRef(f"c{number}", "d", number, "chat", occurred_us=microseconds(day)), 1.0 - number / 1000)
        for number, day in enumerate(reversed(days))
    ]
    calls: list[int] = []

    async def search(limit: int, where: Filter) -> list[VectorHit]:
        calls.append(limit)
        return [hit for hit in hits if where.since is None or (hit.chunk.occurred_us or 0) >= microseconds(where.since)]

    best = await spread_hits(search, Query("the plan", windows=(WEEK,)))
    assert len(calls) == searched
    assert [hit.chunk.id for hit in best] == [hit.chunk.id for hit in [*hits[:40], *hits[-inside:]]]


async def test_a_time_is_searched_separately_if_hits_have_no_time() -> None:
    calls: list[int] = []

    async def search(limit: int, _where: Filter) -> list[VectorHit]:
        calls.append(limit)
        return [VectorHit(ChunkRef(f"c{number}", "d", number, "chat"), 0.5) for number in range(limit)]

    await spread_hits(search, Query("the plan", windows=(WEEK,)))
    assert calls == [120, 20]

"""The measures against values worked out by hand, and against what must hold for any input."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.evaluation.measures import (
    covered,
    estimate,
    ndcg,
    percentile,
    recall,
    reciprocal_rank,
    significance,
    success,
)

GRADES = {"a": 3, "b": 1, "c": 2, "x": 0}
rankings = st.permutations(["a", "b", "c", "x", "y", "z"])


def test_ndcg_is_the_share_of_the_best_gain() -> None:
    """R-4: gains of 2^grade - 1, discounted by log2(rank + 1)."""
    best = 7 + 3 / math.log2(3) + 1 / 2
    assert ndcg(["b", "x", "a"], GRADES) == pytest.approx((1 + 7 / 2) / best)
    assert ndcg(["a", "c", "b"], GRADES) == pytest.approx(1.0)
    assert ndcg(["x", "y"], GRADES) == 0.0
    assert ndcg(["a"], {}) == 0.0


def test_nothing_counts_behind_the_cut() -> None:
    ranking = ["y", "z", "x", "a", "b"]
    assert ndcg(ranking, GRADES, k=3) == 0.0
    assert ndcg(["a"], GRADES, k=1) == 1.0
    assert recall(ranking, GRADES, k=3) == 0.0
    assert recall(ranking, GRADES, k=5) == pytest.approx(2 / 3)
    assert reciprocal_rank(ranking, GRADES, k=3) == 0.0
    assert reciprocal_rank(ranking, GRADES, k=4) == 0.25
    assert success(ranking, GRADES) == 0.0
    assert success(["y", "z", "b"], GRADES) == 1.0


@given(rankings)
def test_no_order_beats_the_order_of_the_grades(ranking: list[str]) -> None:
    assert ndcg(ranking, GRADES) <= ndcg(["a", "c", "b"], GRADES) + 1e-12


@given(rankings, st.integers(0, 4))
def test_moving_the_better_of_two_neighbours_up_never_harms(ranking: list[str], i: int) -> None:
    swapped = list(ranking)
    if GRADES.get(swapped[i + 1], 0) > GRADES.get(swapped[i], 0):
        swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
    assert ndcg(swapped, GRADES) >= ndcg(ranking, GRADES) - 1e-12


def test_covered_characters_are_counted_once() -> None:
    assert covered([(0, 10)], [(0, 5), (2, 5), (8, 20)]) == pytest.approx(0.7)
    assert covered([(0, 10), (5, 15)], [(10, 20)]) == pytest.approx(1 / 3)
    assert covered([(0, 10)], []) == 0.0
    assert covered([], [(0, 10)]) == 0.0


ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair))), max_size=5)


@given(ranges, ranges)
def test_coverage_is_that_of_the_sets_of_characters(
    wanted: list[tuple[int, int]], returned: list[tuple[int, int]]
) -> None:
    asked = {i for start, end in wanted for i in range(start, end)}
    have = {i for start, end in returned for i in range(start, end)}
    expected = len(asked & have) / len(asked) if asked else 0.0
    assert covered(wanted, returned) == pytest.approx(expected)


def test_an_interval_holds_the_mean_and_repeats_itself() -> None:
    sample = [0.0, 0.2, 0.4, 0.9, 1.0] * 10
    found = estimate(sample)
    assert found.mean == pytest.approx(0.5)
    assert found.low < found.mean < found.high
    assert found == estimate(sample)
    assert found.high - found.low < estimate(sample[:10]).high - estimate(sample[:10]).low
    assert estimate([0.3] * 5).low == pytest.approx(0.3)


def test_the_macro_mean_weighs_collections_alike() -> None:
    assert estimate([1.0] * 100, [0.0] * 2).mean == pytest.approx(0.5)


def test_chance_explains_equal_samples_and_not_a_constant_lead() -> None:
    base = [0.1, 0.5, 0.3, 0.8] * 8
    assert significance(base, base) == 1.0
    assert significance([value + 0.1 for value in base], base) < 0.001
    assert significance([0.2, 0.1], [0.1, 0.2]) > 0.5


def test_a_percentile_is_a_value_that_occurred() -> None:
    values = [float(i) for i in range(100, 0, -1)]
    assert percentile(values, 0.95) == 95.0
    assert percentile(values, 0.99) == 99.0
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.99) == 0.0

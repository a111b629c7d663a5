"""The fusion function, by its properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import CHAT, CODE, DOCUMENTATION
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import ChunkRef, RawScores
from rag_context.domain.vectors import MINILM, Calibration
from rag_context.embedders.profiles import profile
from rag_context.search.query import Query
from rag_context.search.question_rules import weights_for
from rag_context.search.ranking import (
    CODE_VECTOR_WEIGHT,
    DEFAULT_WEIGHTS,
    VECTOR_WEIGHT,
    Candidates,
    VectorWeights,
    closeness,
    fuse,
    fused_scores,
    smoothed_scores,
)

cosines = st.lists(st.floats(0, 1), min_size=1, max_size=30)
scores = st.floats(0, 100)


def test_each_side_is_divided_by_its_best_and_mixed() -> None:
    fused = fuse(np.array([0.8, 0.4]), np.array([2.0, 8.0]), np.array([0.5, 0.5]))
    assert fused == pytest.approx([0.5 * 1.0 + 0.5 * 0.25, 0.5 * 0.5 + 0.5 * 1.0])


def test_code_leans_on_the_vector() -> None:
    assert (
        DEFAULT_WEIGHTS.of(CODE)
        == CODE_VECTOR_WEIGHT
        > VECTOR_WEIGHT
        == DEFAULT_WEIGHTS.of(CHAT)
        == DEFAULT_WEIGHTS.of("other")
    )
    assert DEFAULT_WEIGHTS.of(DOCUMENTATION) == VECTOR_WEIGHT


def test_the_weight_of_the_vector_follows_the_question() -> None:
    assert weights_for(Query("how is it saved")) == DEFAULT_WEIGHTS
    assert weights_for(Query("割草机的电池多久充满?")) == VectorWeights(code=0.3, other=0.3)
    assert weights_for(Query("PlanStore.save")) == VectorWeights(code=0.3, other=VECTOR_WEIGHT)
    assert weights_for(Query("割草机的电池", without=(Rule.SCRIPT,))) == DEFAULT_WEIGHTS


def test_a_negative_cosine_is_no_evidence() -> None:
    fused = fuse(closeness(np.array([-0.9, 0.5]), None), np.array([1.0, 1.0]), np.array([0.5, 0.5]))
    assert fused == pytest.approx([0.5, 1.0])


def test_without_matching_terms_the_cosines_order_all_kinds_alike() -> None:
    fused = fuse(np.array([0.6, 0.9]), np.zeros(2), np.array([CODE_VECTOR_WEIGHT, VECTOR_WEIGHT]))
    assert fused == pytest.approx([0.6 / 0.9, 1.0])


def test_without_vectors_keyword_scores_order_all_kinds_alike() -> None:
    fused = fuse(np.zeros(2), np.array([3.0, 4.0]), np.array([VECTOR_WEIGHT, CODE_VECTOR_WEIGHT]))
    assert fused == pytest.approx([0.75, 1.0])


def test_nothing_fuses_to_nothing() -> None:
    assert fuse(np.zeros(0), np.zeros(0), np.zeros(0)).shape == (0,)
    assert fuse(np.zeros(2), np.zeros(2), np.full(2, 0.5)) == pytest.approx([0.0, 0.0])


@given(cosines, st.data())
def test_fused_scores_stay_between_0_and_1(values: list[float], data: st.DataObject) -> None:
    texts = data.draw(st.lists(scores, min_size=len(values), max_size=len(values)))
    fused = fuse(np.array(values), np.array(texts), np.full(len(values), 0.5))
    assert np.all((fused >= 0.0) & (fused <= 1.0 + 1e-9))


@given(cosines, st.data())
def test_a_candidate_better_on_both_sides_is_never_behind(values: list[float], data: st.DataObject) -> None:
    texts = data.draw(st.lists(scores, min_size=len(values), max_size=len(values)))
    fused = fuse(np.array(values), np.array(texts), np.full(len(values), 0.5))
    for i in range(len(values)):
        for j in range(len(values)):
            if values[i] >= values[j] and texts[i] >= texts[j]:
                assert fused[i] >= fused[j] - 1e-12


UNKNOWN = np.nan


def test_an_unknown_cosine_leaves_a_candidate_to_its_keyword_score() -> None:
    fused = fuse(np.array([0.8, UNKNOWN, 0.4]), np.array([2.0, 6.0, 8.0]), np.full(3, 0.5))
    assert fused == pytest.approx([0.5 * 1.0 + 0.5 * 0.25, 0.75, 0.5 * 0.5 + 0.5 * 1.0])


def test_a_poor_best_of_the_known_cosines_is_not_used_as_the_best_of_all() -> None:
    texts, weights = np.array([0.0, 4.0, 10.0]), np.full(3, 0.5)
    junk, good, _best = fuse(np.array([0.1, UNKNOWN, UNKNOWN]), texts, weights, 0.4)
    assert junk == pytest.approx(0.5 * 0.1 / 0.4)
    assert junk < good
    assert fuse(np.array([0.1, 0.1, 0.05]), texts, weights, 0.4)[0] == pytest.approx(0.5), "all are known"


unknown_cosines = st.lists(st.one_of(st.floats(0, 1), st.just(np.nan)), min_size=1, max_size=30)


@given(unknown_cosines, st.data())
def test_candidates_without_a_cosine_are_ordered_by_their_keyword_scores(
    values: list[float], data: st.DataObject
) -> None:
    texts = np.array(data.draw(st.lists(scores, min_size=len(values), max_size=len(values))))
    weights = np.array(data.draw(st.lists(st.sampled_from([0.5, 0.8]), min_size=len(values), max_size=len(values))))
    fused = fuse(np.array(values), texts, weights, 0.4)
    assert np.all((fused >= 0.0) & (fused <= 1.0 + 1e-9))
    unknown = [i for i, value in enumerate(values) if np.isnan(value)]
    for i in unknown:
        assert fused[i] == fuse(np.full(len(values), np.nan), texts, weights)[i]
        # The best words are never behind what is no better by any measure.
        assert texts[i] < texts.max() or fused[i] >= fused.max() - 1e-9 or not texts.any()


@given(cosines, st.data())
def test_where_every_cosine_is_known_nothing_is_presumed(values: list[float], data: st.DataObject) -> None:
    texts = np.array(data.draw(st.lists(scores, min_size=len(values), max_size=len(values))))
    weights = np.full(len(values), 0.8)
    assert np.array_equal(fuse(np.array(values), texts, weights, 0.4), fuse(np.array(values), texts, weights))


def test_cosines_count_from_those_of_unrelated_texts() -> None:
    assert MINILM.unrelated_cosine == 0.0
    assert profile("intfloat/e5-small-v2").calibration.unrelated_cosine == pytest.approx(0.741, abs=0.001)
    assert profile("nomic-embed-text-v1.5").calibration.unrelated_cosine == pytest.approx(0.542, abs=0.001)
    assert profile("an unmeasured model").calibration.unrelated_cosine == 0.0
    e5 = profile("e5-small").calibration
    candidates = scored(np.array([0.80, 0.90, np.nan]), np.array([9.0, 3.0, 6.0]))
    above = np.array([0.80, 0.90]) - e5.unrelated_cosine
    expected = [0.5 * above[0] / above[1] + 0.5, 0.5 + 0.5 / 3.0, 6.0 / 9.0]
    assert fused_scores(candidates, e5) == pytest.approx(expected)


def test_what_the_best_is_presumed_to_have_is_counted_from_there_too() -> None:
    e5 = profile("e5-small").calibration
    fused = fused_scores(scored(np.array([0.76, np.nan]), np.array([0.0, 5.0])), e5)
    assert fused[0] == pytest.approx(0.5 * (0.76 - e5.unrelated_cosine) / (e5.answerable_cosine - e5.unrelated_cosine))


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3.0), st.integers(1, 20))
def test_vectors_moved_by_a_constant_direction_rank_as_before(seed: int, far: float, count: int) -> None:
    """`normalise(v + k u)`, where `u` is a direction of its own, squeezes all cosines towards 1."""
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((3 * count + 1, 24))
    made[:, -1] = 0.0
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    moved = made + far * np.eye(24)[-1]
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    stretch = 1.0 + far**2
    slope = MINILM.slope * stretch
    squeezed = Calibration(slope, MINILM.intercept - slope * far**2 / stretch)
    texts = rng.exponential(size=3 * count) * rng.integers(0, 2, 3 * count)

    def ranked(vectors: np.ndarray, calibration: Calibration) -> list[list[float]]:
        raw = RawScores(vectors[1:] @ vectors[0], texts, np.zeros(3 * count))
        parts = [raw.take(list(range(part * count, (part + 1) * count))) for part in range(3)]
        alone = scored(parts[0].cosines, parts[0].bm25)
        around = smoothed_scores(alone, parts[1], parts[2], calibration)
        return [fused_scores(alone, calibration).tolist(), around.tolist()]

    before, after = ranked(made, MINILM), ranked(moved, squeezed)
    assert after[0] == pytest.approx(before[0], abs=1e-9)
    assert after[1] == pytest.approx(before[1], abs=1e-9)


def scored(near: np.ndarray, texts: np.ndarray) -> Candidates:
    chunks = [ChunkRef(f"{row:02}", "document", row, DOCUMENTATION, None) for row in range(len(near))]
    return Candidates(chunks, RawScores(near, texts, np.zeros(len(near))))

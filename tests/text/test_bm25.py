"""BM25, against a plain transcription of its formula."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.text import PROSE, bm25, idf_share, inverse_document_frequency, profile_for


def plain(counts: list[float], length: float, weights: list[float], k1: float, b: float, mean: float) -> float:
    norm = k1 * (1 - b + b * length / mean)
    return sum(w * c * (k1 + 1) / (c + norm) for c, w in zip(counts, weights, strict=True))


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=1, max_size=8),
    st.lists(st.floats(0, 10), min_size=3, max_size=3),
    st.floats(1, 500),
)
def test_it_is_the_formula(counts: list[list[int]], weights: list[float], mean: float) -> None:
    rows = np.array(counts, dtype=np.float64)
    lengths = rows.sum(axis=1) + 5.0
    n = len(counts)
    scores = bm25(rows, lengths, np.array(weights), np.full(n, 1.2), np.full(n, 0.75), mean)
    expected = [plain(list(row), length, weights, 1.2, 0.75, mean) for row, length in zip(rows, lengths, strict=True)]
    assert scores == pytest.approx(expected)


def test_a_rarer_term_weighs_more_and_never_less_than_nothing() -> None:
    weights = [inverse_document_frequency(1000, frequency) for frequency in (0, 1, 10, 500, 1000)]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] > 0
    assert inverse_document_frequency(10, 3) == pytest.approx(math.log(1 + 7.5 / 3.5))


def test_a_conversation_has_its_own_ranking_profile() -> None:
    assert profile_for("chat", 15.0).k1 < PROSE.k1
    assert {profile_for(kind, 100.0) for kind in ("documentation", "code", "anything")} == {PROSE}


def test_the_length_of_messages_counts_where_they_are_long() -> None:
    assert [profile_for("chat", mean).b for mean in (5.0, 15.0, 40.0, 90.0)] == [0.0, 0.0, PROSE.b, PROSE.b]
    assert profile_for("chat", 27.5).b == pytest.approx(PROSE.b / 2)


def test_the_share_is_of_the_idf_mass() -> None:
    shares = idf_share(np.array([[1.0, 0.0], [0.0, 3.0], [2.0, 2.0], [0.0, 0.0]]), np.array([1.0, 3.0]))
    assert shares == pytest.approx([0.25, 0.75, 1.0, 0.0])


def test_a_query_without_terms_shares_nothing() -> None:
    assert idf_share(np.zeros((2, 0)), np.zeros(0)) == pytest.approx([0.0, 0.0])
    assert bm25(np.zeros((2, 0)), np.ones(2), np.zeros(0), np.ones(2), np.ones(2), 1.0) == pytest.approx([0.0, 0.0])

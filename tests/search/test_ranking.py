"""Ranking: calibration, surroundings, order, thresholds."""

from dataclasses import replace

import numpy as np
import pytest

from rag_context.domain.documents import CHAT, CODE, DOCUMENTATION
from rag_context.domain.search import ChunkRef, Neighbours
from rag_context.domain.vectors import Calibration
from rag_context.search.ranking import (
    NEIGHBOUR_WEIGHT,
    Candidate,
    Candidates,
    answerable,
    best_first,
    fused_scores,
    passes,
    plainly_answerable,
    relevance,
    thresholds_for,
)
from tests.search.columns import columns, smoothed

MINILM = Calibration(slope=12.1, intercept=-4.01)


def candidate(
    id_: str,
    cosine: float | None = None,
    bm25: float = 0.0,
    share: float = 0.0,
    *,
    kind: str = DOCUMENTATION,
    thread: str | None = None,
) -> Candidate:
    return Candidate(ChunkRef(id_, "document-" + id_, 0, kind, thread), cosine, bm25, share)


@pytest.mark.parametrize(("cosine", "probability"), [(0.3314, 0.5), (0.2614, 0.3), (1.0, 0.99969), (-1.0, 1e-7)])
def test_a_cosine_becomes_a_probability(cosine: float, probability: float) -> None:
    assert relevance(candidate("a", cosine), MINILM) == pytest.approx(probability, abs=1e-3)


def test_without_a_cosine_the_share_of_the_query_is_the_relevance() -> None:
    assert relevance(candidate("a", None, share=0.6), MINILM) == 0.6
    assert relevance(candidate("a", 0.9, share=0.6), None) == 0.6


def test_ties_are_broken_by_chunk_id() -> None:
    candidates = [candidate("b", 0.5), candidate("a", 0.5), candidate("c", 0.9)]
    assert [candidates[i].chunk.id for i in best_first(columns(candidates), fused_scores(columns(candidates)))] == [
        "c",
        "a",
        "b",
    ]


def test_a_chunk_gains_from_its_neighbours() -> None:
    left, middle, right = candidate("l", 0.8, 4.0), candidate("m", 0.5, 2.0), candidate("r", 0.6, 0.0)
    near = {"m": Neighbours(left.chunk, right.chunk)}
    alone = candidate("z", 0.5, 2.0)
    scores = smoothed([middle, alone], near, [left, middle, right, alone])
    cosine, text = 0.5 + NEIGHBOUR_WEIGHT * 1.4, 2.0 + NEIGHBOUR_WEIGHT * 4.0
    alone_cosine, alone_text = (1.0 + 2 * NEIGHBOUR_WEIGHT) * 0.5, (1.0 + 2 * NEIGHBOUR_WEIGHT) * 2.0
    best_text = max(text, alone_text)
    expected = [0.5 + 0.5 * text / best_text, 0.5 * alone_cosine / cosine + 0.5 * alone_text / best_text]
    assert scores == pytest.approx(expected)


def test_a_short_document_is_not_behind_the_middle_of_a_long_one() -> None:
    left, middle, right = (candidate(id_, 0.5, 2.0) for id_ in "lmr")
    alone = candidate("z", 0.5, 2.0)
    scores = smoothed([middle, alone], {"m": Neighbours(left.chunk, right.chunk)}, [left, right])
    assert scores == pytest.approx([1.0, 1.0])


def test_a_neighbour_that_could_not_be_scored_counts_as_none() -> None:
    middle, alone = candidate("m", 0.5, 2.0), candidate("z", 0.5, 2.0)
    near = {"m": Neighbours(candidate("gone").chunk, None)}
    assert smoothed([middle, alone], near) == pytest.approx([1.0, 1.0])


def test_a_neighbour_without_a_vector_counts_by_its_keyword_score_only() -> None:
    middle, other = candidate("m", 0.5, 2.0), candidate("o", None, 4.0)
    alone = candidate("z", 0.5, 2.0)
    scores = smoothed([middle, alone], {"m": Neighbours(other.chunk, None)}, [other])
    assert scores[1] == pytest.approx(0.5 + 0.5 * 1.4 / 1.6)


def test_a_candidate_without_a_vector_competes_by_its_keyword_score() -> None:
    quoted, near, far = candidate("q", None, 9.0), candidate("n", 0.6, 3.0), candidate("f", 0.1, 6.0)
    scores = smoothed([quoted, near, far], calibration=MINILM)
    assert scores == pytest.approx([1.0, 0.5 + 0.5 * 3.0 / 9.0, 0.5 * 0.1 / 0.6 + 0.5 * 6.0 / 9.0])


def test_neighbours_do_not_make_a_poor_cosine_a_good_one() -> None:
    middle, unknown = candidate("m", 0.2, 0.0), candidate("u", None, 5.0)
    near = {"m": Neighbours(middle.chunk, middle.chunk)}
    assert smoothed([middle, unknown], near, [middle], MINILM) == pytest.approx([0.5 * 0.2 / 0.4, 1.0])


def test_messages_of_a_good_conversation_rise_together() -> None:
    good = [candidate(f"g{i}", 0.9, kind=CHAT, thread="good") for i in range(4)]
    weak = candidate("gw", 0.5, kind=CHAT, thread="good")
    stray = candidate("s", 0.55, kind=CHAT, thread="other")
    everything = [*good, weak, stray]
    scores = smoothed(everything)
    assert scores[4] > scores[5]
    assert fused_scores(columns(everything))[4] < fused_scores(columns(everything))[5]


def test_documents_have_no_conversation_to_lift_them() -> None:
    alone = [candidate("a", 0.9), candidate("b", 0.5, kind=CODE)]
    assert smoothed(alone) == pytest.approx(fused_scores(columns(alone)))


def test_nothing_ranks_to_nothing() -> None:
    assert smoothed([]).shape == (0,)
    assert best_first(columns([]), np.zeros(0)) == []


@pytest.mark.parametrize(
    ("score", "share", "kept"), [(0.3, 0.0, True), (0.29, 0.0, False), (0.01, 0.5, True), (0.29, 0.49, False)]
)
def test_the_relevant_and_the_holders_of_rare_terms_are_kept(score: float, share: float, kept: bool) -> None:
    assert passes(candidate("a", 0.2, share=share), score, 0.3) is kept


def test_no_threshold_of_cosines_applies_to_a_passage_without_one() -> None:
    assert passes(candidate("a", None, share=0.1), 0.1, 0.3)


def test_a_query_is_answerable_by_vector_search_or_by_rare_terms() -> None:
    assert answerable(columns([candidate("a", 0.45)]), MINILM, few=False)
    assert answerable(columns([candidate("a", 0.1, share=0.7)]), MINILM, few=False)
    assert answerable(columns([candidate("a", 0.38, share=0.4)]), MINILM, few=False)
    assert not answerable(columns([candidate("a", 0.43), candidate("b", None)]), MINILM, few=False)
    assert not answerable(columns([]), MINILM, few=False)


def test_without_its_rule_the_label_goes_by_the_models_cosine_alone() -> None:
    assert plainly_answerable(columns([candidate("a", 0.41)]), MINILM)
    assert plainly_answerable(columns([candidate("a", 0.1, share=0.7)]), MINILM)
    assert not plainly_answerable(columns([candidate("a", 0.39, share=0.4), candidate("b", None)]), MINILM)


def test_code_and_few_passages_need_less_to_be_an_answer() -> None:
    assert answerable(columns([candidate("a", 0.26, kind=CODE)]), MINILM, few=False)
    assert not answerable(columns([candidate("a", 0.24, kind=CODE), candidate("b", 0.4)]), MINILM, few=False)
    assert answerable(columns([candidate("a", 0.23)]), MINILM, few=True)
    assert not answerable(columns([candidate("a", 0.22)]), MINILM, few=True)


def test_a_question_with_a_date_needs_less_to_have_an_answer() -> None:
    assert answerable(columns([candidate("a", 0.30)]), MINILM, few=False, dated=True)
    assert not answerable(columns([candidate("a", 0.29)]), MINILM, few=False, dated=True)
    assert answerable(columns([candidate("a", 0.26, kind=CODE)]), MINILM, few=False, dated=True)
    assert answerable(columns([candidate("a", 0.24)]), MINILM, few=True, dated=True)


def test_a_word_that_nothing_holds_has_no_lower_limit() -> None:
    near = columns([candidate("a", 0.38, kind=CODE)])
    assert answerable(near, MINILM, few=True)
    assert not answerable(near, MINILM, few=True, unknown=True)


def test_messages_between_people_need_a_nearer_one_also_with_a_date() -> None:
    def message(cosine: float, speaker: str) -> Candidates:
        one = candidate("a", cosine, kind=CHAT)
        return columns([replace(one, chunk=replace(one.chunk, speaker=speaker))])

    assert [answerable(message(cosine, "User"), MINILM, few=False) for cosine in (0.44, 0.46)] == [False, True]
    assert answerable(message(0.30, "User"), MINILM, few=False, dated=True)
    for dated in (False, True):
        answers = [answerable(message(cosine, "Mara"), MINILM, few=False, dated=dated) for cosine in (0.48, 0.49)]
        assert answers == [False, True]


def test_half_of_the_rare_terms_are_not_yet_an_answer() -> None:
    assert not answerable(columns([candidate("a", 0.1, share=0.59)]), MINILM, few=False)
    assert answerable(columns([candidate("a", 0.1, share=0.6)]), MINILM, few=False)


def test_another_model_is_judged_on_its_own_scale() -> None:
    e5 = Calibration(slope=50.2, intercept=-41.2, answerable_cosine=0.837)
    assert answerable(columns([candidate("a", 0.848)]), e5, few=False)
    assert not answerable(columns([candidate("a", 0.845)]), e5, few=False)


def test_the_threshold_is_lower_for_code_and_among_few_passages() -> None:
    found = columns([candidate("a", 0.2), candidate("b", 0.2, kind=CODE)])
    assert thresholds_for(found, 0.3, few=False).tolist() == [0.3, pytest.approx(0.1)]
    assert thresholds_for(found, 0.3, few=True).tolist() == [pytest.approx(0.1)] * 2

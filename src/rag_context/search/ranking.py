"""Ranking: from raw scores to an ordered, calibrated list. Pure.

Both raw scores are exact on every candidate, so each is divided by its best and the two are mixed (fusion). Mixing
scores beats mixing ranks (reciprocal rank fusion) on every collection it was measured on; see docs/design/ranking.md.
`stores.postgres.candidates.FUSED` is the same formula in SQL.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rag_context.domain.documents import CHAT, CODE
from rag_context.domain.provenance import is_role
from rag_context.domain.search import ChunkRef, Floats, KeywordHit, RawScores, VectorHit
from rag_context.domain.vectors import Calibration
from rag_context.search import rules

T = TypeVar("T")

VECTOR_WEIGHT = 0.5
CODE_VECTOR_WEIGHT = 0.8
"""Queries for code are in natural language, which shares few words with code."""

RARE_TERMS_SHARE = 0.5
"""A passage that holds this share of the query's idf mass is returned whatever its cosine."""

NEIGHBOUR_WEIGHT = 0.2
"""How much of a neighbour's raw score a chunk gains: what surrounds a passage speaks for it (docs/design/ranking.md).

A neighbour that is not there counts as the chunk itself, or the middle of a long document would beat a short one.
"""


@dataclass(frozen=True, slots=True)
class VectorWeights:
    """How much of the fused score of code, and of other kinds of content, is the vector's; 0..1."""

    code: float = CODE_VECTOR_WEIGHT
    other: float = VECTOR_WEIGHT

    def of(self, content_type: str) -> float:
        return self.code if content_type == CODE else self.other


DEFAULT_WEIGHTS = VectorWeights()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk with its exact raw scores; `cosine` is None where it is unknown: no vector, or no vector search."""

    chunk: ChunkRef
    cosine: float | None
    bm25: float
    share: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """Chunks with their exact raw scores, row by row."""

    chunks: Sequence[ChunkRef]
    scores: RawScores

    @classmethod
    def of_hits(cls, hits: Sequence[VectorHit], texts: Sequence[KeywordHit]) -> "Candidates":
        """Every chunk once, in the order in which it was found, with the scores that are known."""
        refs = {hit.chunk.id: hit.chunk for hit in hits} | {hit.chunk.id: hit.chunk for hit in texts}
        scores = RawScores.unknown(len(refs))
        # `refs` begins with the chunks of `hits`, in their order.
        scores.cosines[: len(hits)] = [hit.cosine for hit in hits]
        row_of = dict(zip(refs, range(len(refs)), strict=True))
        rows = [row_of[hit.chunk.id] for hit in texts]
        scores.bm25[rows] = [hit.bm25 for hit in texts]
        scores.shares[rows] = [hit.share for hit in texts]
        return cls(list(refs.values()), scores)

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, row: int) -> Candidate:
        scores = self.scores
        cosine = float(scores.cosines[row])
        return Candidate(
            self.chunks[row], None if math.isnan(cosine) else cosine, float(scores.bm25[row]), float(scores.shares[row])
        )

    def take(self, rows: Sequence[int]) -> "Candidates":
        return Candidates([self.chunks[row] for row in rows], self.scores.take(rows))


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate in its place: `fused` orders, `score` is the calibrated relevance 0..1.

    `fused` includes the factor `boost` for its speaker, and `by_time`, what it gained by its nearness to a named time.
    """

    candidate: Candidate
    fused: float
    score: float
    boost: float = 1.0
    by_time: float = 0.0


def is_between_people(chunk: ChunkRef) -> bool:
    return chunk.content_type == CHAT and chunk.speaker is not None and not is_role(chunk.speaker)


def relevance(candidate: Candidate, calibration: Calibration | None) -> float:
    """Calibrated relevance, 0..1: a probability from the cosine, else the share of the query's idf mass."""
    if candidate.cosine is None or calibration is None:
        return candidate.share
    return calibrated(candidate.cosine, calibration)


def calibrated(cosine: float, calibration: Calibration) -> float:
    """How likely a passage of this cosine is relevant, 0..1."""
    return 1.0 / (1.0 + math.exp(-(calibration.slope * cosine + calibration.intercept)))


def fused_scores(
    candidates: Candidates, calibration: Calibration | None = None, weights: VectorWeights = DEFAULT_WEIGHTS
) -> Floats:
    """Fused score of each candidate by itself, `(n,)`; arguments as `smoothed_scores` explains them."""
    near, texts = closeness(candidates.scores.cosines, calibration), candidates.scores.bm25
    return fuse(near, texts, _weights(candidates, weights), presumed_best(calibration))


def smoothed_scores(
    candidates: Candidates,
    before: RawScores,
    after: RawScores,
    calibration: Calibration | None = None,
    weights: VectorWeights = DEFAULT_WEIGHTS,
) -> Floats:
    """Fused score of each candidate with its surroundings, `(n,)`: raw scores first gain a share of the neighbours'.

    `before` and `after` are raw scores of what stands beside each; NaN where nothing does, or nothing is known of it.
    """
    # Raw scores are smoothed, not fused ones: those of neighbours are on the same scales.
    own_near, own_texts = closeness(candidates.scores.cosines, calibration), candidates.scores.bm25
    near, texts = own_near, own_texts
    for beside in (before, after):
        near = near + NEIGHBOUR_WEIGHT * _or_own(closeness(beside.cosines, calibration), own_near)
        texts = texts + NEIGHBOUR_WEIGHT * _or_own(beside.bm25, own_texts)
    # A best candidate has as good neighbours, or none: then it counts as its own.
    best = (1.0 + 2.0 * NEIGHBOUR_WEIGHT) * presumed_best(calibration)
    return fuse(near, texts, _weights(candidates, weights), best)


def best_first(candidates: Candidates, scores: Floats) -> list[int]:
    """Rows by descending score; ties by chunk id, so that the order never depends on the store."""
    ids = [chunk.id for chunk in candidates.chunks]
    return [row for _, _, row in sorted(zip((-scores).tolist(), ids, range(len(ids)), strict=True))]


def passes(candidate: Candidate, score: float, threshold: float) -> bool:
    """Whether a passage is returned without a `min_score`: relevant enough, or it holds the rare terms."""
    return candidate.cosine is None or score >= threshold or candidate.share >= RARE_TERMS_SHARE


def spread(ranked: Iterable[T], document_of: Callable[[T], str], per_document: int | None) -> Iterator[T]:
    """The ranked items in their order, with at most `per_document` of each document (None: all)."""
    seen: Counter[str] = Counter()
    for each in ranked:
        document = document_of(each)
        seen[document] += 1
        if per_document is None or seen[document] <= per_document:
            yield each


def answerable(
    candidates: Candidates, calibration: Calibration, *, few: bool, dated: bool = False, unknown: bool = False
) -> bool:
    """Whether something here probably answers the query; a label, never a filter.

    `few`: the query may find few passages, of which the best stands less high by chance; `dated`: it names a time;
    `unknown`: it is one word that no passage holds, which is near to some text by its letters.
    """
    scores, slope = candidates.scores, calibration.slope
    between_people = np.array([is_between_people(chunk) for chunk in candidates.chunks], dtype=np.bool_)
    least = np.full(len(candidates), rules.LIKELY_LOG_ODDS)
    least[_are(CHAT, candidates)] = rules.LIKELY_MESSAGE_LOG_ODDS
    least[between_people] = rules.LIKELY_PEOPLE_LOG_ODDS
    least[_are(CODE, candidates)] = rules.LIKELY_CODE_LOG_ODDS
    if few:
        np.minimum(least, rules.LIKELY_FEW_LOG_ODDS, out=least)
    elif dated:  # people say when they speak of a day what it was about
        np.minimum(least, rules.LIKELY_DATED_LOG_ODDS, out=least, where=~between_people)
    if unknown:
        np.maximum(least, rules.LIKELY_LOG_ODDS, out=least)
    # In log-odds, where what a cosine and a share of the terms say can be added.
    above = slope * (scores.cosines - calibration.answerable_cosine) + rules.SHARE_LOG_ODDS * scores.shares
    likely = (above >= least) | (scores.shares >= rules.LIKELY_SHARE)
    return bool(likely.any())


def plainly_answerable(candidates: Candidates, calibration: Calibration) -> bool:
    """As `answerable`, by the model's cosine alone."""
    scores = candidates.scores
    likely = (scores.cosines >= calibration.answerable_cosine) | (scores.shares >= RARE_TERMS_SHARE)
    return bool(likely.any())


def _are(content_type: str, candidates: Candidates) -> list[bool]:
    return [chunk.content_type == content_type for chunk in candidates.chunks]


def thresholds_for(candidates: Candidates, threshold: float, *, few: bool) -> Floats:
    """The least scores, `(n,)`, of passages that are returned; `threshold` is the model's, `few` as in `answerable`."""
    is_low = np.array(_are(CODE, candidates), dtype=np.bool_) | few
    return np.where(is_low, threshold * rules.LOW_THRESHOLD, threshold)


def unrelated_cosine(calibration: Calibration | None) -> float:
    """The cosine of unrelated texts under this model, from which cosines count."""
    return 0.0 if calibration is None else calibration.unrelated_cosine


def closeness(cosines: Floats, calibration: Calibration | None) -> Floats:
    """How far each cosine is above that of unrelated texts, 0 and up; unknown ones (NaN) stay unknown.

    Under some models unrelated texts have a cosine near 0, under others of 0.7 (docs/design/ranking.md).
    """
    return np.maximum(cosines - unrelated_cosine(calibration), 0.0)


def presumed_best(calibration: Calibration | None) -> float:
    """The least best closeness of a query that something answers: what the missing ones are measured by."""
    return 0.0 if calibration is None else max(calibration.answerable_cosine - calibration.unrelated_cosine, 0.0)


def _or_own(of_neighbours: Floats, own: Floats) -> Floats:
    return np.where(np.isnan(of_neighbours), own, of_neighbours)


def _weights(candidates: Candidates, weights: VectorWeights) -> Floats:
    return np.array([weights.of(chunk.content_type) for chunk in candidates.chunks], dtype=np.float64)


def fuse(near: Floats, text_scores: Floats, weights: Floats, presumed_best: float = 0.0) -> Floats:
    """`a * near / max near + (1 - a) * text / max text`, element by element: `(n,)`, 0..1.

    What is unknown (NaN in `near`) is not 0. It is estimated from the keyword score: its share of the best closeness is
    the candidate's share of the best keyword score, so that it is placed by its text score alone, on the scale of all
    the others. The nearest may then be among the unknown ones: the best of the known ones counts as best only from
    `presumed_best` up. Where one side has nothing to say of any candidate, the other side alone orders them. `near` and
    `text_scores` (BM25) are 0 and up, the shares `weights` 0..1; scores of two queries do not compare.
    """
    unknown = np.isnan(near)
    by_text = _by_best(text_scores, 0.0)
    if unknown.all():
        return by_text
    known = np.where(unknown, 0.0, near)
    by_vector = np.where(unknown, by_text, _by_best(known, presumed_best if unknown.any() else 0.0))
    # A side that says nothing of any candidate would only shrink the scores of the other.
    if not by_text.any():
        return by_vector
    if not by_vector.any():
        return by_text
    return np.where(unknown, by_text, weights * by_vector + (1.0 - weights) * by_text)


def _by_best(scores: Floats, presumed_best: float) -> Floats:
    best = max(scores.max(initial=0.0), presumed_best)
    return scores / best if best > 0.0 else np.zeros_like(scores)

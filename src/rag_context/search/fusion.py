"""Fusion: one score out of two, pure.

Both raw scores are exact on every candidate, so each is divided by its best and the two are mixed. Mixing
scores beats mixing ranks (reciprocal rank fusion) on every collection it was measured on; see docs/search.md.
"""

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.documents import CODE

Floats = NDArray[np.float64]

VECTOR_WEIGHT = 0.5
CODE_VECTOR_WEIGHT = 0.8
"""Queries for code are in natural language, which shares few words with code."""


def vector_weight(content_type: str) -> float:
    """How much of the fused score of this kind of content is the vector's, 0..1."""
    return CODE_VECTOR_WEIGHT if content_type == CODE else VECTOR_WEIGHT


def fuse(cosines: Floats, text_scores: Floats, weights: Floats, presumed_best: float = 0.0) -> Floats:
    """`a * max(cos, 0) / max cos + (1 - a) * text / max text`, element by element.

    An unknown cosine is not a cosine of 0. It is estimated from the keyword score: its share of the best cosine
    is the candidate's share of the best keyword score, so that such a candidate is placed by its text score
    alone, on the scale of all the others. The best cosine may then be among the unknown ones, and the best of the
    known ones may be poor: it counts as best only from `presumed_best` up.

    Args:
        cosines: `(n,)` cosine of each candidate to the query; NaN where it has no vector.
        text_scores: `(n,)` BM25 of each candidate, 0 and up.
        weights: `(n,)` share `a` of the vector in each candidate's score, 0..1.
        presumed_best: the least cosine that the best of all candidates is taken to have where some are unknown.

    Returns:
        `(n,)` fused scores, 0..1. They order candidates of one query and mean nothing beside another's.
        Where one side has nothing to say of any candidate, the other side alone orders them.
    """
    unknown = np.isnan(cosines)
    by_text = _by_best(text_scores, 0.0)
    if unknown.all():
        return by_text
    known = np.maximum(np.where(unknown, 0.0, cosines), 0.0)
    by_vector = np.where(unknown, by_text, _by_best(known, presumed_best if unknown.any() else 0.0))
    if not by_text.any():
        return by_vector
    if not by_vector.any():
        return by_text
    return np.where(unknown, by_text, weights * by_vector + (1.0 - weights) * by_text)


def _by_best(scores: Floats, presumed_best: float) -> Floats:
    best = max(scores.max(initial=0.0), presumed_best)
    return scores / best if best > 0.0 else np.zeros_like(scores)

"""Fusion: one score out of two, pure.

Both raw scores are exact on every candidate, so each is divided by its best and the two are mixed. Mixing
scores beats mixing ranks (reciprocal rank fusion) on every collection it was measured on; see docs/search.md.
"""

import numpy as np
from numpy.typing import NDArray

from rag_context.types import CODE

Floats = NDArray[np.float64]

VECTOR_WEIGHT = 0.5
CODE_VECTOR_WEIGHT = 0.8
"""Code is asked for in natural language, which shares few words with it."""


def vector_weight(content_type: str) -> float:
    """How much of the fused score of this kind of content is the vector's, 0..1."""
    return CODE_VECTOR_WEIGHT if content_type == CODE else VECTOR_WEIGHT


def fuse(cosines: Floats, text_scores: Floats, weights: Floats) -> Floats:
    """`a * max(cos, 0) / max cos + (1 - a) * text / max text`, element by element.

    Args:
        cosines: `(n,)` cosine of each candidate to the query; 0 where it has no vector.
        text_scores: `(n,)` BM25 of each candidate, 0 and up.
        weights: `(n,)` share `a` of the vector in each candidate's score, 0..1.

    Returns:
        `(n,)` fused scores, 0..1. They order candidates of one query and mean nothing beside another's.
        Where one side has nothing to say of any candidate, the other side alone orders them.
    """
    by_vector, by_text = _by_best(np.maximum(cosines, 0.0)), _by_best(text_scores)
    if not by_text.any():
        return by_vector
    if not by_vector.any():
        return by_text
    return weights * by_vector + (1.0 - weights) * by_text


def _by_best(scores: Floats) -> Floats:
    best = scores.max(initial=0.0)
    return scores / best if best > 0.0 else np.zeros_like(scores)

"""BM25 over given counts: the one keyword score, pure, for the counts of any store.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the idf that
cannot be negative (Lucene's).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.documents import CHAT

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bm25Profile:
    """Saturation of repeats (`k1`) and strength of the length normalisation (`b`, 0..1)."""

    k1: float
    b: float


PROSE = Bm25Profile(k1=1.2, b=0.75)
CONVERSATION = Bm25Profile(k1=0.4, b=0.0)
"""Turns of a conversation: whether a term occurs counts, its frequency and the length hardly (docs/search.md)."""


def profile_for(content_type: str) -> Bm25Profile:
    """The profile of a kind of content."""
    return CONVERSATION if content_type == CHAT else PROSE


def inverse_document_frequency(documents: int, frequency: int) -> float:
    """`ln(1 + (N - n + 0.5) / (n + 0.5))`; `frequency` of `documents` hold the term."""
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def bm25(
    counts: Floats,
    lengths: Floats,
    weights: Floats,
    k1: Floats,
    b: Floats,
    average_length: float,
) -> Floats:
    """Score `n` passages for `t` query terms.

    Args:
        counts: `(n, t)` occurrences of each term in each passage.
        lengths: `(n,)` terms in each passage.
        weights: `(t,)` idf times the term's count in the query.
        k1: `(n,)` saturation, above 0, by the passage's kind.
        b: `(n,)` length normalisation, by the passage's kind.
        average_length: mean number of terms of all passages of the index; at least 1.

    Returns:
        `(n,)` scores, 0 and up.
    """
    norm = length_norm(lengths, k1, b, average_length)
    scores = np.zeros(len(counts))
    for term, weight in enumerate(weights):  # one after the other: every store adds in the same order, to the last bit
        scores += saturated(counts[:, term], k1, norm) * weight
    return scores


def length_norm(lengths: Floats, k1: Floats, b: Floats, average_length: float) -> Floats:
    """`(n,)`, what a count is compared with before it saturates; arguments as `bm25` explains them."""
    norm: Floats = k1 * (1.0 - b + b * lengths / max(average_length, 1.0))
    return norm


def saturated(counts: Floats, k1: Floats, norm: Floats) -> Floats:
    """`(n,)`, what the occurrences of one term count for: 0 and up, at most `k1 + 1`."""
    counted: Floats = counts * (k1 + 1.0) / (counts + norm)
    return counted


def idf_share(counts: Floats, idf: Floats) -> Floats:
    """Share of the idf mass of the query's distinct terms that each passage holds.

    Args:
        counts: `(n, t)` occurrences.
        idf: `(t,)` inverse document frequencies, terms unknown to the index included.

    Returns:
        `(n,)` shares, 0..1; 0 for a query without terms.
    """
    total, shares = 0.0, np.zeros(len(counts))
    for term, each in enumerate(idf.tolist()):
        total += each
        shares += (counts[:, term] > 0) * each
    return np.minimum(shares / total, 1.0) if total > 0.0 else shares

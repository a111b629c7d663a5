"""BM25 of every chunk at once, term by term: the same numbers, to the last bit, as `text.bm25` gives for one chunk."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_context.stores.sqlite.memory.columns import Mask
from rag_context.stores.sqlite.memory.postings import Postings
from rag_context.text.analysis import terms
from rag_context.text.bm25 import CONVERSATION, PROSE, inverse_document_frequency, length_norm, saturated

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """The distinct terms of a query, in order, with how often each occurs in it."""

    terms: Mapping[str, int]

    @classmethod
    def of(cls, query: str) -> "QueryTerms":
        """The terms of a query."""
        return cls(Counter(terms(query)))


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the scores need of all `n` rows."""

    live: Mask | None
    """`(n,)`, which rows count; None: all."""
    chunks: int
    """How many rows count."""
    k1: Floats
    """`(n,)`, saturation."""
    norm: Floats
    """`(n,)`, length normalisation."""

    @classmethod
    def of(
        cls,
        lengths: NDArray[np.int32],
        live: Mask | None,
        is_conversation: Mask,
        chunks: int,
        average_length: float,
    ) -> "Statistics":
        """Computed once for each state of the index.

        Args:
            lengths: `(n,)`, number of terms.
            live: `(n,)`, which rows count; None: all.
            is_conversation: `(n,)`, which rows are turns of conversations.
            chunks: how many rows count.
            average_length: of these.
        """
        k1 = np.where(is_conversation, CONVERSATION.k1, PROSE.k1)
        b = np.where(is_conversation, CONVERSATION.b, PROSE.b)
        return cls(live, chunks, k1, length_norm(lengths.astype(np.float64), k1, b, average_length))


@dataclass(frozen=True, slots=True)
class KeywordScores:
    """The scores `(n,)` of all rows, as of one state of the index; `shares` of the query's idf mass, 0..1."""

    bm25: Floats
    shares: Floats
    changes: int
    """The state of the index."""

    @property
    def size(self) -> int:
        """In bytes."""
        return self.bm25.nbytes + self.shares.nbytes


def score(query: QueryTerms, postings: Postings, statistics: Statistics, changes: int = 0) -> KeywordScores:
    """Score all rows."""
    size = len(statistics.norm)
    scores, shares, total = np.zeros(size), np.zeros(size), 0.0
    k1, norm = statistics.k1, statistics.norm
    for term, times in query.terms.items():
        found = list(postings.of(term))
        if statistics.live is not None:
            found = [(rows[kept], counts[kept]) for rows, counts in found for kept in [statistics.live[rows]]]
        frequency = sum(len(rows) for rows, _ in found)
        idf = inverse_document_frequency(statistics.chunks, frequency)
        total += idf
        for rows, counts in found:
            scores[rows] += saturated(counts.astype(np.float64), k1[rows], norm[rows]) * (idf * times)
            shares[rows] += idf
    if total > 0.0:
        np.minimum(shares / total, 1.0, out=shares)
    return KeywordScores(scores, shares, changes)

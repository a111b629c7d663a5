"""The keyword index of a collection in memory: built by its first keyword query, then kept in step with the file.

Entries are identified by their number in the file, which grows: new ones are appended, and deleted ones are skipped
until they are half of the index, when it is built again.
"""

import sqlite3
import threading
from array import array
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rag_context.ports.provider import KeywordScore
from rag_context.text.analysis import terms
from rag_context.text.bm25 import PROSE, bm25, idf_share, inverse_document_frequency

AT_ONCE = 256
"""Entries analysed in one step. What an interrupted reader has analysed before its last step is kept."""

_NEW = """
SELECT e.seq, t.text FROM entries AS e CROSS JOIN entry_texts AS t ON t.entry = e.seq
WHERE e.collection = ? AND e.seq > ? ORDER BY e.seq LIMIT ?
"""

Floats = NDArray[np.float64]


class _Postings:
    """The postings of a term: positions in the index, ascending, and counts."""

    __slots__ = ("counts", "positions")

    def __init__(self) -> None:
        self.positions = array("I")
        self.counts = array("I")


class KeywordIndex:
    """The terms of a collection's entries. Safe to use from several threads.

    Args:
        key: of the collection in the file.
    """

    def __init__(self, key: int) -> None:
        self._key = key
        self._lock = threading.Lock()
        self._clear()

    def follow(self, connection: sqlite3.Connection) -> None:
        """Add the new entries up to the connection's snapshot."""
        while True:
            with self._lock:
                new = connection.execute(_NEW, (self._key, self._last, AT_ONCE)).fetchall()
                for seq, text in new:
                    self._append(seq, terms(text))
            if len(new) < AT_ONCE:
                return

    def scores(
        self, query: str, ids: Sequence[str], seqs: Sequence[int], let_through: NDArray[np.bool_], limit: int
    ) -> tuple[list[tuple[str, KeywordScore]], dict[str, KeywordScore]]:
        """Score the entries that hold a term of `query` and are let through.

        Args:
            query: the text of the query.
            ids: of the collection's entries.
            seqs: their numbers in the file.
            let_through: `(n,)`, which of them a filter lets through; the statistics of terms are theirs.
            limit: how many are ordered.

        Returns:
            the best of them, equal ones by id; and all of them by id.
        """
        asked = Counter(terms(query))
        with self._lock:
            if not self._seqs:
                return [], {}
            rows = self._rows(np.array(seqs, dtype=np.int64))
            there = rows >= 0
            there[there] = let_through[rows[there]]
            lengths = np.frombuffer(self._lengths, dtype=np.uint32).astype(np.float64)
            found = {term: self._found(term, there) for term in asked}
        held = np.unique(np.concatenate([positions for positions, _ in found.values()] or [np.empty(0, np.int64)]))
        if not len(held):
            return [], {}
        counts = np.zeros((len(held), len(asked)))
        for column, (positions, times) in enumerate(found.values()):
            _, at, of = np.intersect1d(held, positions, assume_unique=True, return_indices=True)
            counts[at, column] = times[of]
        idf = np.array(
            [inverse_document_frequency(int(there.sum()), len(positions)) for positions, _ in found.values()]
        )
        scored = bm25(
            counts,
            lengths[held],
            idf * np.array(list(asked.values()), dtype=np.float64),
            np.full(len(held), PROSE.k1),
            np.full(len(held), PROSE.b),
            float(lengths[there].mean()),
        )
        shares = idf_share(counts, idf)
        named = [ids[row] for row in rows[held]]
        every = {
            id_: KeywordScore(float(score), float(share))
            for id_, score, share in zip(named, scored, shares, strict=True)
        }
        best = sorted(every.items(), key=lambda item: (-item[1].bm25, item[0]))[:limit]
        return best, every

    def _clear(self) -> None:
        self._last = 0
        self._seqs = array("q")
        self._lengths = array("I")
        self._postings: dict[str, _Postings] = {}

    def _append(self, seq: int, words: Sequence[str]) -> None:
        position = len(self._seqs)
        self._seqs.append(seq)
        self._lengths.append(len(words))
        self._last = seq
        for term, count in Counter(words).items():
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = _Postings()
            postings.positions.append(position)
            postings.counts.append(count)

    def _rows(self, live: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each position the row of its entry among the live ones; -1 if it was deleted."""
        known = np.frombuffer(self._seqs, dtype=np.int64)
        if not len(live):
            return np.full(len(known), -1)
        order = np.argsort(live)
        at = np.minimum(np.searchsorted(live, known, sorter=order), len(live) - 1)
        rows = order[at]
        return np.where(live[rows] == known, rows, -1)

    def _found(self, term: str, there: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Floats]:
        postings = self._postings.get(term)
        if postings is None:
            return np.empty(0, np.int64), np.empty(0)
        positions = np.frombuffer(postings.positions, dtype=np.uint32).astype(np.int64)
        counts = np.frombuffer(postings.counts, dtype=np.uint32).astype(np.float64)
        kept = there[positions]
        return positions[kept], counts[kept]

    def forget_gone(self, live: int) -> None:
        """Build the index again with the next query if more than half of its entries were deleted."""
        with self._lock:
            if len(self._seqs) > 2 * max(live, AT_ONCE):
                self._clear()

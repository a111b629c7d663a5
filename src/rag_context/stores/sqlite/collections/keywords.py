"""The keyword index of a collection in memory: built by its first keyword query, then kept in step with the file.

Entries are identified by their number in the file, which grows: new ones are appended, and deleted ones are skipped
until they are half of the index, when it is built again.
"""

import sqlite3
import threading
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rag_context.ports.provider import KeywordScore
from rag_context.stores.sqlite.engine.terms import Postings, QueryTerms, Statistics, packed, score
from rag_context.text import terms

AT_ONCE = 256
"""Entries analysed in one step. What an interrupted reader has analysed before its last step is kept."""

_NEW = """
SELECT e.seq, t.text FROM entries AS e CROSS JOIN entry_texts AS t ON t.entry = e.seq
WHERE e.collection = ? AND e.seq > ? ORDER BY e.seq LIMIT ?
"""


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
                if new:
                    self._append(new)
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
        with self._lock:
            if not self._seqs:
                return [], {}
            rows = self._rows(np.array(seqs, dtype=np.int64))
            there = rows >= 0
            there[there] = let_through[rows[there]]
            lengths = np.frombuffer(self._lengths, dtype=np.uint32).astype(np.int32)
            count = int(there.sum())
            average_length = float(lengths[there].mean()) if count else 0.0
            of_prose = np.zeros(len(lengths), dtype=np.bool_)
            statistics = Statistics.of(lengths, there, of_prose, count, average_length)
            scored = score(QueryTerms.of(query), self._postings, statistics)
        held = np.flatnonzero(scored.bm25 > 0.0)
        every = {
            ids[row]: KeywordScore(bm25, share)
            for row, bm25, share in zip(
                rows[held].tolist(), scored.bm25[held].tolist(), scored.shares[held].tolist(), strict=True
            )
        }
        best = sorted(every.items(), key=lambda item: (-item[1].bm25, item[0]))[:limit]
        return best, every

    def _clear(self) -> None:
        self._last = 0
        self._seqs = array("q")
        self._lengths = array("I")
        self._postings = Postings()

    def _append(self, new: Sequence[tuple[int, str]]) -> None:
        words = [terms(text) for _, text in new]
        self._postings.append(len(self._seqs), [packed(each) for each in words])
        self._seqs.extend([seq for seq, _ in new])
        self._lengths.extend([len(each) for each in words])
        self._last = new[-1][0]

    def _rows(self, live: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each position the row of its entry among the live ones; -1 if it was deleted."""
        known = np.frombuffer(self._seqs, dtype=np.int64)
        if not len(live):
            return np.full(len(known), -1)
        order = np.argsort(live)
        at = np.minimum(np.searchsorted(live, known, sorter=order), len(live) - 1)
        rows = order[at]
        return np.where(live[rows] == known, rows, -1)

    def forget_gone(self, live: int) -> None:
        """Build the index again with the next query if more than half of its entries were deleted."""
        with self._lock:
            if len(self._seqs) > 2 * max(live, AT_ONCE):
                self._clear()

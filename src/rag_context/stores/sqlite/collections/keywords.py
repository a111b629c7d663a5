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
from rag_context.stores.sqlite.collections.view import CollectionView
from rag_context.stores.sqlite.engine.terms import Postings, QueryTerms, Statistics, packed, score
from rag_context.stores.sqlite.engine.vectors import Mask, best, in_order
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
        self, query: str, view: CollectionView, let_through: Mask, limit: int, also: Sequence[str]
    ) -> dict[str, KeywordScore]:
        """The scores of the best `limit` entries that hold a term of `query` and are let through, equal ones by id.

        Args:
            query: the text of the query.
            view: the collection's entries.
            let_through: `(n,)`, which of them a filter lets through; the statistics of terms are theirs.
            limit: how many.
            also: ids of entries that are scored too if they hold a term.
        """
        bm25, shares = np.zeros(len(view.ids)), np.zeros(len(view.ids))
        with self._lock:
            rows = self._rows(np.array(view.seqs, dtype=np.int64))
            there = rows >= 0
            there[there] = let_through[rows[there]]
            lengths = np.frombuffer(self._lengths, dtype=np.uint32).astype(np.int32)
            count = int(there.sum())
            average_length = float(lengths[there].mean()) if count else 0.0
            of_prose = np.zeros(len(lengths), dtype=np.bool_)
            statistics = Statistics.of(lengths, there, of_prose, count, average_length)
            scored = score(QueryTerms.of(query), self._postings, statistics)
        bm25[rows[there]], shares[rows[there]] = scored.bm25[there], scored.shares[there]
        held = np.flatnonzero(bm25)
        highest = held[best(bm25[held], limit)]
        found = [row for _, row in in_order(bm25[highest], highest, view.ids, limit)]
        found += [row for id_ in also if (row := view.rows.get(id_)) is not None and bm25[row]]
        return {view.ids[row]: KeywordScore(float(bm25[row]), float(shares[row])) for row in found}

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
        order = np.argsort(live, kind="stable")  # mostly ascending, which this kind makes use of
        at = np.minimum(np.searchsorted(live, known, sorter=order), len(live) - 1)
        rows = order[at]
        return np.where(live[rows] == known, rows, -1)

    def forget_gone(self, live: int) -> None:
        """Build the index again with the next query if more than half of its entries were deleted."""
        with self._lock:
            if len(self._seqs) > 2 * max(live, AT_ONCE):
                self._clear()

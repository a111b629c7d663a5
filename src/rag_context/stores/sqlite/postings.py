"""A cache of posting lists: which chunks contain a word, read once and extended with newer chunks.

FTS5 ranks a chunk in about a microsecond, so one common word of a query costs as much as everything else in it.
Its posting list changes only with chunks that are added or deleted: new ones have higher keys and are read alone,
keys are never used twice, and deleted ones are dropped when the chunks themselves are read. So each list is read
once, and a query is a sum of arrays.
"""

import math
import sqlite3
import threading
from dataclasses import dataclass

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

MOST_REMEMBERED = 2_500_000
"""Postings in memory, of eight bytes each."""

AT_ONCE = 50_000
"""Rows read in one step; an interrupted call keeps the steps before."""

STALE_SHARE = 0.5
"""A list is read again after so many changes of the index, as a share of the chunks: most of it may be deleted."""

_HIGHEST_IMPACT = 2.2  # FTS5's k1 is 1.2

_IMPACT_UNIT = 1000

# One long text instead of rows: the whole answer is made without the interpreter's lock, which every row would take.
_RANKED = """
SELECT group_concat(posting, ' ') FROM (
    SELECT rowid || ' ' || CAST(rank * ? AS INTEGER) AS posting
    FROM texts WHERE texts MATCH ? AND rowid > ? ORDER BY rowid LIMIT ?
)
"""
_PLAIN = """
SELECT group_concat(posting, ' ') FROM (
    SELECT rowid || ' ' || ? AS posting FROM texts WHERE texts MATCH ? AND rowid > ? ORDER BY rowid LIMIT ?
)
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a reader sees: the file, its version, how many chunks there are, and the highest key ever given."""

    generation: int
    version: int
    chunks: int
    newest: int
    average_length: float


@dataclass(frozen=True, slots=True)
class Postings:
    """The posting list of a word: `keys` `(n,)` ascending, `impacts` `(n,)`, BM25 without the idf (k1 1.2, b .75)."""

    keys: NDArray[np.int32]
    impacts: NDArray[np.float32]
    complete_to: int
    """The list is complete up to this key."""
    seen: int
    """Version of the index at which that was so."""
    begun: int
    """Version at which the list was begun."""

    def until(self, key: int) -> "Postings":
        """The postings up to `key`: another reader may have a newer snapshot."""
        if not len(self.keys) or self.keys[-1] <= key:
            return self
        end = int(np.searchsorted(self.keys, key, side="right"))
        return Postings(self.keys[:end], self.impacts[:end], key, self.seen, self.begun)


class PostingLists:
    """The most recently used posting lists. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lists: LRUCache[tuple[int, str, str], Postings] = LRUCache(MOST_REMEMBERED, getsizeof=_size)
        self._lock = threading.Lock()

    def ranked(self, term: str, frequency: int, snapshot: Snapshot, connection: sqlite3.Connection) -> Postings:
        """The chunks that hold `term`, of which there are about `frequency`, with impacts."""
        frequency = min(frequency, snapshot.chunks)  # it may have been counted in a newer snapshot
        idf = math.log((snapshot.chunks - frequency + 0.5) / (frequency + 0.5))
        # FTS5 replaces an idf that is not above 0 by 1e-6, and negates the score.
        unit = -_IMPACT_UNIT / (idf if idf > 0.0 else 1e-6)
        return self._current(_ListQuery(_RANKED, "{terms} : " + quoted(term), unit), snapshot, connection)

    def holding(self, term: str, snapshot: Snapshot, connection: sqlite3.Connection) -> Postings:
        """The chunks that hold `term`, all of impact 1: a tenth of the work."""
        return self._current(_ListQuery(_PLAIN, "{terms} : " + quoted(term), _IMPACT_UNIT), snapshot, connection)

    def having(self, facet: str, snapshot: Snapshot, connection: sqlite3.Connection) -> Postings:
        """The chunks that have `facet`."""
        return self._current(_ListQuery(_PLAIN, "{facets} : " + quoted(facet), _IMPACT_UNIT), snapshot, connection)

    def _current(self, query: "_ListQuery", snapshot: Snapshot, connection: sqlite3.Connection) -> Postings:
        name = (snapshot.generation, query.sql, query.match)
        with self._lock:
            cached = self._lists.get(name)
        if cached is None or snapshot.version - cached.begun > STALE_SHARE * max(snapshot.chunks, AT_ONCE):
            nothing = np.empty(0, np.int32), np.empty(0, np.float32)
            cached = Postings(*nothing, complete_to=0, seen=-1, begun=snapshot.version)
        while cached.seen < snapshot.version:
            values = (query.unit, query.match, cached.complete_to, AT_ONCE)
            text: str | None = connection.execute(query.sql, values).fetchone()[0]
            cached = _extended(cached, text or "", snapshot)
            if _size(cached) <= MOST_REMEMBERED:
                with self._lock:
                    self._lists[name] = cached
        return cached.until(snapshot.newest)


@dataclass(frozen=True, slots=True)
class _ListQuery:
    """The query for a list. `unit` times the index's score of a posting is its impact as an integer."""

    sql: str
    match: str
    unit: float


def quoted(word: str) -> str:
    """`word` as a quoted string of FTS5: no character of it is syntax."""
    return '"' + word.replace('"', '""') + '"'


def _extended(cached: Postings, text: str, snapshot: Snapshot) -> Postings:
    """`cached` with the postings in `text`: key, impact, key, impact, and so on."""
    new = np.fromstring(text, dtype=np.int64, sep=" ").reshape(-1, 2)
    all_read = len(new) < AT_ONCE
    impacts = np.clip(new[:, 1] / _IMPACT_UNIT, 0.0, _HIGHEST_IMPACT)
    return Postings(
        np.concatenate((cached.keys, new[:, 0].astype(np.int32))),
        np.concatenate((cached.impacts, impacts.astype(np.float32))),
        complete_to=snapshot.newest if all_read else int(new[-1, 0]),
        seen=snapshot.version if all_read else cached.seen,
        begun=cached.begun,
    )


def _size(postings: Postings) -> int:
    return len(postings.keys) + 100

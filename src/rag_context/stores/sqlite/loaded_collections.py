"""Collections in memory, kept in step with the file: vectors, the fields that filters have used, and terms.

A read-write lock protects a collection: no query sees a partial change. Its terms have a lock of their own, and may be
newer: they belong to entries by their numbers in the file, which grow and are never used twice.
"""

import json
import sqlite3
import threading
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.clauses import Path
from rag_context.domain.documents import Json
from rag_context.domain.text import terms
from rag_context.domain.where import value_at
from rag_context.errors import BackendDataError
from rag_context.ports.provider import KeywordScore
from rag_context.stores.sqlite.collection_view import CollectionView, FieldColumn, IdOrder
from rag_context.stores.sqlite.database import ReadWriteLock
from rag_context.stores.sqlite.faults import COMPONENT
from rag_context.stores.sqlite.memory.terms import Postings, Statistics, packed, scores_of_all
from rag_context.stores.sqlite.memory.vector_scan import Mask, Vectors, best, in_order, matrix_of

AT_ONCE = 4096
"""Entries read in one step. What an interrupted reader has read before its last step is kept."""

ANALYSED_AT_ONCE = 256
"""Entries analysed in one step. What an interrupted reader has analysed before its last step is kept."""

MOST_COLUMNS = 64
"""Fields in memory at a time; the least recently used one is dropped first."""

_NEW = """
SELECT e.seq, e.id, e.metadata, v.vector
FROM entries AS e CROSS JOIN entry_vectors AS v ON v.entry = e.seq
WHERE e.collection = ? AND e.seq > ? ORDER BY e.seq LIMIT ?
"""

_NEW_TEXTS = """
SELECT e.seq, t.text FROM entries AS e CROSS JOIN entry_texts AS t ON t.entry = e.seq
WHERE e.collection = ? AND e.seq > ? ORDER BY e.seq LIMIT ?
"""

_METADATA = "SELECT seq, metadata FROM entries WHERE collection = ?"

_NEWEST_DELETION = "SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'entry_deletions'"

_CHANGING = -1
"""The version during a change; the change must be completed up to it, or to a newer one."""

IDLE_S = 600.0
"""A collection that was not used for so long is dropped from memory."""

T = TypeVar("T")


class CollectionTerms:
    """The terms of a collection's entries, built by its first keyword query. Safe to use from several threads.

    New entries are appended, and deleted ones are skipped until they are half of the index, when it is built again.
    """

    def __init__(self, key: int) -> None:
        self._key = key
        self._lock = threading.Lock()
        self._clear()

    def follow(self, connection: sqlite3.Connection) -> None:
        while True:
            # Locked step by step: analysing all texts takes long, and the queries that wait could not be answered.
            with self._lock:
                new = connection.execute(_NEW_TEXTS, (self._key, self._last, ANALYSED_AT_ONCE)).fetchall()
                if new:
                    self._append(new)
            if len(new) < ANALYSED_AT_ONCE:
                return

    def scores(
        self, query: str, view: CollectionView, matching: Mask, limit: int, also: Sequence[str]
    ) -> dict[str, KeywordScore]:
        """Scores of the best `limit` entries that hold a term of `query` and match, equal ones by id; and of `also`.

        The statistics of terms are those of the entries `matching` (`(n,)`).
        """
        bm25, shares = np.zeros(len(view.ids)), np.zeros(len(view.ids))
        with self._lock:
            rows = self._rows(np.array(view.seqs, dtype=np.int64))
            counted = rows >= 0
            counted[counted] = matching[rows[counted]]
            # Copied: an array that numpy still views cannot grow, and the next entries are appended to it.
            lengths = np.frombuffer(self._lengths, dtype=np.uint32).astype(np.int32)
            count = int(counted.sum())
            average_length = float(lengths[counted].mean()) if count else 0.0
            is_conversation = np.zeros(len(lengths), dtype=np.bool_)
            statistics = Statistics.of(lengths, counted, is_conversation, count, average_length)
            scored = scores_of_all(query, self._postings, statistics)
        bm25[rows[counted]], shares[rows[counted]] = scored.bm25[counted], scored.shares[counted]
        with_terms = np.flatnonzero(bm25)
        highest = with_terms[best(bm25[with_terms], limit)]
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
        indexed = np.frombuffer(self._seqs, dtype=np.int64)
        if not len(live):
            return np.full(len(indexed), -1)
        # Mostly ascending, since only deletions move entries: sorting in runs is several times faster then.
        order = np.argsort(live, kind="stable")
        rows = order[np.minimum(np.searchsorted(live, indexed, sorter=order), len(live) - 1)]
        return np.where(live[rows] == indexed, rows, -1)

    def forget_deleted(self, live: int) -> None:
        """Build the index again with the next query if more than half of its entries were deleted."""
        with self._lock:
            if len(self._seqs) > 2 * max(live, ANALYSED_AT_ONCE):
                self._clear()


class _Stored(NamedTuple):
    seq: int
    id: str
    metadata: str
    vector: bytes


class LoadedCollection:
    """The collection with this key. Safe to use from several threads."""

    def __init__(self, key: int) -> None:
        self._key = key
        self.keywords = CollectionTerms(key)
        self._lock = ReadWriteLock()
        self._changing = threading.Lock()
        self._clear()

    def read(
        self, version: int, paths: Sequence[Path], query: Callable[[CollectionView], T], connection: sqlite3.Connection
    ) -> tuple[T] | None:
        """Bring it up to the snapshot's version, and run a query that needs the columns of these fields.

        Returns:
            the result; None if another thread has brought it beyond this snapshot: repeat it in a newer one.
        """
        with self._changing:
            # A change that a newer snapshot began cannot be completed from an older one.
            if self._version < version and self._begun <= version:
                self._follow(version, connection)
            columns = self._columns_of(paths, connection) if self._version == version else {}
        with self._lock.reading():
            # Once more: between the two locks another thread may have begun a change.
            if self._version != version:
                return None
            return (query(CollectionView(self._ids, self._seqs, self._rows, self._vectors, columns, self._order)),)

    def _clear(self) -> None:
        self._version = _CHANGING
        self._begun = 0
        self._last_entry = 0
        self._last_deletion: int | None = None
        self._ids: list[str] = []
        self._seqs = array("q")
        self._rows: dict[str, int] = {}
        self._vectors = Vectors()
        self._dimension: int | None = None
        self._columns: dict[Path, FieldColumn] = {}
        self._order = IdOrder()

    def _follow(self, version: int, connection: sqlite3.Connection) -> None:
        """Read before changing, so that an interrupted reader leaves only complete steps."""
        newest: int = connection.execute(_NEWEST_DELETION).fetchone()[0]
        (oldest,) = connection.execute("SELECT min(seq) FROM entry_deletions").fetchone()
        # Who has not seen a deletion that is no longer listed cannot know which entries to remove.
        if self._last_deletion is not None and self._last_deletion < (newest if oldest is None else oldest - 1):
            with self._lock.writing():
                self._clear()
        self._begun = version
        # With their number known, a matrix too large for float32 never begins as one.
        if not self._last_entry:
            (entries,) = connection.execute("SELECT entries FROM collections WHERE key = ?", (self._key,)).fetchone()
            with self._lock.writing():
                self._vectors = Vectors(entries)
        since = newest if self._last_deletion is None else self._last_deletion
        deleted = [
            id_
            for (id_,) in connection.execute(
                "SELECT id FROM entry_deletions WHERE seq > ? AND collection = ?", (since, self._key)
            )
        ]
        while new := self._read(connection):
            # Deletions with the first entries: an id that was deleted and stored again is in both.
            self._change(deleted, new)
            self._last_entry, self._last_deletion = new[-1].seq, newest
            deleted = []
        if deleted:
            self._change(deleted, [])
        self._last_deletion = newest
        # Last: a reader that was interrupted before leaves `_CHANGING`, and the next one continues from its last step.
        self._version = version

    def _read(self, connection: sqlite3.Connection) -> list[_Stored]:
        new = [_Stored(*row) for row in connection.execute(_NEW, (self._key, self._last_entry, AT_ONCE))]
        if new and self._dimension is None:
            self._dimension = len(new[0].vector) // 4
        if any(len(row.vector) != 4 * (self._dimension or 0) for row in new):
            raise BackendDataError(COMPONENT, "The vectors of a collection differ in length; copy it into a new one.")
        return new

    def _change(self, deleted: Sequence[str], new: Sequence[_Stored]) -> None:
        # Parsed before the lock is taken, since that is most of the work.
        metadata = _parsed([row.metadata for row in new]) if self._columns else []
        with self._lock.writing():
            self._version = _CHANGING
            self._order.ranks = None
            for id_ in deleted:
                self._remove(id_)
            for row in new:
                self._remove(row.id)
            if new:
                self._append(new, metadata)

    def _append(self, new: Sequence[_Stored], metadata: Sequence[Mapping[str, Json]]) -> None:
        start = len(self._ids)
        self._vectors.append(matrix_of([row.vector for row in new], self._dimension or 0))
        self._ids.extend([row.id for row in new])
        self._seqs.extend([row.seq for row in new])
        self._rows.update(zip([row.id for row in new], range(start, start + len(new)), strict=True))
        for path, column in list(self._columns.items()):
            column.append([value_at(values, path) for values in metadata])
            if column.has_mostly_unused_values:  # made again from the file by the next filter on this field
                del self._columns[path]

    def _remove(self, id_: str) -> None:
        row = self._rows.pop(id_, None)
        if row is None:
            return
        self._vectors.move_last_to(row)
        for column in self._columns.values():
            column.move_last_to(row)
        moved, seq = self._ids.pop(), self._seqs.pop()
        if row < len(self._ids):
            self._ids[row], self._seqs[row] = moved, seq
            self._rows[moved] = row

    def _columns_of(self, paths: Sequence[Path], connection: sqlite3.Connection) -> dict[Path, FieldColumn]:
        """The fields' columns; for missing ones the metadata of all entries is read."""
        missing = [path for path in dict.fromkeys(paths) if path not in self._columns]
        if missing:
            self._columns.update(zip(missing, self._built(missing, connection), strict=True))
        # Taken out and put back at the end: the order of the dictionary is that of the last use.
        columns = {path: self._columns.pop(path) for path in dict.fromkeys(paths)}
        self._columns.update(columns)
        for path in list(self._columns)[: max(len(self._columns) - MOST_COLUMNS, 0)]:
            del self._columns[path]
        return columns

    def _built(self, paths: Sequence[Path], connection: sqlite3.Connection) -> list[FieldColumn]:
        row_of = {seq: row for row, seq in enumerate(self._seqs)}
        columns = [FieldColumn(len(row_of)) for _ in paths]
        cursor = connection.execute(_METADATA, (self._key,))
        while batch := cursor.fetchmany(AT_ONCE):
            rows = [row_of[seq] for seq, _ in batch]
            metadata = _parsed([text for _, text in batch])
            for path, column in zip(paths, columns, strict=True):
                column.put(rows, [value_at(values, path) for values in metadata])
        return columns


def _parsed(texts: Sequence[str]) -> list[dict[str, Json]]:
    """Many objects in one call of the parser."""
    objects: list[dict[str, Json]] = json.loads(f"[{','.join(texts)}]")
    return objects


class LoadedCollections:
    """Loaded collections, by key. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._generation = -1
        self._loaded: dict[int, tuple[LoadedCollection, float]] = {}
        """Each with the time of its last use."""

    def __len__(self) -> int:
        return len(self._loaded)

    def of(self, key: int, generation: int) -> LoadedCollection:
        """The collection with this key, empty if it is new; those of another generation of the file are dropped."""
        with self._lock:
            # Another file in its place: its keys and versions may be the same ones for other collections.
            if generation != self._generation:
                self._loaded.clear()
                self._generation = generation
            collection = self._loaded[key][0] if key in self._loaded else LoadedCollection(key)
            self._loaded[key] = collection, self._clock()
            return collection

    def keep_only(self, keys: Collection[int]) -> None:
        """Drop collections other than these, and those that were not used for a long time."""
        with self._lock:
            oldest = self._clock() - IDLE_S
            for key in [key for key, (_, used) in self._loaded.items() if key not in keys or used < oldest]:
                del self._loaded[key]

    def clear(self) -> None:
        """Drop all collections."""
        with self._lock:
            self._loaded.clear()

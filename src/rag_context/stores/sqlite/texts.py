"""Keyword search: FTS5 finds the chunks that contain a term, one pure BM25 scores the best of them.

The terms of chunks are cached once read. A chunk's id is computed from its text and context, so they never change.
"""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from rag_context.domain.search import ChunkRef, Filter, KeywordHit
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.filters import condition, required_facets
from rag_context.stores.sqlite.postings import PostingLists, Snapshot
from rag_context.text.analysis import terms
from rag_context.text.bm25 import bm25, idf_share, inverse_document_frequency, profile_for

REMEMBERED_CHUNKS = 20_000
"""Chunks in memory, of about a kilobyte each."""

Terms = tuple[int, str]
"""How many terms a chunk has, and the terms, each between two spaces of its own."""

# One row instead of many: the interpreter's lock is taken once.
_READ_TERMS = """
SELECT json_group_array(json_array(c.id, c.length, p.terms))
FROM json_each(?) AS asked
CROSS JOIN chunks AS c ON c.id = asked.value
CROSS JOIN passages AS p ON p.chunk = c.key
"""


class CachedTerms:
    """The terms of the chunks read last. Safe to use from several threads.

    A plain dictionary that drops its oldest entries: every search reads a hundred chunks from it.
    """

    def __init__(self) -> None:
        self._cached: dict[str, Terms] = {}
        self._lock = threading.Lock()

    def remembered(self, chunk_ids: Sequence[str]) -> dict[str, Terms]:
        """The chunks that are cached."""
        return {id_: cached for id_ in chunk_ids if (cached := self._cached.get(id_)) is not None}

    def of(self, chunk_ids: Sequence[str], connection: sqlite3.Connection) -> Mapping[str, Terms]:
        """The terms of the chunks, by id; unknown chunks are left out."""
        found = self.remembered(chunk_ids)
        missing = [id_ for id_ in chunk_ids if id_ not in found]
        if missing:
            rows = json.loads(connection.execute(_READ_TERMS, (json.dumps(missing),)).fetchone()[0])
            read = {id_: (length, cached) for id_, length, cached in rows}
            with self._lock:
                self._cached.update(read)
                for id_ in list(islice(self._cached, max(len(self._cached) - REMEMBERED_CHUNKS, 0))):
                    del self._cached[id_]
            found.update(read)
        return found


SEARCHED_TERMS = 64
"""A longer query finds its candidates by its rarest terms; all of them count in the score."""

CANDIDATES = 80
CANDIDATES_PER_HIT = 2

COMMON = 2000
COMMON_SHARE = 0.05
"""Of a term in more chunks than this it only counts, beside a rarer one, whether a chunk holds it.

That only chooses the candidates: on three test collections the best ten stayed the same, as did 98 % of the best
hundred.
"""

NARROWING_SHARE = 0.8
"""A facet of more of the chunks than this is checked by the filter after the index."""

FEW = 4000
"""Up to so many chunks of a filter without a facet are listed before anything is ranked."""

SAMPLED = 500
"""Chunks that are sampled to estimate which words are common."""

WARMED_SHARE = 0.02
MOST_WARMED = 128
"""Lists of words in more chunks than this share are read ahead, of the commonest so many."""

REMEMBERED_FREQUENCIES = 16_384
TOLERATED_DRIFT = 100
"""A term's frequency is counted again once the index changed by more than one part in this many of it."""

# Chunks and documents are slim rows, returned as one text: the interpreter's lock is taken once.
_CANDIDATES = """
SELECT json_group_array(json_array(c.id, d.id, c.position, d.content_type, d.thread))
FROM json_each(?) AS asked
CROSS JOIN chunks AS c ON c.key = asked.value
CROSS JOIN documents AS d ON d.key = c.document AND {condition}
"""

_KEYS_OF = """
SELECT min(c.key), max(c.key), count(*) FROM documents AS d CROSS JOIN chunks AS c ON c.document = d.key WHERE d.id = ?
"""

_FILTERED = "SELECT c.key FROM documents AS d CROSS JOIN chunks AS c ON c.document = d.key WHERE {condition} LIMIT ?"

QUESTIONS = 256
"""Cached queries with their terms and weights: a search needs scores several times."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Question:
    """The distinct terms of a query, and what the index knows of each. Arrays are `(t,)`."""

    terms: Sequence[str]
    frequencies: Sequence[int]
    idf: Floats
    weights: Floats
    average_length: float


class SqliteTexts:
    """`KeywordIndex` over the embedded file."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._postings = PostingLists()
        self._cached = CachedTerms()
        self._questions: LRUCache[tuple[str, int], _Question] = LRUCache(QUESTIONS)
        self._frequencies: LRUCache[tuple[int, str], tuple[int, int]] = LRUCache(REMEMBERED_FREQUENCIES)
        self._lock = threading.Lock()

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        """The chunks that hold the query's terms best, best first, equal ones by chunk id.

        Raises:
            BackendError: the file could not be read.
        """
        if limit < 1 or not terms(query):
            return []
        return await self._database.read(partial(self._search, query, limit, where))

    async def score(self, query: str, chunks: Sequence[ChunkRef]) -> dict[str, KeywordHit]:
        """Text scores of the given chunks, matching or not; unknown ones are left out.

        Raises:
            BackendError: the file could not be read.
        """
        if not chunks:
            return {}
        question = self._remembered(query)
        if question is not None:
            cached = self._cached.remembered([chunk.id for chunk in chunks])
            if len(cached) == len(chunks):
                return {hit.chunk.id: hit for hit in _hits(question, chunks, cached)}
        return await self._database.read(partial(self._score, query, chunks))

    async def warm(self) -> tuple[str, ...]:
        """Read the lists of the commonest words before the first search needs them; returns the words.

        Raises:
            BackendError: the file could not be read.
        """
        words = await self._database.read(self._common_words)
        for word in words:
            await self._database.read(partial(self._read_list, word))
        return words

    def _common_words(self, connection: sqlite3.Connection) -> tuple[str, ...]:
        """The commonest words first, by a sample of the chunks; empty for an index where every list is short."""
        snapshot = self._snapshot(connection)
        if snapshot.chunks * WARMED_SHARE < COMMON / 2:
            return ()
        keys = np.linspace(1, snapshot.newest, SAMPLED).astype(int).tolist()
        rows = connection.execute(
            "SELECT terms FROM passages WHERE chunk IN (SELECT value FROM json_each(?))", (json.dumps(keys),)
        ).fetchall()
        holding = Counter(word for (stored,) in rows for word in set(stored.split()))
        return tuple(word for word, count in holding.most_common(MOST_WARMED) if count > WARMED_SHARE * len(rows))

    def _read_list(self, word: str, connection: sqlite3.Connection) -> None:
        snapshot = self._snapshot(connection)
        frequency = self._frequency(word, snapshot, connection)
        if frequency <= _most_ranked(snapshot):
            self._postings.ranked(word, frequency, snapshot, connection)
        else:
            self._postings.holding(word, snapshot, connection)

    def _search(self, query: str, limit: int, where: Filter, connection: sqlite3.Connection) -> list[KeywordHit]:
        version = self._database.version  # read before the snapshot: later changes must not count as known
        snapshot = self._snapshot(connection)
        question = self._question(query, version, snapshot, connection)
        pool = max(CANDIDATES, CANDIDATES_PER_HIT * limit)
        found: list[ChunkRef] = []
        for keys in self._best_first(question, where, pool, snapshot, connection):
            found.extend(_passing(keys, where, connection))
            if len(found) >= pool:
                break
        hits = _hits(question, found, self._cached.of([chunk.id for chunk in found], connection))
        hits.sort(key=lambda hit: (-hit.bm25, hit.chunk.id))
        return hits[:limit]

    def _score(self, query: str, chunks: Sequence[ChunkRef], connection: sqlite3.Connection) -> dict[str, KeywordHit]:
        version = self._database.version
        question = self._question(query, version, self._snapshot(connection), connection)
        cached = self._cached.of([chunk.id for chunk in chunks], connection)
        return {hit.chunk.id: hit for hit in _hits(question, chunks, cached)}

    def _remembered(self, query: str) -> _Question | None:
        """The query with its statistics in this version of the index."""
        with self._lock:
            return self._questions.get((query, self._database.version))

    def _best_first(
        self, question: _Question, where: Filter, size: int, snapshot: Snapshot, connection: sqlite3.Connection
    ) -> Iterator[list[int]]:
        """Keys of chunks that hold some of the terms and may pass the filter, in ever larger pieces."""
        scores = self._scores(question, where, snapshot, connection)
        found = np.flatnonzero(scores)
        while len(found) > size:
            best = _highest(scores[found], size)
            yield found[best].tolist()
            found, size = np.delete(found, best), 2 * size
        if len(found):
            yield found.tolist()

    def _scores(
        self, question: _Question, where: Filter, snapshot: Snapshot, connection: sqlite3.Connection
    ) -> NDArray[np.float32]:
        """By chunk key: BM25 as FTS5 sees it; 0 without any term, or if a facet is missing."""
        scores = np.zeros(snapshot.newest + 1, dtype=np.float32)
        masks = self._masks(where, snapshot, connection)
        if masks is None:
            return scores
        known = sorted((count, number) for number, count in enumerate(question.frequencies) if count)
        common = _most_ranked(snapshot)
        for place, (count, number) in enumerate(known[:SEARCHED_TERMS]):
            term = question.terms[number]
            if place == 0 or count <= common:
                postings = self._postings.ranked(term, count, snapshot, connection)
            else:
                postings = self._postings.holding(term, snapshot, connection)
            scores[postings.keys] += np.float32(question.weights[number]) * postings.impacts
        for document in where.without_documents:  # reading those of a large one piece by piece would find nothing
            first, last, count = connection.execute(_KEYS_OF, (document,)).fetchone()
            if count and last - first + 1 == count:  # usually; others are checked by the filter after the index
                scores[first : last + 1] = 0.0
        for keys in masks:
            passing = np.zeros(len(scores), dtype=np.bool_)
            passing[keys] = True
            scores[~passing] = 0.0
        return scores

    def _masks(
        self, where: Filter, snapshot: Snapshot, connection: sqlite3.Connection
    ) -> list[NDArray[np.int32]] | None:
        """Lists of keys that all contain every chunk that passes; None if no chunk passes."""
        masks = []
        for facet in required_facets(where):
            frequency = self._frequency(facet, snapshot, connection)
            if frequency == 0:
                return None
            if frequency <= NARROWING_SHARE * snapshot.chunks:
                masks.append(self._postings.having(facet, snapshot, connection).keys)
        if where.any_tags or where.source_prefix or where.since is not None or where.until is not None:
            sql, values = condition(where)
            keys = connection.execute(_FILTERED.format(condition=sql), (*values, FEW + 1)).fetchall()
            if len(keys) <= FEW:
                masks.append(np.array(keys, dtype=np.int32).reshape(-1))
        return masks

    def _snapshot(self, connection: sqlite3.Connection) -> Snapshot:
        version, chunks, length, newest = connection.execute(
            """SELECT version, chunks, terms, (SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'chunks')
               FROM totals"""
        ).fetchone()
        return Snapshot(self._database.file.generation, version, chunks, newest, length / max(chunks, 1))

    def _question(self, query: str, version: int, snapshot: Snapshot, connection: sqlite3.Connection) -> _Question:
        with self._lock:
            remembered = self._questions.get((query, version))
        if remembered is not None:
            return remembered
        counted = Counter(terms(query))
        frequencies = [min(self._frequency(term, snapshot, connection), snapshot.chunks) for term in counted]
        idf = np.array([inverse_document_frequency(snapshot.chunks, frequency) for frequency in frequencies])
        weights = idf * np.array(list(counted.values()), dtype=np.float64)
        question = _Question(list(counted), frequencies, idf, weights, snapshot.average_length)
        with self._lock:
            self._questions[query, version] = question
        return question

    def _frequency(self, word: str, snapshot: Snapshot, connection: sqlite3.Connection) -> int:
        """How many chunks hold `word`. Counting is as slow as the word is common, so a close answer is kept.

        The version grows by at least one with every chunk that comes or goes, which bounds the error.
        """
        key = (snapshot.generation, word)
        with self._lock:
            remembered = self._frequencies.get(key)
        if remembered is not None:
            frequency, seen = remembered
            if abs(snapshot.version - seen) * TOLERATED_DRIFT <= frequency:
                return frequency
        row = connection.execute("SELECT doc FROM vocabulary WHERE term = ?", (word,)).fetchone()
        counted: int = 0 if row is None else row[0]
        with self._lock:
            self._frequencies[key] = (counted, snapshot.version)
        return counted


def _most_ranked(snapshot: Snapshot) -> float:
    """The greatest frequency of a word whose every occurrence is ranked."""
    return max(COMMON, COMMON_SHARE * snapshot.chunks)


def _highest(values: NDArray[np.float32], size: int) -> NDArray[np.intp]:
    """The indices of the highest `size` values; of equal ones the last, which are the newest chunks."""
    least = np.partition(values, len(values) - size)[len(values) - size]
    above = np.flatnonzero(values > least)
    return np.concatenate((above, np.flatnonzero(values == least)[len(above) - size :]))


def _passing(keys: Sequence[int], where: Filter, connection: sqlite3.Connection) -> list[ChunkRef]:
    sql, values = condition(where)
    rows = connection.execute(_CANDIDATES.format(condition=sql), (json.dumps(keys), *values)).fetchone()[0]
    return [ChunkRef(*row) for row in json.loads(rows)]


def _hits(question: _Question, chunks: Sequence[ChunkRef], cached: Mapping[str, Terms]) -> list[KeywordHit]:
    """Scores of the chunks whose terms are known."""
    known = [chunk for chunk in chunks if chunk.id in cached]
    counts = _counts(question.terms, [cached[chunk.id][1] for chunk in known])
    profiles = [profile_for(chunk.content_type) for chunk in known]
    scores = bm25(
        counts,
        np.array([cached[chunk.id][0] for chunk in known], dtype=np.float64),
        question.weights,
        np.array([profile.k1 for profile in profiles]),
        np.array([profile.b for profile in profiles]),
        question.average_length,
    )
    shares = idf_share(counts, question.idf)
    return [
        KeywordHit(chunk, score, share)
        for chunk, score, share in zip(known, scores.tolist(), shares.tolist(), strict=True)
    ]


def _counts(words: Sequence[str], texts: Sequence[str]) -> Floats:
    """`(len(texts), len(words))` occurrences. Each stored term stands between two spaces of its own."""
    spaced = [f" {word} " for word in words]
    flat = [text.count(word) for text in texts for word in spaced]
    return np.array(flat, dtype=np.float64).reshape(len(texts), len(words))

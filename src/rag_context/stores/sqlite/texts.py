"""Search by words: FTS5 finds candidates, one pure BM25 scores what they hold."""

import json
import sqlite3
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.filters import condition, facets_asked
from rag_context.text.analysis import terms
from rag_context.text.bm25 import bm25, idf_share, inverse_document_frequency, profile_for
from rag_context.types import ChunkRef, Filter, TextHit

POSTINGS = 20_000
"""The rarest terms that together occur in no more chunks than this look for candidates; the others only score."""

MOST_POSTINGS = 50_000
"""Where only common words are asked for, the newest chunks are looked at, until about this many held one."""

DRIVING_TERMS = 64
CANDIDATES = 300
CANDIDATES_PER_HIT = 3

NARROWING_SHARE = 0.5
"""A facet that more of the chunks have than this is left to the filter behind the index."""

REMEMBERED_FREQUENCIES = 16_384
TOLERATED_DRIFT = 100
"""A term's frequency is asked for again once the index changed by more than one part in this many of it."""

# The filter reads slim rows only; the texts of the best are fetched after the cut.
_FOUND = """
WITH best AS (
    SELECT c.key, d.content_type, d.thread, d.id AS document
    FROM texts
    CROSS JOIN chunks AS c ON c.key = texts.rowid
    CROSS JOIN documents AS d ON d.key = c.document
    WHERE texts MATCH ? AND texts.rowid > ? AND {condition}
    ORDER BY {order} LIMIT ?
)
SELECT c.id, best.document, c.position, best.content_type, best.thread, c.length, p.terms
FROM best
CROSS JOIN chunks AS c ON c.key = best.key
CROSS JOIN passages AS p ON p.chunk = best.key
"""

_BY_INDEX = "texts.rank"
_BY_FILTER = "bm25(texts, 1.0, 0.0)"
"""The index hands out the best first, or, by this, in the order of the rows, and only what passes is ranked.

The one is quick where nearly everything passes, the other where little does.
"""

_GIVEN = """
SELECT c.id, d.id, c.position, d.content_type, d.thread, c.length, p.terms
FROM json_each(?) AS asked
CROSS JOIN chunks AS c ON c.id = asked.value
CROSS JOIN passages AS p ON p.chunk = c.key
CROSS JOIN documents AS d ON d.key = c.document
"""

Floats = NDArray[np.float64]
_Row = tuple[str, str, int, str, str | None, int, str]


@dataclass(frozen=True, slots=True)
class _Question:
    """The distinct terms of a query, and what the index knows of each. Arrays are `(t,)`."""

    version: int
    terms: Sequence[str]
    frequencies: Sequence[int]
    idf: Floats
    weights: Floats
    average_length: float


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to look for candidates: any of `words`, all of `facets`, in chunks with keys above `above`."""

    words: Sequence[str]
    facets: Sequence[str]
    above: int

    @property
    def match(self) -> str:
        """As FTS5 reads it; every word is quoted, so that none is syntax."""
        parts = ["{terms} : (" + " OR ".join(map(_quoted, self.words)) + ")"]
        parts.extend("{facets} : " + _quoted(facet) for facet in self.facets)
        return " AND ".join(parts)


class SqliteTexts:
    """`TextIndex` over the embedded file."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._frequencies: LRUCache[tuple[int, str], tuple[int, int]] = LRUCache(REMEMBERED_FREQUENCIES)
        self._lock = threading.Lock()

    async def search(self, query: str, *, limit: int, where: Filter) -> list[TextHit]:
        """The chunks that hold the query's terms best, best first, equal ones by chunk id.

        Raises:
            BackendError: the file could not be read.
        """
        counted = Counter(terms(query))
        if not counted or limit < 1:
            return []
        return await self._database.read(partial(self._search, counted, limit, where))

    async def score(self, query: str, chunk_ids: Sequence[str]) -> dict[str, TextHit]:
        """Text scores of the given chunks, matching or not; unknown ids are left out.

        Raises:
            BackendError: the file could not be read.
        """
        if not chunk_ids:
            return {}
        return await self._database.read(partial(self._score, Counter(terms(query)), list(chunk_ids)))

    def _search(
        self, counted: Counter[str], limit: int, where: Filter, connection: sqlite3.Connection
    ) -> list[TextHit]:
        question = self._question(counted, connection)
        rows: dict[str, _Row] = {}
        for attempt in self._attempts(question, where, connection):
            rows.update((row[0], row) for row in _found(attempt, limit, where, connection))
            if len(rows) >= limit:
                break
        hits = _hits(question, list(rows.values()))
        hits.sort(key=lambda hit: (-hit.bm25, hit.chunk.id))
        return hits[:limit]

    def _attempts(self, question: _Question, where: Filter, connection: sqlite3.Connection) -> Iterator[_Attempt]:
        """First the rare terms; where they find too little, all terms, at first in the newest chunks."""
        chunks, newest = connection.execute("SELECT chunks, (SELECT max(key) FROM chunks) FROM totals").fetchone()
        facets, ceiling = self._facets(where, question.version, chunks, connection)
        known = sorted((count, term) for count, term in zip(question.frequencies, question.terms, strict=True) if count)
        words = [term for _, term in known[:DRIVING_TERMS]]
        if not words or not ceiling:
            return
        reach = list(accumulate(min(count, ceiling) for count, _ in known[:DRIVING_TERMS]))
        driving = max(bisect_right(reach, POSTINGS), 1)
        if driving < len(words) and reach[driving - 1] <= POSTINGS:
            yield _Attempt(words[:driving], facets, 0)
        if reach[-1] > MOST_POSTINGS and not _is_ranged(where):
            yield _Attempt(words, facets, newest - newest * MOST_POSTINGS // reach[-1])
        yield _Attempt(words, facets, 0)

    def _facets(
        self, where: Filter, version: int, chunks: int, connection: sqlite3.Connection
    ) -> tuple[list[str], int]:
        """The facets worth asking the index for, and how many chunks at most have them all."""
        counted = [(self._frequency(facet, version, connection), facet) for facet in facets_asked(where)]
        narrowing = [facet for frequency, facet in counted if frequency <= NARROWING_SHARE * chunks]
        return narrowing, min(frequency for frequency, _ in counted)

    def _score(
        self, counted: Counter[str], chunk_ids: Sequence[str], connection: sqlite3.Connection
    ) -> dict[str, TextHit]:
        rows: list[_Row] = connection.execute(_GIVEN, (json.dumps(chunk_ids),)).fetchall()
        return {hit.chunk.id: hit for hit in _hits(self._question(counted, connection), rows)}

    def _question(self, counted: Counter[str], connection: sqlite3.Connection) -> _Question:
        version, chunks, length = connection.execute("SELECT version, chunks, terms FROM totals").fetchone()
        frequencies = [self._frequency(term, version, connection) for term in counted]
        idf = np.array([inverse_document_frequency(chunks, min(frequency, chunks)) for frequency in frequencies])
        weights = idf * np.array(list(counted.values()), dtype=np.float64)
        return _Question(version, list(counted), frequencies, idf, weights, length / max(chunks, 1))

    def _frequency(self, term: str, version: int, connection: sqlite3.Connection) -> int:
        """How many chunks hold `term`. Counting is as slow as the term is common, so a close answer is kept.

        The version grows by at least one with every chunk that comes or goes, which bounds the error.
        """
        key = (self._database.file.generation, term)
        with self._lock:
            remembered = self._frequencies.get(key)
        if remembered is not None:
            frequency, seen = remembered
            if abs(version - seen) * TOLERATED_DRIFT <= frequency:
                return frequency
        row = connection.execute("SELECT doc FROM vocabulary WHERE term = ?", (term,)).fetchone()
        counted = 0 if row is None else row[0]
        with self._lock:
            self._frequencies[key] = (counted, version)
        return counted


def _found(attempt: _Attempt, limit: int, where: Filter, connection: sqlite3.Connection) -> list[_Row]:
    filtered, values = condition(where)
    sql = _FOUND.format(condition=filtered, order=_BY_FILTER if _is_ranged(where) else _BY_INDEX)
    most = max(CANDIDATES, CANDIDATES_PER_HIT * limit)
    return connection.execute(sql, (attempt.match, attempt.above, *values, most)).fetchall()


def _is_ranged(where: Filter) -> bool:
    """Whether `where` asks for what no facet says."""
    return bool(where.source_prefix) or where.since is not None or where.until is not None


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _hits(question: _Question, rows: Sequence[_Row]) -> list[TextHit]:
    counts = _counts(question.terms, rows)
    profiles = [profile_for(row[3]) for row in rows]
    scores = bm25(
        counts,
        np.array([row[5] for row in rows], dtype=np.float64),
        question.weights,
        np.array([profile.k1 for profile in profiles]),
        np.array([profile.b for profile in profiles]),
        question.average_length,
    )
    shares = idf_share(counts, question.idf)
    return [
        TextHit(ChunkRef(*row[:5]), score, share)
        for row, score, share in zip(rows, scores.tolist(), shares.tolist(), strict=True)
    ]


def _counts(words: Sequence[str], rows: Sequence[_Row]) -> Floats:
    """`(len(rows), len(words))` occurrences. Each stored term stands between two spaces of its own."""
    spaced = [f" {word} " for word in words]
    flat = [row[6].count(word) for row in rows for word in spaced]
    return np.array(flat, dtype=np.float64).reshape(len(rows), len(words))

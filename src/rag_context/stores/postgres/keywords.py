"""Keyword search: the database returns how often chunks hold a query's terms, the BM25 of `text` scores them.

A round searches the chunks that hold some of the terms, the rarest terms first, until no chunk that holds only the
others can be among the best. The database returns the best of a round by the same formula, so that few rows travel.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from rag_context.domain.documents import CHAT
from rag_context.domain.search import ChunkRef, Filter, KeywordHit
from rag_context.stores.postgres.connection import Database, Row
from rag_context.stores.postgres.records import REFERENCE_COLUMNS, Parameters, condition, reference_from, signed
from rag_context.stores.postgres.state import IndexState, Snapshot
from rag_context.text import (
    CONVERSATION,
    PROSE,
    bm25,
    idf_share,
    inverse_document_frequency,
    profile_for,
    term_key,
    terms,
)

FIRST_ROUND = 5_000
"""Chunks that the first round may read by the frequencies of its terms; the next ones may read four times as many."""

MOST_READ = 400_000
"""Chunks that all rounds may read: what is too common for that finds nothing by itself, it only scores."""

QUESTIONS = 256
"""Queries whose terms and weights are remembered: a search needs them several times."""

FREQUENCIES = 65_536
"""Terms whose frequency is remembered."""

TOLERATED_DRIFT = 100
"""A term is counted again once one in this many of its chunks may have been added or removed."""

MOST_PER_TERM = PROSE.k1 + 1.0
"""A term adds at most so many times its weight to a score: the limit of BM25's saturation."""

Floats = NDArray[np.float64]

_FREQUENCIES = """
SELECT (SELECT count(*) FROM rag_context.chunks AS c WHERE c.terms @> ARRAY[asked.term])
FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (term, number) ORDER BY number
"""

_COUNTS = f"""
CROSS JOIN LATERAL (
    SELECT CASE WHEN c.content_type = '{CHAT}' THEN {CONVERSATION.k1}::float8 ELSE {PROSE.k1}::float8 END AS k1,
           CASE WHEN c.content_type = '{CHAT}' THEN {CONVERSATION.b}::float8 ELSE {PROSE.b}::float8 END AS b
) AS profile
CROSS JOIN LATERAL (
    SELECT array_agg(held.count) AS counts,
           sum(held.count * (k1 + 1) / (held.count + k1 * (1 - b + b * c.length / $3)) * asked.weight) AS score
    FROM unnest($1::bigint[], $2::float8[]) AS asked (term, weight)
    -- The terms are sorted: this is a binary search.
    CROSS JOIN LATERAL (SELECT width_bucket(asked.term, c.terms) AS place OFFSET 0) AS found
    CROSS JOIN LATERAL (
        SELECT CASE WHEN c.terms[place] = asked.term THEN c.counts[place] ELSE 0 END::float8 AS count
    ) AS held
) AS held
"""  # noqa: S608  (numbers of our own)

_SCORED = f"""
SELECT {REFERENCE_COLUMNS}, c.length, held.counts FROM rag_context.chunks AS c {_COUNTS}
WHERE c.id = ANY ($4)
"""  # noqa: S608

_SEARCHED = f"""
SELECT {REFERENCE_COLUMNS}, c.length, held.counts FROM rag_context.chunks AS c {_COUNTS}
WHERE c.terms && $4::bigint[] AND {{condition}}
ORDER BY held.score DESC, c.id LIMIT $5
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class _Question:
    """The distinct terms of a query, and what the index knows of each. Arrays are `(t,)`."""

    keys: Sequence[int]
    frequencies: Sequence[int]
    idf: Floats
    weights: Floats
    average_length: float

    @property
    def parameters(self) -> tuple[object, ...]:
        """The first three values of the statements."""
        return self.keys, self.weights.tolist(), max(self.average_length, 1.0)


class PostgresTexts:
    """`KeywordIndex` over one database.

    Args:
        database: the database.
        state: the state of its index.
        first_round: chunks that the first round may read.
    """

    def __init__(self, database: Database, state: IndexState, first_round: int = FIRST_ROUND) -> None:
        self._database = database
        self._state = state
        self._first_round = first_round
        self._questions: LRUCache[tuple[str, str, int], _Question] = LRUCache(QUESTIONS)
        self._frequencies: LRUCache[tuple[str, int], tuple[int, int]] = LRUCache(FREQUENCIES)

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        """The chunks that hold the query's terms best, best first, equal ones by chunk id.

        Raises:
            BackendError: the server failed.
        """
        counted = Counter(terms(query))
        if limit < 1 or not counted:
            return []
        question = await self._question(query, counted)
        best: dict[str, KeywordHit] = {}
        for group, least in _rounds(question, self._first_round):
            parameters = Parameters(*question.parameters, group, limit)
            statement = _SEARCHED.format(condition=condition(where, parameters, "c"))
            rows = await self._database.fetch(statement, *parameters.values)
            best |= {hit.chunk.id: hit for hit in _hits(question, rows) if hit.bm25 > 0.0}
            ranked = sorted(best.values(), key=lambda hit: (-hit.bm25, hit.chunk.id))[:limit]
            if len(ranked) == limit and ranked[-1].bm25 > least:
                break
        else:
            ranked = sorted(best.values(), key=lambda hit: (-hit.bm25, hit.chunk.id))[:limit]
        return ranked

    async def score(self, query: str, chunks: Sequence[ChunkRef]) -> dict[str, KeywordHit]:
        """BM25 scores of the given chunks, matching or not; unknown ones are left out.

        Raises:
            BackendError: the server failed.
        """
        if not chunks:
            return {}
        question = await self._question(query, Counter(terms(query)))
        rows = await self._database.fetch(_SCORED, *question.parameters, [chunk.id for chunk in chunks])
        found = {hit.chunk.id: hit for hit in _hits(question, rows)}
        return {chunk.id: found[chunk.id] for chunk in chunks if chunk.id in found}

    async def _question(self, query: str, counted: Mapping[str, int]) -> _Question:
        seen = await self._state.known()
        remembered = self._questions.get((query, seen.name, seen.version))
        if remembered is not None:
            return remembered
        keys = [signed(term_key(term)) for term in counted]
        frequencies = await self._frequencies_of(keys, seen)
        chunks = max(seen.chunks, 0)
        idf = np.array([inverse_document_frequency(chunks, min(frequency, chunks)) for frequency in frequencies])
        weights = idf * np.array(list(counted.values()), dtype=np.float64)
        question = _Question(keys, frequencies, idf, weights, seen.terms / max(chunks, 1))
        self._questions[query, seen.name, seen.version] = question
        return question

    async def _frequencies_of(self, keys: Sequence[int], seen: Snapshot) -> list[int]:
        """In how many chunks of the index each term occurs, within one in a hundred."""
        known: dict[int, int] = {}
        for key in keys:
            frequency, turnover = self._frequencies.get((seen.name, key), (0, -1))
            if turnover >= 0 and TOLERATED_DRIFT * abs(seen.turnover - turnover) <= frequency:
                known[key] = frequency
        missing = [key for key in keys if key not in known]
        if missing:
            rows = await self._database.fetch(_FREQUENCIES, missing)
            for key, (frequency,) in zip(missing, rows, strict=True):
                known[key] = frequency
                self._frequencies[seen.name, key] = (frequency, seen.turnover)
        return [known[key] for key in keys]


def _rounds(question: _Question, first_round: int) -> Iterator[tuple[list[int], float]]:
    """The terms of each round, and the most that a chunk with none of the terms so far can score."""
    order = sorted(range(len(question.keys)), key=lambda term: (question.frequencies[term], term))
    order = [term for term in order if question.frequencies[term]]
    rest = MOST_PER_TERM * float(sum(question.weights[term] for term in order))
    group: list[int] = []
    in_round, read, budget = 0, 0, first_round
    for term in order:
        frequency = question.frequencies[term]
        if group and in_round + frequency > budget:
            yield group, rest
            read += in_round
            group, in_round, budget = [], 0, 4 * budget
            if read + frequency > MOST_READ:
                return
        group.append(question.keys[term])
        in_round += frequency
        rest -= MOST_PER_TERM * float(question.weights[term])
    if group:
        yield group, 0.0


def _hits(question: _Question, rows: Sequence[Row]) -> list[KeywordHit]:
    counts = np.array([row["counts"] or () for row in rows], dtype=np.float64).reshape(len(rows), len(question.keys))
    chunks = [reference_from(row) for row in rows]
    profiles = [profile_for(chunk.content_type) for chunk in chunks]
    scores = bm25(
        counts,
        np.array([row["length"] for row in rows], dtype=np.float64),
        question.weights,
        np.array([profile.k1 for profile in profiles]),
        np.array([profile.b for profile in profiles]),
        question.average_length,
    )
    shares = idf_share(counts, question.idf)
    return [
        KeywordHit(chunk, score, share)
        for chunk, score, share in zip(chunks, scores.tolist(), shares.tolist(), strict=True)
    ]

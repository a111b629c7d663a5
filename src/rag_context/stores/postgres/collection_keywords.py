"""Keyword search in a collection: the database counts and sorts, the BM25 of `text` scores what it returns."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rag_context.domain.clauses import Clause
from rag_context.ports.provider import KeywordScore
from rag_context.stores.postgres.collection_records import escaped, passes, unescaped
from rag_context.stores.postgres.connection import Connection, Row
from rag_context.stores.postgres.records import Parameters, signed
from rag_context.text import PROSE, bm25, idf_share, inverse_document_frequency, term_key, terms

_HELD = f"""
CROSS JOIN LATERAL (
    SELECT array_agg(held.count ORDER BY asked.number) AS counts,
           sum(held.count * {PROSE.k1 + 1.0} * asked.weight
               / (held.count + {PROSE.k1} * ({1.0 - PROSE.b} + {PROSE.b} * e.length / $4))) AS score
    FROM unnest($2::bigint[], $3::float8[]) WITH ORDINALITY AS asked (term, weight, number)
    -- The terms are sorted: this is a binary search.
    CROSS JOIN LATERAL (SELECT width_bucket(asked.term, e.terms) AS place OFFSET 0) AS found
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.terms[place] = asked.term THEN e.counts[place] ELSE 0 END::float8 AS count
    ) AS held
) AS held
"""  # noqa: S608  (numbers of our own)


async def best_by_keywords(
    connection: Connection, key: int, text: str, where: Clause, *, limit: int, also: Sequence[str]
) -> dict[str, KeywordScore]:
    """The `limit` entries of the collection `key` with the highest BM25, equal ones by id; and the scores of `also`.

    The statistics of terms are those of the entries that `where` lets through. All statements are to see one snapshot.
    """
    query = Counter(terms(text))
    if not query:
        return {}
    keys = [signed(term_key(term)) for term in query]
    parameters = Parameters(key)
    counted = await connection.fetchrow(
        f"""SELECT count(*), coalesce(avg(e.length), 0)::float8 FROM rag_context.entries AS e
            WHERE e.collection = $1 AND {passes(where, parameters)}""",  # noqa: S608
        *parameters.values,
    )
    entries, average_length = counted
    idf = np.array(
        [inverse_document_frequency(entries, each) for each in await _frequencies(connection, key, keys, where)]
    )
    weights = idf * np.array(list(query.values()), dtype=np.float64)

    async def scored(extra: str, *values: object) -> list[Row]:
        parameters = Parameters(key, keys, weights.tolist(), max(average_length, 1.0), *values)
        rows: list[Row] = await connection.fetch(
            f"""SELECT e.id, e.length, held.counts FROM rag_context.entries AS e {_HELD}
                WHERE e.collection = $1 AND e.terms && $2::bigint[] AND {passes(where, parameters)} {extra}""",  # noqa: S608
            *parameters.values,
        )
        return rows

    rows = await scored("ORDER BY held.score DESC, e.id LIMIT $5", limit)
    if also:
        rows += await scored("AND e.id = ANY ($5)", [escaped(id_) for id_ in also])
    return _scores(rows, idf, weights, average_length)


async def _frequencies(connection: Connection, key: int, keys: Sequence[int], where: Clause) -> list[int]:
    """How many of the entries hold each term."""
    parameters = Parameters(key, keys)
    rows = await connection.fetch(
        f"""SELECT (SELECT count(*) FROM rag_context.entries AS e
                    WHERE e.collection = $1 AND e.terms @> ARRAY[asked.term] AND {passes(where, parameters)})
            FROM unnest($2::bigint[]) WITH ORDINALITY AS asked (term, number) ORDER BY number""",  # noqa: S608
        *parameters.values,
    )
    return [number for (number,) in rows]


def _scores(
    rows: Sequence[Row], idf: np.ndarray, weights: np.ndarray, average_length: float
) -> dict[str, KeywordScore]:
    if not rows:
        return {}
    counts = np.array([row["counts"] for row in rows], dtype=np.float64)
    scores = bm25(
        counts,
        np.array([row["length"] for row in rows], dtype=np.float64),
        weights,
        np.full(len(rows), PROSE.k1),
        np.full(len(rows), PROSE.b),
        average_length,
    )
    shares = idf_share(counts, idf)
    return {
        unescaped(row["id"]): KeywordScore(score, share)
        for row, score, share in zip(rows, scores.tolist(), shares.tolist(), strict=True)
    }

"""Keyword search in a collection: the database counts and sorts, the BM25 of `text` scores what it returns."""

from collections import Counter
from collections.abc import Sequence

from rag_context.domain.clauses import Clause
from rag_context.domain.documents import DOCUMENTATION
from rag_context.ports.provider import KeywordScore
from rag_context.stores.postgres.collection_records import escaped, passes, unescaped
from rag_context.stores.postgres.connection import Connection, Row
from rag_context.stores.postgres.keywords import ENTRY_PROFILE, Question, keys_of
from rag_context.stores.postgres.records import Parameters
from rag_context.text import terms


async def best_by_keywords(
    connection: Connection, key: int, text: str, where: Clause, *, limit: int, also: Sequence[str]
) -> dict[str, KeywordScore]:
    """The `limit` entries of the collection `key` with the highest BM25, equal ones by id; and the scores of `also`.

    The statistics of terms are those of the entries that `where` lets through. All statements are to see one snapshot.
    """
    query = Counter(terms(text))
    if not query:
        return {}
    parameters = Parameters(key)
    entries, average_length = await connection.fetchrow(
        f"""SELECT count(*), coalesce(avg(e.length), 0)::float8 FROM rag_context.entries AS e
            WHERE e.collection = $1 AND {passes(where, parameters)}""",  # noqa: S608
        *parameters.values,
    )
    keys = keys_of(query)
    question = Question.of(query, await _frequencies(connection, key, keys, where), entries, average_length)

    async def held(extra: str, value: object) -> list[Row]:
        parameters = Parameters(key, keys, value)
        rows: list[Row] = await connection.fetch(
            f"""SELECT e.id, e.length, held.counts
                FROM rag_context.entries AS e {question.scoring(parameters, "e", ENTRY_PROFILE)}
                WHERE e.collection = $1 AND e.terms && $2::bigint[] AND {passes(where, parameters)} {extra}""",  # noqa: S608
            *parameters.values,
        )
        return rows

    rows = await held("ORDER BY held.score DESC, e.id LIMIT $3", limit)
    if also:
        rows += await held("AND e.id = ANY ($3)", [escaped(id_) for id_ in also])
    scores, shares = question.scores(rows, [DOCUMENTATION] * len(rows))
    return {
        unescaped(row["id"]): KeywordScore(score, share)
        for row, score, share in zip(rows, scores.tolist(), shares.tolist(), strict=True)
    }


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

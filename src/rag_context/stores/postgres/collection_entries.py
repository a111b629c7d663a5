"""The entries of collections: as rows, their filters as SQL, keyword search among them, and their removal.

Metadata is stored twice: as JSON text, which reads back exactly, and as `jsonb` for filters. There texts are escaped so
that equality, order by code points and substrings stay, and floats without a fraction are integers: PostgreSQL compares
decimal digits, Python the exact values, and 1e23 is not 10**23.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from rag_context.domain import clauses
from rag_context.domain.documents import DOCUMENTATION, Json, moment
from rag_context.domain.text import terms
from rag_context.domain.vectors import Matrix
from rag_context.errors import InvalidInputError
from rag_context.ports.provider import Collection, Entry, KeywordScore
from rag_context.stores.engines import check_distinct, metadata_text
from rag_context.stores.postgres.connection import Connection, Row
from rag_context.stores.postgres.keywords import ENTRY_PROFILE, TermQuery, keys_of
from rag_context.stores.postgres.rows import ChunkTerms
from rag_context.stores.sql_documents import Parameters

MOST_DIMENSIONS = 16_000
"""What pgvector's type `vector` can hold."""

REMOVED_AT_ONCE = 5_000
"""Entries that one transaction removes."""

ENTRY_COLUMNS = ("collection", "id", "text", "metadata", "fields", "length", "terms", "counts", "embedding")

_ESCAPES = {"\x00": "\x01\x01\x01\x02", "\x01": "\x01\x01\x02\x02", "\x02": "\x01\x02\x02\x02"}
"""PostgreSQL cannot store a NUL. The three escapes are in the order of what they stand for and before any other
character; and no text of them contains one at any place but where it was put, because 2 never comes before 1 inside
one. So escaping changes neither the order nor which texts contain which."""

_UNESCAPES = {escape: character for character, escape in _ESCAPES.items()}
_SPECIAL = re.compile("[\x00-\x02]")
_ESCAPED = re.compile("|".join(_UNESCAPES))

_SIGNS = {
    clauses.Operator.GREATER: ">",
    clauses.Operator.AT_LEAST: ">=",
    clauses.Operator.LESS: "<",
    clauses.Operator.AT_MOST: "<=",
}


def escaped(text: str) -> str:
    """A text as PostgreSQL can store it, in the same order among others."""
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)


def unescaped(text: str) -> str:
    """A text as it was before `escaped`."""
    return _ESCAPED.sub(lambda found: _UNESCAPES[found[0]], text)


def entry_rows(entries: Sequence[Entry], vectors: Matrix) -> list[tuple[object, ...]]:
    """Rows of `ENTRY_COLUMNS` without the collection's key, for entries with vectors (`(len(entries), dim) float32`).

    Raises: InvalidInputError (an id is there twice, or the vectors are longer than PostgreSQL can hold).
    """
    check_distinct(entries)
    if vectors.shape[1] > MOST_DIMENSIONS:
        raise InvalidInputError(
            f"PostgreSQL holds vectors of at most {MOST_DIMENSIONS} dimensions, not of {vectors.shape[1]}"
        )
    rows: list[tuple[object, ...]] = []
    for entry, vector in zip(entries, vectors, strict=True):
        words = ChunkTerms(entry.text)
        texts = (escaped(entry.id), escaped(entry.text), metadata_text(entry.metadata), _as_json(entry.metadata))
        rows.append((*texts, words.length, words.keys, words.counts, vector))
    return rows


def collection_from(row: Row) -> Collection:
    return Collection(
        name=unescaped(row["name"]),
        metadata=json.loads(row["metadata"]),
        embedding_provider=row["embedding_provider"] and unescaped(row["embedding_provider"]),
        embedding_model=row["embedding_model"] and unescaped(row["embedding_model"]),
        dimension=row["dimension"],
        created=moment(row["created"]),
        count=row["entries"],
    )


def entry_from(row: Row) -> Entry:
    return Entry(unescaped(row["id"]), unescaped(row["text"]), json.loads(row["metadata"]))


def passes(where: clauses.Clause, parameters: Parameters) -> str:
    """`where` as SQL over `entries AS e`; true or false for every row, never null."""
    return _Conditions(parameters).of(where)


def field_at(path: clauses.Path, parameters: Parameters) -> str:
    """The value at `path` of `entries AS e` as SQL; null where there is none. Lists are not walked into."""
    return "e.fields" + "".join(f" -> {parameters.add(escaped(step))}::text" for step in path)


class _Conditions:
    """One filter as SQL; what it needs of a field is written, and its path bound, once."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._fields: dict[clauses.Path, str] = {}

    def of(self, where: clauses.Clause) -> str:
        match where:
            case clauses.Comparison(path, operator, value):
                return "false" if _is_never(operator, value) else self._compared(self._field(path), operator, value)
            case clauses.Membership(path, values):
                listed = self._parameters.add([_as_json(value) for value in values])
                return f"coalesce({self._field(path)}, 'null') = ANY ({listed}::jsonb[])"
            case clauses.Conjunction(parts):
                return f"({' AND '.join(self.of(part) for part in parts)})" if parts else "true"
            case clauses.Disjunction(parts):
                return f"({' OR '.join(self.of(part) for part in parts)})" if parts else "false"
            case clauses.Negation(part):
                return f"NOT {self.of(part)}"

    def _field(self, path: clauses.Path) -> str:
        if path not in self._fields:
            self._fields[path] = f"({field_at(path, self._parameters)})"
        return self._fields[path]

    def _compared(self, field: str, operator: clauses.Operator, value: clauses.Scalar) -> str:
        match operator:
            case clauses.Operator.EQUAL:
                return f"coalesce({field}, 'null') = {self._json(value)}"
            case clauses.Operator.NOT_EQUAL:
                return f"coalesce({field}, 'null') <> {self._json(value)}"
            case clauses.Operator.EXISTS:
                return f"coalesce({field}, 'null') {'<>' if value else '='} 'null'"
            case clauses.Operator.CONTAINS:
                return self._contains(field, value)
            case _:
                return self._ordered(field, _SIGNS[operator], value)

    def _contains(self, field: str, value: clauses.Scalar) -> str:
        """Of texts and of lists only: a single value contains itself in PostgreSQL."""
        in_texts = (
            f"WHEN 'string' THEN strpos({_text(field)}, {self._text(value)}) > 0" if isinstance(value, str) else ""
        )
        return f"CASE jsonb_typeof({field}) {in_texts} WHEN 'array' THEN {field} @> {self._json(value)} ELSE false END"

    def _ordered(self, field: str, sign: str, value: clauses.Scalar) -> str:
        """Numbers among numbers, texts among texts. A cast comes behind its test only inside of CASE."""
        if isinstance(value, str):
            kind, comparison = "string", f"{_text(field)} {sign} {self._text(value)}"
        else:
            number = f"{self._parameters.add(_as_json(value))}::text::numeric"
            kind, comparison = "number", f"{field}::numeric {sign} {number}"
        return f"CASE jsonb_typeof({field}) WHEN '{kind}' THEN {comparison} ELSE false END"

    def _json(self, value: clauses.Scalar) -> str:
        return f"{self._parameters.add(_as_json(value))}::jsonb"

    def _text(self, value: clauses.Scalar) -> str:
        return f"{self._parameters.add(escaped(str(value)))}::text"


def _is_never(operator: clauses.Operator, value: clauses.Scalar) -> bool:
    if operator is clauses.Operator.CONTAINS:
        return value is None
    return operator in _SIGNS and (value is None or isinstance(value, bool))


def _text(field: str) -> str:
    return f"({field} #>> '{{}}') COLLATE \"C\""


def _as_json(value: "Json | Mapping[str, Json]") -> str:
    return json.dumps(_comparable(value), ensure_ascii=False, allow_nan=False)


def _comparable(value: "Json | Mapping[str, Json]") -> Json:
    match value:
        case str():
            return escaped(value)
        case float():
            return int(value) if value.is_integer() else value
        case Mapping():
            return {escaped(key): _comparable(inner) for key, inner in value.items()}
        case list():
            return [_comparable(inner) for inner in value]
        case _:
            return value


async def best_by_keywords(
    connection: Connection, key: int, text: str, where: clauses.Clause, *, limit: int, also: Sequence[str]
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
    question = TermQuery.of(query, await _frequencies(connection, key, keys, where), entries, average_length)

    async def scored(extra: str, value: object) -> list[Row]:
        parameters = Parameters(key, keys, value)
        rows: list[Row] = await connection.fetch(
            f"""SELECT e.id, e.length, scored.counts
                FROM rag_context.entries AS e {question.scoring(parameters, "e", ENTRY_PROFILE)}
                WHERE e.collection = $1 AND e.terms && $2::bigint[] AND {passes(where, parameters)} {extra}""",  # noqa: S608
            *parameters.values,
        )
        return rows

    rows = await scored("ORDER BY scored.score DESC, e.id LIMIT $3", limit)
    if also:
        rows += await scored("AND e.id = ANY ($3)", [escaped(id_) for id_ in also])
    scores, shares = question.scores(rows, [DOCUMENTATION] * len(rows))
    return {
        unescaped(row["id"]): KeywordScore(score, share)
        for row, score, share in zip(rows, scores.tolist(), shares.tolist(), strict=True)
    }


async def _frequencies(connection: Connection, key: int, keys: Sequence[int], where: clauses.Clause) -> list[int]:
    """How many of the entries hold each term."""
    parameters = Parameters(key, keys)
    rows = await connection.fetch(
        f"""SELECT (SELECT count(*) FROM rag_context.entries AS e
                    WHERE e.collection = $1 AND e.terms @> ARRAY[query.term] AND {passes(where, parameters)})
            FROM unnest($2::bigint[]) WITH ORDINALITY AS query (term, number) ORDER BY number""",  # noqa: S608
        *parameters.values,
    )
    return [number for (number,) in rows]


async def discard(connection: Connection, key: int) -> None:
    """Note that the entries with this key belong to no collection any more."""
    await connection.execute("INSERT INTO rag_context.discarded_collections VALUES ($1)", key)


async def remove_entries(connection: Connection, key: int, ids: Sequence[object]) -> int:
    """Remove entries by their ids as they are stored; returns how many there were."""
    removed = await connection.execute(
        "DELETE FROM rag_context.entries WHERE collection = $1 AND id = ANY ($2)", key, list(ids)
    )
    return int(removed.split()[-1])


async def remove_discarded(connection: Connection) -> bool:
    """Remove some discarded entries; False once none are left that no other server removes."""
    # Several servers remove rows of different collections at the same time.
    key = await connection.fetchval("SELECT key FROM rag_context.discarded_collections LIMIT 1 FOR UPDATE SKIP LOCKED")
    if key is None:
        return False
    rows = await connection.fetch(
        "SELECT id FROM rag_context.entries WHERE collection = $1 LIMIT $2", key, REMOVED_AT_ONCE
    )
    await remove_entries(connection, key, [id_ for (id_,) in rows])
    if len(rows) < REMOVED_AT_ONCE:
        await connection.execute("DELETE FROM rag_context.discarded_collections WHERE key = $1", key)
    return True

"""Keyword search: the database returns how often chunks hold a query's terms, the BM25 of `text` scores them.

A round searches the chunks that hold some of the terms, the rarest terms first, until no chunk that holds only the
others can be among the best. The database returns the best of a round by the same formula, so that few rows travel.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from rag_context.domain.documents import CHAT, Tenant
from rag_context.domain.search import ChunkRef, Filter, KeywordHit
from rag_context.domain.text import PROSE, Bm25Profile, profile_for, query_terms, signed, term_key
from rag_context.stores.postgres.connection import PostgresDatabase, Row
from rag_context.stores.postgres.driver import Plan
from rag_context.stores.postgres.rows import REFERENCE_COLUMNS, condition, reference_from, stored
from rag_context.stores.postgres.state import IndexState, TenantCounters
from rag_context.stores.server_stores import MOST_PER_TERM, Floats, FrequencyCache, TermStatistics
from rag_context.stores.sql_documents import Parameters

FIRST_ROUND = 5_000
"""Chunks that the first round may read by the frequencies of its terms; the next ones may read four times as many."""

MOST_READ = 400_000
"""Chunks that all rounds may read. Terms that are more common find no chunks, and only add to scores."""

QUESTIONS = 256

FREQUENCIES = 65_536

MOST_COLUMNS = 500
"""Of a table; PostgreSQL allows 1 664 and nests sums no deeper than some thousands."""

_FREQUENCIES = """
SELECT (SELECT count(*) FROM rag_context.chunks AS c WHERE c.tenant = $2 AND c.terms @> ARRAY[query.term])
FROM unnest($1::bigint[]) WITH ORDINALITY AS query (term, number) ORDER BY number
"""

ENTRY_PROFILE = f"{PROSE.k1}::float8 AS k1, {PROSE.b}::float8 AS b"
"""The parameters of BM25 for `entries`; all of them are prose."""


@dataclass(frozen=True, slots=True)
class TermQuery:
    """The distinct terms of a query, and what the index, or a collection, knows of each. Arrays are `(t,)`."""

    keys: Sequence[int]
    statistics: TermStatistics

    @classmethod
    def of(
        cls, counted: Mapping[str, int], frequencies: Sequence[int], texts: int, average_length: float
    ) -> "TermQuery":
        """The question for the terms of a query, of which so many of all `texts` hold each."""
        return cls(keys_of(counted), TermStatistics.of(list(counted.values()), frequencies, texts, average_length))

    @property
    def has_matches(self) -> bool:
        """Whether some chunk holds a term."""
        return any(self.statistics.frequencies)

    def scoring(self, parameters: Parameters, row: str = "c", profile: str = "") -> str:
        """What joins `scored` to `chunks AS c`: `counts`, how often a chunk has each term, and `score`, its BM25.

        One expression for each term: counting over a list of terms would cost several times as much for each chunk.
        `row` and `profile` are others for `entries AS e`.
        """
        average = parameters.add(max(self.statistics.average_length, 1.0))
        keys = [f"{parameters.add(key)}::bigint" for key in self.keys]
        weights = [f"{parameters.add(weight)}::float8" for weight in self.statistics.weights.tolist()]
        profile = profile or _chunk_profile(profile_for(CHAT, self.statistics.average_length), parameters)
        norm = f"k1 * (1 - b + b * {row}.length / {average}::float8) AS norm"
        joins, sums = "", []
        for start in range(0, max(len(keys), 1), MOST_COLUMNS):
            group = range(len(keys))[start : start + MOST_COLUMNS]
            # The terms are sorted: this is a binary search.
            positions = [f"width_bucket({keys[term]}, {row}.terms) AS p{term}" for term in group]
            counts = [
                f"CASE WHEN {row}.terms[p{n}] = {keys[n]} THEN {row}.counts[p{n}] ELSE 0::smallint END AS n{n}"
                for n in group
            ]
            positions, counts = (positions, counts) if start else ([profile, *positions], [norm, *counts])
            # OFFSET 0 keeps the planner from merging the subqueries, which would compute each position several times.
            joins += f"""
                CROSS JOIN LATERAL (SELECT {", ".join(positions)} OFFSET 0) AS positions_{start}
                CROSS JOIN LATERAL (SELECT {", ".join(counts)} OFFSET 0) AS each_{start}"""
            sums += [" + ".join(f"n{term} * (k1 + 1) / (n{term} + norm) * {weights[term]}" for term in group)]
        names = ", ".join(f"n{term}" for term in range(len(keys)))
        score = " + ".join(f"({each or '0.0::float8'})" for each in sums)
        return f"""{joins}
            CROSS JOIN LATERAL (SELECT ARRAY[{names}]::smallint[] AS counts, {score} AS score) AS scored"""

    def rounds(self, first_round: int) -> Iterator[tuple[list[int], float]]:
        """The terms of each round, and the most that a chunk with none of the terms so far can score."""
        frequencies, weights = self.statistics.frequencies, self.statistics.weights
        # Rarest first: these weigh most and read least, so the bound for all others falls fastest.
        order = sorted((term for term, frequency in enumerate(frequencies) if frequency), key=frequencies.__getitem__)
        rest = MOST_PER_TERM * float(sum(weights[term] for term in order))
        group: list[int] = []
        in_round, read, budget = 0, 0, first_round
        for term in order:
            frequency = frequencies[term]
            if group and in_round + frequency > budget:
                # A chunk that is in no round so far holds only later terms, which add `rest` at most.
                yield group, rest
                read += in_round
                # Larger rounds: where the rare terms did not suffice, few rounds should.
                group, in_round, budget = [], 0, 4 * budget
                if read + frequency > MOST_READ:
                    return
            group.append(self.keys[term])
            in_round += frequency
            rest -= MOST_PER_TERM * float(weights[term])
        if group:
            yield group, 0.0

    def hits(self, rows: Sequence[Row]) -> list[KeywordHit]:
        chunks = [reference_from(row) for row in rows]
        bm25_of, shares = self.scores(rows, [chunk.content_type for chunk in chunks])
        return [
            KeywordHit(chunk, score, share)
            for chunk, score, share in zip(chunks, bm25_of.tolist(), shares.tolist(), strict=True)
        ]

    def scores(self, rows: Sequence[Row], content_types: Sequence[str]) -> tuple[Floats, Floats]:
        """BM25 and the share of the idf mass of rows with `length` and `counts`, `(n,)` each."""
        return self.statistics.scores([row["counts"] for row in rows], [row["length"] for row in rows], content_types)


def _chunk_profile(messages: Bm25Profile, parameters: Parameters) -> str:
    """The parameters of BM25 for `chunks AS c`."""
    columns = ((messages.k1, PROSE.k1, "k1"), (messages.b, PROSE.b, "b"))
    return ", ".join(
        f"CASE WHEN c.content_type = '{CHAT}' THEN {parameters.add(one)}::float8 ELSE {prose}::float8 END AS {name}"
        for one, prose, name in columns
    )


def keys_of(words: Iterable[str]) -> list[int]:
    return [signed(term_key(word)) for word in words]


class PostgresTexts:
    """`KeywordIndex` over one database."""

    def __init__(self, database: PostgresDatabase, state: IndexState) -> None:
        self._database = database
        self._state = state
        self._first_round = FIRST_ROUND
        self._questions: LRUCache[tuple[str, Tenant, str], TermQuery] = LRUCache(QUESTIONS)
        self._frequencies = FrequencyCache(FREQUENCIES)

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        counted = Counter(query_terms(query))
        if limit < 1 or not counted:
            return []
        question = await self.question(query, where.tenant)
        if not question.has_matches:
            return []
        parameters = Parameters(limit)
        scoring, passing = question.scoring(parameters), condition(where, parameters, "c")
        tables = self.tables(question, scoring, parameters, "$1", passing)
        statement = f"""WITH {tables}
                        SELECT {REFERENCE_COLUMNS}, c.length, scored.counts
                        FROM found_by_terms AS f JOIN rag_context.chunks AS c ON c.key = f.key {scoring}"""  # noqa: S608
        hits = question.hits(await self._database.fetch(statement, *parameters.values))
        return sorted((hit for hit in hits if hit.bm25 > 0.0), key=lambda hit: (-hit.bm25, hit.chunk.id))

    async def score(self, query: str, chunks: Sequence[ChunkRef], *, tenant: Tenant) -> dict[str, KeywordHit]:
        if not chunks:
            return {}
        question = await self.question(query, tenant)
        parameters = Parameters([chunk.id for chunk in chunks])
        passing = f"c.id = ANY ($1) AND {condition(Filter(tenant), parameters, 'c')}"
        statement = f"""SELECT {REFERENCE_COLUMNS}, c.length, scored.counts
                        FROM rag_context.chunks AS c {question.scoring(parameters)} WHERE {passing}"""  # noqa: S608
        found = {hit.chunk.id: hit for hit in question.hits(await self._database.fetch(statement, *parameters.values))}
        return {chunk.id: found[chunk.id] for chunk in chunks if chunk.id in found}

    async def conversations(self, query: str, threads: Sequence[str], *, tenant: Tenant) -> Mapping[str, float]:
        question = await self.question(query, tenant)
        if not threads or not question.has_matches:
            return {}
        parameters = Parameters(list(map(stored, threads)))
        passing = f"c.thread = ANY ($1) AND {condition(Filter(tenant), parameters, 'c')}"
        statement = f"""SELECT c.thread, c.length, scored.counts
                        FROM rag_context.chunks AS c {question.scoring(parameters)} WHERE {passing}"""  # noqa: S608
        rows = await self._database.fetch(statement, *parameters.values)
        said = [(str(row["thread"]), row["length"], row["counts"]) for row in rows]
        return question.statistics.conversations(said)

    def tables(self, question: TermQuery, scoring: str, parameters: Parameters, limit: str, passing: str) -> str:
        """What finds the best chunks inside of a statement; the last table is `found_by_terms (key, id, score)`.

        `scoring` is that of `question`, `limit` a number or its placeholder; `passing` says which `chunks AS c` may be
        found.
        """
        tables: list[str] = []
        more, bound = "true", 0.0
        for number, (group, least) in enumerate(question.rounds(self._first_round)):
            if number:
                # Without a column of `chunks`, this is evaluated once, before any of them is read.
                more = f"""NOT (SELECT count(*) = {limit} AND min(score) > {parameters.add(bound)}::float8
                                FROM best_{number - 1})"""  # noqa: S608
            best = f"""SELECT c.key, c.id, scored.score FROM rag_context.chunks AS c {scoring}
                       WHERE {more} AND c.terms && {parameters.add(group)}::bigint[] AND {passing}
                       ORDER BY scored.score DESC, c.id LIMIT {limit}"""  # noqa: S608
            if number:
                # UNION, since chunks with terms of both rounds are found in both.
                best = f"""SELECT * FROM (SELECT * FROM best_{number - 1} UNION ({best})) AS either
                           ORDER BY score DESC, id LIMIT {limit}"""  # noqa: S608
            tables.append(f"best_{number} AS MATERIALIZED ({best})")
            bound = least
        tables.append(f"found_by_terms AS (SELECT * FROM best_{len(tables) - 1})")  # noqa: S608
        return ", ".join(tables)

    async def question(self, query: str, tenant: Tenant) -> TermQuery:
        # Not the newest state: frequencies may be a little off, and a call before each search would cost more.
        seen = await self._state.of_tenant(tenant)
        remembered = self._questions.get((query, tenant, seen.stamp))
        if remembered is not None:
            return remembered
        counted = Counter(query_terms(query))
        chunks = max(seen.chunks, 0)
        frequencies = await self._frequencies_of(keys_of(counted), seen)
        question = TermQuery.of(counted, frequencies, chunks, seen.terms / max(chunks, 1))
        self._questions[query, tenant, seen.stamp] = question
        return question

    async def _frequencies_of(self, keys: Sequence[int], seen: TenantCounters) -> list[int]:
        """In how many chunks of a tenant each term occurs, within one in a hundred."""
        name = (await self._state.current()).name, seen.key
        frequencies = {key: self._frequencies.get(name, key, seen.turnover) for key in keys}
        missing = [key for key, frequency in frequencies.items() if frequency is None]
        if missing:
            rows = await self._database.fetch(_FREQUENCIES, missing, seen.key, plan=Plan.EITHER)
            for key, (frequency,) in zip(missing, rows, strict=True):
                frequencies[key] = frequency
                self._frequencies.put(name, key, seen.turnover, frequency)
        return [frequencies[key] or 0 for key in keys]

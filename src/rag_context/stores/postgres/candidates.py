"""The candidates of a search by one statement: the hits of both retrievers, scores, neighbours and passages.

A search that reads something else of the snapshot than it announced (a retriever that looks further, neighbours of a
lower rank) is interrupted; that is fetched by one more statement, and the search runs again from its beginning.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, starmap
from typing import TypeVar

import numpy as np

from rag_context.domain.documents import CHAT, CODE, Tenant
from rag_context.domain.search import Filter, KeywordHit, Neighbours, Passage, RawScores, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.ports.reading import CandidateRequest, Snapshot
from rag_context.stores.postgres.connection import PostgresDatabase, Row
from rag_context.stores.postgres.driver import Plan
from rag_context.stores.postgres.keywords import PostgresTexts, TermQuery
from rag_context.stores.postgres.rows import CHUNK_TIME, beside, condition, read_row, reference_from, stored
from rag_context.stores.postgres.state import PostgresSnapshot as IndexSnapshot
from rag_context.stores.postgres.vector_search import PostgresVectors
from rag_context.stores.sql_documents import DESCRIBED, Parameters, passages_of

T = TypeVar("T")

MOST = 1_000_000
"""More candidates of one document than there can be."""

_COLUMNS = f"""c.key, c.id AS chunk, c.document, c.position, c.content_type AS kind, c.thread, c.speaker,
c.tenant, c.sequence, c.start_char, c.end_char, c.start_line, c.end_line, c.heading, c.length, scored.counts,
{CHUNK_TIME} AS chunk_occurred_at, c.origin AS chunk_origin, c.standing"""

_PASSAGE = f"""f.chunk, f.document, f.position, p.text, f.start_char, f.end_char, f.start_line, f.end_line, f.heading,
p.context, f.chunk_occurred_at, f.speaker, coalesce(f.chunk_origin, d.origin), f.standing, {DESCRIBED}"""
_BEFORE_PASSAGE = 19
"""Columns of a fetched row before those of its passage, which are the columns `CHUNK` and `DESCRIBED`."""

FUSED = f"""
best AS (
    SELECT greatest(max(cosine) - {{unrelated_cosine}}::float8,
                    CASE WHEN bool_or(cosine IS NULL) THEN {{presumed_best}}::float8 END) AS near,
           max(score) AS score,
           bool_or(CASE WHEN cosine IS NULL THEN score > 0.0 ELSE cosine > {{unrelated_cosine}}::float8 END) AS has_near
    FROM candidates
),
fused AS (
    SELECT c.*, CASE WHEN by_vector_score IS NULL OR best.has_near IS NOT TRUE THEN by_score
                     WHEN best.score <= 0.0 THEN by_vector_score
                     ELSE weight * by_vector_score + (1.0 - weight) * by_score END * speaker_boost AS fused
    FROM candidates AS c CROSS JOIN best CROSS JOIN LATERAL (
        SELECT CASE WHEN c.cosine IS NOT NULL
                    THEN coalesce(greatest(c.cosine - {{unrelated_cosine}}::float8, 0.0) / nullif(best.near, 0.0), 0.0)
                    END AS by_vector_score,
               coalesce(c.score / nullif(best.score, 0.0), 0.0) AS by_score,
               CASE WHEN kind = '{CODE}' THEN {{code_weight}}::float8 ELSE {{weight}}::float8 END AS weight,
               CASE WHEN lower(split_part(c.speaker, ' ', 1)) = ANY ({{speakers}}::text[])
                         OR c.speaker IS NULL AND kind <> '{CHAT}'
                    THEN {{boost}}::float8 ELSE 1.0 END AS speaker_boost
    ) AS each
)"""  # noqa: S608  (kinds of content)
"""`search.ranking.fused_scores` in SQL: a test compares the two."""

_FETCHED = f"""
found AS MATERIALIZED (
    SELECT key, bool_or(by_vector) AS by_vector, bool_or(by_keyword) AS by_keyword FROM ({{found}}) AS each GROUP BY key
),
candidates AS MATERIALIZED (
    SELECT {_COLUMNS}, scored.score, {{cosine}} AS cosine, f.by_vector, f.by_keyword
    FROM found AS f JOIN rag_context.chunks AS c ON c.key = f.key {{vectors}} {{scoring}}
),
{FUSED},
shortlist AS MATERIALIZED (
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY document ORDER BY fused DESC, chunk) AS in_document FROM fused
    ) AS each
    WHERE in_document <= {{per_document}}::bigint ORDER BY fused DESC, chunk LIMIT {{size}}
),
beside AS MATERIALIZED (
    SELECT c.key, c.kind, b.key AS before, a.key AS after FROM shortlist AS c
    {beside("x.key", "c.chunk_occurred_at")}
),
standing AS MATERIALIZED ({{standing}}),
others AS (
    SELECT key FROM standing UNION SELECT before FROM beside UNION SELECT after FROM beside
    EXCEPT SELECT key FROM candidates
),
shown AS (
    SELECT key FROM beside UNION SELECT key FROM standing
    UNION SELECT before FROM beside WHERE kind = '{CHAT}' UNION SELECT after FROM beside WHERE kind = '{CHAT}'
),
fetched AS (
    SELECT * FROM candidates
    UNION ALL
    SELECT {_COLUMNS}, NULL, {{cosine}}, false, false
    FROM others AS o JOIN rag_context.chunks AS c ON c.key = o.key {{vectors}} {{scoring}}
)
SELECT f.chunk, f.document, f.position, f.kind, f.thread, f.speaker, f.chunk_occurred_at,
       f.key, f.length, f.counts, f.cosine, f.by_vector, f.by_keyword, {{passing}} AS passing,
       b.key IS NOT NULL AS has_neighbours, b.before, b.after, s.key IS NOT NULL AS is_shown,
       f.key IN (SELECT key FROM standing) AS is_standing,
       {_PASSAGE}
FROM fetched AS f LEFT JOIN beside AS b ON b.key = f.key LEFT JOIN shown AS s ON s.key = f.key
LEFT JOIN rag_context.passages AS p ON p.chunk = s.key
LEFT JOIN LATERAL (
    SELECT * FROM rag_context.documents AS x WHERE x.id = f.document AND s.key IS NOT NULL OFFSET 0
) AS d ON true
"""  # noqa: S608  (column lists of our own)


@dataclass(frozen=True, slots=True)
class _Request:
    """What one statement fetches: chunks that are found by vector or by keywords, or that are named."""

    by_vector: tuple[int, Filter] | None = None
    by_keyword: tuple[int, Filter] | None = None
    chunk_ids: Sequence[str] = ()
    standing: tuple[int, Filter] | None = None
    """Found by vector too, and no candidates."""
    threads: Sequence[str] = ()
    """Conversations that are scored as a whole, by a statement of their own."""


class _NotFetchedError(Exception):
    """Work on a snapshot needs what was not fetched."""

    def __init__(self, request: _Request) -> None:
        super().__init__()
        self.request = request


class PostgresCandidates:
    """`CandidateSource` over one database."""

    def __init__(self, database: PostgresDatabase, vectors: PostgresVectors, texts: PostgresTexts) -> None:
        self._database = database
        self._vectors = vectors
        self._texts = texts

    @property
    def is_remote(self) -> bool:
        return True

    async def prepare(self, query: str, tenant: Tenant) -> None:
        await self._texts.question(query, tenant)

    async def read(self, requested: Callable[[], CandidateRequest], work: Callable[[Snapshot], T]) -> T:
        """Fetch what is requested, by one statement, and run `work`, again from its beginning if something is missing.

        Raises: BackendDataError (the index has vectors of another dimension).
        """
        search = requested()
        fetched = _Fetched(search, await self._texts.question(search.text or "", search.where.tenant))
        limit_and_filter = (search.limit, search.where)
        request = _Request(
            limit_and_filter if search.vector is not None else None,
            limit_and_filter if search.text is not None and search.chunk_ids is None else None,
            search.chunk_ids or (),
            search.standing,
        )
        while True:
            if request.threads:
                scores = await self._texts.conversations(search.text or "", request.threads, tenant=search.where.tenant)
                fetched.conversation_scores |= {thread: scores.get(thread) for thread in request.threads}
            else:
                await self._fetch(fetched, request)
            try:
                # A snapshot cannot wait for the server in the middle of `work`: what is missing is fetched, and `work`
                # runs again.
                return work(fetched)
            except _NotFetchedError as missing:
                request = missing.request

    async def _fetch(self, fetched: "_Fetched", request: _Request) -> None:
        async def rows_of(seen: IndexSnapshot) -> Sequence[Row]:
            statement, values = self._statement(seen, fetched, request)
            searched = [each[1] for each in (request.by_vector, request.by_keyword) if each is not None]
            # A plan for all values is used only where none of them decides on it: planning takes as long as a part of a
            # search.
            plans = {self._vectors.plan(seen, where) for where in searched}
            plan = Plan.ONCE if plans <= {Plan.ONCE} else Plan.EACH_TIME
            return await self._database.fetch(statement, *values, plan=plan)

        vector = fetched.requested.vector
        rows = await self._vectors.in_use(rows_of, 0 if vector is None else len(vector))
        if request.by_vector is not None and rows:
            # The same in every row: a statement has no other way to return one number beside its rows.
            self._vectors.note_passing(request.by_vector[1], rows[0]["passing"])
        fetched.add(request, rows)

    def _statement(self, seen: IndexSnapshot, fetched: "_Fetched", request: _Request) -> tuple[str, Sequence[object]]:
        """The one statement, and its values."""
        vector, parameters = fetched.requested.vector, Parameters()
        scoring, tables, passing = fetched.question.scoring(parameters), [], "NULL::bigint"
        # Names and types of the columns for the UNION, also where nothing else is in it.
        found = ["SELECT NULL::bigint AS key, false AS by_vector, false AS by_keyword WHERE false"]
        if request.chunk_ids:
            ids = parameters.add(list(request.chunk_ids))
            found.append(f"SELECT key, false, false FROM rag_context.chunks WHERE id = ANY ({ids})")  # noqa: S608
        joined, cosine, query, standing = "", "NULL::float8", "", "SELECT NULL::bigint AS key WHERE false"
        if vector is not None:
            query = parameters.add(vector)
            joined = f"LEFT JOIN rag_context.vectors_{seen.generation} AS v ON v.chunk = c.key"
            cosine = f"-(v.embedding <#> {query})"
        if request.by_vector is not None and vector is not None:
            limit, where = request.by_vector
            passes = condition(where, parameters, "c")
            tables.append(self._vectors.tables(seen, vector, limit, where, parameters, query, passes))
            found.append("SELECT key, true, false FROM found_by_vector")
            passing = "(SELECT max(passing) FROM found_by_vector)"
        if request.by_keyword is not None and fetched.question.has_matches:
            limit, where = request.by_keyword
            passes = condition(where, parameters, "c")
            tables.append(self._texts.tables(fetched.question, scoring, parameters, str(int(limit)), passes))
            found.append("SELECT key, false, true FROM found_by_terms")
        if request.standing is not None and vector is not None:
            limit, where = request.standing
            standing = f"""
                SELECT c.key FROM rag_context.chunks AS c {joined}
                WHERE {condition(where, parameters, "c")} AND v.embedding IS NOT NULL
                ORDER BY v.embedding <#> {query}, c.id LIMIT {int(limit)}"""  # noqa: S608
        # Chunks that are named must not drop out of the shortlist, or `work` would name them again, for ever.
        shortlist, named = fetched.requested.shortlist, len(request.chunk_ids)
        tables.append(
            _FETCHED.format(
                found=" UNION ALL ".join(found),
                scoring=scoring,
                vectors=joined,
                cosine=cosine,
                passing=passing,
                standing=standing,
                unrelated_cosine=parameters.add(shortlist.unrelated_cosine),
                presumed_best=parameters.add(shortlist.presumed_best),
                weight=parameters.add(shortlist.vector_weight),
                code_weight=parameters.add(shortlist.code_vector_weight),
                speakers=parameters.add([stored(name) for name in shortlist.speakers]),
                boost=parameters.add(shortlist.boost),
                per_document=parameters.add(max(shortlist.per_document or MOST, named)),
                size=parameters.add(max(shortlist.size, named)),
            )
        )
        # Another statement once the index is twice as large: the plan of an empty one would be kept.
        return f"WITH /* 2^{seen.chunks.bit_length()} chunks */ {', '.join(tables)}", parameters.values


class _Fetched:
    """`Snapshot` of what was fetched."""

    def __init__(self, requested: CandidateRequest, question: TermQuery) -> None:
        self.requested = requested
        self.question = question
        self._scores = RawScores.unknown(1)
        self._row_of: dict[str, int] = {}
        """Rows of `_scores`; of the first one nothing is known."""
        self._named: set[str] = set()
        """Chunks that were fetched by name: what is missing of them does not exist any more."""
        self._neighbours: dict[str, Neighbours] = {}
        self._shown: dict[str, Row] = {}
        self.conversation_scores: dict[str, float | None] = {}
        self._by_vector: dict[tuple[int, Filter], Sequence[VectorHit]] = {}
        self._by_keyword: dict[tuple[int, Filter], Sequence[KeywordHit]] = {}

    def add(self, request: _Request, rows: Sequence[Row]) -> None:
        chunks = [reference_from(row) for row in rows]
        bm25, shares = self.question.scores(rows, [chunk.content_type for chunk in chunks])
        keys, cosines, by_vector, by_keyword, standing, near, shown = (
            [row[name] for row in rows]
            for name in ("key", "cosine", "by_vector", "by_keyword", "is_standing", "has_neighbours", "is_shown")
        )
        # Appended: rows of an earlier statement keep their numbers in `_row_of`.
        earlier, first = self._scores, len(self._scores.bm25)
        self._scores = RawScores(
            np.concatenate([earlier.cosines, np.array(cosines, dtype=np.float64)]),
            np.concatenate([earlier.bm25, bm25]),
            np.concatenate([earlier.shares, shares]),
        )
        self._row_of.update((chunk.id, row) for row, chunk in enumerate(chunks, first))
        chunk_of = dict(zip(keys, chunks, strict=True))
        for row, chunk in compress(zip(rows, chunks, strict=True), near):
            self._neighbours[chunk.id] = Neighbours(chunk_of.get(row["before"]), chunk_of.get(row["after"]))
        for row, chunk in compress(zip(rows, chunks, strict=True), shown):
            self._shown[chunk.id] = row
        self._named.update(request.chunk_ids)
        for part, are_found in ((request.by_vector, by_vector), (request.standing, standing)):
            if part is not None:
                found = starmap(VectorHit, compress(zip(chunks, cosines, strict=True), are_found))
                self._by_vector[part] = sorted(found, key=lambda hit: (-hit.cosine, hit.chunk.id))
        if request.by_keyword is not None:
            scored = zip(chunks, bm25.tolist(), shares.tolist(), strict=True)
            matching = [hit for hit in starmap(KeywordHit, compress(scored, by_keyword)) if hit.bm25 > 0.0]
            self._by_keyword[request.by_keyword] = sorted(matching, key=lambda hit: (-hit.bm25, hit.chunk.id))

    def lag(self, tenant: Tenant) -> None:
        """Nothing is missing."""

    def vector_hits(self, vector: Vector, limit: int, where: Filter) -> Sequence[VectorHit]:
        if (limit, where) not in self._by_vector:
            raise _NotFetchedError(_Request(by_vector=(limit, where)))
        return self._by_vector[limit, where]

    def keyword_hits(self, query: str, limit: int, where: Filter) -> Sequence[KeywordHit]:
        if (limit, where) not in self._by_keyword:
            raise _NotFetchedError(_Request(by_keyword=(limit, where)))
        return self._by_keyword[limit, where]

    def scores(self, query: str, vector: Vector | None, chunk_ids: Sequence[str], tenant: Tenant) -> RawScores:
        self._require(chunk_ids, self._row_of)
        # Row 0 says that nothing is known: of chunks that do not exist any more.
        return self._scores.take([self._row_of.get(id_, 0) for id_ in chunk_ids])

    def neighbours(self, chunk_ids: Sequence[str]) -> Mapping[str, Neighbours]:
        self._require(chunk_ids, self._neighbours)
        return {id_: self._neighbours[id_] for id_ in chunk_ids if id_ in self._neighbours}

    def passages(self, chunk_ids: Sequence[str]) -> Mapping[str, Passage]:
        self._require(chunk_ids, self._shown)
        shown = (self._shown[id_] for id_ in chunk_ids if id_ in self._shown)
        return passages_of(read_row(row[_BEFORE_PASSAGE:]) for row in shown)

    def conversations(self, query: str, threads: Sequence[str], tenant: Tenant) -> Mapping[str, float]:
        if not set(threads) <= self.conversation_scores.keys():
            raise _NotFetchedError(_Request(threads=threads))
        return {thread: score for thread in threads if (score := self.conversation_scores[thread]) is not None}

    def _require(self, chunk_ids: Sequence[str], fetched: Mapping[str, object]) -> None:
        missing = [id_ for id_ in chunk_ids if id_ not in fetched and id_ not in self._named]
        if missing:
            raise _NotFetchedError(_Request(chunk_ids=missing))

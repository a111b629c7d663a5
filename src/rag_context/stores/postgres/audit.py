"""Checks the index in one snapshot while it is in use, and repairs what a check found.

Each repair is one transaction; after a crash the remaining ones run again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence

from rag_context.domain.documents import FILTERED, Chunk, Counts
from rag_context.domain.reports import COMPARED, COUNTERS, Findings, IntegrityReport, IssueKind, Thoroughness
from rag_context.domain.vectors import EmbeddingModel
from rag_context.errors import BackendDataError
from rag_context.ports.writing import NORM_TOLERANCE, DocumentCheck
from rag_context.stores.postgres import state as index_state
from rag_context.stores.postgres.connection import Connection, PostgresDatabase
from rag_context.stores.postgres.driver import COMPONENT
from rag_context.stores.postgres.generations import drop_all_vectors, drop_unused
from rag_context.stores.postgres.rows import ChunkTerms, PostgresTables, read_text, stored
from rag_context.stores.sql_documents import CHUNK, CHUNK_WIDTH, DOCUMENTS, OF_CHUNKS, Row, chunk_from, document_from

_AT_ONCE = 200

ANALYSED_AT_ONCE = 500
"""Chunks whose terms are analysed again in one transaction: other writes run in between."""

_RECOUNTED = """
SELECT (SELECT count(*) FROM rag_context.documents),
       (SELECT count(*) FROM rag_context.documents WHERE status = 'pending'),
       (SELECT count(*) FROM rag_context.chunks), (SELECT count(*) FROM rag_context.vectors_{generation}),
       (SELECT coalesce(sum(length), 0)::bigint FROM rag_context.chunks)
"""

_BY_TENANT = """
SELECT t.key, coalesce(d.number, 0) AS documents, coalesce(c.number, 0) AS chunks,
       coalesce(c.terms, 0)::bigint AS terms
FROM rag_context.tenants AS t
LEFT JOIN (SELECT tenant, count(*) AS number FROM rag_context.documents GROUP BY tenant) AS d ON d.tenant = t.key
LEFT JOIN (
    SELECT tenant, count(*) AS number, sum(length) AS terms FROM rag_context.chunks GROUP BY tenant
) AS c ON c.tenant = t.key
"""

_WRONG_TENANTS = f"""
SELECT t.key FROM rag_context.tenants AS t JOIN ({_BY_TENANT}) AS n ON n.key = t.key
CROSS JOIN LATERAL (SELECT {index_state.SUMS} FROM rag_context.changes WHERE tenant = t.key) AS c
WHERE (t.documents + c.documents, t.chunks + c.chunks, t.terms + c.terms) <> (n.documents, n.chunks, n.terms)
"""  # noqa: S608  (sums of our own)

_COUNT_TENANTS = f"""
UPDATE rag_context.tenants AS t
SET documents = n.documents, chunks = n.chunks, terms = n.terms, turnover = t.turnover + n.chunks + 1,
    version = t.version + 1
FROM ({_BY_TENANT}) AS n WHERE n.key = t.key
"""  # noqa: S608

_INCOMPLETE = """
d.status = 'indexed' AND EXISTS (
    SELECT 1 FROM rag_context.chunks AS c WHERE c.document = d.id
    AND NOT EXISTS (SELECT 1 FROM rag_context.vectors_{generation} AS v WHERE v.chunk = c.key)
)
"""

_FIELDS = ("tenant", "content_type", "session_id", "source", *FILTERED, "tags", "timestamp", "thread")
"""What a chunk repeats of its document."""

_DIFFERS = (
    f"({', '.join(f'c.{name}' for name in _FIELDS)}) IS DISTINCT FROM ({', '.join(f'd.{name}' for name in _FIELDS)})"
)

_BAD_VECTORS = """
SELECT c.id FROM rag_context.vectors_{generation} AS v JOIN rag_context.chunks AS c ON c.key = v.chunk
WHERE vector_dims(v.embedding) <> $1 OR NOT abs(vector_norm(v.embedding) - 1) <= $2
"""

_DOCUMENTS = f"{DOCUMENTS} WHERE d.id > $1 ORDER BY d.id LIMIT $2"

_CHUNKS = f"SELECT {CHUNK} {OF_CHUNKS} WHERE d.id {{among_1}} ORDER BY d.id, c.position"

_ANALYSED = f"SELECT {CHUNK}, c.key, c.length, c.terms, c.counts {OF_CHUNKS} WHERE c.key > $1 AND c.key % $2 = 0"
_ANALYSED += " ORDER BY c.key LIMIT $3"
_KEY, _LENGTH = CHUNK_WIDTH, CHUNK_WIDTH + 1
"""Places of these columns in the rows of `_ANALYSED`, before those of terms and counts."""


class PostgresAuditor:
    """`IndexAuditor` over one database."""

    def __init__(self, database: PostgresDatabase, state: index_state.IndexState) -> None:
        self._database = database
        self._state = state

    async def examine(self, check: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        async def examined(connection: Connection) -> IntegrityReport:
            # One snapshot for all reads: what is written meanwhile would look like damage.
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await _Examination(connection, await index_state.read_snapshot(connection)).run(
                    check, thoroughness
                )

        return await self._database.outside(examined)

    async def repair(self, kinds: Collection[IssueKind]) -> None:
        for kind, repair in _REPAIRS.items():
            if kind in kinds:
                await self._state.change_alone(repair)
        if IssueKind.STALE_TERMS in kinds:
            last: int | None = 0
            while last is not None:
                last = await self._analyse_again(last)
        if kinds:
            await self._state.change_alone(_count_again)
            await self._state.refresh()
            await drop_unused(self._database)

    async def invalidate(self, document_ids: Collection[str]) -> None:
        ids = [stored(id_) for id_ in document_ids]
        clear = "UPDATE rag_context.documents SET content_hash = '' WHERE id = ANY ($1)"
        await self._state.change(lambda connection, _change: connection.execute(clear, ids))

    async def _analyse_again(self, after: int) -> int | None:
        """Analyse the stale ones of the next chunks again; returns the last chunk, None at the end."""

        async def analysed(connection: Connection, change: index_state.PostgresChange) -> int | None:
            rows = await PostgresTables(connection).fetch(_ANALYSED, after, 1, ANALYSED_AT_ONCE)
            stale = await asyncio.to_thread(_stale, rows)
            for row, words in stale:
                await connection.execute(
                    "UPDATE rag_context.chunks SET length = $1, terms = $2, counts = $3 WHERE key = $4",
                    words.length,
                    words.keys,
                    words.counts,
                    row[_KEY],
                )
                change.of().terms += words.length - row[_LENGTH]
            change.is_empty = not stale
            return rows[-1][_KEY] if rows else None

        return await self._state.change(analysed)


class _Examination:
    """One examination, in one snapshot."""

    def __init__(self, connection: Connection, seen: index_state.PostgresSnapshot) -> None:
        self._connection = connection
        self._tables = PostgresTables(connection)
        self._seen = seen
        self._found = Findings()

    async def run(self, check: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        counts = await self._check_counters()
        generation = self._seen.generation
        await self._add_all(
            IssueKind.MISSING_VECTORS,
            f"SELECT d.id FROM rag_context.documents AS d WHERE {_INCOMPLETE.format(generation=generation)}",  # noqa: S608
        )
        await self._add_all(
            IssueKind.WRONG_TAGS,
            f"""SELECT DISTINCT d.id FROM rag_context.chunks AS c
                JOIN rag_context.documents AS d ON d.id = c.document WHERE {_DIFFERS}""",  # noqa: S608
        )
        await self._check_documents(check)
        step = max(1, counts.chunks // COMPARED) if thoroughness is Thoroughness.QUICK else 1
        compared = await self._check_terms(step)
        await self._check_vectors()
        return self._found.report(counts, compared)

    async def _add_all(self, kind: IssueKind, statement: str, *values: object) -> None:
        for (id_,) in await self._connection.fetch(statement, *values):
            self._found.add(kind, read_text(id_))

    async def _check_counters(self) -> Counts:
        counted = tuple(await self._connection.fetchrow(_RECOUNTED.format(generation=self._seen.generation)))
        self._found.compare_counters([getattr(self._seen, name) for name in COUNTERS], counted)
        for (key,) in await self._connection.fetch(_WRONG_TENANTS):
            self._found.add(IssueKind.WRONG_COUNTERS, f"of tenant {key}")
        return Counts(*counted[:4])

    async def _check_documents(self, check: DocumentCheck) -> None:
        after = ""
        while rows := await self._tables.fetch(_DOCUMENTS, after, _AT_ONCE):
            after = rows[-1][0]
            pieces = await self._tables.fetch(_CHUNKS, [row[0] for row in rows])
            for id_, kinds in (await asyncio.to_thread(_kinds, rows, pieces, check)).items():
                self._found.add_document(id_, kinds)

    async def _check_terms(self, step: int) -> int:
        compared, after = 0, 0
        while rows := await self._tables.fetch(_ANALYSED, after, step, ANALYSED_AT_ONCE):
            after = rows[-1][_KEY]
            compared += len(rows)
            for row, _ in await asyncio.to_thread(_stale, rows):
                self._found.add(IssueKind.STALE_TERMS, row[0])
        return compared

    async def _check_vectors(self) -> None:
        model = _recorded_model(self._seen.model)
        if model is not None:
            statement = _BAD_VECTORS.format(generation=self._seen.generation)
            await self._add_all(IssueKind.BAD_VECTORS, statement, model.dimension, NORM_TOLERANCE)
        elif self._seen.model is not None or self._seen.vectors:
            self._found.add(IssueKind.NO_MODEL, f"{self._seen.vectors} vectors")


def _recorded_model(recorded: str | None) -> EmbeddingModel | None:
    """The recorded model; None if none is recorded, or it is invalid."""
    try:
        return index_state.model_of(recorded)
    except (ValueError, KeyError, TypeError):
        return None


def _kinds(rows: Sequence[Row], pieces: Sequence[Row], check: DocumentCheck) -> dict[str, set[IssueKind]]:
    chunks: defaultdict[str, list[Chunk]] = defaultdict(list)
    for chunk in map(chunk_from, pieces):
        chunks[chunk.document_id].append(chunk)
    found: dict[str, set[IssueKind]] = {}
    for row in rows:
        try:
            document = document_from(row, COMPONENT)
        except BackendDataError:
            found[row[0]] = {IssueKind.LOST_CONTENT}
        else:
            found[document.id] = set(check(document, chunks[document.id]))
    return found


def _stale(rows: Sequence[Row]) -> list[tuple[Row, ChunkTerms]]:
    analysed = [(row, ChunkTerms(chunk_from(row).searchable)) for row in rows]
    return [(row, words) for row, words in analysed if row[_LENGTH:] != [words.length, words.keys, words.counts]]


async def _copy_fields(connection: Connection, change: index_state.PostgresChange) -> None:
    """Copy the fields of documents to their chunks where they differ."""
    copied = ", ".join(f"{name} = d.{name}" for name in _FIELDS)
    await connection.execute(
        f"""UPDATE rag_context.chunks AS c SET {copied} FROM rag_context.documents AS d
            WHERE d.id = c.document AND {_DIFFERS}"""  # noqa: S608
    )
    change.of().turnover += 1


async def _drop_bad_vectors(connection: Connection, change: index_state.PostgresChange) -> None:
    model = _recorded_model(change.model)
    if model is not None:
        bad = _BAD_VECTORS.format(generation=change.generation)
        deleted = await connection.execute(
            f"""DELETE FROM rag_context.vectors_{change.generation} WHERE chunk IN (
                    SELECT key FROM rag_context.chunks WHERE id IN ({bad}))""",  # noqa: S608
            model.dimension,
            NORM_TOLERANCE,
        )
        change.of().vectors -= int(deleted.split()[-1])
    await _await_vectors(connection, change)


async def _await_vectors(connection: Connection, change: index_state.PostgresChange) -> None:
    incomplete = _INCOMPLETE.format(generation=change.generation)
    marked = await connection.execute(
        f"UPDATE rag_context.documents AS d SET status = 'pending' WHERE {incomplete}"  # noqa: S608
    )
    change.of().pending += int(marked.split()[-1])


async def _count_again(connection: Connection, change: index_state.PostgresChange) -> None:
    real = await connection.fetchrow(_RECOUNTED.format(generation=change.generation))
    removed = await connection.execute("DELETE FROM rag_context.changes")
    await connection.execute(
        """UPDATE rag_context.state SET version = version + $1 + 1, epoch = epoch + 1,
           documents = $2, pending = $3, chunks = $4, vectors = $5, terms = $6""",
        int(removed.split()[-1]),
        *real,
    )
    await connection.execute(_COUNT_TENANTS)
    change.is_empty = True  # there is nothing to add to these


_REPAIRS: dict[IssueKind, Callable[[Connection, index_state.PostgresChange], Awaitable[object]]] = {
    IssueKind.NO_MODEL: drop_all_vectors,
    IssueKind.WRONG_TAGS: _copy_fields,
    IssueKind.BAD_VECTORS: _drop_bad_vectors,
    IssueKind.MISSING_VECTORS: _await_vectors,
}

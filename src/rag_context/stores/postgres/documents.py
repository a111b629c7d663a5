"""Documents and chunks: reading and writing them, and the model of their vectors."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from rag_context.domain.documents import (
    DAY_US,
    Chunk,
    Counts,
    Cursor,
    Document,
    DocumentGroup,
    Listing,
    Missing,
    Retrievals,
    Stored,
    Tenant,
    TenantState,
    microseconds,
    moment,
)
from rag_context.domain.journal import Cause
from rag_context.domain.reports import Periods, counted
from rag_context.domain.search import Filter, Neighbours, Passage
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.ports.vector_checks import require_comparable
from rag_context.ports.writing import Version, written_in_turn
from rag_context.resilience.admission import Computing
from rag_context.stores.postgres import journal, writer
from rag_context.stores.postgres.connection import Connection, PostgresDatabase
from rag_context.stores.postgres.filters import Parameters, condition
from rag_context.stores.postgres.generations import drop_all_vectors
from rag_context.stores.postgres.rows import (
    CHUNK_COLUMNS,
    DOCUMENT_COLUMNS,
    LISTING_COLUMNS,
    PASSAGE_COLUMNS,
    PERIODS,
    REFERENCE_WIDTH,
    SIMILAR,
    ChunkTerms,
    beside,
    chunk_from,
    document_from,
    listing_from,
    passages_from,
    periods_from,
    read_text,
    reference_from,
    similar_values,
    stored,
    stored_from,
    tenant_from,
)
from rag_context.stores.postgres.state import FIRST_ROWS, IndexState, PostgresChange, model_of, try_read, try_write
from rag_context.stores.search_statistics import RetrievalCounts

_DOCUMENT = f"""
SELECT {DOCUMENT_COLUMNS} FROM rag_context.documents AS d JOIN rag_context.tenants AS t ON t.key = d.tenant
WHERE d.id = $1
"""  # noqa: S608  (column lists of our own)

_STATE = """
SELECT d.id, d.content_hash, d.status, coalesce(d.occurred_at, d.timestamp) AS occurred_at, d.origin,
       (SELECT t.path_hash FROM rag_context.tenants AS t WHERE t.key = d.tenant) AS path_hash,
       ARRAY(SELECT c.id FROM rag_context.chunks AS c WHERE c.document = d.id ORDER BY c.position) AS chunks
FROM rag_context.documents AS d
"""

_CHUNKS = f"""
SELECT {CHUNK_COLUMNS} FROM rag_context.chunks AS c JOIN rag_context.passages AS p ON p.chunk = c.key
WHERE c.document = $1 ORDER BY c.position
"""  # noqa: S608

_PASSAGES = f"""
SELECT {PASSAGE_COLUMNS} FROM rag_context.chunks AS c JOIN rag_context.passages AS p ON p.chunk = c.key
JOIN rag_context.documents AS d ON d.id = c.document
WHERE c.id = ANY ($1)
"""  # noqa: S608

_NEIGHBOURS = f"""
SELECT c.id, b.*, a.* FROM rag_context.chunks AS c
{beside("x.id, x.document, x.position, x.content_type, x.thread, x.speaker, coalesce(x.occurred_at, x.timestamp)")}
WHERE c.id = ANY ($1)
"""  # noqa: S608

_MISSING_VECTOR = "NOT EXISTS (SELECT 1 FROM rag_context.vectors_{generation} AS v WHERE v.chunk = c.key)"


class PostgresDocuments:
    """`DocumentStore`, `IndexWriter` and `ModelRegistry` over one database."""

    def __init__(self, database: PostgresDatabase, state: IndexState) -> None:
        self._database = database
        self._state = state
        self._retrievals = RetrievalCounts(
            lambda counts: database.write(lambda connection: writer.add_retrievals(connection, counts))
        )
        self._computing = Computing()

    @property
    def version(self) -> int:
        return self._state.version

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        if not chunk_ids:
            return {}
        return passages_from(await self._database.fetch(_PASSAGES, list(chunk_ids)))

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]:
        if not chunk_ids:
            return {}
        found: dict[str, Neighbours] = {}
        for row in await self._database.fetch(_NEIGHBOURS, list(chunk_ids)):
            id_, *beside = row
            before, after = (
                reference_from(each) if each[0] is not None else None
                for each in (beside[:REFERENCE_WIDTH], beside[REFERENCE_WIDTH:])
            )
            found[id_] = Neighbours(before, after)
        return found

    async def get(self, document_id: str) -> Document | None:
        row = await self._database.fetchrow(_DOCUMENT, stored(document_id))
        return None if row is None else document_from(row)

    async def stored(self, document_id: str) -> Stored | None:
        return (await self.states([document_id])).get(document_id)

    async def states(self, document_ids: Sequence[str]) -> dict[str, Stored]:
        rows = await self._database.fetch(f"{_STATE} WHERE d.id = ANY($1)", [stored(id_) for id_ in document_ids])
        return {read_text(row["id"]): stored_from(row) for row in rows}

    async def chunks(self, document_id: str) -> list[Chunk]:
        return [chunk_from(row) for row in await self._database.fetch(_CHUNKS, stored(document_id))]

    async def pending(self, limit: int) -> list[str]:
        rows = await self._database.fetch(
            "SELECT id FROM rag_context.documents WHERE status = 'pending' ORDER BY sequence LIMIT $1", limit
        )
        return [read_text(id_) for (id_,) in rows]

    async def matching(self, where: Filter, limit: int) -> list[str]:
        parameters = Parameters(limit)
        statement = f"""SELECT d.id FROM rag_context.documents AS d WHERE {condition(where, parameters)}
                        ORDER BY d.sequence LIMIT $1"""  # noqa: S608  (values are bound)
        return [read_text(id_) for (id_,) in await self._database.fetch(statement, *parameters.values)]

    async def similar(self, documents: Sequence[Document]) -> list[list[str]]:
        rows = [
            await self._database.fetch(SIMILAR, *similar_values(document)) if document.similarity_hash else ()
            for document in documents
        ]
        return [sorted(read_text(id_) for (id_,) in of_one) for of_one in rows]

    async def listing(self, where: Filter, *, limit: int, after: Cursor | None = None) -> list[Listing]:
        parameters = Parameters(limit)
        clauses = condition(where, parameters)
        if after is not None:
            at, id_ = parameters.add(microseconds(after.timestamp)), parameters.add(stored(after.id))
            clauses += f" AND d.timestamp <= {at} AND (d.timestamp < {at} OR d.id > {id_})"
        statement = f"""SELECT {LISTING_COLUMNS} FROM rag_context.documents AS d WHERE {clauses}
                        ORDER BY d.timestamp DESC, d.id LIMIT $1"""  # noqa: S608
        return [listing_from(row) for row in await self._database.fetch(statement, *parameters.values)]

    async def groups(self, where: Filter) -> list[DocumentGroup]:
        parameters = Parameters()
        clauses = condition(where, parameters)
        at = "coalesce(d.occurred_at, d.timestamp)"
        day = f"({at} - mod(mod({at}, {DAY_US}) + {DAY_US}, {DAY_US})) / {DAY_US}"
        statement = f"""SELECT d.content_type, d.agent, d.session_id, d.tags, {day},
                               count(*), max({at})
                        FROM rag_context.documents AS d WHERE {clauses} GROUP BY 1, 2, 3, 4, 5"""  # noqa: S608
        rows = await self._database.fetch(statement, *parameters.values)
        return [
            DocumentGroup(
                read_text(kind), agent and read_text(agent), read_text(session), tuple(map(read_text, tags)), *rest
            )
            for kind, agent, session, tags, *rest in rows
        ]

    async def inventory(self, after: str, limit: int) -> dict[str, Stored]:
        rows = await self._database.fetch(f"{_STATE} WHERE d.id > $1 ORDER BY d.id LIMIT $2", stored(after), limit)
        return {read_text(row["id"]): stored_from(row) for row in rows}

    async def content_hashes(self, document_ids: Sequence[str]) -> dict[str, str]:
        rows = await self._database.fetch(
            "SELECT id, content_hash FROM rag_context.documents WHERE id = ANY ($1)",
            [stored(id_) for id_ in document_ids],
        )
        return {read_text(id_): content_hash for id_, content_hash in rows}

    async def tenants(self) -> list[Tenant]:
        rows = await self._database.fetch(
            """SELECT t.project, t.branch, t.path_hash FROM rag_context.tenants AS t
               WHERE EXISTS (SELECT 1 FROM rag_context.documents AS d WHERE d.tenant = t.key) ORDER BY t.key"""
        )
        return [tenant_from(row) for row in rows]

    async def retrievals(self, document_id: str) -> Retrievals:
        row = await self._database.fetchrow(
            "SELECT query_count, last_retrieved FROM rag_context.retrievals WHERE document = $1", stored(document_id)
        )
        return Retrievals() if row is None else Retrievals(row[0], moment(row[1]))

    async def record_retrievals(self, document_ids: Sequence[str], at: datetime) -> None:
        self._retrievals.record(document_ids, at)

    async def close(self) -> None:
        await self._retrievals.close()

    async def counts(self) -> Counts:
        seen = await self._state.refresh()
        return Counts(seen.documents, seen.pending, seen.chunks, seen.vectors)

    async def tenant_state(self, tenant: Tenant) -> TenantState:
        seen = await self._state.of_tenant(tenant)
        return TenantState(seen.stamp, seen.documents)

    async def periods(self) -> Periods | None:
        row = await self._database.fetchrow(PERIODS)
        return None if row is None or row[0] is None else periods_from(row)

    async def missing_vectors(self, where: Filter) -> Missing:
        seen = await self._state.current()
        # Called with searches: where no document is pending and none lost its vectors, it costs no statement.
        if not seen.pending and seen.vectors >= seen.chunks:
            return Missing()
        of_pending = "d.status = 'pending' AND" if seen.pending else ""
        parameters = Parameters()
        is_missing = _MISSING_VECTOR.format(generation=seen.generation)
        statement = f"""SELECT count(*) FROM rag_context.documents AS d
                        JOIN rag_context.chunks AS c ON c.document = d.id
                        WHERE {of_pending} {is_missing} AND {condition(where, parameters, "c")}"""  # noqa: S608
        missing = await self._count(statement, parameters)
        if not missing:
            return Missing()
        parameters = Parameters()
        statement = f"SELECT count(*) FROM rag_context.chunks AS c WHERE {condition(where, parameters, 'c')}"  # noqa: S608
        return Missing(missing, await self._count(statement, parameters))

    async def ping(self) -> str:
        """Read some of every table that searches read, and the state; returns one line for people."""
        await try_read(self._database, FIRST_ROWS)
        seen = await self._state.refresh()
        return f"{counted(seen.documents, 'document')} in {counted(seen.chunks, 'chunk')}, {seen.pending} pending"

    async def try_write(self) -> None:
        """Write something that changes nothing of the index. Raises: BackendError (why a write would fail)."""
        await try_write(self._database)

    async def write(self, version: Version) -> bool:
        words = await self._analysed(version)
        cause = Cause.now()
        await self._state.change(
            lambda connection, change: journal.write_recorded(connection, change, version, words, cause)
        )
        return version.vectors is not None

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        return await written_in_turn(versions, self)

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        return await self._state.change(
            lambda connection, change: writer.attach_vectors(
                connection, change, document_id, content_hash, vectors, made_by
            )
        )

    async def rechunk(self, version: Version) -> bool:
        words = await self._analysed(version)
        return await self._state.change(
            lambda connection, change: writer.rechunk_document(connection, change, version, words)
        )

    async def delete(self, document_id: str) -> bool:
        cause = Cause.now()
        return await self._state.change(
            lambda connection, change: journal.delete_recorded(connection, change, document_id, cause)
        )

    async def recorded_model(self) -> EmbeddingModel | None:
        return model_of((await self._state.refresh()).model)

    async def adopt_model(self, model: EmbeddingModel) -> None:
        async def adopt(connection: Connection, change: PostgresChange) -> None:
            recorded = model_of(change.model)
            if recorded == model:
                change.is_empty = True
                return
            made = await connection.fetchval(
                f"""SELECT EXISTS (SELECT 1 FROM rag_context.vectors_{change.generation})
                    OR EXISTS (SELECT 1 FROM rag_context.documents WHERE status = 'indexed')"""  # noqa: S608
            )
            if recorded is not None and made:
                require_comparable(recorded, model)
            await connection.execute("UPDATE rag_context.state SET model = $1", json.dumps(asdict(model)))

        # Alone: a writer beside it could store vectors of another model.
        await self._state.change_alone(adopt)

    async def drop_vectors(self) -> int:
        return await self._state.change_alone(drop_all_vectors)

    async def _count(self, statement: str, parameters: Parameters) -> int:
        row = await self._database.fetchrow(statement, *parameters.values)
        return 0 if row is None else int(row[0])

    async def _analysed(self, version: Version) -> list[ChunkTerms]:
        return await self._computing.run(
            lambda: [ChunkTerms(chunk.searchable) for chunk in version.chunks], chars=len(version.document.content)
        )

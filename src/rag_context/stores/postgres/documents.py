"""Documents and chunks: reading and writing them, and the model of their vectors."""

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

from rag_context.domain.documents import Counts, Missing, Tenant, TenantState, counted
from rag_context.domain.journal import Cause
from rag_context.domain.search import Filter, Neighbours
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.ports.writing import Version, require_comparable, written_in_turn
from rag_context.resilience.admission import Computing
from rag_context.stores.postgres import journal, rows, writer
from rag_context.stores.postgres.connection import Connection, PostgresDatabase
from rag_context.stores.postgres.generations import drop_all_vectors
from rag_context.stores.postgres.state import FIRST_ROWS, IndexState, PostgresChange, model_of, try_read, try_write
from rag_context.stores.sql_documents import DocumentTables, Parameters, SqlDocuments

T = TypeVar("T")

_NEIGHBOURS = f"""
SELECT c.id, b.*, a.* FROM rag_context.chunks AS c
{rows.beside("x.id, x.document, x.position, x.content_type, x.thread, x.speaker, coalesce(x.occurred_at, x.timestamp)")}
WHERE c.id = ANY ($1)
"""  # noqa: S608

_MISSING_VECTOR = "NOT EXISTS (SELECT 1 FROM rag_context.vectors_{generation} AS v WHERE v.chunk = c.key)"


class PostgresDocuments(SqlDocuments):
    """`DocumentStore`, `IndexWriter` and `ModelRegistry` over one database."""

    def __init__(self, database: PostgresDatabase, state: IndexState) -> None:
        self._database = database
        self._state = state
        self._tables = rows.PostgresTables(database)
        self._computing = Computing()

    @property
    def version(self) -> int:
        return self._state.version

    async def _read(self, work: Callable[[DocumentTables], Coroutine[Any, Any, T]]) -> T:
        return await work(self._tables)

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]:
        if not chunk_ids:
            return {}
        found: dict[str, Neighbours] = {}
        for id_, *around in await self._database.fetch(_NEIGHBOURS, list(chunk_ids)):
            before, after = (
                rows.reference_from(each) if each[0] is not None else None
                for each in (around[: rows.REFERENCE_WIDTH], around[rows.REFERENCE_WIDTH :])
            )
            found[id_] = Neighbours(before, after)
        return found

    async def record_retrievals(self, document_ids: Sequence[str], at: datetime) -> None:
        await self._database.write(lambda connection: writer.add_retrievals(connection, document_ids, at))

    async def counts(self) -> Counts:
        seen = await self._state.refresh()
        return Counts(seen.documents, seen.pending, seen.chunks, seen.vectors)

    async def tenant_state(self, tenant: Tenant) -> TenantState:
        seen = await self._state.of_tenant(tenant)
        return TenantState(seen.stamp, seen.documents)

    async def has_all_vectors(self) -> bool:
        seen = await self._state.current()
        return not seen.pending and seen.vectors >= seen.chunks

    async def missing_vectors(self, where: Filter) -> Missing:
        # Called with searches: where no document is pending and none lost its vectors, it costs no statement.
        if await self.has_all_vectors():
            return Missing()
        seen = await self._state.current()
        of_pending = "d.status = 'pending' AND" if seen.pending else ""
        parameters = Parameters()
        is_missing = _MISSING_VECTOR.format(generation=seen.generation)
        statement = f"""SELECT count(*) FROM rag_context.documents AS d
                        JOIN rag_context.chunks AS c ON c.document = d.id
                        WHERE {of_pending} {is_missing} AND {rows.condition(where, parameters, "c")}"""  # noqa: S608
        missing = await self._count(statement, parameters)
        if not missing:
            return Missing()
        parameters = Parameters()
        statement = f"SELECT count(*) FROM rag_context.chunks AS c WHERE {rows.condition(where, parameters, 'c')}"  # noqa: S608
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

    async def _analysed(self, version: Version) -> list[rows.ChunkTerms]:
        return await self._computing.run(
            lambda: [rows.ChunkTerms(chunk.searchable) for chunk in version.chunks], chars=len(version.document.content)
        )

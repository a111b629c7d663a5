"""Documents and chunks: reading and writing them, and the model of their vectors."""

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from rag_context.domain.documents import Missing
from rag_context.domain.field_counts import FieldCounts
from rag_context.domain.journal import Cause
from rag_context.domain.reports import counted
from rag_context.domain.search import Filter, Neighbours
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import BackendStartingError
from rag_context.ports.reading import completed
from rag_context.ports.writing import Version
from rag_context.resilience.admission import Computing
from rag_context.stores.sql_documents import DocumentTables, SqlDocuments
from rag_context.stores.sqlite import changes, document_rows, journal, vector_models
from rag_context.stores.sqlite.database import Database, reading, reads
from rag_context.stores.sqlite.memory.following import IndexInMemory

T = TypeVar("T")


class SqliteDocuments(SqlDocuments):
    """`DocumentStore`, `IndexWriter` and `ModelRegistry` over the embedded file."""

    counts = reads(document_rows.read_counts)
    tenant_state = reads(document_rows.read_tenant_state)
    recorded_model = reads(vector_models.read_model)

    _has_split_vectors = False
    """Whether another store keeps the vectors."""

    def __init__(self, database: Database, memory: IndexInMemory) -> None:
        self._database = database
        self._memory = memory
        self._computing = Computing()

    @property
    def version(self) -> int:
        return self._database.version

    async def refresh_version(self) -> None:
        await self._database.refresh_version()

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]:
        return await self._memory.read(lambda at: at.index.neighbours(chunk_ids), needs_vectors=False)

    async def field_counts(self, where: Filter, most: int) -> FieldCounts:
        try:
            return await self._memory.read(lambda at: at.index.field_counts(where, most), needs_vectors=False)
        except BackendStartingError:  # it is still being read, and may take longer than the rows of its documents
            return await super().field_counts(where, most)

    async def _read(self, work: Callable[[DocumentTables], Coroutine[Any, Any, T]]) -> T:
        return await self._database.read(lambda connection: completed(work(document_rows.SqliteTables(connection))))

    async def record_retrievals(self, document_ids: Sequence[str], at: datetime) -> None:
        await self._database.write(partial(changes.add_retrievals, document_ids, at))

    @reading
    def missing_vectors(self, connection: sqlite3.Connection, where: Filter) -> Missing:
        return document_rows.read_missing_vectors(connection, self._has_split_vectors, where)

    async def ping(self) -> str:
        await self._database.round()
        counts = await self.counts()
        return f"{counted(counts.documents, 'document')} in {counted(counts.chunks, 'chunk')}, {counts.pending} pending"

    async def try_write(self) -> None:
        """Write something that changes nothing of the index. Raises: BackendError (why a write would fail)."""
        await self._database.try_write()

    async def write(self, version: Version) -> bool:
        (result,) = await self.write_all([version])
        if isinstance(result, Exception):
            raise result
        return result

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        chars = sum(len(version.document.content) for version in versions if version.terms is None)

        def analyse() -> list[Sequence[tuple[int, bytes]]]:
            return [changes.analysed_terms(each) for each in versions]

        analysed = await self._computing.run(analyse, chars=chars) if chars else analyse()
        cause = Cause.now()
        writes = [
            partial(journal.write_recorded, version, each, cause)
            for version, each in zip(versions, analysed, strict=True)
        ]
        results = await self._database.write_all(writes)
        await self._memory.await_own_rows(sum(len(version.chunks) for version in versions))
        return results

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        done = await self._database.write(partial(changes.attach_vectors, document_id, content_hash, vectors, made_by))
        await self._memory.await_own_rows(len(vectors))
        return done

    async def rechunk(self, version: Version) -> bool:
        chars = len(version.document.content)
        analysed = await self._computing.run(partial(changes.analysed_terms, version), chars=chars)
        done = await self._database.write(partial(changes.rechunk_document, version, analysed))
        await self._memory.await_own_rows(len(version.chunks))
        return done

    async def delete(self, document_id: str) -> bool:
        return await self._database.write(partial(journal.delete_recorded, document_id, Cause.now()))

    async def adopt_model(self, model: EmbeddingModel) -> None:
        await self._database.write(partial(vector_models.record_model, model))

    async def drop_vectors(self) -> int:
        return await self._database.write(vector_models.forget_vectors)

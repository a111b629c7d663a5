"""Documents and chunks: reading and writing them, and the model of their vectors.

And the embedded file as one of two stores: documents without vectors, or vectors of another store's documents.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from rag_context.domain.documents import Chunk, Counts, Document, Missing, StoredVectors, counted
from rag_context.domain.journal import PLAIN, Cause, Revision
from rag_context.domain.reports import FieldCounts
from rag_context.domain.search import Filter, Neighbours
from rag_context.domain.vectors import EmbeddingModel, Generations, Matrix
from rag_context.errors import BackendStartingError, ForeignDataError
from rag_context.ports.reading import completed
from rag_context.ports.writing import Version
from rag_context.resilience.admission import Computing
from rag_context.stores.sql_documents import INDEXED, PENDING, DocumentTables, SqlDocuments
from rag_context.stores.sqlite import changes, document_rows, journal, vector_models
from rag_context.stores.sqlite.database import Database, reading, reads, writing
from rag_context.stores.sqlite.faults import COMPONENT
from rag_context.stores.sqlite.memory.following import IndexInMemory, SqliteVectors
from rag_context.stores.sqlite.migration import is_foreign_file

T = TypeVar("T")

_PAGE = 1000

_STORED = """
SELECT d.id, d.content_hash, json_group_array(c.id)
FROM json_each(?) AS requested
CROSS JOIN documents AS d ON d.id = requested.value
CROSS JOIN chunks AS c ON c.document = d.key
CROSS JOIN vectors AS v ON v.chunk = c.key
GROUP BY d.key
"""

_WITH_VECTORS = """
SELECT id FROM documents AS d WHERE id > ? AND EXISTS (
    SELECT 1 FROM chunks AS c CROSS JOIN vectors AS v ON v.chunk = c.key WHERE c.document = d.key
) ORDER BY id LIMIT ?
"""

_GENERATION = "generation"
_INACTIVE = "debris"
_INDEXED_COUNTS = """
SELECT documents, pending, chunks, chunks - (
    SELECT count(*) FROM documents AS d CROSS JOIN chunks AS c ON c.document = d.key WHERE d.status = 'pending'
) FROM totals
"""


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
        self.refresh_version, self.try_write = database.refresh_version, database.try_write

    @property
    def version(self) -> int:
        return self._database.version

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

    @reading
    def has_all_vectors(self, connection: sqlite3.Connection) -> bool:
        return document_rows.has_all_vectors(document_rows.read_counts(connection), self._has_split_vectors)

    async def ping(self) -> str:
        await self._database.round()
        counts = await self.counts()
        return f"{counted(counts.documents, 'document')} in {counted(counts.chunks, 'chunk')}, {counts.pending} pending"

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


class SqliteSplitDocuments(SqliteDocuments):
    """`DocumentStore`, `DocumentWriter` and the registry of models and generations; another store has the vectors."""

    _has_split_vectors = True

    @reading
    def counts(self, connection: sqlite3.Connection) -> Counts:
        """How much the index holds; vectors are counted from the chunks of indexed documents."""
        return Counts(*connection.execute(_INDEXED_COUNTS).fetchone())

    async def put(self, document: Document, chunks: Sequence[Chunk], revision: Revision = PLAIN) -> None:
        await self.write(Version(document, chunks, revision=revision))

    @writing
    def mark_indexed(
        self, connection: sqlite3.Connection, document_id: str, content_hash: str, made_by: str | None = None
    ) -> bool:
        changes.check_model(made_by, connection)
        version = (INDEXED, document_id, content_hash)
        updated = connection.execute("UPDATE documents SET status = ? WHERE id = ? AND content_hash = ?", version)
        return updated.rowcount > 0

    @writing
    def mark_pending(self, connection: sqlite3.Connection, document_ids: Collection[str]) -> None:
        connection.execute(
            "UPDATE documents SET status = ? WHERE id IN (SELECT value FROM json_each(?)) AND status <> ?",
            (PENDING, json.dumps(list(document_ids)), PENDING),
        )

    @reading
    def generations(self, connection: sqlite3.Connection) -> Generations:
        return _generations(connection)

    @writing
    def record_generations(self, connection: sqlite3.Connection, before: Generations, after: Generations) -> bool:
        now, run = _generations(connection), after.run
        if (now.building, now.inactive) != (before.building, before.inactive):
            return False
        model = run and json.dumps(asdict(run.model))
        _note({vector_models.MODEL: model, vector_models.TOUCHED: run and run.touched}, connection)
        _note({_INACTIVE: after.inactive}, connection)
        if after.active != before.active and before.run is not None:
            _note({"model": json.dumps(asdict(before.run.model)), _GENERATION: after.active}, connection)
            connection.execute("UPDATE totals SET version = version + 1")
            changes.note_change_of_all(connection)
        return True


def _generations(connection: sqlite3.Connection) -> Generations:
    names = (_GENERATION, _INACTIVE)
    numbers = dict(connection.execute("SELECT name, value FROM meta WHERE name IN (?, ?)", names))
    active, inactive = (None if name not in numbers else int(numbers[name]) for name in names)
    model, run = vector_models.read_model(connection), vector_models.read_run(connection)
    return Generations(active or 0, None if model is None else model.fingerprint, run, inactive)


def _note(values: Mapping[str, object], connection: sqlite3.Connection) -> None:
    for name, value in values.items():
        if value is None:
            connection.execute("DELETE FROM meta WHERE name = ?", (name,))
        else:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, str(value)))


class SqliteVectorBackend(SqliteVectors):
    """`VectorStorage` over an embedded file with copies of another store's documents."""

    def __init__(self, database: Database, memory: IndexInMemory) -> None:
        super().__init__(database, memory)
        self._is_closed = False

    async def prepare(self, model: EmbeddingModel) -> None:
        await self._database.write(partial(vector_models.record_model, model))

    async def put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> None:
        # Copies of passages are kept, so that content and terms are not needed.
        version = Version(replace(document, content=""), chunks, vectors)
        await self._database.write(partial(changes.write_document, version, [(0, b"")] * len(chunks)))

    @writing
    def discard(self, connection: sqlite3.Connection, document_ids: Collection[str]) -> None:
        changes.delete_documents(document_ids, connection)

    @reading
    def stored_vectors(self, connection: sqlite3.Connection, document_ids: Collection[str]) -> dict[str, StoredVectors]:
        rows = connection.execute(_STORED, (json.dumps(list(document_ids)),))
        return {id_: StoredVectors(frozenset(json.loads(ids)), frozenset({revision})) for id_, revision, ids in rows}

    async def stored_documents(self) -> AsyncIterator[str]:
        last = ""
        while ids := await self._with_vectors(last):
            for id_ in ids:
                yield id_
            last = ids[-1]

    @reading
    def _with_vectors(self, connection: sqlite3.Connection, after: str) -> list[str]:
        return [id_ for (id_,) in connection.execute(_WITH_VECTORS, (after, _PAGE))]

    @reading
    def count(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT vectors FROM totals").fetchone()[0])

    async def clear(self) -> None:
        """Delete all vectors, and the record of their model."""
        await self._database.write(vector_models.forget_vectors)

    async def require_own(self) -> None:
        path = self._database.file.path
        if await asyncio.to_thread(is_foreign_file, path):
            raise ForeignDataError(COMPONENT, f"{str(path)!r} is another program's file: move it. It was not changed.")

    async def remove(self) -> None:
        await self.close()
        path = self._database.file.path
        if await asyncio.to_thread(is_foreign_file, path):
            return
        for suffix in ("", "-wal", "-shm", ".lock"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    async def close(self) -> None:
        """Close the file; it may be closed already."""
        if not self._is_closed:
            self._is_closed = True
            await self._database.close()

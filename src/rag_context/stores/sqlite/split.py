"""The embedded file as one of two stores: documents without vectors, or vectors of another store's documents."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

from rag_context.domain.documents import Chunk, Counts, Document, StoredVectors
from rag_context.domain.journal import PLAIN, Cause, Revision
from rag_context.domain.vectors import EmbeddingModel, Matrix, Rebuild
from rag_context.errors import ForeignDataError
from rag_context.ports.writing import Version
from rag_context.stores.sql_documents import INDEXED, PENDING
from rag_context.stores.sqlite import changes, journal, vector_models
from rag_context.stores.sqlite.database import Database, reading, reads, writing
from rag_context.stores.sqlite.document_ports import SqliteDocuments
from rag_context.stores.sqlite.faults import COMPONENT
from rag_context.stores.sqlite.memory.following import IndexInMemory, SqliteVectors
from rag_context.stores.sqlite.migration import is_foreign_file

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
_NO_RUN = {vector_models.MODEL: None, vector_models.TOUCHED: None}

_INDEXED_COUNTS = """
SELECT documents, pending, chunks, chunks - (
    SELECT count(*) FROM documents AS d CROSS JOIN chunks AS c ON c.document = d.key WHERE d.status = 'pending'
) FROM totals
"""


class SqliteSplitDocuments(SqliteDocuments):
    """`DocumentStore` and `ModelRegistry` where another store keeps the vectors."""

    _has_split_vectors = True

    @reading
    def counts(self, connection: sqlite3.Connection) -> Counts:
        """How much the index holds; vectors are counted from the chunks of indexed documents."""
        return Counts(*connection.execute(_INDEXED_COUNTS).fetchone())

    @reading
    def active_generation(self, connection: sqlite3.Connection) -> tuple[int, str | None]:
        return _answering(connection)

    run_under_way = reads(vector_models.read_run)

    @reading
    def inactive_generation(self, connection: sqlite3.Connection) -> int | None:
        return _number(_INACTIVE, connection)

    @writing
    def begin_run(
        self, connection: sqlite3.Connection, run: Rebuild, generation: int, inactive_generation: int | None
    ) -> bool:
        if _number(_INACTIVE, connection) != inactive_generation:
            return False
        model = json.dumps(asdict(run.model))
        _note({vector_models.MODEL: model, vector_models.TOUCHED: run.touched, _INACTIVE: generation}, connection)
        return True

    @writing
    def touch_run(self, connection: sqlite3.Connection, made_by: str, touched: float) -> None:
        if _fingerprint(connection) == made_by:
            _note({vector_models.TOUCHED: touched}, connection)

    @writing
    def abandon_run(self, connection: sqlite3.Connection) -> None:
        _note(_NO_RUN, connection)

    @writing
    def forget_inactive_generation(self, connection: sqlite3.Connection, generation: int) -> None:
        if _fingerprint(connection) is None and _number(_INACTIVE, connection) == generation:
            _note({_INACTIVE: None}, connection)

    @writing
    def end_run(self, connection: sqlite3.Connection, made_by: str, generation: int) -> bool:
        run = vector_models.read_run(connection)
        if run is None or run.model.fingerprint != made_by or _number(_INACTIVE, connection) != generation:
            return False
        former, _ = _answering(connection)
        recorded = {"model": json.dumps(asdict(run.model)), _GENERATION: generation, _INACTIVE: former}
        _note({**_NO_RUN, **recorded}, connection)
        connection.execute("UPDATE totals SET version = version + 1")
        changes.note_change_of_all(connection)
        return True


class SqliteDocumentWriter:
    """`DocumentWriter` over the embedded file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, document: Document, chunks: Sequence[Chunk], revision: Revision = PLAIN) -> None:
        version = Version(document, chunks, revision=revision)
        analysed = await asyncio.to_thread(changes.analysed_terms, version)
        work = partial(journal.write_recorded, version, analysed, Cause.now())
        await self._database.write(work)

    async def rechunk(self, document: Document, chunks: Sequence[Chunk]) -> bool:
        version = Version(document, chunks)
        analysed = await asyncio.to_thread(changes.analysed_terms, version)
        return await self._database.write(partial(changes.rechunk_document, version, analysed))

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

    async def delete(self, document_id: str) -> bool:
        return await self._database.write(partial(journal.delete_recorded, document_id, Cause.now()))


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


def _number(name: str, connection: sqlite3.Connection) -> int | None:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def _note(values: Mapping[str, object], connection: sqlite3.Connection) -> None:
    for name, value in values.items():
        if value is None:
            connection.execute("DELETE FROM meta WHERE name = ?", (name,))
        else:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, str(value)))


def _answering(connection: sqlite3.Connection) -> tuple[int, str | None]:
    model = vector_models.read_model(connection)
    return _number(_GENERATION, connection) or 0, None if model is None else model.fingerprint


def _fingerprint(connection: sqlite3.Connection) -> str | None:
    """Of the model of the run under way."""
    run = vector_models.read_run(connection)
    return None if run is None else run.model.fingerprint

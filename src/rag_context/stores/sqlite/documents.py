"""Documents and chunks: reading and writing them, lists of them without their texts, and the model of their vectors."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from rag_context.domain.documents import (
    Chunk,
    Counts,
    Cursor,
    Document,
    Listing,
    Missing,
    Retrievals,
    Stored,
    Tenant,
    microseconds,
    moment,
)
from rag_context.domain.reports import Period, Periods, counted
from rag_context.domain.search import Filter, Neighbours, Passage
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.ports.writing import Version
from rag_context.resilience.admission import Computing
from rag_context.stores.search_statistics import RetrievalCounts
from rag_context.stores.sqlite import changes, passages, vector_models
from rag_context.stores.sqlite.changes import INDEXED
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.memory.following import Memory
from rag_context.stores.sqlite.passages import CHUNK_TIME, METADATA, condition, read_metadata, readable
from rag_context.text import terms

_VISIBLE = "SELECT count(*) FROM documents AS d{index} CROSS JOIN chunks AS c ON c.document = d.key WHERE {where}"

_LACKS = " AND NOT EXISTS (SELECT 1 FROM vectors AS v WHERE v.chunk = c.key)"

_LISTING = f"""
SELECT d.id, d.title, d.content_type, d.session_id, d.source, d.timestamp, d.occurred_at, d.status, {METADATA}
FROM documents AS d
WHERE {{condition}} AND (d.timestamp < ? OR (d.timestamp = ? AND d.id > ?))
ORDER BY d.timestamp DESC, d.id LIMIT ?
"""  # noqa: S608  (column lists of our own)

_STORED = """
SELECT d.id, d.content_hash, d.status, d.occurred_at,
       (SELECT json_group_array(id) FROM (SELECT id FROM chunks WHERE document = d.key ORDER BY position))
FROM documents AS d
"""

_PERIODS = """
SELECT min(occurred), max(last_occurred), min(indexed), max(last_indexed) FROM (
    SELECT (SELECT min(occurred_at) FROM documents WHERE tenant = t.key) AS occurred,
           (SELECT max(occurred_at) FROM documents WHERE tenant = t.key) AS last_occurred,
           (SELECT min(timestamp) FROM documents WHERE tenant = t.key) AS indexed,
           (SELECT max(timestamp) FROM documents WHERE tenant = t.key) AS last_indexed
    FROM tenants AS t
)
"""

_AFTER_ALL = 1 << 62
"""Microseconds later than any moment that can be written."""


class SqliteDocuments:
    """`DocumentStore`, `IndexWriter` and `ModelRegistry` over the embedded file.

    Every method raises `BackendError` where the file cannot be read or written.
    """

    _has_split_vectors = False
    """Whether another store keeps the vectors."""

    def __init__(self, database: Database, memory: Memory) -> None:
        self._database = database
        self._memory = memory
        self._retrievals = RetrievalCounts(lambda counts: database.write(partial(changes.add_retrievals, counts)))
        self._computing = Computing()

    @property
    def version(self) -> int:
        """Grows with every change of the index that this process knows of; read without any I/O."""
        return self._database.version

    @property
    def stamp(self) -> str | None:
        """Identifies this state of this index in every process that uses it; None while unknown."""
        return self._database.stamp

    async def look(self) -> None:
        """Bring `version` up to what any process has committed by now."""
        await self._database.look()

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        """The passages that exist, by chunk id."""
        if not chunk_ids:
            return {}
        return await self._database.read(partial(passages.read_passages, list(chunk_ids)))

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]:
        """The chunks before and after each chunk that exists."""
        return await self._memory.read(lambda at: at.index.neighbours(chunk_ids), needs_vectors=False)

    async def get(self, document_id: str) -> Document | None:
        """A document with its content; None if it is unknown."""
        return await self._database.read(partial(passages.read_document, document_id))

    async def stored(self, document_id: str) -> Stored | None:
        """The content hash, status and chunk ids of a document; None if it is unknown."""
        return await self._database.read(partial(read_stored, document_id))

    async def states(self, document_ids: Sequence[str]) -> dict[str, Stored]:
        """The same of many documents; unknown ones are left out."""
        return await self._database.read(partial(read_states, list(document_ids)))

    async def chunks(self, document_id: str) -> list[Chunk]:
        """A document's chunks by position."""
        return await self._database.read(partial(passages.read_chunks, document_id))

    async def pending(self, limit: int) -> list[str]:
        """Ids of documents whose vectors are missing, oldest first."""
        return await self._database.read(partial(_pending, limit))

    async def matching(self, where: Filter, limit: int) -> list[str]:
        """Ids of the documents that a filter lets through, oldest first."""
        return await self._database.read(partial(_matching, where, limit))

    async def similar(self, documents: Sequence[Document]) -> list[list[str]]:
        """Ids of other documents of the tenant whose similarity hash is within 3 bits; empty for the hash 0."""
        return await self._database.read(lambda file: [passages.read_similar(each, file) for each in documents])

    async def listing(self, where: Filter, *, limit: int, after: Cursor | None = None) -> list[Listing]:
        """The documents that a filter lets through, newest first, then by id; those after `after`."""
        return await self._database.read(partial(read_listing, where, limit, after))

    async def inventory(self, after: str, limit: int) -> dict[str, Stored]:
        """All documents of all tenants by ascending id, those after the id `after` ("" for the first)."""
        return await self._database.read(partial(read_inventory, after, limit))

    async def content_hashes(self, document_ids: Sequence[str]) -> dict[str, str]:
        """The content hash of each stored document, of any tenant."""
        return await self._database.read(partial(read_content_hashes, list(document_ids)))

    async def tenants(self) -> list[Tenant]:
        """All tenants that have documents."""
        return await self._database.read(read_tenants)

    async def retrievals(self, document_id: str) -> Retrievals:
        """How often a document was returned, and when last; records of the last second may be missing."""
        return await self._database.read(partial(read_retrievals, document_id))

    async def record_retrievals(self, document_ids: Sequence[str], at: datetime) -> None:
        """Record that documents were returned. Kept in memory for up to a second, then written in one batch."""
        self._retrievals.record(document_ids, at)

    async def close(self) -> None:
        """Write the remaining statistics, if the file accepts them soon."""
        await self._retrievals.close()

    async def counts(self) -> Counts:
        """How much the index holds."""
        return await self._database.read(_counts)

    async def periods(self) -> Periods | None:
        """When the documents were said or written, and when they were indexed; None without any."""
        return await self._database.read(read_periods)

    async def missing_vectors(self, where: Filter) -> Missing:
        """How many of the passages that a filter lets through have no vector; both 0 where no document is pending."""
        return await self._database.read(partial(_missing_vectors, self._has_split_vectors, where))

    async def ping(self) -> str:
        """Read the file; returns one line for people."""
        await self._database.round()
        counts = await self.counts()
        return f"{counted(counts.documents, 'document')} in {counted(counts.chunks, 'chunk')}, {counts.pending} pending"

    async def try_write(self) -> None:
        """Write something that changes nothing of the index. Raises: BackendError (why a write would fail)."""
        await self._database.try_write()

    async def write(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Store a document in place of its earlier version, in one transaction that is on disk when this returns.

        Returns whether its vectors are stored too.

        Args:
            document: the document.
            chunks: all its chunks.
            vectors: `(len(chunks), dim) float32`; None stores it as pending.
            made_by: fingerprint of the model that made them, which must be the index's; None is not checked.

        Raises:
            BackendRejectedError: the vectors do not match the chunks or the index.
        """
        (result,) = await self.write_all([Version(document, chunks, vectors, made_by)])
        if isinstance(result, Exception):
            raise result
        return result

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        """As `write`, for versions of different documents in one transaction; each has its own result."""
        chars = sum(len(version.document.content) for version in versions)
        works = await self._computing.run(lambda: [_writing(version) for version in versions], chars=chars)
        results = await self._database.write_all(works)
        await self._memory.follow_own(sum(len(version.chunks) for version in versions))
        return results

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        """Add the vectors (`(n, dim) float32`) of a pending document; False where it was changed or deleted meanwhile.

        Raises:
            BackendRejectedError: the vectors do not match the chunks or the index.
        """
        done = await self._database.write(partial(changes.attach_vectors, document_id, content_hash, vectors, made_by))
        await self._memory.follow_own(len(vectors))
        return done

    async def rechunk(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Put other chunks in place of this version's; False where the document was changed or deleted meanwhile.

        Raises:
            BackendRejectedError: the vectors do not match the chunks or the index.
        """
        chars = len(document.content)
        analysed = await self._computing.run(partial(analysed_terms, chunks), chars=chars)
        done = await self._database.write(
            partial(changes.rechunk_document, document, chunks, analysed, vectors, made_by)
        )
        await self._memory.follow_own(len(chunks))
        return done

    async def delete(self, document_id: str) -> bool:
        """Remove a document with its chunks and vectors; False where it is unknown."""
        return await self._database.write(partial(changes.delete_document, document_id))

    async def recorded_model(self) -> EmbeddingModel | None:
        """The model that made the vectors; None if none is recorded."""
        return await self._database.read(vector_models.read_model)

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Record the model of an index that has none, or no vectors.

        Raises:
            IndexMismatchError: the vectors of the index were made by another model.
        """
        await self._database.write(partial(vector_models.record_model, model))

    async def drop_vectors(self) -> int:
        """Delete all vectors and the record of their model; every document becomes pending. Returns how many."""
        return await self._database.write(vector_models.forget_vectors)


def analysed_terms(chunks: Sequence[Chunk]) -> list[list[str]]:
    """The terms of each chunk, as they are stored."""
    return [terms(chunk.searchable) for chunk in chunks]


def _writing(version: Version) -> Callable[[sqlite3.Connection], bool]:
    """The work of the writing thread; the terms of large documents are too slow for it."""
    analysed = analysed_terms(version.chunks)

    def write(connection: sqlite3.Connection) -> bool:
        changes.write_document(version.document, version.chunks, analysed, version.vectors, version.made_by, connection)
        return version.vectors is not None

    return write


def _pending(limit: int, connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT id FROM documents WHERE status = 'pending' ORDER BY key LIMIT ?", (limit,))
    return [id_ for (id_,) in rows]


def _matching(where: Filter, limit: int, connection: sqlite3.Connection) -> list[str]:
    clauses, values = condition(where)
    statement = f"SELECT d.id FROM documents AS d WHERE {clauses} ORDER BY d.key LIMIT ?"  # noqa: S608  (values are bound)
    return [id_ for (id_,) in connection.execute(statement, (*values, limit))]


def _counts(connection: sqlite3.Connection) -> Counts:
    return Counts(*connection.execute("SELECT documents, pending, chunks, vectors FROM totals").fetchone())


def _missing_vectors(has_split_vectors: bool, where: Filter, connection: sqlite3.Connection) -> Missing:
    """Reads pending documents only, as long as none of those that pass the filter is without a vector."""
    if not connection.execute("SELECT pending FROM totals").fetchone()[0]:
        return Missing()
    clauses, values = condition(where, CHUNK_TIME)
    pending = _VISIBLE.format(index=" INDEXED BY documents_pending", where=f"d.status = 'pending' AND {clauses}")
    missing: int = connection.execute(pending if has_split_vectors else pending + _LACKS, values).fetchone()[0]
    if not missing:
        return Missing()
    return Missing(missing, connection.execute(_VISIBLE.format(index="", where=clauses), values).fetchone()[0])


def read_listing(where: Filter, limit: int, after: Cursor | None, connection: sqlite3.Connection) -> list[Listing]:
    """The documents that pass, newest first, then by id; those after `after`."""
    clauses, values = condition(where)
    at, id_ = (_AFTER_ALL, "") if after is None else (microseconds(after.timestamp), after.id)
    rows = connection.execute(_LISTING.format(condition=clauses), (*values, at, at, id_, limit))
    return [_listing(row) for row in rows]


def read_periods(connection: sqlite3.Connection) -> Periods | None:
    """When the documents were said or written, and when they were indexed; None without any."""
    # One bound each: SQLite reads it off the end of an index, and both together from the whole table.
    row = connection.execute(_PERIODS).fetchone()
    if row[0] is None:
        return None
    first, last, indexed_first, indexed_last = map(moment, row)
    return Periods(Period(first, last), Period(indexed_first, indexed_last))


def read_stored(document_id: str, connection: sqlite3.Connection) -> Stored | None:
    """The content hash, status and chunk ids of a document; None if it is unknown."""
    return read_states([document_id], connection).get(document_id)


def read_states(document_ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, Stored]:
    """What is stored of each document that is known."""
    asked = f"{_STORED} WHERE d.id IN (SELECT value FROM json_each(?))"  # noqa: S608  (values are bound)
    rows = connection.execute(asked, (json.dumps(document_ids),))
    return {row[0]: _state(row) for row in rows}


def read_inventory(after: str, limit: int, connection: sqlite3.Connection) -> dict[str, Stored]:
    """Documents by ascending id, those after `after`."""
    rows = connection.execute(f"{_STORED} WHERE d.id > ? ORDER BY d.id LIMIT ?", (after, limit))
    return {row[0]: _state(row) for row in rows}


def read_content_hashes(document_ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, str]:
    """The content hash of each stored document."""
    rows = connection.execute(
        "SELECT d.id, d.content_hash FROM json_each(?) AS asked JOIN documents AS d ON d.id = asked.value",
        (json.dumps(document_ids),),
    )
    return dict(rows.fetchall())


def read_tenants(connection: sqlite3.Connection) -> list[Tenant]:
    """All tenants that have documents."""
    rows = connection.execute(
        """SELECT project, branch, path_hash FROM tenants AS t
           WHERE EXISTS (SELECT 1 FROM documents AS d WHERE d.tenant = t.key) ORDER BY t.key"""
    )
    return [Tenant(*row) for row in rows]


def read_retrievals(document_id: str, connection: sqlite3.Connection) -> Retrievals:
    """How often a document was returned, and when last."""
    row = connection.execute(
        """SELECT r.query_count, r.last_retrieved
           FROM documents AS d JOIN retrievals AS r ON r.document = d.key WHERE d.id = ?""",
        (document_id,),
    ).fetchone()
    return Retrievals() if row is None else Retrievals(row[0], moment(row[1]))


def _listing(row: Sequence[object]) -> Listing:
    id_, title, kind, session, source, at, occurred_at, status, *metadata = row
    with readable(str(id_)):
        return Listing(
            id=str(id_),
            title=str(title),
            content_type=str(kind),
            session_id=str(session),
            source=str(source),
            timestamp=moment(int(str(at))),
            occurred_at=moment(int(str(occurred_at))),
            metadata=read_metadata(metadata),
            indexed=status == INDEXED,
        )


def _state(row: Sequence[str]) -> Stored:
    _, content_hash, status, occurred_at, ids = row
    return Stored(content_hash, status == INDEXED, tuple(json.loads(ids)), moment(int(occurred_at)))

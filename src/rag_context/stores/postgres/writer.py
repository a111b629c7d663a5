"""The statements of writes. Each function runs inside one transaction, beside other writers."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from rag_context.domain.documents import Chunk, Document, Tenant, microseconds
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendRejectedError
from rag_context.ports.vector_checks import require_model, require_shape
from rag_context.stores.postgres.connection import Connection
from rag_context.stores.postgres.driver import COMPONENT
from rag_context.stores.postgres.rows import (
    INDEXED,
    PENDING,
    TENANT,
    ChunkTerms,
    chunk_values,
    document_values,
    read_text,
    stored,
)
from rag_context.stores.postgres.state import Change

SCHEMA = "rag_context"

DOCUMENT_FIELDS = (
    "id",
    "tenant",
    "content_type",
    "session_id",
    "source",
    "title",
    "content",
    "content_hash",
    "timestamp",
    "occurred_at",
    "message_times",
    "agent",
    "category",
    "game",
    "decision_id",
    "tags",
    "extra",
    "thread",
    "similarity_hash",
    "status",
)
_PUT = (
    f"INSERT INTO rag_context.documents ({', '.join(DOCUMENT_FIELDS)})"  # noqa: S608
    f" VALUES ({', '.join(f'${number}' for number in range(1, len(DOCUMENT_FIELDS) + 1))})"
    f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in DOCUMENT_FIELDS[1:])}"
    " RETURNING sequence"
)

CHUNK_FIELDS = (
    "key",
    "id",
    "document",
    "sequence",
    "position",
    "start_char",
    "end_char",
    "start_line",
    "end_line",
    "heading",
    "tenant",
    "content_type",
    "session_id",
    "source",
    "category",
    "game",
    "tags",
    "timestamp",
    "occurred_at",
    "speaker",
    "standing",
    "thread",
    "length",
    "terms",
    "counts",
)

_ONE_WRITER = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
"""Writers of one document take turns, whether it exists or not."""

_KEYS = "SELECT nextval('rag_context.chunks_key_seq') FROM generate_series(1, $1)"

_REMOVED = "DELETE FROM rag_context.chunks WHERE document = $1 RETURNING length"
"""Passages and vectors go with them."""

_TENANT = TENANT.format("$1", "$2", "$3")
_NEW_TENANT = "INSERT INTO rag_context.tenants (project, branch, path_hash) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"


async def write_document(
    connection: Connection,
    change: Change,
    document: Document,
    chunks: Sequence[Chunk],
    words: Sequence[ChunkTerms],
    vectors: Matrix | None,
    made_by: str | None,
) -> None:
    """Put a document in place of its earlier version. Without vectors it is pending, and unchanged chunks keep theirs.

    Raises:
        BackendRejectedError: the vectors do not match the chunks or the index.
    """
    await connection.execute(_ONE_WRITER, stored(document.id))
    if vectors is not None:
        require_model(COMPONENT, change.fingerprint, made_by)
        await _check_vectors(connection, change, vectors, len(chunks))
    before = await connection.fetchval("SELECT status FROM rag_context.documents WHERE id = $1", stored(document.id))
    status = INDEXED if vectors is not None else PENDING
    tenant = await tenant_key(connection, document.tenant)
    # After the lock: between reading the status and writing it no other writer comes.
    sequence = await connection.fetchval(_PUT, *document_values(document, tenant, status))
    change.documents += before is None
    change.pending += (status == PENDING) - (before == PENDING)
    # A new version waits for its vectors; what did not change in it is found by them meanwhile.
    kept = {} if before is None or vectors is not None else await _vectors_of(connection, change, document.id)
    if before is not None:
        await _remove_chunks(connection, change, document.id)
    if not chunks:
        return
    keys = [row[0] for row in await connection.fetch(_KEYS, len(chunks))]
    rows = [
        chunk_values(key, chunk, each, document, tenant, sequence)
        for key, chunk, each in zip(keys, chunks, words, strict=True)
    ]
    await connection.copy_records_to_table("chunks", schema_name=SCHEMA, columns=CHUNK_FIELDS, records=rows)
    texts = [(key, stored(chunk.text), stored(chunk.context)) for key, chunk in zip(keys, chunks, strict=True)]
    await connection.copy_records_to_table(
        "passages", schema_name=SCHEMA, columns=("chunk", "text", "context"), records=texts
    )
    change.chunks += len(chunks)
    change.terms += sum(each.length for each in words)
    change.turnover += len(chunks)
    made: Sequence[Vector | None] = (
        [kept.get((chunk.id, chunk.text, chunk.context)) for chunk in chunks] if vectors is None else list(vectors)
    )
    await _put_vectors(connection, change, [pair for pair in zip(keys, made, strict=True) if pair[1] is not None])


async def rechunk_document(
    connection: Connection,
    change: Change,
    document: Document,
    chunks: Sequence[Chunk],
    words: Sequence[ChunkTerms],
    vectors: Matrix | None,
    made_by: str | None,
) -> bool:
    """As `write_document`, in place of this version only; False if it does not exist any more."""
    await connection.execute(_ONE_WRITER, stored(document.id))
    hash_ = await connection.fetchval(
        "SELECT content_hash FROM rag_context.documents WHERE id = $1", stored(document.id)
    )
    if hash_ is None or hash_ != document.content_hash:
        change.is_empty = True
        return False
    await write_document(connection, change, document, chunks, words, vectors, made_by)
    return True


async def attach_vectors(
    connection: Connection, change: Change, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None
) -> bool:
    """Store the vectors of a pending document; False if this version does not exist any more.

    Raises:
        BackendRejectedError: the vectors do not match the chunks or the index.
    """
    await connection.execute(_ONE_WRITER, stored(document_id))
    row = await connection.fetchrow(
        "SELECT content_hash, status FROM rag_context.documents WHERE id = $1", stored(document_id)
    )
    # Another server may have embedded it first: the same model makes the same vectors.
    if row is None or row["content_hash"] != content_hash or row["status"] == INDEXED:
        change.is_empty = True
        return row is not None and row["content_hash"] == content_hash
    require_model(COMPONENT, change.fingerprint, made_by)
    keys = [
        key
        for (key,) in await connection.fetch(
            "SELECT key FROM rag_context.chunks WHERE document = $1 ORDER BY position", stored(document_id)
        )
    ]
    await _check_vectors(connection, change, vectors, len(keys))
    removed = await connection.fetch(
        f"DELETE FROM rag_context.vectors_{change.generation} WHERE chunk = ANY ($1) RETURNING 1",  # noqa: S608
        keys,
    )
    change.vectors -= len(removed)
    await _put_vectors(connection, change, list(zip(keys, vectors, strict=True)))
    await connection.execute("UPDATE rag_context.documents SET status = 'indexed' WHERE id = $1", stored(document_id))
    change.pending -= 1
    return True


async def delete_document(connection: Connection, change: Change, document_id: str) -> bool:
    """Delete a document with all its rows; False if it is unknown."""
    await connection.execute(_ONE_WRITER, stored(document_id))
    # Before the document: the database would remove them with it, and the counters would not know how many.
    await _remove_chunks(connection, change, document_id)
    status = await connection.fetchval(
        "DELETE FROM rag_context.documents WHERE id = $1 RETURNING status", stored(document_id)
    )
    if status is None:
        change.is_empty = True
        return False
    change.documents -= 1
    change.pending -= status == PENDING
    return True


async def add_retrievals(connection: Connection, counts: Mapping[str, tuple[int, datetime]]) -> None:
    """Add to each document's statistics how often it was returned, and when last."""
    rows = sorted(
        (stored(id_), count, microseconds(last)) for id_, (count, last) in counts.items()
    )  # in order: no deadlocks
    await connection.execute(
        """INSERT INTO rag_context.retrievals
           SELECT d.id, n.count, n.last FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (id, count, last)
           JOIN rag_context.documents AS d ON d.id = n.id COLLATE "C" ORDER BY d.id
           ON CONFLICT (document) DO UPDATE
           SET query_count = retrievals.query_count + excluded.query_count,
               last_retrieved = greatest(retrievals.last_retrieved, excluded.last_retrieved)""",
        *([row[column] for row in rows] for column in range(3)),
    )


async def dimension_of(connection: Connection, generation: int) -> int | None:
    """The dimension of a generation's vectors; None while there are none."""
    dimension: int | None = await connection.fetchval(
        f"SELECT vector_dims(embedding) FROM rag_context.vectors_{generation} LIMIT 1"  # noqa: S608
    )
    return dimension


async def _check_vectors(connection: Connection, change: Change, vectors: Matrix, chunks: int) -> None:
    require_shape(COMPONENT, vectors, chunks, await dimension_of(connection, change.generation))


async def _vectors_of(connection: Connection, change: Change, document_id: str) -> dict[tuple[str, str, str], Vector]:
    """A document's vectors, by id, text and context of their chunks."""
    rows = await connection.fetch(
        f"""SELECT c.id, p.text, p.context, v.embedding
            FROM rag_context.chunks AS c JOIN rag_context.passages AS p ON p.chunk = c.key
            JOIN rag_context.vectors_{change.generation} AS v ON v.chunk = c.key
            WHERE c.document = $1""",  # noqa: S608
        stored(document_id),
    )
    return {(row[0], read_text(row[1]), read_text(row[2])): row[3] for row in rows}


async def _remove_chunks(connection: Connection, change: Change, document_id: str) -> None:
    vectors = await connection.fetchval(
        f"""SELECT count(*) FROM rag_context.chunks AS c
            JOIN rag_context.vectors_{change.generation} AS v ON v.chunk = c.key WHERE c.document = $1""",  # noqa: S608
        stored(document_id),
    )
    lengths = [length for (length,) in await connection.fetch(_REMOVED, stored(document_id))]
    change.chunks -= len(lengths)
    change.turnover += len(lengths)
    change.terms -= sum(lengths)
    change.vectors -= vectors


async def _put_vectors(connection: Connection, change: Change, rows: Sequence[tuple[int, Vector | None]]) -> None:
    if rows:
        await connection.copy_records_to_table(
            f"vectors_{change.generation}", schema_name=SCHEMA, columns=("chunk", "embedding"), records=rows
        )
        change.vectors += len(rows)


async def tenant_key(connection: Connection, tenant: Tenant) -> int:
    """The number of a tenant, which gets one if it is new."""
    values = (stored(tenant.project), stored(tenant.branch), stored(tenant.path_hash))
    key: int | None = await connection.fetchval(_TENANT, *values)
    if key is None:
        # It returns no row where another transaction has added the tenant meanwhile; its key is read again.
        await connection.execute(_NEW_TENANT, *values)
        key = await connection.fetchval(_TENANT, *values)
    if key is None:
        raise BackendRejectedError(COMPONENT, "The tenant was deleted meanwhile; try again.")
    return key

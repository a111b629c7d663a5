"""The statements of writes. Each function runs inside one transaction, beside other writers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from itertools import islice

from rag_context.domain.documents import Chunk, Document, Tenant, microseconds
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendRejectedError
from rag_context.ports.writing import Version, WholeDocument, require_model, require_shape
from rag_context.stores.postgres.connection import Connection
from rag_context.stores.postgres.driver import COMPONENT
from rag_context.stores.postgres.rows import TENANT, ChunkTerms, chunk_row, document_row, read_text, stored
from rag_context.stores.postgres.state import PostgresChange
from rag_context.stores.sql_documents import INDEXED, PENDING

SCHEMA = "rag_context"

VECTOR_FIELDS = ("chunk", "embedding")

_ONE_WRITER = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
"""Writers of one document take turns, whether it exists or not."""

_ALL_WRITERS = """
SELECT count(pg_advisory_xact_lock(hashtextextended(id, 0)))
FROM (SELECT id FROM unnest($1::text[]) AS batch (id) ORDER BY id) AS ordered
"""
"""The same of many documents; in one order, so that two loads do not wait for each other."""

_SEQUENCES = "SELECT nextval(pg_get_serial_sequence('rag_context.documents', 'sequence')) FROM generate_series(1, $1)"
_KEYS = "SELECT nextval('rag_context.chunks_key_seq') FROM generate_series(1, $1)"

_REMOVED = "DELETE FROM rag_context.chunks WHERE document = $1 RETURNING length"
"""Passages and vectors go with them."""

_TENANT = TENANT.format("$1", "$2", "$3")
_NEW_TENANT = "INSERT INTO rag_context.tenants (project, branch, path_hash) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"


@cache
def _put(columns: tuple[str, ...]) -> str:
    return (
        f"INSERT INTO rag_context.documents ({', '.join(columns)})"  # noqa: S608  (names of our own columns)
        f" VALUES ({', '.join(f'${number}' for number, _ in enumerate(columns, 1))})"
        f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in columns[1:])}"
        " RETURNING sequence"
    )


class ChunkRows:
    """Rows of chunks with their texts and vectors, of one document or several, which are copied together."""

    def __init__(self, change: PostgresChange) -> None:
        self._change = change
        self._chunks: list[tuple[object, ...]] = []
        self._columns: tuple[str, ...] = ()
        self._passages: list[tuple[object, ...]] = []
        self._vectors: list[tuple[int, Vector]] = []

    def add(
        self,
        document: Document,
        tenant: int,
        sequence: int,
        chunks: Iterable[tuple[int, Chunk, ChunkTerms, Vector | None]],
    ) -> None:
        """Add the chunks of a document, each with its key, its terms, and its vector if it has one; and count them."""
        difference = self._change.of(tenant)
        for key, chunk, words, vector in chunks:
            row = chunk_row(key, chunk, words, document, tenant, sequence)
            self._columns = self._columns or tuple(row)
            self._chunks.append(tuple(row.values()))
            self._passages.append((key, stored(chunk.text), stored(chunk.context)))
            difference.chunks += 1
            difference.turnover += 1
            difference.terms += words.length
            if vector is not None:
                self._vectors.append((key, vector))
                difference.vectors += 1

    async def copy(self, connection: Connection) -> None:
        """Copy all of them into the tables."""
        for table, columns, rows in (
            ("chunks", self._columns, self._chunks),
            ("passages", ("chunk", "text", "context"), self._passages),
            (f"vectors_{self._change.generation}", VECTOR_FIELDS, self._vectors),
        ):
            if rows:
                await copy_rows(connection, table, columns, rows)


async def copy_rows(
    connection: Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    await connection.copy_records_to_table(table, schema_name=SCHEMA, columns=columns, records=rows)


async def write_document(
    connection: Connection, change: PostgresChange, version: Version, words: Sequence[ChunkTerms]
) -> None:
    """Put a document in place of its earlier version, whose unchanged chunks stay. Raises: BackendRejectedError."""
    document, chunks, vectors = version.document, version.chunks, version.vectors
    await connection.execute(_ONE_WRITER, stored(document.id))
    if vectors is not None:
        require_model(COMPONENT, change.fingerprint, version.made_by)
        await _check_vectors(connection, change, vectors, len(chunks))
    before = await connection.fetchval("SELECT status FROM rag_context.documents WHERE id = $1", stored(document.id))
    status = INDEXED if vectors is not None else PENDING
    tenant = await tenant_key(connection, document.tenant)
    # After the lock: between reading the status and writing it no other writer comes.
    row = document_row(document, tenant, status)
    sequence = await connection.fetchval(_put(tuple(row)), *row.values())
    difference = change.of(tenant)
    difference.documents += before is None
    difference.pending += (status == PENDING) - (before == PENDING)
    # A new version waits for its vectors; what did not change in it is found by them meanwhile.
    kept = {} if before is None or vectors is not None else await _vectors_of(connection, change, document.id)
    if before is not None:
        await _remove_chunks(connection, change, document.id, tenant)
    made: Sequence[Vector | None] = (
        [kept.get((chunk.id, chunk.text, chunk.context)) for chunk in chunks] if vectors is None else list(vectors)
    )
    rows = ChunkRows(change)
    rows.add(document, tenant, sequence, zip(await _keys(connection, len(chunks)), chunks, words, made, strict=True))
    await rows.copy(connection)


async def write_new(
    connection: Connection,
    change: PostgresChange,
    documents: Sequence[WholeDocument],
    words: Sequence[Sequence[ChunkTerms]],
    made_by: str | None,
) -> list[str]:
    """Store those documents that the index does not have; returns their ids. Raises: BackendRejectedError."""
    require_model(COMPONENT, change.fingerprint, made_by)
    ids = [stored(document.id) for document, _, _ in documents]
    await connection.execute(_ALL_WRITERS, ids)
    rows = await connection.fetch("SELECT id FROM rag_context.documents WHERE id = ANY ($1)", ids)
    existing = {id_ for (id_,) in rows}
    # What came in meanwhile is newer than what is loaded, and stays.
    new = [each for id_, each in zip(ids, zip(documents, words, strict=True), strict=True) if id_ not in existing]
    change.is_empty = not new
    if not new:
        return []
    sequences = [number for (number,) in await connection.fetch(_SEQUENCES, len(new))]
    keys = iter(await _keys(connection, sum(len(terms) for _, terms in new)))
    dimension = await dimension_of(connection, change.generation)
    tenants = {each: await tenant_key(connection, each) for each in {document.tenant for (document, _, _), _ in new}}
    document_rows, chunk_rows = [], ChunkRows(change)
    for sequence, ((document, chunks, vectors), terms) in zip(sequences, new, strict=True):
        if vectors is not None:
            require_shape(COMPONENT, vectors, len(chunks), dimension)
            dimension = vectors.shape[1] if chunks else dimension
        tenant, status = tenants[document.tenant], PENDING if vectors is None else INDEXED
        document_rows.append({**document_row(document, tenant, status), "sequence": sequence})
        made: Sequence[Vector | None] = [None] * len(chunks) if vectors is None else list(vectors)
        own = list(islice(keys, len(chunks)))
        chunk_rows.add(document, tenant, sequence, zip(own, chunks, terms, made, strict=True))
    await copy_rows(connection, "documents", tuple(document_rows[0]), [tuple(row.values()) for row in document_rows])
    await chunk_rows.copy(connection)
    for (document, _, vectors), _ in new:
        difference = change.of(tenants[document.tenant])
        difference.documents += 1
        difference.pending += vectors is None
    return [document.id for (document, _, _), _ in new]


async def rechunk_document(
    connection: Connection, change: PostgresChange, version: Version, words: Sequence[ChunkTerms]
) -> bool:
    document = version.document
    await connection.execute(_ONE_WRITER, stored(document.id))
    hash_ = await connection.fetchval(
        "SELECT content_hash FROM rag_context.documents WHERE id = $1", stored(document.id)
    )
    if hash_ is None or hash_ != document.content_hash:
        change.is_empty = True
        return False
    await write_document(connection, change, version, words)
    return True


async def attach_vectors(
    connection: Connection,
    change: PostgresChange,
    document_id: str,
    content_hash: str,
    vectors: Matrix,
    made_by: str | None,
) -> bool:
    """Store the vectors of a pending document; False if this version is gone. Raises: BackendRejectedError."""
    await connection.execute(_ONE_WRITER, stored(document_id))
    row = await connection.fetchrow(
        "SELECT content_hash, status, tenant FROM rag_context.documents WHERE id = $1", stored(document_id)
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
    # A new version may have kept those of unchanged chunks.
    removed = await connection.fetch(
        f"DELETE FROM rag_context.vectors_{change.generation} WHERE chunk = ANY ($1) RETURNING 1",  # noqa: S608
        keys,
    )
    difference = change.of(row["tenant"])
    difference.vectors -= len(removed)
    await copy_rows(connection, f"vectors_{change.generation}", VECTOR_FIELDS, zip(keys, vectors, strict=True))
    difference.vectors += len(keys)
    await connection.execute("UPDATE rag_context.documents SET status = 'indexed' WHERE id = $1", stored(document_id))
    difference.pending -= 1
    return True


async def delete_document(connection: Connection, change: PostgresChange, document_id: str) -> bool:
    await connection.execute(_ONE_WRITER, stored(document_id))
    tenant = await connection.fetchval("SELECT tenant FROM rag_context.documents WHERE id = $1", stored(document_id))
    if tenant is None:
        change.is_empty = True
        return False
    # Before the document: the database would remove them with it, and the counters would not know how many.
    await _remove_chunks(connection, change, document_id, tenant)
    status = await connection.fetchval(
        "DELETE FROM rag_context.documents WHERE id = $1 RETURNING status", stored(document_id)
    )
    change.of(tenant).documents -= 1
    change.of(tenant).pending -= status == PENDING
    return True


async def take_turns(connection: Connection, document_ids: Iterable[str]) -> None:
    """Wait for other writers of these documents, until the transaction ends."""
    await connection.execute(_ALL_WRITERS, sorted({stored(id_) for id_ in document_ids if id_}))


async def add_retrievals(connection: Connection, document_ids: Iterable[str], at: datetime) -> None:
    counts = sorted(Counter(map(stored, document_ids)).items())  # in order: no deadlocks
    await connection.execute(
        """INSERT INTO rag_context.retrievals
           SELECT d.id, n.count, $3::bigint FROM unnest($1::text[], $2::bigint[]) AS n (id, count)
           JOIN rag_context.documents AS d ON d.id = n.id COLLATE "C" ORDER BY d.id
           ON CONFLICT (document) DO UPDATE
           SET query_count = retrievals.query_count + excluded.query_count,
               last_retrieved = greatest(retrievals.last_retrieved, excluded.last_retrieved)""",
        [id_ for id_, _ in counts],
        [count for _, count in counts],
        microseconds(at),
    )


async def dimension_of(connection: Connection, generation: int) -> int | None:
    """The dimension of a generation's vectors; None while there are none."""
    dimension: int | None = await connection.fetchval(
        f"SELECT vector_dims(embedding) FROM rag_context.vectors_{generation} LIMIT 1"  # noqa: S608
    )
    return dimension


async def _check_vectors(connection: Connection, change: PostgresChange, vectors: Matrix, chunks: int) -> None:
    require_shape(COMPONENT, vectors, chunks, await dimension_of(connection, change.generation))


async def _vectors_of(
    connection: Connection, change: PostgresChange, document_id: str
) -> dict[tuple[str, str, str], Vector]:
    """A document's vectors, by id, text and context of their chunks."""
    rows = await connection.fetch(
        f"""SELECT c.id, p.text, p.context, v.embedding
            FROM rag_context.chunks AS c JOIN rag_context.passages AS p ON p.chunk = c.key
            JOIN rag_context.vectors_{change.generation} AS v ON v.chunk = c.key
            WHERE c.document = $1""",  # noqa: S608
        stored(document_id),
    )
    return {(row[0], read_text(row[1]), read_text(row[2])): row[3] for row in rows}


async def _remove_chunks(connection: Connection, change: PostgresChange, document_id: str, tenant: int) -> None:
    # Counted first: the database removes them with their chunks, and does not say how many.
    vectors = await connection.fetchval(
        f"""SELECT count(*) FROM rag_context.chunks AS c
            JOIN rag_context.vectors_{change.generation} AS v ON v.chunk = c.key WHERE c.document = $1""",  # noqa: S608
        stored(document_id),
    )
    lengths = [length for (length,) in await connection.fetch(_REMOVED, stored(document_id))]
    difference = change.of(tenant)
    difference.chunks -= len(lengths)
    difference.turnover += len(lengths)
    difference.terms -= sum(lengths)
    difference.vectors -= vectors


async def _keys(connection: Connection, number: int) -> list[int]:
    """So many new keys of chunks."""
    return [key for (key,) in await connection.fetch(_KEYS, number)] if number else []


async def tenant_key(connection: Connection, tenant: Tenant) -> int:
    """The number of a tenant, which gets one if it is new."""
    values = tuple(map(stored, tenant.names))
    key: int | None = await connection.fetchval(_TENANT, *values)
    if key is None:
        # It returns no row where another transaction has added the tenant meanwhile; its key is read again.
        await connection.execute(_NEW_TENANT, *values)
        key = await connection.fetchval(_TENANT, *values)
    if key is None:
        raise BackendRejectedError(COMPONENT, "The tenant was deleted meanwhile; try again.")
    return key

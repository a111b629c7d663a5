"""The SQL statements of writes. Each function runs inside one transaction, or a savepoint of it."""

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import cache

import numpy as np

from rag_context.domain.documents import Chunk, Document, Tenant, microseconds
from rag_context.domain.text import packed_terms, terms
from rag_context.domain.vectors import Matrix
from rag_context.ports.writing import Version, require_model, require_shape
from rag_context.stores.sql_documents import INDEXED, PENDING, document_row
from rag_context.stores.sqlite.document_rows import lenient
from rag_context.stores.sqlite.faults import COMPONENT

REMEMBERED_DELETIONS = 100_000
"""Processes further behind than this load their matrix again."""

_STORED = """
SELECT c.id, p.text, p.context, v.vector
FROM chunks AS c
CROSS JOIN passages AS p ON p.chunk = c.key
CROSS JOIN vectors AS v ON v.chunk = c.key
WHERE c.document = ?
"""


def write_document(version: Version, analysed: Sequence[tuple[int, bytes]], connection: sqlite3.Connection) -> bool:
    """Put a document in place of its earlier version; returns whether its vectors are stored too.

    Without vectors it is pending, and unchanged chunks keep theirs. `analysed` are the terms of each chunk.
    """
    document, chunks, vectors = version.document, version.chunks, version.vectors
    if vectors is not None:
        check_model(version.made_by, connection)
        _check_vectors(vectors, len(chunks), connection)
    key, is_new = _put_document(document, INDEXED if vectors is not None else PENDING, connection)
    # A new version waits for its vectors; what did not change in it is found by them meanwhile.
    kept = {} if is_new or vectors is not None else _vectors_of(key, connection)
    if not is_new:
        remove_chunks([key], connection)
    first = _put_chunks(key, chunks, analysed, connection)
    if vectors is not None:
        put_vectors(enumerate(blobs_of(vectors), first), connection)
    else:
        known = [kept.get((chunk.id, chunk.text, chunk.context)) for chunk in chunks]
        put_vectors(((first + i, blob) for i, blob in enumerate(known) if blob is not None), connection)
    return vectors is not None


def rechunk_document(version: Version, analysed: Sequence[tuple[int, bytes]], connection: sqlite3.Connection) -> bool:
    """As `write_document`, in place of this version only; False if it does not exist any more."""
    document = version.document
    row = connection.execute("SELECT content_hash FROM documents WHERE id = ?", (document.id,)).fetchone()
    if row is None or row[0] != document.content_hash:
        return False
    write_document(version, analysed, connection)
    return True


def attach_vectors(
    document_id: str, content_hash: str, vectors: Matrix, made_by: str | None, connection: sqlite3.Connection
) -> bool:
    row = connection.execute("SELECT key, content_hash, status FROM documents WHERE id = ?", (document_id,)).fetchone()
    if row is None or row[1] != content_hash:
        return False
    key, _, status = row
    # Another process may have embedded it first: the same model makes the same vectors.
    if status == INDEXED:
        return True
    chunks = [
        chunk for (chunk,) in connection.execute("SELECT key FROM chunks WHERE document = ? ORDER BY position", (key,))
    ]
    check_model(made_by, connection)
    _check_vectors(vectors, len(chunks), connection)
    # A new version may have kept those of unchanged chunks.
    connection.execute("DELETE FROM vectors WHERE chunk IN (SELECT key FROM chunks WHERE document = ?)", (key,))
    put_vectors(zip(chunks, blobs_of(vectors), strict=True), connection)
    connection.execute("UPDATE documents SET status = ? WHERE key = ?", (INDEXED, key))
    forget_old_deletions(connection)
    return True


def analysed_terms(version: Version) -> Sequence[tuple[int, bytes]]:
    """The terms of each chunk, as they are stored; not for the thread that writes, which others wait for."""
    return version.terms or [packed_terms(terms(chunk.searchable)) for chunk in version.chunks]


def delete_documents(document_ids: Collection[str], connection: sqlite3.Connection) -> bool:
    """Delete documents, each table by one statement; returns whether any was there."""
    among = "SELECT key FROM documents WHERE id IN (SELECT value FROM json_each(?))"
    keys = [key for (key,) in connection.execute(among, (json.dumps(list(document_ids)),))]
    if not keys:
        return False
    remove_chunks(keys, connection)
    for change in (
        *(f"DELETE FROM {table} WHERE document" for table in ("document_tags", "contents", "retrievals")),  # noqa: S608
        "UPDATE documents SET superseded_by = NULL WHERE superseded_by",
        "DELETE FROM documents WHERE key",
    ):
        connection.execute(f"{change} IN (SELECT value FROM json_each(?))", (json.dumps(keys),))  # noqa: S608
    forget_tenants(connection)
    return True


def forget_tenants(connection: sqlite3.Connection) -> None:
    """Remove the names of tenants that neither a document nor the journal refers to."""
    connection.execute(
        "DELETE FROM tenants WHERE documents = 0 AND NOT EXISTS (SELECT 1 FROM documents WHERE tenant = tenants.key)"
        " AND NOT EXISTS (SELECT 1 FROM journal WHERE tenant = tenants.key)"
    )


def add_retrievals(document_ids: Iterable[str], at: datetime, connection: sqlite3.Connection) -> None:
    connection.executemany(
        """INSERT INTO retrievals SELECT key, ?, ? FROM documents WHERE id = ?
           ON CONFLICT (document) DO UPDATE
           SET query_count = query_count + excluded.query_count,
               last_retrieved = max(last_retrieved, excluded.last_retrieved)""",
        [(count, microseconds(at), document_id) for document_id, count in Counter(document_ids).items()],
    )


def note_change_of_all(connection: sqlite3.Connection) -> None:
    """Note that something changed which answers of every tenant can show; the version of the index has grown."""
    connection.execute("UPDATE tenants SET version = (SELECT version FROM totals)")


def forget_old_deletions(connection: sqlite3.Connection) -> None:
    last = shorten("deletions", REMEMBERED_DELETIONS, connection)
    if last is not None:
        connection.execute("UPDATE totals SET forgotten = ?", (last,))


def shorten(deletions: str, remembered: int, connection: sqlite3.Connection) -> int | None:
    """Shorten a table of deletions to the last `remembered`; returns the last one that it forgets."""
    # One bound each: SQLite reads it off the end of an index, and both together from the whole table.
    oldest, newest = connection.execute(
        f"SELECT (SELECT min(seq) FROM {deletions}), (SELECT max(seq) FROM {deletions})"  # noqa: S608
    ).fetchone()
    # Many at a time, once the list is twice as long: most writes then find nothing to do.
    if newest is None or newest - oldest < 2 * remembered:
        return None
    last: int = newest - remembered
    connection.execute(f"DELETE FROM {deletions} WHERE seq <= ?", (last,))  # noqa: S608
    return last


@cache
def _upsert(columns: tuple[str, ...]) -> str:
    # Not deleted and inserted again: the messages of a conversation are ordered by the keys of their documents.
    return (
        f"INSERT INTO documents ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
        f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in columns[1:])}"
    )


def _put_document(document: Document, status: str, connection: sqlite3.Connection) -> tuple[int, bool]:
    """Store the row of a document; returns its key, and whether it is new: then nothing refers to it."""
    known = connection.execute("SELECT key FROM documents WHERE id = ?", (document.id,)).fetchone()
    row = document_row(document, tenant_key(document.tenant, connection), status)
    row |= {name: json.dumps(row[name], ensure_ascii=False) for name in ("tags", "extra")}
    inserted = connection.execute(_upsert(tuple(row)), tuple(row.values())).lastrowid or 0
    key: int = inserted if known is None else known[0]
    connection.execute(
        "INSERT INTO contents VALUES (?, ?) ON CONFLICT (document) DO UPDATE SET content = excluded.content",
        (key, document.content),
    )
    if known is not None:
        connection.execute("DELETE FROM document_tags WHERE document = ?", (key,))
    connection.executemany(
        "INSERT INTO document_tags VALUES (?, ?)", [(key, tag) for tag in set(document.metadata.tags)]
    )
    return key, known is None


def _put_chunks(
    key: int, chunks: Sequence[Chunk], analysed: Sequence[tuple[int, bytes]], connection: sqlite3.Connection
) -> int:
    """Store chunks under keys of their own, one after the other; returns the first."""
    first = next_chunk_key(connection)
    rows: list[tuple[object, ...]] = []
    texts: list[tuple[object, ...]] = []
    for number, (chunk, (length, words)) in enumerate(zip(chunks, analysed, strict=True), first):
        span = chunk.span
        in_document = (chunk.position, span.start, span.end, span.start_line, span.end_line, span.heading)
        spoken = (microseconds(chunk.occurred_at), chunk.speaker, chunk.is_standing, chunk.origin)
        rows.append((number, chunk.id, key, *in_document, length, *spoken))
        texts.append((number, chunk.text, chunk.context, words))
    connection.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    connection.executemany("INSERT INTO passages (chunk, text, context, terms) VALUES (?, ?, ?, ?)", texts)
    return first


def next_chunk_key(connection: sqlite3.Connection) -> int:
    """Above all keys that ever were: an index in memory reads what is above the last one that it has read."""
    return int(
        connection.execute("SELECT ifnull(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'chunks'").fetchone()[0]
    )


def remove_chunks(keys: Sequence[int], connection: sqlite3.Connection) -> None:
    """Delete the chunks of the documents with these keys.

    For all of them at once: SQLite walks through its journal of the transaction after each statement that has triggers.
    """
    of_documents = "document IN (SELECT value FROM json_each(?))"
    # Rows before those that they refer to: foreign keys are checked by each statement.
    of_chunks = f"chunk IN (SELECT key FROM chunks WHERE {of_documents})"  # noqa: S608
    for rows in (f"vectors WHERE {of_chunks}", f"passages WHERE {of_chunks}", f"chunks WHERE {of_documents}"):
        connection.execute(f"DELETE FROM {rows}", (json.dumps(keys),))  # noqa: S608
    forget_old_deletions(connection)


def _vectors_of(key: int, connection: sqlite3.Connection) -> dict[tuple[str, str, str], bytes]:
    # A damaged text equals none of the new version, and must not keep that from being stored.
    with lenient(connection):
        rows = connection.execute(_STORED, (key,)).fetchall()
    return {(id_, text, context): vector for id_, text, context, vector in rows}


def put_vectors(vectors: Iterable[tuple[int, bytes]], connection: sqlite3.Connection) -> None:
    """Store vectors, each with the key of its chunk."""
    connection.executemany("INSERT INTO vectors (chunk, vector) VALUES (?, ?)", vectors)


def blobs_of(vectors: Matrix) -> list[bytes]:
    return [row.tobytes() for row in np.ascontiguousarray(vectors, dtype="<f4")]


def check_model(made_by: str | None, connection: sqlite3.Connection) -> None:
    """Reject vectors of another model than the index's, which a reindexing may have replaced meanwhile."""
    if made_by is None:
        return
    row = connection.execute("SELECT json_extract(value, '$.fingerprint') FROM meta WHERE name = 'model'").fetchone()
    require_model(COMPONENT, None if row is None else row[0], made_by)


def _check_vectors(vectors: Matrix, chunks: int, connection: sqlite3.Connection) -> None:
    stored = connection.execute("SELECT length(vector) / 4 FROM vectors LIMIT 1").fetchone()
    require_shape(COMPONENT, vectors, chunks, None if stored is None else stored[0])


def tenant_key(tenant: Tenant, connection: sqlite3.Connection) -> int:
    """The key of a tenant, which gets one if it is new."""
    known = "SELECT key FROM tenants WHERE project = ? AND branch = ? AND path_hash = ?"
    row: tuple[int] | None = connection.execute(known, tenant.names).fetchone()
    if row is not None:
        return row[0]
    insert = "INSERT INTO tenants (project, branch, path_hash) VALUES (?, ?, ?)"
    return connection.execute(insert, tenant.names).lastrowid or 0

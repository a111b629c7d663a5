"""The SQL that reads documents and chunks, and maps rows to domain objects.

Each function runs in one read snapshot; `changes` has what writes.
"""

import json
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rag_context.domain.documents import (
    DAY_US,
    TEXT_FIELDS,
    Chunk,
    Counts,
    Cursor,
    Document,
    DocumentGroup,
    Listing,
    Metadata,
    Missing,
    Origin,
    Retrievals,
    Span,
    Stored,
    Tenant,
    TenantState,
    microseconds,
    moment,
    packed_times,
    unpacked_times,
)
from rag_context.domain.reports import Period, Periods
from rag_context.domain.search import Filter, Passage
from rag_context.domain.text import are_similar, signed, unsigned
from rag_context.errors import BackendDataError
from rag_context.stores.sqlite.faults import COMPONENT, is_undecodable
from rag_context.stores.sqlite.filters import TENANT, condition, tenant_values

Row = Sequence[Any]

PENDING = "pending"
INDEXED = "indexed"

CHUNK_TIME = "ifnull(c.occurred_at, d.occurred_at)"
METADATA = ", ".join(f"d.{name}" for name in (*TEXT_FIELDS, "tags", "extra"))
_CHUNK = 'c.id, d.id, c.position, p.text, c.start, c."end", c.start_line, c.end_line, c.heading, p.context'
_CHUNK = f"{_CHUNK}, {CHUNK_TIME}, c.speaker, c.origin, c.standing"
_CHUNK_WIDTH = 14
_DOCUMENT_WIDTH = 11
_DESCRIBED = f"d.content_type, d.session_id, d.source, d.title, d.timestamp, {METADATA}"

_PASSAGES = f"""
SELECT {_CHUNK}, {_DESCRIBED}
FROM json_each(?) AS requested
CROSS JOIN chunks AS c ON c.id = requested.value
CROSS JOIN passages AS p ON p.chunk = c.key
CROSS JOIN documents AS d ON d.key = c.document
"""  # noqa: S608  (column lists of our own)

_CHUNKS = f"""
SELECT {_CHUNK}
FROM documents AS d
CROSS JOIN chunks AS c ON c.document = d.key
CROSS JOIN passages AS p ON p.chunk = c.key
WHERE d.id = ? ORDER BY c.position
"""  # noqa: S608

_DOCUMENT = f"""
SELECT d.id, t.project, t.branch, t.path_hash, n.content, d.content_hash, d.occurred_at, d.thread, d.similarity_hash,
       d.message_times, d.origin, {_DESCRIBED}
FROM documents AS d
CROSS JOIN tenants AS t ON t.key = d.tenant
CROSS JOIN contents AS n ON n.document = d.key
WHERE d.id = ?
"""  # noqa: S608

_VISIBLE = "SELECT count(*) FROM documents AS d{index} CROSS JOIN chunks AS c ON c.document = d.key WHERE {where}"

_LACKS = " AND NOT EXISTS (SELECT 1 FROM vectors AS v WHERE v.chunk = c.key)"

_LISTING = f"""
SELECT d.id, d.occurred_at, d.status, d.origin, {_DESCRIBED}
FROM documents AS d
WHERE {{condition}} AND (d.timestamp < ? OR (d.timestamp = ? AND d.id > ?))
ORDER BY d.timestamp DESC, d.id LIMIT ?
"""  # noqa: S608  (column lists of our own)

_STORED = """
SELECT d.id, d.content_hash, d.status, d.occurred_at, d.origin, (SELECT path_hash FROM tenants WHERE key = d.tenant),
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

_TENANT_STATE = """
SELECT (SELECT value FROM meta WHERE name = 'index'), chunks_epoch, vectors_epoch, t.key, t.version,
       ifnull(t.documents, 0)
FROM totals LEFT JOIN tenants AS t ON t.project = ? AND t.branch = ? AND t.path_hash = ?
"""

_AFTER_ALL = 1 << 62
"""Microseconds later than any moment that can be written."""

_SIMILAR = " UNION ".join(
    f"SELECT id, similarity_hash FROM documents WHERE tenant = :tenant AND similarity_hash <> 0"  # noqa: S608
    f" AND {band} = :band_{number}"
    for number, band in enumerate(
        ("similarity_hash & 65535", *(f"(similarity_hash >> {16 * n}) & 65535" for n in (1, 2, 3)))
    )
)

logger = logging.getLogger(__name__)


@contextmanager
def readable(document_id: str) -> Iterator[None]:
    """Read a document's rows inside the block. Raises: BackendDataError (the rows have invalid values)."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, sqlite3.OperationalError) as error:
        if isinstance(error, sqlite3.Error) and not is_undecodable(error):
            raise
        message = f"The stored document {document_id!r} is damaged; run `rag-context check`."
        raise BackendDataError(COMPONENT, message) from None  # the cause may contain stored data


@contextmanager
def lenient(connection: sqlite3.Connection) -> Iterator[None]:
    """Inside the block, invalid UTF-8 is read as replacement characters."""
    strict = connection.text_factory
    connection.text_factory = lambda stored: stored.decode("utf-8", "replace")
    try:
        yield
    finally:
        connection.text_factory = strict


def read_passages(connection: sqlite3.Connection, chunk_ids: Sequence[str]) -> dict[str, Passage]:
    """Those of the passages that exist; damaged ones are left out."""
    if not chunk_ids:
        return {}
    try:
        with readable(chunk_ids[0]):
            return {row[0]: _passage(row) for row in connection.execute(_PASSAGES, (json.dumps(list(chunk_ids)),))}
    except BackendDataError:
        if len(chunk_ids) > 1:  # those that can be read are found one by one
            return {id_: found for each in chunk_ids for id_, found in read_passages(connection, [each]).items()}
    logger.warning("the passage %s is damaged and left out; run `rag-context check`", chunk_ids[0])
    return {}


def read_chunks(connection: sqlite3.Connection, document_id: str) -> list[Chunk]:
    with readable(document_id):
        return [_chunk(row) for row in connection.execute(_CHUNKS, (document_id,))]


def read_document(connection: sqlite3.Connection, document_id: str) -> Document | None:
    with readable(document_id):
        row = connection.execute(_DOCUMENT, (document_id,)).fetchone()
        return None if row is None else _document(row)


def read_similar(connection: sqlite3.Connection, documents: Sequence[Document]) -> list[list[str]]:
    return [_similar(document, connection) for document in documents]


def _similar(document: Document, connection: sqlite3.Connection) -> list[str]:
    tenant = connection.execute(f"{TENANT[1:-1]}", tenant_values(document.tenant)).fetchone()
    hash_bits = unsigned(document.similarity_hash)
    if tenant is None or hash_bits == 0:
        return []
    bands = {f"band_{number}": (hash_bits >> 16 * number) & 65535 for number in range(4)}
    return sorted(
        id_
        for id_, other in connection.execute(_SIMILAR, {"tenant": tenant[0], **bands})
        if id_ != document.id and are_similar(hash_bits, other)
    )


def read_pending(connection: sqlite3.Connection, limit: int) -> list[str]:
    rows = connection.execute("SELECT id FROM documents WHERE status = 'pending' ORDER BY key LIMIT ?", (limit,))
    return [id_ for (id_,) in rows]


def read_matching(connection: sqlite3.Connection, where: Filter, limit: int) -> list[str]:
    clauses, values = condition(where)
    statement = f"SELECT d.id FROM documents AS d WHERE {clauses} ORDER BY d.key LIMIT ?"  # noqa: S608  (values are bound)
    return [id_ for (id_,) in connection.execute(statement, (*values, limit))]


def read_counts(connection: sqlite3.Connection) -> Counts:
    return Counts(*connection.execute("SELECT documents, pending, chunks, vectors FROM totals").fetchone())


def read_missing_vectors(connection: sqlite3.Connection, has_split_vectors: bool, where: Filter) -> Missing:
    """Reads pending documents only, as long as there are any; all that pass the filter where others lost vectors."""
    counts = read_counts(connection)
    if not counts.pending and (has_split_vectors or counts.vectors >= counts.chunks):
        return Missing()
    clauses, values = condition(where, CHUNK_TIME)
    if counts.pending:
        lacking = _VISIBLE.format(index=" INDEXED BY documents_pending", where=f"d.status = 'pending' AND {clauses}")
    else:
        lacking = _VISIBLE.format(index="", where=clauses)
    missing: int = connection.execute(lacking if has_split_vectors else lacking + _LACKS, values).fetchone()[0]
    if not missing:
        return Missing()
    return Missing(missing, connection.execute(_VISIBLE.format(index="", where=clauses), values).fetchone()[0])


def read_listing(
    connection: sqlite3.Connection, where: Filter, *, limit: int, after: Cursor | None = None
) -> list[Listing]:
    clauses, values = condition(where)
    at, id_ = (_AFTER_ALL, "") if after is None else (microseconds(after.timestamp), after.id)
    rows = connection.execute(_LISTING.format(condition=clauses), (*values, at, at, id_, limit))
    return [_listing(row) for row in rows]


def read_groups(connection: sqlite3.Connection, where: Filter) -> list[DocumentGroup]:
    clauses, values = condition(where)
    # Division truncates: a day before 1970 is one less.
    day = f"(d.occurred_at - (d.occurred_at < 0) * {DAY_US - 1}) / {DAY_US}"
    rows = connection.execute(
        f"""SELECT d.content_type, d.agent, d.session_id, d.tags, {day}, count(*), max(d.occurred_at)
            FROM documents AS d WHERE {clauses} GROUP BY 1, 2, 3, 4, 5""",  # noqa: S608  (values are bound)
        values,
    )
    return [
        DocumentGroup(kind, agent, session, tuple(json.loads(tags)), *rest)
        for kind, agent, session, tags, *rest in rows
    ]


def read_periods(connection: sqlite3.Connection) -> Periods | None:
    # One bound each: SQLite reads it off the end of an index, and both together from the whole table.
    row = connection.execute(_PERIODS).fetchone()
    if row[0] is None:
        return None
    first, last, indexed_first, indexed_last = map(moment, row)
    return Periods(Period(first, last), Period(indexed_first, indexed_last))


def read_states(connection: sqlite3.Connection, document_ids: Sequence[str]) -> dict[str, Stored]:
    statement = f"{_STORED} WHERE d.id IN (SELECT value FROM json_each(?))"  # noqa: S608  (values are bound)
    rows = connection.execute(statement, (json.dumps(list(document_ids)),))
    return {row[0]: _state(row) for row in rows}


def read_inventory(connection: sqlite3.Connection, after: str, limit: int) -> dict[str, Stored]:
    rows = connection.execute(f"{_STORED} WHERE d.id > ? ORDER BY d.id LIMIT ?", (after, limit))
    return {row[0]: _state(row) for row in rows}


def read_content_hashes(connection: sqlite3.Connection, document_ids: Sequence[str]) -> dict[str, str]:
    rows = connection.execute(
        "SELECT d.id, d.content_hash FROM json_each(?) AS requested JOIN documents AS d ON d.id = requested.value",
        (json.dumps(list(document_ids)),),
    )
    return dict(rows.fetchall())


def read_tenants(connection: sqlite3.Connection) -> list[Tenant]:
    rows = connection.execute(
        """SELECT project, branch, path_hash FROM tenants AS t
           WHERE EXISTS (SELECT 1 FROM documents AS d WHERE d.tenant = t.key) ORDER BY t.key"""
    )
    return [Tenant(*row) for row in rows]


def read_tenant_state(connection: sqlite3.Connection, tenant: Tenant) -> TenantState:
    *state, documents = connection.execute(_TENANT_STATE, tenant_values(tenant)).fetchone()
    return TenantState(":".join(map(str, state)), documents)


def read_retrievals(connection: sqlite3.Connection, document_id: str) -> Retrievals:
    row = connection.execute(
        """SELECT r.query_count, r.last_retrieved
           FROM documents AS d JOIN retrievals AS r ON r.document = d.key WHERE d.id = ?""",
        (document_id,),
    ).fetchone()
    return Retrievals() if row is None else Retrievals(row[0], moment(row[1]))


def _listing(row: Row) -> Listing:
    id_, occurred_at, status, origin, *document = row
    with readable(id_):
        return Listing(id_, moment(occurred_at), status == INDEXED, Origin.stored(origin), **_described(document))


def _described(row: Row) -> dict[str, Any]:
    kind, session, source, title, at, *metadata = row
    texts = {"content_type": kind, "session_id": session, "source": source, "title": title}
    return {**texts, "timestamp": moment(at), "metadata": read_metadata(metadata)}


def _state(row: Sequence[str]) -> Stored:
    _, content_hash, status, occurred_at, origin, path_hash, ids = row
    return Stored(
        content_hash,
        status == INDEXED,
        tuple(json.loads(ids)),
        moment(int(occurred_at)),
        Origin.stored(origin),
        Tenant(path_hash=path_hash).shelf,
    )


def document_row(document: Document, tenant: int, status: str) -> dict[str, Any]:
    """A row of `documents` by column; `tenant` is the key of its tenant."""
    metadata = document.metadata
    return {
        "id": document.id,
        "tenant": tenant,
        "content_type": document.content_type,
        "session_id": document.session_id,
        "source": document.source,
        "title": document.title,
        "content_hash": document.content_hash,
        "timestamp": microseconds(document.timestamp),
        "occurred_at": microseconds(document.occurred_at),
        "message_times": packed_times(document.message_times),
        **{name: getattr(metadata, name) for name in TEXT_FIELDS},
        "tags": json.dumps(list(metadata.tags), ensure_ascii=False),
        "extra": json.dumps(dict(metadata.extra), ensure_ascii=False),
        "thread": document.thread,
        "similarity_hash": signed(document.similarity_hash),
        "status": status,
        "origin": document.origin,
    }


def _document(row: Row) -> Document:
    id_, project, branch, path_hash, content, content_hash, *rest = row[:_DOCUMENT_WIDTH]
    occurred_at, thread, similarity, message_times, origin = rest
    return Document(
        id=id_,
        tenant=Tenant(project, branch, path_hash),
        content=content,
        content_hash=content_hash,
        occurred_at=moment(occurred_at),
        thread=thread,
        similarity_hash=unsigned(similarity),
        message_times=unpacked_times(message_times),
        origin=Origin.stored(origin),
        **_described(row[_DOCUMENT_WIDTH:]),
    )


def _passage(row: Row) -> Passage:
    return Passage(_chunk(row), row[1], **_described(row[_CHUNK_WIDTH:]))


def _chunk(row: Row) -> Chunk:
    id_, document, position, text, start, end, start_line, end_line, heading, context, *said = row[:_CHUNK_WIDTH]
    at, speaker, origin, standing = said
    return Chunk(
        id_,
        document,
        int(position),
        text,
        Span(int(start), int(end), int(start_line), int(end_line), heading),
        context,
        occurred_at=moment(at),
        speaker=speaker,
        origin=Origin.stored(origin),
        is_standing=bool(standing),
    )


def read_metadata(row: Row) -> Metadata:
    """The columns `METADATA` as an object. Raises: TypeError or ValueError if they are damaged."""
    *texts, tags, extra = row
    stated = dict(zip(TEXT_FIELDS, texts, strict=True))
    return Metadata(tags=tuple(json.loads(tags)), extra=dict(json.loads(extra)), **stated)

"""Reads documents and chunks: which of them, as SQL, and rows to domain objects."""

import json
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rag_context.domain.documents import Chunk, Document, Metadata, Span, Tenant, microseconds, moment, unpacked_times
from rag_context.domain.search import Filter, Passage
from rag_context.errors import BackendDataError
from rag_context.stores.sqlite.faults import COMPONENT, is_undecodable

Row = Sequence[Any]

CHUNK_TIME = "ifnull(c.occurred_at, d.occurred_at)"
METADATA = "d.agent, d.tags, d.category, d.game, d.decision_id, d.extra"
_CHUNK = 'c.id, d.id, c.position, p.text, c.start, c."end", c.start_line, c.end_line, c.heading, p.context'
_CHUNK = f"{_CHUNK}, {CHUNK_TIME}, c.speaker"
_CHUNK_WIDTH = 12
_DOCUMENT_WIDTH = 15

_PASSAGES = f"""
SELECT {_CHUNK}, d.title, d.content_type, d.session_id, d.source, d.timestamp, {METADATA}
FROM json_each(?) AS asked
CROSS JOIN chunks AS c ON c.id = asked.value
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
SELECT d.id, t.project, t.branch, t.path_hash, d.content_type, d.session_id, d.source, d.title, n.content,
       d.content_hash, d.timestamp, d.occurred_at, d.thread, d.similarity_hash, d.message_times, {METADATA}
FROM documents AS d
CROSS JOIN tenants AS t ON t.key = d.tenant
CROSS JOIN contents AS n ON n.document = d.key
WHERE d.id = ?
"""  # noqa: S608

_SIMILAR = " UNION ".join(
    f"SELECT id, similarity_hash FROM documents WHERE tenant = :tenant AND similarity_hash <> 0"  # noqa: S608
    f" AND {band} = :band_{number}"
    for number, band in enumerate(
        ("similarity_hash & 65535", *(f"(similarity_hash >> {16 * n}) & 65535" for n in (1, 2, 3)))
    )
)

MOST_DIFFERENT_BITS = 3
_SIGN = 1 << 63
_ALL = (1 << 64) - 1

logger = logging.getLogger(__name__)


@contextmanager
def readable(document_id: str) -> Iterator[None]:
    """Read a document's rows inside the block.

    Raises:
        BackendDataError: the rows have invalid values.
    """
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
    connection.text_factory = lambda held: held.decode("utf-8", "replace")
    try:
        yield
    finally:
        connection.text_factory = strict


def signed(hash_64: int) -> int:
    """64 bits as SQLite keeps them."""
    return (hash_64 & _ALL) - (1 << 64) if hash_64 & _SIGN else hash_64 & _ALL


def read_passages(chunk_ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, Passage]:
    """Those of the passages that exist; damaged ones are left out."""
    try:
        with readable(chunk_ids[0]):
            return {row[0]: _passage(row) for row in connection.execute(_PASSAGES, (json.dumps(chunk_ids),))}
    except BackendDataError:
        if len(chunk_ids) > 1:  # those that can be read are found one by one
            return {id_: found for each in chunk_ids for id_, found in read_passages([each], connection).items()}
    logger.warning("the passage %s is damaged and left out; run `rag-context check`", chunk_ids[0])
    return {}


def read_chunks(document_id: str, connection: sqlite3.Connection) -> list[Chunk]:
    """A document's chunks by position."""
    with readable(document_id):
        return [_chunk(row) for row in connection.execute(_CHUNKS, (document_id,))]


def read_document(document_id: str, connection: sqlite3.Connection) -> Document | None:
    """A document with its content."""
    with readable(document_id):
        row = connection.execute(_DOCUMENT, (document_id,)).fetchone()
        return None if row is None else _document(row)


def read_similar(document: Document, connection: sqlite3.Connection) -> list[str]:
    """Documents of the same tenant whose similarity hash is within three bits, by id."""
    tenant = connection.execute(
        "SELECT key FROM tenants WHERE project = ? AND branch = ? AND path_hash = ?",
        (document.tenant.project, document.tenant.branch, document.tenant.path_hash),
    ).fetchone()
    hash_bits = document.similarity_hash & _ALL
    if tenant is None or hash_bits == 0:
        return []
    bands = {f"band_{number}": (hash_bits >> 16 * number) & 65535 for number in range(4)}
    return sorted(
        id_
        for id_, other in connection.execute(_SIMILAR, {"tenant": tenant[0], **bands})
        if id_ != document.id and ((other & _ALL) ^ hash_bits).bit_count() <= MOST_DIFFERENT_BITS
    )


def _document(row: Row) -> Document:
    id_, project, branch, path_hash, kind, session, source, *rest = row[:_DOCUMENT_WIDTH]
    title, content, content_hash, at, occurred_at, thread, similarity, message_times = rest
    return Document(
        id=id_,
        tenant=Tenant(project, branch, path_hash),
        content_type=kind,
        session_id=session,
        source=source,
        title=title,
        content=content,
        content_hash=content_hash,
        timestamp=moment(at),
        occurred_at=moment(occurred_at),
        metadata=read_metadata(row[_DOCUMENT_WIDTH:]),
        thread=thread,
        similarity_hash=similarity & _ALL,
        message_times=unpacked_times(message_times),
    )


def _passage(row: Row) -> Passage:
    title, kind, session, source, at, *metadata = row[_CHUNK_WIDTH:]
    return Passage(
        chunk=_chunk(row),
        document_id=row[1],
        title=title,
        content_type=kind,
        session_id=session,
        source=source,
        timestamp=moment(at),
        metadata=read_metadata(metadata),
    )


def _chunk(row: Row) -> Chunk:
    id_, document, position, text, start, end, start_line, end_line, heading, context, at, speaker = row[:_CHUNK_WIDTH]
    span = Span(int(start), int(end), int(start_line), int(end_line), heading)
    return Chunk(id_, document, int(position), text, span, context, occurred_at=moment(at), speaker=speaker)


def read_metadata(row: Row) -> Metadata:
    """The columns `METADATA` as an object. Raises: TypeError or ValueError if they are damaged."""
    agent, tags, category, game, decision_id, extra = row
    return Metadata(agent, tuple(json.loads(tags)), category, game, decision_id, dict(json.loads(extra)))


TENANT = "(SELECT key FROM tenants WHERE project = ? AND branch = ? AND path_hash = ?)"

Parameter = str | int | bytes
Condition = tuple[str, tuple[Parameter, ...]]
"""SQL for a WHERE clause, and the values of its parameters."""


def tenant_values(tenant: Tenant) -> tuple[str, str, str]:
    """The values of the parameters of `TENANT`."""
    return tenant.project, tenant.branch, tenant.path_hash


def condition(where: Filter, time: str = "d.occurred_at") -> Condition:
    """`where` as SQL over documents AS d; `time` is what `since` and `until` bound."""
    parts = [f"d.tenant = {TENANT}"]
    values: list[Parameter] = [*tenant_values(where.tenant)]
    for column, value in (
        ("content_type", where.content_type),
        ("session_id", where.session_id),
        ("category", where.category),
        ("game", where.game),
        ("source", where.source),
    ):
        if value is not None:
            parts.append(f"d.{column} = ?")
            values.append(value)
    if where.source_prefix:
        # Bytes, because SQLite's text functions end at a NUL.
        prefix = where.source_prefix.encode()
        parts.append("substr(CAST(d.source AS BLOB), 1, ?) = ?")
        values.extend((len(prefix), prefix))
    for tag in where.tags:
        parts.append("EXISTS (SELECT 1 FROM document_tags AS g WHERE g.document = d.key AND g.tag = ?)")
        values.append(tag)
    for group in where.any_tags:
        marks = ", ".join("?" * len(group))
        parts.append(
            f"EXISTS (SELECT 1 FROM document_tags AS g WHERE g.document = d.key AND g.tag IN ({marks}))"  # noqa: S608
        )
        values.extend(group)
    if where.without_documents:
        parts.append(f"d.id NOT IN ({', '.join('?' * len(where.without_documents))})")
        values.extend(where.without_documents)
    if where.since is not None:
        parts.append(f"{time} >= ?")
        values.append(microseconds(where.since))
    if where.until is not None:
        parts.append(f"{time} < ?")
        values.append(microseconds(where.until))
    return " AND ".join(parts), tuple(values)

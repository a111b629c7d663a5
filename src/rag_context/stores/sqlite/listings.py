"""Reads documents without their texts: lists, status, and how often they were returned."""

import json
import sqlite3
from collections.abc import Sequence

from rag_context.domain.documents import Cursor, Listing, Retrievals, Stored, Tenant
from rag_context.domain.search import Filter
from rag_context.stores.sqlite.changes import INDEXED
from rag_context.stores.sqlite.filters import condition, microseconds, moment
from rag_context.stores.sqlite.passages import METADATA, read_metadata, readable

_LISTING = f"""
SELECT d.id, d.title, d.content_type, d.session_id, d.source, d.timestamp, d.status, {METADATA}
FROM documents AS d
WHERE {{condition}} AND (d.timestamp < ? OR (d.timestamp = ? AND d.id > ?))
ORDER BY d.timestamp DESC, d.id LIMIT ?
"""  # noqa: S608  (column lists of our own)

_STORED = """
SELECT d.id, d.content_hash, d.status,
       (SELECT json_group_array(id) FROM (SELECT id FROM chunks WHERE document = d.key ORDER BY position))
FROM documents AS d
"""

_AFTER_ALL = 1 << 62
"""Microseconds later than any moment that can be written."""


def read_listing(where: Filter, limit: int, after: Cursor | None, connection: sqlite3.Connection) -> list[Listing]:
    """The documents that pass, newest first, then by id; those after `after`."""
    clauses, values = condition(where)
    at, id_ = (_AFTER_ALL, "") if after is None else (microseconds(after.timestamp), after.id)
    rows = connection.execute(_LISTING.format(condition=clauses), (*values, at, at, id_, limit))
    return [_listing(row) for row in rows]


def read_stored(document_id: str, connection: sqlite3.Connection) -> Stored | None:
    """The content hash, status and chunk ids of a document; None if it is unknown."""
    row = connection.execute(f"{_STORED} WHERE d.id = ?", (document_id,)).fetchone()
    return None if row is None else _state(row)


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
    id_, title, kind, session, source, at, status, *metadata = row
    with readable(str(id_)):
        return Listing(
            id=str(id_),
            title=str(title),
            content_type=str(kind),
            session_id=str(session),
            source=str(source),
            timestamp=moment(int(str(at))),
            metadata=read_metadata(metadata),
            indexed=status == INDEXED,
        )


def _state(row: Sequence[str]) -> Stored:
    _, content_hash, status, ids = row
    return Stored(content_hash, status == INDEXED, tuple(json.loads(ids)))

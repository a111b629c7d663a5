"""The tables of the journal in the embedded file; `stores.sql_journal` has what is done with them."""

import json
import sqlite3
from collections.abc import Sequence
from typing import TypeVar

from rag_context.domain.documents import Tenant, chunk_ids
from rag_context.domain.journal import Cause, Size
from rag_context.ports.reading import completed
from rag_context.ports.writing import Version
from rag_context.stores import sql_journal
from rag_context.stores.sql_documents import PENDING, Row
from rag_context.stores.sql_journal import SqlJournal, Work
from rag_context.stores.sqlite import changes
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.document_rows import SqliteTables, run

T = TypeVar("T")

_SELECTING = {
    "document_id": "d.id = $4",
    "source": "d.source = $4",
    "session_id": "d.session_id = $4",
    "agent": "d.agent = $4",
    "tag": "EXISTS (SELECT 1 FROM document_tags AS g WHERE g.document = d.key AND g.tag = $4)",
    "contains": """EXISTS (SELECT 1 FROM contents AS n WHERE n.document = d.key
                           AND instr(casefold(n.content), casefold($4)) > 0)""",
}

_SIZES = """
WITH chosen AS (SELECT key FROM documents WHERE id IN (SELECT value FROM json_each(?))),
     parts AS (SELECT key FROM chunks WHERE document IN (SELECT key FROM chosen))
SELECT (SELECT count(*) FROM chosen), (SELECT count(*) FROM parts),
       (SELECT count(*) FROM vectors WHERE chunk IN (SELECT key FROM parts)),
       (SELECT count(*) FROM retrievals WHERE document IN (SELECT key FROM chosen))
       + (SELECT count(*) FROM document_tags WHERE document IN (SELECT key FROM chosen))
       + (SELECT count(*) FROM next_vectors WHERE chunk IN (SELECT key FROM parts))
"""

_CONTENT = "SELECT n.content FROM documents AS d CROSS JOIN contents AS n ON n.document = d.key WHERE d.id = ?"

_PARTS = """
SELECT c.position, c.start, c."end", c.start_line, c.end_line, c.heading, c.length, c.occurred_at, c.speaker,
       c.standing, c.origin, p.text, p.context, p.terms, v.vector
FROM chunks AS c CROSS JOIN passages AS p ON p.chunk = c.key LEFT JOIN vectors AS v ON v.chunk = c.key
WHERE c.document = ? ORDER BY c.position
"""


class SqliteJournalTables(SqliteTables):
    """`JournalTables` over a connection, inside one transaction."""

    selecting = _SELECTING

    async def fetch(self, statement: str, *values: object) -> Sequence[Row]:
        if "casefold(" in statement:
            self._connection.create_function("casefold", 1, str.casefold, deterministic=True)
        return await super().fetch(statement, *values)

    async def add_entry(self, statement: str, *values: object) -> int:
        return run(self._connection, statement, values).lastrowid or 0

    async def content(self, document_id: str) -> str:
        return str(self._connection.execute(_CONTENT, (document_id,)).fetchone()[0])

    async def tenant_key(self, tenant: Tenant) -> int:
        return changes.tenant_key(tenant, self._connection)

    async def take_turns(self, document_ids: Sequence[str]) -> None:
        """The file has one writer at a time."""

    async def move(self, number: int, old_id: str, new_id: str, tenant: Tenant) -> None:
        """Its chunks get keys of their own, by which indexes in memory follow."""
        connection = self._connection
        key = changes.tenant_key(tenant, connection)
        connection.execute("UPDATE documents SET id = ?, tenant = ? WHERE key = ?", (new_id, key, number))
        parts = connection.execute(_PARTS, (number,)).fetchall()
        if parts and all(part[14] is None for part in parts):  # another store has its vectors, under the old id
            connection.execute("UPDATE documents SET status = ? WHERE key = ?", (PENDING, number))
        if new_id == old_id:
            rows = connection.execute("SELECT id FROM chunks WHERE document = ? ORDER BY position", (number,))
            ids = [id_ for (id_,) in rows]
        else:
            ids = chunk_ids(new_id, [(context, text) for *_, text, context, _terms, _vector in parts])
        changes.remove_chunks([number], connection)
        first = changes.next_chunk_key(connection)
        new = list(enumerate(zip(ids, parts, strict=True), first))
        connection.executemany(
            "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(chunk, id_, number, *part[:11]) for chunk, (id_, part) in new],
        )
        connection.executemany(
            "INSERT INTO passages (chunk, text, context, terms) VALUES (?, ?, ?, ?)",
            [(chunk, *part[11:14]) for chunk, (_, part) in new],
        )
        changes.put_vectors([(chunk, part[14]) for chunk, (_, part) in new if part[14] is not None], connection)

    async def delete(self, document_ids: Sequence[str]) -> bool:
        return changes.delete_documents(document_ids, self._connection)

    async def forget_names(self) -> None:
        changes.forget_tenants(self._connection)


class SqliteJournal(SqlJournal):
    """`Journal` over the embedded file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _read(self, work: Work[T]) -> T:
        return await self._database.read(lambda connection: completed(work(SqliteJournalTables(connection))))

    async def _write(self, work: Work[T]) -> T:
        return await self._database.write(lambda connection: completed(work(SqliteJournalTables(connection))))

    async def sizes(self, document_ids: Sequence[str]) -> dict[str, Size]:
        ids = (json.dumps(list(document_ids)),)
        row = await self._database.read(lambda connection: connection.execute(_SIZES, ids).fetchone())
        return {"embedded": Size(*row)}


def write_recorded(
    version: Version, analysed: Sequence[tuple[int, bytes]], cause: Cause, connection: sqlite3.Connection
) -> bool:
    """As `changes.write_document`, with an entry (`sql_journal.write_recorded`)."""

    async def write() -> bool:
        return changes.write_document(version, analysed, connection)

    return completed(sql_journal.write_recorded(SqliteJournalTables(connection), version, cause, write))


def delete_recorded(document_id: str, cause: Cause, connection: sqlite3.Connection) -> bool:
    """Delete a document, with an entry."""
    return completed(sql_journal.delete_recorded(SqliteJournalTables(connection), document_id, cause))

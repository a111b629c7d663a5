"""The tables of the journal in PostgreSQL; `stores.sql_journal` has what is done with them.

What writes runs beside other writers; those of one document take turns.
"""

from collections.abc import Sequence
from typing import TypeVar

from rag_context.domain.documents import Tenant, chunk_ids, microseconds
from rag_context.domain.journal import Action, Cause, Move, Size, content_key, location_of
from rag_context.ports.writing import Version, WholeDocument
from rag_context.stores import sql_journal
from rag_context.stores.postgres import writer
from rag_context.stores.postgres.connection import Connection, PostgresDatabase
from rag_context.stores.postgres.rows import ChunkTerms, PostgresTables, read_text, stored, stored_value, worded
from rag_context.stores.postgres.state import IndexState, PostgresChange
from rag_context.stores.sql_documents import PENDING
from rag_context.stores.sql_journal import SqlJournal, Work, forgotten, moves_text

T = TypeVar("T")

_SELECTING = {
    "document_id": "d.id = $4",
    "source": "left(d.source, 256) = left($4, 256) AND d.source = $4",
    "session_id": "d.session_id = $4",
    "agent": "d.agent = $4",
    "tag": "d.tags @> ARRAY[$4::text]",
    "contains": "strpos(lower(d.content), lower($4)) > 0",
}

_SIZES = """
SELECT count(DISTINCT d.id), count(c.key), count(v.chunk), count(DISTINCT r.document)
FROM rag_context.documents AS d
LEFT JOIN rag_context.chunks AS c ON c.document = d.id
LEFT JOIN rag_context.vectors_{generation} AS v ON v.chunk = c.key
LEFT JOIN rag_context.retrievals AS r ON r.document = d.id
WHERE d.id = ANY ($1)
"""

_PARTS = """
SELECT c.key, c.length, p.text, p.context, EXISTS (
    SELECT 1 FROM rag_context.vectors_{generation} AS v WHERE v.chunk = c.key
) AS has_vector
FROM rag_context.chunks AS c JOIN rag_context.passages AS p ON p.chunk = c.key WHERE c.document = $1
ORDER BY c.position
"""

_NEW_IDS = """
UPDATE rag_context.chunks AS c SET id = n.id FROM unnest($1::bigint[], $2::text[]) AS n (key, id) WHERE c.key = n.key
"""


class PostgresJournalTables(PostgresTables):
    """`JournalTables` over a connection, inside one transaction; `counted` is its change of the counters."""

    selecting = _SELECTING

    def __init__(self, connection: Connection, counted: PostgresChange) -> None:
        super().__init__(connection)
        self._connection = connection
        self._counted = counted

    async def add_entry(self, statement: str, *values: object) -> int:
        return int(await self._connection.fetchval(f"{worded(statement)} RETURNING seq", *map(stored_value, values)))

    async def content(self, document_id: str) -> str:
        statement = "SELECT content FROM rag_context.documents WHERE id = $1"
        return read_text(await self._connection.fetchval(statement, stored(document_id)))

    async def tenant_key(self, tenant: Tenant) -> int:
        return await writer.tenant_key(self._connection, tenant)

    async def take_turns(self, document_ids: Sequence[str]) -> None:
        await writer.take_turns(self._connection, document_ids)

    async def move(self, number: int, old_id: str, new_id: str, tenant: Tenant) -> None:
        connection, counted = self._connection, self._counted
        key = await writer.tenant_key(connection, tenant)
        old_tenant, status = await connection.fetchrow(
            "SELECT tenant, status FROM rag_context.documents WHERE sequence = $1", number
        )
        await connection.execute(
            "UPDATE rag_context.documents SET id = $2, tenant = $3 WHERE sequence = $1", number, stored(new_id), key
        )
        parts = await connection.fetch(_PARTS.format(generation=counted.generation), stored(new_id))
        keys = [part["key"] for part in parts]
        await connection.execute("UPDATE rag_context.chunks SET tenant = $2 WHERE key = ANY ($1)", keys, key)
        if new_id != old_id:
            texts = [(read_text(part["context"]), read_text(part["text"])) for part in parts]
            await connection.execute(_NEW_IDS, keys, chunk_ids(new_id, texts))
        for difference, sign in ((counted.of(old_tenant), -1), (counted.of(key), 1)):
            difference.documents += sign
            difference.pending += sign * (status == PENDING)
            difference.chunks += sign * len(parts)
            difference.turnover += len(parts)
            difference.terms += sign * sum(part["length"] for part in parts)
            difference.vectors += sign * sum(part["has_vector"] for part in parts)

    async def delete(self, document_ids: Sequence[str]) -> bool:
        return any([await writer.delete_document(self._connection, self._counted, each) for each in document_ids])

    async def forget_names(self) -> None:
        """`IndexState.fold` does, when no writer has read the number of such a tenant."""


class PostgresJournal(SqlJournal):
    """`Journal` over one database."""

    def __init__(self, database: PostgresDatabase, state: IndexState) -> None:
        self._database = database
        self._state = state

    async def _read(self, work: Work[T]) -> T:
        nothing = PostgresChange(0, None, None)
        return await self._database.read(lambda connection: work(PostgresJournalTables(connection, nothing)))

    async def _write(self, work: Work[T]) -> T:
        return await self._state.change(lambda connection, counted: work(PostgresJournalTables(connection, counted)))

    async def sizes(self, document_ids: Sequence[str]) -> dict[str, Size]:
        generation = (await self._state.current()).generation
        row = await self._database.fetchrow(_SIZES.format(generation=generation), list(map(stored, document_ids)))
        return {"postgres": Size() if row is None else Size(*row)}


async def write_recorded(
    connection: Connection, counted: PostgresChange, version: Version, words: Sequence[ChunkTerms], cause: Cause
) -> None:
    """As `writer.write_document`, with an entry (`sql_journal.write_recorded`)."""
    tables = PostgresJournalTables(connection, counted)
    await sql_journal.write_recorded(
        tables, version, cause, lambda: writer.write_document(connection, counted, version, words)
    )


async def write_new_recorded(
    connection: Connection,
    counted: PostgresChange,
    documents: Sequence[WholeDocument],
    words: Sequence[Sequence[ChunkTerms]],
    made_by: str | None,
    cause: Cause,
) -> list[str]:
    """As `writer.write_new`, with an entry for each document; without those that were forgotten."""
    visible = {document.id: document for document, _, _ in documents if document.tenant.shelf is None}
    keys = {id_: content_key(document.tenant, document.content) for id_, document in visible.items()}
    gone = await forgotten(PostgresJournalTables(connection, counted), keys)
    kept = [each for each in zip(documents, words, strict=True) if each[0][0].id not in gone]
    ids = await writer.write_new(connection, counted, [each for each, _ in kept], [each for _, each in kept], made_by)
    rows = []
    for document in (visible[id_] for id_ in ids if id_ in visible):
        tenant = await writer.tenant_key(connection, document.tenant)
        moves = moves_text([Move(None, location_of(document))])
        rows.append((microseconds(cause.at), stored(cause.by), Action.INDEX.value, tenant, moves))
    await writer.copy_rows(connection, "journal", ("at", "actor", "action", "tenant", "moves"), rows)
    return ids


async def delete_recorded(connection: Connection, counted: PostgresChange, document_id: str, cause: Cause) -> bool:
    """As `writer.delete_document`, with an entry."""
    return await sql_journal.delete_recorded(PostgresJournalTables(connection, counted), document_id, cause)

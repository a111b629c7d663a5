"""Which model made the vectors of the index; and other vectors beside those in use, and the switch to them."""

import json
import sqlite3
import time
from collections.abc import Callable, Collection
from dataclasses import asdict

from rag_context.domain.vectors import EmbeddingModel, Matrix, Rebuild
from rag_context.ports.writing import can_switch, no_rebuild, require_comparable, require_shape
from rag_context.stores.sql_documents import INDEXED, PENDING
from rag_context.stores.sqlite.changes import blobs_of, forget_old_deletions
from rag_context.stores.sqlite.database import Database, reading, writing
from rag_context.stores.sqlite.faults import COMPONENT

_NAME = "model"

MODEL = "next_model"

TOUCHED = "next_touched"

_LACKS = """
EXISTS (
    SELECT 1 FROM chunks AS c WHERE c.document = d.key
    AND NOT EXISTS (SELECT 1 FROM next_vectors AS n WHERE n.chunk = c.key)
)
"""

_SCHEMA = """
SELECT sql FROM sqlite_master
WHERE (type = 'table' AND name = 'next_vectors')
   OR (type = 'trigger' AND (tbl_name = 'vectors' OR name = 'chunks_replaced'))
ORDER BY type
"""
"""What is created again after the switch; tables come before triggers."""


def read_model(connection: sqlite3.Connection) -> EmbeddingModel | None:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_NAME,)).fetchone()
    return None if row is None else EmbeddingModel.from_record(json.loads(row[0]))


def record_model(model: EmbeddingModel, connection: sqlite3.Connection) -> None:
    """Record `model`, unless the index has vectors of another model. Raises: IndexMismatchError (it has)."""
    recorded = read_model(connection)
    made: int = connection.execute("SELECT vectors > 0 OR documents > pending FROM totals").fetchone()[0]
    if recorded is not None and made:
        require_comparable(recorded, model)
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (_NAME, json.dumps(asdict(model))),
    )


def forget_vectors(connection: sqlite3.Connection) -> int:
    """Drop all vectors and the model; every document becomes pending. Returns how many documents there are.

    So do those that were being made beside them.
    """
    connection.execute("DELETE FROM meta WHERE name IN (?, 'next_model', 'next_touched')", (_NAME,))
    connection.execute("DELETE FROM vectors")
    connection.execute("DELETE FROM next_vectors")
    connection.execute("UPDATE totals SET version = version + 1, vectors_epoch = vectors_epoch + 1")
    forget_old_deletions(connection)
    connection.execute("UPDATE documents SET status = ? WHERE status <> ?", (PENDING, PENDING))
    return int(connection.execute("SELECT documents FROM totals").fetchone()[0])


class SqliteRebuilder:
    """`VectorRebuilder` within the embedded file."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    @reading
    def under_way(self, connection: sqlite3.Connection) -> Rebuild | None:
        return read_run(connection)

    @writing
    def begin(self, connection: sqlite3.Connection, model: EmbeddingModel) -> bool:
        run = read_run(connection)
        if run is not None and run.model.fingerprint == model.fingerprint:
            return False
        forget_rebuild(connection)
        begun = (MODEL, json.dumps(asdict(model)), TOUCHED, self._now())
        connection.execute("INSERT INTO meta VALUES (?, ?), (?, ?)", begun)
        return True

    @reading
    def missing(self, connection: sqlite3.Connection, after: str, limit: int) -> list[str]:
        return _lacking(after, limit, connection)

    @reading
    def remaining(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute(f"SELECT count(*) FROM documents AS d WHERE {_LACKS}").fetchone()[0])  # noqa: S608

    @writing
    def add(
        self, connection: sqlite3.Connection, document_id: str, content_hash: str, vectors: Matrix, made_by: str
    ) -> bool:
        _require_run(made_by, connection)
        chunks = [
            key
            for (key,) in connection.execute(
                """SELECT c.key FROM documents AS d CROSS JOIN chunks AS c ON c.document = d.key
                   WHERE d.id = ? AND d.content_hash = ? ORDER BY c.position""",
                (document_id, content_hash),
            )
        ]
        if not chunks:
            return False
        require_shape(COMPONENT, vectors, len(chunks))
        connection.executemany(
            """INSERT INTO next_vectors (chunk, vector) VALUES (?, ?)
               ON CONFLICT (chunk) DO UPDATE SET vector = excluded.vector""",
            zip(chunks, blobs_of(vectors), strict=True),
        )
        connection.execute("UPDATE meta SET value = ? WHERE name = ?", (self._now(), TOUCHED))
        return True

    @writing
    def switch(self, connection: sqlite3.Connection, made_by: str, without: Collection[str]) -> bool:
        """Rename one table to the other's name, which takes the same time for any number of vectors."""
        _require_run(made_by, connection)
        documents: int = connection.execute("SELECT documents FROM totals").fetchone()[0]
        lacking = _lacking("", -1, connection)
        if not can_switch(lacking, without, documents):
            return False
        # Read before the table goes: the statements that made it make the next one empty.
        schema = [sql for (sql,) in connection.execute(_SCHEMA)]
        connection.execute("DROP TABLE vectors")  # its triggers go with it, and do not fire
        connection.execute("DROP TRIGGER chunks_replaced")  # or it would follow the new table's name
        connection.execute("ALTER TABLE next_vectors RENAME TO vectors")
        for statement in schema:
            connection.execute(statement)
        connection.execute("INSERT OR REPLACE INTO meta SELECT 'model', value FROM meta WHERE name = ?", (MODEL,))
        connection.execute("DELETE FROM meta WHERE name IN (?, ?)", (MODEL, TOUCHED))
        connection.execute("UPDATE documents SET status = ? WHERE status <> ?", (INDEXED, INDEXED))
        connection.execute(
            "UPDATE documents SET status = ? WHERE id IN (SELECT value FROM json_each(?))",
            (PENDING, json.dumps(lacking)),
        )
        connection.execute(
            """UPDATE totals SET version = version + 1, vectors_epoch = vectors_epoch + 1,
               vectors = (SELECT count(*) FROM vectors)"""
        )
        return True

    @writing
    def abandon(self, connection: sqlite3.Connection) -> None:
        forget_rebuild(connection)


def forget_rebuild(connection: sqlite3.Connection) -> None:
    """Delete the run under way and its vectors; the space is used again."""
    connection.execute("DELETE FROM meta WHERE name IN (?, ?)", (MODEL, TOUCHED))
    connection.execute("DELETE FROM next_vectors")


def read_run(connection: sqlite3.Connection) -> Rebuild | None:
    recorded = dict(connection.execute("SELECT name, value FROM meta WHERE name IN (?, ?)", (MODEL, TOUCHED)))
    if MODEL not in recorded:
        return None
    return Rebuild(EmbeddingModel.from_record(json.loads(recorded[MODEL])), float(recorded[TOUCHED]))


def _lacking(after: str, limit: int, connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        f"SELECT id FROM documents AS d WHERE id > ? AND {_LACKS} ORDER BY id LIMIT ?",  # noqa: S608
        (after, limit),
    )
    return [id_ for (id_,) in rows]


def _require_run(made_by: str, connection: sqlite3.Connection) -> None:
    run = read_run(connection)
    if run is None or run.model.fingerprint != made_by:
        raise no_rebuild(COMPONENT)

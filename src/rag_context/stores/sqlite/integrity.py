"""Checks the index in one snapshot while it is in use, and repairs what a check found.

Each repair is one transaction; after a crash the remaining ones run again.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator
from functools import partial

import numpy as np

from rag_context.domain.documents import EPOCH, Chunk, Counts, Span, moment
from rag_context.domain.reports import COMPARED, COUNTERS, Findings, IntegrityReport, IssueKind, Thoroughness
from rag_context.domain.text import terms
from rag_context.domain.vectors import EmbeddingModel
from rag_context.errors import BackendDataError
from rag_context.ports.reading import completed
from rag_context.ports.writing import NORM_TOLERANCE, DocumentCheck
from rag_context.stores.sql_documents import PENDING, read_chunks, read_document
from rag_context.stores.sqlite.changes import note_change_of_all
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.document_rows import SqliteTables, lenient
from rag_context.stores.sqlite.memory.terms import packed
from rag_context.stores.sqlite.search_rollups import SLOT_US, sum_up_again
from rag_context.stores.sqlite.vector_models import forget_vectors, read_model

_BATCH = 1024

RECOUNTED = """
SELECT (SELECT count(*) FROM documents),
       (SELECT count(*) FROM documents WHERE status = 'pending'),
       (SELECT count(*) FROM chunks),
       (SELECT count(*) FROM vectors),
       (SELECT ifnull(sum(length), 0) FROM chunks)
"""

OF_TENANT = "SELECT count(*) FROM documents AS d WHERE d.tenant = tenants.key"

ORPHANS = {
    "vectors": "chunk NOT IN (SELECT c.key FROM chunks AS c JOIN documents AS d ON d.key = c.document)",
    "passages": "chunk NOT IN (SELECT c.key FROM chunks AS c JOIN documents AS d ON d.key = c.document)",
    "chunks": "document NOT IN (SELECT key FROM documents)",
    "contents": "document NOT IN (SELECT key FROM documents)",
    "document_tags": "document NOT IN (SELECT key FROM documents)",
    "retrievals": "document NOT IN (SELECT key FROM documents)",
}

INCOMPLETE = """
status = 'indexed' AND EXISTS (
    SELECT 1 FROM chunks AS c WHERE c.document = documents.key
    AND NOT EXISTS (SELECT 1 FROM vectors AS v WHERE v.chunk = c.key)
)
"""

WRONGLY_TAGGED = """
EXISTS (
    SELECT value FROM json_each(CASE WHEN json_valid(documents.tags) THEN documents.tags ELSE '[]' END)
    EXCEPT SELECT tag FROM document_tags AS g WHERE g.document = documents.key
) OR EXISTS (
    SELECT tag FROM document_tags AS g WHERE g.document = documents.key
    EXCEPT SELECT value FROM json_each(CASE WHEN json_valid(documents.tags) THEN documents.tags ELSE '[]' END)
)
"""

ANALYSED_AT_ONCE = 500
"""Chunks whose terms are analysed again in one transaction: other writes run in between."""

_ANALYSED = """
SELECT p.chunk, p.text, p.context, p.terms, c.length
FROM passages AS p CROSS JOIN chunks AS c ON c.key = p.chunk
WHERE p.chunk > ? ORDER BY p.chunk LIMIT ?
"""


def examine(check: DocumentCheck, thoroughness: Thoroughness, connection: sqlite3.Connection) -> IntegrityReport:
    """Check all rows for consistency. A damaged file is not examined any further."""
    found = Findings()
    integrity_check = "quick_check" if thoroughness is Thoroughness.QUICK else "integrity_check"
    for row in connection.execute(f"PRAGMA {integrity_check}(100)"):
        if row[0] != "ok":
            found.add(IssueKind.DAMAGED_FILE, row[0])
    damaged_file = found.report(Counts(0, 0, 0, 0), 0)
    if damaged_file.issues:
        return damaged_file
    counts = _check_counters(connection, found)
    _check_orphans(connection, found)
    _check_documents(check, connection, found)
    step = max(1, counts.chunks // COMPARED) if thoroughness is Thoroughness.QUICK else 1
    with lenient(connection):
        compared = _check_terms(step, connection, found)
    _check_vectors(connection, found)
    _check_rollups(connection, found)
    return found.report(counts, compared)


def find_bad_vectors(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Chunks (key and id) whose vector is of another length than the model's, not finite, or not of norm 1."""
    model = recorded_model(connection)
    size = None if model is None else 4 * model.dimension  # bytes
    rows = connection.execute(
        "SELECT v.chunk, ifnull(c.id, v.chunk), v.vector FROM vectors AS v LEFT JOIN chunks AS c ON c.key = v.chunk"
    )
    while batch := rows.fetchmany(_BATCH):
        size = max(len(batch[0][2]) // 4, 1) * 4 if size is None else size
        fitting = [row for row in batch if len(row[2]) == size]
        yield from ((key, str(id_)) for key, id_, vector in batch if len(vector) != size)
        matrix = np.frombuffer(b"".join([row[2] for row in fitting]), dtype="<f4").reshape(len(fitting), size // 4)
        norms = np.linalg.norm(matrix.astype(np.float64), axis=1)
        for number in np.flatnonzero(~(np.abs(norms - 1.0) <= NORM_TOLERANCE)).tolist():  # a NaN is not close either
            yield fitting[number][0], str(fitting[number][1])


def recorded_model(connection: sqlite3.Connection) -> EmbeddingModel | None:
    """The recorded model; None if none is recorded, or it is invalid."""
    try:
        return read_model(connection)
    except (ValueError, KeyError, TypeError):
        return None


def stored_form(text: str, context: str) -> list[str]:
    return terms(Chunk("", "", 0, text, Span(0, 0, 0, 0), context, occurred_at=EPOCH).searchable)


def _check_counters(connection: sqlite3.Connection, found: Findings) -> Counts:
    recorded = connection.execute(f"SELECT {', '.join(COUNTERS)} FROM totals").fetchone()  # noqa: S608
    counted = connection.execute(RECOUNTED).fetchone()
    found.compare_counters(recorded, counted)
    for (key,) in connection.execute(f"SELECT key FROM tenants WHERE documents <> ({OF_TENANT})"):  # noqa: S608
        found.add(IssueKind.WRONG_COUNTERS, f"documents of tenant {key}")
    return Counts(*counted[:4])


def _check_orphans(connection: sqlite3.Connection, found: Findings) -> None:
    for table, lost in ORPHANS.items():
        key = "chunk" if table in ("vectors", "passages") else "key" if table == "chunks" else "document"
        for (number,) in connection.execute(f"SELECT {key} FROM {table} WHERE {lost}"):  # noqa: S608
            found.add(IssueKind.ORPHANS, f"{table} {number}")


def _check_documents(check: DocumentCheck, connection: sqlite3.Connection, found: Findings) -> None:
    for kind, condition in ((IssueKind.MISSING_VECTORS, INCOMPLETE), (IssueKind.WRONG_TAGS, WRONGLY_TAGGED)):
        for (id_,) in connection.execute(f"SELECT id FROM documents WHERE {condition}"):  # noqa: S608
            found.add(kind, id_)
    for (id_,) in connection.execute("SELECT id FROM documents WHERE tenant NOT IN (SELECT key FROM tenants)"):
        found.add(IssueKind.WRONG_ID, id_)
    for (id_,) in connection.execute("SELECT id FROM documents WHERE key NOT IN (SELECT document FROM contents)"):
        found.add_document(id_, [IssueKind.LOST_CONTENT])
    for (id_,) in connection.execute("SELECT id FROM documents ORDER BY key"):
        found.add_document(id_, _kinds(check, id_, connection))


def _kinds(check: DocumentCheck, id_: str, connection: sqlite3.Connection) -> set[IssueKind]:
    try:
        document = completed(read_document(SqliteTables(connection), id_))
    except BackendDataError:
        return {IssueKind.LOST_CONTENT}
    if document is None:
        return set()
    try:
        chunks = completed(read_chunks(SqliteTables(connection), id_))
    except BackendDataError:
        chunks = []  # rechunking repairs them
    return set(check(document, chunks))


def _check_terms(step: int, connection: sqlite3.Connection, found: Findings) -> int:
    """Compare the stored terms of each `step`th chunk with the analyser's."""
    compared = 0
    rows = connection.execute(
        """SELECT c.id, c.length, p.text, p.context, p.terms
           FROM passages AS p CROSS JOIN chunks AS c ON c.key = p.chunk WHERE p.chunk % ? = 0""",
        (step,),
    )
    for id_, length, text, context, stored in rows:
        compared += 1
        fresh = stored_form(text, context)
        if packed(fresh) != stored or len(fresh) != length:
            found.add(IssueKind.STALE_TERMS, id_)
    return compared


def _check_vectors(connection: sqlite3.Connection, found: Findings) -> None:
    for _, id_ in find_bad_vectors(connection):
        found.add(IssueKind.BAD_VECTORS, id_)
    unknown = recorded_model(connection) is None
    (recorded,) = connection.execute("SELECT count(*) FROM meta WHERE name = 'model'").fetchone()
    (vectors,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
    if unknown and (recorded or vectors):
        found.add(IssueKind.NO_MODEL, f"{vectors} vectors")


def _check_rollups(connection: sqlite3.Connection, found: Findings) -> None:
    counted = dict(connection.execute("SELECT timestamp / ? AS slot, count(*) FROM searches GROUP BY slot", (SLOT_US,)))
    totals = dict(connection.execute("SELECT slot, queries FROM search_sums"))
    tallied = dict(
        connection.execute("SELECT slot, sum(queries) FROM search_tallies WHERE kind = 'level' GROUP BY slot")
    )
    for slot in sorted(counted.keys() | totals.keys() | tallied.keys()):
        if not counted.get(slot) == totals.get(slot) == tallied.get(slot):
            found.add(IssueKind.STATISTICS, moment(slot * SLOT_US).isoformat())


class SqliteAuditor:
    """`IndexAuditor` over the embedded file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def examine(self, check: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        found = await self._database.read(partial(examine, check, thoroughness))
        damage = self._database.file.damage
        for issue in found.issues:
            if issue.kind is IssueKind.DAMAGED_FILE:
                damage.note(issue.examples[0])
                return found
        damage.clear()
        return found

    async def repair(self, kinds: Collection[IssueKind]) -> None:
        for kind, repair in _REPAIRS.items():
            if kind in kinds:
                await self._database.write(repair)
        if IssueKind.STALE_TERMS in kinds:
            last = 0
            while (key := await self._database.write(partial(analyse_again, last))) is not None:
                last = key
        if kinds:
            await self._database.write(count_again)

    async def invalidate(self, document_ids: Collection[str]) -> None:
        def invalidated(connection: sqlite3.Connection) -> None:
            clear = "UPDATE documents SET content_hash = '' WHERE id IN (SELECT value FROM json_each(?))"
            connection.execute(clear, (json.dumps(list(document_ids)),))

        await self._database.write(invalidated)


def drop_orphans(connection: sqlite3.Connection) -> None:
    for table, lost in ORPHANS.items():
        connection.execute(f"DELETE FROM {table} WHERE {lost}")  # noqa: S608


def tag_again(connection: sqlite3.Connection) -> None:
    """Write the rows for filtering by tag again where they differ from the document's tags."""
    wrong = connection.execute(f"SELECT key FROM documents WHERE {WRONGLY_TAGGED}").fetchall()  # noqa: S608
    for (key,) in wrong:
        connection.execute("DELETE FROM document_tags WHERE document = ?", (key,))
        connection.execute(
            """INSERT OR IGNORE INTO document_tags
               SELECT d.key, t.value FROM documents AS d, json_each(d.tags) AS t
               WHERE json_valid(d.tags) AND d.key = ?""",
            (key,),
        )


def drop_bad_vectors(connection: sqlite3.Connection) -> None:
    """Delete invalid vectors; their documents are pending until they have new ones."""
    bad = [key for key, _ in find_bad_vectors(connection)]
    connection.execute("DELETE FROM vectors WHERE chunk IN (SELECT value FROM json_each(?))", (json.dumps(bad),))
    await_vectors(connection)


def await_vectors(connection: sqlite3.Connection) -> None:
    connection.execute(f"UPDATE documents SET status = ? WHERE {INCOMPLETE}", (PENDING,))  # noqa: S608


def analyse_again(after: int, connection: sqlite3.Connection) -> int | None:
    """Analyse the stale ones of the next chunks again; returns the last chunk, None at the end."""
    with lenient(connection):
        rows = connection.execute(_ANALYSED, (after, ANALYSED_AT_ONCE)).fetchall()
    for key, text, context, stored, length in rows:
        words = stored_form(text, context)
        if (packed(words), len(words)) == (stored, length):
            continue
        connection.execute("UPDATE passages SET terms = ? WHERE chunk = ?", (packed(words), key))
        connection.execute("UPDATE chunks SET length = ? WHERE key = ?", (len(words), key))
        connection.execute("UPDATE totals SET chunks_epoch = chunks_epoch + 1")
    return rows[-1][0] if rows else None


def count_again(connection: sqlite3.Connection) -> None:
    """Set the counters to the real counts; the version grows, so that cached answers are dropped."""
    counts = connection.execute(RECOUNTED).fetchone()
    connection.execute(
        """UPDATE totals SET version = version + 1,
           documents = ?, pending = ?, chunks = ?, vectors = ?, terms = ?""",
        counts,
    )
    connection.execute(f"UPDATE tenants SET documents = ({OF_TENANT})")  # noqa: S608  (a condition of our own)
    note_change_of_all(connection)


_REPAIRS: dict[IssueKind, Callable[[sqlite3.Connection], object]] = {
    IssueKind.ORPHANS: drop_orphans,
    IssueKind.WRONG_TAGS: tag_again,
    IssueKind.NO_MODEL: forget_vectors,
    IssueKind.BAD_VECTORS: drop_bad_vectors,
    IssueKind.MISSING_VECTORS: await_vectors,
    IssueKind.STATISTICS: sum_up_again,
}

"""Repairs what a check found. Each function is one transaction; after a crash the remaining ones run again."""

import sqlite3
from collections.abc import Callable, Collection
from functools import partial

from rag_context.domain.integrity import IntegrityReport, IssueKind, Thoroughness
from rag_context.ports.maintenance import DocumentCheck
from rag_context.stores.sqlite import audit
from rag_context.stores.sqlite.changes import PENDING
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.memory.terms import packed
from rag_context.stores.sqlite.passages import lenient
from rag_context.stores.sqlite.registry import forget_vectors
from rag_context.stores.sqlite.statistics import sum_up_again

ANALYSED_AT_ONCE = 500
"""Chunks whose terms are analysed again in one transaction: other writes run in between."""

_ANALYSED = """
SELECT p.chunk, p.text, p.context, p.terms, c.length
FROM passages AS p CROSS JOIN chunks AS c ON c.key = p.chunk
WHERE p.chunk > ? ORDER BY p.chunk LIMIT ?
"""


class SqliteAuditor:
    """`IndexAuditor` over the embedded file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def examine(self, check: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        """Examine the whole index in one snapshot; every document is passed to `check`.

        Raises:
            ForeignIndexError: the file is another program's, or a newer version's.
            BackendDataError: the index is too damaged to be examined.
            BackendError: it cannot be read now.
        """
        return await self._database.read(partial(audit.examine, check, thoroughness))

    async def repair(self, kinds: Collection[IssueKind]) -> None:
        """Repair the `kinds` that the store can repair by itself; valid data is unchanged.

        Raises:
            BackendError: the file could not be written; repairs before that stay.
        """
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
        """Clear the content hash of these documents, so that indexing their sources again replaces them.

        Raises:
            BackendError: the file could not be written.
        """
        await self._database.write(partial(forget_versions, document_ids))


def drop_orphans(connection: sqlite3.Connection) -> None:
    """Delete orphaned rows."""
    for table, lost in audit.ORPHANS.items():
        connection.execute(f"DELETE FROM {table} WHERE {lost}")  # noqa: S608


def tag_again(connection: sqlite3.Connection) -> None:
    """Write the rows for filtering by tag again where they differ from the document's tags."""
    wrong = connection.execute(f"SELECT key FROM documents WHERE {audit.WRONGLY_TAGGED}").fetchall()  # noqa: S608
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
    bad = [(key,) for key, _ in audit.find_bad_vectors(connection)]
    connection.executemany("DELETE FROM vectors WHERE chunk = ?", bad)
    await_vectors(connection)


def await_vectors(connection: sqlite3.Connection) -> None:
    """Make indexed documents pending that do not have all their vectors."""
    connection.execute(f"UPDATE documents SET status = ? WHERE {audit.INCOMPLETE}", (PENDING,))  # noqa: S608


def analyse_again(after: int, connection: sqlite3.Connection) -> int | None:
    """Analyse the stale ones of the next chunks again; returns the last chunk, None at the end."""
    with lenient(connection):
        rows = connection.execute(_ANALYSED, (after, ANALYSED_AT_ONCE)).fetchall()
    for key, text, context, stored, length in rows:
        words = audit.stored_form(text, context)
        if (packed(words), len(words)) == (stored, length):
            continue
        connection.execute("UPDATE passages SET terms = ? WHERE chunk = ?", (packed(words), key))
        connection.execute("UPDATE chunks SET length = ? WHERE key = ?", (len(words), key))
        connection.execute("UPDATE totals SET chunks_epoch = chunks_epoch + 1")
    return rows[-1][0] if rows else None


def forget_versions(document_ids: Collection[str], connection: sqlite3.Connection) -> None:
    """Clear the content hash of documents, so that it matches no version of their source."""
    connection.executemany("UPDATE documents SET content_hash = '' WHERE id = ?", [(id_,) for id_ in document_ids])


def count_again(connection: sqlite3.Connection) -> None:
    """Set the counters to the real counts; the version grows, so that cached answers are dropped."""
    counts = connection.execute(audit.RECOUNTED).fetchone()
    connection.execute(
        """UPDATE totals SET version = version + 1,
           documents = ?, pending = ?, chunks = ?, vectors = ?, terms = ?""",
        counts,
    )


_REPAIRS: dict[IssueKind, Callable[[sqlite3.Connection], object]] = {
    IssueKind.ORPHANS: drop_orphans,
    IssueKind.WRONG_TAGS: tag_again,
    IssueKind.NO_MODEL: forget_vectors,
    IssueKind.BAD_VECTORS: drop_bad_vectors,
    IssueKind.MISSING_VECTORS: await_vectors,
    IssueKind.STATISTICS: sum_up_again,
}

"""The SQL of collections: rows of the file to entries, and changes.

Each function that reads runs in one read snapshot, each that writes in one savepoint.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from rag_context.domain.documents import microseconds, moment
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendDataError
from rag_context.ports.provider import Collection, Entry
from rag_context.stores.engines import check_dimension, check_distinct, metadata_text, unknown_collection
from rag_context.stores.sqlite.changes import blobs_of
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.faults import COMPONENT
from rag_context.stores.sqlite.memory.vector_scan import matrix_of

REMOVED_AT_ONCE = 500
"""Entries; others that write wait for so many at most."""

_COLLECTIONS = (
    "SELECT name, metadata, embedding_provider, embedding_model, dimension, created, entries FROM collections"
)

_BY_SEQ = """
SELECT e.seq, e.id, t.text, e.metadata
FROM json_each(?) AS requested
CROSS JOIN entries AS e ON e.seq = requested.value
CROSS JOIN entry_texts AS t ON t.entry = e.seq
"""

_BY_ENTRY = "SELECT v.vector FROM json_each(?) AS requested CROSS JOIN entry_vectors AS v ON v.entry = requested.value"

_DIFFER = """
SELECT EXISTS (
    SELECT e.id, e.metadata, t.text FROM entries AS e CROSS JOIN entry_texts AS t ON t.entry = e.seq
    WHERE e.collection = :one
    EXCEPT
    SELECT e.id, e.metadata, t.text FROM entries AS e CROSS JOIN entry_texts AS t ON t.entry = e.seq
    WHERE e.collection = :other
)
"""


class CollectionRow(NamedTuple):
    """A row of the table of collections."""

    key: int
    dimension: int | None
    version: int
    entries: int


def find(name: str, connection: sqlite3.Connection) -> CollectionRow:
    """The row of a collection. Raises: NotFoundError (there is no collection of this name)."""
    row = connection.execute(
        "SELECT key, dimension, version, entries FROM collections WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        raise unknown_collection(name)
    return CollectionRow(*row)


def read_collection(name: str, connection: sqlite3.Connection) -> Collection:
    """A collection with its metadata. Raises: NotFoundError (there is no collection of this name)."""
    for found in read_collections(connection, "WHERE name = ?", name):
        return found
    raise unknown_collection(name)


def read_collections(connection: sqlite3.Connection, which: str, *values: str) -> Iterator[Collection]:
    """The collections that `which` (from WHERE or ORDER BY on) selects."""
    for row in connection.execute(f"{_COLLECTIONS} {which}", values):
        name, metadata, provider, model, dimension, created, entries = row
        yield Collection(name, json.loads(metadata), provider, model, dimension, moment(created), entries)


def read_entries(seqs: Sequence[int], connection: sqlite3.Connection) -> list[Entry]:
    rows = connection.execute(_BY_SEQ, (json.dumps(seqs),))
    found = {seq: Entry(id_, text, json.loads(metadata)) for seq, id_, text, metadata in rows}
    return [found[seq] for seq in seqs]


def read_matrix(connection: sqlite3.Connection, seqs: Sequence[int]) -> Matrix:
    """`(n, dim) float32`, the vectors of the entries of these numbers; at least one. Raises: BackendDataError."""
    stored = [vector for (vector,) in connection.execute(_BY_ENTRY, (json.dumps(seqs),))]
    if len(stored) < len(seqs):
        raise BackendDataError(COMPONENT, "Vectors of a collection were lost; copy it into a new one.")
    return matrix_of(stored, len(stored[0]) // 4)


def count_collections(connection: sqlite3.Connection) -> tuple[int, int]:
    """How many collections there are, and the size of the file in bytes."""
    row: tuple[int, int] = connection.execute(
        """SELECT (SELECT count(*) FROM collections),
                  (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)"""
    ).fetchone()
    return row


StoredEntry: TypeAlias = tuple[str, str, str, bytes]
"""An entry as it is stored: its id, metadata, text and vector."""


def stored_entries(entries: Sequence[Entry], vectors: Matrix) -> list[StoredEntry]:
    """Entries with their vectors (`(len(entries), dim) float32`), written out. Raises: InvalidInputError."""
    check_distinct(entries)
    return [
        (entry.id, metadata_text(entry.metadata), entry.text, vector)
        for entry, vector in zip(entries, blobs_of(vectors), strict=True)
    ]


def drop(name: str, connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM collections WHERE key = ?", (find(name, connection).key,))


def empty(name: str, connection: sqlite3.Connection) -> int:
    """Put an empty collection in its place; returns how many entries are to be removed."""
    collection = read_collection(name, connection)
    # Under a new key: as fast at every size, and no copy in memory of the old entries is used again.
    connection.execute("DELETE FROM collections WHERE name = ?", (name,))
    assert collection.created is not None  # noqa: S101  (every stored one has a date)
    insert(collection, collection.created, connection)
    return collection.count


def upsert(name: str, rows: Sequence[StoredEntry], dimension: int, connection: sqlite3.Connection) -> None:
    """Store entries, in place of those with their ids. Raises: InvalidInputError."""
    collection = find(name, connection)
    if not rows:
        return
    check_dimension(name, collection.dimension, dimension)
    if collection.dimension is None:
        connection.execute("UPDATE collections SET dimension = ? WHERE key = ?", (dimension, collection.key))
    # Not listed as deletions: a copy in memory replaces an entry when it reads the new row with its id.
    if collection.entries:
        replaced = [(collection.key, id_) for id_, *_ in rows]
        connection.executemany("DELETE FROM entries WHERE collection = ? AND id = ?", replaced)
    # Above all numbers that ever were: a copy in memory reads what is above the last one that it has read.
    first: int = connection.execute(
        "SELECT ifnull(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'entries'"
    ).fetchone()[0]
    named = [(seq, collection.key, id_, metadata) for seq, (id_, metadata, _, _) in enumerate(rows, first)]
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", named)
    connection.executemany("INSERT INTO entry_texts VALUES (?, ?)", enumerate([row[2] for row in rows], first))
    connection.executemany("INSERT INTO entry_vectors VALUES (?, ?)", enumerate([row[3] for row in rows], first))


def switch(name: str, built: str, connection: sqlite3.Connection) -> bool:
    """Put `built` in the place of `name`, under its labels and date; False where they hold different documents."""
    old, new = find(name, connection), find(built, connection)
    pairs = ({"one": old.key, "other": new.key}, {"one": new.key, "other": old.key})
    if old.entries != new.entries or any(connection.execute(_DIFFER, pair).fetchone()[0] for pair in pairs):
        return False
    row = connection.execute(
        "SELECT embedding_provider, embedding_model, created FROM collections WHERE key = ?", (old.key,)
    ).fetchone()
    connection.execute("DELETE FROM collections WHERE key = ?", (old.key,))
    connection.execute(
        "UPDATE collections SET name = ?, embedding_provider = ?, embedding_model = ?, created = ? WHERE key = ?",
        (name, *row, new.key),
    )
    return True


async def remove_discarded(database: Database) -> bool:
    # Read first: a write would take the file's lock, though mostly there is nothing to remove.
    return await database.read(_discarded) is not None and await database.write(_remove_discarded)


def _discarded(connection: sqlite3.Connection) -> Any:
    return connection.execute("SELECT key FROM discarded_collections LIMIT 1").fetchone()


def _remove_discarded(connection: sqlite3.Connection) -> bool:
    row = _discarded(connection)
    if row is None:
        return False
    removed = connection.execute(
        "DELETE FROM entries WHERE seq IN (SELECT seq FROM entries WHERE collection = ? LIMIT ?)",
        (row[0], REMOVED_AT_ONCE),
    ).rowcount
    if removed < REMOVED_AT_ONCE:
        connection.execute("DELETE FROM discarded_collections WHERE key = ?", row)
    return True


def insert(collection: Collection, created: datetime, connection: sqlite3.Connection) -> bool:
    inserted = connection.execute(
        """INSERT INTO collections (name, metadata, embedding_provider, embedding_model, dimension, created)
           VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING""",
        (
            collection.name,
            metadata_text(collection.metadata),
            collection.embedding_provider,
            collection.embedding_model,
            collection.dimension,
            microseconds(created),
        ),
    )
    return inserted.rowcount > 0

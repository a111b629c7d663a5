"""The SQL statements of writes to collections. Each function runs inside one savepoint."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from rag_context.domain.clauses import Clause
from rag_context.domain.documents import Json
from rag_context.domain.times import microseconds
from rag_context.domain.vectors import Matrix
from rag_context.ports.provider import Collection, Entry
from rag_context.stores.engines import check_dimension, check_distinct
from rag_context.stores.sqlite.collections.reading import find, read_collection
from rag_context.where import matches

REMEMBERED_DELETIONS = 20_000
"""Processes further behind than this load their copy again."""

SWEPT_AT_ONCE = 500
"""Entries; others that write wait for so many at most."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Entries as they are stored, column by column."""

    ids: Sequence[str]
    metadata: Sequence[str]
    texts: Sequence[str]
    vectors: Sequence[bytes]
    dimension: int


def rows_of(entries: Sequence[Entry], vectors: Matrix) -> Rows:
    """Entries with their vectors (`(len(entries), dim) float32`), written out.

    Raises:
        InvalidInputError: an id is there twice.
    """
    check_distinct(entries)
    return Rows(
        [entry.id for entry in entries],
        [as_text(entry.metadata) for entry in entries],
        [entry.text for entry in entries],
        [row.tobytes() for row in np.ascontiguousarray(vectors, dtype="<f4")],
        vectors.shape[1],
    )


def as_text(metadata: Mapping[str, Json]) -> str:
    """JSON that reads back as exactly this."""
    return json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)


def create(collection: Collection, created: datetime, connection: sqlite3.Connection) -> bool:
    """Create an empty collection; False if the name exists."""
    return _insert(replace(collection, dimension=None), created, connection)


def drop(name: str, connection: sqlite3.Connection) -> None:
    """Remove a collection; its entries are to be swept."""
    connection.execute("DELETE FROM collections WHERE key = ?", (find(name, connection).key,))


def empty(name: str, connection: sqlite3.Connection) -> int:
    """Put an empty collection in its place; returns how many entries are to be swept."""
    collection = read_collection(name, connection)
    connection.execute("DELETE FROM collections WHERE name = ?", (name,))
    assert collection.created is not None  # noqa: S101  (every stored one has a date)
    _insert(collection, collection.created, connection)
    return collection.count


def replace_metadata(name: str, metadata: str, connection: sqlite3.Connection) -> Collection:
    """Put other metadata (JSON) in place."""
    connection.execute("UPDATE collections SET metadata = ? WHERE name = ?", (metadata, name))
    return read_collection(name, connection)


def merge_metadata(name: str, metadata: Mapping[str, Json], connection: sqlite3.Connection) -> Collection:
    """Set these keys and keep the others."""
    known = read_collection(name, connection).metadata
    return replace_metadata(name, as_text({**known, **metadata}), connection)


def upsert(name: str, rows: Rows, connection: sqlite3.Connection) -> None:
    """Store entries, in place of those with their ids.

    Raises:
        InvalidInputError: the vectors are of another dimension than the collection's.
    """
    place = find(name, connection)
    if not rows.ids:
        return
    check_dimension(name, place.dimension, rows.dimension)
    if place.dimension is None:
        connection.execute("UPDATE collections SET dimension = ? WHERE key = ?", (rows.dimension, place.key))
    if place.entries:
        connection.executemany(
            "DELETE FROM entries WHERE collection = ? AND id = ?", [(place.key, id_) for id_ in rows.ids]
        )
    first: int = connection.execute(
        "SELECT ifnull(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'entries'"
    ).fetchone()[0]
    connection.executemany(
        "INSERT INTO entries VALUES (?, ?, ?, ?)",
        [
            (seq, place.key, id_, metadata)
            for seq, (id_, metadata) in enumerate(zip(rows.ids, rows.metadata, strict=True), first)
        ],
    )
    connection.executemany("INSERT INTO entry_texts VALUES (?, ?)", enumerate(rows.texts, first))
    connection.executemany("INSERT INTO entry_vectors VALUES (?, ?)", enumerate(rows.vectors, first))


def delete(name: str, id_: str, connection: sqlite3.Connection) -> bool:
    """Remove one entry; False where it is unknown."""
    key = find(name, connection).key
    deleted = connection.execute("DELETE FROM entries WHERE collection = ? AND id = ?", (key, id_)).rowcount > 0
    if deleted:
        connection.execute("INSERT INTO entry_deletions (collection, id) VALUES (?, ?)", (key, id_))
        _forget_old_deletions(connection)
    return deleted


def delete_many(name: str, ids: Sequence[str], where: Clause, connection: sqlite3.Connection) -> int:
    """Remove those of these entries that now pass a clause; returns how many."""
    key = find(name, connection).key
    rows = connection.execute(
        "SELECT e.seq, e.id, e.metadata FROM json_each(?) AS asked "
        "CROSS JOIN entries AS e ON e.collection = ? AND e.id = asked.value",
        (json.dumps(list(dict.fromkeys(ids))), key),
    ).fetchall()
    gone = [(seq, id_) for seq, id_, metadata in rows if matches(where, json.loads(metadata))]
    # One statement each: SQLite walks through its journal of the transaction after every statement that has triggers.
    seqs = (json.dumps([seq for seq, _ in gone]),)
    connection.execute(
        "INSERT INTO entry_deletions (collection, id) "
        "SELECT e.collection, e.id FROM json_each(?) AS gone CROSS JOIN entries AS e ON e.seq = gone.value",
        seqs,
    )
    connection.execute("DELETE FROM entries WHERE seq IN (SELECT value FROM json_each(?))", seqs)
    if gone:
        _forget_old_deletions(connection)
    return len(gone)


_OTHERS = """
SELECT EXISTS (
    SELECT e.id, e.metadata, t.text FROM entries AS e CROSS JOIN entry_texts AS t ON t.entry = e.seq
    WHERE e.collection = :one
    EXCEPT
    SELECT e.id, e.metadata, t.text FROM entries AS e CROSS JOIN entry_texts AS t ON t.entry = e.seq
    WHERE e.collection = :other
)
"""


def switch(name: str, built: str, connection: sqlite3.Connection) -> bool:
    """Put `built` in the place of `name`, under its labels and date; False where they hold different documents."""
    old, new = find(name, connection), find(built, connection)
    pairs = ({"one": old.key, "other": new.key}, {"one": new.key, "other": old.key})
    if old.entries != new.entries or any(connection.execute(_OTHERS, pair).fetchone()[0] for pair in pairs):
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


def sweep(connection: sqlite3.Connection) -> bool:
    """Delete some rows of discarded collections; False once none are left."""
    row = connection.execute("SELECT key FROM discarded_collections LIMIT 1").fetchone()
    if row is None:
        return False
    swept = connection.execute(
        "DELETE FROM entries WHERE seq IN (SELECT seq FROM entries WHERE collection = ? LIMIT ?)",
        (row[0], SWEPT_AT_ONCE),
    ).rowcount
    if swept < SWEPT_AT_ONCE:
        connection.execute("DELETE FROM discarded_collections WHERE key = ?", row)
    return True


def _insert(collection: Collection, created: datetime, connection: sqlite3.Connection) -> bool:
    inserted = connection.execute(
        """INSERT INTO collections (name, metadata, embedding_provider, embedding_model, dimension, created)
           VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING""",
        (
            collection.name,
            as_text(collection.metadata),
            collection.embedding_provider,
            collection.embedding_model,
            collection.dimension,
            microseconds(created),
        ),
    )
    return inserted.rowcount > 0


def _forget_old_deletions(connection: sqlite3.Connection) -> None:
    """Shorten the list of deletions once it is twice as long as it has to be."""
    oldest, newest = connection.execute(
        "SELECT (SELECT min(seq) FROM entry_deletions), (SELECT max(seq) FROM entry_deletions)"
    ).fetchone()
    if newest - oldest >= 2 * REMEMBERED_DELETIONS:
        connection.execute("DELETE FROM entry_deletions WHERE seq <= ?", (newest - REMEMBERED_DELETIONS,))

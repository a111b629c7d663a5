"""Reads collections from the file itself. Each function runs in one read snapshot."""

import json
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rag_context.domain.times import moment
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendDataError, NotFoundError
from rag_context.ports.provider import Collection, Entry, EntryPage
from rag_context.stores.sqlite.engine.vectors import matrix_of
from rag_context.stores.sqlite.faults import COMPONENT

_COLLECTIONS = (
    "SELECT name, metadata, embedding_provider, embedding_model, dimension, created, entries FROM collections"
)

# The page is chosen from the index alone; texts are read of its rows only.
_PAGE = """
SELECT e.id, t.text, e.metadata
FROM (SELECT seq FROM entries WHERE collection = ? ORDER BY id LIMIT ? OFFSET ?) AS page
CROSS JOIN entries AS e ON e.seq = page.seq
CROSS JOIN entry_texts AS t ON t.entry = e.seq
ORDER BY e.id
"""

_BY_SEQ = """
SELECT e.seq, e.id, t.text, e.metadata
FROM json_each(?) AS asked
CROSS JOIN entries AS e ON e.seq = asked.value
CROSS JOIN entry_texts AS t ON t.entry = e.seq
"""

_BY_ID = """
SELECT e.id, t.text, e.metadata
FROM json_each(?) AS asked
CROSS JOIN entries AS e ON e.collection = ? AND e.id = asked.value
CROSS JOIN entry_texts AS t ON t.entry = e.seq
"""

_BY_ENTRY = "SELECT v.vector FROM json_each(?) AS asked CROSS JOIN entry_vectors AS v ON v.entry = asked.value"

_VECTOR = """
SELECT v.vector FROM entries AS e CROSS JOIN entry_vectors AS v ON v.entry = e.seq
WHERE e.collection = ? AND e.id = ?
"""


class CollectionRow(NamedTuple):
    """A row of the table of collections."""

    key: int
    dimension: int | None
    version: int
    entries: int


def find(name: str, connection: sqlite3.Connection) -> CollectionRow:
    """The row of a collection.

    Raises:
        NotFoundError: there is no collection of this name.
    """
    row = connection.execute(
        "SELECT key, dimension, version, entries FROM collections WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        raise not_found(name)
    return CollectionRow(*row)


def read_collection(name: str, connection: sqlite3.Connection) -> Collection:
    """A collection with its metadata.

    Raises:
        NotFoundError: there is no collection of this name.
    """
    found = look_for(name, connection)
    if found is None:
        raise not_found(name)
    return found


def look_for(name: str, connection: sqlite3.Connection) -> Collection | None:
    """As `read_collection`; None if it does not exist."""
    row = connection.execute(f"{_COLLECTIONS} WHERE name = ?", (name,)).fetchone()
    return None if row is None else _collection(row)


def read_collections(connection: sqlite3.Connection) -> list[Collection]:
    """All collections, by name."""
    return [_collection(row) for row in connection.execute(f"{_COLLECTIONS} ORDER BY name")]


def read_page(name: str, limit: int, offset: int, connection: sqlite3.Connection) -> EntryPage:
    """A page of all entries, by id."""
    place = find(name, connection)
    rows = connection.execute(_PAGE, (place.key, limit, offset))
    return EntryPage(tuple([Entry(id_, text, json.loads(metadata)) for id_, text, metadata in rows]), place.entries)


def read_entries(seqs: Sequence[int], connection: sqlite3.Connection) -> list[Entry]:
    """The entries of these numbers, which must exist, in this order."""
    rows = connection.execute(_BY_SEQ, (json.dumps(seqs),))
    found = {seq: Entry(id_, text, json.loads(metadata)) for seq, id_, text, metadata in rows}
    return [found[seq] for seq in seqs]


def read_by_id(name: str, ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, Entry]:
    """The entries of these ids; unknown ones are left out."""
    key = find(name, connection).key
    rows = connection.execute(_BY_ID, (json.dumps(list(dict.fromkeys(ids))), key))
    return {id_: Entry(id_, text, json.loads(metadata)) for id_, text, metadata in rows}


def read_ids(name: str, connection: sqlite3.Connection) -> list[str]:
    """The ids of all entries, in order."""
    key = find(name, connection).key
    return [id_ for (id_,) in connection.execute("SELECT id FROM entries WHERE collection = ? ORDER BY id", (key,))]


def read_vectors(name: str, ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, Vector]:
    """The vectors (`(dim,) float32`) of these entries; unknown ones are left out."""
    key = find(name, connection).key
    found: dict[str, Vector] = {}
    for id_ in ids:
        row = connection.execute(_VECTOR, (key, id_)).fetchone()
        if row is not None:
            found[id_] = np.frombuffer(row[0], dtype="<f4").astype(np.float32, copy=False)
    return found


def read_matrix(connection: sqlite3.Connection, seqs: Sequence[int]) -> Matrix:
    """`(n, dim) float32`, the vectors of the entries of these numbers; at least one.

    Raises:
        BackendDataError: not all of them are there.
    """
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


def has_discarded(connection: sqlite3.Connection) -> bool:
    """Whether rows of discarded collections are left."""
    return connection.execute("SELECT 1 FROM discarded_collections LIMIT 1").fetchone() is not None


def not_found(name: str) -> NotFoundError:
    """The error for a collection that does not exist."""
    return NotFoundError(f"Collection '{name}' not found")


def _collection(row: tuple[str, str, str | None, str | None, int | None, int, int]) -> Collection:
    name, metadata, provider, model, dimension, created, entries = row
    return Collection(name, json.loads(metadata), provider, model, dimension, moment(created), entries)

"""Collections in the embedded store's file: the provider that needs nothing but a data directory.

Texts, metadata and vectors are rows of the file; what filters and searches need is cached in memory and follows the
file by sequence number, so that several processes share it.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any, NamedTuple, TypeAlias, TypeVar

from rag_context.domain.clauses import EVERYTHING, Clause, Path
from rag_context.domain.documents import Json, microseconds, moment, utc_now
from rag_context.domain.vectors import Matrix, Vector
from rag_context.domain.where import matches
from rag_context.errors import BackendDataError
from rag_context.ports import provider
from rag_context.stores import engines
from rag_context.stores.sqlite.changes import blobs_of, shorten
from rag_context.stores.sqlite.collection_view import CollectionView, paths_of
from rag_context.stores.sqlite.database import Database, reading, writing
from rag_context.stores.sqlite.database_file import LOCK_TIMEOUT_S, DatabaseFile, checked_file
from rag_context.stores.sqlite.faults import COMPONENT
from rag_context.stores.sqlite.loaded_collections import LoadedCollections
from rag_context.stores.sqlite.memory.vector_scan import matrix_of, vector_of

MOST_ATTEMPTS = 8
"""How often in a row the memory may be newer than a snapshot; then the file must be an older copy."""

REMEMBERED_DELETIONS = 20_000
"""Processes further behind than this load their copy again."""

# The page is chosen from the index alone; texts are read of its rows only.
_PAGE = """
SELECT e.id, t.text, e.metadata
FROM (SELECT seq FROM entries WHERE collection = ? ORDER BY id LIMIT ? OFFSET ?) AS page
CROSS JOIN entries AS e ON e.seq = page.seq
CROSS JOIN entry_texts AS t ON t.entry = e.seq
ORDER BY e.id
"""

_BY_ID = """
SELECT e.id, t.text, e.metadata
FROM json_each(?) AS requested
CROSS JOIN entries AS e ON e.collection = ? AND e.id = requested.value
CROSS JOIN entry_texts AS t ON t.entry = e.seq
"""

_VECTOR = """
SELECT v.vector FROM entries AS e CROSS JOIN entry_vectors AS v ON v.entry = e.seq
WHERE e.collection = ? AND e.id = ?
"""

REMOVED_AT_ONCE = 500
"""Entries; others that write wait for so many at most."""

_COLLECTIONS = """
SELECT key, version, name, metadata, embedding_provider, embedding_model, dimension, created, entries FROM collections
"""

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

T = TypeVar("T")


class CollectionRow(NamedTuple):
    """A row of the table of collections."""

    key: int
    version: int
    collection: provider.Collection


class SqliteCollections:
    """Collections in a file, which is opened by the first call."""

    capabilities = provider.Capabilities()

    def __init__(self, file: DatabaseFile, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._file = file
        self._lock_timeout_s = lock_timeout_s
        self._opened: Database | None = None
        self._memory = LoadedCollections(time.monotonic)
        self._discarded = engines.DiscardedRows(lambda: remove_discarded(self._database))

    @reading
    def collections(self, connection: sqlite3.Connection) -> list[provider.Collection]:
        return [row.collection for row in _rows(connection, "ORDER BY name")]

    @reading
    def collection(self, connection: sqlite3.Connection, name: str) -> provider.Collection | None:
        return next((row.collection for row in _rows(connection, "WHERE name = ?", name)), None)

    @writing
    def create(self, connection: sqlite3.Connection, collection: provider.Collection) -> bool:
        return _insert(replace(collection, dimension=None), connection)

    async def drop(self, name: str) -> None:
        """Remove a collection at once; its space in the file is freed little by little."""
        await self._database.write(partial(_drop, name))
        self._discarded.remove_soon()

    @writing
    def replace_metadata(
        self, connection: sqlite3.Connection, name: str, metadata: Mapping[str, Json]
    ) -> provider.Collection:
        return _describe(name, metadata, connection)

    @writing
    def merge_metadata(
        self, connection: sqlite3.Connection, name: str, metadata: Mapping[str, Json]
    ) -> provider.Collection:
        known = _find(name, connection).collection.metadata
        return _describe(name, {**known, **metadata}, connection)

    async def upsert(self, name: str, entries: Sequence[provider.Entry], vectors: Matrix) -> None:
        stored = await asyncio.to_thread(_stored_entries, entries, vectors)
        await self._database.write(partial(_upsert, name, stored, vectors.shape[1]))

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> provider.EntryPage:
        if where == EVERYTHING:
            return await self._page_of_all(name, limit, offset)

        def page(_: CollectionRow, view: CollectionView, connection: sqlite3.Connection) -> provider.EntryPage:
            seqs, total = view.matching(where, limit, offset)
            return provider.EntryPage(tuple(_read_entries(seqs, connection)), total)

        return await self._query(name, paths_of(where), page)

    @reading
    def _page_of_all(self, connection: sqlite3.Connection, name: str, limit: int, offset: int) -> provider.EntryPage:
        row = _find(name, connection)
        rows = connection.execute(_PAGE, (row.key, limit, offset))
        entries = tuple([provider.Entry(id_, text, json.loads(metadata)) for id_, text, metadata in rows])
        return provider.EntryPage(entries, row.collection.count)

    @reading
    def vectors(self, connection: sqlite3.Connection, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        key = _find(name, connection).key
        found = ((id_, connection.execute(_VECTOR, (key, id_)).fetchone()) for id_ in ids)
        return {id_: vector_of(row[0]) for id_, row in found if row is not None}

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[provider.EntryHit]:
        def hits(row: CollectionRow, view: CollectionView, connection: sqlite3.Connection) -> list[provider.EntryHit]:
            engines.check_dimension(name, row.collection.dimension, len(vector))
            nearest = view.nearest(vector, where, limit, partial(_read_matrix, connection))
            entries = _read_entries([scored.seq for scored in nearest], connection)
            return [provider.EntryHit(entry, scored.cosine) for entry, scored in zip(entries, nearest, strict=True)]

        return await self._query(name, paths_of(where), hits)

    async def keyword_scores(
        self, name: str, text: str, where: Clause, *, limit: int, also: Sequence[str] = ()
    ) -> dict[str, provider.KeywordScore]:
        """Exact under every filter; the first call for a collection analyses its texts (about 0.1 ms each)."""
        database, paths = self._database, list(paths_of(where))

        def answer(connection: sqlite3.Connection) -> tuple[dict[str, provider.KeywordScore]] | None:
            row = _find(name, connection)
            loaded = self._memory.of(row.key, database.file.generation)
            loaded.keywords.forget_deleted(row.collection.count)
            # Before the view is made: analysing texts takes long, and other queries would wait for the lock meanwhile.
            loaded.keywords.follow(connection)

            def scored(view: CollectionView) -> dict[str, provider.KeywordScore]:
                return loaded.keywords.scores(text, view, view.mask(where), limit, also)

            return loaded.read(row.version, paths, scored, connection)

        return await self._repeated(answer)

    async def ids(self, name: str, where: Clause) -> list[str]:
        if where == EVERYTHING:
            return await self._all_ids(name)
        return await self._query(name, paths_of(where), lambda _row, view, _connection: view.matching_ids(where))

    @reading
    def _all_ids(self, connection: sqlite3.Connection, name: str) -> list[str]:
        key = _find(name, connection).key
        return [id_ for (id_,) in connection.execute("SELECT id FROM entries WHERE collection = ? ORDER BY id", (key,))]

    @reading
    def get(self, connection: sqlite3.Connection, name: str, ids: Sequence[str]) -> dict[str, provider.Entry]:
        key = _find(name, connection).key
        rows = connection.execute(_BY_ID, (json.dumps(list(dict.fromkeys(ids))), key))
        return {id_: provider.Entry(id_, text, json.loads(metadata)) for id_, text, metadata in rows}

    @writing
    def delete_many(self, connection: sqlite3.Connection, name: str, ids: Sequence[str], where: Clause) -> int:
        """Remove those of these entries that `where` lets through when they go, all in one transaction."""
        key = _find(name, connection).key
        rows = connection.execute(
            "SELECT e.seq, e.id, e.metadata FROM json_each(?) AS requested "
            "CROSS JOIN entries AS e ON e.collection = ? AND e.id = requested.value",
            (json.dumps(list(dict.fromkeys(ids))), key),
        ).fetchall()
        gone = [(seq, id_) for seq, id_, metadata in rows if matches(where, json.loads(metadata))]
        # One statement each: SQLite walks through its journal of the transaction after each that has triggers.
        seqs = (json.dumps([seq for seq, _ in gone]),)
        connection.execute(
            "INSERT INTO entry_deletions (collection, id) "
            "SELECT e.collection, e.id FROM json_each(?) AS gone CROSS JOIN entries AS e ON e.seq = gone.value",
            seqs,
        )
        connection.execute("DELETE FROM entries WHERE seq IN (SELECT value FROM json_each(?))", seqs)
        if gone:
            shorten("entry_deletions", REMEMBERED_DELETIONS, connection)
        return len(gone)

    async def switch(self, name: str, built: str) -> bool:
        """Put `built` in the place of `name` in one transaction, which also sees that both hold the same documents."""
        switched = await self._database.write(partial(_switch, name, built))
        self._discarded.remove_soon()
        return switched

    async def delete(self, name: str, id_: str) -> bool:
        return await self.delete_many(name, [id_], EVERYTHING) > 0

    async def empty(self, name: str) -> int:
        """Remove all entries at once; their space in the file is freed little by little. Returns how many."""
        emptied = await self._database.write(partial(_empty, name))
        self._discarded.remove_soon()
        return emptied

    async def values(self, name: str, path: Path) -> list[Json]:
        return await self._query(name, [path], lambda _row, view, _connection: view.columns[path].distinct())

    async def health(self) -> provider.ProviderHealth:
        """Reads the file; the size is that of the whole file, with whatever else it holds."""
        return await engines.timed_health(lambda: self._database.read(_count_collections))

    async def close(self) -> None:
        await self._discarded.close()
        if self._opened is not None:
            await self._opened.close()

    @property
    def _database(self) -> Database:
        if self._opened is None:
            self._opened = Database(self._file, lock_timeout_s=self._lock_timeout_s)
            self._opened.follow(self._tidy)
            self._discarded.remove_leftovers()
        return self._opened

    async def _query(
        self, name: str, paths: Iterable[Path], query: Callable[[CollectionRow, CollectionView, sqlite3.Connection], T]
    ) -> T:
        """Run a query on the collection in memory, brought up to the state of the file."""
        fields, database = list(paths), self._database

        def answer(connection: sqlite3.Connection) -> tuple[T] | None:
            row = _find(name, connection)
            loaded = self._memory.of(row.key, database.file.generation)
            return loaded.read(row.version, fields, lambda view: query(row, view, connection), connection)

        return await self._repeated(answer)

    async def _repeated(self, answer: Callable[[sqlite3.Connection], tuple[T] | None]) -> T:
        """Repeat in newer snapshots until one is not behind the memory."""
        attempts = 0
        while (answered := await self._database.read(answer)) is None:
            attempts += 1
            if attempts % MOST_ATTEMPTS == 0:
                self._memory.clear()
        return answered[0]

    def _tidy(self, connection: sqlite3.Connection) -> None:
        if len(self._memory):
            self._memory.keep_only({key for (key,) in connection.execute("SELECT key FROM collections")})


def _describe(name: str, metadata: Mapping[str, Json], connection: sqlite3.Connection) -> provider.Collection:
    connection.execute("UPDATE collections SET metadata = ? WHERE name = ?", (engines.metadata_text(metadata), name))
    return _find(name, connection).collection


def _find(name: str, connection: sqlite3.Connection) -> CollectionRow:
    """The row of a collection. Raises: NotFoundError (there is no collection of this name)."""
    row = next(_rows(connection, "WHERE name = ?", name), None)
    if row is None:
        raise engines.unknown_collection(name)
    return row


def _rows(connection: sqlite3.Connection, which: str, *values: str) -> Iterator[CollectionRow]:
    """The rows that `which` (from WHERE or ORDER BY on) selects."""
    for key, version, name, metadata, embedding_provider, model, dimension, created, entries in connection.execute(
        f"{_COLLECTIONS} {which}", values
    ):
        labels = (name, json.loads(metadata), embedding_provider, model)
        yield CollectionRow(key, version, provider.Collection(*labels, dimension, moment(created), entries))


def _read_entries(seqs: Sequence[int], connection: sqlite3.Connection) -> list[provider.Entry]:
    rows = connection.execute(_BY_SEQ, (json.dumps(seqs),))
    found = {seq: provider.Entry(id_, text, json.loads(metadata)) for seq, id_, text, metadata in rows}
    return [found[seq] for seq in seqs]


def _read_matrix(connection: sqlite3.Connection, seqs: Sequence[int]) -> Matrix:
    """`(n, dim) float32`, the vectors of the entries of these numbers; at least one. Raises: BackendDataError."""
    stored = [vector for (vector,) in connection.execute(_BY_ENTRY, (json.dumps(seqs),))]
    if len(stored) < len(seqs):
        raise BackendDataError(COMPONENT, "Vectors of a collection were lost; copy it into a new one.")
    return matrix_of(stored, len(stored[0]) // 4)


def _count_collections(connection: sqlite3.Connection) -> tuple[int, int]:
    """How many collections there are, and the size of the file in bytes."""
    row: tuple[int, int] = connection.execute(
        """SELECT (SELECT count(*) FROM collections),
                  (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size)"""
    ).fetchone()
    return row


_StoredEntry: TypeAlias = tuple[str, str, str, bytes]
"""An entry as it is stored: its id, metadata, text and vector."""


def _stored_entries(entries: Sequence[provider.Entry], vectors: Matrix) -> list[_StoredEntry]:
    """Entries with their vectors (`(len(entries), dim) float32`), written out. Raises: InvalidInputError."""
    engines.check_distinct(entries)
    return [
        (entry.id, engines.metadata_text(entry.metadata), entry.text, vector)
        for entry, vector in zip(entries, blobs_of(vectors), strict=True)
    ]


def _drop(name: str, connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM collections WHERE key = ?", (_find(name, connection).key,))


def _empty(name: str, connection: sqlite3.Connection) -> int:
    """Put an empty collection in its place; returns how many entries are to be removed."""
    collection = _find(name, connection).collection
    # Under a new key: as fast at every size, and no copy in memory of the old entries is used again.
    connection.execute("DELETE FROM collections WHERE name = ?", (name,))
    _insert(collection, connection)
    return collection.count


def _upsert(name: str, rows: Sequence[_StoredEntry], dimension: int, connection: sqlite3.Connection) -> None:
    """Store entries, in place of those with their ids. Raises: InvalidInputError."""
    key, _, collection = _find(name, connection)
    if not rows:
        return
    engines.check_dimension(name, collection.dimension, dimension)
    if collection.dimension is None:
        connection.execute("UPDATE collections SET dimension = ? WHERE key = ?", (dimension, key))
    # Not listed as deletions: a copy in memory replaces an entry when it reads the new row with its id.
    if collection.count:
        replaced = [(key, id_) for id_, *_ in rows]
        connection.executemany("DELETE FROM entries WHERE collection = ? AND id = ?", replaced)
    # Above all numbers that ever were: a copy in memory reads what is above the last one that it has read.
    first: int = connection.execute(
        "SELECT ifnull(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'entries'"
    ).fetchone()[0]
    named = [(seq, key, id_, metadata) for seq, (id_, metadata, _, _) in enumerate(rows, first)]
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", named)
    connection.executemany("INSERT INTO entry_texts VALUES (?, ?)", enumerate([row[2] for row in rows], first))
    connection.executemany("INSERT INTO entry_vectors VALUES (?, ?)", enumerate([row[3] for row in rows], first))


def _switch(name: str, built: str, connection: sqlite3.Connection) -> bool:
    """Put `built` in the place of `name`, under its labels and date; False where they hold different documents."""
    old, new = _find(name, connection), _find(built, connection)
    pairs = ({"one": old.key, "other": new.key}, {"one": new.key, "other": old.key})
    if old.collection.count != new.collection.count or any(
        connection.execute(_DIFFER, pair).fetchone()[0] for pair in pairs
    ):
        return False
    former = old.collection
    labels = (former.embedding_provider, former.embedding_model, microseconds(former.created or utc_now()))
    connection.execute("DELETE FROM collections WHERE key = ?", (old.key,))
    connection.execute(
        "UPDATE collections SET name = ?, embedding_provider = ?, embedding_model = ?, created = ? WHERE key = ?",
        (name, *labels, new.key),
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


def _insert(collection: provider.Collection, connection: sqlite3.Connection) -> bool:
    inserted = connection.execute(
        """INSERT INTO collections (name, metadata, embedding_provider, embedding_model, dimension, created)
           VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING""",
        (
            collection.name,
            engines.metadata_text(collection.metadata),
            collection.embedding_provider,
            collection.embedding_model,
            collection.dimension,
            microseconds(collection.created or utc_now()),
        ),
    )
    return inserted.rowcount > 0


@asynccontextmanager
async def open_collections(
    path: FilePath, *, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> AsyncIterator[SqliteCollections]:
    """The collections in the file at `path`; nothing is opened or started before the first call.

    A damaged or locked file is not an error here: the calls raise `BackendError` until it can be used.

    Raises: ConfigurationError (the path can never be a database file).
    """
    collections = SqliteCollections(checked_file(path), lock_timeout_s=lock_timeout_s)
    try:
        yield collections
    finally:
        await collections.close()

"""Collections in the embedded store's file: the provider that needs nothing but a data directory.

Texts, metadata and vectors are rows of the file; what filters and searches need is cached in memory and follows the
file by sequence number, so that several processes share it.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path as FilePath
from typing import TypeVar

from rag_context.domain.clauses import EVERYTHING, Clause, Path
from rag_context.domain.documents import Json, utc_now
from rag_context.domain.vectors import Matrix, Vector
from rag_context.ports.provider import (
    Capabilities,
    Collection,
    Entry,
    EntryHit,
    EntryPage,
    KeywordScore,
    ProviderHealth,
)
from rag_context.stores.engines import DiscardedRows, check_dimension, timed_health
from rag_context.stores.sqlite import collection_rows
from rag_context.stores.sqlite.collection_rows import CollectionRow
from rag_context.stores.sqlite.collection_view import CollectionView, paths_of
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.database_file import LOCK_TIMEOUT_S, DatabaseFile, checked_file
from rag_context.stores.sqlite.loaded_collections import LoadedCollections

MOST_ATTEMPTS = 8
"""How often in a row the memory may be newer than a snapshot; then the file must be an older copy."""

T = TypeVar("T")


class SqliteCollections:
    """Collections in a file, which is opened by the first call."""

    def __init__(
        self,
        file: DatabaseFile,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._file = file
        self._lock_timeout_s = lock_timeout_s
        self._clock = clock
        self._now = now
        self._database: Database | None = None
        self._memory = LoadedCollections(clock)
        self._discarded = DiscardedRows(lambda: collection_rows.remove_discarded(self._opened()))

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    async def collections(self) -> list[Collection]:
        return await self._opened().read(collection_rows.read_collections)

    async def collection(self, name: str) -> Collection | None:
        return await self._opened().read(partial(collection_rows.look_for, name))

    async def create(self, collection: Collection) -> bool:
        created = collection.created or self._now()
        return await self._opened().write(partial(collection_rows.create, collection, created))

    async def drop(self, name: str) -> None:
        """Remove a collection at once; its space in the file is freed little by little."""
        await self._opened().write(partial(collection_rows.drop, name))
        self._discarded.remove_soon()

    async def replace_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        return await self._opened().write(partial(collection_rows.replace_metadata, name, metadata))

    async def merge_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        return await self._opened().write(partial(collection_rows.merge_metadata, name, metadata))

    async def upsert(self, name: str, entries: Sequence[Entry], vectors: Matrix) -> None:
        stored = await asyncio.to_thread(collection_rows.stored_entries, entries, vectors)
        await self._opened().write(partial(collection_rows.upsert, name, stored))

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> EntryPage:
        if where == EVERYTHING:
            return await self._opened().read(partial(collection_rows.read_page, name, limit, offset))

        def page(_: CollectionRow, view: CollectionView, connection: sqlite3.Connection) -> EntryPage:
            seqs, total = view.matching(where, limit, offset)
            return EntryPage(tuple(collection_rows.read_entries(seqs, connection)), total)

        return await self._query(name, paths_of(where), page)

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        return await self._opened().read(partial(collection_rows.read_vectors, name, list(ids)))

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[EntryHit]:
        def hits(row: CollectionRow, view: CollectionView, connection: sqlite3.Connection) -> list[EntryHit]:
            check_dimension(name, row.dimension, len(vector))
            nearest = view.nearest(vector, where, limit, partial(collection_rows.read_matrix, connection))
            entries = collection_rows.read_entries([scored.seq for scored in nearest], connection)
            return [EntryHit(entry, scored.cosine) for entry, scored in zip(entries, nearest, strict=True)]

        return await self._query(name, paths_of(where), hits)

    async def keyword_scores(
        self, name: str, text: str, where: Clause, *, limit: int, also: Sequence[str] = ()
    ) -> dict[str, KeywordScore]:
        """Exact under every filter; the first call for a collection analyses its texts (about 0.1 ms each)."""
        database, paths = self._opened(), list(paths_of(where))

        def answer(connection: sqlite3.Connection) -> tuple[dict[str, KeywordScore]] | None:
            row = collection_rows.find(name, connection)
            loaded = self._memory.of(row.key, database.file.generation)
            loaded.keywords.forget_deleted(row.entries)
            # Before the view is made: analysing texts takes long, and other queries would wait for the lock meanwhile.
            loaded.keywords.follow(connection)

            def scored(view: CollectionView) -> dict[str, KeywordScore]:
                return loaded.keywords.scores(text, view, view.mask(where), limit, also)

            return loaded.read(row.version, paths, scored, connection)

        return await self._repeated(answer)

    async def ids(self, name: str, where: Clause) -> list[str]:
        if where == EVERYTHING:
            return await self._opened().read(partial(collection_rows.read_ids, name))

        def matching(_: CollectionRow, view: CollectionView, __: sqlite3.Connection) -> list[str]:
            return view.matching_ids(where)

        return await self._query(name, paths_of(where), matching)

    async def get(self, name: str, ids: Sequence[str]) -> dict[str, Entry]:
        return await self._opened().read(partial(collection_rows.read_by_id, name, list(ids)))

    async def delete_many(self, name: str, ids: Sequence[str], where: Clause) -> int:
        """Remove those of these entries that `where` lets through when they go, all in one transaction."""
        return await self._opened().write(partial(collection_rows.delete_many, name, list(ids), where))

    async def switch(self, name: str, built: str) -> bool:
        """Put `built` in the place of `name` in one transaction, which also sees that both hold the same documents."""
        switched = await self._opened().write(partial(collection_rows.switch, name, built))
        self._discarded.remove_soon()
        return switched

    async def delete(self, name: str, id_: str) -> bool:
        return await self._opened().write(partial(collection_rows.delete, name, id_))

    async def empty(self, name: str) -> int:
        """Remove all entries at once; their space in the file is freed little by little. Returns how many."""
        emptied = await self._opened().write(partial(collection_rows.empty, name))
        self._discarded.remove_soon()
        return emptied

    async def values(self, name: str, path: Path) -> list[Json]:
        def values(_: CollectionRow, view: CollectionView, __: sqlite3.Connection) -> list[Json]:
            return view.values(path)

        return await self._query(name, [path], values)

    async def health(self) -> ProviderHealth:
        """Reads the file; the size is that of the whole file, with whatever else it holds."""
        return await timed_health(lambda: self._opened().read(collection_rows.count_collections))

    async def close(self) -> None:
        await self._discarded.close()
        if self._database is not None:
            await self._database.close()

    def _opened(self) -> Database:
        if self._database is None:
            self._database = Database(self._file, lock_timeout_s=self._lock_timeout_s)
            self._database.follow(self._tidy)
            self._discarded.remove_leftovers()
        return self._database

    async def _query(
        self,
        name: str,
        paths: Iterable[Path],
        query: Callable[[CollectionRow, CollectionView, sqlite3.Connection], T],
    ) -> T:
        """Run a query on the collection in memory, brought up to the state of the file."""
        fields, database = list(paths), self._opened()

        def answer(connection: sqlite3.Connection) -> tuple[T] | None:
            row = collection_rows.find(name, connection)
            loaded = self._memory.of(row.key, database.file.generation)
            return loaded.read(row.version, fields, lambda view: query(row, view, connection), connection)

        return await self._repeated(answer)

    async def _repeated(self, answer: Callable[[sqlite3.Connection], tuple[T] | None]) -> T:
        """Repeat in newer snapshots until one is not behind the memory."""
        attempts = 0
        while (answered := await self._opened().read(answer)) is None:
            attempts += 1
            if attempts % MOST_ATTEMPTS == 0:
                self._memory.clear()
        return answered[0]

    def _tidy(self, connection: sqlite3.Connection) -> None:
        if len(self._memory):
            self._memory.keep_only({key for (key,) in connection.execute("SELECT key FROM collections")})


@asynccontextmanager
async def open_collections(
    path: FilePath, *, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> AsyncIterator[SqliteCollections]:
    """The collections in the file at `path`; nothing is opened or started before the first call.

    A damaged or locked file is not an error here: the calls raise `BackendError` until it can be used.

    Raises:
        ConfigurationError: the path can never be a database file.
    """
    collections = SqliteCollections(checked_file(path), lock_timeout_s=lock_timeout_s)
    try:
        yield collections
    finally:
        await collections.close()

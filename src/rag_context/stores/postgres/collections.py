"""Named collections of documents in PostgreSQL: one row per document, every write one transaction.

Vectors are compared one by one, so that results are exact under every filter, as they are in the embedded file.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from rag_context.domain.clauses import EVERYTHING, Clause, Path
from rag_context.domain.documents import Json, microseconds
from rag_context.domain.vectors import Matrix, Vector
from rag_context.domain.where import matches, value_at
from rag_context.ports import provider
from rag_context.stores.engines import DiscardedRows, check_dimension, metadata_text, timed_health, unknown_collection
from rag_context.stores.postgres import collection_entries
from rag_context.stores.postgres.connection import Connection, PostgresDatabase, Row
from rag_context.stores.postgres.writer import copy_rows
from rag_context.stores.sql_documents import Parameters
from rag_context.stores.tokens import distinct

_COLLECTION = "SELECT * FROM rag_context.collections WHERE name = $1"

_DIFFERS = """
SELECT EXISTS (
    SELECT id, metadata, text FROM rag_context.entries WHERE collection = $1
    EXCEPT SELECT id, metadata, text FROM rag_context.entries WHERE collection = $2
)
"""

T = TypeVar("T")


@asynccontextmanager
async def open_postgres_collections(
    url: str, *, pool_size: int = 10, statement_cache_size: int = 64
) -> AsyncIterator["PostgresCollections"]:
    """The collections of the database at `url`; nothing is sent before the first call, so the server may be down."""
    database = PostgresDatabase(url, pool_size=pool_size, statement_cache_size=statement_cache_size)
    collections = PostgresCollections(database)
    try:
        yield collections
    finally:
        await collections.close()
        await database.close()


@dataclass(frozen=True, slots=True)
class _Record:
    """Where a collection's entries are; valid inside one transaction."""

    key: int
    collection: provider.Collection


class PostgresCollections:
    """`Provider`, `BulkCalls`, `Switching` and `KeywordProvider` over one database.

    Every method raises `BackendError` where the server fails, and `NotFoundError` for an unknown collection. Writes to
    one collection take turns, whichever servers they come from.
    """

    capabilities = provider.Capabilities()

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._discarded = DiscardedRows(lambda: database.write(collection_entries.remove_discarded))

    async def collections(self) -> list[provider.Collection]:
        rows = await self._database.fetch("SELECT * FROM rag_context.collections ORDER BY name")
        return [collection_entries.collection_from(row) for row in rows]

    async def collection(self, name: str) -> provider.Collection | None:
        row = await self._database.fetchrow(_COLLECTION, collection_entries.escaped(name))
        return None if row is None else collection_entries.collection_from(row)

    async def create(self, collection: provider.Collection) -> bool:
        row = await self._database.fetchrow(
            """INSERT INTO rag_context.collections (name, metadata, embedding_provider, embedding_model, created)
               VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO NOTHING RETURNING key""",
            collection_entries.escaped(collection.name),
            metadata_text(collection.metadata),
            collection.embedding_provider and collection_entries.escaped(collection.embedding_provider),
            collection.embedding_model and collection_entries.escaped(collection.embedding_model),
            microseconds(collection.created or datetime.now(UTC)),
        )
        return row is not None

    async def drop(self, name: str) -> None:
        """Remove a collection at once; its rows are removed little by little."""

        async def dropped(connection: Connection, record: _Record) -> None:
            await connection.execute("DELETE FROM rag_context.collections WHERE key = $1", record.key)
            await collection_entries.discard(connection, record.key)

        await self._change(name, dropped)
        self._discarded.remove_soon()

    async def replace_metadata(self, name: str, metadata: Mapping[str, Json]) -> provider.Collection:
        return await self._change(name, lambda connection, record: _describe(connection, record, metadata))

    async def merge_metadata(self, name: str, metadata: Mapping[str, Json]) -> provider.Collection:
        return await self._change(
            name, lambda connection, record: _describe(connection, record, {**record.collection.metadata, **metadata})
        )

    async def upsert(self, name: str, entries: Sequence[provider.Entry], vectors: Matrix) -> None:
        rows = await asyncio.to_thread(collection_entries.entry_rows, entries, vectors)

        async def stored(connection: Connection, record: _Record) -> None:
            if not rows:
                return
            check_dimension(name, record.collection.dimension, vectors.shape[1])
            replaced = await collection_entries.remove_entries(connection, record.key, [row[0] for row in rows])
            keyed = [(record.key, *row) for row in rows]
            await copy_rows(connection, "entries", collection_entries.ENTRY_COLUMNS, keyed)
            await connection.execute(
                "UPDATE rag_context.collections SET dimension = $2, entries = entries + $3 WHERE key = $1",
                record.key,
                vectors.shape[1],
                len(rows) - replaced,
            )

        await self._change(name, stored)

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> provider.EntryPage:
        async def page(connection: Connection, record: _Record) -> provider.EntryPage:
            parameters = Parameters(record.key)
            condition = collection_entries.passes(where, parameters)
            total = record.collection.count
            if where != EVERYTHING:
                counted = f"SELECT count(*) FROM rag_context.entries AS e WHERE e.collection = $1 AND {condition}"  # noqa: S608
                total = await connection.fetchval(counted, *parameters.values)
            rows = await connection.fetch(
                f"""SELECT e.id, e.text, e.metadata FROM rag_context.entries AS e
                    WHERE e.collection = $1 AND {condition}
                    ORDER BY e.id LIMIT {parameters.add(limit)} OFFSET {parameters.add(offset)}""",  # noqa: S608
                *parameters.values,
            )
            return provider.EntryPage(tuple(collection_entries.entry_from(row) for row in rows), total)

        return await self._read(name, page)

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        async def found(connection: Connection, record: _Record) -> dict[str, Vector]:
            rows = await _rows_of(connection, record, "id, embedding", ids)
            return {collection_entries.unescaped(id_): vector for id_, vector in rows}

        return await self._read(name, found)

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[provider.EntryHit]:
        async def nearest(connection: Connection, record: _Record) -> list[provider.EntryHit]:
            check_dimension(name, record.collection.dimension, len(vector))
            if record.collection.dimension is None:
                return []
            parameters = Parameters(record.key, vector, limit)
            rows = await connection.fetch(
                f"""SELECT e.id, e.text, e.metadata, nearest.cosine FROM (
                        SELECT e.id, -(e.embedding <#> $2) AS cosine FROM rag_context.entries AS e
                        WHERE e.collection = $1 AND {collection_entries.passes(where, parameters)}
                        ORDER BY e.embedding <#> $2, e.id LIMIT $3
                    ) AS nearest JOIN rag_context.entries AS e ON e.collection = $1 AND e.id = nearest.id
                    ORDER BY nearest.cosine DESC, e.id""",  # noqa: S608
                *parameters.values,
            )
            return [provider.EntryHit(collection_entries.entry_from(row), row["cosine"]) for row in rows]

        return await self._read(name, nearest)

    async def keyword_scores(
        self, name: str, text: str, where: Clause, *, limit: int, also: Sequence[str] = ()
    ) -> dict[str, provider.KeywordScore]:
        return await self._read(
            name,
            lambda connection, record: collection_entries.best_by_keywords(
                connection, record.key, text, where, limit=limit, also=also
            ),
        )

    async def ids(self, name: str, where: Clause) -> list[str]:
        async def listed(connection: Connection, record: _Record) -> list[str]:
            parameters = Parameters(record.key)
            rows = await connection.fetch(
                f"""SELECT e.id FROM rag_context.entries AS e
                    WHERE e.collection = $1 AND {collection_entries.passes(where, parameters)} ORDER BY e.id""",  # noqa: S608
                *parameters.values,
            )
            return [collection_entries.unescaped(id_) for (id_,) in rows]

        return await self._read(name, listed)

    async def get(self, name: str, ids: Sequence[str]) -> dict[str, provider.Entry]:
        async def found(connection: Connection, record: _Record) -> dict[str, provider.Entry]:
            rows = await _rows_of(connection, record, "id, text, metadata", ids)
            entries = [collection_entries.entry_from(row) for row in rows]
            return {entry.id: entry for entry in entries}

        return await self._read(name, found)

    async def delete(self, name: str, id_: str) -> bool:
        return await self.delete_many(name, [id_], EVERYTHING) > 0

    async def delete_many(self, name: str, ids: Sequence[str], where: Clause) -> int:
        """Remove those of these entries that `where` lets through when they go, all in one transaction."""

        async def deleted(connection: Connection, record: _Record) -> int:
            rows = await _rows_of(connection, record, "id, metadata, text", ids)
            gone = [row["id"] for row in rows if matches(where, collection_entries.entry_from(row).metadata)]
            removed = await collection_entries.remove_entries(connection, record.key, gone)
            await connection.execute(
                "UPDATE rag_context.collections SET entries = entries - $2 WHERE key = $1", record.key, removed
            )
            return removed

        return await self._change(name, deleted)

    async def empty(self, name: str) -> int:
        """Remove all entries at once; their rows are removed little by little. Returns how many."""

        async def emptied(connection: Connection, record: _Record) -> int:
            # Under a new key: as fast at every size, and a reader's snapshot keeps the entries of the old one.
            await connection.execute(
                "UPDATE rag_context.collections SET key = DEFAULT, entries = 0 WHERE key = $1", record.key
            )
            await collection_entries.discard(connection, record.key)
            return record.collection.count

        emptied_of = await self._change(name, emptied)
        self._discarded.remove_soon()
        return emptied_of

    async def switch(self, name: str, built: str) -> bool:
        """Put `built` in the place of `name` in one transaction, which also sees that both hold the same documents."""

        async def switched(connection: Connection) -> bool:
            # In one order, so that two switches do not wait for each other.
            records = {each: await _locked(connection, each) for each in sorted((name, built))}
            old, new = records[name], records[built]
            if old.collection.count != new.collection.count or await connection.fetchval(_DIFFERS, old.key, new.key):
                return False
            await connection.execute("DELETE FROM rag_context.collections WHERE key = $1", new.key)
            await connection.execute(
                "UPDATE rag_context.collections SET key = $2, metadata = $3, dimension = $4 WHERE key = $1",
                old.key,
                new.key,
                metadata_text(new.collection.metadata),
                new.collection.dimension,
            )
            await collection_entries.discard(connection, old.key)
            return True

        is_switched = await self._database.write(switched)
        self._discarded.remove_soon()
        return is_switched

    async def values(self, name: str, path: Path) -> list[Json]:
        async def found(connection: Connection, record: _Record) -> list[Json]:
            parameters = Parameters(record.key)
            field = collection_entries.field_at(path, parameters)
            rows = await connection.fetch(
                f"""SELECT DISTINCT ON ({field}) e.id, e.text, e.metadata FROM rag_context.entries AS e
                    WHERE e.collection = $1
                    AND jsonb_typeof({field}) IN ('string', 'number', 'boolean', 'array')""",  # noqa: S608
                *parameters.values,
            )
            return distinct(value_at(collection_entries.entry_from(row).metadata, path) for row in rows)

        return await self._read(name, found)

    async def health(self) -> provider.ProviderHealth:
        """Reads the tables; their size includes rows that are still to be removed."""

        async def measure() -> tuple[int, int]:
            row = await self._database.fetchrow(
                """SELECT (SELECT count(*) FROM rag_context.collections),
                          pg_total_relation_size('rag_context.entries')"""
            )
            return (0, 0) if row is None else (row[0], row[1])

        return await timed_health(measure)

    async def close(self) -> None:
        await self._discarded.close()

    async def _read(self, name: str, query: Callable[[Connection, _Record], Awaitable[T]]) -> T:
        """Run a query on a collection, all of its statements in one snapshot."""

        async def snapshot(connection: Connection) -> T:
            # The key, a count and a page are of one moment, or entries of two states could be mixed.
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                row = await connection.fetchrow(_COLLECTION, collection_entries.escaped(name))
                if row is None:
                    raise unknown_collection(name)
                return await query(connection, _Record(row["key"], collection_entries.collection_from(row)))

        return await self._database.read(snapshot)

    async def _change(self, name: str, work: Callable[[Connection, _Record], Awaitable[T]]) -> T:
        """Run `work` in a transaction, while no other one changes the collection."""

        async def changed(connection: Connection) -> T:
            return await work(connection, await _locked(connection, name))

        self._discarded.remove_leftovers()
        return await self._database.write(changed)


async def _rows_of(connection: Connection, record: _Record, columns: str, ids: Sequence[str]) -> list[Row]:
    statement = f"SELECT {columns} FROM rag_context.entries WHERE collection = $1 AND id = ANY ($2)"  # noqa: S608
    rows: list[Row] = await connection.fetch(statement, record.key, [collection_entries.escaped(id_) for id_ in ids])
    return rows


async def _locked(connection: Connection, name: str) -> _Record:
    """A collection that no other transaction changes until this one ends. Raises: NotFoundError."""
    row = await connection.fetchrow(f"{_COLLECTION} FOR UPDATE", collection_entries.escaped(name))
    if row is None:
        raise unknown_collection(name)
    return _Record(row["key"], collection_entries.collection_from(row))


async def _describe(connection: Connection, record: _Record, metadata: Mapping[str, Json]) -> provider.Collection:
    row = await connection.fetchrow(
        "UPDATE rag_context.collections SET metadata = $2 WHERE key = $1 RETURNING *",
        record.key,
        metadata_text(metadata),
    )
    return collection_entries.collection_from(row)

"""The PostgreSQL store as a whole: one database, its ports, bulk loads, and the task that maintains the index.

Into an empty database a bulk load drops the keyword index and builds it afterwards, which takes a fraction of the time.
A process that dies in between leaves a database without it: searches are slow until the next server has built it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from rag_context.domain.journal import Cause
from rag_context.errors import BackendError
from rag_context.ports.writing import WholeDocument
from rag_context.resilience.deadline import ended
from rag_context.stores.postgres.audit import PostgresAuditor
from rag_context.stores.postgres.candidates import PostgresCandidates
from rag_context.stores.postgres.connection import Connection, PostgresDatabase
from rag_context.stores.postgres.documents import PostgresDocuments
from rag_context.stores.postgres.generations import PostgresRebuilder, drop_unused
from rag_context.stores.postgres.journal import PostgresJournal, write_new_recorded
from rag_context.stores.postgres.keywords import PostgresTexts
from rag_context.stores.postgres.metrics import PostgresMetrics
from rag_context.stores.postgres.rows import ChunkTerms
from rag_context.stores.postgres.state import FOLDED_FROM, WRITERS, Claims, IndexState, PostgresSnapshot
from rag_context.stores.postgres.vector_search import EXACT_ROWS, PostgresVectors
from rag_context.stores.server_stores import log_failure, start_rounds

MAINTENANCE_S = 10.0
"""Interval of the checks whether vectors need an index, or are unused. An index is built once their number has stayed
the same for so long: it is many times faster to fill a table first."""

GROWTH = 4.0
"""An index is built although vectors are still being added, once they are so many times those compared one by one."""

RECOUNT_EVERY_S = 1.0
RECOUNT_SHARE = 0.02
"""Vectors are counted so often, to notice rows that vanish behind the documents, and take at most so much of the time.
A trigger would see them at once, but would be called for every chunk of a document that is deleted."""

WATCHED_S = 0.5

_KEYWORD_INDEX = "chunks_by_terms"

_BUILD_KEYWORD_INDEX = f"""
CREATE INDEX CONCURRENTLY {_KEYWORD_INDEX} ON rag_context.chunks USING gin (terms) WITH (fastupdate = off)
"""

_KEYWORD_INDEX_STATE = """
SELECT i.indisvalid AS is_valid,
       EXISTS (SELECT 1 FROM pg_stat_progress_create_index AS p WHERE p.index_relid = c.oid) AS is_built_now
FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'rag_context' AND c.relname = $1
"""


class PostgresStore:
    """The ports of one database. `documents` is the document store, the index writer and the model registry."""

    def __init__(self, database: PostgresDatabase, exact_rows: int) -> None:
        state = IndexState(database)
        self.database = database
        self.documents = PostgresDocuments(database, state)
        self.vectors = PostgresVectors(database, state, self.documents, exact_rows)
        self.texts = PostgresTexts(database, state)
        self.candidates = PostgresCandidates(database, self.vectors, self.texts)
        self.metrics = PostgresMetrics(database)
        self.rebuilder = PostgresRebuilder(database, state, self.vectors.build_index)
        self.auditor = PostgresAuditor(database, state)
        self.bulk = PostgresBulk(database, state, self.vectors)
        self.claims = Claims(database)
        self.journal = PostgresJournal(database, state)
        self.maintenance = Maintenance(database, state, self.vectors, self.bulk, exact_rows)


@asynccontextmanager
async def open_postgres(
    url: str, *, pool_size: int = 10, statement_cache_size: int = 64, exact_rows: int = EXACT_ROWS
) -> AsyncIterator[PostgresStore]:
    """Open the database at `url`; its schema is made, or brought up to date, on first use.

    An unreachable server is not an error here: the ports raise `BackendError` until it is available.
    """
    database = PostgresDatabase(url, pool_size=pool_size, statement_cache_size=statement_cache_size)
    store = PostgresStore(database, exact_rows)
    rounds = start_rounds(store.maintenance.round, f"PostgreSQL at {database.address}")
    try:
        yield store
    finally:
        await ended(rounds)
        await store.maintenance.close()
        await store.claims.close()
        await database.close()


class PostgresBulk:
    """`BulkLoad` over one database."""

    def __init__(self, database: PostgresDatabase, state: IndexState, vectors: PostgresVectors) -> None:
        self._database = database
        self._state = state
        self._vectors = vectors
        self._loads = 0

    @property
    def is_loading(self) -> bool:
        """Whether indexes wait for the end of a load of this process."""
        return self._loads > 0

    async def write_new(self, documents: Sequence[WholeDocument], made_by: str | None) -> list[str]:
        words = await asyncio.to_thread(
            lambda: [[ChunkTerms(chunk.searchable) for chunk in chunks] for _, chunks, _ in documents]
        )
        cause = Cause.now()
        return await self._state.change(
            lambda connection, change: write_new_recorded(connection, change, documents, words, made_by, cause)
        )

    @asynccontextmanager
    async def loading(self, on_progress: Callable[[float], None]) -> AsyncIterator[None]:
        self._loads += 1
        try:
            # Only an empty index: in any other, searches need it while the load runs.
            if not (await self._state.refresh()).chunks:
                await self._database.write(_drop_keyword_index)
            yield
            if await self.needs_keyword_index():
                await self.build_keyword_index()
            generation = (await self._state.refresh()).generation
            async with self._watched(generation, on_progress):
                await self._vectors.build_index(generation)
        finally:
            self._loads -= 1

    async def needs_keyword_index(self) -> bool:
        """Whether the index over terms is missing, and no process builds it. Raises: BackendError."""
        row = await self._database.fetchrow(_KEYWORD_INDEX_STATE, _KEYWORD_INDEX)
        return row is None or not (row["is_valid"] or row["is_built_now"])

    async def build_keyword_index(self) -> None:
        """Build the index that a load has dropped; what an interrupted build left is dropped first."""

        async def built(connection: Connection) -> None:
            await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS rag_context.{_KEYWORD_INDEX}")
            with suppress(asyncpg.DuplicateTableError):  # another process has begun
                await connection.execute(_BUILD_KEYWORD_INDEX)

        await self._database.outside(built)

    @asynccontextmanager
    async def _watched(self, generation: int, on_progress: Callable[[float], None]) -> AsyncIterator[None]:
        """Report how far the index over a generation of vectors is while the block runs."""

        async def watch() -> None:
            while True:
                await asyncio.sleep(WATCHED_S)
                with suppress(BackendError):  # the build itself says what is wrong
                    share = await self._vectors.built_share(generation)
                    if share is not None:
                        on_progress(share)

        watching = asyncio.create_task(watch(), name="postgres index progress")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait({watching})


async def _drop_keyword_index(connection: Connection) -> None:
    """Drop it, unless documents came in meanwhile."""
    await connection.execute("SET LOCAL lock_timeout = '2s'")
    await connection.execute("SELECT pg_advisory_xact_lock($1)", WRITERS)
    # Under the lock of all writers: the first document may have come since the caller looked.
    if not await connection.fetchval("SELECT EXISTS (SELECT 1 FROM rag_context.chunks)"):
        await connection.execute(f"DROP INDEX IF EXISTS rag_context.{_KEYWORD_INDEX}")


@dataclass(eq=False)
class Maintenance:
    """Reads the state of the index in short intervals, and does what is due."""

    database: PostgresDatabase
    state: IndexState
    vectors: PostgresVectors
    bulk: PostgresBulk
    exact_rows: int

    def __post_init__(self) -> None:
        self._maintained_at: float | None = None
        self._counted = 0
        self._building: asyncio.Task[Any] | None = None
        self._recounting: asyncio.Task[None] | None = None
        self._recount_at = 0.0

    async def round(self, now_s: float) -> None:
        seen = await self.state.refresh()
        is_due = self._maintained_at is None or now_s - self._maintained_at >= MAINTENANCE_S
        if is_due or seen.unfolded > FOLDED_FROM:
            await self.state.fold()
        if is_due:
            if not self.bulk.is_loading:
                await self._build_due(seen)
            await drop_unused(self.database)
            self._maintained_at, self._counted = now_s, seen.vectors
        if now_s >= self._recount_at and (self._recounting is None or self._recounting.done()):
            # Beside these rounds: a large table is not counted in a moment.
            self._recounting = asyncio.create_task(self._recount(), name="postgres vectors")
            self._recounting.add_done_callback(log_failure("the vectors were not counted, and will be counted again"))

    async def close(self) -> None:
        """Give up the index that is being built; another server, or the next start, begins again."""
        for task in (self._building, self._recounting):
            if task is not None:
                await ended(task)

    async def _recount(self) -> None:
        """Count the vectors, and correct their counter where it differs. Raises: BackendError."""
        began = time.monotonic()
        try:
            await self.state.correct_vectors()
        finally:
            ended_at = time.monotonic()
            self._recount_at = ended_at + max(RECOUNT_EVERY_S, (ended_at - began) / RECOUNT_SHARE)

    async def _build_due(self, seen: PostgresSnapshot) -> None:
        """Build the due indexes beside these rounds, which must go on: it takes long."""
        if self._building is not None and not self._building.done():
            return
        # Enough vectors, and no more are being added.
        is_quiet = self._maintained_at is None or seen.vectors == self._counted
        is_due = seen.vectors > self.vectors.indexed_from and (is_quiet or seen.vectors > GROWTH * self.exact_rows)
        if await self.bulk.needs_keyword_index():
            self._building = asyncio.create_task(self.bulk.build_keyword_index(), name="postgres keyword index")
        elif is_due:
            self._building = asyncio.create_task(self.vectors.build_index(seen.generation), name="postgres index")
        else:
            return
        self._building.add_done_callback(
            log_failure("an index was not built, and will be tried again", logging.WARNING)
        )

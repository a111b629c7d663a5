"""The PostgreSQL store as a whole: one database, its ports, and the task that maintains the index.

That task follows other servers' writes, adds up counters, builds the index over the vectors, and drops unused vectors.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rag_context.stores.postgres.audit import PostgresAuditor
from rag_context.stores.postgres.bulk import PostgresBulk
from rag_context.stores.postgres.candidates import PostgresCandidates
from rag_context.stores.postgres.connection import Database
from rag_context.stores.postgres.documents import PostgresDocuments
from rag_context.stores.postgres.generations import PostgresRebuilder, drop_unused
from rag_context.stores.postgres.keywords import PostgresTexts
from rag_context.stores.postgres.metrics import PostgresMetrics
from rag_context.stores.postgres.state import FOLDED_FROM, Claims, IndexState, Snapshot
from rag_context.stores.postgres.vectors import EXACT_ROWS, PostgresVectors
from rag_context.stores.server_stores import ended, log_failure, start_rounds

MAINTENANCE_S = 10.0
"""How often it is looked whether vectors need an index, or are unused. An index is built once their number has stayed
the same for so long: it is many times faster to fill a table first."""

GROWTH = 4.0
"""An index is built although vectors are still being added, once they are so many times those compared one by one."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PostgresStore:
    """The ports of one database. `documents` is the document store, the index writer and the model registry."""

    database: Database
    documents: PostgresDocuments
    vectors: PostgresVectors
    texts: PostgresTexts
    candidates: PostgresCandidates
    metrics: PostgresMetrics
    rebuilder: PostgresRebuilder
    auditor: PostgresAuditor
    bulk: PostgresBulk
    claims: Claims


@asynccontextmanager
async def open_postgres(
    url: str, *, pool_size: int = 10, statement_cache_size: int = 64, exact_rows: int = EXACT_ROWS
) -> AsyncIterator[PostgresStore]:
    """Open the database at `url`; its schema is made, or brought up to date, on first use.

    An unreachable server is not an error here: the ports raise `BackendError` until it is available.

    Args:
        url: the address, `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.
        pool_size: connections at most.
        statement_cache_size: prepared statements kept by each connection; 0 behind PgBouncer.
        exact_rows: vectors that are compared one by one at most.
    """
    database = Database(url, pool_size=pool_size, statement_cache_size=statement_cache_size)
    state = IndexState(database)
    documents = PostgresDocuments(database, state)
    vectors = PostgresVectors(database, state, documents, exact_rows)
    texts, metrics = PostgresTexts(database, state), PostgresMetrics(database)
    claims = Claims(database)
    rebuilder = PostgresRebuilder(database, state, vectors.build_index)
    bulk = PostgresBulk(database, state, vectors)
    maintenance = Maintenance(database, state, vectors, bulk, exact_rows)
    rounds = start_rounds(maintenance.round, f"PostgreSQL at {database.address}")
    try:
        auditor = PostgresAuditor(database, state)
        candidates = PostgresCandidates(database, vectors, texts)
        yield PostgresStore(database, documents, vectors, texts, candidates, metrics, rebuilder, auditor, bulk, claims)
    finally:
        await ended(rounds)
        await maintenance.close()
        await documents.close()
        await claims.close()
        await database.close()


class Maintenance:
    """Reads the state of the index in short intervals, and does what is due.

    Args:
        database: the database.
        state: the state of its index.
        vectors: their index.
        bulk: loads that indexes wait for.
        exact_rows: chunks that are compared one by one at most.
    """

    def __init__(
        self, database: Database, state: IndexState, vectors: PostgresVectors, bulk: PostgresBulk, exact_rows: int
    ) -> None:
        self._database = database
        self._state = state
        self._vectors = vectors
        self._bulk = bulk
        self._exact_rows = exact_rows
        self._maintained_at: float | None = None
        self._counted = 0
        self._building: asyncio.Task[None] | None = None

    async def round(self, now_s: float) -> None:
        """One round. Raises: BackendError."""
        seen = await self._state.look()
        if seen.unfolded > FOLDED_FROM:
            await self._state.fold()
        if self._maintained_at is None or now_s - self._maintained_at >= MAINTENANCE_S:
            if not self._bulk.is_loading:
                await self._build_due(seen)
            await drop_unused(self._database)
            self._maintained_at, self._counted = now_s, seen.vectors

    async def close(self) -> None:
        """Give up the index that is being built; another server, or the next start, begins again."""
        if self._building is not None:
            await ended(self._building)

    async def _build_due(self, seen: Snapshot) -> None:
        """Build the due indexes beside these rounds, which must go on: it takes long."""
        if self._building is not None and not self._building.done():
            return
        if await self._bulk.needs_keyword_index():
            self._building = asyncio.create_task(self._bulk.build_keyword_index(), name="postgres keyword index")
        elif self._needs_index(seen):
            self._building = asyncio.create_task(self._build_vectors(seen.generation), name="postgres index")
        else:
            return
        self._building.add_done_callback(
            log_failure("an index was not built, and will be tried again", logging.WARNING)
        )

    async def _build_vectors(self, generation: int) -> None:
        await self._vectors.build_index(generation)

    def _needs_index(self, seen: Snapshot) -> bool:
        """Whether there are enough vectors, and no more are being added."""
        is_quiet = self._maintained_at is None or seen.vectors == self._counted
        return seen.vectors > self._vectors.indexed_from and (is_quiet or seen.vectors > GROWTH * self._exact_rows)

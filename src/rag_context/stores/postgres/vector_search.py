"""Vector search: exact where a filter lets few chunks through, else by an HNSW index that filters while it searches."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg
from cachetools import TTLCache

from rag_context.domain.documents import Tenant, counted
from rag_context.domain.search import Filter, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError, BackendError
from rag_context.stores.postgres import state as index_state
from rag_context.stores.postgres.connection import Connection, PostgresDatabase, Row
from rag_context.stores.postgres.documents import PostgresDocuments
from rag_context.stores.postgres.driver import Plan, is_missing_table, is_other_dimension
from rag_context.stores.postgres.rows import REFERENCE_COLUMNS, condition, reference_from
from rag_context.stores.postgres.writer import dimension_of
from rag_context.stores.sql_documents import Parameters

EXACT_ROWS = 20_000
"""Chunks that pass a filter and are compared one by one at most; the index is used where more pass."""

NARROW_SHARE = 0.25
"""The index is also used where more than this share of all chunks pass, however few these are."""

INDEXED_FROM = 5_000
"""Up to so many vectors have no index."""

INDEXED_DIMENSIONS = 2_000
"""What pgvector's HNSW index can hold of the type `vector`; longer vectors are compared one by one."""

_BUILD_OPTIONS = "m = 24, ef_construction = 128"
"""pgvector's defaults (16 and 64) lose whole clusters of vectors: at 100 000 chunks, of the nearest ten 93 % were found
at `ef_search` 400, with these 98.5 %."""

LEAST_CANDIDATES, MOST_CANDIDATES, VECTORS_PER_CANDIDATE = 200, 1_000, 100
"""Size of the list of candidates of a search in the index (`hnsw.ef_search`): at least, at most (pgvector allows no
more), and how many vectors each stands for in between. Recall falls with the number of vectors otherwise."""

OVERFETCH = 4
"""The index returns so many times as many chunks as are requested, which are sorted by their exact cosines.

Scans in strict order drop what comes out of order, and under a filter most does: of the nearest 40 of 40 000 chunks
under a filter of 10 % they returned 68 %, scans in relaxed order 80 %, and 96 % of four times as many.
"""

COUNTED_S = 30.0
"""How long it is remembered that a filter lets so many chunks through that the index is used."""

_INDEX = """
SELECT i.indisvalid FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'rag_context' AND c.relname = $1
"""

_BUILT_NOW = """
SELECT EXISTS (
    SELECT 1 FROM pg_stat_progress_create_index AS p JOIN pg_class AS c ON c.oid = p.index_relid WHERE c.relname = $1
)
"""

BUILDING = 0x72616769
"""With the generation, key of the lock that a session holds that builds an index."""

_BUILDING = "SELECT pg_try_advisory_lock($1, $2)"

_BUILT_SHARE = """
SELECT p.blocks_done::float8 / p.blocks_total
FROM pg_stat_progress_create_index AS p JOIN pg_class AS c ON c.oid = p.relid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE p.datname = current_database() AND n.nspname = 'rag_context' AND c.relname = $1
  AND p.blocks_total > 0 AND p.phase LIKE 'building index%'
"""

BUILD_MEMORY = "512MB"
"""What building an index may use, unless the server's `maintenance_work_mem` is more; it is shared memory."""

_BUILD_SETTINGS = """
SELECT set_config('maintenance_work_mem', $1, false) FROM pg_settings
WHERE name = 'maintenance_work_mem' AND pg_size_bytes(setting || unit) < pg_size_bytes($1)
"""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class PostgresVectors:
    """`VectorStore` over one database; where there is an index, at most `exact_rows` chunks are compared one by one."""

    def __init__(
        self,
        database: PostgresDatabase,
        state: index_state.IndexState,
        documents: PostgresDocuments,
        exact_rows: int = EXACT_ROWS,
    ) -> None:
        self._database = database
        self._state = state
        self.passages = documents.passages
        self.indexed_from = min(INDEXED_FROM, exact_rows)
        """Up to so many vectors need no index."""
        self._exact_rows = exact_rows
        self._indexed: dict[int, int] = {}
        self._broad: TTLCache[Filter, bool] = TTLCache(1024, COUNTED_S)

    @property
    def made_by(self) -> str | None:
        seen = self._state.snapshot
        return None if seen is None else index_state.fingerprint_of(seen.model)

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        if limit < 1:
            return []
        await self._state.of_tenant(where.tenant)

        async def found(seen: index_state.PostgresSnapshot) -> list[Row]:
            parameters = Parameters(vector)
            tables = self.tables(seen, vector, limit, where, parameters, "$1", condition(where, parameters, "c"))
            statement = f"""WITH {tables}
                            SELECT {REFERENCE_COLUMNS}, f.cosine, f.passing
                            FROM found_by_vector AS f JOIN rag_context.chunks AS c ON c.key = f.key
                            ORDER BY f.cosine DESC, c.id"""  # noqa: S608  (values are bound)
            rows = await self._database.fetch(statement, *parameters.values)
            self.note_passing(where, rows[0]["passing"] if rows else None)
            return rows

        return [VectorHit(reference_from(row), row["cosine"]) for row in await self.in_use(found, len(vector))]

    def tables(
        self,
        seen: index_state.PostgresSnapshot,
        vector: Vector,
        limit: int,
        where: Filter,
        parameters: Parameters,
        query: str,
        passing: str,
    ) -> str:
        """What finds the nearest chunks inside of a statement; the last table is `found_by_vector`.

        Its columns are `key`, `id`, `cosine`, and `passing` (see `note_passing`).
        """
        vectors, most = f"rag_context.vectors_{seen.generation}", str(int(limit))  # a plan depends on it
        dimension = self._indexed.get(seen.generation)
        # `<#>` is the negative inner product; all vectors have length 1, so it orders by cosine.
        one_by_one = f"""SELECT c.key, c.id, -(v.embedding <#> {query}) AS cosine
                         FROM {{chunks}} AS c JOIN {vectors} AS v ON v.chunk = c.key WHERE {{condition}}
                         ORDER BY v.embedding <#> {query}, c.id LIMIT {most}"""  # noqa: S608
        if dimension is None or len(vector) != dimension:
            nearest = one_by_one.format(chunks="rag_context.chunks", condition=passing)
            return f"found_by_vector AS MATERIALIZED (SELECT *, NULL::bigint AS passing FROM ({nearest}) AS nearest)"  # noqa: S608
        tables, either, is_broad, counted = [], [], "true", "NULL::bigint"
        candidates = min(max(LEAST_CANDIDATES, seen.vectors // VECTORS_PER_CANDIDATE), MOST_CANDIDATES)
        settings = f"""(SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true)
                        || set_config('hnsw.ef_search', '{candidates}', true)) <> ''"""  # until the statement ends
        # Conditions without a column of a table are evaluated once, before any of its rows is read.
        if where not in self._broad:
            narrow = f"{parameters.add(self._narrow(seen, where.tenant))}::bigint"
            counted = "(SELECT count(*) FROM few)"
            is_broad = f"{counted} > {narrow}"
            few = f"SELECT c.key, c.id FROM rag_context.chunks AS c WHERE {passing} LIMIT {narrow} + 1"  # noqa: S608
            tables.append(f"few AS MATERIALIZED ({few})")
            either.append(one_by_one.format(chunks="few", condition=f"NOT {is_broad}"))
        # The very expression of the index, which casts because the column has no dimension of its own.
        distance = f"v.embedding::vector({dimension}) <#> {query}::vector({dimension})"
        by_index = f"""SELECT c.key, c.id, -({distance}) AS cosine
                       FROM {vectors} AS v JOIN rag_context.chunks AS c ON c.key = v.chunk
                       WHERE {is_broad} AND {settings} AND {passing}
                       ORDER BY {distance} LIMIT {OVERFETCH} * {most}"""  # noqa: S608
        tables.append(f"by_index AS MATERIALIZED ({by_index})")
        # pgvector ends a scan after some 20 000 rows; where the filter dropped too many of them, all that pass are
        # compared.
        is_complete = f"(SELECT count(*) FROM by_index) >= {most}"  # noqa: S608
        either.append(f"SELECT * FROM by_index WHERE {is_complete}")  # noqa: S608
        condition_of_rest = f"{is_broad} AND NOT {is_complete} AND {passing}"
        either.append(one_by_one.format(chunks="rag_context.chunks", condition=condition_of_rest))
        nearest = " UNION ALL ".join(f"({each})" for each in either)
        found = f"""SELECT *, {counted} AS passing FROM ({nearest}) AS nearest
                    ORDER BY cosine DESC, id LIMIT {most}"""  # noqa: S608
        return ", ".join([*tables, f"found_by_vector AS MATERIALIZED ({found})"])

    def plan(self, seen: index_state.PostgresSnapshot, where: Filter) -> Plan:
        """How a statement with these `tables` is planned: once where no value of it decides on the plan."""
        is_open = where == Filter(where.tenant) and (seen.generation not in self._indexed or where in self._broad)
        return Plan.ONCE if is_open else Plan.EACH_TIME

    def note_passing(self, where: Filter, passing: int | None) -> None:
        """Remember a filter that lets more chunks through than are compared one by one."""
        seen = self._state.snapshot
        if passing is not None and seen is not None and passing > self._narrow(seen, where.tenant):
            self._broad[where] = True

    def _narrow(self, seen: index_state.PostgresSnapshot, tenant: Tenant) -> int:
        """Up to so many chunks that pass are compared one by one although there is an index."""
        narrow = min(self._exact_rows, max(int(NARROW_SHARE * seen.vectors), 1))
        own = self._state.chunks_of(tenant)
        # An index alone finds all, so a tenant that would need none by itself is answered as if it were alone.
        return narrow if own is None or own > self.indexed_from else max(narrow, self.indexed_from)

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        if not chunk_ids:
            return {}
        rows = await self.in_use(
            lambda seen: self._database.fetch(
                f"""SELECT c.id, -(v.embedding <#> $1) FROM rag_context.chunks AS c
                    JOIN rag_context.vectors_{seen.generation} AS v ON v.chunk = c.key
                    WHERE c.id = ANY ($2)""",  # noqa: S608
                vector,
                list(chunk_ids),
            ),
            len(vector),
        )
        return dict(rows)

    async def vectors(self, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        rows = await self.in_use(
            lambda seen: self._database.fetch(
                f"""SELECT c.id, v.embedding FROM rag_context.chunks AS c
                    JOIN rag_context.vectors_{seen.generation} AS v ON v.chunk = c.key WHERE c.id = ANY ($1)""",  # noqa: S608
                list(chunk_ids),
            )
        )
        return dict(rows)

    async def ping(self) -> str:
        """Read the state and one of the vectors in use; returns one line for people. Raises: BackendError."""

        async def read(seen: index_state.PostgresSnapshot) -> index_state.PostgresSnapshot:
            await index_state.try_read(self._database, index_state.FIRST_VECTOR.format(generation=seen.generation))
            return seen

        await self._state.refresh()
        seen = await self.in_use(read)
        if seen.generation in self._indexed:
            return f"{counted(seen.vectors, 'vector')}, by index"
        share = await self.built_share(seen.generation) if seen.vectors > self.indexed_from else None
        how = "compared one by one" if share is None else f"compared one by one until the index is built ({share:.0%})"
        return f"{counted(seen.vectors, 'vector')}, {how}"

    async def built_share(self, generation: int) -> float | None:
        """The share of a generation's vectors that are in the index that is being built, 0..1; None if none is."""
        row = await self._database.fetchrow(_BUILT_SHARE, f"vectors_{generation}")
        return None if row is None else float(row[0])

    async def build_index(self, generation: int) -> bool:
        """Build the index over a generation where it has enough vectors and none; False where it needs none.

        Writers go on meanwhile. What an interrupted build left is dropped first; a build by another process counts as
        one.
        """
        name = f"vectors_{generation}_nearest"

        async def built(connection: Connection) -> bool:
            dimension = await dimension_of(connection, generation)
            if dimension is None or dimension > INDEXED_DIMENSIONS:
                return False
            # Counting stops where the answer is known: an exact count reads the whole table.
            some = f"SELECT 1 FROM rag_context.vectors_{generation} LIMIT {self.indexed_from + 1}"  # noqa: S608
            if await connection.fetchval(f"SELECT count(*) FROM ({some}) AS few") <= self.indexed_from:  # noqa: S608
                return False
            if not await connection.fetchval(_INDEX, name):
                # Another server that came to the same would drop what this one is building.
                if self._database.has_sessions and not await connection.fetchval(_BUILDING, BUILDING, generation):
                    return False
                if await connection.fetchval(_INDEX, name):
                    self._indexed[generation] = dimension
                    return True
                if await connection.fetchval(_BUILT_NOW, name):
                    return False
                # A build that was interrupted leaves an invalid index, which nothing uses and every write maintains.
                await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS rag_context.{name}")
                if self._database.has_sessions:
                    await connection.fetch(_BUILD_SETTINGS, BUILD_MEMORY)
                await connection.execute(
                    f"""CREATE INDEX CONCURRENTLY {name} ON rag_context.vectors_{generation}
                        USING hnsw ((embedding::vector({dimension})) vector_ip_ops) WITH ({_BUILD_OPTIONS})"""
                )
                logger.info("the index over the vectors was built")
            self._indexed[generation] = dimension
            return True

        try:
            return await self._database.outside(built)
        except BackendError as error:
            if is_missing_table(error) or isinstance(error.__cause__, asyncpg.DuplicateTableError):
                return False
            raise

    async def in_use(self, work: Callable[[index_state.PostgresSnapshot], Awaitable[T]], queried: int = 0) -> T:
        """The result of `work` on the generation in use; repeated where that was just replaced.

        `queried` is the dimension of the query's vector, if there is one.
        """
        try:
            return await work(await self._state.current())
        except BackendError as error:
            if is_other_dimension(error):
                raise await self._wrong_dimension(queried) from error
            if not is_missing_table(error):
                raise
        # The table was dropped after a switch; the state that named it had been read before.
        return await work(await self._state.refresh())

    async def _wrong_dimension(self, queried: int) -> BackendDataError:
        seen = await self._state.refresh()
        model = index_state.model_of(seen.model)
        if model is not None and model.dimension == queried:
            return BackendDataError(
                "vectors", "Some vectors of the index have a wrong dimension; run `rag-context check --repair`."
            )
        stored = await self._database.read(lambda connection: dimension_of(connection, seen.generation))
        return BackendDataError(
            "vectors", f"The vectors of the index have dimension {stored}, not that of the query; run a reindex."
        )

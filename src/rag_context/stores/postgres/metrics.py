"""One row per search and per error, and their statistics."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rag_context.domain import reports
from rag_context.domain.documents import LATEST, microseconds
from rag_context.stores import search_statistics
from rag_context.stores.postgres.connection import Connection, PostgresDatabase
from rag_context.stores.postgres.driver import Plan
from rag_context.stores.postgres.rows import read_row, read_value, stored_value
from rag_context.stores.postgres.writer import SCHEMA, copy_rows

_PRUNING = 0x7261675F_00000004
"""Key of the advisory lock under which old records are deleted."""

_BIN = (
    f"ceil(ln(greatest(latency_ms, {reports.SMALLEST_MS}) / {reports.SMALLEST_MS}) / {math.log(reports.BIN_GROWTH)!r})"
)

_SUMS = """
SELECT ((timestamp - $1) * $3 / ($2 - $1))::integer AS slice, {latency} AS latency, count(*) AS queries,
       sum(latency_ms) AS latency_ms, count(*) FILTER (WHERE {fallback}) AS fallbacks,
       count(*) FILTER (WHERE cache_hit) AS cache_hits
FROM rag_context.searches WHERE timestamp >= $1 AND timestamp < $2 GROUP BY 1, 2
"""

_COUNTED = f"""
SELECT {", ".join(reports.COUNTED)}, count(*) AS queries, grouping({", ".join(reports.COUNTED)}) AS grouped
FROM rag_context.searches WHERE timestamp >= $1 AND timestamp < $2
GROUP BY GROUPING SETS ({", ".join(f"({name})" for name in reports.COUNTED)})
"""  # noqa: S608  (names of our own columns)

_AT_MOST = """
SELECT count(*) FROM (
    SELECT 1 FROM rag_context.searches WHERE timestamp >= $1 AND timestamp < $2 LIMIT $3
) AS few
"""


class PostgresMetrics:
    """`MetricsStore` over one database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def append(self, searches: Sequence[reports.SearchRecord], errors: Sequence[reports.ErrorRecord]) -> None:
        async def appended(connection: Connection) -> None:
            last, values = search_statistics.last_row(searches, errors)
            where = " AND ".join(f"{name} = ${position}" for position, name in enumerate(values, 1))
            statement = f"SELECT 1 FROM {SCHEMA}.{last} WHERE {where}"  # noqa: S608
            if await connection.fetchval(statement, *map(stored_value, values.values())):
                return
            for table, columns, rows in (
                ("searches", search_statistics.SEARCH_COLUMNS, map(search_statistics.search_row, searches)),
                ("errors", search_statistics.ERROR_COLUMNS, map(search_statistics.error_row, errors)),
            ):
                records = [tuple(map(stored_value, row)) for row in rows]
                if records:
                    await copy_rows(connection, table, columns, records)

        if searches or errors:
            await self._database.write(appended, Plan.EITHER)

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> reports.SearchSummary:
        slices = reports.Slices(microseconds(since), microseconds(until), max(buckets, 1))
        counts: dict[str, dict[Any, int]] = {name: {} for name in reports.COUNTED}
        if slices.end <= slices.start:
            return reports.summary({}, counts, slices, 0)
        span = (slices.start, slices.end)
        row = await self._database.fetchrow(_AT_MOST, *span, reports.EXACT_RECORDS)
        is_exact = row is not None and row[0] < reports.EXACT_RECORDS
        statement = _SUMS.format(fallback=search_statistics.FALLBACK, latency="latency_ms" if is_exact else _BIN)
        rows = await self._database.fetch(statement, *span, slices.count)
        sums = search_statistics.summed(rows, float if is_exact else lambda number: reports.middle(int(number)))
        for each in await self._database.fetch(_COUNTED, *span):
            # `grouping` has a bit for each column that the row is not grouped by, the last one's the lowest.
            name = reports.COUNTED[-(~each["grouped"] & (1 << len(reports.COUNTED)) - 1).bit_length()]
            if (value := each[name]) is not None:
                counts[name][read_value(value)] = each["queries"]
        return reports.summary(sums, counts, slices, buckets)

    async def recent(self, since: datetime, limit: int, until: datetime | None = None) -> list[reports.SearchRecord]:
        columns = ", ".join(search_statistics.SEARCH_COLUMNS)
        statement = f"""SELECT {columns} FROM rag_context.searches
                        WHERE timestamp >= $1 AND timestamp <= $3 ORDER BY timestamp DESC LIMIT $2"""  # noqa: S608
        span = microseconds(since), limit, microseconds(until or LATEST)
        return [search_statistics.search_record(read_row(row)) for row in await self._database.fetch(statement, *span)]

    async def accesses(self, limit: int) -> list[reports.ErrorRecord]:
        statement = f"""SELECT {", ".join(search_statistics.ERROR_COLUMNS)} FROM rag_context.errors
                        WHERE level = $1 ORDER BY timestamp DESC LIMIT $2"""  # noqa: S608
        rows = await self._database.fetch(statement, reports.ACCESS, limit)
        return [search_statistics.access_record(read_row(row)) for row in rows]

    async def prune(self, before: datetime, accesses_before: datetime | None = None) -> int:
        async def pruned(connection: Connection) -> int:
            # One server after the other: two that delete the same rows could deadlock.
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _PRUNING)
            deleted = [
                await connection.execute(f"DELETE FROM rag_context.{which} AND timestamp < $1", microseconds(moment))  # noqa: S608
                for which, moment in (
                    ("searches WHERE true", before),
                    (f"errors WHERE level = '{reports.ERROR}'", before),
                    (f"errors WHERE level = '{reports.ACCESS}'", accesses_before),
                )
                if moment is not None
            ]
            return sum(int(each.split()[-1]) for each in deleted)

        return await self._database.write(pruned)

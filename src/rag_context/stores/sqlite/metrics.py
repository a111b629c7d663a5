"""One row per search and per error, and their statistics."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from rag_context.domain import reports
from rag_context.domain.documents import microseconds
from rag_context.stores import search_statistics
from rag_context.stores.sqlite.database import Database

PRUNED_AT_ONCE = 5_000
"""Rows deleted in one transaction: others write in between."""

_ROUNDED = "printf('%.2e', latency_ms)"
"""Three digits, which are within 0.5 %: many searches then have few latencies. Logarithms are not in every SQLite."""

_SUMS = f"""
SELECT (timestamp - :start) * :count / (:end - :start) AS slice, {{latency}} AS latency, count(*),
       sum(latency_ms), sum({search_statistics.FALLBACK}), sum(cache_hit)
FROM searches WHERE timestamp >= :start AND timestamp < :end GROUP BY slice, latency
"""  # noqa: S608  (names of our own columns)

_COUNTED = f"""
SELECT {", ".join(reports.COUNTED)}, count(*)
FROM searches WHERE timestamp >= :start AND timestamp < :end GROUP BY {", ".join(reports.COUNTED)}
"""  # noqa: S608

_AT_MOST = """
SELECT count(*) FROM (SELECT 1 FROM searches WHERE timestamp >= :start AND timestamp < :end LIMIT :most)
"""


class SqliteMetrics:
    """`MetricsStore` over the embedded file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, searches: Sequence[reports.SearchRecord], errors: Sequence[reports.ErrorRecord]) -> None:
        if searches or errors:
            await self._database.write(partial(_append, list(searches), list(errors)))

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> reports.SearchSummary:
        slices = reports.Slices(microseconds(since), microseconds(until), max(buckets, 1))
        return await self._database.read(partial(_summarise, slices, buckets))

    async def recent(self, since: datetime, limit: int) -> list[reports.SearchRecord]:
        statement = (
            f"SELECT {search_statistics.RECENT} FROM searches WHERE timestamp >= ? ORDER BY timestamp DESC LIMIT ?"  # noqa: S608
        )
        rows = await self._rows(statement, microseconds(since), limit)
        return list(map(search_statistics.recent_record, rows))

    async def accesses(self, limit: int) -> list[reports.ErrorRecord]:
        columns = ", ".join(search_statistics.ERROR_COLUMNS)
        statement = f"SELECT {columns} FROM errors WHERE level = ? ORDER BY timestamp DESC, key DESC LIMIT ?"  # noqa: S608
        return list(map(search_statistics.access_record, await self._rows(statement, reports.ACCESS, limit)))

    async def prune(self, before: datetime, accesses_before: datetime | None = None) -> int:
        deleted, moments = 0, {reports.ERROR: microseconds(before)}
        if accesses_before is not None:
            moments[reports.ACCESS] = microseconds(accesses_before)
        while True:
            at_once = await self._database.write(partial(_prune, moments))
            deleted += at_once
            if at_once < PRUNED_AT_ONCE:
                return deleted

    async def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._database.read(lambda connection: connection.execute(statement, values).fetchall())


def _append(
    searches: Sequence[reports.SearchRecord], errors: Sequence[reports.ErrorRecord], connection: sqlite3.Connection
) -> None:
    table, values = search_statistics.last_row(searches, errors)
    where = " AND ".join(f"{name} = ?" for name in values)
    if connection.execute(f"SELECT 1 FROM {table} WHERE {where}", [*values.values()]).fetchone():  # noqa: S608
        return
    connection.executemany(
        _insert("searches", search_statistics.SEARCH_COLUMNS), map(search_statistics.search_row, searches)
    )
    connection.executemany(_insert("errors", search_statistics.ERROR_COLUMNS), map(search_statistics.error_row, errors))


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


def _prune(before: Mapping[str, int], connection: sqlite3.Connection) -> int:
    """Delete some searches and, by their levels, other records."""
    deleted = connection.execute(
        "DELETE FROM searches WHERE key IN (SELECT key FROM searches WHERE timestamp < ? LIMIT ?)",
        (before[reports.ERROR], PRUNED_AT_ONCE),
    ).rowcount
    for level, moment in before.items():
        deleted += connection.execute(
            "DELETE FROM errors WHERE key IN (SELECT key FROM errors WHERE level = ? AND timestamp < ? LIMIT ?)",
            (level, moment, PRUNED_AT_ONCE - deleted),
        ).rowcount
    return deleted


def _summarise(slices: reports.Slices, buckets: int, connection: sqlite3.Connection) -> reports.SearchSummary:
    counts: dict[str, dict[Any, int]] = {name: {} for name in reports.COUNTED}
    if slices.end <= slices.start:
        return reports.summary({}, counts, slices, 0)
    span = {"start": slices.start, "end": slices.end, "count": slices.count, "most": reports.EXACT_RECORDS}
    (at_most,) = connection.execute(_AT_MOST, span).fetchone()
    latency = "latency_ms" if at_most < reports.EXACT_RECORDS else _ROUNDED
    sums = search_statistics.summed(connection.execute(_SUMS.format(latency=latency), span), float)
    for *values, queries in connection.execute(_COUNTED, span):
        for name, value in zip(reports.COUNTED, values, strict=True):
            if value is not None:
                counts[name][value] = counts[name].get(value, 0) + queries
    return reports.summary(sums, counts, slices, buckets)

"""One row per search and per error, and what they add up to."""

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from rag_context.records import QUERY_CHARS, Bucket, ErrorRecord, SearchRecord, SearchSummary
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.filters import microseconds, moment

PRUNED_AT_ONCE = 5_000
"""Rows deleted in one transaction: others write in between."""

_SPAN = "timestamp >= :since AND timestamp < :until"

_TOTALS = f"SELECT count(*), avg(latency_ms), avg(cache_hit), avg(level > 1) FROM searches WHERE {_SPAN}"  # noqa: S608

_GROUPS = f"SELECT {{column}}, count(*) FROM searches WHERE {_SPAN} AND {{column}} IS NOT NULL GROUP BY 1 ORDER BY 1"  # noqa: S608

_SMALLEST = f"SELECT latency_ms FROM searches WHERE {_SPAN} ORDER BY latency_ms LIMIT 1 OFFSET :skip"  # noqa: S608

_LARGEST = f"SELECT latency_ms FROM searches WHERE {_SPAN} ORDER BY latency_ms DESC LIMIT 1 OFFSET :skip"  # noqa: S608

# Nearest rank: the smallest value that at least 95 of 100 do not exceed.
_TIMELINE = f"""
SELECT bucket, count(*), avg(latency_ms), sum(level > 1),
       max(CASE WHEN rank <= (95 * size + 99) / 100 THEN latency_ms END)
FROM (
    SELECT bucket, latency_ms, level,
           row_number() OVER (PARTITION BY bucket ORDER BY latency_ms) AS rank,
           count(*) OVER (PARTITION BY bucket) AS size
    FROM (
        SELECT latency_ms, level, (timestamp - :since) * :buckets / (:until - :since) AS bucket
        FROM searches WHERE {_SPAN}
    )
)
GROUP BY bucket
"""  # noqa: S608

Parameters = dict[str, int]


class SqliteMetrics:
    """`MetricsStore` over the embedded file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, searches: Sequence[SearchRecord], errors: Sequence[ErrorRecord]) -> None:
        """Store records, all or none of them.

        Raises:
            BackendError: nothing was stored.
        """
        if searches or errors:
            await self._database.write(partial(_append, list(searches), list(errors)))

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> SearchSummary:
        """Sum up the searches of `since <= t < until`; the timeline has `buckets` slices, empty ones too.

        Percentiles are by nearest rank; everything is 0 where there was no search.

        Raises:
            BackendError: the file could not be read.
        """
        return await self._database.read(partial(_summarise, since, until, buckets))

    async def prune(self, before: datetime) -> int:
        """Delete records older than `before`; returns how many.

        Raises:
            BackendError: the file could not be written; some may be gone.
        """
        deleted = 0
        while True:
            at_once = await self._database.write(partial(_prune, microseconds(before)))
            deleted += at_once
            if at_once < PRUNED_AT_ONCE:
                return deleted


def _append(searches: Sequence[SearchRecord], errors: Sequence[ErrorRecord], connection: sqlite3.Connection) -> None:
    connection.executemany(
        "INSERT INTO searches VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                microseconds(record.timestamp),
                record.request_id,
                record.query[:QUERY_CHARS],
                record.results_count,
                record.latency_ms,
                record.embedding_latency_ms,
                record.vector_latency_ms,
                record.text_latency_ms,
                record.level,
                record.cache_hit,
                record.agent,
                record.content_type,
                record.category,
                record.game,
                record.error,
            )
            for record in searches
        ],
    )
    connection.executemany(
        "INSERT INTO errors VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                microseconds(record.timestamp),
                record.level,
                record.component,
                record.operation,
                record.message,
                record.request_id,
                json.dumps(dict(record.context)),
            )
            for record in errors
        ],
    )


def _summarise(since: datetime, until: datetime, buckets: int, connection: sqlite3.Connection) -> SearchSummary:
    span: Parameters = {"since": microseconds(since), "until": microseconds(until)}
    queries, average, cached, fallbacks = connection.execute(_TOTALS, span).fetchone()
    return SearchSummary(
        queries=queries,
        average_ms=average or 0.0,
        p50_ms=_percentile(50, queries, span, connection),
        p95_ms=_percentile(95, queries, span, connection),
        p99_ms=_percentile(99, queries, span, connection),
        cache_hit_rate=cached or 0.0,
        fallback_rate=fallbacks or 0.0,
        by_agent=dict(connection.execute(_GROUPS.format(column="agent"), span)),
        by_level=dict(connection.execute(_GROUPS.format(column="level"), span)),
        by_game=dict(connection.execute(_GROUPS.format(column="game"), span)),
        timeline=_timeline(span, buckets, connection),
    )


def _percentile(percent: int, queries: int, span: Parameters, connection: sqlite3.Connection) -> float:
    """By nearest rank, counted from the nearer end: SQLite then keeps only that end while it sorts."""
    if queries == 0:
        return 0.0
    rank = (percent * queries + 99) // 100
    sql, skip = (_SMALLEST, rank - 1) if 2 * rank <= queries else (_LARGEST, queries - rank)
    value: float = connection.execute(sql, {**span, "skip": skip}).fetchone()[0]
    return value


def _timeline(span: Parameters, buckets: int, connection: sqlite3.Connection) -> tuple[Bucket, ...]:
    since, until = span["since"], span["until"]
    if buckets < 1 or until <= since:
        return ()
    filled = {row[0]: row[1:] for row in connection.execute(_TIMELINE, {**span, "buckets": buckets})}
    slices = []
    for number in range(buckets):
        queries, average, fallbacks, p95 = filled.get(number, (0, 0.0, 0, 0.0))
        start = moment(since - (until - since) * -number // buckets)
        slices.append(Bucket(start, queries, average, p95, fallbacks))
    return tuple(slices)


def _prune(before: int, connection: sqlite3.Connection) -> int:
    deleted = 0
    for table in ("searches", "errors"):
        cursor = connection.execute(
            f"DELETE FROM {table} WHERE key IN (SELECT key FROM {table} WHERE timestamp < ? LIMIT ?)",  # noqa: S608
            (before, PRUNED_AT_ONCE - deleted),
        )
        deleted += cursor.rowcount
    return deleted

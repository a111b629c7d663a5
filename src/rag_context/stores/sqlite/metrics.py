"""One row per search and per error, and their statistics."""

import json
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from operator import itemgetter

from rag_context.domain.reports import QUERY_CHARS, Bucket, ErrorRecord, SearchRecord, SearchSummary
from rag_context.domain.times import microseconds, moment
from rag_context.stores.sqlite.database import Database
from rag_context.stores.sqlite.search_sums import (
    COLUMNS,
    SLOT_US,
    Row,
    Stored,
    Sums,
    count_in,
    read_slots,
    read_tallies,
)

PRUNED_AT_ONCE = 5_000
"""Rows deleted in one transaction: others write in between."""

EXACT_ROWS = 10_000
"""A span of fewer searches is summed up from the records themselves."""


_Cut = Callable[[int, int], tuple[list[tuple[int, int]], tuple[int, int]]]
"""What of a span is read record by record (from and to each), and the slots (first and end) between them."""


class SqliteMetrics:
    """`MetricsStore` over the embedded file.

    Args:
        database: the file.
        exact_rows: spans of at least so many searches are read from the sums of every ten minutes.
    """

    def __init__(self, database: Database, exact_rows: int = EXACT_ROWS) -> None:
        self._database = database
        self._exact_rows = exact_rows

    async def append(self, searches: Sequence[SearchRecord], errors: Sequence[ErrorRecord]) -> None:
        """Store records atomically.

        Raises:
            BackendError: nothing was stored.
        """
        if searches or errors:
            await self._database.write(partial(_append, list(searches), list(errors)))

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> SearchSummary:
        """Sum up the searches of `since <= t < until`; the timeline has `buckets` slices, empty ones too.

        Counts are exact. Percentiles are by nearest rank: exact, or within 1 % where there are many searches.
        Everything is 0 where there was no search.

        Raises:
            BackendError: the file could not be read.
        """
        return await self._database.read(partial(_summarise, since, until, buckets, self._exact_rows))

    async def prune(self, before: datetime) -> int:
        """Delete records older than `before`; returns how many.

        Raises:
            BackendError: the file could not be written; some may be deleted.
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
    count_in(
        [
            Row(
                microseconds(record.timestamp),
                record.latency_ms,
                record.level,
                record.cache_hit,
                record.agent,
                record.game,
            )
            for record in searches
        ],
        connection,
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


def _summarise(
    since: datetime, until: datetime, buckets: int, exact_rows: int, connection: sqlite3.Connection
) -> SearchSummary:
    start, end = microseconds(since), microseconds(until)
    cut = _one_by_one if _at_most(start, end, connection) < exact_rows else _by_slots
    _, (first, last) = cut(start, end)
    slots = read_slots(first, last, connection)
    total = _sums(start, end, cut, slots, connection)
    total.tallies.update(read_tallies(first, last, connection))
    return SearchSummary(
        queries=total.queries,
        average_ms=total.latency_ms / max(total.queries, 1),
        p50_ms=total.percentile(50),
        p95_ms=total.percentile(95),
        p99_ms=total.percentile(99),
        cache_hit_rate=total.cache_hits / max(total.queries, 1),
        fallback_rate=total.fallbacks / max(total.queries, 1),
        by_agent={str(value): count for value, count in _tally(total, "agent")},
        by_level={int(value): count for value, count in _tally(total, "level")},
        by_game={str(value): count for value, count in _tally(total, "game")},
        timeline=tuple(_timeline(start, end, buckets, cut, slots, connection)),
    )


def _at_most(start: int, end: int, connection: sqlite3.Connection) -> int:
    """An upper bound of the number of searches of `start <= t < end`."""
    count: int = connection.execute(
        "SELECT ifnull(sum(queries), 0) FROM search_sums WHERE slot >= ? AND slot <= ?",
        (start // SLOT_US, end // SLOT_US),
    ).fetchone()[0]
    return count


def _sums(start: int, end: int, cut: _Cut, slots: Sequence[Stored], connection: sqlite3.Connection) -> Sums:
    """The searches of `start <= t < end`: whole slots as they are stored, what is cut off at the ends one by one."""
    ends, (first, last) = cut(start, end)
    total = Sums()
    low, high = (bisect_left(slots, slot, key=itemgetter(0)) for slot in (first, last))
    total.add_stored(slots[low:high])
    for one, other in ends:
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM searches WHERE timestamp >= ? AND timestamp < ?",  # noqa: S608
            (one, other),
        )
        total.add(list(map(Row._make, rows)))
    return total


def _one_by_one(start: int, end: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    return [(start, end)], (0, 0)


def _by_slots(start: int, end: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    first, last = -(-start // SLOT_US), end // SLOT_US
    if first >= last:
        return _one_by_one(start, end)
    return [(start, first * SLOT_US), (last * SLOT_US, end)], (first, last)


def _tally(total: Sums, name: str) -> list[tuple[str | int, int]]:
    return sorted((value, count) for (kind, value), count in total.tallies.items() if kind == name and count)


def _timeline(
    start: int, end: int, buckets: int, cut: _Cut, slots: Sequence[Stored], connection: sqlite3.Connection
) -> Iterator[Bucket]:
    if buckets < 1 or end <= start:
        return
    edges = [start - (end - start) * -number // buckets for number in range(buckets + 1)]
    for one, other in pairwise(edges):
        sums = _sums(one, other, cut, slots, connection)
        average_ms = sums.latency_ms / max(sums.queries, 1)
        yield Bucket(moment(one), sums.queries, average_ms, sums.percentile(95), sums.fallbacks)


def _prune(before: int, connection: sqlite3.Connection) -> int:
    old = connection.execute(
        f"SELECT key, {COLUMNS} FROM searches WHERE timestamp < ? ORDER BY timestamp LIMIT ?",  # noqa: S608
        (before, PRUNED_AT_ONCE),
    ).fetchall()
    connection.executemany("DELETE FROM searches WHERE key = ?", [row[:1] for row in old])
    count_in([Row(*row[1:]) for row in old], connection, sign=-1)
    cursor = connection.execute(
        "DELETE FROM errors WHERE key IN (SELECT key FROM errors WHERE timestamp < ? LIMIT ?)",
        (before, PRUNED_AT_ONCE - len(old)),
    )
    return len(old) + cursor.rowcount

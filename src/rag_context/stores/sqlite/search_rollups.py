"""One row per search and per error, and their statistics.

Beside the records, the searches of each ten minutes (a slot) are stored summed up, so that a month is read quickly.
Latencies are counted in the bins of `domain.reports`.
"""

import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rag_context.domain import reports
from rag_context.domain.documents import LATEST, microseconds
from rag_context.stores import search_statistics

if TYPE_CHECKING:  # the database's migrations compute the sums again
    from rag_context.stores.sqlite.database import Database

PRUNED_AT_ONCE = 5_000
"""Rows deleted in one transaction: others write in between."""

SLOT_US = 600 * 1_000_000
"""Length of a slot in microseconds. Shorter ones are more to read, longer ones leave more records at their edges."""

BINS = 2048
"""The last bin begins beyond any real latency: after 10^13 ms."""

_REBUILT_AT_ONCE = 50_000

Bins: TypeAlias = NDArray[np.int64]
"""`(BINS,)`, how many searches are in each bin of latencies."""


class _SearchRecord(NamedTuple):
    """What is summed up of one search: `timestamp` in microseconds, and its values of `COUNTED`."""

    timestamp: int
    latency_ms: float
    cache_hit: int
    fallback: int
    values: tuple[str | int | None, ...]

    @classmethod
    def of(cls, record: reports.SearchRecord) -> "_SearchRecord":
        values = tuple(getattr(record, name) for name in reports.COUNTED)
        return cls(microseconds(record.timestamp), record.latency_ms, record.cache_hit, record.is_fallback, values)

    @classmethod
    def read(cls, row: Sequence[Any]) -> "_SearchRecord":
        """The search of a row with `_COLUMNS`."""
        timestamp, latency_ms, cache_hit, fallback, *values = row
        return cls(timestamp, latency_ms, cache_hit, fallback, tuple(values))


class _Slot(NamedTuple):
    """A row of `search_sums`: the searches of ten minutes summed up, and the number of these minutes since 1970."""

    number: int
    queries: int
    latency_ms: float
    cache_hits: int
    fallbacks: int
    histogram: bytes


_COLUMNS = f"timestamp, latency_ms, cache_hit, {search_statistics.FALLBACK}, {', '.join(reports.COUNTED)}"

_Cut: TypeAlias = Callable[[int, int], tuple[list[tuple[int, int]], tuple[int, int]]]
"""What of a span is read record by record (from and to each), and the slots (first and end) between them."""


class SqliteMetrics:
    """`MetricsStore` over the embedded file."""

    def __init__(self, database: "Database", exact_rows: int = reports.EXACT_RECORDS) -> None:
        self._database = database
        self._exact_rows = exact_rows

    async def append(self, searches: Sequence[reports.SearchRecord], errors: Sequence[reports.ErrorRecord]) -> None:
        if searches or errors:
            await self._database.write(partial(_append, list(searches), list(errors)))

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> reports.SearchSummary:
        slices = reports.Slices(microseconds(since), microseconds(until), max(buckets, 1))
        return await self._database.read(partial(_summarise, slices, buckets, self._exact_rows))

    async def recent(self, since: datetime, limit: int, until: datetime | None = None) -> list[reports.SearchRecord]:
        statement = f"""SELECT {", ".join(search_statistics.SEARCH_COLUMNS)} FROM searches
                        WHERE timestamp >= ? AND timestamp <= ? ORDER BY timestamp DESC LIMIT ?"""  # noqa: S608
        values = (microseconds(since), microseconds(until or LATEST), limit)
        rows = await self._database.read(lambda connection: connection.execute(statement, values).fetchall())
        return list(map(search_statistics.search_record, rows))

    async def accesses(self, limit: int) -> list[reports.ErrorRecord]:
        columns = ", ".join(search_statistics.ERROR_COLUMNS)
        statement = f"SELECT {columns} FROM errors WHERE level = ? ORDER BY timestamp DESC, key DESC LIMIT ?"  # noqa: S608
        values = (reports.ACCESS, limit)
        rows = await self._database.read(lambda connection: connection.execute(statement, values).fetchall())
        return list(map(search_statistics.access_record, rows))

    async def prune(self, before: datetime, accesses_before: datetime | None = None) -> int:
        deleted, moments = 0, {reports.ERROR: microseconds(before)}
        if accesses_before is not None:
            moments[reports.ACCESS] = microseconds(accesses_before)
        while True:
            at_once = await self._database.write(partial(_prune, moments))
            deleted += at_once
            if at_once < PRUNED_AT_ONCE:
                return deleted


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
    _add_to_slots([_SearchRecord.of(each) for each in searches], connection)


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


def _prune(before: Mapping[str, int], connection: sqlite3.Connection) -> int:
    """Delete some searches and, by their levels, other records."""
    old = connection.execute(
        f"SELECT key, {_COLUMNS} FROM searches WHERE timestamp < ? ORDER BY timestamp LIMIT ?",  # noqa: S608
        (before[reports.ERROR], PRUNED_AT_ONCE),
    ).fetchall()
    connection.executemany("DELETE FROM searches WHERE key = ?", [row[:1] for row in old])
    _add_to_slots([_SearchRecord.read(row[1:]) for row in old], connection, sign=-1)
    deleted = len(old)
    for level, moment in before.items():
        deleted += connection.execute(
            "DELETE FROM errors WHERE key IN (SELECT key FROM errors WHERE level = ? AND timestamp < ? LIMIT ?)",
            (level, moment, PRUNED_AT_ONCE - deleted),
        ).rowcount
    return deleted


def _summarise(
    slices: reports.Slices, buckets: int, exact_rows: int, connection: sqlite3.Connection
) -> reports.SearchSummary:
    start, end = slices.start, slices.end
    if end <= start:
        return reports.summary({}, {name: {} for name in reports.COUNTED}, slices, 0)
    (at_most,) = connection.execute(
        "SELECT ifnull(sum(queries), 0) FROM search_sums WHERE slot >= ? AND slot <= ?",
        (start // SLOT_US, end // SLOT_US),
    ).fetchone()
    cut = _one_by_one if at_most < exact_rows else _by_slots
    slots = _read_slots(*cut(start, end)[1], connection)
    edges = pairwise([slices.begins(number) for number in range(slices.count + 1)])
    sums = {number: _sums(one, other, cut, slots, connection) for number, (one, other) in enumerate(edges)}
    return reports.summary(sums, _counts_by_value(start, end, cut, connection), slices, buckets)


def _one_by_one(start: int, end: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    return [(start, end)], (0, 0)


def _by_slots(start: int, end: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    first, last = -(-start // SLOT_US), end // SLOT_US
    if first >= last:
        return _one_by_one(start, end)
    return [(start, first * SLOT_US), (last * SLOT_US, end)], (first, last)


def _sums(start: int, end: int, cut: _Cut, slots: Sequence[_Slot], connection: sqlite3.Connection) -> reports.Sums:
    """The searches of `start <= t < end`: whole slots as they are stored, what is cut off at the ends one by one."""
    ends, (first, last) = cut(start, end)
    low, high = (bisect_left(slots, number, key=attrgetter("number")) for number in (first, last))
    sums = reports.Sums()
    for slot in slots[low:high]:
        sums.add(slot.queries, slot.latency_ms, slot.fallbacks, slot.cache_hits)
    sums.latencies = latencies_of(unpacked([slot.histogram for slot in slots[low:high]]))
    for span in ends:
        for latency_ms, fallback, cache_hit in connection.execute(
            f"""SELECT latency_ms, {search_statistics.FALLBACK}, cache_hit
                FROM searches WHERE timestamp >= ? AND timestamp < ?""",  # noqa: S608
            span,
        ):
            sums.add(1, latency_ms, fallback, cache_hit)
            sums.latencies[latency_ms] += 1
    return sums


def _counts_by_value(start: int, end: int, cut: _Cut, connection: sqlite3.Connection) -> dict[str, Counter[str | int]]:
    """How many searches of `start <= t < end` there were of each value of `COUNTED`."""
    counts: dict[str, Counter[str | int]] = {name: Counter() for name in reports.COUNTED}
    ends, slots = cut(start, end)
    for name, value, queries in connection.execute(
        "SELECT kind, value, sum(queries) FROM search_tallies WHERE slot >= ? AND slot < ? GROUP BY kind, value", slots
    ):
        counts[name][value] += queries
    for name in reports.COUNTED:
        # Names of our own columns; a search without a value is counted for none.
        statement = (
            f"SELECT {name}, count(*) FROM searches WHERE timestamp >= ? AND timestamp < ? "  # noqa: S608
            f"AND {name} IS NOT NULL GROUP BY {name}"
        )
        for span in ends:
            counts[name].update(dict(connection.execute(statement, span).fetchall()))
    return counts


def bins_of(latencies_ms: Sequence[float]) -> NDArray[np.int64]:
    values = np.maximum(np.asarray(latencies_ms, dtype=np.float64), reports.SMALLEST_MS) / reports.SMALLEST_MS
    bins: NDArray[np.int64] = np.minimum(np.ceil(np.log(values) / np.log(reports.BIN_GROWTH)), BINS - 1).astype(
        np.int64
    )
    return bins


def packed_bins(bins: Bins) -> bytes:
    """The bins that are not empty, as they are stored."""
    filled = np.flatnonzero(bins)
    pairs: NDArray[np.uint32] = np.column_stack((filled, bins[filled])).astype("<u4")
    return pairs.tobytes()


def unpacked(histograms: Sequence[bytes]) -> Bins:
    """The sum of stored bins."""
    pairs = np.frombuffer(b"".join(histograms), dtype="<u4").reshape(-1, 2)
    summed: Bins = np.bincount(pairs[:, 0], weights=pairs[:, 1], minlength=BINS).astype(np.int64)
    return summed


def latencies_of(bins: Bins) -> Counter[float]:
    """How many searches took how long, each as long as the middle of its bin."""
    filled = np.flatnonzero(bins)
    return Counter(dict(zip(map(reports.middle, filled.tolist()), bins[filled].tolist(), strict=True)))


def sum_up_again(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM search_sums")
    connection.execute("DELETE FROM search_tallies")
    rows = connection.execute(f"SELECT {_COLUMNS} FROM searches ORDER BY timestamp")  # noqa: S608
    while batch := rows.fetchmany(_REBUILT_AT_ONCE):
        _add_to_slots([_SearchRecord.read(row) for row in batch], connection)


def _read_slots(first: int, end: int, connection: sqlite3.Connection) -> list[_Slot]:
    """The stored sums of the slots `first <= slot < end`, in order."""
    rows = connection.execute(
        """SELECT slot, queries, latency_ms, cache_hits, fallbacks, histogram
           FROM search_sums WHERE slot >= ? AND slot < ? ORDER BY slot""",
        (first, end),
    )
    return list(map(_Slot._make, rows))


def _add_to_slots(searches: Sequence[_SearchRecord], connection: sqlite3.Connection, sign: int = 1) -> None:
    by_slot: dict[int, list[_SearchRecord]] = {}
    for search in searches:
        by_slot.setdefault(search.timestamp // SLOT_US, []).append(search)
    for number, inside in by_slot.items():
        _change(number, inside, sign, connection)


def _change(number: int, searches: Sequence[_SearchRecord], sign: int, connection: sqlite3.Connection) -> None:
    stored = _read_slots(number, number + 1, connection)
    before = stored[0] if stored else _Slot(number, 0, 0.0, 0, 0, b"")
    queries = before.queries + sign * len(searches)
    if queries <= 0:
        connection.execute("DELETE FROM search_sums WHERE slot = ?", (number,))
        connection.execute("DELETE FROM search_tallies WHERE slot = ?", (number,))
        return
    latencies = [search.latency_ms for search in searches]
    after = _Slot(
        number,
        queries,
        before.latency_ms + sign * sum(latencies),
        before.cache_hits + sign * sum(search.cache_hit for search in searches),
        # Earlier versions counted every search of level 2: of those that stay there may be fewer.
        min(before.fallbacks + sign * sum(search.fallback for search in searches), queries),
        packed_bins(unpacked([before.histogram]) + sign * np.bincount(bins_of(latencies), minlength=BINS)),
    )
    connection.execute("INSERT OR REPLACE INTO search_sums VALUES (?, ?, ?, ?, ?, ?)", after)
    counts = Counter(
        (name, value)
        for search in searches
        for name, value in zip(reports.COUNTED, search.values, strict=True)
        if value is not None
    )
    connection.executemany(
        """INSERT INTO search_tallies VALUES (?, ?, ?, ?)
           ON CONFLICT (slot, kind, value) DO UPDATE SET queries = queries + excluded.queries""",
        [(number, name, value, sign * count) for (name, value), count in counts.items()],
    )
    if sign < 0:
        connection.execute("DELETE FROM search_tallies WHERE slot = ? AND queries <= 0", (number,))

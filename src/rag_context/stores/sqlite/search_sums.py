"""Sums of the searches of each ten minutes, stored beside the records, so that a month is read quickly.

Latencies are counted in the bins of `domain.metrics`.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.reports import BIN_GROWTH, SMALLEST_MS

SLOT_US = 600 * 1_000_000
"""Length of a slot in microseconds. Shorter ones are more to read, longer ones leave more records at their edges."""

BINS = 2048
"""The last bin begins beyond any real latency: after 10^13 ms."""

_REBUILT_AT_ONCE = 50_000

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class Row(NamedTuple):
    """The fields of one search that are summed up; `timestamp` in microseconds."""

    timestamp: int
    latency_ms: float
    level: int
    cache_hit: int
    agent: str
    game: str | None


Stored = tuple[int, int, float, int, int, bytes]
"""A row of `search_sums`."""

COLUMNS = ", ".join(Row._fields)


@dataclass(slots=True)
class Sums:
    """Searches summed up. `bins` is `(BINS,) int64`."""

    queries: int = 0
    latency_ms: float = 0.0
    cache_hits: int = 0
    fallbacks: int = 0
    bins: Integers = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))
    tallies: Counter[tuple[str, str | int]] = field(default_factory=Counter)
    """By kind (agent, level, game) and value."""
    latencies: list[float] = field(default_factory=list)
    """Latencies of the searches that were added one by one."""

    def add(self, rows: Sequence[Row], sign: int = 1) -> None:
        """Add searches, or take them away."""
        latencies = [row.latency_ms for row in rows]
        self.queries += sign * len(rows)
        self.latency_ms += sign * sum(latencies)
        self.latencies += latencies
        self.cache_hits += sign * sum(row.cache_hit for row in rows)
        self.fallbacks += sign * sum(row.level > 1 for row in rows)
        self.bins += sign * np.bincount(bins_of(latencies), minlength=BINS)
        for name, values in (
            ("agent", Counter(row.agent for row in rows)),
            ("level", Counter(row.level for row in rows)),
            ("game", Counter(row.game for row in rows if row.game is not None)),
        ):
            for value, count in values.items():
                self.tallies[name, value] += sign * count

    def add_stored(self, rows: Sequence[Stored]) -> None:
        """Add whole slots; their counts by value are added separately."""
        for _, queries, latency_ms, cache_hits, fallbacks, _ in rows:
            self.queries += queries
            self.latency_ms += latency_ms
            self.cache_hits += cache_hits
            self.fallbacks += fallbacks
        self.bins += unpack([row[-1] for row in rows])

    def percentile(self, percent: int) -> float:
        """By nearest rank: exact where every search was added by itself, else within 1 %; 0 without searches."""
        if self.queries == 0:
            return 0.0
        rank = (percent * self.queries + 99) // 100
        if len(self.latencies) == self.queries:
            return float(np.partition(self.latencies, rank - 1)[rank - 1])
        return float(_MIDDLES[np.searchsorted(np.cumsum(self.bins), rank)])


def bins_of(latencies_ms: Sequence[float]) -> Integers:
    """The bin of each latency."""
    values = np.maximum(np.asarray(latencies_ms, dtype=np.float64), SMALLEST_MS) / SMALLEST_MS
    bins: Integers = np.minimum(np.ceil(np.log(values) / np.log(BIN_GROWTH)), BINS - 1).astype(np.int64)
    return bins


def pack(bins: Integers) -> bytes:
    """The bins that are not empty, as they are stored."""
    filled = np.flatnonzero(bins)
    pairs: NDArray[np.uint32] = np.column_stack((filled, bins[filled])).astype("<u4")
    return pairs.tobytes()


def unpack(blobs: Sequence[bytes]) -> Integers:
    """The sum of stored bins."""
    pairs = np.frombuffer(b"".join(blobs), dtype="<u4").reshape(-1, 2)
    summed: Integers = np.bincount(pairs[:, 0], weights=pairs[:, 1], minlength=BINS).astype(np.int64)
    return summed


def read_slots(first: int, end: int, connection: sqlite3.Connection) -> list[Stored]:
    """The stored sums of the slots `first <= slot < end`, in order."""
    return connection.execute(
        """SELECT slot, queries, latency_ms, cache_hits, fallbacks, histogram
           FROM search_sums WHERE slot >= ? AND slot < ? ORDER BY slot""",
        (first, end),
    ).fetchall()


def read_tallies(first: int, end: int, connection: sqlite3.Connection) -> dict[tuple[str, str | int], int]:
    """The counts of the slots `first <= slot < end`, by kind and value."""
    rows = connection.execute(
        "SELECT kind, value, sum(queries) FROM search_tallies WHERE slot >= ? AND slot < ? GROUP BY kind, value",
        (first, end),
    )
    return {(kind, value): queries for kind, value, queries in rows}


def count_in(rows: Sequence[Row], connection: sqlite3.Connection, sign: int = 1) -> None:
    """Add searches to the sums of their slots, or take them away."""
    by_slot: dict[int, list[Row]] = {}
    for row in rows:
        by_slot.setdefault(row.timestamp // SLOT_US, []).append(row)
    for slot, inside in by_slot.items():
        _change(slot, inside, sign, connection)


def sum_up_again(connection: sqlite3.Connection) -> None:
    """Compute all sums again from the records."""
    connection.execute("DELETE FROM search_sums")
    connection.execute("DELETE FROM search_tallies")
    rows = connection.execute(f"SELECT {COLUMNS} FROM searches ORDER BY timestamp")  # noqa: S608
    while batch := rows.fetchmany(_REBUILT_AT_ONCE):
        count_in([Row(*row) for row in batch], connection)


def _change(slot: int, rows: Sequence[Row], sign: int, connection: sqlite3.Connection) -> None:
    sums = Sums()
    sums.add_stored(read_slots(slot, slot + 1, connection))
    sums.add(rows, sign)
    if sums.queries <= 0:
        connection.execute("DELETE FROM search_sums WHERE slot = ?", (slot,))
        connection.execute("DELETE FROM search_tallies WHERE slot = ?", (slot,))
        return
    connection.execute(
        "INSERT OR REPLACE INTO search_sums VALUES (?, ?, ?, ?, ?, ?)",
        (slot, sums.queries, sums.latency_ms, sums.cache_hits, sums.fallbacks, pack(sums.bins)),
    )
    connection.executemany(
        """INSERT INTO search_tallies VALUES (?, ?, ?, ?)
           ON CONFLICT (slot, kind, value) DO UPDATE SET queries = queries + excluded.queries""",
        [(slot, kind, value, count) for (kind, value), count in sums.tallies.items()],
    )
    if sign < 0:
        connection.execute("DELETE FROM search_tallies WHERE slot = ? AND queries <= 0", (slot,))


_MIDDLES: Floats = np.concatenate(
    ([0.0], SMALLEST_MS * 2.0 * BIN_GROWTH ** np.arange(1, BINS, dtype=np.float64) / (BIN_GROWTH + 1.0))
)
"""`(BINS,)` the value of each bin: at the same relative distance from its lower and its upper limit."""

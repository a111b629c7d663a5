"""The summary of a span of searches, from what a store has counted in each of its slices.

Latencies are counted by value while they are few, else in the bins of `domain.reports`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any

from rag_context.domain.documents import microseconds, moment
from rag_context.domain.reports import BIN_GROWTH, SMALLEST_MS, Bucket, SearchSummary

EXACT_RECORDS = 10_000
"""A span of fewer searches is summed up from the records themselves."""

COUNTED = ("agent", "level", "game")
"""What searches are counted by."""


@dataclass(frozen=True, slots=True)
class Slices:
    """A span of time in equal parts, in microseconds."""

    start: int
    end: int
    count: int

    def begins(self, number: int) -> int:
        """The first microsecond of a slice."""
        return self.start - (self.end - self.start) * -number // self.count

    def of(self, at: datetime) -> int:
        """The slice that a moment of the span is in."""
        return (microseconds(at) - self.start) * self.count // (self.end - self.start)


@dataclass(slots=True)
class Sums:
    """Searches summed up."""

    queries: int = 0
    latency_ms: float = 0.0
    fallbacks: int = 0
    cache_hits: int = 0
    latencies: Counter[float] = field(default_factory=Counter)
    """The number of searches by latency."""

    def percentile(self, percent: int) -> float:
        """By nearest rank; 0 without searches."""
        values = sorted(self.latencies)
        if not values:
            return 0.0
        ranks = list(accumulate(self.latencies[value] for value in values))
        return values[bisect_left(ranks, (percent * ranks[-1] + 99) // 100)]

    @property
    def average_ms(self) -> float:
        return self.latency_ms / max(self.queries, 1)


def middle(number: int) -> float:
    """The value of a bin: at the same relative distance from its lower and its upper limit."""
    return 0.0 if number <= 0 else SMALLEST_MS * 2.0 * BIN_GROWTH**number / (BIN_GROWTH + 1.0)


def summary(
    sums: Mapping[int, Sums], counts_by_value: Mapping[str, Mapping[Any, int]], slices: Slices, buckets: int
) -> SearchSummary:
    """The summary of a span; `sums` by slice, `counts_by_value` by the names in `COUNTED`."""
    total = Sums()
    for part in sums.values():
        total.queries += part.queries
        total.latency_ms += part.latency_ms
        total.fallbacks += part.fallbacks
        total.cache_hits += part.cache_hits
        total.latencies.update(part.latencies)
    return SearchSummary(
        queries=total.queries,
        average_ms=total.average_ms,
        p50_ms=total.percentile(50),
        p95_ms=total.percentile(95),
        p99_ms=total.percentile(99),
        cache_hit_rate=total.cache_hits / max(total.queries, 1),
        fallback_rate=total.fallbacks / max(total.queries, 1),
        by_agent=dict(sorted(counts_by_value["agent"].items())),
        by_level=dict(sorted(counts_by_value["level"].items())),
        by_game=dict(sorted(counts_by_value["game"].items())),
        timeline=tuple(_bucket(slices, number, sums.get(number, Sums())) for number in range(buckets)),
    )


def _bucket(slices: Slices, number: int, sums: Sums) -> Bucket:
    start = moment(slices.begins(number))
    return Bucket(start, sums.queries, sums.average_ms, sums.percentile(95), sums.fallbacks)

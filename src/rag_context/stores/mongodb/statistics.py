"""Statistics of searches, slice by slice: latencies by value while they are few, else in bins of 1 %.

The bins' limits grow by a constant factor, as in DDSketch (Masson, Rim, Lee: "DDSketch: A Fast and Fully-Mergeable
Quantile Sketch with Relative-Error Guarantees", VLDB 2019): with limits that grow by (1 + e) / (1 - e), a bin's middle
is within e of every value in it, so within e of the nearest-rank percentile too. The server sorts into them.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any

from rag_context.stores.mongodb.times import first_not_before, microseconds, moment

ERROR = 0.0095
"""Most relative error of a percentile; just below 1 %, which leaves room for rounding."""

SMALLEST_MS = 0.001
"""Shorter times are in the first bin, and count as 0."""

_GROWTH = (1.0 + ERROR) / (1.0 - ERROR)


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

    @property
    def expression(self) -> dict[str, Any]:
        """As `of`, by the server; exact, since every number in it is below 2^53."""
        first = first_not_before(self.start)
        beyond = microseconds(first) - self.start
        passed = {"$add": [{"$multiply": [{"$subtract": ["$timestamp", first]}, 1000]}, beyond]}
        return {"$floor": {"$divide": [{"$multiply": [passed, self.count]}, self.end - self.start]}}


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


def united(parts: Iterable[Sums]) -> Sums:
    """All of them together."""
    whole = Sums()
    for part in parts:
        whole.queries += part.queries
        whole.latency_ms += part.latency_ms
        whole.fallbacks += part.fallbacks
        whole.cache_hits += part.cache_hits
        whole.latencies.update(part.latencies)
    return whole


_TIMES_SMALLEST = {"$divide": [{"$max": ["$latencyMs", SMALLEST_MS]}, SMALLEST_MS]}
BIN = {"$ceil": {"$divide": [{"$ln": _TIMES_SMALLEST}, math.log(_GROWTH)]}}
"""The bin of a search, by the server."""


def middle(number: int) -> float:
    """The value of a bin: at the same relative distance from its lower and its upper limit."""
    return 0.0 if number <= 0 else SMALLEST_MS * 2.0 * _GROWTH**number / (_GROWTH + 1.0)


def beginning(slices: Slices, number: int) -> datetime:
    """The moment a slice begins."""
    return moment(slices.begins(number))

"""Records of searches and errors, and their statistics.

Stores that sum up many latencies count them in bins whose limits grow by a constant factor, as in DDSketch (Masson,
Rim, Lee: "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error Guarantees", VLDB 2019): with limits
that grow by (1 + e) / (1 - e), a bin's middle is within e of every value in it, so within e of the nearest-rank
percentile too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

QUERY_CHARS = 200
"""A recorded query is cut to this many characters."""

PERCENTILE_ERROR = 0.0095
"""Most relative error of a percentile from bins; just below 1 %, which leaves room for rounding."""

BIN_GROWTH = (1.0 + PERCENTILE_ERROR) / (1.0 - PERCENTILE_ERROR)

SMALLEST_MS = 0.001
"""Shorter latencies are in the first bin, and count as 0."""


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """One search, as recorded for statistics. Times in milliseconds; None where a part did not run."""

    timestamp: datetime
    request_id: str
    query: str
    results_count: int
    latency_ms: float
    embedding_latency_ms: float | None
    vector_latency_ms: float | None
    text_latency_ms: float | None
    level: int
    cache_hit: bool
    agent: str
    content_type: str | None = None
    category: str | None = None
    game: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """One failure of a component. `message` never holds document text, keys or connection strings."""

    timestamp: datetime
    level: str
    component: str
    operation: str
    message: str
    request_id: str | None = None
    context: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One slice of the timeline, beginning at `start`."""

    start: datetime
    queries: int
    average_ms: float
    p95_ms: float
    fallbacks: int


@dataclass(frozen=True, slots=True)
class SearchSummary:
    """The searches of a span of time. Rates are 0..1."""

    queries: int
    average_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    cache_hit_rate: float
    fallback_rate: float
    by_agent: Mapping[str, int]
    by_level: Mapping[int, int]
    by_game: Mapping[str, int]
    timeline: tuple[Bucket, ...]

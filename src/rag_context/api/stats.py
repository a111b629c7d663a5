"""What the searches of a span of time add up to."""

from typing import Annotated, Literal

from pydantic import Field

from rag_context.api.wire import Count, Milliseconds, Otherwise, Score, UtcTime, WireRequest, WireResponse

TimeRange = Literal["1h", "24h", "7d", "30d"]


class StatsRequest(WireRequest):
    """How far to look back."""

    time_range: Annotated[TimeRange, Field(description="How far to look back"), Otherwise("24h")] = "24h"


class StatsBucket(WireResponse):
    """One slice of the timeline."""

    start: UtcTime
    queries: Count
    avg_latency: Milliseconds
    p95_latency: Milliseconds
    fallbacks: Count


class StatsResponse(WireResponse):
    """Totals, rates (0..1) and latencies (ms) of the span."""

    total_documents: Count
    total_queries: Count
    avg_latency: Milliseconds
    p95_latency: Milliseconds
    p99_latency: Milliseconds
    cache_hit_rate: Score
    fallback_rate: Score
    queries_by_agent: dict[str, int]
    queries_by_level: dict[str, int]
    queries_by_game: dict[str, int]
    timeline: list[StatsBucket]

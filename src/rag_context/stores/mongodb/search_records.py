"""One record per search and per error, and their statistics.

They are summed up slice by slice: latencies by value while they are few, else in the bins of `domain.metrics`, into
which the server sorts.
"""

import asyncio
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any

from rag_context.domain.reports import (
    BIN_GROWTH,
    QUERY_CHARS,
    SMALLEST_MS,
    Bucket,
    ErrorRecord,
    SearchRecord,
    SearchSummary,
)
from rag_context.domain.times import microseconds, moment
from rag_context.stores.mongodb.conditions import first_not_before
from rag_context.stores.mongodb.document_records import Entry
from rag_context.stores.mongodb.mongo import Mongo

_TIMES_SMALLEST = {"$divide": [{"$max": ["$latencyMs", SMALLEST_MS]}, SMALLEST_MS]}

BIN = {"$ceil": {"$divide": [{"$ln": _TIMES_SMALLEST}, math.log(BIN_GROWTH)]}}
"""The bin of a search, by the server."""

EXACT_RECORDS = 10_000
"""A span of fewer searches is summed up from the records themselves."""

_READ = {"_id": 0, "timestamp": 1, "latencyMs": 1, "fallback": 1, "cacheHit": 1}

_COUNTED_FIELDS = {"agent": "$agent", "level": "$fallbackLevel", "game": "$game"}

_ONE_IF = {field: {"$sum": {"$cond": [f"${field}", 1, 0]}} for field in ("fallback", "cacheHit")}


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


def middle(number: int) -> float:
    """The value of a bin: at the same relative distance from its lower and its upper limit."""
    return 0.0 if number <= 0 else SMALLEST_MS * 2.0 * BIN_GROWTH**number / (BIN_GROWTH + 1.0)


def beginning(slices: Slices, number: int) -> datetime:
    """The moment a slice begins."""
    return moment(slices.begins(number))


class MongoMetrics:
    """`MetricsStore` over two collections.

    Args:
        mongo: the database.
        exact_records: spans of at least so many searches are summed up by the server, in bins.
    """

    def __init__(self, mongo: Mongo, exact_records: int = EXACT_RECORDS) -> None:
        self._mongo = mongo
        self._writing = mongo.writing
        self._exact_records = exact_records

    async def append(self, searches: Sequence[SearchRecord], errors: Sequence[ErrorRecord]) -> None:
        """Store records.

        Raises:
            BackendError: not all were stored.
        """
        async with self._writing.reached():
            if searches:
                await self._writing.metrics.insert_many([_search_entry(each) for each in searches], ordered=False)
            if errors:
                await self._writing.errors.insert_many([_error_entry(each) for each in errors], ordered=False)

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> SearchSummary:
        """Sum up the searches of `since <= t < until`; the timeline has `buckets` slices, empty ones too.

        Counts are exact. Percentiles are by nearest rank: exact, or within 1 % where there are many searches.
        Everything is 0 where there was no search.

        Raises:
            BackendError: the server is unavailable.
        """
        slices = Slices(microseconds(since), microseconds(until), max(buckets, 1))
        if slices.end <= slices.start:
            return _summary({}, {name: {} for name in _COUNTED_FIELDS}, slices, 0)
        span = {"timestamp": {"$gte": first_not_before(slices.start), "$lt": first_not_before(slices.end)}}
        async with self._mongo.reached():
            count = await self._mongo.metrics.count_documents(span, limit=self._exact_records)
            summing = self._one_by_one if count < self._exact_records else self._in_bins
            sums, counts_by_value = await asyncio.gather(summing(span, slices), self._counts_by_value(span))
        return _summary(sums, counts_by_value, slices, buckets)

    async def prune(self, before: datetime) -> int:
        """Delete records older than `before`; returns how many.

        Raises:
            BackendError: some may be left.
        """
        old = {"timestamp": {"$lt": first_not_before(microseconds(before))}}
        async with self._writing.reached():
            searches = await self._writing.metrics.delete_many(old)
            errors = await self._writing.errors.delete_many(old)
        return searches.deleted_count + errors.deleted_count

    async def _one_by_one(self, span: Entry, slices: Slices) -> dict[int, Sums]:
        sums: dict[int, Sums] = {}
        async for each in self._mongo.metrics.find(span, _READ):
            part = sums.setdefault(slices.of(each["timestamp"]), Sums())
            part.queries += 1
            part.latency_ms += each["latencyMs"]
            part.latencies[each["latencyMs"]] += 1
            part.fallbacks += bool(each.get("fallback"))
            part.cache_hits += bool(each.get("cacheHit"))
        return sums

    async def _in_bins(self, span: Entry, slices: Slices) -> dict[int, Sums]:
        group = {
            "_id": {"slice": slices.expression, "bin": BIN},
            "queries": {"$sum": 1},
            "latencyMs": {"$sum": "$latencyMs"},
            **_ONE_IF,
        }
        sums: dict[int, Sums] = {}
        async for each in await self._mongo.metrics.aggregate([{"$match": span}, {"$group": group}]):
            part = sums.setdefault(int(each["_id"]["slice"]), Sums())
            part.queries += each["queries"]
            part.latency_ms += each["latencyMs"]
            part.latencies[middle(int(each["_id"]["bin"]))] += each["queries"]
            part.fallbacks += each["fallback"]
            part.cache_hits += each["cacheHit"]
        return sums

    async def _counts_by_value(self, span: Entry) -> dict[str, dict[Any, int]]:
        """How many searches there were of each agent, level and game."""
        group = {"_id": _COUNTED_FIELDS, "queries": {"$sum": 1}}
        counts_by_value: dict[str, dict[Any, int]] = {name: {} for name in _COUNTED_FIELDS}
        async for each in await self._mongo.metrics.aggregate([{"$match": span}, {"$group": group}]):
            for name, values in counts_by_value.items():
                if (value := each["_id"].get(name)) is not None:
                    values[value] = values.get(value, 0) + each["queries"]
        return counts_by_value


def _summary(
    sums: dict[int, Sums], counts_by_value: dict[str, dict[Any, int]], slices: Slices, buckets: int
) -> SearchSummary:
    total = united(sums.values())
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
    return Bucket(beginning(slices, number), sums.queries, sums.average_ms, sums.percentile(95), sums.fallbacks)


def _search_entry(record: SearchRecord) -> Entry:
    fields = {
        "timestamp": record.timestamp,
        "requestId": record.request_id,
        "query": record.query[:QUERY_CHARS],
        "resultsCount": record.results_count,
        "latencyMs": record.latency_ms,
        "embeddingLatencyMs": record.embedding_latency_ms,
        "vectorLatencyMs": record.vector_latency_ms,
        "textLatencyMs": record.text_latency_ms,
        "fallback": record.level > 1,
        "fallbackLevel": record.level,
        "cacheHit": record.cache_hit,
        "agent": record.agent,
        "contentType": record.content_type,
        "category": record.category,
        "game": record.game,
        "error": record.error,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _error_entry(record: ErrorRecord) -> Entry:
    fields = {
        "timestamp": record.timestamp,
        "level": record.level,
        "component": record.component,
        "operation": record.operation,
        "error": record.message,
        "requestId": record.request_id,
        "context": dict(record.context),
    }
    return {name: value for name, value in fields.items() if value is not None}

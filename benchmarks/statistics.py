"""Summing up a million searches of thirty days, for each time range that can be requested."""

import asyncio
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.figures import Figure
from rag_context.domain.reports import SearchRecord
from rag_context.memory.telemetry import TIME_RANGES
from rag_context.stores.sqlite.embedded import FILE_NAME, SqliteStore, open_database

SEARCHES = 1_000_000
AT_ONCE = 5_000
REPEATS = 9
NOW = datetime(2026, 3, 31, 12, 34, 56, 789, tzinfo=UTC)
PAST = timedelta(days=30)
AGENTS = ("opus", "sonnet", "designer", "reviewer", "unknown")
GAMES = (None, None, "FireKirin", "OrionStars")
LEVELS = (1,) * 97 + (2, 2, 3)


def measure(folder: Path) -> list[Figure]:
    """Write the records, then sum up each range; the slowest of some repeats counts."""
    folder.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_measure(folder / FILE_NAME))


async def _measure(path: Path) -> list[Figure]:
    async with open_database(path) as store:
        started = time.perf_counter()
        for batch in _batches():
            await store.metrics.append(batch, [])
        written_us = (time.perf_counter() - started) / SEARCHES * 1e6
        figures = [
            Figure(f"statistics of {name}, 1 000 000 searches", await _slowest_ms(store, *span), "ms", 100)
            for name, span in TIME_RANGES.items()
        ]
    return [*figures, Figure("writing down a search", written_us, "µs")]


async def _slowest_ms(store: SqliteStore, span: timedelta, buckets: int) -> float:
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        await store.metrics.summarise(NOW - span, NOW, buckets)
        times.append((time.perf_counter() - started) * 1000.0)
    return max(times)


def _batches() -> Iterator[list[SearchRecord]]:
    rng = random.Random(3)
    for start in range(0, SEARCHES, AT_ONCE):
        yield [_record(number, rng) for number in range(start, start + AT_ONCE)]


def _record(number: int, rng: random.Random) -> SearchRecord:
    return SearchRecord(
        timestamp=NOW - PAST + PAST * (number / SEARCHES),
        request_id=f"{number:024x}",
        query="how are connections tried again",
        results_count=5,
        latency_ms=rng.lognormvariate(2.0, 0.8),
        embedding_latency_ms=4.0,
        vector_latency_ms=2.0,
        text_latency_ms=2.0,
        level=rng.choice(LEVELS),
        cache_hit=rng.random() < 0.3,
        agent=rng.choice(AGENTS),
        game=rng.choice(GAMES),
    )

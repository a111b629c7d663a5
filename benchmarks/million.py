"""The embedded store at 1 000 000 chunks: opening it, searching it over HTTP, and the memory that it takes.

The vectors stand in clusters around embeddings of invented passages, the words are skewed as in natural text, and no
answer comes from a cache. Filling needs 10 GB of disk, and takes longer than everything else.
"""

import time
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.large_export import clustered, imported
from benchmarks.processes import UNCACHED, Cost, ask, cost_of, median, serving, until_ready
from rag_context.evaluation.measures import percentile

CHUNKS = 1_000_000
QUESTIONS = 300
WARM_UP = 20
OPENING_S = 600.0


def measure(data_dir: Path, chunks: int = CHUNKS) -> list[Figure]:
    """Fill a data directory and measure it."""
    writer, seconds = imported(data_dir, chunks, clustered())
    questions = [writer.question() for _ in range(2 * (QUESTIONS + WARM_UP))]
    figures = [Figure("import", chunks / seconds, "chunks/s"), *searched(data_dir, questions)]
    return [replace(figure, name=f"{chunks} chunks: {figure.name}") for figure in figures]


def searched(data_dir: Path, questions: list[str]) -> list[Figure]:
    """Open it and ask, with keywords and vectors and by vector alone, in turn."""
    with serving(data_dir, **UNCACHED) as server:
        connection = server.connection()
        ask(connection, "search", {"query": questions[0]})
        answered = time.perf_counter() - server.started
        until_ready(server, OPENING_S)
        opened, peak_mb = time.perf_counter() - server.started, server.peak_mb
        hybrid, by_vector = [], []
        for one, other in zip(questions[::2], questions[1::2], strict=True):
            hybrid.append(cost_of(server, connection, {"query": one}))
            by_vector.append(cost_of(server, connection, {"query": other, "mode": "vector"}))
        level = ask(connection, "search", {"query": questions[0]})["fallbackLevel"]
        if level != 1:
            raise RuntimeError(f"the server answers at level {level}")
        resident_mb = server.resident_mb
    return [
        Figure("first labelled answer", answered, "s", note="from the command"),
        Figure("ready", opened, "s", note="from the command, to searches of level 1"),
        *_figures("search over HTTP", hybrid[WARM_UP:], 120, 300),
        *_figures("by vector alone", by_vector[WARM_UP:]),
        Figure("resident memory", resident_mb, "MB", 2500, note="after the searches"),
        Figure("most resident memory while opening", peak_mb, "MB"),
    ]


def _figures(name: str, costs: list[Cost], p50_ms: float | None = None, p99_ms: float | None = None) -> list[Figure]:
    middle = median(costs)
    note = f"processor {middle.processor_ms:.0f} ms"
    return [
        Figure(f"{name}, p50", middle.ms, "ms", p50_ms, note=note),
        Figure(f"{name}, p99", percentile([cost.ms for cost in costs], 0.99), "ms", p99_ms),
    ]

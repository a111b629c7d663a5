"""Search over HTTP against its baseline: tokenise, embed, multiply, in one process and nothing else."""

import math
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.baseline import baseline
from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.processes import Server, ask, serving, until_ready
from rag_context.embedders.onnx_model import BUNDLED

UNCACHED = {"RAG_CACHE_SIZE": "0"}
QUESTIONS = 400
CLIENTS = 8


def quantile(times: Sequence[float], share: float) -> float:
    """Nearest rank."""
    return sorted(times)[max(math.ceil(share * len(times)) - 1, 0)]


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000.0


def against_baseline(data_dir: Path) -> list[Figure]:
    """p50 of a search over HTTP, as a multiple of the baseline's p50, measured alternately in one run."""
    writer = Writer(seed=11)
    with serving(data_dir, **UNCACHED) as server, baseline(data_dir) as at_the_baseline:
        until_ready(server)
        connection = server.connection()
        over_http, by_vector, bare = [], [], []
        for number in range(QUESTIONS + 50):
            question = writer.question()
            one = timed(partial(ask, connection, "search", {"query": question}))
            two = timed(partial(ask, connection, "search", {"query": writer.question(), "mode": "vector"}))
            other = at_the_baseline(question)
            if number >= 50:
                over_http.append(one)
                by_vector.append(two)
                bare.append(other)
        resident = server.resident_mb
    ratio = statistics.median(over_http) / statistics.median(bare)
    return [
        Figure("search over HTTP / bare", ratio, "x", 1.5, note="p50"),
        Figure("search over HTTP by vector alone / bare", statistics.median(by_vector) / statistics.median(bare), "x"),
        Figure("search over HTTP, p50", statistics.median(over_http), "ms"),
        Figure("bare: tokenise, embed, multiply, p50", statistics.median(bare), "ms"),
        Figure("resident memory", resident, "MB", 250, note=f"after {QUESTIONS} searches"),
    ]


def under_load(data_dir: Path, scratch: Path) -> list[Figure]:
    """p99 with eight clients at once: sound, and with one part broken."""
    figures = []
    with serving(data_dir, **UNCACHED) as server:
        until_ready(server)
        figures.append(_crowd(server, "8 clients, p99"))
    absent = Path(shutil.copytree(BUNDLED, scratch / "absent"))
    (absent / "model.onnx").unlink()
    with serving(data_dir, **UNCACHED, RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(absent)) as server:
        figures.append(_crowd(server, "8 clients, model missing, p99"))
    garbage = scratch / "garbage"
    garbage.mkdir()
    (garbage / "rag-context.db").write_bytes(b"garbage " * 4096)
    with serving(garbage, **UNCACHED) as server:
        figures.append(_crowd(server, "8 clients, store garbage, p99"))
    return figures


def _crowd(server: Server, name: str) -> Figure:
    times: list[float] = []

    def client(number: int) -> None:
        writer = Writer(seed=100 + number)
        connection = server.connection()
        bodies = [{"query": writer.question()} for _ in range(QUESTIONS // 4)]
        times.extend(timed(partial(ask, connection, "search", body)) for body in bodies)

    crowd = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return Figure(name, quantile(times, 0.99), "ms", 500)


def start(data_dir: Path) -> list[Figure]:
    """From the command to the open port, the first answer, and the first answer of level 1."""
    opened, first, primary = [], [], []
    for number in range(5):
        with serving(data_dir, **UNCACHED) as server:
            connection = server.connection()
            connection.connect()
            opened.append(time.perf_counter() - server.started)
            level = ask(connection, "search", {"query": f"first question {number}"})["fallbackLevel"]
            first.append(time.perf_counter() - server.started)
            while level != 1:
                level = ask(connection, "search", {"query": f"question {number} {time.perf_counter()}"})[
                    "fallbackLevel"
                ]
            primary.append(time.perf_counter() - server.started)
    return [
        Figure("port open", statistics.median(opened), "s", 1.0, note="from the command, median of 5"),
        Figure("first labelled answer", statistics.median(first), "s", 1.0, note="from the command, median of 5"),
        Figure("first answer of level 1", statistics.median(primary), "s", 3.0, note="from the command, median of 5"),
    ]

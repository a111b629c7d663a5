"""Search over HTTP against its baseline: tokenise, embed, multiply, in one process and nothing else."""

import shutil
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.baseline import baseline
from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.large_export import clustered, imported
from benchmarks.processes import UNCACHED, Cost, Server, ask, cost_of, median, serving, until_ready
from rag_context.domain.ranking_rules import Rule
from rag_context.embedders.onnx_model import BUNDLED
from rag_context.evaluation.measures import percentile
from rag_context.resilience.dependency import Breaker, Dependency, constant_cooldown
from rag_context.search.chain import SearchChain
from rag_context.search.retrievers import Backends
from rag_context.stores.postgres import PostgresStore
from rag_context.stores.sqlite.embedded import SqliteStore
from rag_context.testing import FakeEmbedder

QUESTIONS = 400
WARM_UP = 50
CLIENTS = 8


@dataclass(frozen=True, slots=True)
class Turns:
    """What questions cost over HTTP, by vector alone, and at the baseline, one after the other in turn."""

    over_http: list[Cost]
    by_vector: list[Cost]
    bare: list[Cost]
    resident_mb: float

    def figures(self, where: str = "") -> list[Figure]:
        """Medians, and what they are of the baseline's."""
        bare = median(self.bare)
        figures = []
        for name, costs in ((f"search over HTTP{where}", self.over_http), (f"by vector alone{where}", self.by_vector)):
            cost = median(costs)
            figures += [
                Figure(f"{name} / bare", cost.ms / bare.ms, "x", note="p50"),
                Figure(f"{name} / bare, processor time", cost.processor_ms / bare.processor_ms, "x", note="p50"),
                Figure(f"{name}, p50", cost.ms, "ms", note=f"processor {cost.processor_ms:.1f} ms"),
            ]
        note = f"processor {bare.processor_ms:.1f} ms"
        return [*figures, Figure(f"bare: tokenise, embed, multiply{where}, p50", bare.ms, "ms", note=note)]


def in_turn(data_dir: Path, questions: int = QUESTIONS) -> Turns:
    """Ask a server and the baseline alternately, with result caches off. The baseline multiplies in one thread."""
    writer = Writer(seed=11)
    over_http, by_vector, bare = [], [], []
    with serving(data_dir, **UNCACHED) as server, baseline(data_dir) as at_the_baseline:
        until_ready(server)
        connection = server.connection()
        for _ in range(questions + WARM_UP):
            question = writer.question()
            over_http.append(cost_of(server, connection, {"query": question}))
            by_vector.append(cost_of(server, connection, {"query": writer.question(), "mode": "vector"}))
            bare.append(at_the_baseline(question))
        return Turns(over_http[WARM_UP:], by_vector[WARM_UP:], bare[WARM_UP:], server.resident_mb)


def chain_over(store: SqliteStore | PostgresStore, without: tuple[Rule, ...] = ()) -> SearchChain:
    """A chain in this process, as the service has it, with a deadline that is never reached; queries bring vectors."""
    embedder = FakeEmbedder()
    sources = Backends(
        embedder=embedder,
        vectors=store.vectors,
        texts=store.texts,
        documents=store.documents,
        embedding=Dependency("embedder", embedder.ping),
        vector_store=Dependency("vectors", store.vectors.ping),
        document_store=Dependency("documents", store.documents.ping),
        candidates=store.candidates,
    )
    breaker = Breaker("search", threshold=5, cooldown=constant_cooldown(60.0))
    return SearchChain(sources, breaker, deadline_s=30.0, without=without)


def against_baseline(data_dir: Path) -> list[Figure]:
    """A search over HTTP as a multiple of the baseline, measured alternately in one run."""
    turns = in_turn(data_dir)
    first, *others = turns.figures()
    resident = Figure("resident memory", turns.resident_mb, "MB", 250, note=f"after {QUESTIONS} searches")
    return [replace(first, target=1.5), *others, resident]


def growth(scratch: Path, sizes: Sequence[int]) -> list[Figure]:
    """The same at several sizes, over clustered vectors."""
    figures = []
    for size in sizes:
        data_dir = scratch / str(size)
        imported(data_dir, size, clustered())
        figures += in_turn(data_dir, QUESTIONS // 2).figures(f", {size} chunks")
        shutil.rmtree(data_dir)
    return figures


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
        times.extend(cost_of(server, connection, body).ms for body in bodies)

    crowd = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return Figure(name, percentile(times, 0.99), "ms", 500)


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

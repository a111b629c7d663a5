"""PostgreSQL beside the embedded store: recall of its vector search under filters, and what a search costs.

Both are filled by the same import. The server is the one of the tests; it runs on the same machine.
"""

import asyncio
import shutil
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.servers.postgres import FAST, execute, postgres_process, url_of

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.large_export import clustered, imported
from benchmarks.processes import UNCACHED, Cost, cost_of, median, serving, until_ready
from benchmarks.searching import chain_over
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Vector
from rag_context.embedders.onnx_model import BUNDLED, load
from rag_context.errors import BackendStartingError
from rag_context.search.query import Level, Query
from rag_context.stores.postgres import PostgresStore, open_postgres
from rag_context.stores.postgres.connection import Connection
from rag_context.stores.postgres.vector_search import INDEXED_FROM
from rag_context.stores.sqlite.embedded import FILE_NAME, SqliteStore, open_database

CHUNKS = 10_000
LARGE = 100_000
QUESTIONS = 200
WARM_UP = 50
IDLE_S = 5.0
NEAREST = 10
POOL = 40
"""How many hits a search takes from each retriever."""

FILTERS = {
    "all": Filter(),
    "30 % filter": Filter(any_tags=(("tag-0", "tag-1", "tag-2"),)),
    "10 % filter": Filter(category="category-3"),
    "1 % filter": Filter(session_id="session-42"),
}
_SETTINGS = ("-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB")


def measure(scratch: Path, chunks: int, large: int) -> list[Figure]:
    """Fill both stores at two sizes, and ask."""
    figures = []
    with postgres_process(*FAST, *_SETTINGS) as process:
        for size in (chunks, large):
            execute(url_of(process.port), f"CREATE DATABASE of_{size}")
            url, data_dir = url_of(process.port, f"of_{size}"), scratch / str(size)
            imported(data_dir, size, clustered())
            imported(scratch / f"client-{size}", size, clustered(), DATABASE_URL=url)
            figures += asyncio.run(_in_process(data_dir, url, f", {size} chunks"))
            if size == chunks:
                figures += _over_http(data_dir, scratch / f"client-{size}", url, f", {size} chunks")
            else:
                figures += asyncio.run(_recall(data_dir, url, f", {size} chunks"))
            shutil.rmtree(data_dir)
    return figures


async def _recall(data_dir: Path, url: str, where: str) -> list[Figure]:
    """Of the nearest ten chunks by the embedded store, which is exact, the share that PostgreSQL returns."""
    figures = []
    async with open_database(data_dir / FILE_NAME) as embedded, open_postgres(url) as postgres:
        await _ready(embedded, postgres)
        vectors = [vector for _, vector in _questions(19)]
        for name, passing in FILTERS.items():
            shared, times = 0, []
            for vector in vectors:
                exact = await embedded.vectors.search(vector, limit=NEAREST, where=passing)
                started = time.perf_counter()
                found = await postgres.vectors.search(vector, limit=POOL, where=passing)
                times.append((time.perf_counter() - started) * 1000.0)
                shared += len({hit.chunk.id for hit in exact} & {hit.chunk.id for hit in found[:NEAREST]})
            recall = shared / (NEAREST * len(vectors))
            figures += [
                Figure(f"PostgreSQL, vector search{where}, {name}, recall@10", recall, "", 0.99, at_least=True),
                Figure(f"PostgreSQL, vector search{where}, {name}, p50", statistics.median(times), "ms"),
            ]
    return figures


async def _in_process(data_dir: Path, url: str, where: str) -> list[Figure]:
    """Processor time of a whole search without the embedding, in this process, in turn with the embedded store."""
    async with open_database(data_dir / FILE_NAME) as embedded, open_postgres(url) as postgres:
        await _ready(embedded, postgres)
        chains = {"embedded": chain_over(embedded), "PostgreSQL": chain_over(postgres)}
        costs: dict[str, list[Cost]] = {name: [] for name in chains}
        idle_share = await _idle_share()
        for text, vector in _questions(23):
            for name, chain in chains.items():
                started, processor_s = time.perf_counter(), time.process_time()
                answer = await chain.search(Query(text, vector=vector, min_score=0.0))
                taken_s = time.perf_counter() - started
                spent_s = time.process_time() - processor_s - idle_share * taken_s
                costs[name].append(Cost(taken_s * 1e3, spent_s * 1e3))
                if answer.level is not Level.PRIMARY or answer.warning is not None or not answer.results:
                    raise RuntimeError(f"{name} answers at level {answer.level}: {answer.warning}")
    embedded_cost, cost = (median(each[WARM_UP:]) for each in costs.values())
    note = f"embedded: {embedded_cost.processor_ms:.2f} ms"
    ratio = cost.processor_ms / embedded_cost.processor_ms
    name = f"PostgreSQL, a search{where}, our processor time"
    return [
        Figure(f"{name} / embedded", ratio, "x", 0.25, note="without embedding, p50"),
        Figure(name, cost.processor_ms, "ms", note=note),
    ]


def _over_http(embedded_dir: Path, data_dir: Path, url: str, where: str) -> list[Figure]:
    """A search over HTTP, in turn with the embedded store."""
    writer, ours, theirs = Writer(seed=29), [], []
    with serving(embedded_dir, **UNCACHED) as embedded, serving(data_dir, DATABASE_URL=url, **UNCACHED) as postgres:
        until_ready(embedded)
        until_ready(postgres)
        connections = embedded.connection(), postgres.connection()
        for _ in range(QUESTIONS + WARM_UP):
            body = {"query": writer.question()}
            ours.append(cost_of(embedded, connections[0], body))
            theirs.append(cost_of(postgres, connections[1], body))
    one, other = median(ours[WARM_UP:]), median(theirs[WARM_UP:])
    name = f"PostgreSQL, search over HTTP{where}"
    return [
        Figure(f"{name} / embedded", other.ms / one.ms, "x", 2.5, note="p50"),
        Figure(f"{name}, p50", other.ms, "ms", note=f"embedded: {one.ms:.1f} ms"),
    ]


def _questions(seed: int) -> Sequence[tuple[str, Vector]]:
    writer, model = Writer(seed=seed), load(BUNDLED)
    texts = [writer.question() for _ in range(QUESTIONS + WARM_UP)]
    return [(text, model.embed(text)) for text in texts]


async def _idle_share() -> float:
    """Processor time per second of what both stores do by themselves: it is not part of a search."""
    started, processor_s = time.perf_counter(), time.process_time()
    await asyncio.sleep(IDLE_S)
    return (time.process_time() - processor_s) / (time.perf_counter() - started)


async def _ready(embedded: SqliteStore, postgres: PostgresStore) -> None:
    """Wait until the vectors are in memory there, and have their index here."""
    large = (await postgres.documents.counts()).vectors > INDEXED_FROM
    for vectors, needed in ((postgres.vectors, "by index" if large else ""), (embedded.vectors, "in memory")):
        is_ready = False
        while not is_ready:
            await asyncio.sleep(0.1)
            with suppress(BackendStartingError):
                is_ready = needed in await vectors.ping()
    for table in ("chunks", "passages", "documents", "vectors_0"):  # as the server does by itself some time later
        await postgres.database.outside(partial(_analyse, table))


async def _analyse(table: str, connection: Connection) -> None:
    await connection.execute(f"VACUUM ANALYZE rag_context.{table}")

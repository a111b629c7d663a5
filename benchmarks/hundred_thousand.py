"""The embedded store at 100 000 chunks: vector search under filters, text search with common words, opening."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.corpus import COMMON, Writer, unit_vectors
from benchmarks.figures import Figure
from rag_context.domain.documents import Chunk, Document, Metadata, Span, Tenant
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Calibration, EmbeddingModel
from rag_context.errors import BackendStartingError
from rag_context.evaluation.measures import percentile
from rag_context.ports.writing import IndexWriter, ModelRegistry, Version
from rag_context.stores.sqlite.embedded import FILE_NAME, SqliteStore, open_database

CHUNKS = 100_000
PER_DOCUMENT = 10
DIMENSION = 384
QUERIES = 200
MODEL = EmbeddingModel("random", DIMENSION, "0" * 64, 254, Calibration(12.1, -4.01))
FILTERS = {"all": Filter(), "10 % filter": Filter(category="category-3"), "1 % filter": Filter(session_id="session-42")}


async def measure(folder: Path) -> list[Figure]:
    """Fill a store, open it again, and ask."""
    path = folder / FILE_NAME
    async with open_database(path) as store:
        await fill(store.documents, store.documents, CHUNKS)
    started = time.perf_counter()
    async with open_database(path) as store:
        await _first_answer(store)
        opened = time.perf_counter() - started
        figures = [Figure("open with 100 000 chunks, to the first vector answer", opened, "s", 2.0)]
        queries = unit_vectors(QUERIES, DIMENSION, seed=9)
        for name, where in FILTERS.items():
            times = await _times([partial(store.vectors.search, row, limit=100, where=where) for row in queries])
            figures.append(Figure(f"vector search, 100 000 chunks, {name}, p50", statistics.median(times), "ms", 15))
        writer = Writer(seed=13)
        questions = [f"{writer.question()} {COMMON[1]} {COMMON[2]}" for _ in range(QUERIES)]
        times = await _times([partial(store.texts.search, text, limit=100, where=Filter()) for text in questions])
        figures.append(
            Figure(
                "text search, 100 000 chunks, common words, p99", percentile(times, 0.99), "ms", 50, note="cold first"
            )
        )
        figures.append(Figure("text search, 100 000 chunks, common words, p50", statistics.median(times), "ms"))
    return figures


async def _first_answer(store: SqliteStore) -> None:
    """Search until the vectors are in memory: a store that still reads them says so."""
    query = unit_vectors(1, DIMENSION)[0]
    while True:
        try:
            await store.vectors.search(query, limit=10, where=Filter())
        except BackendStartingError:
            continue
        return


async def _times(calls: list[Callable[[], Awaitable[object]]]) -> list[float]:
    times = []
    for call in calls:
        started = time.perf_counter()
        await call()
        times.append((time.perf_counter() - started) * 1000.0)
    return times


async def fill(registry: ModelRegistry, writer: IndexWriter, count: int, *, together: int = 64) -> None:
    """Write documents of invented text with random vectors, `count` chunks in all, some documents at once."""
    await registry.adopt_model(MODEL)
    texts, vectors = Writer(seed=5), unit_vectors(count, DIMENSION)
    places = asyncio.Semaphore(together)

    async def write(number: int) -> None:
        async with places:
            document, chunks = _document(number, [texts.passage() for _ in range(PER_DOCUMENT)])
            own = vectors[number * PER_DOCUMENT : (number + 1) * PER_DOCUMENT]
            await writer.write(Version(document, chunks, own, MODEL.fingerprint))

    await asyncio.gather(*(write(number) for number in range(count // PER_DOCUMENT)))


def _document(number: int, texts: list[str]) -> tuple[Document, list[Chunk]]:
    document = Document(
        id=f"document-{number}",
        tenant=Tenant(),
        content_type="documentation",
        session_id=f"session-{number % 100}",
        source=f"/notes/{number}.md",
        title=f"Note {number}",
        content="".join(texts),
        content_hash=str(number),
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        metadata=Metadata(category=f"category-{number % 10}"),
    )
    chunks, start = [], 0
    for position, text in enumerate(texts):
        span = Span(start, start + len(text), position + 1, position + 1)
        chunks.append(
            Chunk(f"{number}-{position}", document.id, position, text, span, occurred_at=document.occurred_at)
        )
        start += len(text)
    return document, chunks

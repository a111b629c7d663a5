"""What many tenants cost: searches of one among 200, in turn with those of a single tenant, 10 000 chunks in all.

Searches run in this process and bring their own vectors, so that neither HTTP nor a model is measured.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.corpus import Writer, unit_vectors
from benchmarks.figures import Figure
from benchmarks.hundred_thousand import DIMENSION, MODEL
from benchmarks.ranking_rules import in_memory
from benchmarks.searching import chain_over
from rag_context.domain.documents import Chunk, Document, DocumentInput, Span, Tenant, content_hash, document_id
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Vector
from rag_context.ports.writing import Version
from rag_context.search.chain import SearchChain
from rag_context.search.query import Level, Mode, Query
from rag_context.stores.sqlite.embedded import FILE_NAME, SqliteStore, open_database

TENANTS = 200
PER_DOCUMENT = 10
QUESTIONS = 300
WARM_UP = 30
MOST = 1.1
FOREIGN, UNKNOWN = "zugzwang", "quixotry"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def measure(scratch: Path, chunks: int) -> list[Figure]:
    """Fill two stores with the same texts, and ask both."""
    return asyncio.run(_measure(scratch, chunks))


async def _measure(scratch: Path, chunks: int) -> list[Figure]:
    async with AsyncExitStack() as stack:
        stores: dict[int, SqliteStore] = {}
        for tenants in (1, TENANTS):
            folder = scratch / f"{tenants}-tenants"
            folder.mkdir(parents=True)
            stores[tenants] = await stack.enter_async_context(open_database(folder / FILE_NAME))
            await _fill(stores[tenants], chunks // PER_DOCUMENT, tenants)
            await in_memory(stores[tenants])
        figures = [await _ratio(stores, mode, chunks) for mode in Mode]
        return [*figures, await _of_words(stores[TENANTS])]


async def _fill(store: SqliteStore, documents: int, tenants: int) -> None:
    writer, rows = Writer(seed=5), unit_vectors(documents * PER_DOCUMENT, DIMENSION)
    await store.documents.adopt_model(MODEL)
    versions = []
    for number in range(documents):
        # Every tenant but the first has the word.
        end = f" {FOREIGN}" if number % tenants else ""
        texts = [f"{writer.passage(4)}{end}" for _ in range(PER_DOCUMENT)]
        vectors = rows[number * PER_DOCUMENT : (number + 1) * PER_DOCUMENT]
        document, chunks = _document(number, _tenant(number % tenants), texts)
        versions.append(Version(document, chunks, vectors, MODEL.fingerprint))
    for start in range(0, documents, 100):
        await store.documents.write_all(versions[start : start + 100])


def _tenant(number: int) -> Tenant:
    return Tenant(f"project-{number}", "main", f"{number:016x}")


def _document(number: int, tenant: Tenant, texts: list[str]) -> tuple[Document, list[Chunk]]:
    draft = DocumentInput("\n\n".join(texts), "documentation", "session", f"{number}.md", tenant=tenant)
    made = Document(
        id=document_id(draft),
        tenant=tenant,
        content_type=draft.content_type,
        session_id=draft.session_id,
        source=draft.source,
        title=draft.source,
        content=draft.content,
        content_hash=content_hash(draft),
        timestamp=NOW,
        occurred_at=NOW,
        metadata=draft.metadata,
    )
    span = Span(0, 0, 1, 1)
    return made, [
        Chunk(f"{number}-{position}", made.id, position, text, span, occurred_at=NOW)
        for position, text in enumerate(texts)
    ]


async def _ratio(stores: dict[int, SqliteStore], mode: Mode, chunks: int) -> Figure:
    chains = {tenants: chain_over(store, ()) for tenants, store in stores.items()}
    spent: dict[int, list[float]] = {tenants: [] for tenants in chains}
    for number, (question, vector) in enumerate(_questions()):
        for tenants in sorted(chains, reverse=number % 2 == 0):
            query = Query(question, where=Filter(_tenant(number % tenants)), mode=mode, vector=vector)
            spent[tenants].append(await _latency_ms(chains[tenants], query))
    one, many = (statistics.median(spent[tenants][WARM_UP:]) for tenants in (1, TENANTS))
    name = f"{mode.value} search, {chunks} chunks, one tenant of {TENANTS} / a single tenant (p50)"
    return Figure(name, many / one, "x", MOST, note=f"{many:.2f} and {one:.2f} ms")


async def _of_words(store: SqliteStore) -> Figure:
    """Searches of the first tenant for a word that only others have, in turn with those for one that none has."""
    chain = chain_over(store, ())
    spent: dict[str, list[float]] = {word: [] for word in (FOREIGN, UNKNOWN)}
    for number, (question, vector) in enumerate(_questions()):
        for word in sorted(spent, reverse=number % 2 == 0):
            query = Query(f"{question} {word}", where=Filter(_tenant(0)), vector=vector)
            spent[word].append(await _latency_ms(chain, query))
    foreign, unknown = (statistics.median(spent[word][WARM_UP:]) for word in (FOREIGN, UNKNOWN))
    name = f"a word that only other tenants have / a word that none has (p50, {TENANTS} tenants)"
    return Figure(name, foreign / unknown, "x", MOST, note=f"{foreign:.3f} and {unknown:.3f} ms")


def _questions() -> Iterator[tuple[str, Vector]]:
    writer = Writer(seed=31)
    for vector in unit_vectors(QUESTIONS + WARM_UP, DIMENSION, seed=9):
        yield writer.question(), vector


async def _latency_ms(chain: SearchChain, query: Query) -> float:
    started = time.perf_counter()
    answer = await chain.search(query)
    latency_ms = (time.perf_counter() - started) * 1e3
    if answer.level is not Level.PRIMARY or answer.warning is not None:
        raise RuntimeError(f"an answer of level {answer.level}: {answer.warning}")
    return latency_ms

"""Background work over two stores: what they disagree about is mended while the service runs."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rag_context.domain.documents import DocumentInput
from rag_context.errors import BackendUnavailableError
from rag_context.ingest.receipts import Outcome
from rag_context.ingest.reconciliation import Reconciler
from rag_context.ports.writing import VectorWriter
from rag_context.resilience.dependency import Dependency
from rag_context.service.binding import BoundEmbedder
from rag_context.service.maintenance import SWEEP_TOGETHER, Upkeep
from rag_context.testing import Fault, Faulty
from tests.ingest.split_stores import Apart, chunks_of, document, opened

DRAFTS = [
    DocumentInput(f"Valve {number} opens at nine bar.", "documentation", "s", f"{number}.md") for number in range(5)
]


@pytest.fixture
async def apart(tmp_path: Path) -> AsyncIterator[Apart]:
    async with opened(tmp_path) as made:
        indexer = await made.indexer()
        for draft in DRAFTS:
            assert (await indexer.index(draft)).outcome is Outcome.INDEXED
        yield made


@asynccontextmanager
async def kept_up(apart: Apart, reconciler: Reconciler | None = None) -> AsyncIterator[None]:
    bound = BoundEmbedder(apart.fake, apart.writer)
    dependencies = [Dependency("embedder", bound.ping), apart.guard]
    upkeep = Upkeep(
        dependencies,
        bound,
        await apart.indexer(),
        apart.home.documents,
        time.monotonic,
        reconciler or apart.reconciler,
    )
    task = asyncio.create_task(upkeep.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)


async def test_a_vector_store_that_lost_everything_heals_by_itself(apart: Apart) -> None:
    await apart.vectors.clear()

    async def is_whole() -> bool:
        return await apart.vectors.count() == len(DRAFTS) and not await apart.home.documents.pending(1)

    async with kept_up(apart):
        await until(is_whole)
    assert not await apart.reconciler.compare()
    assert len(await apart.by_vector("valve")) == len(DRAFTS)


async def test_vectors_of_another_version_are_replaced_though_the_numbers_agree(apart: Apart) -> None:
    (id_,) = list(await apart.home.documents.inventory("", 1))
    other = replace(document("x", "Something else"), id=id_)
    await apart.vectors.put(other, chunks_of(other), await apart.embedded(chunks_of(other)))
    assert not await apart.reconciler.differ()

    async def is_whole() -> bool:
        return not await apart.reconciler.compare()

    async with kept_up(apart):
        await until(is_whole)


async def test_vectors_of_unknown_documents_are_reported_and_left_alone(
    apart: Apart, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be another index's, that somebody pointed at the same vector store."""
    stranger = document("stranger", "Who am I")
    await apart.vectors.put(stranger, chunks_of(stranger), await apart.embedded(chunks_of(stranger)))

    async def is_told() -> bool:
        return "another index may use the same vector store" in caplog.text

    async with kept_up(apart):
        await until(is_told)
    assert stranger.id in await apart.vectors.stored_vectors([stranger.id])
    assert await apart.home.documents.pending(1) == []


async def test_a_sweep_embeds_no_more_once_the_vector_store_is_away(apart: Apart) -> None:
    for number in range(40):
        each = document(f"waiting {number}", "Text")
        await apart.home.writer.put(each, chunks_of(each))
    indexer = await apart.indexer()
    apart.wire.break_at(1)
    upkeep = Upkeep(
        [apart.guard], BoundEmbedder(apart.fake, apart.writer), indexer, apart.home.documents, time.monotonic
    )
    before = apart.fake.calls
    with pytest.raises(BackendUnavailableError):
        await upkeep.sweep(lambda _done: None)
    assert 0 < apart.fake.calls - before <= SWEEP_TOGETHER
    assert len(await apart.home.documents.pending(100)) == 40


async def test_a_dead_vector_store_is_checked_again_and_ends_nothing(apart: Apart) -> None:
    vectors: Faulty[VectorWriter] = Faulty(apart.vectors)
    vectors.fault = Fault(BackendUnavailableError("vectors", "gone"))
    reconciler = Reconciler(apart.home.documents, apart.home.writer, vectors.port)

    async def is_asked() -> bool:
        return vectors.calls > 0

    async with kept_up(apart, reconciler):
        await until(is_asked)
    assert await apart.home.documents.pending(10) == []

"""Background work over two stores: what they disagree about is repaired while the service runs."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from rag_context.domain.documents import DocumentInput
from rag_context.errors import BackendUnavailableError, ForeignDataError
from rag_context.ingest.split_stores import Reconciler
from rag_context.ingest.submissions import Outcome
from rag_context.memory.background_maintenance import SWEEP_TOGETHER, BackgroundMaintenance, Duties
from rag_context.memory.bound_embedder import BoundEmbedder
from rag_context.ports.writing import VectorWriter, Version
from rag_context.resilience.dependency import Dependency
from rag_context.stores.sqlite.embedded import open_documents
from rag_context.testing import Fault, Faulty
from rag_context.wiring.stores import DocumentBackend
from tests.ingest.split_stores import SplitStores, chunks_of, document, opened

DRAFTS = [
    DocumentInput(f"Valve {number} opens at nine bar.", "documentation", "s", f"{number}.md") for number in range(5)
]


@pytest.fixture
async def split(tmp_path: Path) -> AsyncIterator[SplitStores]:
    async with opened(tmp_path) as made:
        indexer = await made.indexer()
        for draft in DRAFTS:
            assert (await indexer.index(draft)).outcome is Outcome.INDEXED
        yield made


@asynccontextmanager
async def maintained(
    split: SplitStores, reconciler: Reconciler | None = None, duties: Duties = Duties.ALL
) -> AsyncIterator[None]:
    bound = BoundEmbedder(split.fake, split.writer)
    dependencies = [Dependency("embedder", bound.ping), split.guard]
    parts = dependencies, bound, await split.indexer(), split.home.documents, time.monotonic
    maintenance = BackgroundMaintenance(*parts, reconciler or split.reconciler, duties=duties)
    task = asyncio.create_task(maintenance.run())
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


async def test_a_vector_store_that_lost_everything_heals_by_itself(split: SplitStores) -> None:
    await split.vectors.clear()

    async def is_whole() -> bool:
        return await split.vectors.count() == len(DRAFTS) and not await split.home.documents.pending(1)

    async with maintained(split):
        await until(is_whole)
    assert not await split.reconciler.compare()
    assert len(await split.by_vector("valve")) == len(DRAFTS)


async def test_a_process_that_repairs_nothing_notes_what_is_lost_and_that_it_is_back(split: SplitStores) -> None:
    """A worker beside the first one: its answers must say the same, and no longer than it is true."""
    ids = list(await split.home.documents.inventory("", 10))

    async def has_noted() -> bool:
        return split.reconciler.lost().vectors == len(DRAFTS)

    async def is_back() -> bool:
        return split.reconciler.lost().vectors == 0

    async with maintained(split, duties=Duties.OWN):
        await split.vectors.clear()
        await until(has_noted)
        assert await split.home.documents.pending(1) == []
        await split.home.documents.mark_pending(ids)
        await until(is_back)


async def test_vectors_of_another_version_are_replaced_though_the_numbers_agree(split: SplitStores) -> None:
    (id_,) = list(await split.home.documents.inventory("", 1))
    other = replace(document("x", "Something else"), id=id_)
    await split.vectors.put(other, chunks_of(other), await split.embedded(chunks_of(other)))
    assert not await split.reconciler.differ()

    async def is_whole() -> bool:
        return not await split.reconciler.compare()

    async with maintained(split):
        await until(is_whole)


async def test_vectors_of_unknown_documents_are_reported_and_left_alone(
    split: SplitStores, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be another index's, that someone pointed at the same vector store."""
    other_program = document("stranger", "Who am I")
    await split.vectors.put(other_program, chunks_of(other_program), await split.embedded(chunks_of(other_program)))

    async def is_told() -> bool:
        return "another index may use the same vector store" in caplog.text

    async with maintained(split):
        await until(is_told)
    assert other_program.id in await split.vectors.stored_vectors([other_program.id])
    assert await split.home.documents.pending(1) == []


async def test_an_index_does_not_begin_among_the_vectors_of_another(split: SplitStores, tmp_path: Path) -> None:
    """D-14: two installations, each with documents of its own, in one collection of a vector server."""
    before = await split.vectors.count()
    async with open_documents(tmp_path / "other.db") as half:
        other = SplitStores(DocumentBackend(half.documents, half.texts, half.metrics, half.auditor), split.vectors)
        with pytest.raises(ForeignDataError, match=r"of another index.*Nothing was changed.*stores\.qdrant"):
            await other.writer.adopt_model(other.fake.model)
        theirs = document("theirs", "A text of the other index")
        assert not await other.writer.write(Version(theirs, chunks_of(theirs), None))
        assert await split.vectors.count() == before > 0
        await split.vectors.clear()
        await other.writer.adopt_model(other.fake.model)


class BoundMeanwhile:
    """A front of a vector store: just before it counts, another server of the index binds the model and stores."""

    def __init__(self, other: SplitStores) -> None:
        self._other = other

    def __getattr__(self, name: str) -> object:
        return getattr(self._other.vectors, name)

    async def count(self) -> int:
        await self._other.writer.adopt_model(self._other.fake.model)
        await self._other.write(document("theirs", "A text of the same index"))
        return await self._other.vectors.count()


async def test_two_servers_of_one_new_index_may_begin_at_once(split: SplitStores, tmp_path: Path) -> None:
    await split.vectors.clear()
    async with open_documents(tmp_path / "new.db") as half:
        one = SplitStores(DocumentBackend(half.documents, half.texts, half.metrics, half.auditor), split.vectors)
        await one.over(cast("VectorWriter", BoundMeanwhile(one))).adopt_model(one.fake.model)
        assert await one.vectors.count() == 1


async def test_a_sweep_embeds_no_more_once_the_vector_store_is_away(split: SplitStores) -> None:
    for number in range(40):
        each = document(f"waiting {number}", "Text")
        await split.home.documents.put(each, chunks_of(each))
    indexer = await split.indexer()
    split.wire.break_at(1)
    maintenance = BackgroundMaintenance(
        [split.guard], BoundEmbedder(split.fake, split.writer), indexer, split.home.documents, time.monotonic
    )
    before = split.fake.calls
    with pytest.raises(BackendUnavailableError):
        await maintenance.sweep(lambda _done: None)
    assert 0 < split.fake.calls - before <= SWEEP_TOGETHER
    assert len(await split.home.documents.pending(100)) == 40


async def test_a_dead_vector_store_is_checked_again_and_ends_nothing(split: SplitStores) -> None:
    vectors: Faulty[VectorWriter] = Faulty(split.vectors)
    vectors.fault = Fault(BackendUnavailableError("vectors", "gone"))
    reconciler = Reconciler(split.home.documents, split.home.documents, vectors.port)

    async def is_asked() -> bool:
        return vectors.calls > 0

    async with maintained(split, reconciler):
        await until(is_asked)
    assert await split.home.documents.pending(10) == []

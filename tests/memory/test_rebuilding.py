"""Who works on a run that makes all vectors again, when, and what answers meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rag_context.domain.documents import Chunk, DocumentInput, Span
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import BackendDataError, BackendRejectedError, BackendUnavailableError
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.ingest.submissions import Outcome
from rag_context.memory.bound_embedder import ABANDONED_S, LEASE_S, BoundEmbedder, Rebuilding
from rag_context.ports.models import Embedder
from rag_context.ports.writing import Version
from rag_context.resilience.dependency import Dependency
from rag_context.stores.sqlite.embedded import SqliteStore, open_database
from rag_context.stores.sqlite.vector_models import SqliteRebuilder
from rag_context.testing import FakeEmbedder, Fault, Faulty, FrozenClock

DRAFTS = [
    DocumentInput(f"Valve {number} opens at nine bar.", "documentation", "s", f"{number}.md") for number in range(5)
]


@dataclass
class Process:
    """One of several that use the file, with its own idea of the model."""

    store: SqliteStore
    clock: FrozenClock
    fake: FakeEmbedder
    former: FakeEmbedder | None = None
    begin_on_mismatch: bool = False
    done: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.embedder: Faulty[Embedder] = Faulty(self.fake, "embed_documents")
        self.rebuilder = SqliteRebuilder(self.store.database, self.clock)
        self.bound = BoundEmbedder(self.embedder.port, self.store.documents, self.rebuilder, self._open_former)
        documents = self.store.documents
        self.indexer = Indexer(
            embedder=self.bound,
            embedding=Dependency("embedder", self.bound.ping),
            documents=documents,
            document_store=Dependency("documents", documents.ping),
            writer=documents,
            policy=IndexingPolicy(254),
        )
        self.rebuilding = Rebuilding(
            self.rebuilder,
            self.embedder.port,
            self.bound,
            self.indexer,
            begin_on_mismatch=self.begin_on_mismatch,
            now=self.clock,
        )

    async def work(self) -> bool:
        return await self.rebuilding.work(self.done.append)

    async def _open_former(self, _model: EmbeddingModel) -> Embedder | None:
        return self.former


@pytest.fixture
async def old(tmp_path: Path) -> AsyncIterator[Process]:
    """Works with the model that made the index."""
    async with open_database(tmp_path / "rag-context.db") as store:
        process = Process(store, FrozenClock(1_000_000.0), FakeEmbedder("old"))
        await process.bound.bind()
        for draft in DRAFTS:
            assert (await process.indexer.index(draft)).outcome is Outcome.INDEXED
        yield process


@asynccontextmanager
async def beside(old: Process, *, former: FakeEmbedder | None = None, begins: bool = False) -> AsyncIterator[Process]:
    """Another process, with another model."""
    async with open_database(old.store.database.file.path) as store:
        yield Process(store, old.clock, FakeEmbedder("new"), former, begins)


async def recorded(process: Process) -> str | None:
    model = await process.store.documents.recorded_model()
    return None if model is None else model.name


async def test_a_run_is_begun_worked_on_and_ended(old: Process) -> None:
    assert not await old.work(), "none was begun"
    await old.rebuilding.begin()
    assert await old.rebuilding.remaining() == 5
    assert await old.work()
    assert old.done == [1, 2, 3, 4, 5]
    assert (await old.rebuilding.remaining(), (await old.store.documents.counts()).vectors) == (None, 5)


async def test_another_model_starts_a_reindexing_only_where_it_is_configured_to(old: Process) -> None:
    async with beside(old) as new:
        assert not await new.work()
    async with beside(old, begins=True) as new:
        assert await new.work()
    assert await recorded(old) == "new"
    assert not await old.work(), "and the old one does not begin"


async def test_meanwhile_the_old_model_answers_where_it_can_be_loaded(old: Process) -> None:
    async with beside(old, former=FakeEmbedder("old")) as new:
        await new.bound.bind()
        with pytest.raises(BackendRejectedError):
            _ = new.bound.model  # as long as nothing was begun
        await new.rebuilding.begin()
        assert new.bound.model.name == "old"
        assert (await new.bound.embed_query("valve") == await old.fake.embed_query("valve")).all()
        assert (
            await new.indexer.index(DocumentInput("Valve 9 leaks.", "documentation", "s", "9.md"))
        ).outcome is Outcome.INDEXED
        assert await new.work()
        assert new.bound.model.name == "new"
        assert (await new.bound.embed_query("valve") == await new.fake.embed_query("valve")).all()
        counts = await new.store.documents.counts()
        assert (counts.documents, counts.pending, counts.vectors) == (6, 0, 6)


async def test_the_old_model_answers_no_longer_than_the_run(old: Process) -> None:
    async with beside(old, former=FakeEmbedder("old")) as new:
        await new.rebuilding.begin()
        assert new.bound.model.name == "old"
        assert await new.work()
        await old.rebuilding.begin()
        assert await old.work()
        await new.bound.bind()
        with pytest.raises(BackendRejectedError):  # nothing says that what was loaded then is still that model
            _ = new.bound.model


async def test_a_slow_comparison_does_not_undo_the_end_of_the_run(old: Process) -> None:
    async with beside(old, former=old.fake) as new:
        opened, may_end = asyncio.Event(), asyncio.Event()

        async def slowly(_model: EmbeddingModel) -> Embedder:
            if not opened.is_set():
                opened.set()
                await may_end.wait()
            return old.fake

        bound = BoundEmbedder(new.embedder.port, new.store.documents, new.rebuilder, slowly)
        await new.rebuilding.begin()
        comparison = asyncio.create_task(bound.bind())
        await opened.wait()
        assert await new.work()
        after = asyncio.create_task(bound.bind())
        await asyncio.wait({after}, timeout=0.05)
        may_end.set()
        await asyncio.gather(comparison, after)
        assert bound.model.name == "new"


async def test_a_run_that_another_process_gave_up_is_no_success(old: Process) -> None:
    async with beside(old) as new:
        await new.rebuilding.begin()
        with pytest.raises(BackendRejectedError, match="reindex"):
            await new.rebuilding.require_ended()
        assert await new.work()
        await new.rebuilding.require_ended()


async def test_where_the_old_model_is_gone_new_documents_wait_for_the_end_of_the_run(old: Process) -> None:
    async with beside(old) as new:
        await new.rebuilding.begin()
        receipt = await new.indexer.index(DocumentInput("Valve 9 leaks.", "documentation", "s", "9.md"))
        assert receipt.outcome is Outcome.PENDING
        assert await new.work()
        assert (await new.store.documents.counts()).pending == 0


async def test_one_process_works_and_another_takes_over_when_it_falls_silent(old: Process) -> None:
    async with beside(old) as first, beside(old) as second:
        await first.rebuilding.begin()
        assert not await second.work()
        first.embedder.fault = Fault(BackendUnavailableError("embedder", "killed"))
        with pytest.raises(BackendUnavailableError):
            await first.work()
        old.clock.advance(LEASE_S)
        assert await second.work()
    assert await recorded(old) == "new"


async def test_an_interrupted_run_goes_on_where_it_was(old: Process) -> None:
    async with beside(old) as new:
        await new.rebuilding.begin()
        ids = await new.rebuilder.missing("", 2)
        for id_ in ids:
            await new.indexer.complete_beside(id_, new.fake, new.rebuilder)
    async with beside(old) as again:
        old.clock.advance(LEASE_S)
        assert await again.work()
        assert again.done == [1, 2, 3]


async def test_a_run_cuts_documents_of_an_earlier_version_again(old: Process) -> None:
    talk = DocumentInput("[user] My cat is Miso.\n[assistant] Noted.\n", "chat", "s", "talk")
    receipt = await old.indexer.index(talk)
    document = await old.store.documents.get(receipt.document_id)
    assert document is not None
    span = Span(0, len(document.content), 1, 2)
    whole = Chunk(receipt.document_id, document.id, 0, document.content, span, occurred_at=document.occurred_at)
    await old.store.documents.write(Version(document, [whole]))
    await old.rebuilding.begin()
    assert await old.work()
    assert [chunk.speaker for chunk in await old.store.documents.chunks(document.id)] == ["User", "Assistant"]
    stored = await old.store.documents.stored(document.id)
    assert stored is not None
    assert stored.indexed


async def test_a_run_that_no_process_continues_is_given_up(old: Process) -> None:
    async with beside(old) as new:
        await new.rebuilding.begin()
    old.clock.advance(ABANDONED_S - 1.0)
    assert not await old.work()
    assert await old.rebuilding.remaining() == 5
    old.clock.advance(2.0)
    assert not await old.work()
    assert await old.rebuilding.remaining() is None
    assert await recorded(old) == "old"


async def test_a_document_that_cannot_be_embedded_keeps_no_caller_waiting(old: Process) -> None:
    class Picky(FakeEmbedder):
        async def embed_documents(self, texts: Sequence[str]) -> Matrix:
            if any("Valve 3" in text for text in texts):
                raise BackendDataError("embedder", "NaN")
            return await super().embed_documents(texts)

    process = Process(old.store, old.clock, Picky("new"))
    await process.rebuilding.begin()
    assert await process.work()
    assert await recorded(old) == "new"
    assert (await old.store.documents.counts()).pending == 1

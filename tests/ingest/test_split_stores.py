"""Two stores and no transaction between them: whatever fails, and whoever else writes, the end is as of one store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from rag_context.domain.documents import Counts, Document
from rag_context.errors import BackendDataError, BackendError, BackendRejectedError, BackendUnavailableError
from rag_context.ports.maintenance import ModelRegistry
from rag_context.ports.reading import DocumentStore, KeywordIndex, MetricsStore, VectorStore
from rag_context.ports.writing import DocumentWriter, IndexWriter, VectorWriter
from rag_context.testing import FakeEmbedder, Fault, Faulty
from tests.ingest.split_stores import Apart, Turns, chunks_of, document, opened

OLD = document("a", "The wolf sleeps", "Nobody stirs", tags=("old",))
NEW = document("a", "Nobody stirs", "The dragon wakes", "It is hungry", tags=("new",))


@pytest.fixture
async def apart(tmp_path: Path) -> AsyncIterator[Apart]:
    async with opened(tmp_path) as made:
        yield made


def ids(version: Document) -> list[str]:
    return [chunk.id for chunk in chunks_of(version)]


async def assert_is_there_whole(apart: Apart, version: Document) -> None:
    """One version is found, by words and by vector, and nothing of another."""
    expected = sorted(ids(version))
    assert sorted({*await apart.by_text("wolf dragon nobody hungry sleeps stirs")}) == expected
    assert sorted(await apart.by_vector("wolf")) == expected
    assert await apart.home.documents.pending(10) == []
    assert not await apart.reconciler.compare()
    assert not await apart.reconciler.differ()


def test_the_parts_fit_their_ports(apart: Apart) -> None:
    writer: IndexWriter = apart.writer
    models: ModelRegistry = apart.writer
    documents: DocumentStore = apart.home.documents
    written: DocumentWriter = apart.home.writer
    texts: KeywordIndex = apart.home.texts
    metrics: MetricsStore = apart.home.metrics
    found: VectorStore = apart.vectors
    kept: VectorWriter = apart.vectors
    assert len({id(part) for part in (writer, documents, written, texts, metrics, found)}) == 6
    assert (id(models), id(kept)) == (id(writer), id(found))


async def test_a_document_is_indexed_once_its_vectors_are_stored(apart: Apart) -> None:
    assert await apart.write(OLD)
    assert apart.wire.calls == ["recorded_model", "put", "put", "mark_indexed"]
    assert await apart.home.documents.counts() == Counts(documents=1, pending=0, chunks=2, vectors=2)
    await assert_is_there_whole(apart, OLD)


async def test_without_vectors_it_is_pending_and_found_by_keyword_search(apart: Apart) -> None:
    assert not await apart.writer.write(OLD, chunks_of(OLD), None)
    assert await apart.home.documents.pending(10) == [OLD.id]
    assert await apart.by_text("wolf") == ids(OLD)[:1]
    assert await apart.by_vector("wolf") == []
    assert await apart.home.documents.counts() == Counts(documents=1, pending=1, chunks=2, vectors=0)
    await apart.sweep()
    await assert_is_there_whole(apart, OLD)


@pytest.mark.parametrize(
    "error",
    [BackendUnavailableError("v", "refused"), BackendDataError("v", "nonsense"), BackendRejectedError("v", "no")],
    ids=["refused", "nonsense", "rejected"],
)
async def test_a_vector_store_that_fails_leaves_an_acknowledged_document_that_waits(
    apart: Apart, error: BackendError, caplog: pytest.LogCaptureFixture
) -> None:
    failing: Faulty[VectorWriter] = Faulty(apart.vectors)
    failing.fault = Fault(error)
    writer = apart.over(failing.port)
    assert not await writer.write(OLD, chunks_of(OLD), await apart.embedded(chunks_of(OLD)), apart.maker)
    assert await apart.by_text("wolf") == ids(OLD)[:1]
    assert await apart.home.documents.pending(10) == [OLD.id]
    assert "its vectors follow" in caplog.text
    assert "wolf" not in caplog.text
    await apart.sweep()
    await assert_is_there_whole(apart, OLD)


async def test_a_dead_vector_store_costs_writers_no_time_once_it_is_known(apart: Apart) -> None:
    failing: Faulty[VectorWriter] = Faulty(apart.vectors)
    failing.fault = Fault(BackendUnavailableError("v", "refused"))
    writer = apart.over(failing.port)
    for number in range(5):
        each = document(str(number), "Some text")
        assert not await writer.write(each, chunks_of(each), await apart.embedded(chunks_of(each)), apart.maker)
    assert failing.calls == 6  # three failures, each tried twice
    assert len(await apart.home.documents.pending(10)) == 5


async def test_a_new_version_leaves_nothing_of_the_old_one(apart: Apart) -> None:
    await apart.write(OLD)
    await apart.write(NEW)
    await assert_is_there_whole(apart, NEW)
    assert await apart.by_vector("nobody stirs", "old") == []
    assert len(await apart.by_vector("nobody stirs", "new")) == 3
    passages = await apart.vectors.passages(ids(NEW))
    assert {passage.metadata.tags for passage in passages.values()} == {("new",)}
    assert [passages[id_].chunk.text for id_ in ids(NEW)] == [chunk.text for chunk in chunks_of(NEW)]


async def test_a_new_version_that_waits_hides_nothing_and_then_replaces_all(apart: Apart) -> None:
    await apart.write(OLD)
    await apart.writer.write(NEW, chunks_of(NEW), None)
    assert await apart.by_text("dragon") == ids(NEW)[1:2]
    assert not await apart.reconciler.differ()
    await apart.sweep()
    await assert_is_there_whole(apart, NEW)


async def test_a_deleted_document_is_gone_from_both(apart: Apart) -> None:
    await apart.write(OLD)
    assert await apart.writer.delete(OLD.id)
    assert not await apart.writer.delete(OLD.id)
    assert await apart.home.documents.stored(OLD.id) is None
    assert await apart.vectors.count() == 0
    assert await apart.by_text("wolf") == await apart.by_vector("wolf") == []
    assert not await apart.reconciler.compare()


async def test_vectors_that_do_not_fit_are_rejected(apart: Apart) -> None:
    await apart.writer.write(OLD, chunks_of(OLD), None)
    with pytest.raises(BackendRejectedError, match="1 vectors were submitted for 2 chunks"):
        await apart.writer.attach(OLD.id, OLD.content_hash, np.ones((1, 16), np.float32), apart.maker)
    assert await apart.home.documents.pending(10) == [OLD.id]


async def test_vectors_of_a_version_that_is_no_longer_there_are_not_attached(apart: Apart) -> None:
    await apart.write(NEW)
    assert not await apart.writer.attach(OLD.id, OLD.content_hash, await apart.embedded(chunks_of(OLD)), apart.maker)
    assert not await apart.writer.attach("nobody", "x", await apart.embedded(chunks_of(OLD)), apart.maker)
    await assert_is_there_whole(apart, NEW)


async def test_what_another_process_completed_is_not_done_again(apart: Apart) -> None:
    await apart.write(OLD)
    apart.wire.mend()
    assert await apart.writer.attach(OLD.id, OLD.content_hash, await apart.embedded(chunks_of(OLD)), apart.maker)
    assert apart.wire.calls == ["recorded_model"]


async def test_a_rechunked_document_has_the_vectors_of_its_new_chunks(apart: Apart) -> None:
    await apart.write(OLD)
    whole = chunks_of(document("a", OLD.content.replace(". ", ", ")))
    assert await apart.writer.rechunk(OLD, whole, await apart.embedded(whole), apart.maker)
    assert await apart.by_vector("wolf") == [whole[0].id]
    assert not await apart.reconciler.compare()
    assert not await apart.writer.rechunk(NEW, chunks_of(NEW), None)


class TestModels:
    """D-10: vectors of another model never get in, and a change of the model forgets all."""

    async def test_vectors_of_another_model_are_rejected_before_anything_changes(self, apart: Apart) -> None:
        with pytest.raises(BackendRejectedError, match="another model"):
            await apart.writer.write(OLD, chunks_of(OLD), await apart.embedded(chunks_of(OLD)), "stranger")
        assert await apart.home.documents.stored(OLD.id) is None
        await apart.writer.write(OLD, chunks_of(OLD), None)
        with pytest.raises(BackendRejectedError, match="another model"):
            await apart.writer.attach(OLD.id, OLD.content_hash, await apart.embedded(chunks_of(OLD)), "stranger")
        assert await apart.vectors.count() == 0

    async def test_a_model_that_changes_during_a_write_leaves_a_document_that_waits_and_no_vectors(
        self, apart: Apart
    ) -> None:
        turns = Turns("AAR")  # documents, vectors, then the reindexing
        writer, chunks = apart.another(turns, "A"), chunks_of(OLD)
        vectors = await apart.embedded(chunks)
        writing = asyncio.create_task(writer.write(OLD, chunks, vectors, apart.maker))
        registry = turns.of("R", apart.home.documents)
        await registry.drop_vectors()
        assert not await writing
        await apart.writer.adopt_model(FakeEmbedder("another", dimension=16).model)
        assert await apart.home.documents.pending(10) == [OLD.id]
        assert await apart.vectors.count() == 0

    async def test_a_reindexing_forgets_the_vectors_before_their_model(self, apart: Apart) -> None:
        await apart.write(OLD)
        await apart.write(document("b", "Another"))
        apart.wire.mend()
        assert await apart.writer.drop_vectors() == 2
        assert apart.wire.calls == ["clear", "drop_vectors"]
        assert await apart.vectors.count() == 0
        assert await apart.writer.recorded_model() is None
        assert len(await apart.home.documents.pending(10)) == 2

    async def test_another_models_dimension_fits_after_a_reindexing(self, apart: Apart) -> None:
        await apart.write(OLD)
        await apart.writer.drop_vectors()
        apart.fake = FakeEmbedder("large", dimension=32)
        await apart.writer.adopt_model(apart.fake.model)
        await apart.sweep()
        await assert_is_there_whole(apart, OLD)

    async def test_a_reindexing_that_stops_half_way_is_healed(self, apart: Apart) -> None:
        await apart.write(OLD)
        await apart.write(document("b", "Another"))
        apart.wire.break_at(1)
        with pytest.raises(BackendUnavailableError):
            await apart.writer.drop_vectors()
        apart.restart()
        assert await apart.writer.recorded_model() == apart.fake.model
        assert await apart.reconciler.differ()
        await apart.settle()
        assert not await apart.reconciler.compare()
        assert await apart.vectors.count() == 3


STEPS = range(6)


def before(call: int) -> Callable[[Apart], None]:
    return lambda apart: apart.wire.break_at(call)


def after(call: int) -> Callable[[Apart], None]:
    return lambda apart: apart.wire.break_after(call)


BREAKS = [(f"{when.__name__} call {call}", when(call)) for when in (before, after) for call in STEPS]


@pytest.mark.parametrize("cut", [made for _, made in BREAKS], ids=[name for name, _ in BREAKS])
class TestFaults:
    """A process ends at any call of a write, before it or before its answer: what is left says what is to be done."""

    async def test_during_a_first_write(self, apart: Apart, cut: Callable[[Apart], None]) -> None:
        cut(apart)
        acknowledged = await tried(apart.write(OLD))
        apart.restart()
        assert await apart.torn() == []
        await apart.settle()
        if acknowledged or await apart.home.documents.stored(OLD.id) is not None:
            await assert_is_there_whole(apart, OLD)
        else:
            assert await apart.vectors.count() == 0

    async def test_during_a_replacement(self, apart: Apart, cut: Callable[[Apart], None]) -> None:
        await apart.write(OLD)
        apart.wire.mend()
        cut(apart)
        acknowledged = await tried(apart.write(NEW))
        apart.restart()
        assert await apart.torn() == []
        stored = await apart.home.documents.stored(OLD.id)
        assert stored is not None
        assert stored.content_hash == NEW.content_hash or not acknowledged
        await apart.settle()
        await assert_is_there_whole(apart, NEW if stored.content_hash == NEW.content_hash else OLD)

    async def test_during_a_deletion(self, apart: Apart, cut: Callable[[Apart], None]) -> None:
        await apart.write(OLD)
        apart.wire.mend()
        cut(apart)
        acknowledged = await tried(apart.writer.delete(OLD.id))
        apart.restart()
        assert await apart.torn() == []
        await apart.settle()
        if await apart.home.documents.stored(OLD.id) is None:
            assert await apart.vectors.count() == 0
        else:
            assert not acknowledged
            await assert_is_there_whole(apart, OLD)

    async def test_during_a_completion(self, apart: Apart, cut: Callable[[Apart], None]) -> None:
        await apart.writer.write(OLD, chunks_of(OLD), None)
        apart.wire.mend()
        cut(apart)
        await tried(apart.sweep())
        apart.restart()
        assert await apart.torn() == []
        await apart.settle()
        await assert_is_there_whole(apart, OLD)


async def tried(work: Awaitable[object]) -> bool:
    """Whether it was acknowledged."""
    try:
        await work
    except BackendError:
        return False
    return True


def merges(first: str, second: str) -> list[str]:
    """Every order in which two callers' calls can come."""
    size = len(first) + len(second)
    found = []
    for places in combinations(range(size), len(first)):
        rest, mine = iter(second), iter(first)
        found.append("".join(next(mine) if place in places else next(rest) for place in range(size)))
    return found


class TestRaces:
    """Two processes at one document, their calls in every order."""

    turns: Turns

    async def race(self, **work: Awaitable[object]) -> None:
        turns = self.turns

        async def run(letter: str, each: Awaitable[object]) -> None:
            try:
                await each
            finally:
                await turns.leave(letter)

        async with asyncio.timeout(20):
            await asyncio.gather(*(run(letter, each) for letter, each in work.items()))

    @pytest.mark.parametrize("order", merges("AAA", "BBB"))
    async def test_two_writers_leave_one_complete_version(self, apart: Apart, order: str) -> None:
        self.turns = Turns(order)
        versions = {"A": OLD, "B": NEW}
        work = {}
        for letter, version in versions.items():
            chunks = chunks_of(version)
            writer = apart.another(self.turns, letter)
            work[letter] = writer.write(version, chunks, await apart.embedded(chunks), apart.maker)
        await self.race(**work)
        await apart.look_again()
        last = max(order.index("A"), order.index("B"))
        await assert_is_there_whole(apart, versions[order[last]])

    @pytest.mark.parametrize("order", merges("AAA", "DDDD"))
    async def test_a_writer_and_a_deleter_leave_all_or_nothing(self, apart: Apart, order: str) -> None:
        await apart.write(OLD)
        self.turns = Turns(order)
        chunks = chunks_of(NEW)
        writing = apart.another(self.turns, "A").write(NEW, chunks, await apart.embedded(chunks), apart.maker)
        await self.race(A=writing, D=apart.another(self.turns, "D").delete(OLD.id))
        await apart.look_again()
        if await apart.home.documents.stored(NEW.id) is None:
            assert await apart.vectors.count() == 0
            assert await apart.by_text("dragon nobody") == []
        else:
            await assert_is_there_whole(apart, NEW)

    @pytest.mark.parametrize("order", merges("SS", "AAA"))
    async def test_a_sweep_never_completes_a_version_that_was_replaced(self, apart: Apart, order: str) -> None:
        await apart.writer.write(OLD, chunks_of(OLD), None)
        self.turns = Turns(order)
        old, new = await apart.embedded(chunks_of(OLD)), await apart.embedded(chunks_of(NEW))
        sweeping = apart.another(self.turns, "S").attach(OLD.id, OLD.content_hash, old, apart.maker)
        writing = apart.another(self.turns, "A").write(NEW, chunks_of(NEW), new, apart.maker)
        await self.race(S=sweeping, A=writing)
        await apart.look_again()
        await assert_is_there_whole(apart, NEW)


def test_every_order_of_two_callers_is_tried() -> None:
    assert merges("AA", "B") == ["AAB", "ABA", "BAA"]
    assert len(set(merges("AAA", "BBB"))) == 20

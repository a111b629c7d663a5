"""Two stores and no transaction between them: whatever fails or writes meanwhile, the end is that of one store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from rag_context.domain.documents import Counts, Document, Shelf
from rag_context.domain.journal import Action, Revision
from rag_context.errors import BackendDataError, BackendError, BackendRejectedError, BackendUnavailableError
from rag_context.ports.reading import DocumentStore, KeywordIndex, MetricsStore, VectorStore
from rag_context.ports.writing import DocumentWriter, IndexWriter, ModelRegistry, VectorWriter, Version
from rag_context.testing import FakeEmbedder, Fault, Faulty
from tests.ingest.split_stores import Schedule, SplitStores, chunks_of, document, opened

OLD = document("a", "The wolf sleeps", "Nobody stirs", tags=("old",))
NEW = document("a", "Nobody stirs", "The dragon wakes", "It is hungry", tags=("new",))
OTHER = document("b", "The dragon sleeps")


@pytest.fixture
async def split(tmp_path: Path) -> AsyncIterator[SplitStores]:
    async with opened(tmp_path) as made:
        yield made


def ids(version: Document) -> list[str]:
    return [chunk.id for chunk in chunks_of(version)]


async def assert_is_there_whole(split: SplitStores, version: Document) -> None:
    """One version is found, by keyword search and by vector, and nothing of another."""
    expected = sorted(ids(version))
    assert sorted({*await split.by_text("wolf dragon nobody hungry sleeps stirs")}) == expected
    assert sorted(await split.by_vector("wolf")) == expected
    assert await split.home.documents.pending(10) == []
    assert not await split.reconciler.compare()
    assert not await split.reconciler.differ()


def test_the_parts_fit_their_ports(split: SplitStores) -> None:
    writer: IndexWriter = split.writer
    models: ModelRegistry = split.writer
    documents: DocumentStore = split.home.documents
    written: DocumentWriter = split.home.documents
    texts: KeywordIndex = split.home.texts
    metrics: MetricsStore = split.home.metrics
    found: VectorStore = split.vectors
    kept: VectorWriter = split.vectors
    assert len({id(part) for part in (writer, documents, texts, metrics, found)}) == 5
    assert (id(models), id(written), id(kept)) == (id(writer), id(documents), id(found))


async def test_a_document_is_indexed_once_its_vectors_are_stored(split: SplitStores) -> None:
    assert await split.write(OLD)
    assert split.wire.calls == ["recorded_model", "put", "put", "mark_indexed"]
    assert await split.home.documents.counts() == Counts(documents=1, pending=0, chunks=2, vectors=2)
    await assert_is_there_whole(split, OLD)


async def test_without_vectors_it_is_pending_and_found_by_keyword_search(split: SplitStores) -> None:
    assert not await split.writer.write(Version(OLD, chunks_of(OLD)))
    assert await split.home.documents.pending(10) == [OLD.id]
    assert await split.by_text("wolf") == ids(OLD)[:1]
    assert await split.by_vector("wolf") == []
    assert await split.home.documents.counts() == Counts(documents=1, pending=1, chunks=2, vectors=0)
    await split.sweep()
    await assert_is_there_whole(split, OLD)


@pytest.mark.parametrize(
    "error",
    [BackendUnavailableError("v", "refused"), BackendDataError("v", "nonsense"), BackendRejectedError("v", "no")],
    ids=["refused", "nonsense", "rejected"],
)
async def test_a_vector_store_that_fails_leaves_an_acknowledged_document_that_waits(
    split: SplitStores, error: BackendError, caplog: pytest.LogCaptureFixture
) -> None:
    failing: Faulty[VectorWriter] = Faulty(split.vectors)
    failing.fault = Fault(error)
    writer = split.over(failing.port)
    assert not await writer.write(Version(OLD, chunks_of(OLD), await split.embedded(chunks_of(OLD)), split.maker))
    assert await split.by_text("wolf") == ids(OLD)[:1]
    assert await split.home.documents.pending(10) == [OLD.id]
    assert "its vectors follow" in caplog.text
    assert "wolf" not in caplog.text
    await split.sweep()
    await assert_is_there_whole(split, OLD)


async def test_a_dead_vector_store_costs_writers_no_time_once_it_is_known(split: SplitStores) -> None:
    failing: Faulty[VectorWriter] = Faulty(split.vectors)
    failing.fault = Fault(BackendUnavailableError("v", "refused"))
    writer = split.over(failing.port)
    for number in range(5):
        each = document(str(number), "Some text")
        assert not await writer.write(
            Version(each, chunks_of(each), await split.embedded(chunks_of(each)), split.maker)
        )
    assert failing.calls == 6  # three failures, each tried twice
    assert len(await split.home.documents.pending(10)) == 5


async def test_a_new_version_leaves_nothing_of_the_old_one(split: SplitStores) -> None:
    await split.write(OLD)
    await split.write(NEW)
    await assert_is_there_whole(split, NEW)
    assert await split.by_vector("nobody stirs", "old") == []
    assert len(await split.by_vector("nobody stirs", "new")) == 3
    passages = await split.vectors.passages(ids(NEW))
    assert {passage.metadata.tags for passage in passages.values()} == {("new",)}
    assert [passages[id_].chunk.text for id_ in ids(NEW)] == [chunk.text for chunk in chunks_of(NEW)]


async def test_a_new_version_that_waits_hides_nothing_and_then_replaces_all(split: SplitStores) -> None:
    await split.write(OLD)
    await split.writer.write(Version(NEW, chunks_of(NEW)))
    assert await split.by_text("dragon") == ids(NEW)[1:2]
    assert not await split.reconciler.differ()
    await split.sweep()
    await assert_is_there_whole(split, NEW)


async def test_a_deleted_document_is_gone_from_both(split: SplitStores) -> None:
    await split.write(OLD)
    assert await split.writer.delete(OLD.id)
    assert not await split.writer.delete(OLD.id)
    assert await split.home.documents.stored(OLD.id) is None
    assert await split.vectors.count() == 0
    assert await split.by_text("wolf") == await split.by_vector("wolf") == []
    assert not await split.reconciler.compare()


async def test_vectors_that_do_not_fit_are_rejected(split: SplitStores) -> None:
    await split.writer.write(Version(OLD, chunks_of(OLD)))
    with pytest.raises(BackendRejectedError, match="1 vectors were submitted for 2 chunks"):
        await split.writer.attach(OLD.id, OLD.content_hash, np.ones((1, 16), np.float32), split.maker)
    assert await split.home.documents.pending(10) == [OLD.id]


async def test_vectors_of_a_version_that_is_no_longer_there_are_not_attached(split: SplitStores) -> None:
    await split.write(NEW)
    assert not await split.writer.attach(OLD.id, OLD.content_hash, await split.embedded(chunks_of(OLD)), split.maker)
    assert not await split.writer.attach("nobody", "x", await split.embedded(chunks_of(OLD)), split.maker)
    await assert_is_there_whole(split, NEW)


async def test_what_another_process_completed_is_not_done_again(split: SplitStores) -> None:
    await split.write(OLD)
    split.wire.mend()
    assert await split.writer.attach(OLD.id, OLD.content_hash, await split.embedded(chunks_of(OLD)), split.maker)
    assert split.wire.calls == ["recorded_model"]


async def test_a_rechunked_document_has_the_vectors_of_its_new_chunks(split: SplitStores) -> None:
    await split.write(OLD)
    whole = chunks_of(document("a", OLD.content.replace(". ", ", ")))
    assert await split.writer.rechunk(Version(OLD, whole, await split.embedded(whole), split.maker))
    assert await split.by_vector("wolf") == [whole[0].id]
    assert not await split.reconciler.compare()
    assert not await split.writer.rechunk(Version(NEW, chunks_of(NEW)))


class TestModels:
    """D-10: vectors of another model never get in, and a change of the model forgets all."""

    async def test_vectors_of_another_model_are_rejected_before_anything_changes(self, split: SplitStores) -> None:
        with pytest.raises(BackendRejectedError, match="another model"):
            await split.writer.write(Version(OLD, chunks_of(OLD), await split.embedded(chunks_of(OLD)), "stranger"))
        assert await split.home.documents.stored(OLD.id) is None
        await split.writer.write(Version(OLD, chunks_of(OLD)))
        with pytest.raises(BackendRejectedError, match="another model"):
            await split.writer.attach(OLD.id, OLD.content_hash, await split.embedded(chunks_of(OLD)), "stranger")
        assert await split.vectors.count() == 0

    async def test_a_model_that_changes_during_a_write_leaves_a_document_that_waits_and_no_vectors(
        self, split: SplitStores
    ) -> None:
        schedule = Schedule("AAR")  # documents, vectors, then the reindexing
        writer, chunks = split.another(schedule, "A"), chunks_of(OLD)
        vectors = await split.embedded(chunks)
        writing = asyncio.create_task(writer.write(Version(OLD, chunks, vectors, split.maker)))
        registry = schedule.of("R", split.home.documents)
        await registry.drop_vectors()
        assert not await writing
        await split.writer.adopt_model(FakeEmbedder("another", dimension=16).model)
        assert await split.home.documents.pending(10) == [OLD.id]
        assert await split.vectors.count() == 0

    async def test_a_reindexing_forgets_the_vectors_before_their_model(self, split: SplitStores) -> None:
        await split.write(OLD)
        await split.write(document("b", "Another"))
        split.wire.mend()
        assert await split.writer.drop_vectors() == 2
        assert split.wire.calls == ["clear", "drop_vectors"]
        assert await split.vectors.count() == 0
        assert await split.writer.recorded_model() is None
        assert len(await split.home.documents.pending(10)) == 2

    async def test_another_models_dimension_fits_after_a_reindexing(self, split: SplitStores) -> None:
        await split.write(OLD)
        await split.writer.drop_vectors()
        split.fake = FakeEmbedder("large", dimension=32)
        await split.writer.adopt_model(split.fake.model)
        await split.sweep()
        await assert_is_there_whole(split, OLD)

    async def test_a_reindexing_that_stops_half_way_is_healed(self, split: SplitStores) -> None:
        await split.write(OLD)
        await split.write(document("b", "Another"))
        split.wire.break_at(1)
        with pytest.raises(BackendUnavailableError):
            await split.writer.drop_vectors()
        split.restart()
        assert await split.writer.recorded_model() == split.fake.model
        assert await split.reconciler.differ()
        await split.recover()
        assert not await split.reconciler.compare()
        assert await split.vectors.count() == 3


STEPS = range(9)


def before(call: int) -> Callable[[SplitStores], None]:
    return lambda split: split.wire.break_at(call)


def after(call: int) -> Callable[[SplitStores], None]:
    return lambda split: split.wire.break_after(call)


BREAKS = [(f"{when.__name__} call {call}", when(call)) for when in (before, after) for call in STEPS]


@pytest.mark.parametrize("cut", [made for _, made in BREAKS], ids=[name for name, _ in BREAKS])
class TestFaults:
    """A process ends at any call of a write, before it or before its answer: what is left says what is to be done."""

    async def test_during_a_first_write(self, split: SplitStores, cut: Callable[[SplitStores], None]) -> None:
        cut(split)
        acknowledged = await tried(split.write(OLD))
        split.restart()
        assert await split.torn() == []
        await split.recover()
        if acknowledged or await split.home.documents.stored(OLD.id) is not None:
            await assert_is_there_whole(split, OLD)
        else:
            assert await split.vectors.count() == 0

    async def test_during_a_replacement(self, split: SplitStores, cut: Callable[[SplitStores], None]) -> None:
        await split.write(OLD)
        split.wire.mend()
        cut(split)
        acknowledged = await tried(split.write(NEW))
        split.restart()
        assert await split.torn() == []
        stored = await split.home.documents.stored(OLD.id)
        assert stored is not None
        assert stored.content_hash == NEW.content_hash or not acknowledged
        await split.recover()
        await assert_is_there_whole(split, NEW if stored.content_hash == NEW.content_hash else OLD)

    async def test_during_a_deletion(self, split: SplitStores, cut: Callable[[SplitStores], None]) -> None:
        await split.write(OLD)
        split.wire.mend()
        cut(split)
        acknowledged = await tried(split.writer.delete(OLD.id))
        split.restart()
        assert await split.torn() == []
        await split.recover()
        if await split.home.documents.stored(OLD.id) is None:
            assert await split.vectors.count() == 0
        else:
            assert not acknowledged
            await assert_is_there_whole(split, OLD)

    async def test_during_forgetting(self, split: SplitStores, cut: Callable[[SplitStores], None]) -> None:
        await split.write(OLD)
        split.wire.mend()
        cut(split)
        acknowledged = await tried(split.forget(OLD))
        split.restart()
        is_forgotten = await split.home.documents.stored(OLD.id) is None
        assert is_forgotten or not acknowledged
        assert not is_forgotten or await split.by_vector("wolf") == [], "also before anything is repaired"
        await split.recover()
        assert len(await split.by_vector("wolf", shelf=Shelf.TRASH)) == (2 if is_forgotten else 0)
        if not is_forgotten:
            await assert_is_there_whole(split, OLD)
        assert not await split.reconciler.compare()

    async def test_during_a_correction(self, split: SplitStores, cut: Callable[[SplitStores], None]) -> None:
        await split.write(OLD)
        split.wire.mend()
        cut(split)
        acknowledged = await tried(split.writer.write(await correction(split)))
        split.restart()
        is_corrected = await split.home.documents.stored(OTHER.id) is not None
        assert is_corrected or not acknowledged
        assert not is_corrected or await split.by_vector("wolf sleeps") in ([], ids(OTHER)), "before it is repaired too"
        await split.recover()
        await assert_is_there_whole(split, OTHER if is_corrected else OLD)
        assert sorted(await split.by_vector("wolf", shelf=Shelf.SUPERSEDED)) == (
            sorted(ids(OLD)) if is_corrected else []
        )

    async def test_during_a_completion(self, split: SplitStores, cut: Callable[[SplitStores], None]) -> None:
        await split.writer.write(Version(OLD, chunks_of(OLD)))
        split.wire.mend()
        cut(split)
        await tried(split.sweep())
        split.restart()
        assert await split.torn() == []
        await split.recover()
        await assert_is_there_whole(split, OLD)


async def correction(split: SplitStores) -> Version:
    """Another document, which supersedes the old one."""
    chunks = chunks_of(OTHER)
    return Version(OTHER, chunks, await split.embedded(chunks), split.maker, Revision(Action.CORRECT, (OLD.id,)))


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

    schedule: Schedule

    async def race(self, **work: Awaitable[object]) -> None:
        schedule = self.schedule

        async def run(letter: str, each: Awaitable[object]) -> None:
            try:
                await each
            finally:
                await schedule.leave(letter)

        async with asyncio.timeout(20):
            await asyncio.gather(*(run(letter, each) for letter, each in work.items()))

    @pytest.mark.parametrize("order", merges("AAA", "BBB"))
    async def test_two_writers_leave_one_complete_version(self, split: SplitStores, order: str) -> None:
        self.schedule = Schedule(order)
        versions = {"A": OLD, "B": NEW}
        work = {}
        for letter, version in versions.items():
            chunks = chunks_of(version)
            writer = split.another(self.schedule, letter)
            work[letter] = writer.write(Version(version, chunks, await split.embedded(chunks), split.maker))
        await self.race(**work)
        await split.look_again()
        last = max(order.index("A"), order.index("B"))
        await assert_is_there_whole(split, versions[order[last]])

    @pytest.mark.parametrize("order", merges("AAA", "DDDD"))
    async def test_a_writer_and_a_deleter_leave_all_or_nothing(self, split: SplitStores, order: str) -> None:
        await split.write(OLD)
        self.schedule = Schedule(order)
        chunks = chunks_of(NEW)
        writing = split.another(self.schedule, "A").write(
            Version(NEW, chunks, await split.embedded(chunks), split.maker)
        )
        await self.race(A=writing, D=split.another(self.schedule, "D").delete(OLD.id))
        await split.look_again()
        if await split.home.documents.stored(NEW.id) is None:
            assert await split.vectors.count() == 0
            assert await split.by_text("dragon nobody") == []
        else:
            await assert_is_there_whole(split, NEW)

    @pytest.mark.parametrize("order", merges("SS", "AAA"))
    async def test_a_sweep_never_completes_a_version_that_was_replaced(self, split: SplitStores, order: str) -> None:
        await split.writer.write(Version(OLD, chunks_of(OLD)))
        self.schedule = Schedule(order)
        old, new = await split.embedded(chunks_of(OLD)), await split.embedded(chunks_of(NEW))
        sweeping = split.another(self.schedule, "S").attach(OLD.id, OLD.content_hash, old, split.maker)
        writing = split.another(self.schedule, "A").write(Version(NEW, chunks_of(NEW), new, split.maker))
        await self.race(S=sweeping, A=writing)
        await split.look_again()
        await assert_is_there_whole(split, NEW)

    @pytest.mark.parametrize("order", merges("SS", "CCCCCCCCC"))
    async def test_a_sweep_never_shows_what_was_corrected_meanwhile(self, split: SplitStores, order: str) -> None:
        await split.writer.write(Version(OLD, chunks_of(OLD)))
        self.schedule = Schedule(order)
        old = await split.embedded(chunks_of(OLD))
        sweeping = split.another(self.schedule, "S").attach(OLD.id, OLD.content_hash, old, split.maker)
        await self.race(S=sweeping, C=split.another(self.schedule, "C").write(await correction(split)))
        await split.look_again()
        await assert_is_there_whole(split, OTHER)
        assert sorted(await split.by_vector("wolf", shelf=Shelf.SUPERSEDED)) == sorted(ids(OLD))


def test_every_order_of_two_callers_is_tried() -> None:
    assert merges("AA", "B") == ["AAB", "ABA", "BAA"]
    assert len(set(merges("AAA", "BBB"))) == 20

"""Background work: probing, binding, sweeping, reindexing, telemetry."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from rag_context.domain.documents import Document
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendDataError, BackendRejectedError, BackendStartingError, BackendUnavailableError
from rag_context.service.maintenance import PROBE_EVERY_S, SWEEP_EVERY_S
from rag_context.testing import FakeEmbedder, Fault, MemoryStore
from tests.service.harness import House

DEAD = Fault(BackendDataError("embedder", "garbage"))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_dead_dependency_is_probed_in_the_background_and_comes_back(house: House) -> None:
    await house.index("MongoDB retry logic.")
    house.embedder.fault = DEAD
    for query in ("one", "two", "three"):
        await house.search(query)
    assert not house.sources.embedding.breaker.closed
    house.embedder.fault = None
    async with house.kept_up():
        await until(lambda: house.sources.embedding.breaker.closed)
    assert (await house.search("mongodb retry")).fallback_level == 1


async def test_what_is_back_is_swept_for_whoever_found_it_first(house: House) -> None:
    house.sources.embedding.breaker._clock = house.clock  # so that it can be known who looks first
    house.embedder.fault = DEAD
    for query in ("one", "two", "three"):
        await house.search(query)
    assert (await house.index("MongoDB retry logic.")).status == "pending"
    async with house.kept_up():
        await asyncio.sleep(2.0 * PROBE_EVERY_S)  # it has seen that the embedder is away
        house.embedder.fault = None
        house.clock.advance(1.0)
        assert (await house.service.health()).lm_studio_status == "healthy"
        async with asyncio.timeout(SWEEP_EVERY_S / 2.0):
            while (await house.service.health()).pending_documents:
                await asyncio.sleep(0.01)


async def test_an_index_without_a_model_takes_the_first(house: House) -> None:
    recorded = await house.store.recorded_model()
    assert recorded == house.fake.model


async def test_a_model_that_did_not_make_the_index_is_rejected_and_text_answers(house: House) -> None:
    await house.index("MongoDB retry logic.")
    house.fake.model = FakeEmbedder("another").model
    answer = await house.search("mongodb retry")
    assert answer.fallback_level == 2
    assert "reindex" in (answer.legs["embedding"].detail or "")
    receipt = await house.index("Something new.", source="new")
    assert receipt.status == "pending"
    assert house.sources.embedding.breaker.closed


async def test_reindexing_recreates_all_vectors_and_reports_its_progress(house: House) -> None:
    for i in range(5):
        await house.index(f"MongoDB retry logic number {i}.", source=str(i))
    house.fake.model = FakeEmbedder("another").model
    progress: list[tuple[int, int]] = []
    assert await house.service.reindex(lambda done, total: progress.append((done, total))) == 5
    assert progress == [(i, 5) for i in range(6)]
    answer = await house.search("mongodb retry")
    assert answer.fallback_level == 1
    assert (await house.service.health()).healthy


async def test_a_reindexing_that_was_cut_short_is_finished_by_the_next(house: House) -> None:
    for i in range(5):
        await house.index(f"MongoDB retry logic number {i}.", source=str(i))

    def stop_after_two(done: int, _total: int) -> None:
        if done == 2:
            house.embedder.fault = Fault(BackendUnavailableError("embedder", "gone"))

    with pytest.raises(BackendUnavailableError):
        await house.service.reindex(stop_after_two)
    assert (await house.store.counts()).pending > 0
    house.embedder.fault = None
    async with house.kept_up():
        async with asyncio.timeout(10):
            while (await house.store.counts()).pending:
                await asyncio.sleep(0.01)
    assert (await house.search("mongodb retry")).fallback_level == 1


async def test_another_process_that_reindexed_is_noticed(house: House) -> None:
    await house.index("MongoDB retry logic.")
    async with house.kept_up():
        await house.service.wait_ready(5)
        await house.store.drop_vectors()
        await house.store.adopt_model(FakeEmbedder("another").model)
        async with asyncio.timeout(10):
            while (await house.search(f"mongodb retry {house.clock.seconds}")).legs["embedding"].status == "ok":
                house.clock.advance(1.0)
                await asyncio.sleep(0.05)
    with pytest.raises(BackendRejectedError, match="reindex"):
        _ = house.bound.model


async def test_a_document_embedded_while_another_process_reindexed_is_pending(house: House) -> None:
    original = house.fake.embed_documents

    class Slow(FakeEmbedder):
        async def embed_documents(self, texts: Sequence[str]) -> Matrix:
            vectors = await original(texts)
            await house.store.drop_vectors()
            await house.store.adopt_model(FakeEmbedder("another").model)
            return vectors

    house.fake.__class__ = Slow
    receipt = await house.index("MongoDB retry logic.")
    assert receipt.status == "pending"
    assert (await house.store.counts()).vectors == 0
    assert (await house.search("mongodb retry", mode="text")).results


async def test_before_it_is_compared_with_the_index_the_model_is_starting() -> None:
    house = House()
    with pytest.raises(BackendStartingError):
        _ = house.bound.model
    with pytest.raises(BackendStartingError):
        await house.bound.embed_documents(["x"])


async def test_a_document_deleted_while_pending_is_no_trouble(house: House) -> None:
    house.embedder.fault = Fault(BackendStartingError("embedder", "loading"))
    receipt = await house.index("Some text.")
    house.embedder.fault = None
    await house.store.delete(receipt.document_id)
    assert not await house.indexer.complete(receipt.document_id)


async def test_a_sweep_ends_where_a_document_cannot_be_completed() -> None:
    """F-7: one whose content is lost stays pending, and keeps nobody waiting."""

    class Lossy(MemoryStore):
        lost = ""

        async def get(self, document_id: str) -> Document | None:
            return None if document_id == self.lost else await super().get(document_id)

    store = Lossy()
    house = House(store=store)
    store.lost = (await house.index("The content of this one is lost.", source="lost")).document_id
    await house.index("This one is whole.", source="whole")
    await house.bound.bind()
    done: list[int] = []
    async with asyncio.timeout(10):
        assert await house.upkeep.sweep(done.append) == 1
    assert done == [1]
    assert await store.pending(10) == [store.lost]


async def test_telemetry_drops_and_counts_what_cannot_be_kept(house: House) -> None:
    for i in range(105):
        await house.search(f"question {i}")
    assert house.telemetry.waiting == 100
    assert house.telemetry.dropped == 5
    house.metrics.fault = Fault(BackendUnavailableError("documents", "locked"))
    await house.telemetry.flush()
    assert house.telemetry.dropped == 105
    assert house.telemetry.waiting == 0
    house.metrics.fault = None
    await house.search("one more")
    await house.telemetry.flush()
    assert len(house.store.searches) == 1


async def test_records_are_not_lost_with_the_count_of_what_was_retrieved(house: House) -> None:
    await house.index("MongoDB retry logic.")
    await house.search("mongodb retry")
    house.documents.fault = Fault(BackendUnavailableError("documents", "locked"))
    await house.telemetry.flush()
    assert len(house.store.searches) == 1
    assert house.telemetry.dropped == 0


async def test_a_store_that_hangs_delays_no_caller_for_the_sake_of_records(house: House) -> None:
    """O-1, M-6: it is also the last thing that is done before the process ends."""
    await house.search("a question")
    house.metrics.fault = Fault(hang=True)
    async with asyncio.timeout(10):
        await house.telemetry.flush(0.01)
    assert house.telemetry.dropped == 1


async def test_records_wait_while_others_are_written(house: House) -> None:
    await house.search("one")
    house.metrics.fault = Fault(hang=True)
    writing = asyncio.create_task(house.telemetry.flush(60.0))
    await until(lambda: house.metrics.calls == 1)
    await house.search("two")
    await house.telemetry.flush(0.01)
    assert (house.telemetry.waiting, house.telemetry.dropped) == (1, 0)
    writing.cancel()
    await asyncio.wait({writing})
    house.metrics.fault = None
    await house.telemetry.flush()
    assert [record.query for record in house.store.searches] == ["two"]


async def test_records_are_written_within_a_second_without_a_request(house: House) -> None:
    task = asyncio.create_task(house.telemetry.run())
    await house.search("a question")
    await until(lambda: len(house.store.searches) == 1)
    task.cancel()
    await asyncio.wait({task})

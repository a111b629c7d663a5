"""Background work: probing, binding, sweeping, reindexing, telemetry."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from rag_context.api.index import BulkLine
from rag_context.domain.documents import Document
from rag_context.domain.reports import ERROR, ErrorRecord
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendDataError, BackendRejectedError, BackendStartingError, BackendUnavailableError
from rag_context.memory.background_maintenance import MAX_SWEEP_DELAY_S, PROBE_EVERY_S, SWEEP_CHECK_S, SWEEP_EVERY_S
from rag_context.testing import FakeEmbedder, Fault
from tests.memory.harness import ServiceHarness
from tests.memory_stores import MemoryStore

DEAD = Fault(BackendDataError("embedder", "garbage"))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_dead_dependency_is_probed_in_the_background_and_comes_back(harness: ServiceHarness) -> None:
    await harness.index("MongoDB retry logic.")
    harness.embedder.fault = DEAD
    for query in ("one", "two", "three"):
        await harness.search(query)
    assert not harness.sources.embedding.breaker.closed
    harness.embedder.fault = None
    async with harness.maintained():
        await until(lambda: harness.sources.embedding.breaker.closed)
    assert (await harness.search("mongodb retry")).fallback_level == 1


async def test_a_dependency_that_is_back_is_swept_for_whatever_noticed_it_first(harness: ServiceHarness) -> None:
    harness.sources.embedding.breaker.clock = harness.clock  # so that it can be known who looks first
    harness.embedder.fault = DEAD
    for query in ("one", "two", "three"):
        await harness.search(query)
    assert (await harness.index("MongoDB retry logic.")).status == "pending"
    async with harness.maintained():
        await asyncio.sleep(2.0 * PROBE_EVERY_S)  # it has seen that the embedder is away
        harness.embedder.fault = None
        harness.clock.advance(1.0)
        assert (await harness.service.health()).lm_studio_status == "healthy"
        async with asyncio.timeout(SWEEP_EVERY_S / 2.0):
            while (await harness.service.health()).pending_documents:
                await asyncio.sleep(0.01)


async def test_an_index_without_a_model_takes_the_first(harness: ServiceHarness) -> None:
    recorded = await harness.store.recorded_model()
    assert recorded == harness.fake.model


async def test_a_model_that_did_not_make_the_index_is_rejected_and_text_answers(harness: ServiceHarness) -> None:
    await harness.index("MongoDB retry logic.")
    harness.fake.model = FakeEmbedder("another").model
    answer = await harness.search("mongodb retry")
    assert answer.fallback_level == 2
    assert "reindex" in (answer.legs["embedding"].detail or "")
    receipt = await harness.index("Something new.", source="new")
    assert receipt.status == "pending"
    assert harness.sources.embedding.breaker.closed


async def test_reindexing_recreates_all_vectors_and_reports_its_progress(harness: ServiceHarness) -> None:
    for i in range(5):
        await harness.index(f"MongoDB retry logic number {i}.", source=str(i))
    harness.fake.model = FakeEmbedder("another").model
    progress: list[tuple[int, int]] = []
    assert await harness.service.reindexing.run(lambda done, total: progress.append((done, total))) == 5
    assert progress == [(i, 5) for i in range(6)]
    answer = await harness.search("mongodb retry")
    assert answer.fallback_level == 1
    assert (await harness.service.health()).healthy


async def test_a_reindexing_that_was_cut_short_is_finished_by_the_next(harness: ServiceHarness) -> None:
    for i in range(5):
        await harness.index(f"MongoDB retry logic number {i}.", source=str(i))

    def stop_after_two(done: int, _total: int) -> None:
        if done == 2:
            harness.embedder.fault = Fault(BackendUnavailableError("embedder", "gone"))

    with pytest.raises(BackendUnavailableError):
        await harness.service.reindexing.run(stop_after_two)
    assert (await harness.store.counts()).pending > 0
    harness.embedder.fault = None
    async with harness.maintained():
        async with asyncio.timeout(10):
            while (await harness.store.counts()).pending:
                await asyncio.sleep(0.01)
    assert (await harness.search("mongodb retry")).fallback_level == 1


async def test_another_process_that_reindexed_is_noticed(harness: ServiceHarness) -> None:
    await harness.index("MongoDB retry logic.")
    async with harness.maintained():
        await harness.service.wait_ready(5)
        await harness.store.drop_vectors()
        await harness.store.adopt_model(FakeEmbedder("another").model)
        async with asyncio.timeout(10):
            while (await harness.search(f"mongodb retry {harness.clock.seconds}")).legs["embedding"].status == "ok":
                harness.clock.advance(1.0)
                await asyncio.sleep(0.05)
    with pytest.raises(BackendRejectedError, match="reindex"):
        _ = harness.bound.model


async def test_a_document_embedded_while_another_process_reindexed_is_pending(harness: ServiceHarness) -> None:
    original = harness.fake.embed_documents

    class Slow(FakeEmbedder):
        async def embed_documents(self, texts: Sequence[str]) -> Matrix:
            vectors = await original(texts)
            await harness.store.drop_vectors()
            await harness.store.adopt_model(FakeEmbedder("another").model)
            return vectors

    harness.fake.__class__ = Slow
    receipt = await harness.index("MongoDB retry logic.")
    assert receipt.status == "pending"
    assert (await harness.store.counts()).vectors == 0
    assert (await harness.search("mongodb retry", mode="text")).results


async def test_before_it_is_compared_with_the_index_the_model_is_starting() -> None:
    harness = ServiceHarness()
    with pytest.raises(BackendStartingError):
        _ = harness.bound.model
    with pytest.raises(BackendStartingError):
        await harness.bound.embed_documents(["x"])


async def test_a_document_deleted_while_pending_is_no_trouble(harness: ServiceHarness) -> None:
    harness.embedder.fault = Fault(BackendStartingError("embedder", "loading"))
    receipt = await harness.index("Some text.")
    harness.embedder.fault = None
    await harness.store.delete(receipt.document_id)
    assert not await harness.indexer.complete(receipt.document_id)


async def test_a_sweep_ends_where_a_document_cannot_be_completed() -> None:
    """F-7: one whose content is lost stays pending, and keeps no caller waiting."""

    class Lossy(MemoryStore):
        lost = ""

        async def get(self, document_id: str) -> Document | None:
            return None if document_id == self.lost else await super().get(document_id)

    store = Lossy()
    harness = ServiceHarness(store=store)
    store.lost = (await harness.index("The content of this one is lost.", source="lost")).document_id
    await harness.index("This one is whole.", source="whole")
    await harness.bound.bind()
    done: list[int] = []
    async with asyncio.timeout(10):
        assert await harness.maintenance.sweep(done.append) == 1
    assert done == [1]
    assert await store.pending(10) == [store.lost]


async def test_vectors_that_were_deferred_wait_until_no_more_documents_arrive(harness: ServiceHarness) -> None:
    line = BulkLine(
        content="voles sleep", content_type="chat", session_id="s", source="talk", from_file=True, defer_vectors=True
    )
    receipt = await harness.bulk(line)
    assert (receipt.status, (await harness.store.counts()).vectors) == ("deferred", 0)
    again = await harness.bulk(line.model_copy(update={"content": "voles wake"}))
    assert (again.status, (await harness.store.counts()).vectors) == ("replaced", 1)  # a new version is not deferred

    await harness.bulk(line.model_copy(update={"source": "other"}))
    done: list[int] = []
    sweep = asyncio.create_task(harness.maintenance.sweep(done.append))
    for _ in range(int(MAX_SWEEP_DELAY_S)):  # more of them, without a pause
        harness.clock.advance(0.9)
        harness.maintenance.delay_sweep()
    await asyncio.sleep(2 * SWEEP_CHECK_S)
    assert done == []
    for _ in range(int(MAX_SWEEP_DELAY_S)):
        harness.clock.advance(0.9)
        harness.maintenance.delay_sweep()
    await sweep  # a stream without end holds it for some time only
    assert done == [1]


async def test_the_total_does_not_grow_with_documents_that_come_meanwhile(harness: ServiceHarness) -> None:
    line = BulkLine(
        content="voles sleep", content_type="chat", session_id="s", source="first", from_file=True, defer_vectors=True
    )
    await harness.bulk(line)
    progress: list[tuple[int, int]] = []
    restore = asyncio.create_task(
        harness.service.reindexing.restore([], lambda done, total: progress.append((done, total)))
    )
    await asyncio.sleep(2 * SWEEP_CHECK_S)  # the sweep has counted, and is held
    await harness.bulk(line.model_copy(update={"source": "second"}))
    harness.clock.advance(2 * MAX_SWEEP_DELAY_S)
    assert await restore == 2
    assert progress == [(1, 1), (1, 1)]


async def test_records_wait_for_their_store_and_the_oldest_beyond_the_bound_are_dropped(
    harness: ServiceHarness,
) -> None:
    harness.metrics.fault = Fault(BackendUnavailableError("documents", "locked"))
    for i in range(103):
        await harness.search(f"question {i}")
        if i % 40 == 0:
            await harness.telemetry.flush()
    assert (harness.telemetry.waiting, harness.telemetry.dropped) == (100, 3)
    harness.metrics.fault = None
    await harness.search("one more")
    await harness.telemetry.flush()
    expected = [*(f"question {i}" for i in range(4, 103)), "one more"]
    assert [record.query for record in harness.store.searches] == expected
    assert (harness.telemetry.waiting, harness.telemetry.dropped) == (0, 4)


async def test_records_that_the_store_rejects_do_not_hold_up_the_others(harness: ServiceHarness) -> None:
    await harness.search("one")
    harness.metrics.fault = Fault(BackendRejectedError("documents", "not like this"))
    await harness.telemetry.flush()
    assert (harness.telemetry.waiting, harness.telemetry.dropped) == (0, 1)


async def test_records_are_not_lost_with_the_count_of_what_was_retrieved(harness: ServiceHarness) -> None:
    await harness.index("MongoDB retry logic.")
    await harness.search("mongodb retry")
    harness.documents.fault = Fault(BackendUnavailableError("documents", "locked"))
    await harness.telemetry.flush()
    assert len(harness.store.searches) == 1
    assert harness.telemetry.dropped == 0


async def test_a_store_that_hangs_delays_no_caller_for_the_sake_of_records(harness: ServiceHarness) -> None:
    """O-1, M-6: it is also the last thing that is done before the process ends."""
    await harness.search("a question")
    harness.metrics.fault = Fault(hang=True)
    async with asyncio.timeout(10):
        await harness.telemetry.flush(0.01)
    assert harness.telemetry.dropped == 0


async def test_records_wait_while_others_are_written(harness: ServiceHarness) -> None:
    await harness.search("one")
    harness.metrics.fault = Fault(hang=True)
    writing = asyncio.create_task(harness.telemetry.flush(60.0))
    await until(lambda: harness.metrics.calls == 1)
    await harness.search("two")
    await harness.telemetry.flush(0.01)
    assert (harness.telemetry.waiting, harness.telemetry.dropped) == (1, 0)
    writing.cancel()  # a caller that gives up does not end the write
    await asyncio.wait({writing})
    assert harness.metrics.calls == 1
    await harness.telemetry.close()
    harness.metrics.fault = None
    await harness.telemetry.flush()
    assert [record.query for record in harness.store.searches] == ["one", "two"]


async def test_who_flushes_while_retrievals_are_counted_has_its_records_written(harness: ServiceHarness) -> None:
    await harness.index("MongoDB retry logic.")
    await harness.search("mongodb retry")
    harness.documents.fault = Fault(delay_s=0.2)
    counted = harness.documents.calls + 1
    writing = asyncio.create_task(harness.telemetry.flush())
    await until(lambda: harness.documents.calls == counted)
    harness.telemetry.record_error(ErrorRecord(harness.now, ERROR, "embedder", "search", "late"))
    await asyncio.gather(harness.telemetry.flush(), harness.telemetry.flush())
    assert [error.message for error in harness.store.errors] == ["late"]
    assert writing.done()


async def test_a_search_whose_embedding_failed_is_recorded_as_an_error(harness: ServiceHarness) -> None:
    await harness.index("MongoDB retry logic.")
    harness.embedder.fault = Fault(BackendUnavailableError("embedder", "refused"))
    assert (await harness.search("mongodb retry")).fallback_level == 2
    await harness.telemetry.flush()
    (error,) = harness.store.errors
    assert (error.component, error.operation, error.message) == ("embedder", "search", "refused")
    metrics = (await harness.service.prometheus()).decode()
    assert 'rag_errors_total{component="embedder",operation="search"} 1.0' in metrics


async def test_records_are_written_within_a_second_without_a_request(harness: ServiceHarness) -> None:
    task = asyncio.create_task(harness.telemetry.run())
    await harness.search("a question")
    await until(lambda: len(harness.store.searches) == 1)
    task.cancel()
    await asyncio.wait({task})

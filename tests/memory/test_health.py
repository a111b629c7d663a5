"""Health: deep, honest, and remembered no longer than it is true."""

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from rag_context.api.maintenance import StatsRequest, TimeRange
from rag_context.domain.documents import Status
from rag_context.domain.vectors import EmbeddingModel
from rag_context.errors import (
    BackendDataError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
)
from rag_context.ingest.split_stores import Reconciler
from rag_context.memory.health import STALLED_S
from rag_context.ports.writing import DocumentWriter, VectorWriter
from rag_context.resilience.component_checks import WRITE_TTL_S
from rag_context.testing import FakeEmbedder, Fault
from tests.memory.harness import ServiceHarness


async def test_a_service_with_working_components_is_healthy(harness: ServiceHarness) -> None:
    await harness.index("Some text.")
    health = await harness.service.health()
    assert health.healthy
    assert (health.qdrant_status, health.lm_studio_status, health.mongo_status) == (Status.HEALTHY,) * 3
    assert health.indexed_documents == 1
    assert health.pending_documents == 0
    assert health.embedding_model is not None
    assert (health.embedding_model.name, health.embedding_model.dimension) == ("fake", 64)
    assert {component.name for component in health.components} == {"vectors", "embedder", "documents"}
    assert not health.circuit_breaker_open


async def test_a_dead_embedder_is_unavailable(harness: ServiceHarness) -> None:
    harness.embedder.fault = Fault(BackendUnavailableError("embedder", "connection refused"))
    health = await harness.service.health()
    assert not health.healthy
    assert health.lm_studio_status is Status.UNAVAILABLE
    assert health.mongo_status is Status.HEALTHY
    embedder = next(component for component in health.components if component.name == "embedder")
    assert "connection refused" in (embedder.detail or "")


async def test_a_loading_model_is_degraded(harness: ServiceHarness) -> None:
    harness.embedder.fault = Fault(BackendStartingError("embedder", "still loading"))
    assert (await harness.service.health()).lm_studio_status is Status.DEGRADED


async def test_a_dead_store_is_unavailable_and_counts_nothing(harness: ServiceHarness) -> None:
    await harness.index("Some text.")
    harness.documents.fault = Fault(BackendDataError("documents", "garbage"))
    health = await harness.service.health()
    assert health.mongo_status is Status.UNAVAILABLE
    assert not health.healthy
    assert health.indexed_documents == 0


class Emptied:
    """Vectors of another store, which have all gone."""

    async def count(self) -> int:
        return 0


async def test_a_report_itself_sees_that_vectors_have_gone(harness: ServiceHarness) -> None:
    """No background work runs here: nothing has compared the stores before."""
    await harness.index("Some text.")
    beside(harness, Emptied())
    health = await harness.service.health()
    assert (health.healthy, health.qdrant_status) == (False, Status.DEGRADED)


async def test_a_report_counts_what_becomes_pending_while_it_is_made(harness: ServiceHarness) -> None:
    class Slow(Emptied):
        async def count(self) -> int:
            await pending(harness)
            return 0

    beside(harness, Slow())
    assert (await harness.service.health()).pending_documents == 1


def beside(harness: ServiceHarness, vectors: Emptied) -> None:
    """Have the service compare its documents with the vectors of another store."""
    documents, writer = harness.documents.port, cast("DocumentWriter", harness.store)
    harness.maintenance.reconciler = Reconciler(documents, writer, cast("VectorWriter", vectors))


async def pending(harness: ServiceHarness) -> None:
    harness.embedder.fault = Fault(BackendStartingError("embedder", "loading"))
    await harness.index("Some text.")
    harness.embedder.fault = None


async def test_documents_that_are_being_embedded_are_a_healthy_state(harness: ServiceHarness) -> None:
    await pending(harness)
    health = await harness.service.health()
    assert (health.indexing, health.pending_documents, health.healthy) == (True, 1, True)
    vectors = next(component for component in health.components if component.name == "vectors")
    assert "1 chunk without a vector so far" in (vectors.detail or "")


async def test_documents_that_wait_without_progress_are_not_healthy(harness: ServiceHarness) -> None:
    await pending(harness)
    assert (await harness.service.health()).healthy
    harness.clock.advance(STALLED_S)
    health = await harness.service.health()
    assert (health.indexing, health.healthy, health.qdrant_status) == (True, False, Status.DEGRADED)
    async with harness.maintained():
        while (await harness.service.health()).pending_documents:
            await asyncio.sleep(0.01)
    assert (await harness.service.health()).healthy


async def test_a_document_that_cannot_be_embedded_is_not_healthy(harness: ServiceHarness) -> None:
    await pending(harness)
    await harness.bound.bind()
    harness.writer.methods = frozenset({"attach"})
    harness.writer.fault = Fault(BackendRejectedError("vectors", "no such vector"))
    await harness.maintenance.sweep(lambda _done: None)
    health = await harness.service.health()
    assert not health.healthy
    assert "1 document cannot be embedded: no such vector" in str(health.components)
    harness.writer.fault = None
    await harness.maintenance.sweep(lambda _done: None)
    assert (await harness.service.health()).healthy


async def test_an_open_breaker_is_not_healthy_and_a_report_closes_it_when_it_may(harness: ServiceHarness) -> None:
    await harness.index("Some text.")
    breaker = harness.service._dependencies.chain.breaker
    for _ in range(5):
        with breaker.permit() as permit:
            permit.fail()
    health = await harness.service.health()
    assert (health.healthy, health.circuit_breaker_open) == (False, True)
    assert not await harness.service.ready()
    breaker._open_until = 0.0
    health = await harness.service.health()
    assert (health.healthy, health.circuit_breaker_open) == (True, False)


class Disk:
    """Something to write to that may reject."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        self.refusals: int | None = None
        """How often it rejects; None for always."""
        self.writes = 0
        self.hangs = asyncio.Event()
        self.hangs.set()

    async def write(self) -> None:
        self.writes += 1
        await self.hangs.wait()
        if self.refusal is not None and (self.refusals is None or self.writes <= self.refusals):
            raise BackendUnavailableError("documents", self.refusal)


class TestWriting:
    @pytest.fixture
    def disk(self) -> Disk:
        return Disk()

    @pytest.fixture
    def monitored(self, disk: Disk) -> ServiceHarness:
        return ServiceHarness(writes={"documents": disk.write})

    async def test_a_store_that_rejects_writes_is_degraded_says_why_and_is_ready(
        self, monitored: ServiceHarness, disk: Disk
    ) -> None:
        disk.refusal = "the disk is full"
        async with monitored.maintained():
            await monitored.service.wait_ready(5.0)
            health = await monitored.service.health()
            assert (health.healthy, health.mongo_status) == (False, Status.DEGRADED)
            assert "Writes fail: the disk is full; " in str(health.components)
            assert await monitored.service.ready()
            disk.refusal = None
            assert (await monitored.service.health()).healthy

    async def test_a_write_that_succeeded_is_cached_for_seconds(self, monitored: ServiceHarness, disk: Disk) -> None:
        for _ in range(3):
            await monitored.service.health()
        assert disk.writes == 1
        monitored.clock.advance(WRITE_TTL_S)
        await monitored.service.health()
        assert disk.writes == 2

    async def test_a_write_is_tried_again_as_every_write_is(self, monitored: ServiceHarness, disk: Disk) -> None:
        await monitored.bound.bind()
        disk.refusals = 1
        disk.refusal = "the connection was closed by a server that restarted"
        assert (await monitored.service.health()).healthy

    async def test_a_write_that_failed_is_not_overlooked(self, monitored: ServiceHarness, disk: Disk) -> None:
        await monitored.bound.bind()
        assert (await monitored.service.health()).healthy
        disk.refusal = "the disk is full"
        monitored.writer.fault = Fault(BackendUnavailableError("documents", "the disk is full"))
        with pytest.raises(BackendUnavailableError):
            await monitored.index("Some text.")
        assert not (await monitored.service.health()).healthy

    async def test_the_last_result_stays_valid_while_an_attempt_hangs(
        self, monitored: ServiceHarness, disk: Disk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await monitored.bound.bind()
        disk.refusal = "read-only"
        assert not (await monitored.service.health()).healthy
        monkeypatch.setattr("rag_context.resilience.component_checks.TIMEOUT_S", 0.02)
        disk.hangs.clear()
        disk.refusal = None
        before = disk.writes
        for _ in range(3):
            assert not (await monitored.service.health()).healthy
        assert disk.writes == before + 1
        disk.hangs.set()
        assert (await monitored.service.health()).healthy


async def test_a_store_report_is_as_new_as_the_counts_beside_it(harness: ServiceHarness) -> None:
    for number in range(1, 4):
        await harness.index(f"Text number {number}.", source=str(number))
        health = await harness.service.health()
        details = {component.name: component.detail for component in health.components}
        assert f"{number} " in (details["documents"] or "")


async def test_an_index_of_another_model_is_not_healthy(harness: ServiceHarness) -> None:
    await harness.index("Some text.")
    harness.fake.model = FakeEmbedder("another").model
    health = await harness.service.health()
    assert health.lm_studio_status is Status.UNAVAILABLE
    assert health.embedding_model is None
    embedder = next(component for component in health.components if component.name == "embedder")
    assert "reindex" in (embedder.detail or "")


async def test_a_success_is_cached_for_half_a_minute(harness: ServiceHarness) -> None:
    await harness.service.health()
    probes = harness.fake.calls
    harness.clock.advance(29.0)
    await harness.service.health()
    assert harness.fake.calls == probes
    harness.clock.advance(2.0)
    await harness.service.health()
    assert harness.fake.calls > probes


async def test_a_success_is_forgotten_at_once_when_a_call_fails(harness: ServiceHarness) -> None:
    assert (await harness.service.health()).healthy
    harness.embedder.fault = Fault(BackendDataError("embedder", "garbage"))
    assert (await harness.service.health()).healthy
    await harness.search("anything")
    assert not (await harness.service.health()).healthy


async def test_a_failure_is_never_cached(harness: ServiceHarness) -> None:
    harness.embedder.fault = Fault(BackendDataError("embedder", "garbage"))
    assert not (await harness.service.health()).healthy
    harness.embedder.fault = None
    assert (await harness.service.health()).healthy


async def test_counts_are_never_cached(harness: ServiceHarness) -> None:
    for number in range(1, 4):
        await harness.index(f"Text number {number}.", source=str(number))
        assert (await harness.service.health()).indexed_documents == number


async def test_no_caller_waits_for_an_unavailable_model() -> None:
    class Absent(FakeEmbedder):
        @property
        def model(self) -> EmbeddingModel:
            raise BackendUnavailableError("embedder", "no such file")

        @model.setter
        def model(self, _model: EmbeddingModel) -> None: ...

    harness = ServiceHarness(fake=Absent())
    async with harness.maintained(), asyncio.timeout(5):
        assert not await harness.service.wait_ready(60.0)


async def test_ready_only_once_the_model_fits_the_index() -> None:
    harness = ServiceHarness()
    assert not await harness.service.ready()
    assert not await harness.service.wait_ready(0.01)
    async with harness.maintained():
        assert await harness.service.wait_ready(5.0)
        assert await harness.service.ready()
        harness.documents.fault = Fault(BackendDataError("documents", "garbage"))
        await harness.search("anything")
        assert not await harness.service.ready()


@pytest.mark.parametrize(("time_range", "slices"), [("1h", 12), ("24h", 24), ("7d", 28), ("30d", 30)])
async def test_stats_sum_up_the_range(harness: ServiceHarness, time_range: TimeRange, slices: int) -> None:
    await harness.index("MongoDB retry logic.")
    for agent in ("oracle", "oracle", "designer"):
        await harness.search("mongodb", agent=agent, game="FireKirin")
    harness.embedder.fault = Fault(BackendDataError("embedder", "garbage"))
    await harness.search("mongodb again")
    harness.now += timedelta(seconds=1)
    stats = await harness.service.stats(StatsRequest(time_range=time_range))
    assert stats.total_documents == 1
    assert stats.passages_by_origin == {"agent": 1}
    assert stats.total_queries == 4
    assert stats.queries_by_agent == {"oracle": 2, "designer": 1, "unknown": 1}
    assert stats.queries_by_level == {"1": 3, "2": 1}
    assert stats.queries_by_game == {"FireKirin": 3}
    assert stats.cache_hit_rate == 0.5
    assert stats.fallback_rate == 0.25
    assert len(stats.timeline) == slices
    assert sum(bucket.queries for bucket in stats.timeline) == 4
    assert stats.p99_latency >= stats.p95_latency >= 0


async def test_stats_of_a_store_that_hangs_fail_in_time(
    harness: ServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_context.memory.service.STATS_TIMEOUT_S", 0.01)
    harness.metrics.methods = frozenset({"summarise"})
    harness.metrics.fault = Fault(hang=True)
    with pytest.raises(BackendTimeoutError):
        async with asyncio.timeout(10):
            await harness.service.stats(StatsRequest())

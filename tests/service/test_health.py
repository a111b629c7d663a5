"""Health: deep, honest, and remembered no longer than it is true."""

import asyncio
from datetime import timedelta

import pytest

from rag_context.contract.stats import StatsRequest, TimeRange
from rag_context.errors import BackendDataError, BackendStartingError, BackendTimeoutError, BackendUnavailableError
from rag_context.testing import FakeEmbedder, Fault
from rag_context.types import EmbeddingModel, Status
from tests.service.house import House


async def test_a_whole_house_is_healthy(house: House) -> None:
    await house.index("Some text.")
    health = await house.service.health()
    assert health.healthy
    assert (health.qdrant_status, health.lm_studio_status, health.mongo_status) == (Status.HEALTHY,) * 3
    assert health.indexed_documents == 1
    assert health.pending_documents == 0
    assert health.embedding_model is not None
    assert (health.embedding_model.name, health.embedding_model.dimension) == ("fake", 64)
    assert {component.name for component in health.components} == {"vectors", "embedder", "documents"}
    assert not health.circuit_breaker_open


async def test_a_dead_embedder_is_unavailable(house: House) -> None:
    house.embedder.fault = Fault(BackendUnavailableError("embedder", "connection refused"))
    health = await house.service.health()
    assert not health.healthy
    assert health.lm_studio_status is Status.UNAVAILABLE
    assert health.mongo_status is Status.HEALTHY
    embedder = next(component for component in health.components if component.name == "embedder")
    assert "connection refused" in (embedder.detail or "")


async def test_a_loading_model_is_degraded(house: House) -> None:
    house.embedder.fault = Fault(BackendStartingError("embedder", "still loading"))
    assert (await house.service.health()).lm_studio_status is Status.DEGRADED


async def test_a_dead_store_is_unavailable_and_counts_nothing(house: House) -> None:
    await house.index("Some text.")
    house.documents.fault = Fault(BackendDataError("documents", "garbage"))
    health = await house.service.health()
    assert health.mongo_status is Status.UNAVAILABLE
    assert not health.healthy
    assert health.indexed_documents == 0


async def test_an_index_that_lacks_vectors_is_not_healthy(house: House) -> None:
    house.embedder.fault = Fault(BackendStartingError("embedder", "loading"))
    await house.index("Some text.")
    house.embedder.fault = None
    health = await house.service.health()
    assert health.pending_documents == 1
    assert health.qdrant_status is Status.DEGRADED
    assert not health.healthy


async def test_an_index_of_another_model_is_not_healthy(house: House) -> None:
    await house.index("Some text.")
    house.fake.model = FakeEmbedder("another").model
    health = await house.service.health()
    assert health.lm_studio_status is Status.UNAVAILABLE
    assert health.embedding_model is None
    embedder = next(component for component in health.components if component.name == "embedder")
    assert "reindex" in (embedder.detail or "")


async def test_a_success_is_believed_for_half_a_minute(house: House) -> None:
    await house.service.health()
    probes = house.fake.calls
    house.clock.advance(29.0)
    await house.service.health()
    assert house.fake.calls == probes
    house.clock.advance(2.0)
    await house.service.health()
    assert house.fake.calls > probes


async def test_a_success_is_forgotten_at_once_when_a_call_fails(house: House) -> None:
    assert (await house.service.health()).healthy
    house.embedder.fault = Fault(BackendDataError("embedder", "garbage"))
    assert (await house.service.health()).healthy
    await house.search("anything")
    assert not (await house.service.health()).healthy


async def test_a_failure_is_never_believed(house: House) -> None:
    house.embedder.fault = Fault(BackendDataError("embedder", "garbage"))
    assert not (await house.service.health()).healthy
    house.embedder.fault = None
    assert (await house.service.health()).healthy


async def test_counts_are_never_cached(house: House) -> None:
    for number in range(1, 4):
        await house.index(f"Text number {number}.", source=str(number))
        assert (await house.service.health()).indexed_documents == number


async def test_nobody_waits_for_a_model_that_cannot_be_had() -> None:
    class Absent(FakeEmbedder):
        @property
        def model(self) -> EmbeddingModel:
            raise BackendUnavailableError("embedder", "no such file")

        @model.setter
        def model(self, _model: EmbeddingModel) -> None: ...

    house = House(fake=Absent())
    async with house.kept_up(), asyncio.timeout(5):
        assert not await house.service.wait_ready(60.0)


async def test_ready_only_once_the_model_fits_the_index() -> None:
    house = House()
    assert not await house.service.ready()
    assert not await house.service.wait_ready(0.01)
    async with house.kept_up():
        assert await house.service.wait_ready(5.0)
        assert await house.service.ready()
        house.documents.fault = Fault(BackendDataError("documents", "garbage"))
        await house.search("anything")
        assert not await house.service.ready()


@pytest.mark.parametrize(("time_range", "slices"), [("1h", 12), ("24h", 24), ("7d", 28), ("30d", 30)])
async def test_stats_sum_up_the_range(house: House, time_range: TimeRange, slices: int) -> None:
    await house.index("MongoDB retry logic.")
    for agent in ("oracle", "oracle", "designer"):
        await house.search("mongodb", agent=agent, game="FireKirin")
    house.embedder.fault = Fault(BackendDataError("embedder", "garbage"))
    await house.search("mongodb again")
    house.now += timedelta(seconds=1)
    stats = await house.service.stats(StatsRequest(time_range=time_range))
    assert stats.total_documents == 1
    assert stats.total_queries == 4
    assert stats.queries_by_agent == {"oracle": 2, "designer": 1, "unknown": 1}
    assert stats.queries_by_level == {"1": 3, "2": 1}
    assert stats.queries_by_game == {"FireKirin": 3}
    assert stats.cache_hit_rate == 0.5
    assert stats.fallback_rate == 0.25
    assert len(stats.timeline) == slices
    assert sum(bucket.queries for bucket in stats.timeline) == 4
    assert stats.p99_latency >= stats.p95_latency >= 0


async def test_stats_of_a_store_that_hangs_fail_in_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_context.service.service.STATS_PATIENCE_S", 0.01)
    house.metrics.methods = frozenset({"summarise"})
    house.metrics.fault = Fault(hang=True)
    with pytest.raises(BackendTimeoutError):
        async with asyncio.timeout(10):
            await house.service.stats(StatsRequest())

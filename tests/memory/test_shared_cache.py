"""Two services on one index, with a Redis between them that comes and goes."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from redis.asyncio import Redis

from rag_context.domain.documents import Status
from rag_context.errors import BackendUnavailableError
from rag_context.memory.service import Service
from rag_context.resilience.component_checks import HealthMonitor
from rag_context.resilience.dependency import Dependency
from rag_context.resilience.shared_cache import SecondLevel
from rag_context.search.query import ResultCache
from rag_context.stores.redis import RedisCache, open_redis
from rag_context.testing import Fault
from tests.memory.harness import ServiceHarness
from tests.servers.faults import FaultProxy, HangBefore, Pass, Refuse, fault_proxy
from tests.servers.redis import redis_server

QUESTION = "retry logic"


@dataclass
class Shared:
    """Two houses with one store and one Redis behind a proxy."""

    one: ServiceHarness
    other: ServiceHarness
    levels: tuple[SecondLevel, SecondLevel]
    proxy: FaultProxy

    async def flush(self) -> None:
        for level in self.levels:
            await level.flush()


def share(harness: ServiceHarness, cache: RedisCache) -> SecondLevel:
    """Give a service a second level of cache."""
    level = SecondLevel(cache, Dependency("cache", cache.ping, harness.clock), timeout_s=2.0)
    sources = harness.sources
    roles = (("v", sources.vector_store), ("e", sources.embedding), ("d", sources.document_store), ("c", level.guard))
    parts = harness.service._dependencies
    harness.service = Service(
        replace(
            parts, cache=ResultCache(1000, 300.0, harness.clock, level), health=HealthMonitor(roles, harness.clock)
        ),
        now=lambda: harness.now,
    )
    return level


@pytest.fixture
async def shared() -> AsyncIterator[Shared]:
    one = ServiceHarness()
    other = ServiceHarness(store=one.store)
    for harness in (one, other):
        await harness.bound.bind()
    await one.index("MongoDB connections use retry logic with exponential backoff.")
    with redis_server() as server:
        async with (
            fault_proxy(server.host, server.port) as proxy,
            open_redis(proxy.url("redis"), "ours") as first,
            open_redis(proxy.url("redis"), "ours") as second,
        ):
            yield Shared(one, other, (share(one, first), share(other, second)), proxy)


async def test_one_process_has_the_answers_cached_by_the_other(shared: Shared) -> None:
    first = await shared.one.search(QUESTION)
    await shared.flush()
    embedded = shared.other.fake.calls
    second = await shared.other.search(QUESTION)
    assert second.results == first.results
    assert (second.fallback_level, second.total_indexed) == (1, 1)
    assert shared.other.fake.calls == embedded
    assert shared.other.service._dependencies.cache.hits == 1


async def test_a_write_anywhere_makes_shared_answers_old(shared: Shared) -> None:
    await shared.one.search(QUESTION)
    await shared.flush()
    await shared.other.index("Retry logic again, in another note.", source="more")
    found = await shared.other.search(QUESTION)
    assert len(found.results) == 2


async def test_a_degraded_answer_is_not_shared(shared: Shared) -> None:
    shared.one.embedder.fault = Fault(BackendUnavailableError("embedder", "gone"))
    lesser = await shared.one.search("backoff")
    assert lesser.fallback_level == 2
    await shared.flush()
    assert (await shared.other.search("backoff")).fallback_level == 1


@pytest.mark.parametrize("fault", [Refuse(), HangBefore()])
async def test_a_dead_cache_changes_no_answer(shared: Shared, fault: Refuse | HangBefore) -> None:
    shared.proxy.fault = fault
    for number in range(5):
        assert (await shared.one.search(f"{QUESTION} {number}")).fallback_level == 1
    await shared.flush()
    assert not shared.one.service._dependencies.cache._shared.guard.breaker.closed  # type: ignore[union-attr]


async def test_a_dead_cache_degrades_its_component_and_nothing_else(shared: Shared) -> None:
    shared.proxy.fault = Refuse()
    shared.one.maintenance.bound.set()
    health = await shared.one.service.health()
    status = {component.name: component.status for component in health.components}
    assert status == dict.fromkeys(("vectors", "embedder", "documents"), Status.HEALTHY) | {"cache": Status.DEGRADED}
    assert health.healthy
    assert await shared.one.service.ready()
    shared.proxy.fault = Pass()
    assert {component.status for component in (await shared.one.service.health()).components} == {Status.HEALTHY}


async def test_many_at_once_share_too(shared: Shared) -> None:
    cache = shared.other.service._dependencies.cache
    for attempt in range(10):
        questions = [f"{QUESTION} {attempt} {number % 7}" for number in range(32)]
        await asyncio.gather(*map(shared.one.search, questions))
        await shared.flush()
        before = cache.hits
        answers = await asyncio.gather(*map(shared.other.search, questions))
        assert {answer.fallback_level for answer in answers} == {1}
        if cache.hits - before == len(questions):
            return
        for level in shared.levels:  # on a busy machine calls of the cache may be late: then once more
            level.guard.breaker.reset()
    raise AssertionError("the answers of one process never reached the other")


async def test_an_answer_leaves_the_shared_cache_within_a_minute(shared: Shared) -> None:
    """X-15: it holds passages, which may be deleted meanwhile."""
    await shared.one.search(QUESTION)
    await shared.flush()
    async with Redis.from_url(shared.proxy.url("redis")) as plain:
        lives = [await plain.pttl(key) async for key in plain.scan_iter("ours:answer:*")]
    assert len(lives) == 1
    assert 0 < lives[0] <= 60_000

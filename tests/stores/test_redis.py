"""Redis as a shared cache: over a real server, and over one that goes wrong."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import pytest
from redis.asyncio import Redis

from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
)
from rag_context.ports.reading import Cache
from rag_context.stores.redis import TIMEOUT_S, RedisCache, open_redis
from tests.servers.faults import Drip, Fault, Garbage, HalfBody, HangAfter, HangBefore, Pass, Refuse, Reset, fault_proxy
from tests.servers.process import ServerProcess
from tests.servers.redis import redis_server

DAY_S = 86400.0


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with redis_server() as made:
        yield made


@pytest.fixture
def url(server: ServerProcess) -> str:
    return f"redis://{server.host}:{server.port}/0"


@pytest.fixture
async def plain(url: str) -> AsyncIterator[Redis]:
    """What anyone else sees of the server, emptied."""
    async with Redis.from_url(url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def cache(url: str, plain: Redis) -> AsyncIterator[RedisCache]:
    async with open_redis(url, "ours") as opened:
        yield opened


async def test_it_fits_the_port(cache: RedisCache) -> None:
    port: Cache = cache
    assert_type(await port.get("nothing"), bytes | None)


@pytest.mark.parametrize("value", [b"", b"text", bytes(range(256)) * 1000, b"\r\n$5\r\n"])
async def test_bytes_come_back_as_they_were(cache: RedisCache, value: bytes) -> None:
    await cache.set("key", value, DAY_S)
    assert await cache.get("key") == value


async def test_what_was_never_set_is_not_there(cache: RedisCache) -> None:
    assert await cache.get("key") is None


async def test_a_later_value_replaces_an_earlier_one(cache: RedisCache) -> None:
    await cache.set("key", b"one", DAY_S)
    await cache.set("key", b"two", DAY_S)
    assert await cache.get("key") == b"two"


async def test_keys_start_with_the_prefix_and_live_for_their_configured_time(cache: RedisCache, plain: Redis) -> None:
    await cache.set("answer:1", b"x", 300.0)
    assert await plain.keys() == [b"ours:answer:1"]
    assert 299_000 < await plain.pttl("ours:answer:1") <= 300_000


async def test_the_shortest_life_is_a_millisecond(cache: RedisCache, plain: Redis) -> None:
    await cache.set("key", b"x", 0.00001)
    assert await plain.pttl("ours:key") <= 1


async def test_two_prefixes_share_nothing(cache: RedisCache, url: str) -> None:
    async with open_redis(url, "theirs") as other:
        await cache.set("key", b"x", DAY_S)
        assert await other.get("key") is None


async def test_more_calls_than_connections_wait_for_one_another(cache: RedisCache, plain: Redis) -> None:
    await asyncio.gather(*(cache.set(str(number), b"%d" % number, DAY_S) for number in range(80)))
    found = await asyncio.gather(*(cache.get(str(number)) for number in range(80)))
    assert found == [b"%d" % number for number in range(80)]
    assert (await plain.info("clients"))["connected_clients"] < 40


async def test_calls_given_up_halfway_never_mix_up_the_answers_of_others(cache: RedisCache) -> None:
    for number in range(20):
        await cache.set(str(number), b"%d" % number, DAY_S)

    async def ask(number: int, patience_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(patience_s):
                return await cache.get(str(number))
        except TimeoutError:
            return b"%d" % number

    for patience_s in (0.0, 0.0001, 0.0005, 0.001, 0.003):
        found = await asyncio.gather(*(ask(number % 20, patience_s) for number in range(200)))
        assert found == [b"%d" % (number % 20) for number in range(200)]
    assert await asyncio.gather(*(ask(number, 20) for number in range(20))) == [b"%d" % n for n in range(20)]


async def test_opening_needs_no_server_and_calls_work_once_there_is_one() -> None:
    with redis_server() as server:
        server.kill()
        async with open_redis(f"redis://{server.host}:{server.port}/3", "ours") as cache:
            for _ in range(2):
                with pytest.raises(BackendUnavailableError):
                    await cache.get("key")
            server.start()
            await cache.set("key", b"x", DAY_S)
            server.restart()
            assert await cache.get("key") is None
            await cache.ping()


async def test_a_frozen_server_keeps_no_caller_beyond_its_deadline(url: str, server: ServerProcess) -> None:
    async with open_redis(url, "ours") as cache:
        await cache.ping()
        server.freeze()
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await cache.get("key")
        finally:
            server.thaw()
        assert await cache.get("key") is None


async def test_a_call_survives_a_process_that_could_not_run(cache: RedisCache) -> None:
    call = asyncio.create_task(cache.get("key"))
    await asyncio.sleep(0)
    time.sleep(1.5 * TIMEOUT_S)  # noqa: ASYNC251  (nothing runs, as while the process is stopped)
    assert await call is None


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Refuse(), BackendUnavailableError),
        (Reset(), BackendUnavailableError),
        (HangBefore(), BackendTimeoutError),
        (HangAfter(), BackendTimeoutError),
        (Drip(1, 5.0), BackendTimeoutError),
        (HalfBody(), BackendUnavailableError),
        (Garbage(), BackendDataError),
        (Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n"), BackendDataError),
        (Garbage(b":one\r\n"), BackendDataError),
        (Garbage(b":1\r\n"), BackendDataError),
        (Garbage(b"-\xff\xfe\r\n"), BackendRejectedError),
        (Garbage(b"*1\r\n$1\r\nx\r\n"), BackendDataError),
        (Garbage(b"$999999999\r\nx"), BackendUnavailableError),
        (Garbage(b"$-5\r\n"), BackendDataError),
    ],
    ids=repr,
)
async def test_every_fault_is_a_rag_context_error_and_heals(
    server: ServerProcess, plain: Redis, fault: Fault, error: type[Exception]
) -> None:
    async with fault_proxy(server.host, server.port) as proxy, open_redis(proxy.url("redis"), "ours") as cache:
        await cache.set("key", b"a value", DAY_S)
        proxy.fault = fault
        with pytest.raises(error):
            await cache.get("key")
        with pytest.raises(BackendError):
            await cache.set("key", b"b value", DAY_S)
        proxy.fault = Pass()
        await cache.set("key", b"c value", DAY_S)
        assert await cache.get("key") == b"c value"


async def test_a_full_server_rejects_writes_and_still_answers(plain: Redis, cache: RedisCache) -> None:
    await cache.set("key", b"x", DAY_S)
    await plain.config_set("maxmemory", "1")
    try:
        with pytest.raises(BackendRejectedError):
            await cache.set("other", b"y", DAY_S)
        assert await cache.get("key") == b"x"
    finally:
        await plain.config_set("maxmemory", "0")


async def test_a_wrong_password_is_a_failure_that_says_nothing_of_it() -> None:
    with redis_server(None, "--requirepass", "right") as server:
        async with open_redis(f"redis://:right@{server.host}:{server.port}", "ours") as cache:
            await cache.set("key", b"x", DAY_S)
        for secret in ("wr0ng:", ""):
            async with open_redis(f"redis://:{secret}@{server.host}:{server.port}", "ours") as cache:
                with pytest.raises((BackendUnavailableError, BackendRejectedError)) as caught:
                    await cache.get("a secret key")
                assert "wr0ng" not in str(caught.value)
                assert "secret" not in str(caught.value)


async def test_a_url_with_unknown_options_cannot_work() -> None:
    for options in ("?colour=red", "?socket_timeout=soon"):
        with pytest.raises(ConfigurationError, match=r"stores\.redis_url"):
            async with open_redis(f"redis://127.0.0.1{options}", "ours"):
                raise AssertionError(json.dumps(options))

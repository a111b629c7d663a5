"""Redis as a cache that several processes share."""

import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, RedisError, ResponseError, TimeoutError  # noqa: A004

from rag_context import errors
from rag_context.resilience.deadline import Deadline

COMPONENT = "cache"

CONNECTIONS = 32
TIMEOUT_S = 0.5
"""For one call, with a free place in the pool and a connection; callers with less time set their own deadline."""


class RedisCache:
    """Fits `ports.Cache`."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    async def get(self, key: str) -> bytes | None:
        with _mapped():
            value: object = await _in_time(self._client.get(f"{self._prefix}:{key}"))
        if value is not None and not isinstance(value, bytes):
            raise errors.BackendDataError(COMPONENT, "Redis returned an invalid value.")
        return value

    async def set(self, key: str, value: bytes, ttl_s: float) -> None:
        """Keep a value for `ttl_s` seconds, a millisecond at least."""
        with _mapped():
            await _in_time(self._client.set(f"{self._prefix}:{key}", value, px=max(round(ttl_s * 1000.0), 1)))

    async def ping(self) -> str:
        with _mapped():
            await _in_time(self._client.ping())
        return f"Redis answers, keys begin with {self._prefix!r}"


@asynccontextmanager
async def open_redis(url: str, prefix: str) -> AsyncIterator[RedisCache]:
    """The cache at `url`, which need not be available yet: calls fail until it is. Raises: ConfigurationError."""
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            # No time limits of the driver: they run on while this process cannot, such as during a collection of
            # garbage of a second, and a healthy Redis would count as dead. `_in_time` has the limit.
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            # Once more at once, because a connection that was kept may be dead; a timeout is not repeated.
            retry=Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
            protocol=2,
        )
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError) as error:
        raise errors.ConfigurationError("stores.redis_url has an invalid option; check its query string.") from error
    async with aclosing(Redis.from_pool(pool)) as client:
        yield RedisCache(client, prefix)


async def _in_time(work: Awaitable[Any]) -> Any:
    return await Deadline.after(TIMEOUT_S, time.monotonic).bound(COMPONENT, work)


@contextmanager
def _mapped() -> Iterator[None]:
    """Maps Redis's errors to ours; their messages are not repeated, because they may contain stored data."""
    try:
        yield
    except TimeoutError as error:
        raise errors.BackendTimeoutError(COMPONENT, "Redis did not answer in time.") from error
    except BusyLoadingError as error:
        raise errors.BackendStartingError(COMPONENT, "Redis is loading its data.") from error
    except (ConnectionError, RuntimeError) as error:  # uvloop raises this for a connection that was just closed
        raise errors.BackendUnavailableError(
            COMPONENT, "Redis cannot be reached, or rejected the login: check stores.redis_url."
        ) from error
    except ResponseError as error:
        raise errors.BackendRejectedError(COMPONENT, "Redis rejected a command: it is full, or read-only.") from error
    except (RedisError, ValueError) as error:
        raise errors.BackendDataError(COMPONENT, "Redis returned an invalid response.") from error

"""Redis as a cache that several processes share."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, RedisError, ResponseError, TimeoutError  # noqa: A004

from rag_context.errors import (
    BackendDataError,
    BackendRejectedError,
    BackendStartingError,
    BackendTimeoutError,
    BackendUnavailableError,
    ConfigurationError,
)

COMPONENT = "cache"

CONNECTIONS = 32
TIMEOUT_S = 0.5
"""For one answer, a connection, or a free place in the pool; callers in a hurry bring a deadline of their own."""


class RedisCache:
    """Fits `ports.Cache`. Every method raises `BackendError` where Redis does not do it.

    Args:
        client: connected lazily; closed by whoever made it.
        prefix: what the names of all keys begin with.
    """

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    async def get(self, key: str) -> bytes | None:
        """The value of a key; None where there is none, or no longer."""
        with _mapped():
            value: object = await self._client.get(f"{self._prefix}:{key}")
        if value is not None and not isinstance(value, bytes):
            raise BackendDataError(COMPONENT, "Redis answered something that is no value.")
        return value

    async def set(self, key: str, value: bytes, ttl_s: float) -> None:
        """Keep a value for `ttl_s` seconds, a millisecond at least."""
        with _mapped():
            await self._client.set(f"{self._prefix}:{key}", value, px=max(round(ttl_s * 1000.0), 1))

    async def ping(self) -> str:
        """Ask for a sign of life; returns one line for people."""
        with _mapped():
            await self._client.ping()
        return f"Redis answers, keys begin with {self._prefix!r}"


@asynccontextmanager
async def open_redis(url: str, prefix: str) -> AsyncIterator[RedisCache]:
    """The cache at `url`, which need not be there yet: calls fail until it is, and then work.

    Args:
        url: `redis://`, `rediss://` or `unix://`, with user, password and database number where needed.
        prefix: what the names of all keys begin with.

    Raises:
        ConfigurationError: the URL has options that Redis clients do not know.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=TIMEOUT_S,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            # Once more at once, because a connection that was kept may be dead; a timeout is not repeated.
            retry=Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
            protocol=2,
        )
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigurationError("stores.redis_url has an option that cannot be used; see its query string.") from error
    client = Redis.from_pool(pool)
    try:
        yield RedisCache(client, prefix)
    finally:
        await client.aclose()


@contextmanager
def _mapped() -> Iterator[None]:
    """Redis's errors as ours; none of theirs is repeated in a message, for they may hold what was asked."""
    try:
        yield
    except TimeoutError as error:
        raise BackendTimeoutError(COMPONENT, "Redis did not answer in time.") from error
    except BusyLoadingError as error:
        raise BackendStartingError(COMPONENT, "Redis is loading its data.") from error
    except (ConnectionError, RuntimeError) as error:  # uvloop says so when a connection was closed a moment ago
        raise BackendUnavailableError(COMPONENT, "Redis cannot be reached, or let nobody in.") from error
    except ResponseError as error:
        raise BackendRejectedError(COMPONENT, "Redis refused a command: it is full, or read-only.") from error
    except (RedisError, ValueError) as error:
        raise BackendDataError(COMPONENT, "Redis answered nonsense.") from error

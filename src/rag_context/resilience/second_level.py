"""A cache that others share, behind one in memory: asked in passing, written beside the requests, never an error."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest

from rag_context.errors import BackendError
from rag_context.ports.reading import Cache
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency

logger = logging.getLogger(__name__)

PATIENCE_S = 0.03
"""How long a request waits for the cache; it answers within one when it is well."""

WRITE_PATIENCE_S = 1.0
CAPACITY = 256
"""Values that may wait to be written."""

_SEAL_BYTES = 16


class SecondLevel:
    """Asks a shared cache, behind its guard. Whatever is wrong with it, or with what it holds, is a miss.

    A cache that hangs costs `patience_s` until its breaker opens, and then nothing until a probe finds it well.

    Args:
        cache: the cache.
        guard: its breaker; probed by whoever keeps the dependencies.
        patience_s: seconds a request waits for an answer.
        capacity: values that may wait to be written; more are dropped and counted.
        secret: known to all processes that share the cache; a value that was not sealed with it is a miss. With the
            empty one, a seal tells damage and not forgery.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        cache: Cache,
        guard: Dependency,
        *,
        patience_s: float = PATIENCE_S,
        capacity: int = CAPACITY,
        secret: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.guard = guard
        self._cache = cache
        self._patience_s = patience_s
        self._capacity = capacity
        self._secret = blake2b(secret.encode()).digest() if secret else b""
        self._clock = clock
        self._waiting: deque[tuple[str, Callable[[], bytes], float]] = deque()
        self._work = asyncio.Event()
        self.dropped = 0
        """Values that were not kept, because too many waited or the cache did not take them."""

    async def get(self, key: str) -> bytes | None:
        """The value of this key; None where there is none to be had now."""
        if not self.guard.breaker.closed:
            return None
        deadline = Deadline.after(self._patience_s, self._clock)
        with suppress(BackendError):
            sealed = await self.guard.call(lambda: self._cache.get(key), deadline)
            return None if sealed is None else self._opened(key, sealed)
        return None

    def put(self, key: str, value: Callable[[], bytes], ttl_s: float) -> None:
        """Have a value written soon, for `ttl_s` seconds; `value` makes it when its turn has come."""
        if len(self._waiting) >= self._capacity or not self.guard.breaker.closed:
            self.dropped += 1
            return
        self._waiting.append((key, value, ttl_s))
        self._work.set()

    async def run(self) -> None:
        """Write what comes until cancelled."""
        while True:
            await self._work.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write what waits; what the cache does not take is dropped and counted."""
        self._work.clear()
        while self._waiting:
            key, value, ttl_s = self._waiting.popleft()
            try:
                await self._write(key, self._sealed(key, value()), ttl_s)
            except BackendError as error:
                self.dropped += 1
                logger.info("the cache did not take a value: %s", error)

    async def _write(self, key: str, sealed: bytes, ttl_s: float) -> None:
        deadline = Deadline.after(WRITE_PATIENCE_S, self._clock)
        await self.guard.call(lambda: self._cache.set(key, sealed, ttl_s), deadline)

    def _sealed(self, key: str, value: bytes) -> bytes:
        """With a digest in front, by which a value that was cut short, changed or put under another key is known."""
        digest = blake2b(key.encode() + b"\0", digest_size=_SEAL_BYTES, key=self._secret)
        digest.update(value)
        return digest.digest() + value

    def _opened(self, key: str, sealed: bytes) -> bytes | None:
        value = sealed[_SEAL_BYTES:]
        return value if compare_digest(self._sealed(key, value), sealed) else None

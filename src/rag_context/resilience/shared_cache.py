"""A shared cache behind the one in memory: read with a short timeout, written in the background, never an error."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest

from rag_context.errors import BackendError
from rag_context.ports.models import CONFIRMED, Proof
from rag_context.ports.reading import Cache
from rag_context.resilience.dependency import Dependency

logger = logging.getLogger(__name__)

READ_TIMEOUT_S = 0.03
"""How long a request waits for the cache; a healthy one answers within 1 ms."""

WRITE_TIMEOUT_S = 1.0
CAPACITY = 256
"""Values that may wait to be written."""

CONFIRM_PAUSE_S = 0.5
"""How long values wait that are not confirmed yet: as often as the embedder's model is, while queries are embedded."""

_SEAL_BYTES = 16


class SecondLevel:
    """Reads and writes a shared cache through its circuit breaker. Every failure and every damaged value is a miss.

    A cache that hangs costs `timeout_s` until its breaker opens, and then nothing until a probe succeeds. More than
    `capacity` values that wait are dropped and counted. Values that were not signed with `secret`, the key of all
    processes that share the cache, are misses; without one, damage is detected, and forgery is not.
    """

    def __init__(
        self,
        cache: Cache,
        guard: Dependency,
        *,
        timeout_s: float = READ_TIMEOUT_S,
        capacity: int = CAPACITY,
        secret: str = "",
    ) -> None:
        self.guard = guard
        self._reads = guard.guard(cache, timeout_s)
        self._writes = guard.guard(cache, WRITE_TIMEOUT_S)
        self._capacity = capacity
        self._secret = blake2b(secret.encode()).digest() if secret else b""
        self._waiting: deque[tuple[str, Callable[[], bytes], float, Proof]] = deque()
        self._work = asyncio.Event()
        self.dropped = 0
        """Values that were not written: the queue was full, the cache failed, or they were not confirmed."""

    async def get(self, key: str) -> bytes | None:
        """The value of this key; None where there is none, or the cache is unavailable."""
        # Also when a probe is due: the service probes in the background, so no request pays for it.
        if not self.guard.breaker.closed:
            return None
        with suppress(BackendError):
            sealed = await self._reads.get(key)
            return None if sealed is None else self._opened(key, sealed)
        return None

    def put(self, key: str, value: Callable[[], bytes], ttl_s: float, proof: Proof | None = None) -> None:
        """Queue a value for writing, to live for `ttl_s` seconds; `value` computes it when it is written.

        With a `proof` it is written only once that holds: other processes believe what they read.
        """
        # Dropped and not delayed: with a full queue, the cache is slower than the searches.
        if len(self._waiting) >= self._capacity or not self.guard.breaker.closed:
            self.dropped += 1
            return
        self._waiting.append((key, value, ttl_s, proof or CONFIRMED.proof()))
        self._work.set()

    async def run(self) -> None:
        while True:
            await self._work.wait()
            if not all(proof.is_known for *_, proof in self._waiting):
                await asyncio.sleep(CONFIRM_PAUSE_S)  # one probe of the embedder's model then confirms all of them
            await self.flush()

    async def flush(self) -> None:
        """Write the queued values; those that the cache does not accept are dropped and counted."""
        self._work.clear()
        while self._waiting:
            key, value, ttl_s, proof = self._waiting.popleft()
            if not await proof.holds():
                self.dropped += 1
                continue
            try:
                # Serialised here and not in `put`: no search waits for it, and a dropped value costs nothing.
                await self._writes.set(key, self._sealed(key, value()), ttl_s)
            except BackendError as error:
                self.dropped += 1
                logger.info("the shared cache did not store a value: %s", error)

    def _sealed(self, key: str, value: bytes) -> bytes:
        """The value behind a digest that detects truncation, changes and values stored under another key."""
        digest = blake2b(key.encode() + b"\0", digest_size=_SEAL_BYTES, key=self._secret)
        digest.update(value)
        return digest.digest() + value

    def _opened(self, key: str, sealed: bytes) -> bytes | None:
        value = sealed[_SEAL_BYTES:]
        return value if compare_digest(self._sealed(key, value), sealed) else None

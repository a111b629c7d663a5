"""A cache of bytes in memory that respects time to live. For tests only."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class MemoryCache:
    """Implements `ports.Cache`.

    Args:
        clock: seconds.
    """

    clock: Callable[[], float]
    values: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    """Each value with the time at which it expires."""

    async def get(self, key: str) -> bytes | None:
        value, until = self.values.get(key, (None, 0.0))
        return value if self.clock() < until else None

    async def set(self, key: str, value: bytes, ttl_s: float) -> None:
        self.values[key] = (value, self.clock() + ttl_s)

    async def ping(self) -> str:
        return f"{len(self.values)} values in memory"

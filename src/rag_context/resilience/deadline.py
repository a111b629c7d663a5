"""A deadline: one moment that every step of a search measures itself against."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from rag_context.errors import BackendTimeoutError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a clock, in its seconds."""

    at: float
    clock: Callable[[], float]

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float]) -> "Deadline":
        """The moment `seconds` from now."""
        return cls(clock() + seconds, clock)

    def sooner(self, seconds: float) -> "Deadline":
        """The moment `seconds` before this one."""
        return Deadline(self.at - seconds, self.clock)

    @property
    def remaining_s(self) -> float:
        return max(self.at - self.clock(), 0.0)

    async def bound(self, component: str, work: Awaitable[T]) -> T:
        """Await `work` until the deadline. Raises: BackendTimeoutError naming `component`."""
        try:
            async with asyncio.timeout(self.remaining_s):
                return await work
        except TimeoutError as error:
            raise BackendTimeoutError(component, f"the {component} did not answer in time") from error

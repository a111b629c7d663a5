"""A deadline: one moment that every step of a search measures itself against."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from rag_context.errors import BackendTimeoutError
from rag_context.resilience.stalls import Stalls, stalls

T = TypeVar("T")

_SLACK_S = 0.001
"""Time that is left by rounding only."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a clock, in its seconds, put off by what the event loop loses until then.

    A process that was stopped for two seconds goes on where it was: what was under way has the time that was left to
    it, and a call that ends late was late while this process could run.
    """

    at: float
    clock: Callable[[], float]
    _stalls: Stalls
    _lost_before_s: float

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float]) -> "Deadline":
        """The moment `seconds` from now, on the running loop."""
        lost = stalls()
        return cls(clock() + seconds, clock, lost, lost.lost_s)

    def sooner(self, seconds: float) -> "Deadline":
        """The moment `seconds` before this one."""
        return Deadline(self.at - seconds, self.clock, self._stalls, self._lost_before_s)

    @property
    def remaining_s(self) -> float:
        return max(self.at + self._stalls.lost_s - self._lost_before_s - self.clock(), 0.0)

    async def bound(self, component: str, work: Awaitable[T]) -> T:
        """Await `work` until the deadline. Raises: BackendTimeoutError naming `component`."""
        loop = asyncio.get_running_loop()
        lost_s = self._stalls.lost_s
        timer: asyncio.TimerHandle

        def due() -> None:
            nonlocal lost_s, timer
            # The timer went on while the process did not: what was lost since it was set is waited for again.
            more_s, lost_s = self._stalls.lost_s - lost_s, self._stalls.lost_s
            if more_s > _SLACK_S:
                timer = loop.call_later(more_s, due)
            else:
                limit.reschedule(loop.time())

        timer = loop.call_later(self.remaining_s, due)
        try:
            with self._stalls.watched():
                async with asyncio.timeout(None) as limit:
                    return await work
        except TimeoutError as error:
            raise BackendTimeoutError(component, f"the {component} did not answer in time") from error
        finally:
            timer.cancel()

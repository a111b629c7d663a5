"""Admission control: as much work at once as can be done in time. The rest queues; a long wait is rejected at once.

Without it the fastest caller decides how much runs at once, everything runs slowly, and nothing meets its deadline.
Time in the queue is no backend's fault, so deadlines begin after it. Work of one class never waits for another's: bulk
work that fills its own slots leaves those of questions free.

How much is as much as can be done in time is found out as TCP finds it out (additive increase, multiplicative
decrease; Chiu and Jain, 1989), with a service time that is longer than it should be as the sign of congestion.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from rag_context.errors import BackendTimeoutError, OverloadedError
from rag_context.resilience.deadline import Deadline, stalls
from rag_context.tracing import child_span

DECREASE = 0.7
SMOOTHING = 0.1
"""Weight of the newest service time in their mean."""

LONG_CHARS = 100_000
"""Most characters of one call of `index`; it waits for no larger text, which takes seconds."""

T = TypeVar("T")


class FixedLimit:
    def __init__(self, at_once: int) -> None:
        self.at_once = at_once

    def observe(self, _service_s: float, *, was_full: bool) -> None:
        """Ignore the service time: this limit never changes."""


class AdaptiveLimit:
    """A number at once, `least` to `most`, that grows while all are in `target_s` and shrinks when they are not."""

    def __init__(
        self, start: int, *, least: int, most: int, target_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = float(start)
        self._least = float(least)
        self._most = float(most)
        self._target_s = target_s
        self._clock = clock
        self._may_shrink = float("-inf")

    @property
    def at_once(self) -> int:
        return int(self._limit)

    def observe(self, service_s: float, *, was_full: bool) -> None:
        """Record how long one took from admission, without stalls, and whether as many as allowed were running."""
        now = self._clock()
        if service_s > self._target_s:
            # Those that ran beside this one were let in under the same limit: their lateness is no further evidence.
            if now >= self._may_shrink:
                self._limit = max(self._limit * DECREASE, self._least)
                self._may_shrink = now + service_s
        elif was_full:
            # One more slot for as many completions as there are slots, which is TCP's growth by one each round trip.
            self._limit = min(self._limit + 1.0 / self._limit, self._most)


Limit = FixedLimit | AdaptiveLimit


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long one may wait for its slot, in seconds, and how many may wait at a time."""

    max_wait_s: float
    max_waiting: int


UNBOUNDED = Bounds(math.inf, 1_000_000)


@dataclass(slots=True)
class AdmittedSlot:
    """The place of one call. Work that was cut short is not typical: its short time does not show that more fit."""

    is_typical: bool = True


class Admission:
    """The slots of one class of work; first come, first served. For one event loop, not for threads."""

    def __init__(self, name: str, limit: Limit, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.limit = limit
        self.running = 0
        self.on_wait: Callable[[float], None] = lambda _seconds: None
        """Called with the seconds that each admitted call had waited."""
        self.on_rejected: Callable[[], None] = lambda: None
        self._bounds = bounds
        self._clock = clock
        self._queue: deque[asyncio.Future[None]] = deque()
        self._mean_s = 0.0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[AdmittedSlot]:
        """Hold a slot for the time of the block. Raises: OverloadedError; then nothing was begun."""
        began = self._clock()
        if self._is_free:
            await self._enter()
        elif self.waiting >= self._bounds.max_waiting:
            raise self._rejection()
        else:
            try:
                with child_span(f"{self.name}.wait"):
                    await Deadline.after(self._bounds.max_wait_s, self._clock).bound(self.name, self._enter())
            except BackendTimeoutError:
                raise self._rejection() from None
        self.on_wait(self._clock() - began)
        async with self._occupied() as slot:
            yield slot

    @asynccontextmanager
    async def admitted_in_turn(self) -> AsyncIterator[None]:
        """As `admitted`, without bounds of the queue: for background work, or work that comes as fast as it ends."""
        await self._enter()
        async with self._occupied():
            yield

    @property
    def _is_free(self) -> bool:
        # A free slot belongs to those who wait: none overtakes them.
        return self.running < self.limit.at_once and not self._queue

    async def _enter(self) -> None:
        """Take a slot. One that is cancelled with the slot in its hand passes it on."""
        if self._is_free:
            self.running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # The slot was passed on in the moment of the cancellation: without this it would be lost for good.
            if turn.done() and not turn.cancelled():
                self._leave()
            else:
                with suppress(ValueError):
                    self._queue.remove(turn)
            raise

    @asynccontextmanager
    async def _occupied(self) -> AsyncIterator[AdmittedSlot]:
        lost = stalls()
        began, lost_before_s = self._clock(), lost.lost_s
        # Where slots were free, a short service time does not show that more calls would fit.
        was_full = self.running >= self.limit.at_once
        slot = AdmittedSlot()
        try:
            with lost.watched():
                yield slot
                service_s = self._clock() - began - (lost.lost_s - lost_before_s)
                # Not in `finally`: work that failed or was cancelled says nothing of how long work takes.
                self._mean_s += (service_s - self._mean_s) * (SMOOTHING if self._mean_s else 1.0)
                self.limit.observe(service_s, was_full=was_full and slot.is_typical)
        finally:
            self._leave()

    def _leave(self) -> None:
        self.running -= 1
        # A loop, not one: the limit may have grown. Those that were cancelled in the queue are passed over.
        while self._queue and self.running < self.limit.at_once:
            turn = self._queue.popleft()
            if not turn.done():
                self.running += 1
                turn.set_result(None)

    def _rejection(self) -> OverloadedError:
        self.on_rejected()
        drained_s = self.waiting * self._mean_s / max(self.limit.at_once, 1)
        return OverloadedError(
            self.name,
            f"Too many {self.name} at once: retry in some seconds",
            retry_after_s=float(max(math.ceil(drained_s), 1)),
        )


@dataclass(frozen=True, slots=True)
class Admissions:
    """The classes of work: searches that a caller waits for, and storing or embedding for later."""

    searches: Admission
    writes: Admission

    @classmethod
    def unlimited(cls) -> "Admissions":
        """Everything at once, where nothing else shares the process."""
        limit = FixedLimit(1_000_000)
        return cls(Admission("searches", limit, UNBOUNDED), Admission("writes", limit, UNBOUNDED))


class Computing:
    """Threads that compute in Python: one for short pieces of work and one for long ones, each in turn.

    More of them would not be faster, because they share the interpreter's lock; but whatever else needs it, every
    search above all, would wait for each of them whenever it passes from one thread to another. For one event loop.
    """

    def __init__(self) -> None:
        self._short, self._long = asyncio.Lock(), asyncio.Lock()

    async def run(self, work: Callable[[], T], *, chars: int) -> T:
        """The result of `work`, which takes as long as so many characters of text need."""
        async with self._short if chars <= LONG_CHARS else self._long:
            return await asyncio.to_thread(work)

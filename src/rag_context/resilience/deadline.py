"""Deadlines: the moment that every step of a search measures itself against, put off by what the event loop loses.

The loop loses time while the process is stopped, throttled, collecting garbage or blocked. A beat is due every 20 ms
while a call waits for something. A late beat shows for how long nothing could run, whatever the reason, without any
call of the operating system. Lateness that busy loops always have is tolerated. A deadline adds the lost time to its
own, so that a backend is never called down because this process was late.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from rag_context.errors import BackendTimeoutError

BEAT_S = 0.02
TOLERATED_S = 0.03
"""A beat that is less late than this lost nothing."""

_NEVER = float("inf")


class Stalls:
    """Adds up what one event loop lost while it was watched; `call_later` is that of the loop."""

    def __init__(
        self, call_later: Callable[[float, Callable[[], None]], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._call_later = call_later
        self._clock = clock
        self._lost_s = 0.0
        self._due = _NEVER
        self._watchers = 0

    @property
    def lost_s(self) -> float:
        """Seconds lost so far. After a stall it is right at once, before the late beat itself has run."""
        late = self._clock() - self._due
        return self._lost_s + late if late > TOLERATED_S else self._lost_s

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Beat for the time of the block; without watchers the loop may sleep."""
        self._watchers += 1
        # A beat that is still due goes on: a second chain of beats would count each stall twice.
        if self._due == _NEVER:
            self._schedule()
        try:
            yield
        finally:
            self._watchers -= 1

    def _beat(self) -> None:
        self._lost_s = self.lost_s
        if self._watchers:
            self._schedule()
        else:
            self._due = _NEVER

    def _schedule(self) -> None:
        self._due = self._clock() + BEAT_S
        self._call_later(BEAT_S, self._beat)


# Weak, because a process may run many loops one after the other.
_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Stalls] = WeakKeyDictionary()


def stalls() -> Stalls:
    """Those of the running loop: losing time is a property of a loop, as its clock is. Raises: RuntimeError."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Stalls(loop.call_later)
    return found


T = TypeVar("T")

_applied: "ContextVar[Deadline | None]" = ContextVar("deadline", default=None)

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
        lost = stalls()
        return cls(clock() + seconds, clock, lost, lost.lost_s)

    def sooner(self, seconds: float) -> "Deadline":
        return Deadline(self.at - seconds, self.clock, self._stalls, self._lost_before_s)

    @property
    def remaining_s(self) -> float:
        return max(self.at + self._stalls.lost_s - self._lost_before_s - self.clock(), 0.0)

    @contextmanager
    def applied(self) -> "Iterator[Deadline]":
        """Calls of guarded ports in the block, and in tasks that begin there, end by this deadline at the latest."""
        # The sooner of both: no callee has more time than its caller.
        before = _applied.get()
        token = _applied.set(self if before is None or self.remaining_s <= before.remaining_s else before)
        try:
            yield self
        finally:
            _applied.reset(token)

    async def bound(self, component: str, work: Awaitable[T]) -> T:
        """Await `work` until the deadline. Raises: BackendTimeoutError naming `component`."""
        lost_s = self._stalls.lost_s
        left_s = max(self.at + lost_s - self._lost_before_s - self.clock(), 0.0)
        timers: list[asyncio.TimerHandle] = []
        try:
            with self._stalls.watched():
                async with asyncio.timeout(None) as limit:
                    self._end_later(left_s, limit, lost_s, timers)
                    return await work
        except TimeoutError as error:
            raise BackendTimeoutError(component, f"the {component} did not answer in time") from error
        finally:
            # Also what keeps the results of `work` alive: a timer that is due later refers to its task.
            for timer in timers:
                timer.cancel()

    def _end_later(
        self, left_s: float, limit: asyncio.Timeout, lost_s: float, timers: list[asyncio.TimerHandle]
    ) -> None:
        """End `limit` in so many seconds, and later by what is lost until then beyond `lost_s`."""
        timers[:] = [asyncio.get_running_loop().call_later(left_s, self._end, limit, lost_s, timers)]

    def _end(self, limit: asyncio.Timeout, lost_s: float, timers: list[asyncio.TimerHandle]) -> None:
        # The timer went on while the process did not: what was lost since it was set is waited for again.
        now_lost_s = self._stalls.lost_s
        if now_lost_s - lost_s > _SLACK_S:
            self._end_later(now_lost_s - lost_s, limit, now_lost_s, timers)
        else:
            limit.reschedule(asyncio.get_running_loop().time())


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; returns False if it is not set within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def call_deadline(timeout_s: float, clock: Callable[[], float]) -> Deadline:
    """The deadline of a call that begins now: after its timeout, or sooner where a sooner one is applied."""
    applied = _applied.get()
    if applied is not None and applied.remaining_s < timeout_s:
        return applied
    return Deadline.after(timeout_s, clock)


_CANCEL_AGAIN_S = 0.2


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait for their end, whatever that is."""
    # Until Python 3.12 `asyncio.wait_for`, which drivers use, can lose a cancellation; so it is repeated.
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_CANCEL_AGAIN_S)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """Run these until one fails or this is cancelled; then all are ended. Raises: what one of them raised.

    `asyncio.TaskGroup` cancels each of them once, and waits for ever for one that loses its cancellation.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        while not all(task.done() for task in tasks):
            with suppress(asyncio.CancelledError):  # the caller repeats it, too
                await ended(*tasks)

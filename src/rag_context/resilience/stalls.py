"""Time that the event loop lost: the process was stopped, throttled, collecting garbage or blocked, and nothing ran.

A beat is due every 20 ms while a call waits for something. A late beat shows for how long nothing could run,
whatever the reason, without any call of the operating system. Lateness that busy loops always have is
tolerated. A deadline adds the lost time to its own, so that a backend is never called down
because this process was late.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

BEAT_S = 0.02
TOLERATED_S = 0.03
"""A beat that is less late than this lost nothing."""

_NEVER = float("inf")


class Stalls:
    """Adds up what one event loop lost while it was watched.

    Args:
        call_later: runs a function so many seconds from now, as a loop's does.
        clock: monotonic seconds.
    """

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
        return self._lost_s + self._overdue_s()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Beat for the time of the block; without watchers the loop may sleep."""
        self._watchers += 1
        if self._due == _NEVER:
            self._schedule()
        try:
            yield
        finally:
            self._watchers -= 1

    def _beat(self) -> None:
        self._lost_s += self._overdue_s()
        if self._watchers:
            self._schedule()
        else:
            self._due = _NEVER

    def _schedule(self) -> None:
        self._due = self._clock() + BEAT_S
        self._call_later(BEAT_S, self._beat)

    def _overdue_s(self) -> float:
        late = self._clock() - self._due
        return late if late > TOLERATED_S else 0.0


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Stalls] = WeakKeyDictionary()


def stalls() -> Stalls:
    """Those of the running loop: losing time is a property of a loop, as its clock is. Raises: RuntimeError."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Stalls(loop.call_later)
    return found

"""Threads that compute in Python: one for short pieces of work and one for long ones, each in turn.

More of them would not be faster, because they share the interpreter's lock; but whatever else needs it, every search
above all, would wait for each of them whenever it passes from one thread to another.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

LONG_CHARS = 100_000
"""Most characters of one call of `index`; it waits for no larger text, which takes seconds."""

T = TypeVar("T")


class Computing:
    """Runs what computes in threads, so that the event loop does not wait for it. For one event loop."""

    def __init__(self) -> None:
        self._short, self._long = asyncio.Lock(), asyncio.Lock()

    async def run(self, work: Callable[[], T], *, chars: int) -> T:
        """The result of `work`, which takes as long as so many characters of text need."""
        async with self._short if chars <= LONG_CHARS else self._long:
            return await asyncio.to_thread(work)

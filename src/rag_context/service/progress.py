"""Progress from work that tells it in passing to a listener that must be awaited."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

OnProgress = Callable[[int, int], Awaitable[None]]
"""Told how much is done, and of how much."""


@asynccontextmanager
async def relayed(listener: OnProgress) -> AsyncIterator[Callable[[int, int], None]]:
    """Gives what is to be told how far the work is; the listener hears the newest of it, at its own pace.

    What it raises ends the listening and not the work.
    """
    latest: list[tuple[int, int]] = []
    told = asyncio.Event()

    async def relay() -> None:
        while True:
            await told.wait()
            told.clear()
            await listener(*latest[-1])
            del latest[:-1]

    def note(done: int, total: int) -> None:
        latest.append((done, total))
        told.set()

    task = asyncio.create_task(relay(), name="progress")
    try:
        yield note
    finally:
        task.cancel()
        await asyncio.wait({task})

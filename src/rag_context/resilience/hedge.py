"""Two ways to the same answer: the second is tried where the first has failed, or is late; the sooner one counts."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from rag_context.errors import BackendError

T = TypeVar("T")


async def hedged(first: Callable[[], Awaitable[T]], second: Callable[[], Awaitable[T]], after_s: float) -> T:
    """What `first` gives; not there after so many seconds, what the sooner of both gives.

    Raises:
        BackendError: of the second, where both failed.
    """
    tasks = [asyncio.ensure_future(first())]
    try:
        await asyncio.wait(tasks, timeout=after_s)
        if _good(tasks):
            return tasks[0].result()
        tasks.append(asyncio.ensure_future(second()))
        running = {task for task in tasks if not task.done()}
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if good := _good(done):
                return good[0].result()
        return tasks[-1].result()
    finally:
        for task in tasks:
            task.cancel()
            if task.done() and not task.cancelled():
                task.exception()  # seen: asyncio need not complain of it


def _good(tasks: "Iterable[asyncio.Future[T]]") -> "list[asyncio.Future[T]]":
    """Those that are done and did not fail as backends do; a bug is a result too."""
    return [task for task in tasks if task.done() and not isinstance(task.exception(), BackendError)]

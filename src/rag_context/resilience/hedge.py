"""Hedged calls: a second way to the same result starts where the first has failed or is late; the faster one wins."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from rag_context.errors import BackendError

T = TypeVar("T")


async def hedged(first: Callable[[], Awaitable[T]], second: Callable[[], Awaitable[T]], after_s: float) -> T:
    """The result of `first`; after so many seconds without one, the result of the faster of both.

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
                task.exception()  # read, so that asyncio does not log it as never retrieved


def _good(tasks: "Iterable[asyncio.Future[T]]") -> "list[asyncio.Future[T]]":
    """The tasks that ended without a `BackendError`; any other exception is a bug and counts as the result."""
    return [task for task in tasks if task.done() and not isinstance(task.exception(), BackendError)]

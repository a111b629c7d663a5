"""Cancels tasks that use the driver."""

import asyncio
from typing import Any

_AGAIN_S = 0.2


async def ended(task: "asyncio.Task[Any]") -> None:
    """Cancel a task and wait for its end, whatever that is.

    Until Python 3.12 `asyncio.wait_for`, which the driver uses, can lose a cancellation; so it is repeated.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_S)
    if not task.cancelled():
        task.exception()

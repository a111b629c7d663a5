"""Second attempts: retries with backoff, and hedged calls that start a second way to the same result."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from rag_context.errors import BackendError, BackendStartingError, BackendUnavailableError
from rag_context.resilience.breaker import BreakerOpenError

T = TypeVar("T")

TRIES = 3
BASE_S = 0.1
CAP_S = 5.0
RETRY_BUDGET_S = 4.0
"""An attempt that took longer is not retried: a backend that was slow once is probably slow again."""

_backoff = wait_random_exponential(multiplier=BASE_S, max=CAP_S)


async def retrying(work: Callable[[], Awaitable[T]]) -> T:
    """Do `work`, and retry it where the backend did not answer. Raises: the last BackendError.

    Rejected requests, a backend that is still starting, and an open breaker are not retried.
    """
    async for attempt in AsyncRetrying(
        stop=stop_after_attempt(TRIES) | stop_after_delay(RETRY_BUDGET_S),
        wait=_wait,
        retry=retry_if_exception(_worth_retrying),
        reraise=True,
    ):
        with attempt:
            return await work()
    raise AssertionError("tenacity either returns or raises")


def _worth_retrying(error: BaseException) -> bool:
    return isinstance(error, BackendUnavailableError) and not isinstance(error, BackendStartingError | BreakerOpenError)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, BackendUnavailableError) and error.retry_after_s is not None:
        return min(error.retry_after_s, CAP_S)
    return _backoff(state)


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
        # Also at once, without waiting for `after_s`, where the first has failed.
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

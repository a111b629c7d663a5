"""Retries of writes and background work: three attempts, with exponential backoff and jitter, or `Retry-After`."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from rag_context.errors import BackendStartingError, BackendUnavailableError
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

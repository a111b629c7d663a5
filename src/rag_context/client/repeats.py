"""Calls that are repeated: a failed one is tried again, and the answer of a fast search is used again.

A call is tried again where the server did not do it, or where doing it twice does no harm. Answers of `search_fast` are
few, are kept for five minutes, and only those of level 1 are.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from cachetools import TTLCache
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from rag_context.api.search import SearchResponse
from rag_context.client.errors import ServerBusyError, ServerUnreachableError
from rag_context.errors import BackendUnavailableError

FAST_LIMIT = 3
TTL_S = 300.0
CAPACITY = 1000


@dataclass(frozen=True, slots=True)
class Retries:
    """Tries in all, and the bounds of the exponential, jittered waits between them, in seconds."""

    tries: int = 3
    base_s: float = 0.1
    cap_s: float = 5.0

    def loop(self, repeatable: bool, pause: Callable[[float], Awaitable[None]]) -> AsyncRetrying:
        """The tries of a call, with pauses between them."""
        return AsyncRetrying(retry=self._condition(repeatable), sleep=pause, **self._pace)

    def until_available(self) -> AsyncRetrying:
        """The loop for work that no caller waits for: whatever was unavailable is tried again."""
        return AsyncRetrying(retry=retry_if_exception_type(BackendUnavailableError), **self._pace)

    @property
    def _pace(self) -> dict[str, Any]:
        return {"stop": stop_after_attempt(self.tries), "wait": self._wait, "reraise": True}

    def _condition(self, repeatable: bool) -> retry_if_exception:
        def is_worth_repeating(error: BaseException) -> bool:
            match error:
                case ServerBusyError():  # a longer wait is the caller's decision
                    return (error.retry_after_s or 0.0) <= self.cap_s
                case ServerUnreachableError():
                    return repeatable or not error.sent
            return False

        return retry_if_exception(is_worth_repeating)

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, BackendUnavailableError) and error.retry_after_s is not None:
            return min(error.retry_after_s, self.cap_s)
        return wait_random_exponential(multiplier=self.base_s, max=self.cap_s)(state)


class FastAnswers:
    """A bounded cache that threads may share. It holds nothing that a fault made less than it could be."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers: TTLCache[tuple[str, str | None], SearchResponse] = TTLCache(CAPACITY, TTL_S, clock)
        self._lock = Lock()
        self.writes = 0
        """How often something was written: a search that a write overtook is not remembered."""

    def get(self, query: str, about: str | None) -> SearchResponse | None:
        """A copy of what was answered, marked as `cached`."""
        with self._lock:
            answer = self._answers.get((query, about))
        return None if answer is None else answer.model_copy(update={"cached": True}, deep=True)

    def put(self, query: str, about: str | None, answer: SearchResponse, writes: int) -> None:
        """Remember an answer, if it is complete and nothing was written since its question.

        `writes` is what the attribute of that name was before the question.
        """
        if answer.fallback_level == 1 and answer.warning is None:
            with self._lock:  # so that no `clear` comes between the comparison and the entry
                if writes == self.writes:
                    self._answers[query, about] = answer.model_copy(deep=True)

    def clear(self) -> None:
        """Forget everything, because something was written."""
        with self._lock:
            self.writes += 1
            self._answers.clear()

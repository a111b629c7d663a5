"""Answers of `search_fast` that are remembered: few, for five minutes, and only those of level 1."""

import time
from collections.abc import Callable
from threading import Lock

from cachetools import TTLCache

from rag_context.api.search import SearchResponse

FAST_LIMIT = 3
TTL_S = 300.0
CAPACITY = 1000


class FastAnswers:
    """A bounded cache that threads may share. It holds nothing that a fault made less than it could be.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers: TTLCache[tuple[str, str | None], SearchResponse] = TTLCache(CAPACITY, TTL_S, clock)
        self._lock = Lock()
        self.writes = 0
        """How often something was written: a search that a write overtook is not remembered."""

    def get(self, query: str, game: str | None) -> SearchResponse | None:
        """A copy of what was answered, marked as `cached`."""
        with self._lock:
            answer = self._answers.get((query, game))
        return None if answer is None else answer.model_copy(update={"cached": True}, deep=True)

    def put(self, query: str, game: str | None, answer: SearchResponse, writes: int) -> None:
        """Remember an answer, if it is complete and nothing was written since its question.

        `writes` is what the attribute of that name was before the question.
        """
        if answer.fallback_level == 1 and answer.warning is None:
            with self._lock:
                if writes == self.writes:
                    self._answers[query, game] = answer.model_copy(deep=True)

    def clear(self) -> None:
        """Forget everything, because something was written."""
        with self._lock:
            self.writes += 1
            self._answers.clear()

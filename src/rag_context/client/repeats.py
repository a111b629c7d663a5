"""Calls that are repeated: a failed one is tried again, and the answer of a fast search is used again.

A call is tried again where the server did not do it, or where doing it twice does no harm. Answers of `search_fast` are
few, are kept for five minutes, and only those of level 1 are.
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import TypeVar

from rag_context.api.search import SearchResponse
from rag_context.client.errors import ServerBusyError, ServerUnreachableError
from rag_context.errors import BackendUnavailableError

FAST_LIMIT = 3
TTL_S = 300.0
CAPACITY = 1000

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Retries:
    """Tries in all, and the bounds of the exponential, jittered waits between them, in seconds."""

    tries: int = 3
    base_s: float = 0.1
    cap_s: float = 5.0

    async def call(
        self, send: Callable[[], Awaitable[Answer]], repeatable: bool, pause: Callable[[float], Awaitable[None]]
    ) -> Answer:
        def is_worth_repeating(error: BackendUnavailableError) -> bool:
            match error:
                case ServerBusyError():  # a longer wait is the caller's decision
                    return (error.retry_after_s or 0.0) <= self.cap_s
                case ServerUnreachableError():
                    return repeatable or not error.sent
            return False

        return await self._tried(send, is_worth_repeating, pause)

    async def until_available(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Work that no caller waits for: whatever was unavailable is tried again."""
        return await self._tried(work, lambda error: True, asyncio.sleep)

    async def _tried(
        self,
        work: Callable[[], Awaitable[Answer]],
        is_worth_repeating: Callable[[BackendUnavailableError], bool],
        pause: Callable[[float], Awaitable[None]],
    ) -> Answer:
        for tries in count(1):
            try:
                return await work()
            except BackendUnavailableError as error:
                if tries >= self.tries or not is_worth_repeating(error):
                    raise
                await pause(self._wait_s(tries, error))
        raise AssertionError("the last try either returns or raises")

    def _wait_s(self, tries: int, error: BackendUnavailableError) -> float:
        """As the server says, else full jitter: anything up to a bound that doubles with each try."""
        if error.retry_after_s is not None:
            return min(error.retry_after_s, self.cap_s)
        return random.uniform(0.0, min(self.base_s * 2 ** (tries - 1), self.cap_s))  # noqa: S311  (no secret)


class FastAnswers:
    """A bounded cache that threads may share. It holds nothing that a fault made less than it could be."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: OrderedDict[tuple[str, str | None], tuple[float, SearchResponse]] = OrderedDict()
        """The time at which an answer is too old, and the answer; the oldest first."""
        self._lock = Lock()
        self.writes = 0
        """How often something was written: a search that a write overtook is not remembered."""

    def get(self, query: str, about: str | None) -> SearchResponse | None:
        with self._lock:
            until, answer = self._answers.get((query, about), (0.0, None))
        if answer is None or self._clock() >= until:
            return None
        return answer.model_copy(update={"cached": True}, deep=True)

    def put(self, query: str, about: str | None, answer: SearchResponse, writes: int) -> None:
        """Remember an answer, if it is complete and nothing was written since its question.

        `writes` is what the attribute of that name was before the question.
        """
        if answer.fallback_level == 1 and answer.warning is None:
            with self._lock:  # so that no `clear` comes between the comparison and the entry
                if writes == self.writes:
                    self._answers.pop((query, about), None)
                    self._answers[query, about] = self._clock() + TTL_S, answer.model_copy(deep=True)
                    if len(self._answers) > CAPACITY:
                        self._answers.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self.writes += 1
            self._answers.clear()

"""Remembered answers: only whole ones of level 1, only while the index is as it was."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace

from cachetools import TTLCache

from rag_context.search.query import Answer, LegStatus, Level, Query


class ResultCache:
    """The least recently used answers go first; each lives for `ttl_s` seconds at most.

    Args:
        size: answers kept; 0 keeps none.
        ttl_s: seconds an answer lives.
        clock: monotonic seconds.
    """

    def __init__(self, size: int, ttl_s: float, clock: Callable[[], float]) -> None:
        self._answers: TTLCache[str, Answer] = TTLCache(size, ttl_s, timer=clock)
        self.hits = 0
        self.misses = 0

    def get(self, query: Query, version: int) -> Answer | None:
        """The answer to this query on this version of the index, marked as cached."""
        answer = self._answers.get(_key(query, version))
        if answer is None:
            self.misses += 1
            return None
        self.hits += 1
        return replace(answer, cached=True)

    def put(self, query: Query, version: int, answer: Answer) -> None:
        """Remember an answer if it is a whole one."""
        whole = answer.level is Level.PRIMARY and all(leg.status is LegStatus.OK for leg in answer.legs.values())
        if whole and not answer.breaker_open and self._answers.maxsize > 0:
            self._answers[_key(query, version)] = answer


def _key(query: Query, version: int) -> str:
    """SHA-256 of all that an answer depends on: query, filters, tenant and the index's version."""
    said = json.dumps([asdict(query), version], default=str, sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()

"""Shared by the stores on MongoDB and PostgreSQL: background work, and statistics of terms."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from rag_context.domain.text import PROSE, bm25, conversation_bm25, idf_share, inverse_document_frequency, profile_for
from rag_context.errors import BackendError

INTERVAL_S = 0.25
LONGEST_INTERVAL_S = 4.0
"""After failures the pauses between rounds double up to this."""

MOST_PER_TERM = PROSE.k1 + 1.0
"""A term adds at most so many times its weight to a score: the limit of BM25's saturation."""

TOLERATED_DRIFT = 100
"""A term is counted again once one in this many of its chunks may have been added or removed."""

Floats: TypeAlias = NDArray[np.float64]

logger = logging.getLogger(__name__)


def log_failure(
    message: str = "an abandoned call failed", level: int = logging.DEBUG
) -> Callable[["asyncio.Task[Any]"], None]:
    """A callback that reads the exception of a task, whose caller may have been cancelled, and logs it."""

    def log(task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.log(level, "%s: %s", message, error)

    return log


def start_rounds(do_round: Callable[[float], Awaitable[None]], server: str) -> "asyncio.Task[None]":
    """A task that calls `do_round` (with monotonic seconds) every quarter of a second, and less often while it fails.

    An outage, which is a round that raises `BackendError`, is logged when it begins and when it is over.
    """
    task = asyncio.create_task(_rounds(do_round, server), name=f"maintenance of {server}")
    task.add_done_callback(_log_crash)
    return task


async def _rounds(do_round: Callable[[float], Awaitable[None]], server: str) -> None:
    pause_s, has_failed = INTERVAL_S, False
    while True:
        try:
            await do_round(time.monotonic())
        # Anything else is a bug, which ends the task: `_log_crash` reports it.
        except BackendError as error:
            if not has_failed:
                logger.warning("%s", error)
            pause_s, has_failed = min(2 * pause_s, LONGEST_INTERVAL_S), True
        else:
            if has_failed:
                logger.warning("%s can be used again", server)
            pause_s, has_failed = INTERVAL_S, False
        await asyncio.sleep(pause_s)


def _log_crash(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("background task %s crashed", task.get_name(), exc_info=error)


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """What a set of texts knows of the distinct terms of a query. Arrays are `(t,)`."""

    frequencies: Sequence[int]
    idf: Floats
    weights: Floats
    average_length: float

    @classmethod
    def of(
        cls, counts: Sequence[int], frequencies: Sequence[int], texts: int, average_length: float
    ) -> "TermStatistics":
        # Frequencies may be a little too high, because they are cached.
        idf = np.array([inverse_document_frequency(texts, min(frequency, texts)) for frequency in frequencies])
        return cls(frequencies, idf, idf * np.array(counts, dtype=np.float64), average_length)

    def scores(
        self, counts: Sequence[Sequence[float]], lengths: Sequence[int], content_types: Sequence[str]
    ) -> tuple[Floats, Floats]:
        """BM25 and the share of the idf mass of texts, `(n,)` each; `counts` is how often each holds each term."""
        table = np.array(counts, dtype=np.float64).reshape(len(counts), len(self.frequencies))
        profiles = [profile_for(content_type, self.average_length) for content_type in content_types]
        scores = bm25(
            table,
            np.array(lengths, dtype=np.float64),
            self.weights,
            np.array([profile.k1 for profile in profiles]),
            np.array([profile.b for profile in profiles]),
            self.average_length,
        )
        return scores, idf_share(table, self.idf)

    def conversations(self, said: Iterable[tuple[str, float, Sequence[float]]]) -> dict[str, float]:
        """`text.conversation_bm25` by conversation, of the length of each message and how often it holds each term."""
        sums: dict[str, Floats] = {}
        for thread, length, counts in said:
            row = np.array([length, *counts], dtype=np.float64)
            sums[thread] = sums[thread] + row if thread in sums else row
        table = np.array(list(sums.values())).reshape(len(sums), len(self.frequencies) + 1)
        return dict(zip(sums, conversation_bm25(table[:, 1:], table[:, 0], self.weights).tolist(), strict=True))


class FrequencyCache:
    """In how many chunks of a tenant terms occur, as long as that is off by one in a hundred at most."""

    def __init__(self, size: int) -> None:
        self._cached: LRUCache[tuple[Hashable, Hashable], tuple[int, int]] = LRUCache(size)

    def get(self, tenant: Hashable, term: Hashable, turnover: int) -> int | None:
        """The frequency of a term; None where it must be counted.

        `turnover`, of all chunks ever added to and removed from the tenant, grows with every change of a frequency.
        """
        frequency, at_turnover = self._cached.get((tenant, term), (0, None))
        if at_turnover is None or TOLERATED_DRIFT * abs(turnover - at_turnover) > frequency:
            return None
        return frequency

    def put(self, tenant: Hashable, term: Hashable, turnover: int, frequency: int) -> None:
        """Cache a frequency that was counted at this turnover or later."""
        self._cached[tenant, term] = (frequency, turnover)

"""How much of what a filter lets through has vectors: what an answer must say of itself where some are missing.

Counting costs little while few documents wait for their vectors, and more the more of them do. A count stands while
the index does not change; while it does (documents come in, vectors follow), counting again takes a twentieth of the
time at most, so that no search waits for the label of another.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from cachetools import LRUCache

from rag_context.domain.documents import Missing
from rag_context.domain.search import Filter
from rag_context.errors import BackendError
from rag_context.ports.reading import DocumentStore

logger = logging.getLogger(__name__)

NEGLIGIBLE = 0.01
"""An answer is whole where no more than this share of the vectors is missing."""

COUNTING_SHARE = 0.05
"""Most of the time that is spent on counting one filter's vectors while the index keeps changing."""

REMEMBERED = 1000
"""Filters whose counts are kept."""


@dataclass(slots=True)
class _Count:
    missing: Missing
    version: int
    stands_until: float
    """However much the index changes, it is not counted again before (by the clock)."""


class Coverage:
    """Counts missing vectors, and remembers the counts.

    Args:
        documents: counts; guarded.
        clock: monotonic seconds.
    """

    def __init__(self, documents: DocumentStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._documents = documents
        self._clock = clock
        self._counts: LRUCache[Filter, _Count] = LRUCache(REMEMBERED)

    async def missing(self, where: Filter) -> Missing:
        """What is missing of what `where` lets through; where it cannot be counted now, what was counted last."""
        version = self._documents.version  # read before counting: what changes meanwhile is counted again
        known = self._counts.get(where)
        began = self._clock()
        if known is not None and (known.version == version or began < known.stands_until):
            return known.missing
        if known is not None:
            known.stands_until = math.inf  # no other call counts the same meanwhile
        try:
            missing = await self._documents.missing_vectors(where)
        except BackendError as error:
            logger.debug("missing vectors could not be counted: %s", error)
            return known.missing if known is not None else Missing()
        finally:
            if known is not None:
                known.stands_until = -math.inf
        ended = self._clock()
        self._counts[where] = _Count(missing, version, ended + (ended - began) * (1.0 / COUNTING_SHARE - 1.0))
        return missing


def matters(missing: Missing) -> bool:
    """Whether so much is missing that an answer is not a whole one."""
    return missing.vectors > NEGLIGIBLE * missing.passages


def described(missing: Missing) -> str:
    """What is missing, as a warning."""
    return (
        f"{missing.vectors} of {missing.passages} passages have no vectors yet and are ranked by keyword search alone"
    )

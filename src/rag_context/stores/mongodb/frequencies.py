"""How many chunks contain a term: counted in an index, and cached while that is close enough."""

import asyncio
from collections.abc import Sequence

from cachetools import LRUCache

from rag_context.stores.mongodb.connection import Collection
from rag_context.stores.mongodb.state import Snapshot

REMEMBERED = 16_384
TOLERATED_DRIFT = 100
"""A term is counted again once more than one in this many of its chunks may have been added or deleted."""

AT_ONCE = 8
"""Terms that one query counts at the same time."""


class Frequencies:
    """What is known of terms. Counts are those of all tenants, so that scores are comparable between them.

    Args:
        chunks: the collection of chunks.
    """

    def __init__(self, chunks: Collection) -> None:
        self._chunks = chunks
        self._known: LRUCache[tuple[str, str], tuple[int, int]] = LRUCache(REMEMBERED)

    async def of(self, terms: Sequence[str], seen: Snapshot) -> list[int]:
        """How many chunks hold each of the distinct `terms`."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def counted(term: str) -> int:
            remembered = self._remembered(term, seen)
            if remembered is not None:
                return remembered
            async with limit:
                count = await self._chunks.count_documents({"terms": term})
            self._known[seen.name, term] = (count, seen.turnover)
            return count

        return list(await asyncio.gather(*map(counted, terms)))

    def _remembered(self, term: str, seen: Snapshot) -> int | None:
        """A count that is off by little at most: the turnover grows with every chunk that comes or goes."""
        remembered = self._known.get((seen.name, term))
        if remembered is None:
            return None
        count, turnover = remembered
        return count if abs(seen.turnover - turnover) * TOLERATED_DRIFT <= count else None

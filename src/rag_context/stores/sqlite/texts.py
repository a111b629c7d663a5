"""`KeywordIndex` over the embedded file: exact BM25 of every chunk, from the terms in memory."""

import threading
from collections.abc import Sequence

from cachetools import LRUCache

from rag_context.domain.search import ChunkRef, Filter, KeywordHit
from rag_context.stores.sqlite.memory.following import Memory
from rag_context.stores.sqlite.memory.index import MemoryIndex
from rag_context.stores.sqlite.memory.scoring import KeywordScores, QueryTerms

SCORED_BYTES = 64 * 1024 * 1024
"""Scores of queries that are kept: one search reads them several times."""


class SqliteTexts:
    """`KeywordIndex` over the embedded file.

    Args:
        memory: its chunks in memory.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._scored: LRUCache[str, KeywordScores] = LRUCache(SCORED_BYTES, getsizeof=lambda scores: scores.size)
        self._lock = threading.Lock()

    async def search(self, query: str, *, limit: int, where: Filter) -> list[KeywordHit]:
        """The chunks that hold the query's terms best, best first, equal ones by chunk id.

        Raises:
            BackendError: the file could not be read.
        """
        if limit < 1 or not QueryTerms.of(query).terms:
            return []
        return await self._memory.read(
            lambda index, _connection: self.hits(query, limit, where, index), needs_vectors=False
        )

    async def score(self, query: str, chunks: Sequence[ChunkRef]) -> dict[str, KeywordHit]:
        """Text scores of the given chunks, matching or not; unknown ones are left out.

        Raises:
            BackendError: the file could not be read.
        """
        if not chunks:
            return {}
        return await self._memory.read(
            lambda index, _connection: self.scores([chunk.id for chunk in chunks], query, index), needs_vectors=False
        )

    def hits(self, query: str, limit: int, where: Filter, index: MemoryIndex) -> list[KeywordHit]:
        """As `search`, in a reading thread."""
        return index.keyword_hits(self._scores(query, index), limit, where)

    def scores(self, ids: Sequence[str], query: str, index: MemoryIndex) -> dict[str, KeywordHit]:
        """As `score`, in a reading thread."""
        return index.keyword_scores_of(self._scores(query, index), ids)

    def _scores(self, query: str, index: MemoryIndex) -> KeywordScores:
        with self._lock:
            known = self._scored.get(query)
        if known is not None and known.changes == index.changes:
            return known
        scores = index.keyword_scores(QueryTerms.of(query))
        with self._lock:
            self._scored[query] = scores
        return scores

"""What a search reads beside its hits: scores, neighbours and passages, and how many vectors are missing.

Ranking reads from one snapshot in one call, or from several stores side by side. An answer must say of itself where
vectors are missing (`Coverage`).
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
from cachetools import LRUCache

from rag_context.domain.documents import Missing
from rag_context.domain.search import ChunkRef, Filter, KeywordHit, Neighbours, Passage, RawScores, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError
from rag_context.ports.reading import DocumentStore, Snapshot
from rag_context.resilience.deadline import Deadline
from rag_context.search.query import Query
from rag_context.search.question_rules import standing_request
from rag_context.search.ranking import Candidates
from rag_context.search.retrievers import Backends, spread_hits

logger = logging.getLogger(__name__)

T = TypeVar("T")
About = TypeVar("About", str, ChunkRef)

RANKING_SHARE = 1.0 / 3.0
"""Share of the time left that the missing scores and neighbours may take: without them there is an answer still."""

NEGLIGIBLE = 0.01
"""An answer has no warning where no more than this share of the vectors is missing."""

TOLERABLE = 0.05
"""An answer is of level 1 where no more than this share of the vectors is missing."""

VECTORS_LOST = "Vectors were lost and are computed again: passages without one are ranked by keyword search alone"

COUNTING_SHARE = 0.05
"""Most of the time that is spent on counting one filter's vectors while the index keeps changing."""

REMEMBERED = 1000


class SnapshotReads:
    """What ranking reads of one snapshot, in its own thread: no call waits, and none of them fails by itself."""

    def __init__(self, snapshot: Snapshot, query: Query, vector: Vector | None) -> None:
        self.failure: BackendError | None = None
        self._snapshot = snapshot
        self._query = query
        self._vector = vector

    async def vector_hits(self, vector: Vector) -> Sequence[VectorHit]:
        async def search(limit: int, where: Filter) -> Sequence[VectorHit]:
            return self._snapshot.vector_hits(vector, limit, where)

        return await spread_hits(search, self._query)

    def standing(self, vector: Vector) -> Sequence[VectorHit]:
        """The nearest standing instructions; none where they are not part of this answer."""
        request = standing_request(self._query)
        return () if request is None else self._snapshot.vector_hits(vector, *request)

    async def keyword_hits(self) -> Sequence[KeywordHit]:
        async def search(limit: int, where: Filter) -> Sequence[KeywordHit]:
            return self._snapshot.keyword_hits(self._query.text, limit, where)

        return await spread_hits(search, self._query)

    async def scores(self, chunks: Candidates) -> RawScores:
        """Both scores of chunks, of which some are known: no keyword score is missing, nor any cosine that there is."""
        known = chunks.scores
        ids = [chunk.id for chunk in chunks.chunks]
        now = self._snapshot.scores(self._query.text, self._vector, ids, self._query.where.tenant)
        if not np.isnan(now.bm25).any():
            return now
        return RawScores(  # a chunk that was deleted since it was found keeps what is known of it
            np.where(np.isnan(now.cosines), known.cosines, now.cosines),
            np.where(np.isnan(now.bm25), np.nan_to_num(known.bm25), now.bm25),
            np.where(np.isnan(now.shares), np.nan_to_num(known.shares), now.shares),
        )

    async def neighbours(self, chunk_ids: Sequence[str]) -> Mapping[str, Neighbours]:
        return self._snapshot.neighbours(chunk_ids)

    async def conversations(self, threads: Sequence[str]) -> Mapping[str, float]:
        return self._snapshot.conversations(self._query.text, threads, self._query.where.tenant)

    async def passages(self, chunk_ids: Sequence[str]) -> Mapping[str, Passage]:
        return self._snapshot.passages(chunk_ids)


class StoreReads:
    """The same of several stores: scores at the same time from two, until one of them fails.

    `vector` is None where vectors are not part of this answer; `has_texts` says whether the documents have answered.
    """

    def __init__(
        self, sources: Backends, query: Query, vector: Vector | None, deadline: Deadline, *, has_texts: bool
    ) -> None:
        self.failure: BackendError | None = None
        """Why some of it is missing; None if nothing is."""
        self._sources = sources
        self._query = query
        self._vector = vector
        self._deadline = deadline
        self._for_ranking = deadline.sooner((1.0 - RANKING_SHARE) * deadline.remaining_s)
        self._has_texts = has_texts

    async def scores(self, chunks: Candidates) -> RawScores:
        known = chunks.scores
        unscored = np.flatnonzero(np.isnan(known.cosines)).tolist() if self._vector is not None else []
        without_cosine = [chunks.chunks[row].id for row in unscored]
        without_text = [chunks.chunks[row] for row in np.flatnonzero(np.isnan(known.bm25)).tolist()]
        # One wait instead of two where both stores have scores to return.
        if without_cosine and without_text:
            cosines, texts = await asyncio.gather(self._cosines(without_cosine), self._texts(without_text))
        else:
            cosines, texts = await self._cosines(without_cosine), await self._texts(without_text)
        scores = RawScores(known.cosines.copy(), np.nan_to_num(known.bm25), np.nan_to_num(known.shares))
        # What was not found or not in time stays: no cosine, and a keyword score of 0.
        for row, chunk in enumerate(chunks.chunks):
            if chunk.id in cosines:
                scores.cosines[row] = cosines[chunk.id]
            if chunk.id in texts:
                scores.bm25[row], scores.shares[row] = texts[chunk.id].bm25, texts[chunk.id].share
        return scores

    async def neighbours(self, chunk_ids: Sequence[str]) -> Mapping[str, Neighbours]:
        return await self._read(self._sources.documents.neighbours, chunk_ids)

    async def conversations(self, threads: Sequence[str]) -> Mapping[str, float]:
        texts, query = self._sources.texts, self._query
        return await self._read(partial(texts.conversations, query.text, tenant=query.where.tenant), threads)

    async def passages(self, chunk_ids: Sequence[str]) -> Mapping[str, Passage]:
        """From the document store, or the vector store's copies where that is late and vectors are in use."""
        from_documents = partial(self._sources.documents.passages, chunk_ids)
        from_vectors = partial(self._sources.vectors.passages, chunk_ids)
        with self._deadline.applied():
            if self._vector is None:
                return await from_documents()
            if not self._has_texts:
                return await from_vectors()
            # The vector store has copies of the passages: the second way where the documents are late.
            return await hedged(from_documents, from_vectors, self._deadline.remaining_s / 2.0)

    async def _cosines(self, ids: Sequence[str]) -> Mapping[str, float]:
        vector = self._vector
        return {} if vector is None else await self._read(partial(self._sources.vectors.score, vector), ids)

    async def _texts(self, chunks: Sequence[ChunkRef]) -> Mapping[str, KeywordHit]:
        score = partial(self._sources.texts.score, self._query.text, tenant=self._query.where.tenant)
        return await self._read(score, chunks)

    async def _read(
        self, read: Callable[[Sequence[About]], Awaitable[Mapping[str, T]]], about: Sequence[About]
    ) -> Mapping[str, T]:
        """The result of `read` for these chunks; empty once a read has failed."""
        # After a failure the ranking is inexact anyway; what is left of the time is for the passages.
        if not about or self.failure is not None:
            return {}
        try:
            with self._for_ranking.applied():
                return await read(about)
        except BackendError as error:
            self.failure = error
            return {}


Reads: TypeAlias = SnapshotReads | StoreReads


async def hedged(first: Callable[[], Awaitable[T]], second: Callable[[], Awaitable[T]], after_s: float) -> T:
    """The result of `first`; after so many seconds without one, that of the faster of both. Raises: BackendError."""
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


@dataclass(slots=True)
class _Count:
    missing: Missing
    version: int
    valid_until: float
    """However much the index changes, it is not counted again before (by the clock)."""


@dataclass
class Coverage:
    """Counts how many vectors of what a filter lets through are missing, and remembers the counts.

    A count is valid while the index does not change; while it does (documents come in, vectors follow), counting again
    takes a twentieth of the time at most, so that no search waits for the label of another. That all have come is seen
    at once. `lost` are vectors that are missing from the store beside the documents, for which no document waits.
    """

    documents: DocumentStore
    clock: Callable[[], float] = time.monotonic
    lost: Callable[[], Missing] = Missing
    _counts: LRUCache[Filter, _Count] = field(default_factory=lambda: LRUCache(REMEMBERED))

    async def missing(self, where: Filter) -> Missing:
        """What is missing of what `where` lets through; where it cannot be counted now, what was counted last."""
        if (lost := self.lost()).vectors:
            return lost
        version = self.documents.version
        known = self._counts.get(where)
        if known is None or (known.version != version and self.clock() >= known.valid_until):
            return await self._counted(where)
        if known.missing.vectors and known.version != version and await self._has_all():
            known = self._counts[where] = replace(known, missing=Missing(), version=version)
        return known.missing

    def known(self, where: Filter) -> Missing | None:
        """What is missing, where that needs no call; None otherwise."""
        known = self._counts.get(where)
        if known is None or self.lost().vectors:
            return None
        if known.version == self.documents.version:
            return known.missing
        return None if known.missing.vectors or self.clock() >= known.valid_until else known.missing

    async def _has_all(self) -> bool:
        try:
            return await self.documents.has_all_vectors()
        except BackendError as error:
            logger.debug("whether all vectors have come is not known: %s", error)
            return False

    async def _counted(self, where: Filter) -> Missing:
        version = self.documents.version  # read before counting: what changes meanwhile is counted again
        known = self._counts.get(where)
        began = self.clock()
        if known is not None:
            known.valid_until = math.inf  # no other call counts the same meanwhile
        try:
            missing = await self.documents.missing_vectors(where)
        except BackendError as error:
            logger.debug("missing vectors could not be counted: %s", error)
            return known.missing if known is not None else Missing()
        finally:
            if known is not None:
                known.valid_until = -math.inf
        ended = self.clock()
        self._counts[where] = _Count(missing, version, ended + (ended - began) * (1.0 / COUNTING_SHARE - 1.0))
        return missing


def matters(missing: Missing) -> bool:
    return missing.vectors > NEGLIGIBLE * missing.passages


def lowers_level(missing: Missing) -> bool:
    return missing.vectors > TOLERABLE * missing.passages


def described(missing: Missing) -> str:
    if missing.of_all:  # how many there are is not for each caller
        return VECTORS_LOST
    return (
        f"{missing.vectors} of {missing.passages} passages have no vectors yet and are ranked by keyword search alone"
    )

"""What ranking reads after retrieval: from one snapshot in one call, or from several stores side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from rag_context.domain.search import ChunkRef, Filter, KeywordHit, Neighbours, Passage, RawScores, VectorHit
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError
from rag_context.ports.reading import Snapshot
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.retry import hedged
from rag_context.search.query import Query
from rag_context.search.ranking import Candidates
from rag_context.search.retrievers import Backends, spread_hits, standing_wanted

T = TypeVar("T")
About = TypeVar("About", str, ChunkRef)

RANKING_SHARE = 1.0 / 3.0
"""Share of the time left that the missing scores and neighbours may take: without them there is an answer still."""


def completed(work: Coroutine[None, None, T]) -> T:
    """The result of a coroutine that never waits, without an event loop: what runs in a reading thread."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a coroutine that must not wait did")


class Reads(Protocol):
    """What ranking reads of the chunks that a search found."""

    @property
    def failure(self) -> BackendError | None:
        """Why some of it is missing; None if nothing is."""
        ...

    async def scores(self, chunks: Candidates) -> RawScores:
        """Both scores of chunks, of which some are known: no keyword score is missing, nor any cosine that there is."""
        ...

    async def neighbours(self, chunk_ids: Sequence[str]) -> Mapping[str, Neighbours]:
        """What stands before and after each chunk."""
        ...

    async def passages(self, chunk_ids: Sequence[str]) -> Mapping[str, Passage]:
        """The chunks themselves; those that were deleted meanwhile are left out. Raises: BackendError."""
        ...


class SnapshotReads:
    """`Reads` of one snapshot, in its own thread: no call waits, and none of them fails by itself.

    Args:
        snapshot: the index.
        query: the query.
        vector: the query's vector; None where vectors are not part of this answer.
    """

    def __init__(self, snapshot: Snapshot, query: Query, vector: Vector | None) -> None:
        self.failure: BackendError | None = None
        self._snapshot = snapshot
        self._query = query
        self._vector = vector

    async def vector_hits(self, vector: Vector) -> Sequence[VectorHit]:
        """The hits of the vector search."""

        async def search(limit: int, where: Filter) -> Sequence[VectorHit]:
            return self._snapshot.vector_hits(vector, limit, where)

        return await spread_hits(search, self._query)

    def standing(self, vector: Vector) -> Sequence[VectorHit]:
        """The nearest standing instructions; none where they are not part of this answer."""
        wanted = standing_wanted(self._query)
        return () if wanted is None else self._snapshot.vector_hits(vector, *wanted)

    async def keyword_hits(self) -> Sequence[KeywordHit]:
        """The hits of the keyword search."""

        async def search(limit: int, where: Filter) -> Sequence[KeywordHit]:
            return self._snapshot.keyword_hits(self._query.text, limit, where)

        return await spread_hits(search, self._query)

    async def scores(self, chunks: Candidates) -> RawScores:
        known = chunks.scores
        now = self._snapshot.scores(self._query.text, self._vector, [chunk.id for chunk in chunks.chunks])
        if not np.isnan(now.bm25).any():
            return now
        return RawScores(  # a chunk that was deleted since it was found keeps what is known of it
            np.where(np.isnan(now.cosines), known.cosines, now.cosines),
            np.where(np.isnan(now.bm25), np.nan_to_num(known.bm25), now.bm25),
            np.where(np.isnan(now.shares), np.nan_to_num(known.shares), now.shares),
        )

    async def neighbours(self, chunk_ids: Sequence[str]) -> Mapping[str, Neighbours]:
        return self._snapshot.neighbours(chunk_ids)

    async def passages(self, chunk_ids: Sequence[str]) -> Mapping[str, Passage]:
        return self._snapshot.passages(chunk_ids)


class StoreReads:
    """`Reads` of several stores: scores at the same time from two, until one of them fails.

    Args:
        sources: the ports, guarded.
        query: the query.
        vector: the query's vector; None where vectors are not part of this answer.
        deadline: when the answer must be there; scores and neighbours have a part of the time.
        has_texts: whether the document store has answered this search so far.
    """

    def __init__(
        self, sources: Backends, query: Query, vector: Vector | None, deadline: Deadline, *, has_texts: bool
    ) -> None:
        self.failure: BackendError | None = None
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
        if without_cosine and without_text:
            cosines, texts = await asyncio.gather(self._cosines(without_cosine), self._texts(without_text))
        else:
            cosines, texts = await self._cosines(without_cosine), await self._texts(without_text)
        scores = RawScores(known.cosines.copy(), np.nan_to_num(known.bm25), np.nan_to_num(known.shares))
        for row, chunk in enumerate(chunks.chunks):
            if chunk.id in cosines:
                scores.cosines[row] = cosines[chunk.id]
            if chunk.id in texts:
                scores.bm25[row], scores.shares[row] = texts[chunk.id].bm25, texts[chunk.id].share
        return scores

    async def neighbours(self, chunk_ids: Sequence[str]) -> Mapping[str, Neighbours]:
        return await self._read(self._sources.documents.neighbours, chunk_ids)

    async def passages(self, chunk_ids: Sequence[str]) -> Mapping[str, Passage]:
        """From the document store, or the vector store's copies where that is late and vectors are in use."""
        from_documents = partial(self._sources.documents.passages, chunk_ids)
        from_vectors = partial(self._sources.vectors.passages, chunk_ids)
        with self._deadline.applied():
            if self._vector is None:
                return await from_documents()
            if not self._has_texts:
                return await from_vectors()
            return await hedged(from_documents, from_vectors, self._deadline.remaining_s / 2.0)

    async def _cosines(self, ids: Sequence[str]) -> Mapping[str, float]:
        vector = self._vector
        return {} if vector is None else await self._read(partial(self._sources.vectors.score, vector), ids)

    async def _texts(self, chunks: Sequence[ChunkRef]) -> Mapping[str, KeywordHit]:
        return await self._read(partial(self._sources.texts.score, self._query.text), chunks)

    async def _read(
        self, read: Callable[[Sequence[About]], Awaitable[Mapping[str, T]]], about: Sequence[About]
    ) -> Mapping[str, T]:
        """What `read` says of these chunks; nothing once a read has failed."""
        if not about or self.failure is not None:
            return {}
        try:
            with self._for_ranking.applied():
                return await read(about)
        except BackendError as error:
            self.failure = error
            return {}

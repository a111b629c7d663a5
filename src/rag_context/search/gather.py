"""Between retrieval and ranking: every candidate gets both exact scores, and so do the best ones' neighbours."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from rag_context.domain.search import ChunkRef, KeywordHit, Neighbours, VectorHit
from rag_context.errors import BackendError
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.search.query import Query
from rag_context.search.ranking import Candidate, best_first, fused_scores, presumed_best, spread
from rag_context.search.retrievers import Backends, VectorResults, pool_per_document

T = TypeVar("T")

SHORTLIST_FLOOR = 20
SHORTLIST_PER_RESULT = 3
"""Neighbours are scored for this many of the best: enough that none below could rise into the results."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Candidates with their exact scores, and their neighbours."""

    candidates: Sequence[Candidate]
    neighbours: Mapping[str, Neighbours]
    scored: Mapping[str, Candidate]
    vector_ranks: Mapping[str, int]
    text_ranks: Mapping[str, int]
    failure: BackendError | None = None
    """Why some scores or neighbours are missing, where they are."""


async def gather(
    sources: Backends,
    query: Query,
    vector_results: VectorResults | None,
    text: Sequence[KeywordHit] | None,
    deadline: Deadline,
) -> Gathered:
    """Give every candidate of either retriever both exact scores, and score the neighbours of the best.

    Without a keyword search there is no union and the cosines stand as they are. Scores that are not there by the
    deadline are left out: a less exact ranking is better than none.

    Args:
        sources: the ports.
        query: the query.
        vector_results: the vector search's hits; None where it is not part of this answer.
        text: the keyword search's hits; None where it is not part of this answer.
        deadline: when ranking must begin.
    """
    found: list[VectorHit | KeywordHit] = [*(vector_results.hits if vector_results else ()), *(text or ())]
    refs = {hit.chunk.id: hit.chunk for hit in found}
    cosines = {hit.chunk.id: hit.cosine for hit in vector_results.hits} if vector_results else {}
    raw = _Raw(cosines, {hit.chunk.id: hit for hit in text or ()})
    if text is None:
        return _gathered([_candidate(ref, raw) for ref in refs.values()], {}, {}, vector_results, text)
    exact = _ExactScores(sources, query, vector_results, deadline)
    raw = await exact.complete(raw, refs)
    union = [_candidate(ref, raw) for ref in refs.values()]
    size = max(SHORTLIST_FLOOR, SHORTLIST_PER_RESULT * query.limit)
    first = fused_scores(union, presumed_best(vector_results.calibration if vector_results else None))
    order = (union[i] for i in best_first(union, first))
    spread_out = spread(order, lambda candidate: candidate.chunk.document_id, pool_per_document(query))
    shortlist = list(islice(spread_out, size))
    neighbours = await exact.neighbours(shortlist)
    around = {ref.id: ref for near in neighbours.values() for ref in (near.before, near.after) if ref is not None}
    beyond = {id_: ref for id_, ref in around.items() if id_ not in refs}
    raw = await exact.complete(raw, beyond)
    if exact.failure is not None:  # some candidates would gain from neighbours that are known, others not
        return replace(_gathered(shortlist, {}, {}, vector_results, text), failure=exact.failure)
    scored = {candidate.chunk.id: candidate for candidate in union}
    scored.update((id_, _candidate(ref, raw)) for id_, ref in beyond.items())
    return _gathered(shortlist, neighbours, scored, vector_results, text)


@dataclass(frozen=True, slots=True)
class _Raw:
    """Raw scores by chunk id, exact where they are there."""

    cosines: Mapping[str, float]
    texts: Mapping[str, KeywordHit]


@dataclass(slots=True)
class _ExactScores:
    """Reads the scores that are still missing from both stores, at the same time, until one of them fails."""

    sources: Backends
    query: Query
    vector_results: VectorResults | None
    deadline: Deadline
    failure: BackendError | None = None
    """The first failure; nothing is read after it."""

    async def complete(self, raw: _Raw, refs: Mapping[str, ChunkRef]) -> _Raw:
        """`raw` with the scores of the chunks in `refs` that it does not have."""
        without_cosine = [id_ for id_ in refs if id_ not in raw.cosines] if self.vector_results is not None else []
        without_text = [ref for id_, ref in refs.items() if id_ not in raw.texts]
        if without_cosine and without_text:
            cosines, texts = await asyncio.gather(self._cosines(without_cosine), self._texts(without_text))
        else:
            cosines, texts = await self._cosines(without_cosine), await self._texts(without_text)
        return _Raw({**raw.cosines, **cosines}, {**raw.texts, **texts})

    async def neighbours(self, shortlist: Sequence[Candidate]) -> Mapping[str, Neighbours]:
        """What stands before and after each candidate."""
        ids = [candidate.chunk.id for candidate in shortlist]
        documents = self.sources.documents
        return await self._scores_from(self.sources.document_store, ids, lambda: documents.neighbours(ids))

    async def _cosines(self, ids: Sequence[str]) -> Mapping[str, float]:
        vector_results, vectors = self.vector_results, self.sources.vectors
        if vector_results is None:
            return {}
        return await self._scores_from(
            self.sources.vector_store, ids, lambda: vectors.score(vector_results.vector, ids)
        )

    async def _texts(self, chunks: Sequence[ChunkRef]) -> Mapping[str, KeywordHit]:
        texts = self.sources.texts
        return await self._scores_from(
            self.sources.document_store, chunks, lambda: texts.score(self.query.text, chunks)
        )

    async def _scores_from(
        self, store: Dependency, about: Sequence[object], work: Callable[[], Awaitable[Mapping[str, T]]]
    ) -> Mapping[str, T]:
        if not about or self.failure is not None:
            return {}
        try:
            return await store.call(work, self.deadline)
        except BackendError as error:
            self.failure = error
            return {}


def _candidate(ref: ChunkRef, raw: _Raw) -> Candidate:
    hit = raw.texts.get(ref.id)
    return Candidate(ref, raw.cosines.get(ref.id), hit.bm25 if hit else 0.0, hit.share if hit else 0.0)


def _gathered(
    candidates: Sequence[Candidate],
    neighbours: Mapping[str, Neighbours],
    scored: Mapping[str, Candidate],
    vector_results: VectorResults | None,
    text: Sequence[KeywordHit] | None,
) -> Gathered:
    return Gathered(
        candidates,
        neighbours,
        scored,
        vector_ranks={hit.chunk.id: rank for rank, hit in enumerate(vector_results.hits if vector_results else (), 1)},
        text_ranks={hit.chunk.id: rank for rank, hit in enumerate(text or (), 1)},
    )

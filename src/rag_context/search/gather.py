"""Between finding and ranking: every candidate gets both exact scores, and so do the best ones' neighbours."""

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
from rag_context.search.retrievers import Backends, VectorFinds, pool_per_document

T = TypeVar("T")

SHORTLIST_FLOOR = 20
SHORTLIST_PER_RESULT = 3
"""Neighbours are scored for this many of the best: enough that none below could rise into the results."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Candidates with their exact scores, and what surrounds them."""

    candidates: Sequence[Candidate]
    neighbours: Mapping[str, Neighbours]
    scored: Mapping[str, Candidate]
    vector_ranks: Mapping[str, int]
    text_ranks: Mapping[str, int]
    trouble: BackendError | None = None
    """Why some scores or neighbours are missing, where they are."""


async def gather(
    sources: Backends,
    query: Query,
    finds: VectorFinds | None,
    text: Sequence[KeywordHit] | None,
    deadline: Deadline,
) -> Gathered:
    """Score the union of what the legs found on both sides, and the neighbours of its best.

    Without the text leg there is nothing to unite and the cosines stand as they are. What cannot be had by the
    deadline is done without: a ranking that is less exact is worth more than none.

    Args:
        sources: the ports.
        query: the question.
        finds: what the vector leg found; None where it is not part of this answer.
        text: what the text leg found; None where it is not part of this answer.
        deadline: when ranking must begin.
    """
    found: list[VectorHit | KeywordHit] = [*(finds.hits if finds else ()), *(text or ())]
    refs = {hit.chunk.id: hit.chunk for hit in found}
    cosines = {hit.chunk.id: hit.cosine for hit in finds.hits} if finds else {}
    raw = _Raw(cosines, {hit.chunk.id: hit for hit in text or ()})
    if text is None:
        return _gathered([_candidate(ref, raw) for ref in refs.values()], {}, {}, finds, text)
    exact = _ExactScores(sources, query, finds, deadline)
    raw = await exact.complete(raw, refs)
    union = [_candidate(ref, raw) for ref in refs.values()]
    size = max(SHORTLIST_FLOOR, SHORTLIST_PER_RESULT * query.limit)
    first = fused_scores(union, presumed_best(finds.calibration if finds else None))
    order = (union[i] for i in best_first(union, first))
    spread_out = spread(order, lambda candidate: candidate.chunk.document_id, pool_per_document(query))
    shortlist = list(islice(spread_out, size))
    neighbours = await exact.neighbours(shortlist)
    around = {ref.id: ref for near in neighbours.values() for ref in (near.before, near.after) if ref is not None}
    beyond = {id_: ref for id_, ref in around.items() if id_ not in refs}
    raw = await exact.complete(raw, beyond)
    if exact.trouble is not None:  # some candidates would gain from neighbours that are known, others not
        return replace(_gathered(shortlist, {}, {}, finds, text), trouble=exact.trouble)
    scored = {candidate.chunk.id: candidate for candidate in union}
    scored.update((id_, _candidate(ref, raw)) for id_, ref in beyond.items())
    return _gathered(shortlist, neighbours, scored, finds, text)


@dataclass(frozen=True, slots=True)
class _Raw:
    """Raw scores by chunk id, exact where they are there."""

    cosines: Mapping[str, float]
    texts: Mapping[str, KeywordHit]


@dataclass(slots=True)
class _ExactScores:
    """Asks both sides for the scores that are still missing, at the same time, until one of them is in trouble."""

    sources: Backends
    query: Query
    finds: VectorFinds | None
    deadline: Deadline
    trouble: BackendError | None = None
    """What went wrong; nothing is asked for after it."""

    async def complete(self, raw: _Raw, refs: Mapping[str, ChunkRef]) -> _Raw:
        """`raw` with the scores that the chunks of `refs` still lack."""
        without_cosine = [id_ for id_ in refs if id_ not in raw.cosines] if self.finds is not None else []
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
        return await self._asked(self.sources.document_store, ids, lambda: documents.neighbours(ids))

    async def _cosines(self, ids: Sequence[str]) -> Mapping[str, float]:
        finds, vectors = self.finds, self.sources.vectors
        if finds is None:
            return {}
        return await self._asked(self.sources.vector_store, ids, lambda: vectors.score(finds.vector, ids))

    async def _texts(self, chunks: Sequence[ChunkRef]) -> Mapping[str, KeywordHit]:
        texts = self.sources.texts
        return await self._asked(self.sources.document_store, chunks, lambda: texts.score(self.query.text, chunks))

    async def _asked(
        self, store: Dependency, about: Sequence[object], work: Callable[[], Awaitable[Mapping[str, T]]]
    ) -> Mapping[str, T]:
        if not about or self.trouble is not None:
            return {}
        try:
            return await store.call(work, self.deadline)
        except BackendError as error:
            self.trouble = error
            return {}


def _candidate(ref: ChunkRef, raw: _Raw) -> Candidate:
    hit = raw.texts.get(ref.id)
    return Candidate(ref, raw.cosines.get(ref.id), hit.bm25 if hit else 0.0, hit.share if hit else 0.0)


def _gathered(
    candidates: Sequence[Candidate],
    neighbours: Mapping[str, Neighbours],
    scored: Mapping[str, Candidate],
    finds: VectorFinds | None,
    text: Sequence[KeywordHit] | None,
) -> Gathered:
    return Gathered(
        candidates,
        neighbours,
        scored,
        vector_ranks={hit.chunk.id: rank for rank, hit in enumerate(finds.hits if finds else (), 1)},
        text_ranks={hit.chunk.id: rank for rank, hit in enumerate(text or (), 1)},
    )

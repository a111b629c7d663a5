"""Between finding and ranking: every candidate gets both exact scores, and so do the best ones' neighbours."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rag_context.errors import BackendError
from rag_context.resilience.deadline import Deadline
from rag_context.search.legs import Sources, VectorFinds
from rag_context.search.query import Query
from rag_context.search.ranking import Candidate, best_first, fused_scores
from rag_context.types import ChunkRef, Neighbours, TextHit, VectorHit

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
    text_lost: str | None = None
    """Why the text side is missing, where it was lost only now."""

    neighbours_lost: str | None = None
    """Why what the words found is ranked without its surroundings, where those could not be had."""


@dataclass(frozen=True, slots=True)
class _Raw:
    """Exact raw scores by chunk id."""

    cosines: Mapping[str, float]
    texts: Mapping[str, TextHit]


async def gather(
    sources: Sources,
    query: Query,
    finds: VectorFinds | None,
    text: Sequence[TextHit] | None,
    deadline: Deadline,
) -> Gathered:
    """Score the union of what the legs found on both sides, and the neighbours of its best.

    Without the text leg there is nothing to unite and the cosines stand as they are; so they do where the document
    store fails in between. Without the vector leg, what cannot be had of the words' surroundings is done without.

    Args:
        sources: the ports.
        query: the question.
        finds: what the vector leg found; None where it is not part of this answer.
        text: what the text leg found; None where it is not part of this answer.
        deadline: when the answer must be out.

    Raises:
        BackendError: a score could not be had.
    """
    found: list[VectorHit | TextHit] = [*(finds.hits if finds else ()), *(text or ())]
    refs = {hit.chunk.id: hit.chunk for hit in found}
    raw = _Raw(
        {hit.chunk.id: hit.cosine for hit in finds.hits} if finds else {}, {hit.chunk.id: hit for hit in text or ()}
    )
    if text is None:
        candidates = [_candidate(ref, raw) for ref in refs.values()]
        return _gathered(candidates, {}, {}, finds, text)
    exact = _ExactScores(sources, query, finds, deadline)
    try:
        return await _united(exact, raw, refs, text)
    except BackendError:
        if not exact.troubles:
            raise
    trouble = str(exact.troubles[0])
    if finds is None:
        return words_alone(text, trouble)
    candidates = [_candidate(hit.chunk, _Raw(raw.cosines, {})) for hit in finds.hits]
    return replace(_gathered(candidates, {}, {}, finds, None), text_lost=trouble)


def words_alone(text: Sequence[TextHit], trouble: str) -> Gathered:
    """What the words found, as it stands; `trouble` is why its surroundings are not there."""
    raw = _Raw({}, {hit.chunk.id: hit for hit in text})
    candidates = [_candidate(hit.chunk, raw) for hit in text]
    return replace(_gathered(candidates, {}, {}, None, text), neighbours_lost=trouble)


async def _united(
    exact: "_ExactScores", raw: "_Raw", refs: Mapping[str, ChunkRef], text: Sequence[TextHit]
) -> Gathered:
    finds = exact.finds
    raw = await exact.complete(raw, refs)
    union = [_candidate(ref, raw) for ref in refs.values()]
    size = max(SHORTLIST_FLOOR, SHORTLIST_PER_RESULT * exact.query.limit)
    shortlist = [union[i] for i in best_first(union, fused_scores(union))[:size]]
    neighbours = await exact.neighbours(shortlist)
    around = {ref.id: ref for near in neighbours.values() for ref in (near.before, near.after) if ref is not None}
    beyond = {id_: ref for id_, ref in around.items() if id_ not in refs}
    raw = await exact.complete(raw, beyond)
    scored = {candidate.chunk.id: candidate for candidate in union}
    scored.update((id_, _candidate(ref, raw)) for id_, ref in beyond.items())
    return _gathered(shortlist, neighbours, scored, finds, text)


@dataclass(frozen=True, slots=True)
class _ExactScores:
    """Asks both sides for the scores that are still missing, at the same time."""

    sources: Sources
    query: Query
    finds: VectorFinds | None
    deadline: Deadline
    troubles: list[BackendError] = field(default_factory=list)
    """What the document store failed with."""

    async def complete(self, raw: _Raw, refs: Mapping[str, ChunkRef]) -> _Raw:
        """`raw` with the scores that the chunks of `refs` still lack."""
        without_cosine = [id_ for id_ in refs if id_ not in raw.cosines] if self.finds is not None else []
        without_text = [ref for id_, ref in refs.items() if id_ not in raw.texts]
        if without_cosine and without_text:
            cosines, texts = await asyncio.gather(self._cosines(without_cosine), self._texts(without_text))
        else:
            cosines, texts = await self._cosines(without_cosine), await self._texts(without_text)
        return _Raw({**raw.cosines, **cosines}, {**raw.texts, **texts})

    async def _cosines(self, ids: Sequence[str]) -> Mapping[str, float]:
        finds = self.finds
        if finds is None or not ids:
            return {}
        return await self.sources.vector_store.call(
            lambda: self.sources.vectors.score(finds.vector, ids), self.deadline
        )

    async def _texts(self, chunks: Sequence[ChunkRef]) -> Mapping[str, TextHit]:
        if not chunks:
            return {}
        return await self._of_documents(lambda: self.sources.texts.score(self.query.text, chunks))

    async def neighbours(self, shortlist: Sequence[Candidate]) -> Mapping[str, Neighbours]:
        """What stands before and after each candidate."""
        ids = [candidate.chunk.id for candidate in shortlist]
        if not ids:
            return {}
        return await self._of_documents(lambda: self.sources.documents.neighbours(ids))

    async def _of_documents(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self.sources.document_store.call(work, self.deadline)
        except BackendError as error:
            self.troubles.append(error)
            raise


def _candidate(ref: ChunkRef, raw: _Raw) -> Candidate:
    hit = raw.texts.get(ref.id)
    return Candidate(ref, raw.cosines.get(ref.id), hit.bm25 if hit else 0.0, hit.share if hit else 0.0)


def _gathered(
    candidates: Sequence[Candidate],
    neighbours: Mapping[str, Neighbours],
    scored: Mapping[str, Candidate],
    finds: VectorFinds | None,
    text: Sequence[TextHit] | None,
) -> Gathered:
    return Gathered(
        candidates,
        neighbours,
        scored,
        vector_ranks={hit.chunk.id: rank for rank, hit in enumerate(finds.hits if finds else (), 1)},
        text_ranks={hit.chunk.id: rank for rank, hit in enumerate(text or (), 1)},
    )

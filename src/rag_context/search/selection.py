"""From the hits of the retrievers to the passages of an answer, whatever they are read from.

Every candidate gets both exact scores, and so do the neighbours of the best; then they are ranked.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rag_context.domain.documents import CHAT
from rag_context.domain.search import ChunkRef, KeywordHit, Neighbours, Passage, VectorHit
from rag_context.domain.vectors import Calibration
from rag_context.errors import BackendError
from rag_context.ports.reading import Snapshot
from rag_context.search.query import Query, Result
from rag_context.search.ranking import (
    Candidate,
    Ranked,
    answerable,
    best_first,
    fused_scores,
    passes,
    presumed_best,
    relevance,
    smoothed_scores,
    spread,
)
from rag_context.search.reads import Reads, SnapshotReads
from rag_context.search.retrievers import VectorResults, pool_per_document

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
    reads: Reads, query: Query, vector_results: VectorResults | None, text: Sequence[KeywordHit] | None
) -> Gathered:
    """Give every candidate of either retriever both exact scores, and score the neighbours of the best.

    Without a keyword search there is no union and the cosines stand as they are. Scores that are not there by the
    deadline are left out: a less exact ranking is better than none.

    Args:
        reads: reads scores and neighbours.
        query: the query.
        vector_results: the vector search's hits; None where it is not part of this answer.
        text: the keyword search's hits; None where it is not part of this answer.
    """
    found: list[VectorHit | KeywordHit] = [*(vector_results.hits if vector_results else ()), *(text or ())]
    refs = {hit.chunk.id: hit.chunk for hit in found}
    cosines = {hit.chunk.id: hit.cosine for hit in vector_results.hits} if vector_results else {}
    raw = _Raw(cosines, {hit.chunk.id: hit for hit in text or ()})
    if text is None:
        return _gathered([_candidate(ref, raw) for ref in refs.values()], {}, {}, vector_results, text)
    raw = await _completed(raw, refs, reads, vector_results)
    union = [_candidate(ref, raw) for ref in refs.values()]
    size = max(SHORTLIST_FLOOR, SHORTLIST_PER_RESULT * query.limit)
    first = fused_scores(union, presumed_best(vector_results.calibration if vector_results else None))
    order = (union[i] for i in best_first(union, first))
    spread_out = spread(order, lambda candidate: candidate.chunk.document_id, pool_per_document(query))
    shortlist = list(islice(spread_out, size))
    neighbours = await reads.neighbours([candidate.chunk.id for candidate in shortlist])
    around = {ref.id: ref for near in neighbours.values() for ref in (near.before, near.after) if ref is not None}
    beyond = {id_: ref for id_, ref in around.items() if id_ not in refs}
    raw = await _completed(raw, beyond, reads, vector_results)
    if reads.failure is not None:  # some candidates would gain from neighbours that are known, others not
        return replace(_gathered(shortlist, {}, {}, vector_results, text), failure=reads.failure)
    scored = {candidate.chunk.id: candidate for candidate in union}
    scored.update((id_, _candidate(ref, raw)) for id_, ref in beyond.items())
    return _gathered(shortlist, neighbours, scored, vector_results, text)


@dataclass(frozen=True, slots=True)
class _Raw:
    """Raw scores by chunk id, exact where they are there."""

    cosines: Mapping[str, float]
    texts: Mapping[str, KeywordHit]


async def _completed(
    raw: _Raw, refs: Mapping[str, ChunkRef], reads: Reads, vector_results: VectorResults | None
) -> _Raw:
    """`raw` with the scores of the chunks in `refs` that it does not have."""
    without_cosine = [id_ for id_ in refs if id_ not in raw.cosines] if vector_results is not None else []
    without_text = [ref for id_, ref in refs.items() if id_ not in raw.texts]
    cosines, texts = await reads.scores(without_cosine, without_text)
    return _Raw({**raw.cosines, **cosines}, {**raw.texts, **texts})


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


@dataclass(frozen=True, slots=True)
class Selection:
    """The passages of an answer, in order, and whether something among the candidates probably answers the query."""

    results: tuple[Result, ...]
    gathered: Gathered
    unanswerable: bool
    vector_ms: float = 0.0
    """How long the vector search took, where it was part of the call."""


async def select(
    query: Query, reads: Reads, vector_results: VectorResults | None, text: Sequence[KeywordHit] | None
) -> Selection:
    """Score, rank, and read the best.

    Args:
        query: the query.
        reads: reads scores, neighbours and passages.
        vector_results: the vector search's hits; None where it is not part of this answer.
        text: the keyword search's hits; None where it is not part of this answer.

    Raises:
        BackendError: no passages could be read.
    """
    calibration = vector_results.calibration if vector_results is not None else None
    gathered = await gather(reads, query, vector_results, text)
    kept = _kept(query, gathered, calibration)
    ids = dict.fromkeys([ranked.candidate.chunk.id for ranked in kept])
    ids.update((ref.id, None) for ranked in kept for ref in _messages_around(ranked.candidate.chunk, gathered) if ref)
    passages = await reads.passages(list(ids))
    unanswerable = calibration is not None and not answerable(gathered.candidates, calibration)
    return Selection(_results(kept, passages, gathered), gathered, unanswerable)


async def select_in(
    snapshot: Snapshot, query: Query, vector_results: VectorResults | None, text: Sequence[KeywordHit] | None
) -> Selection:
    """As `select`, in one snapshot, with the vector search itself. It never waits, so that `completed` can run it."""
    started = time.perf_counter()
    reads = SnapshotReads(snapshot, query, None if vector_results is None else vector_results.vector)
    if vector_results is not None:
        vector_results = replace(vector_results, hits=await reads.vector_hits(vector_results.vector))
    vector_ms = (time.perf_counter() - started) * 1000.0
    return replace(await select(query, reads, vector_results, text), vector_ms=vector_ms)


def _kept(query: Query, gathered: Gathered, calibration: Calibration | None) -> list[Ranked]:
    """The best `limit` candidates that pass: `min_score` if the query has one, else the model's threshold."""
    best = presumed_best(calibration)
    fused = smoothed_scores(gathered.candidates, gathered.neighbours, gathered.scored, best)
    ranked = (
        Ranked(gathered.candidates[i], float(fused[i]), relevance(gathered.candidates[i], calibration))
        for i in best_first(gathered.candidates, fused)
    )
    if query.min_score is not None:
        least = query.min_score
        passing = (each for each in ranked if each.score >= least)
    else:
        threshold = calibration.threshold if calibration is not None else 0.0
        passing = (each for each in ranked if passes(each.candidate, each.score, threshold))
    return list(islice(spread(passing, _document_of, query.per_document), query.limit))


def _document_of(ranked: Ranked) -> str:
    return ranked.candidate.chunk.document_id


def _results(kept: Sequence[Ranked], passages: Mapping[str, Passage], gathered: Gathered) -> tuple[Result, ...]:
    """Passages in rank order; one that was deleted since it was found is left out."""
    results: list[Result] = []
    for ranked in kept:
        chunk = ranked.candidate.chunk
        if chunk.id in passages:
            vector_rank, text_rank = gathered.vector_ranks.get(chunk.id), gathered.text_ranks.get(chunk.id)
            around = [passages.get(ref.id) if ref is not None else None for ref in _messages_around(chunk, gathered)]
            results.append(Result(passages[chunk.id], ranked, vector_rank, text_rank, *around))
    return tuple(results)


def _messages_around(chunk: ChunkRef, gathered: Gathered) -> tuple[ChunkRef | None, ChunkRef | None]:
    """The messages before and after a passage of a conversation: an answer needs the question before it."""
    near = gathered.neighbours.get(chunk.id) if chunk.content_type == CHAT else None
    return (near.before, near.after) if near is not None else (None, None)

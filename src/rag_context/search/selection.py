"""From the hits of the retrievers to the passages of an answer, whatever they are read from.

Every candidate gets both exact scores, and so do the neighbours of the best; then they are ranked.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import numpy as np

from rag_context.domain.documents import CHAT, CODE
from rag_context.domain.ranking_rules import Rule
from rag_context.domain.search import ChunkRef, Filter, Floats, KeywordHit, Neighbours, Passage, RawScores, VectorHit
from rag_context.domain.text import query_terms
from rag_context.domain.vectors import Calibration
from rag_context.errors import BackendError
from rag_context.ports.reading import CandidateRequest, Shortlist, Snapshot
from rag_context.search import message_rules, question_rules, ranking, rules
from rag_context.search.code_rank import KnownCode, definitions_first, ranked_code
from rag_context.search.identifiers import holders, identifiers_in
from rag_context.search.joining import Joining, in_order_of_text
from rag_context.search.query import Mode, Query, Result, Standing
from rag_context.search.question_times import nearnesses, threshold_shares, time_boosts
from rag_context.search.reads import Reads, SnapshotReads
from rag_context.search.retrievers import VectorResults

Hit = TypeVar("Hit", VectorHit, KeywordHit)

SHORTLIST_FLOOR = 20
SHORTLIST_PER_RESULT = 3
"""Neighbours are scored for this many of the best: enough that none below could rise into the results."""


@dataclass(frozen=True, slots=True)
class KnownPassages:
    """What earlier searches found out about passages."""

    code: KnownCode = field(default_factory=KnownCode)
    messages: message_rules.KnownMessages = field(default_factory=message_rules.KnownMessages)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Candidates with their exact scores, and what stands around them."""

    candidates: ranking.Candidates
    neighbours: Mapping[str, Neighbours]
    before: RawScores
    after: RawScores
    boosts: question_rules.Boosts
    vector_ranks: Mapping[str, int]
    text_ranks: Mapping[str, int]
    conversations: Mapping[str, float] = field(default_factory=dict)
    """BM25 of conversations between people."""
    failure: BackendError | None = None
    """Why some scores or neighbours are missing, where they are."""


async def gather(
    reads: Reads, query: Query, vector_results: VectorResults | None, text: Sequence[KeywordHit] | None, code: KnownCode
) -> Gathered:
    """Give every candidate of either retriever both exact scores, and score the neighbours of the best.

    Hits are None where a retriever is not part of this answer; without a keyword search the cosines stand as they are.
    Scores that are not there by the deadline are left out: a less exact ranking is better than none.
    """
    boosts = _boosts(query, vector_results, text)
    # What is near a time that the query names is beyond the pool.
    size = question_rules.pool_size(query) if query.per_document is None and not query.windows else None
    hits = vector_results.hits if vector_results is not None else ()
    named = await _defining(query, reads, [hit.chunk for found in (hits, text or ()) for hit in found], code)
    calibration = vector_results.calibration if vector_results is not None else None
    unrelated = ranking.unrelated_cosine(calibration)
    hits = boosts.best(hits, lambda hit: hit.cosine - unrelated, None if named else size)
    text = boosts.best(text, lambda hit: hit.bm25, None if named else size) if text is not None else None
    vector_ranks, text_ranks = _ranks(hits), _ranks(text or ())
    found = ranking.Candidates.of_hits(_pooled(hits, size, named), _pooled(text or (), size, named))
    if text is None:
        nothing = RawScores.unknown(len(found))
        alone = replace(found.scores, bm25=np.zeros(len(found)), shares=np.zeros(len(found)))
        return Gathered(replace(found, scores=alone), {}, nothing, nothing, boosts, vector_ranks, text_ranks)
    # Raw scores are compared with those of all others: a hit of one retriever needs the other's score too.
    union = ranking.Candidates(found.chunks, await reads.scores(found))
    first = ranking.fused_scores(union, calibration, question_rules.weights_for(query))
    first *= boosts.of(union.chunks)
    # Neighbours cost a read, so they are read only for what can still come into the results.
    shortlist = union.take(_shortlisted(query, union, ranking.best_first(union, first), named))
    neighbours = await reads.neighbours([chunk.id for chunk in shortlist.chunks])
    known = {chunk.id: row for row, chunk in enumerate(union.chunks)}
    around = {ref.id: ref for near in neighbours.values() for ref in (near.before, near.after) if ref is not None}
    beyond = [ref for id_, ref in around.items() if id_ not in known]
    beyond_scores = await reads.scores(ranking.Candidates(beyond, RawScores.unknown(len(beyond))))
    threads = _threads(query, shortlist.chunks)
    conversations = await reads.conversations(threads) if threads else {}
    if reads.failure is not None:  # some candidates would gain from neighbours that are known, others not
        nothing = RawScores.unknown(len(shortlist))
        return Gathered(shortlist, {}, nothing, nothing, boosts, vector_ranks, text_ranks, failure=reads.failure)
    # Their rows follow those of the union, as in `scores`.
    known.update((ref.id, row) for row, ref in enumerate(beyond, len(union)))
    # The last row is that of a missing neighbour.
    scores = RawScores.joined(union.scores, beyond_scores, RawScores.unknown(1))
    sides = [neighbours.get(chunk.id, Neighbours()) for chunk in shortlist.chunks]
    before = scores.take([-1 if near.before is None else known[near.before.id] for near in sides])
    after = scores.take([-1 if near.after is None else known[near.after.id] for near in sides])
    return Gathered(shortlist, neighbours, before, after, boosts, vector_ranks, text_ranks, conversations)


def _boosts(
    query: Query, vector_results: VectorResults | None, text: Sequence[KeywordHit] | None
) -> question_rules.Boosts:
    """By whom the question is about; an order of one retriever alone stays as it is."""
    if not question_rules.prefers_speakers(query) or vector_results is None or text is None:
        return question_rules.NO_BOOSTS
    return question_rules.boosts_for(query.text, (hit.chunk for hits in (vector_results.hits, text) for hit in hits))


def _pooled(hits: Sequence[Hit], size: int | None, named: Set[str]) -> Sequence[Hit]:
    """The first of the hits, and those of chunks that are `named`; None: all."""
    return [hit for rank, hit in enumerate(hits) if size is None or rank < size or hit.chunk.id in named]


def _shortlisted(query: Query, union: ranking.Candidates, ordered: Sequence[int], named: Set[str]) -> list[int]:
    """The first of the rows, best first, those near a named time, not too many of one document, and all `named`."""

    def spread_out(rows: Iterable[int]) -> Iterator[int]:
        return ranking.spread(rows, lambda row: union.chunks[row].document_id, question_rules.pool_per_document(query))

    rows = list(islice(spread_out(ordered), _shortlist_size(query)))
    if query.windows:
        near = nearnesses(query.windows, union.chunks) >= rules.NEAR
        rows = list(dict.fromkeys([*rows, *islice(spread_out(row for row in ordered if near[row]), rules.JOINING)]))
    defining = [row for row, chunk in enumerate(union.chunks) if chunk.id in named] if named else []
    return list(dict.fromkeys([*rows, *defining]))


def _ranks(hits: Sequence[VectorHit | KeywordHit]) -> Mapping[str, int]:
    return {hit.chunk.id: rank for rank, hit in enumerate(hits, 1)}


@dataclass(frozen=True, slots=True)
class Selection:
    """The passages of an answer, in order, and whether something among the candidates probably answers the query."""

    results: tuple[Result, ...]
    gathered: Gathered
    unanswerable: bool
    other_speaker: str | None = None
    standing: tuple[Standing, ...] = ()
    vector_ms: float = 0.0
    text_ms: float = 0.0
    """How long the vector search and the keyword search took, where they were part of the call."""
    ranking_ms: float = 0.0
    """How long the rest of that call took: scoring, ranking, and reading passages."""
    lag: BackendError | None = None
    """Why what was stored last is not part of it; None if everything is."""


async def select(
    query: Query,
    reads: Reads,
    vector_results: VectorResults | None,
    text: Sequence[KeywordHit] | None,
    known: KnownPassages,
) -> Selection:
    """Score, rank, and read the best; hits as in `gather`. Raises: BackendError (no passages could be read)."""
    calibration = vector_results.calibration if vector_results is not None else None
    gathered = await gather(reads, query, vector_results, text, known.code)
    chunks = gathered.candidates.chunks
    read = {**await _learned(query, reads, chunks, known.code), **await _heard(query, reads, chunks, known.messages)}
    # Fewer hits than were requested: the index is small, or what the filter lets through.
    few = vector_results is not None and len(vector_results.hits) < rules.FEW_PASSAGES
    if names_identifiers(query) or message_rules.asks_when(query):
        unread = [chunk.id for chunk in chunks if chunk.id not in read]
        read = {**read, **(await reads.passages(unread) if unread else {})}
    held = holders(query.text, chunks, read) if names_identifiers(query) else np.zeros(len(chunks))
    fused = _ordering(query, gathered, calibration, known)
    fused = message_rules.by_date(fused, chunks, read) if message_rules.asks_when(query) else fused
    fused = fused + held * float(fused.max(initial=0.0))  # above all others, and among themselves as before
    ranked = _passing(query, gathered, calibration, fused, held, few=few)
    standing = _standing(vector_results) if vector_results is not None else {}
    results = await _read_best(query, reads, ranked, gathered, read, [*standing])
    unanswerable = (
        calibration is not None
        and not held.any()
        and not _is_answerable(query, gathered.candidates, calibration, few=few)
    )
    listed = tuple(Standing(read[id_], score) for id_, score in standing.items() if id_ in read)
    other = message_rules.said_by_other(gathered.boosts.speaker, gathered.candidates)
    return Selection(tuple(results), gathered, unanswerable, other, listed)


async def _read_best(
    query: Query,
    reads: Reads,
    ranked: Iterator[ranking.Ranked],
    gathered: Gathered,
    passages: dict[str, Passage],
    standing: Sequence[str],
) -> list[Result]:
    """The first that are shown; what is read for them, and of the standing instructions, is added to `passages`."""
    shown, batch, kept = Joining(), list(islice(ranked, query.limit)), list[ChunkRef]()
    while batch or not shown.results:
        # One read for results, the messages around them and standing instructions.
        ids = dict.fromkeys([each.candidate.chunk.id for each in batch] + [*standing])
        ids.update((ref.id, None) for each in batch for ref in _messages_around(each.candidate.chunk, gathered) if ref)
        kept += [each.candidate.chunk for each in batch]
        ids |= dict.fromkeys(between := _between(kept, gathered))
        further = [id_ for id_ in ids if id_ not in passages]
        passages.update(await reads.passages(further) if further or not passages else {})
        allowed = _allowed(passages, query.where)
        shown.add(_results(batch, allowed, gathered))
        shown.close(allowed[id_] for id_ in between if id_ in allowed)
        # Others come in for what was joined or repeated.
        batch = list(islice(ranked, query.limit - len(shown.results)))
        if not batch:
            break
    # Of documents, the first passage of each is its best.
    return in_order_of_text(shown.results) if query.per_document is None else shown.results


def _standing(found: VectorResults) -> Mapping[str, float]:
    """The ids of the standing instructions that may apply, nearest first, with their scores."""
    scores = {hit.chunk.id: ranking.calibrated(hit.cosine, found.calibration) for hit in found.standing}
    return {id_: score for id_, score in scores.items() if score >= rules.STANDING_SCORE}


async def select_in(
    snapshot: Snapshot, query: Query, embedded: VectorResults, text: str | None, known: KnownPassages
) -> Selection:
    """Search a snapshot, and `select` from what is found. It never waits, so that `completed` can run it."""
    started = time.perf_counter()
    reads = SnapshotReads(snapshot, query, embedded.vector)
    found = replace(embedded, hits=await reads.vector_hits(embedded.vector), standing=reads.standing(embedded.vector))
    text_from = time.perf_counter()
    hits = None if text is None else await reads.keyword_hits()
    ranked_from = time.perf_counter()
    selection = await select(query, reads, found, hits, known)
    return replace(
        selection,
        vector_ms=(text_from - started) * 1000.0,
        text_ms=(ranked_from - text_from) * 1000.0,
        ranking_ms=(time.perf_counter() - ranked_from) * 1000.0,
        lag=snapshot.lag(query.where.tenant),
    )


def candidate_request(
    query: Query, vector_results: VectorResults | None, text: str | None, hits: Sequence[KeywordHit] | None = None
) -> CandidateRequest:
    """What `select_in` is going to read; or `select`, of the `hits` of a keyword search."""
    weights = question_rules.weights_for(query)
    calibration = vector_results.calibration if vector_results is not None else None
    shortlist = Shortlist(
        _shortlist_size(query),
        question_rules.pool_per_document(query),
        weights.other,
        weights.code,
        ranking.presumed_best(calibration),
        ranking.unrelated_cosine(calibration),
        *(question_rules.presumed(query.text) if question_rules.prefers_speakers(query) else ((), 1.0)),
    )
    return CandidateRequest(
        text,
        vector_results.vector if vector_results is not None else None,
        question_rules.hit_limit(query),
        shortlist,
        query.where,
        None if hits is None else [hit.chunk.id for hit in hits],
        question_rules.standing_request(query) if vector_results is not None else None,
    )


def _shortlist_size(query: Query) -> int:
    return max(SHORTLIST_FLOOR, SHORTLIST_PER_RESULT * query.limit)


def _has_code(chunks: Iterable[ChunkRef]) -> bool:
    return any(chunk.content_type == CODE for chunk in chunks)


async def _defining(query: Query, reads: Reads, chunks: Sequence[ChunkRef], known: KnownCode) -> Set[str]:
    """Ids of the chunks that define a name that the query is or has."""
    if not question_rules.has_symbols(query) or not _has_code(chunks):
        return frozenset()
    await _learned(query, reads, chunks, known)
    return frozenset(known.defining(query.text, chunks)[: rules.MOST_DEFINITIONS])


async def _learned(query: Query, reads: Reads, chunks: Sequence[ChunkRef], known: KnownCode) -> Mapping[str, Passage]:
    """Make the chunks that are code known, where a rule ranks them; returns the passages that were read for it."""
    if not question_rules.ranks_code(query) or not _has_code(chunks):
        return {}
    unknown = known.unknown(query.text, chunks)
    read = await reads.passages(unknown) if unknown else {}
    known.add(read)
    return read


def names_identifiers(query: Query) -> bool:
    is_ranked = query.mode is not Mode.VECTOR and Rule.IDENTIFIER not in query.without
    return is_ranked and bool(identifiers_in(query.text))


async def _heard(
    query: Query, reads: Reads, chunks: Sequence[ChunkRef], known: message_rules.KnownMessages
) -> Mapping[str, Passage]:
    """Make the messages known, where a rule ranks them; returns the passages that were read for it."""
    unknown = known.unknown(chunks) if message_rules.ranks_messages(query, chunks) else []
    read = await reads.passages(unknown) if unknown else {}
    known.add(read)
    return read


def _threads(query: Query, chunks: Sequence[ChunkRef]) -> list[str]:
    """The conversations between people among these chunks, where a rule ranks by them."""
    if query.mode is not Mode.HYBRID or Rule.SESSION in query.without:
        return []
    return sorted({chunk.thread for chunk in chunks if chunk.thread is not None and ranking.is_between_people(chunk)})


def _is_answerable(query: Query, candidates: ranking.Candidates, calibration: Calibration, *, few: bool) -> bool:
    if Rule.NO_ANSWER in query.without:
        return ranking.plainly_answerable(candidates, calibration)
    is_unknown = not candidates.scores.shares.any() and len(set(query_terms(query.text))) < 2
    return ranking.answerable(candidates, calibration, few=few, dated=bool(query.windows), unknown=is_unknown)


def _ordering(query: Query, gathered: Gathered, calibration: Calibration | None, known: KnownPassages) -> Floats:
    """What orders the candidates, `(n,)`: fused scores, changed by the rules that the query calls for."""
    candidates = gathered.candidates
    # Vector search alone orders by the cosine, also below that of unrelated texts.
    scale = calibration if query.mode is not Mode.VECTOR else None
    fused = ranking.smoothed_scores(
        candidates, gathered.before, gathered.after, scale, question_rules.weights_for(query)
    )
    messages = known.messages.features(candidates) if message_rules.ranks_messages(query, candidates.chunks) else {}
    if messages and Rule.ANSWER not in query.without:
        fused = message_rules.by_answer(query.text, fused, messages)
    if messages and Rule.QUESTIONS not in query.without:
        fused = message_rules.by_questions(fused, candidates.chunks, messages)
    fused = message_rules.with_session_prior(fused, candidates.chunks, gathered.conversations) * gathered.boosts.of(
        candidates.chunks
    )
    if question_rules.ranks_code(query) and _has_code(candidates.chunks):
        features = known.code.features(query.text, candidates)
        fused = definitions_first(query.text, ranked_code(query.text, fused, features), features)
    return fused


def _passing(
    query: Query, gathered: Gathered, calibration: Calibration | None, fused: Floats, held: Floats, *, few: bool
) -> Iterator[ranking.Ranked]:
    """The candidates, best first, that pass `min_score`, or else the model's threshold, or `held` a rare identifier."""
    candidates = gathered.candidates
    boosts = gathered.boosts.of(candidates.chunks)
    by_time = time_boosts(query.windows, candidates.chunks, fused) if query.windows else np.zeros_like(fused)
    fused = fused + by_time
    ranked = (
        (
            row,
            ranking.Ranked(
                candidate,
                float(fused[row]),
                ranking.relevance(candidate, calibration),
                float(boosts[row]),
                float(by_time[row]),
            ),
        )
        for row in ranking.best_first(candidates, fused)
        for candidate in [candidates[row]]
    )
    if query.min_score is not None:
        least = query.min_score
        passing = (each for _, each in ranked if each.score >= least)
    else:
        thresholds = _thresholds(query, candidates, calibration, few=few)
        passing = (
            each for row, each in ranked if held[row] or ranking.passes(each.candidate, each.score, thresholds[row])
        )
    return ranking.spread(passing, lambda each: each.candidate.chunk.document_id, query.per_document)


def _thresholds(
    query: Query, candidates: ranking.Candidates, calibration: Calibration | None, *, few: bool
) -> list[float]:
    """The least score of each candidate that is returned, where the query has no `min_score`."""
    threshold = calibration.threshold if calibration is not None else 0.0
    by_kind = Rule.NO_ANSWER not in query.without
    thresholds = (
        ranking.thresholds_for(candidates, threshold, few=few) if by_kind else np.full(len(candidates), threshold)
    )
    if query.windows:
        thresholds = np.minimum(thresholds, threshold * threshold_shares(query.windows, candidates.chunks))
    return thresholds.tolist()


def _allowed(passages: Mapping[str, Passage], where: Filter) -> Mapping[str, Passage]:
    """Those that the filter lets through: the messages around a passage may be later, or another's words."""
    return {
        id_: passage
        for id_, passage in passages.items()
        if (where.until is None or passage.occurred_at < where.until)
        and (not where.origins or passage.chunk.origin in where.origins)
    }


def _results(kept: Sequence[ranking.Ranked], passages: Mapping[str, Passage], gathered: Gathered) -> list[Result]:
    """Passages in rank order; one that was deleted since it was found is left out."""
    results: list[Result] = []
    for ranked in kept:
        chunk = ranked.candidate.chunk
        if chunk.id in passages:
            vector_rank, text_rank = gathered.vector_ranks.get(chunk.id), gathered.text_ranks.get(chunk.id)
            near = _messages_around(chunk, gathered)
            before, after = (passages.get(ref.id) if ref is not None else None for ref in near)
            results.append(Result(passages[chunk.id], ranked, vector_rank, text_rank, before, after))
    return results


def _between(kept: Iterable[ChunkRef], gathered: Gathered) -> list[str]:
    """The chunks that stand between two of these, where the neighbours of both are known; messages have none."""
    near = [gathered.neighbours.get(chunk.id, Neighbours()) for chunk in kept if chunk.content_type != CHAT]
    ahead = {before.id for before, _ in near if before is not None}
    return [after.id for _, after in near if after is not None and after.id in ahead]


def _messages_around(chunk: ChunkRef, gathered: Gathered) -> tuple[ChunkRef | None, ChunkRef | None]:
    """The messages before and after a passage of a conversation: an answer needs the question before it."""
    near = gathered.neighbours.get(chunk.id) if chunk.content_type == CHAT else None
    return (near.before, near.after) if near is not None else (None, None)

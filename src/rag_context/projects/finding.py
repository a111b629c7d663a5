"""Finds the documents whose chunks answer a query: filtered in the store, one match per document.

The boost of a promoted document decides between documents of similar relevance. It is added after the threshold, so
that it does not admit irrelevant documents, and before ranking, so that it changes the order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

import numpy as np

from rag_context.domain.documents import Listing, Tenant, end_of
from rag_context.domain.search import Filter, Passage
from rag_context.domain.vectors import Vector
from rag_context.errors import InvalidInputError
from rag_context.projects import records
from rag_context.projects.document_lists import DocumentList
from rag_context.projects.project_documents import project_document
from rag_context.resilience.deadline import Deadline
from rag_context.search.query import Answer, Mode, Query, Result
from rag_context.search.question_rules import with_windows

Search: TypeAlias = Callable[[Query], Awaitable[Answer]]
"""Answers a query; it raises no `BackendError`."""

PASSAGES_PER_DOCUMENT = 4
"""Most chunks of one document in the results of a search, so that a large document does not fill them."""

FIRST_CHUNKS = 20
"""The least limit of the first search."""

DOCUMENTS_PER_RESULT = 2
"""Candidates per requested document: a boost may lift one from below."""

WIDENED = 4
"""The factor of the limit of a second search, if too few documents of the first one count as results."""


@dataclass(frozen=True, slots=True)
class Match:
    """A document that a search found.

    Documents are sorted by `rank`: the fused score of the best chunk as a share of the best of the search, plus the
    boost, unbounded. `raw` is the calibrated relevance of its most relevant chunk, `boosted` that plus the boost, 0..1.
    `position` is that of its first chunk in the results (from 0); `passages` are its chunks in the results, the best
    first.
    """

    document: records.ProjectDocument
    rank: float
    raw: float
    boosted: float
    position: int
    passages: tuple[Passage, ...] = ()


def boost_of(level: records.PromotionLevel, boosts: records.PromotionBoosts | None) -> float:
    if boosts is None:
        return 0.0
    by_level = {records.PromotionLevel.CRITICAL: boosts.critical, records.PromotionLevel.IMPORTANT: boosts.important}
    return by_level.get(level, 0.0)


def best_first(matches: Sequence[Match]) -> tuple[Match, ...]:
    """Sort by fused score plus boost; of equals the one whose best chunk came first in the search."""
    return tuple(sorted(matches, key=lambda match: (-match.rank, match.position, match.document.path)))


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """The documents that a search found, each once, the best first; and the answer that they come from."""

    matches: tuple[Match, ...]
    answer: Answer


def query_for(question: str | Vector, options: records.RetrievalOptions, tenant: Tenant, now: datetime) -> Query | None:
    """The query of a search; None if the options exclude every document. Raises: InvalidInputError."""
    where = _visible(options, tenant)
    if isinstance(question, str):
        if not question.strip():
            raise InvalidInputError("Query cannot be empty")
        query = with_windows(Query(question), options.as_of or now)
    else:
        query = Query("", mode=Mode.VECTOR, vector=_direction(question))
    if where is None:
        return None
    return replace(
        query,
        limit=max(FIRST_CHUNKS, PASSAGES_PER_DOCUMENT * DOCUMENTS_PER_RESULT * options.max_results),
        where=where,
        min_score=options.min_relevance_score,
        per_document=PASSAGES_PER_DOCUMENT,
    )


async def find(
    search: Search,
    query: Query,
    options: records.RetrievalOptions,
    deadline: Deadline,
    *,
    first: Answer,
    lookup: DocumentList,
    aside: Collection[str] = (),
) -> FoundDocuments:
    """Find enough documents for `max_results`, not counting those `aside`; with a second, wider search if need be."""
    matches = _matches(first.results, options, lookup)
    counted = sum(match.document.path not in aside for match in matches)
    # Fewer results than the limit: a wider search would find the same ones.
    if counted >= options.max_results or len(first.results) < query.limit:
        return FoundDocuments(matches, first)
    try:
        async with asyncio.timeout(deadline.remaining_s):
            further = await search(replace(query, limit=WIDENED * query.limit))
    except TimeoutError:
        return FoundDocuments(matches, first)
    if further.level > first.level:  # a component has failed since: its answer is worse, though longer
        return FoundDocuments(matches, first)
    return FoundDocuments(_matches(further.results, options, lookup), further)


async def find_critical(
    search: Search, query: Query, options: records.RetrievalOptions, deadline: Deadline, lookup: DocumentList
) -> tuple[Match, ...]:
    """The critical documents alone, however little they have to do with `query`; none where there is no time left."""
    where = replace(
        query.where, any_tags=(*query.where.any_tags, (records.promotion_tag(records.PromotionLevel.CRITICAL),))
    )
    try:
        async with asyncio.timeout(deadline.remaining_s):
            answer = await search(replace(query, where=where, min_score=0.0, per_document=1))
    except TimeoutError:
        return ()
    return _matches(answer.results, options, lookup)


def _visible(options: records.RetrievalOptions, tenant: Tenant) -> Filter | None:
    """The filter for the options, which the store applies before it scores; None if they exclude every document."""
    groups: list[tuple[str, ...]] = []
    if options.doc_types:
        groups.append(tuple(dict.fromkeys(map(records.doc_type_tag, options.doc_types))))
    levels = [level for level in records.PromotionLevel if lets_through(options, level)]
    if not levels:
        return None
    if len(levels) < len(records.PromotionLevel):
        groups.append(tuple(map(records.promotion_tag, levels)))
    return Filter(tenant, any_tags=tuple(groups), until=end_of(None, options.as_of))


def lets_through(options: records.RetrievalOptions, level: records.PromotionLevel) -> bool:
    return level >= options.min_promotion_level and (not options.promotion_levels or level in options.promotion_levels)


def _direction(vector: Vector) -> Vector:
    """A caller's vector as float32, normalised to length 1."""
    # In float64, in which the norm of large numbers does not overflow.
    given = np.asarray(vector, dtype=np.float64)
    if given.ndim != 1 or not given.size or not np.isfinite(given).all():
        raise InvalidInputError("The query vector must be one row of finite numbers")
    norm = float(np.linalg.norm(given))
    if norm == 0.0:
        raise InvalidInputError("The query vector must not be zero")
    return (given / norm).astype(np.float32)


def _matches(results: Sequence[Result], options: records.RetrievalOptions, lookup: DocumentList) -> tuple[Match, ...]:
    """One match per document that is not superseded, the best first: by its best chunk, with all its chunks found."""
    best = max((result.ranked.fused for result in results), default=0.0)
    by_document: dict[str, list[tuple[int, Result]]] = {}
    for position, result in enumerate(results):
        by_document.setdefault(result.passage.document_id, []).append((position, result))
    matches = []
    for document_id, found in by_document.items():
        document = lookup.by_id(document_id) or _described(found[0][1].passage)
        if lookup.superseded_by(document.path) and not options.include_superseded:
            continue
        boost = boost_of(document.promotion_level, options.boosts)
        raw = max(result.ranked.score for _, result in found)
        fused = max(result.ranked.fused for _, result in found)
        matches.append(
            Match(
                document=document,
                # A share of the best, because a boost is a fixed number and fused scores have no fixed scale.
                rank=(fused / best if best > 0.0 else 0.0) + boost,
                raw=raw,
                boosted=min(1.0, raw + boost),
                position=found[0][0],
                passages=tuple(result.passage for _, result in found),
            )
        )
    return best_first(matches)


def _described(passage: Passage) -> records.ProjectDocument:
    """A document from the fields of its passage, for one that is too new for the list of documents."""
    return project_document(Listing(passage.document_id, passage.occurred_at, indexed=True, **passage.described()))

"""From a question to the documents whose chunks answer it: filtered in the store, one match per document."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from rag_context.domain.documents import Listing, Tenant
from rag_context.domain.search import Filter, Passage
from rag_context.domain.vectors import Vector
from rag_context.errors import InvalidInputError
from rag_context.projects.boosting import Match, boost_of
from rag_context.projects.documents import project_document
from rag_context.projects.records import (
    ProjectDocument,
    PromotionLevel,
    RetrievalOptions,
    doc_type_tag,
    promotion_tag,
)
from rag_context.resilience.deadline import Deadline
from rag_context.search.query import Answer, Mode, Query, Result

Ask: TypeAlias = Callable[[Query], Awaitable[Answer]]
"""Answers a query, come what may."""

PASSAGES_PER_DOCUMENT = 4
"""Most chunks of one document that a search returns, so that a large one leaves room for the others."""

FIRST_CHUNKS = 20
SPARE_DOCUMENTS = 2
"""Documents looked at for each one wanted: a boost may lift one from behind."""

WIDENED = 4
"""How much more is asked for, once, where documents that fill no place took those of the ones that are wanted."""


class Known(Protocol):
    """What is known of a tenant's documents without their texts."""

    def by_id(self, document_id: str) -> ProjectDocument | None: ...

    def critical(self) -> Sequence[ProjectDocument]:
        """The critical documents by path, superseded ones included."""
        ...

    def superseded_by(self, path: str) -> tuple[str, ...]:
        """Paths of the documents that replace this one."""
        ...

    def related(self, document: ProjectDocument) -> Sequence[ProjectDocument]:
        """The documents that the front matter names."""
        ...

    async def links(self, document: ProjectDocument) -> Sequence[ProjectDocument]:
        """The documents that the text links to. Raises: BackendError."""
        ...


class Unlisted:
    """Nothing is known; what is found speaks for itself. Fits `Known`."""

    def by_id(self, _document_id: str) -> None: ...

    def critical(self) -> tuple[ProjectDocument, ...]:
        """None that is known."""
        return ()

    def superseded_by(self, _path: str) -> tuple[str, ...]:
        """None that is known."""
        return ()

    def related(self, _document: ProjectDocument) -> tuple[ProjectDocument, ...]:
        """None that is known."""
        return ()

    async def links(self, _document: ProjectDocument) -> tuple[ProjectDocument, ...]:
        """None that is known."""
        return ()


@dataclass(frozen=True, slots=True)
class Found:
    """Every document that was found, once, in the order of the search, and the answer it came from."""

    matches: tuple[Match, ...]
    answer: Answer


def query_for(question: str | Vector, options: RetrievalOptions, tenant: Tenant) -> Query | None:
    """What the search is asked; None where the options leave nothing that could be found.

    Raises:
        InvalidInputError: the question is blank, or the vector is none.
    """
    where = _visible(options, tenant)
    if isinstance(question, str):
        if not question.strip():
            raise InvalidInputError("Query cannot be empty")
        query = Query(question)
    else:
        query = Query("", mode=Mode.VECTOR, vector=_direction(question))
    if where is None:
        return None
    return replace(
        query,
        limit=first_limit(options),
        where=where,
        min_score=options.min_relevance_score,
        per_document=PASSAGES_PER_DOCUMENT,
    )


async def find(
    ask: Ask,
    query: Query,
    options: RetrievalOptions,
    deadline: Deadline,
    *,
    first: Answer,
    catalogue: Known,
    aside: Collection[str] = (),
) -> Found:
    """Documents enough to choose `max_results` from, as far as one more search can find them in time.

    Args:
        ask: the search.
        query: what was asked first.
        options: how many documents are wanted, of what kind, boosted by how much.
        deadline: when the answer must be out; what was found by then stands.
        first: the answer to `query`.
        catalogue: knows the documents.
        aside: paths of documents that stand elsewhere and fill no place.
    """
    matches = _matches(first.results, options, catalogue)
    wanted = sum(match.document.path not in aside for match in matches)
    if wanted >= options.max_results or len(first.results) < query.limit:
        return Found(tuple(matches), first)
    try:
        async with asyncio.timeout(deadline.remaining_s):
            further = await ask(replace(query, limit=WIDENED * query.limit))
    except TimeoutError:
        return Found(tuple(matches), first)
    if further.level > first.level:
        return Found(tuple(matches), first)
    return Found(tuple(_matches(further.results, options, catalogue)), further)


def first_limit(options: RetrievalOptions) -> int:
    """How many chunks to ask for."""
    return max(FIRST_CHUNKS, PASSAGES_PER_DOCUMENT * SPARE_DOCUMENTS * options.max_results)


def _visible(options: RetrievalOptions, tenant: Tenant) -> Filter | None:
    """What the options let through, for the store to filter before it scores; None where that is nothing."""
    groups: list[tuple[str, ...]] = []
    if options.doc_types:
        groups.append(tuple(dict.fromkeys(map(doc_type_tag, options.doc_types))))
    levels = [level for level in PromotionLevel if lets_through(options, level)]
    if not levels:
        return None
    if len(levels) < len(PromotionLevel):
        groups.append(tuple(map(promotion_tag, levels)))
    return Filter(tenant, any_tags=tuple(groups))


def lets_through(options: RetrievalOptions, level: PromotionLevel) -> bool:
    """Whether documents of this level may be found."""
    return level >= options.min_promotion_level and (not options.promotion_levels or level in options.promotion_levels)


def _direction(vector: Vector) -> Vector:
    """A caller's vector as searches need it: float32, of length 1."""
    given = np.asarray(vector, dtype=np.float64)
    if given.ndim != 1 or not given.size or not np.isfinite(given).all():
        raise InvalidInputError("The query vector must be one row of finite numbers")
    norm = float(np.linalg.norm(given))
    if norm == 0.0:
        raise InvalidInputError("The query vector must not be zero")
    return (given / norm).astype(np.float32)


def _matches(results: Sequence[Result], options: RetrievalOptions, catalogue: Known) -> list[Match]:
    """One match per document that holds; ranked by its best chunk, with all its chunks that were found."""
    best = max((result.ranked.fused for result in results), default=0.0)
    by_document: dict[str, list[tuple[int, Result]]] = {}
    for place, result in enumerate(results):
        by_document.setdefault(result.passage.document_id, []).append((place, result))
    matches = []
    for document_id, found in by_document.items():
        document = catalogue.by_id(document_id) or _described(found[0][1].passage)
        if catalogue.superseded_by(document.path) and not options.include_superseded:
            continue
        boost = boost_of(document.promotion_level, options.boosts)
        raw = max(result.ranked.score for _, result in found)
        fused = max(result.ranked.fused for _, result in found)
        matches.append(
            Match(
                document=document,
                rank=(fused / best if best > 0.0 else 0.0) + boost,
                raw=raw,
                boosted=min(1.0, raw + boost),
                place=found[0][0],
                passages=tuple(result.passage for _, result in found),
            )
        )
    return matches


def _described(passage: Passage) -> ProjectDocument:
    """A document as its passage tells of it: what has come since the catalogue was read is not in it."""
    said = Listing(
        id=passage.document_id,
        title=passage.title,
        content_type=passage.content_type,
        session_id=passage.session_id,
        source=passage.source,
        timestamp=passage.timestamp,
        metadata=passage.metadata,
        indexed=True,
    )
    return project_document(said)

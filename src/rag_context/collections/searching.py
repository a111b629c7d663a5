"""Finding documents of a collection by vector, by keyword, or by both.

A provider without a keyword index has its documents read and scored here, with the terms and the BM25 of every other
search (`text/`); only so many are read.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rag_context.collections.collections import READ_S, Collections
from rag_context.collections.connections import CollectionRef
from rag_context.collections.paging import bulk
from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.vectors import Vector
from rag_context.errors import FieldError, InvalidInputError, NotFoundError
from rag_context.ports.provider import Entry, KeywordProvider, KeywordScore, Provider
from rag_context.search.fusion import VECTOR_WEIGHT, fuse
from rag_context.search.query import Mode
from rag_context.text.analysis import terms
from rag_context.text.bm25 import PROSE, bm25, idf_share, inverse_document_frequency

KEYWORDS_S = 30.0
"""Longest wait for a keyword search: the first one of a collection analyses its texts."""

_POOL_LEAST = 64
_POOL_TIMES = 4
"""Candidates of each side of a hybrid search: so many times the limit, and not fewer than the least."""

_NONE = KeywordScore(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Question:
    """What to find. By keywords the text is asked; by vector the vector, or else the text's."""

    text: str | None
    vector: Vector | None = None
    mode: Mode = Mode.VECTOR
    limit: int = 10
    where: Clause = EVERYTHING
    min_score: float | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """A document that was found. `score` is the cosine (-1..1), the share of the query's terms, or a mix of both."""

    entry: Entry
    score: float
    cosine: float | None = None
    share: float | None = None


async def find(collections: Collections, place: CollectionRef, asked: Question) -> list[Match]:
    """The best documents, best first, equal ones by id; those below `min_score` are left out.

    Raises:
        InvalidInputError: a text is to be embedded that is not embedded here, or of too many documents.
        ConflictError: the collection's vectors were made by another model.
    """
    match asked.mode:
        case Mode.VECTOR:
            found = await _by_vector(collections, place, asked)
        case Mode.TEXT:
            found = await _by_keywords(collections, place, asked)
        case Mode.HYBRID:
            found = await _by_both(collections, place, asked)
    return [match for match in found if asked.min_score is None or match.score >= asked.min_score]


async def _by_vector(collections: Collections, place: CollectionRef, asked: Question) -> list[Match]:
    vector = await _vector(collections, place, asked)
    hits = await collections.search(place, vector, limit=asked.limit, where=asked.where)
    return [Match(hit.entry, _cosine(hit.cosine)) for hit in hits]


async def _by_keywords(collections: Collections, place: CollectionRef, asked: Question) -> list[Match]:
    scores = await _scores(collections, place, asked, asked.limit, ())
    best = sorted(scores, key=lambda id_: (-scores[id_].bm25, id_))
    there = await collections.get_entries(place, best)
    return [Match(there[id_], scores[id_].share) for id_ in best if id_ in there]


async def _by_both(collections: Collections, place: CollectionRef, asked: Question) -> list[Match]:
    vector = await _vector(collections, place, asked)
    pool = max(_POOL_LEAST, _POOL_TIMES * asked.limit)
    hits = await collections.search(place, vector, limit=pool, where=asked.where)
    cosines = {hit.entry.id: _cosine(hit.cosine) for hit in hits}
    entries = {hit.entry.id: hit.entry for hit in hits}
    scores = await _scores(collections, place, asked, pool, list(cosines))
    lacking = [id_ for id_ in scores if id_ not in cosines]
    if lacking:
        entries |= await collections.get_entries(place, lacking)
        made = await collections.vectors(place, lacking)
        cosines |= {id_: _cosine(float(row @ vector)) for id_, row in made.items()}
    ids = [id_ for id_ in cosines if id_ in entries]
    found = [scores.get(id_, _NONE) for id_ in ids]
    fused = fuse(
        np.array([cosines[id_] for id_ in ids], dtype=np.float64),
        np.array([score.bm25 for score in found], dtype=np.float64),
        np.full(len(ids), VECTOR_WEIGHT),
    )
    order = sorted(range(len(ids)), key=lambda at: (-fused[at], ids[at]))[: asked.limit]
    return [_mixed(entries[ids[at]], cosines[ids[at]], found[at].share) for at in order]


def _mixed(entry: Entry, cosine: float, share: float) -> Match:
    """The fused score orders documents of one query; this one can be compared between queries."""
    score = VECTOR_WEIGHT * max(cosine, 0.0) + (1.0 - VECTOR_WEIGHT) * share
    return Match(entry, score, cosine, share)


async def _vector(collections: Collections, place: CollectionRef, asked: Question) -> Vector:
    if asked.vector is not None:
        return asked.vector
    return await collections.embedded(place, asked.text or "")


async def _scores(
    collections: Collections, place: CollectionRef, asked: Question, limit: int, also: list[str] | tuple[str, ...]
) -> dict[str, KeywordScore]:
    text = asked.text or ""
    connection = collections.connections.known(place.connection)
    if await connection.call(lambda p: p.collection(place.name), READ_S) is None:
        raise NotFoundError(f"Collection '{place.name}' not found")
    return await connection.call(
        lambda p: keyword_scores(p, place.name, text, asked.where, limit=limit, also=also), KEYWORDS_S
    )


def _cosine(found: float) -> float:
    """A cosine, without what rounding put beyond its bounds."""
    return max(-1.0, min(1.0, float(found)))


MOST_READ = 10_000
"""Documents that one query reads at most."""

_BATCH = 250


async def keyword_scores(
    provider: Provider,
    name: str,
    text: str,
    where: Clause,
    *,
    limit: int,
    also: Sequence[str] = (),
    most_read: int = MOST_READ,
) -> dict[str, KeywordScore]:
    """As `KeywordProvider.keyword_scores`, whatever the provider; `most_read` documents may be read where it has none.

    Raises:
        InvalidInputError: it has no keyword index, and the filter lets through more documents than are read.
    """
    if isinstance(provider, KeywordProvider):
        return await provider.keyword_scores(name, text, where, limit=limit, also=also)
    documents = bulk(provider)
    ids = await documents.ids(name, where)
    if len(ids) > most_read:
        message = (
            f"A keyword search reads every document of a collection on this provider, at most {most_read}, and here "
            f"are {len(ids)}: narrow them with where, or search with mode vector"
        )
        raise InvalidInputError(message, [FieldError("mode", message)])
    asked = Counter(terms(text))
    rows: dict[str, tuple[list[int], int]] = {}
    for start in range(0, len(ids), _BATCH):
        found = await documents.get(name, ids[start : start + _BATCH])
        texts = {id_: entry.text for id_, entry in found.items()}
        rows |= await asyncio.to_thread(_counted, texts, list(asked))
    return _scored(rows, asked, limit, also)


def _counted(texts: dict[str, str], asked: Sequence[str]) -> dict[str, tuple[list[int], int]]:
    """Of each text how often it holds each term, and how many terms it has in all."""
    rows = {}
    for id_, text in texts.items():
        words = terms(text)
        counts = Counter(words)
        rows[id_] = [counts[term] for term in asked], len(words)
    return rows


def _scored(
    rows: dict[str, tuple[list[int], int]], asked: Counter[str], limit: int, also: Sequence[str]
) -> dict[str, KeywordScore]:
    if not rows or not asked:
        return {}
    counts = np.array([row for row, _ in rows.values()], dtype=np.float64)
    lengths = np.array([length for _, length in rows.values()], dtype=np.float64)
    idf = np.array([inverse_document_frequency(len(rows), int(held)) for held in (counts > 0).sum(axis=0)])
    scores = bm25(
        counts,
        lengths,
        idf * np.array(list(asked.values()), dtype=np.float64),
        np.full(len(rows), PROSE.k1),
        np.full(len(rows), PROSE.b),
        float(lengths.mean()),
    )
    shares = idf_share(counts, idf)
    every = {
        id_: KeywordScore(float(score), float(share))
        for id_, score, share in zip(rows, scores, shares, strict=True)
        if score > 0
    }
    best = sorted(every.items(), key=lambda item: (-item[1].bm25, item[0]))[:limit]
    return dict(best) | {id_: every[id_] for id_ in also if id_ in every}

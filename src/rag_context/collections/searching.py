"""Searches one collection (vector search, keyword search or hybrid), or several for a message of a conversation.

If a provider has no keyword index, up to `MOST_READ` of its documents are read and scored here, with the terms and
the BM25 of every other search (`text/`).

The first message of a conversation is the query. A later one may have no subject of its own ("does it scale?"), so
the current topic of the conversation is the query instead. It is embedded once per connection and model.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from rag_context import errors
from rag_context.api.collection_operations import ConverseResponse, ConverseResult, OmittedCollection
from rag_context.collections.collections import READ_S, Collections
from rag_context.collections.labels import require_embeddable
from rag_context.collections.provider_connections import CollectionRef, bulk
from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.text import PROSE, bm25, idf_share, inverse_document_frequency, terms
from rag_context.domain.vectors import Vector
from rag_context.ports.provider import Collection, Entry, EntryHit, KeywordProvider, KeywordScore, Provider
from rag_context.search.query import Mode
from rag_context.search.ranking import VECTOR_WEIGHT, closeness, fuse

logger = logging.getLogger(__name__)

KEYWORDS_S = 30.0
"""Time budget of a keyword search; it is long, because the first one of a collection analyses its texts."""

_POOL_LEAST = 64
_POOL_TIMES = 4
"""Candidates of each retriever of a hybrid search: `_POOL_TIMES` the limit, and at least `_POOL_LEAST`."""

_NONE = KeywordScore(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class CollectionQuery:
    """A search of one collection. Keyword search uses the text; vector search the vector, or else the text's."""

    text: str | None
    vector: Vector | None = None
    mode: Mode = Mode.VECTOR
    limit: int = 10
    where: Clause = EVERYTHING
    min_score: float | None = None


@dataclass(frozen=True, slots=True)
class CollectionMatch:
    """A result. `score` is the cosine (-1..1), the share of the query's terms (0..1), or a weighted mean of both."""

    entry: Entry
    score: float
    cosine: float | None = None
    share: float | None = None


async def search(collections: Collections, ref: CollectionRef, query: CollectionQuery) -> list[CollectionMatch]:
    """The best documents with at least `min_score`, best first; those with equal scores are sorted by id.

    Raises: InvalidInputError (the text cannot be embedded here, or too many would be read), ConflictError (the model).
    """
    match query.mode:
        case Mode.VECTOR:
            vector = await _vector(collections, ref, query)
            provider = await collections.reading(ref.connection)
            hits = await provider.search(ref.name, vector, limit=query.limit, where=query.where)
            found = [CollectionMatch(hit.entry, clipped(hit.cosine)) for hit in hits]
        case Mode.TEXT:
            scores = await _scores(collections, ref, query, query.limit, ())
            best = sorted(scores, key=lambda id_: (-scores[id_].bm25, id_))
            stored = await (await collections.reading(ref.connection)).get(ref.name, best)
            found = [CollectionMatch(stored[id_], scores[id_].share) for id_ in best if id_ in stored]
        case Mode.HYBRID:
            found = await _by_both(collections, ref, query)
    return [match for match in found if query.min_score is None or match.score >= query.min_score]


async def _by_both(collections: Collections, ref: CollectionRef, query: CollectionQuery) -> list[CollectionMatch]:
    vector = await _vector(collections, ref, query)
    pool = max(_POOL_LEAST, _POOL_TIMES * query.limit)
    provider = await collections.reading(ref.connection)
    hits = await provider.search(ref.name, vector, limit=pool, where=query.where)
    cosines = {hit.entry.id: clipped(hit.cosine) for hit in hits}
    entries = {hit.entry.id: hit.entry for hit in hits}
    scores = await _scores(collections, ref, query, pool, list(cosines))
    missing = [id_ for id_ in scores if id_ not in cosines]
    if missing:
        entries |= await provider.get(ref.name, missing)
        made = await provider.vectors(ref.name, missing)
        cosines |= {id_: clipped(float(row @ vector)) for id_, row in made.items()}
    ids = [id_ for id_ in cosines if id_ in entries]
    # Both scores of every candidate: one that only one side returned must not rank below one that both returned.
    found = [scores.get(id_, _NONE) for id_ in ids]
    # A caller's vector is of a model that is not known here.
    embedder = collections.connections.require(ref.connection).embedder if query.vector is None else None
    calibration = await collections.calibration(ref, embedder.model) if embedder else None
    fused = fuse(
        closeness(np.array([cosines[id_] for id_ in ids]), calibration),
        np.array([score.bm25 for score in found], dtype=np.float64),
        np.full(len(ids), VECTOR_WEIGHT),
    )
    order = sorted(range(len(ids)), key=lambda at: (-fused[at], ids[at]))[: query.limit]
    matches: list[CollectionMatch] = []
    for at in order:  # each with a score that compares between queries: the fused one only orders those of one
        cosine, share = cosines[ids[at]], found[at].share
        score = VECTOR_WEIGHT * max(cosine, 0.0) + (1.0 - VECTOR_WEIGHT) * share
        matches.append(CollectionMatch(entries[ids[at]], score, cosine, share))
    return matches


async def _vector(collections: Collections, ref: CollectionRef, query: CollectionQuery) -> Vector:
    if query.vector is not None:
        return query.vector
    return await collections.embed_query(ref, query.text or "")


async def _scores(
    collections: Collections, ref: CollectionRef, query: CollectionQuery, limit: int, also: list[str] | tuple[str, ...]
) -> dict[str, KeywordScore]:
    text = query.text or ""
    connection = collections.connections.require(ref.connection)
    if await (await connection.within(READ_S)).collection(ref.name) is None:
        raise errors.NotFoundError(f"Collection '{ref.name}' not found")
    return await connection.call(
        lambda p: keyword_scores(p, ref.name, text, query.where, limit=limit, also=also), KEYWORDS_S
    )


def clipped(cosine: float) -> float:
    """A cosine, clipped to -1..1 because of rounding errors."""
    return max(-1.0, min(1.0, float(cosine)))


MOST_READ = 10_000
"""The most documents that one query reads."""

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
    """As `KeywordProvider.keyword_scores`; without a keyword index, up to `most_read` documents are read here."""
    if isinstance(provider, KeywordProvider):
        return await provider.keyword_scores(name, text, where, limit=limit, also=also)
    documents = bulk(provider)
    ids = await documents.ids(name, where)
    if len(ids) > most_read:
        message = (
            f"This provider has no keyword index, so a keyword search reads at most {most_read} documents, and "
            f"{len(ids)} match: narrow them with where, or search with mode vector"
        )
        raise errors.InvalidInputError(message, [errors.FieldError("mode", message)])
    query = Counter(terms(text))
    rows: dict[str, tuple[list[int], int]] = {}
    for start in range(0, len(ids), _BATCH):
        found = await documents.get(name, ids[start : start + _BATCH])
        texts = {id_: entry.text for id_, entry in found.items()}
        # In a thread: thousands of texts take seconds, in which the loop serves others.
        rows |= await asyncio.to_thread(_counted, texts, list(query))
    return _scored(rows, query, limit, also)


def _counted(texts: dict[str, str], query: Sequence[str]) -> dict[str, tuple[list[int], int]]:
    """For each text the number of occurrences of each term, and the number of all terms."""
    rows = {}
    for id_, text in texts.items():
        words = terms(text)
        counts = Counter(words)
        rows[id_] = [counts[term] for term in query], len(words)
    return rows


def _scored(
    rows: dict[str, tuple[list[int], int]], query: Counter[str], limit: int, also: Sequence[str]
) -> dict[str, KeywordScore]:
    if not rows or not query:
        return {}
    counts = np.array([row for row, _ in rows.values()], dtype=np.float64)
    lengths = np.array([length for _, length in rows.values()], dtype=np.float64)
    idf = np.array([inverse_document_frequency(len(rows), int(texts)) for texts in (counts > 0).sum(axis=0)])
    scores = bm25(
        counts,
        lengths,
        idf * np.array(list(query.values()), dtype=np.float64),
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


class Strategy(StrEnum):
    FIRST_MESSAGE = "first message (raw query)"
    FOLLOW_UP = "follow-up (contextualized topic)"


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    text: str
    strategy: Strategy


def choose(user_message: str, current_topic: str | None) -> ConversationQuery:
    """The query for a message: the topic, with its white space collapsed, or the message if there is no topic."""
    topic = " ".join((current_topic or "").split())
    if topic:
        return ConversationQuery(topic, Strategy.FOLLOW_UP)
    return ConversationQuery(user_message, Strategy.FIRST_MESSAGE)


class Conversations:
    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self.reused = 0
        """Embeddings that were reused since the start."""

    async def search(self, query: ConversationQuery, refs: Sequence[CollectionRef], *, limit: int) -> ConverseResponse:
        """The nearest documents of all collections; those that cannot be searched are listed as omitted.

        Raises: the error of the first collection, if none could be searched.
        """
        logger.info("query strategy: %s", query.strategy.value)
        cache = _Embeddings(self._collections, query.text)
        distinct = tuple(dict.fromkeys(refs))
        answers = await asyncio.gather(*(self._one(ref, cache, limit) for ref in distinct))
        self.reused += cache.hits
        # A collection that cannot be searched is left out of the answer, unless there is no other one.
        failures = [answer for answer in answers if isinstance(answer, errors.RagContextError)]
        if failures and len(failures) == len(distinct):
            raise failures[0]
        found: list[tuple[float, ConverseResult]] = []
        omitted: list[OmittedCollection] = []
        for ref, answer in zip(distinct, answers, strict=True):
            placed: dict[str, Any] = {"collection": ref.name, "connection": ref.connection}
            if isinstance(answer, errors.RagContextError):
                omitted.append(OmittedCollection(**placed, error=str(answer)))
                continue
            for hit in answer:
                fields = {name: getattr(hit.entry, name) for name in ("id", "text", "metadata")}
                result = ConverseResult.model_construct(**placed, **fields, score=clipped(hit.cosine))
                found.append((hit.cosine, result))
        found.sort(key=lambda each: -each[0])  # scores below 0 are shown as 0
        return ConverseResponse(
            results=[result for _, result in found[:limit]],
            query=query.text,
            strategy=query.strategy.value,
            embeddings=cache.misses,
            cache_hits=cache.hits,
            omitted=omitted,
        )

    async def _one(
        self, ref: CollectionRef, cache: "_Embeddings", limit: int
    ) -> list[EntryHit] | errors.RagContextError:
        try:
            collection = await self._collections.get(ref)
            require_embeddable(collection)
            await self._collections.check_model(ref, collection)
            vector = await cache.vector(ref.connection, collection)
            provider = await self._collections.reading(ref.connection)
            return await provider.search(ref.name, vector, limit=limit, where=EVERYTHING)
        except (errors.InvalidInputError, errors.NotFoundError, errors.ConflictError, errors.BackendError) as error:
            logger.warning("collection %r on connection %s was left out: %s", ref.name, ref.connection, error)
            return error


class _Embeddings:
    """The vectors of one text, by `connectionId:model`."""

    def __init__(self, collections: Collections, text: str) -> None:
        self._connections = collections.connections
        self._text = text
        self._made: dict[str, asyncio.Task[Vector]] = {}
        self.hits = 0
        self.misses = 0

    async def vector(self, connection: str, collection: Collection) -> Vector:
        embedder = self._connections.require(connection).embedder
        key = f"{connection}:{collection.embedding_model or embedder.model.name}"
        making = self._made.get(key)
        if making is None:
            self.misses += 1
            making = self._made[key] = asyncio.create_task(embedder.query(self._text))
        else:
            self.hits += 1
            logger.info("embedding cache hit: %s", key)
        # Shielded: a collection that fails must not cancel the embedding that the others wait for.
        return await asyncio.shield(making)

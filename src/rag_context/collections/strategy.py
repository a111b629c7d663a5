"""Searches several collections for a message of a conversation, embedding its text once per connection and model.

The first message of a conversation is the query. A later one may have no subject of its own ("does it scale?"), so
the current topic of the conversation is the query instead.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rag_context.collections.collections import Collections
from rag_context.collections.connections import CollectionRef
from rag_context.collections.labels import embeddable
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError, ConflictError, InvalidInputError, NotFoundError, RagContextError
from rag_context.ports.provider import Collection, EntryHit

logger = logging.getLogger(__name__)


class Strategy(StrEnum):
    """Which text is the query."""

    FIRST_MESSAGE = "first message (raw query)"
    FOLLOW_UP = "follow-up (contextualized topic)"


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """The text to embed, and the strategy that selected it."""

    text: str
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class CollectionHit:
    """A hit and its collection."""

    ref: CollectionRef
    hit: EntryHit


@dataclass(frozen=True, slots=True)
class Omission:
    """A collection that could not be searched, and why."""

    ref: CollectionRef
    error: RagContextError


@dataclass(frozen=True, slots=True)
class Conversation:
    """The results from all collections, the nearest first."""

    query: ConversationQuery
    hits: tuple[CollectionHit, ...]
    omissions: tuple[Omission, ...]
    embeddings: int
    """How often the text was embedded."""
    reused: int
    """How often an embedding was reused."""


def choose(user_message: str, current_topic: str | None) -> ConversationQuery:
    """The query for a message: the topic, with its white space collapsed, or the message if there is no topic."""
    topic = " ".join((current_topic or "").split())
    if topic:
        return ConversationQuery(topic, Strategy.FOLLOW_UP)
    return ConversationQuery(user_message, Strategy.FIRST_MESSAGE)


class Conversations:
    """Searches several collections at once.

    Args:
        collections: the collections of all connections.
    """

    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self.reused = 0
        """Embeddings that were reused since the start."""

    async def search(self, query: ConversationQuery, refs: Sequence[CollectionRef], *, limit: int) -> Conversation:
        """The nearest documents of all collections; those that cannot be searched are listed as omissions.

        Raises:
            InvalidInputError, NotFoundError, ConflictError, BackendError: no collection could be searched; the error
                of the first one.
        """
        logger.info("query strategy: %s", query.strategy.value)
        cache = _Embeddings(self._collections, query.text)
        distinct = tuple(dict.fromkeys(refs))
        answers = await asyncio.gather(*(self._one(ref, cache, limit) for ref in distinct))
        self.reused += cache.hits
        hits: list[CollectionHit] = []
        omissions: list[Omission] = []
        for ref, answer in zip(distinct, answers, strict=True):
            if isinstance(answer, RagContextError):
                omissions.append(Omission(ref, answer))
            else:
                hits.extend(CollectionHit(ref, hit) for hit in answer)
        if distinct and len(omissions) == len(distinct):
            raise omissions[0].error
        hits.sort(key=lambda found: -found.hit.cosine)
        return Conversation(query, tuple(hits[:limit]), tuple(omissions), cache.misses, cache.hits)

    async def _one(self, ref: CollectionRef, cache: "_Embeddings", limit: int) -> list[EntryHit] | RagContextError:
        try:
            collection = await self._collections.get(ref)
            embeddable(collection)
            await self._collections.agree(ref, collection)
            vector = await cache.vector(ref.connection, collection)
            return await self._collections.search(ref, vector, limit=limit)
        except (InvalidInputError, NotFoundError, ConflictError, BackendError) as error:
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
        embedder = self._connections.known(connection).embedder
        key = f"{connection}:{collection.embedding_model or embedder.model.name}"
        making = self._made.get(key)
        if making is None:
            self.misses += 1
            making = self._made[key] = asyncio.create_task(embedder.query(self._text))
        else:
            self.hits += 1
            logger.info("embedding cache hit: %s", key)
        return await asyncio.shield(making)

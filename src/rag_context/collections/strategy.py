"""Asking several collections within a talk: which text to embed, and embedding it once per connection and model.

A first message stands for itself. A later one may only point ("does it scale?"), so the topic that the talk has
reached by then is asked for instead.
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
    """Which text a query is made of."""

    FIRST_MESSAGE = "first message (raw query)"
    FOLLOW_UP = "follow-up (contextualized topic)"


@dataclass(frozen=True, slots=True)
class Question:
    """The text to embed, and why it is this one."""

    text: str
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class PlacedHit:
    """A hit, and the collection that it was found in."""

    place: CollectionRef
    hit: EntryHit


@dataclass(frozen=True, slots=True)
class Omission:
    """A collection that could not be asked, and why."""

    place: CollectionRef
    error: RagContextError


@dataclass(frozen=True, slots=True)
class Conversation:
    """What all collections found, the nearest first."""

    question: Question
    hits: tuple[PlacedHit, ...]
    omissions: tuple[Omission, ...]
    embeddings: int
    """How often the text was embedded."""
    reused: int
    """How often an embedding was used again."""


def choose(user_message: str, current_topic: str | None) -> Question:
    """The text that a message is asked by: without a topic itself, else the topic with its white space collapsed."""
    topic = " ".join((current_topic or "").split())
    if topic:
        return Question(topic, Strategy.FOLLOW_UP)
    return Question(user_message, Strategy.FIRST_MESSAGE)


class Conversations:
    """Asks several collections at once.

    Args:
        collections: where they are.
    """

    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self.reused = 0
        """Embeddings used again since the start."""

    async def ask(self, question: Question, places: Sequence[CollectionRef], *, limit: int) -> Conversation:
        """The nearest documents of all collections together; what cannot be asked is left out, and said.

        Raises:
            InvalidInputError, NotFoundError, ConflictError, BackendError: not one of them could be asked; the first
                one's reason.
        """
        logger.info("query strategy: %s", question.strategy.value)
        cache = _Embeddings(self._collections, question.text)
        asked = tuple(dict.fromkeys(places))
        answers = await asyncio.gather(*(self._one(place, cache, limit) for place in asked))
        self.reused += cache.hits
        hits: list[PlacedHit] = []
        omissions: list[Omission] = []
        for place, answer in zip(asked, answers, strict=True):
            if isinstance(answer, RagContextError):
                omissions.append(Omission(place, answer))
            else:
                hits.extend(PlacedHit(place, hit) for hit in answer)
        if asked and len(omissions) == len(asked):
            raise omissions[0].error
        hits.sort(key=lambda placed: -placed.hit.cosine)
        return Conversation(question, tuple(hits[:limit]), tuple(omissions), cache.misses, cache.hits)

    async def _one(self, place: CollectionRef, cache: "_Embeddings", limit: int) -> list[EntryHit] | RagContextError:
        try:
            collection = await self._collections.get(place)
            embeddable(collection)
            await self._collections.agree(place, collection)
            vector = await cache.vector(place.connection, collection)
            return await self._collections.search(place, vector, limit=limit)
        except (InvalidInputError, NotFoundError, ConflictError, BackendError) as error:
            logger.warning("collection %r on connection %s was left out: %s", place.name, place.connection, error)
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

"""Vectors that are stored already: what was embedded once for the same text need not be embedded again.

An edit leaves most of a document's chunks as they were, though in other places; a renamed file leaves all of them.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cachetools import LRUCache

from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError
from rag_context.ports.maintenance import ModelRegistry
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency

T = TypeVar("T")

UNFINISHED_BYTES = 32_000_000
"""Most that is kept of documents whose embedding took too long: some 20 000 vectors of 384 dimensions."""

LOOK_S = 2.0
"""Longest wait for one look into a store; embedding anew is better than waiting longer."""


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """Finds the vectors of texts among those of given documents.

    Args:
        documents: tells which texts a document's chunks hold.
        document_store: guards it.
        vectors: holds their vectors.
        vector_store: guards it.
        registry: remembers which model made them.
        clock: monotonic seconds.
    """

    documents: DocumentStore
    document_store: Dependency
    vectors: VectorStore
    vector_store: Dependency
    registry: ModelRegistry
    clock: Callable[[], float] = time.monotonic

    async def of(self, texts: Collection[str], lenders: Sequence[str], maker: str) -> dict[str, Vector]:
        """The stored vectors of those `texts` that stand in the documents `lenders`, as far as they can be had.

        `maker` is the fingerprint of the model in use, read by the caller before: where the index records another
        one, nothing is lent. That it still does not when they are written is for the writer to check.
        """
        try:
            recorded = await self._read(self.registry.recorded_model)
            if recorded is None or recorded.fingerprint != maker:
                return {}
            text_of = await self._texts(frozenset(texts), lenders)
            found = await self._stored(list(text_of)) if text_of else {}
        except BackendError:
            return {}
        return {text_of[id_]: vector for id_, vector in found.items()}

    async def _texts(self, wanted: Collection[str], lenders: Sequence[str]) -> dict[str, str]:
        """What is wanted, by the id of a chunk that holds it."""
        found: dict[str, str] = {}
        for id_ in dict.fromkeys(lenders):
            chunks = await self._read(partial(self.documents.chunks, id_))
            found.update({chunk.id: chunk.embedded for chunk in chunks if chunk.embedded in wanted})
        return found

    async def _read(self, work: Callable[[], Awaitable[T]]) -> T:
        return await self.document_store.call(work, Deadline.after(LOOK_S, self.clock))

    async def _stored(self, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        work = partial(self.vectors.vectors, chunk_ids)
        return await self.vector_store.call(work, Deadline.after(LOOK_S, self.clock))


class UnfinishedVectors:
    """What was embedded of documents in the time their callers had, kept until somebody goes on with the rest.

    By text, so that a document that changed meanwhile takes what still fits. Where there are too many, the oldest are
    forgotten and embedded again.
    """

    def __init__(self, max_bytes: int = UNFINISHED_BYTES) -> None:
        self._known: LRUCache[str, tuple[str, dict[str, Vector]]] = LRUCache(max_bytes, getsizeof=_size)

    def __contains__(self, document_id: str) -> bool:
        return document_id in self._known

    def keep(self, document_id: str, maker: str, vectors: dict[str, Vector]) -> None:
        """Remember vectors by their texts; `maker` is the fingerprint of the model that made them."""
        with suppress(ValueError):  # they are more than all that is kept
            self._known[document_id] = maker, vectors

    def of(self, document_id: str, maker: str) -> dict[str, Vector]:
        """What that model made for a document; {} where nothing is known."""
        made_by, vectors = self._known.get(document_id, ("", {}))
        return dict(vectors) if made_by == maker else {}

    def forget(self, document_id: str) -> None:
        """It has all its vectors, or is gone."""
        self._known.pop(document_id, None)


def _size(kept: tuple[str, dict[str, Vector]]) -> int:
    return sum(vector.nbytes + len(text) for text, vector in kept[1].items()) + 1

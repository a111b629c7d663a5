"""Reuse of embeddings: a text that is stored with its vector is not embedded again.

An edit leaves most of a document's chunks as they were, though in other places; a renamed file leaves all of them.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress

from cachetools import LRUCache

from rag_context.domain.vectors import Vector
from rag_context.errors import BackendError
from rag_context.ports.maintenance import ModelRegistry
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.resilience.dependency import Dependency

UNFINISHED_BYTES = 32_000_000
"""Memory for vectors of documents whose embedding took too long: some 20 000 vectors of 384 dimensions."""

LOOK_S = 2.0
"""Longest wait for one read of a store; embedding again is better than waiting longer."""


class StoredVectors:
    """Finds the vectors of texts among those of given documents.

    Args:
        documents: reads the chunks' texts.
        document_store: guards it and the registry.
        vectors: reads their vectors.
        vector_store: guards it.
        registry: records which model made them.
    """

    def __init__(
        self,
        documents: DocumentStore,
        document_store: Dependency,
        vectors: VectorStore,
        vector_store: Dependency,
        registry: ModelRegistry,
    ) -> None:
        self._documents = document_store.guard(documents, LOOK_S)
        self._vectors = vector_store.guard(vectors, LOOK_S)
        self._registry = document_store.guard(registry, LOOK_S)

    async def of(self, texts: Collection[str], reuse_from: Sequence[str], made_by: str) -> dict[str, Vector]:
        """The stored vectors of those `texts` that are chunks of the documents `reuse_from`, where available.

        `made_by` is the fingerprint of the model in use, read by the caller before: where the index records another
        one, nothing is reused. The writer checks the model again when it stores them.
        """
        try:
            recorded = await self._registry.recorded_model()
            if recorded is None or recorded.fingerprint != made_by:
                return {}
            text_of = await self._texts(frozenset(texts), reuse_from)
            found = await self._vectors.vectors(list(text_of)) if text_of else {}
        except BackendError:
            return {}
        return {text_of[id_]: vector for id_, vector in found.items()}

    async def _texts(self, texts: Collection[str], reuse_from: Sequence[str]) -> dict[str, str]:
        """Those of the texts that are stored, by the id of their chunk."""
        found: dict[str, str] = {}
        for id_ in dict.fromkeys(reuse_from):
            chunks = await self._documents.chunks(id_)
            found.update({chunk.id: chunk.embedded for chunk in chunks if chunk.embedded in texts})
        return found


class UnfinishedVectors:
    """Vectors of documents that were embedded only in part, kept until the rest is embedded.

    They are kept by text, so that a document that changed meanwhile reuses those of unchanged texts. Where there are
    too many, the least recently used are dropped and embedded again.
    """

    def __init__(self, max_bytes: int = UNFINISHED_BYTES) -> None:
        self._known: LRUCache[str, tuple[str, dict[str, Vector]]] = LRUCache(max_bytes, getsizeof=_size)

    def __contains__(self, document_id: str) -> bool:
        return document_id in self._known

    def keep(self, document_id: str, made_by: str, vectors: dict[str, Vector]) -> None:
        """Keep vectors by their texts; `made_by` is the fingerprint of the model that made them."""
        with suppress(ValueError):  # larger than the whole cache
            self._known[document_id] = made_by, vectors

    def of(self, document_id: str, made_by: str) -> dict[str, Vector]:
        """The vectors of a document by that model; {} where there are none."""
        kept_by, vectors = self._known.get(document_id, ("", {}))
        return dict(vectors) if kept_by == made_by else {}

    def forget(self, document_id: str) -> None:
        """Drop a document that has all its vectors or was deleted."""
        self._known.pop(document_id, None)


def _size(kept: tuple[str, dict[str, Vector]]) -> int:
    return sum(vector.nbytes + len(text) for text, vector in kept[1].items()) + 1

"""The vectors of texts: stored ones are used again, the others are embedded in slices.

A text that is stored with its vector is not embedded again: an edit leaves most of a document's chunks as they were,
though in other places; a renamed file leaves all of them. Slices are small, so that many texts keep no one waiting who
has a few.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress

import numpy as np
from cachetools import LRUCache

from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendError
from rag_context.ports.models import Embedder
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.ports.writing import ModelRegistry
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency

SLICE = 32
"""Texts embedded per call: short enough that a long document cannot keep others waiting."""

SLICE_S = 30.0
"""Longest wait for one slice of background work."""

UNFINISHED_BYTES = 32_000_000
"""Memory for vectors of documents whose embedding took too long: some 20 000 vectors of 384 dimensions."""

READ_S = 2.0
"""Longest wait for one read of a store; embedding again is better than waiting longer."""


class TextVectors:
    def __init__(self, embedder: Embedder, embedding: Dependency) -> None:
        self._embedding = embedding
        self._embedder = embedding.guard(embedder, SLICE_S)

    async def of(
        self, texts: Sequence[str], vectors: dict[str, Vector] | None = None, embedder: Embedder | None = None
    ) -> Matrix:
        """The vectors of all texts, `(n, dim) float32`; those in `vectors` are not made again. Raises: BackendError."""
        vectors = {} if vectors is None else vectors
        await self.add(texts, vectors, None, embedder)
        return stacked(texts, vectors)

    async def add(
        self,
        texts: Sequence[str],
        vectors: dict[str, Vector],
        deadline: Deadline | None,
        embedder: Embedder | None = None,
    ) -> bool:
        """Add the vectors of texts to `vectors`; False where the deadline passed although the embedder works.

        Only a timeout of the first slice counts as its failure: much text is none. Raises: BackendError (earlier slices
        stay).
        """
        guarded = self._embedder if embedder is None else self._embedding.guard(embedder, SLICE_S)
        # Each text once, however many chunks have it.
        missing = [text for text in dict.fromkeys(texts) if text not in vectors]
        for start in range(0, len(missing), SLICE):
            part = missing[start : start + SLICE]
            try:
                if deadline is None:
                    made = await guarded.embed_documents(part)
                elif start == 0:
                    with deadline.applied():
                        made = await guarded.embed_documents(part)
                else:
                    # Outside of the dependency, where a timeout would count as a failure: here the text is long.
                    async with asyncio.timeout(deadline.remaining_s):
                        made = await guarded.embed_documents(part)
            except TimeoutError:
                return False
            vectors.update(zip(part, made, strict=True))
        return True


def stacked(texts: Sequence[str], vectors: dict[str, Vector]) -> Matrix:
    """The vectors of texts, which are all in `vectors`, a row each."""
    return np.stack([vectors[text] for text in texts])


class ReusableVectors:
    """Finds the vectors of texts among those of given documents."""

    def __init__(
        self,
        documents: DocumentStore,
        document_store: Dependency,
        vectors: VectorStore,
        vector_store: Dependency,
        registry: ModelRegistry,
    ) -> None:
        self._documents = document_store.guard(documents, READ_S)
        self._vectors = vector_store.guard(vectors, READ_S)
        self._registry = document_store.guard(registry, READ_S)

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
        except BackendError:  # embedding again is slower, and as good
            return {}
        return {text_of[id_]: vector for id_, vector in found.items()}

    async def _texts(self, texts: Collection[str], reuse_from: Sequence[str]) -> dict[str, str]:
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

    def __init__(self) -> None:
        self._kept: LRUCache[str, tuple[str, dict[str, Vector]]] = LRUCache(UNFINISHED_BYTES, getsizeof=_size)

    def __contains__(self, document_id: str) -> bool:
        return document_id in self._kept

    def keep(self, document_id: str, made_by: str, vectors: dict[str, Vector]) -> None:
        """Keep vectors by their texts; `made_by` is the fingerprint of the model that made them."""
        with suppress(ValueError):  # larger than the whole cache
            self._kept[document_id] = made_by, vectors

    def of(self, document_id: str, made_by: str) -> dict[str, Vector]:
        """The vectors of a document by that model; {} where there are none."""
        kept_by, vectors = self._kept.get(document_id, ("", {}))
        return dict(vectors) if kept_by == made_by else {}

    def forget(self, document_id: str) -> None:
        self._kept.pop(document_id, None)


def _size(kept: tuple[str, dict[str, Vector]]) -> int:
    return sum(vector.nbytes + len(text) for text, vector in kept[1].items()) + 1

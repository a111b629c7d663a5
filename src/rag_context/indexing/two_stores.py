"""Writing to two stores that share no transaction: the document pending, then its vectors, then settled.

Whatever moment a process ends at, the document store knows what is still to be done: a document is indexed only
after its vectors were acknowledged, and pending before they are touched.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rag_context.errors import BackendError, BackendRejectedError
from rag_context.ports import DocumentStore, DocumentWriter, ModelRegistry, VectorWriter
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.types import Chunk, Document, EmbeddingModel, Matrix

T = TypeVar("T")

logger = logging.getLogger(__name__)

PROMPT_S = 2.5
"""How long a writer who is waited for gives the vector store, before its document is acknowledged as pending."""

PATIENT_S = 30.0
"""How long background work gives it."""


class TwoStoreWriter:
    """Fits `IndexWriter` and `ModelRegistry` over a document store and a vector store.

    Args:
        documents: reads the document store.
        writer: writes to it.
        registry: remembers the model; the document store's.
        vectors: writes to the vector store.
        vector_store: guards the vector store.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        documents: DocumentStore,
        writer: DocumentWriter,
        registry: ModelRegistry,
        vectors: VectorWriter,
        vector_store: Dependency,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents = documents
        self._writer = writer
        self._registry = registry
        self._vectors = vectors
        self._vector_store = vector_store
        self._clock = clock

    async def write(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Store a document in place of its earlier version; returns whether its vectors are in too.

        Raises:
            BackendRejectedError: the vectors were made by another model than the index's; nothing changed.
            BackendError: the document could not be stored.
        """
        if vectors is not None:
            await self._check_maker(made_by)
        await self._writer.put(document, chunks)
        if vectors is None:
            return False
        try:
            return await self._add(document, chunks, vectors, made_by, PROMPT_S)
        except BackendError as error:
            logger.warning("document %s is stored, its vectors follow: %s", document.id, error)
            return False

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        """Add the vectors of a pending document; False where it changed or went away meanwhile.

        Raises:
            BackendError: they could not be stored, or were made by another model; the document stays pending.
        """
        await self._check_maker(made_by)
        document = await self._documents.get(document_id)
        if document is None or document.content_hash != content_hash:
            return False
        chunks = await self._documents.chunks(document_id)
        if len(chunks) != len(vectors):
            raise BackendRejectedError("documents", f"{len(vectors)} vectors were given for {len(chunks)} chunks")
        return await self._add(document, chunks, vectors, made_by, PATIENT_S)

    async def recut(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Put other chunks in place of this version's; False where the document changed or went away meanwhile.

        Raises:
            BackendError: they could not be stored, or were made by another model; the document is pending.
        """
        if vectors is not None:
            await self._check_maker(made_by)
        if not await self._writer.recut(document, chunks):
            return False
        return vectors is None or await self._add(document, chunks, vectors, made_by, PATIENT_S)

    async def delete(self, document_id: str) -> bool:
        """Remove a document: it is pending until its vectors are gone, so that a crash leaves it whole.

        Raises:
            BackendError: it is still there.
        """
        if await self._documents.stored(document_id) is None:
            return False
        await self._writer.unsettle([document_id])
        await self._ask(lambda: self._vectors.discard([document_id]), PATIENT_S)
        return await self._writer.delete(document_id)

    async def recorded_model(self) -> EmbeddingModel | None:
        """The model that made the vectors; None where none is recorded."""
        return await self._registry.recorded_model()

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Make the vector store ready for a model, and record it.

        Raises:
            IndexMismatchError: the vectors of the index were made by another model.
            BackendError: one of the stores is not there.
        """
        await self._ask(lambda: self._vectors.prepare(model), PATIENT_S)
        await self._registry.adopt_model(model)

    async def drop_vectors(self) -> int:
        """Forget all vectors, then the model that made them; every document becomes pending. Returns how many.

        In this order: what a crash leaves still names the model of the vectors that may be left.
        """
        await self._ask(self._vectors.clear, PATIENT_S)
        return await self._registry.drop_vectors()

    async def _add(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix, made_by: str | None, patience_s: float
    ) -> bool:
        """Vectors, then the note that they are there. Where the document changed meanwhile they may have replaced
        those of its newer version: it is pending again, and will be completed."""
        await self._ask(lambda: self._vectors.put(document, chunks, vectors), patience_s)
        settled = await self._writer.settle(document.id, document.content_hash, made_by)
        if not settled:
            await self._writer.unsettle([document.id])
            if await self._documents.stored(document.id) is None:
                await self._ask(lambda: self._vectors.discard([document.id]), patience_s)
        return settled

    async def _check_maker(self, made_by: str | None) -> None:
        recorded = await self._registry.recorded_model()
        if made_by is not None and (recorded is None or recorded.fingerprint != made_by):
            raise BackendRejectedError("documents", "the vectors were made by another model than the index's")

    async def _ask(self, work: Callable[[], Awaitable[T]], patience_s: float) -> T:
        """Through the guard, so that a dead store fails at once."""
        return await self._vector_store.call(work, Deadline.after(patience_s, self._clock))

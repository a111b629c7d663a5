"""Writing to two stores that share no transaction: the document pending, then its vectors, then settled.

Whatever moment a process ends at, the document store knows what is still to be done: a document is indexed only
after its vectors were acknowledged, and pending before they are touched.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from rag_context.domain.documents import Chunk, Document
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendError, BackendRejectedError, BackendUnavailableError
from rag_context.ports.maintenance import ModelRegistry
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import DocumentWriter, VectorWriter
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency

T = TypeVar("T")

logger = logging.getLogger(__name__)

PROMPT_S = 2.5
"""How long a writer who is waited for gives the vector store, before its document is acknowledged as pending."""

NOBODY = str(UUID(int=0))
"""The id of no document."""

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
        suspect: told of documents that two processes wrote at the same time; somebody must compare them later.
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
        suspect: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents = documents
        self._writer = writer
        self._registry = registry
        self._vectors = vectors
        self._vector_store = vector_store
        self._suspect = suspect
        self._clock = clock
        self._refusal: str | None = None

    async def try_write(self) -> None:
        """Have the vector store delete what nobody has: a write that changes nothing.

        That may succeed where there is no room for vectors. So a refusal is remembered until vectors are taken again,
        which is tried as long as a document waits for its own.

        Raises:
            BackendError: it would take no vectors now.
        """
        if self._refusal is not None and await self._is_waited_for():
            raise BackendUnavailableError("vectors", self._refusal)
        await self._discard(NOBODY, PROMPT_S)

    async def _is_waited_for(self) -> bool:
        """Whether a document waits for its vectors; not known where the document store, which says so, is away."""
        try:
            return (await self._documents.counts()).pending > 0
        except BackendError:
            return False

    async def write(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Store a document in place of its earlier version; returns whether its vectors are in too.

        Raises:
            BackendRejectedError: the vectors do not fit the chunks, or are another model's; nothing changed.
            BackendError: the document could not be stored.
        """
        if vectors is not None:
            _check_size(vectors, chunks)
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
        stored = await self._documents.stored(document_id)
        document = await self._documents.get(document_id)
        if stored is None or document is None or not stored.content_hash == document.content_hash == content_hash:
            return False
        if stored.indexed:
            return True
        chunks = await self._documents.chunks(document_id)
        if stored.chunk_ids != tuple(chunk.id for chunk in chunks):
            return False
        _check_size(vectors, chunks)
        return await self._add(document, chunks, vectors, made_by, PATIENT_S)

    async def recut(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Put other chunks in place of this version's; False where the document changed or went away meanwhile.

        Raises:
            BackendError: they could not be stored, or were made by another model; the document is pending.
        """
        if vectors is not None:
            _check_size(vectors, chunks)
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
        await self._discard(document_id, PROMPT_S)
        deleted = await self._writer.delete(document_id)
        try:
            await self._forget_lost(document_id, PROMPT_S)  # a sweep elsewhere may have completed it in between
        except BackendError as error:
            logger.warning("document %s is deleted, vectors of it may be left: %s", document_id, error)
        return deleted

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
        """Vectors, then the note that they are there.

        Where the document changed meanwhile they may have replaced those of its newer version, whose writer may yet
        settle it: it is pending again, and suspect. Vectors that may not stay are taken back.
        """
        await self._put(document, chunks, vectors, patience_s)
        try:
            settled = await self._writer.settle(document.id, document.content_hash, made_by)
        except BackendRejectedError:
            await self._take_back(document.id, patience_s)
            raise
        if not settled:
            self._suspect(document.id)
            await self._writer.unsettle([document.id])
            await self._forget_lost(document.id, patience_s)
        return settled

    async def _put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix, patience_s: float) -> None:
        try:
            await self._ask(lambda: self._vectors.put(document, chunks, vectors), patience_s)
        except BackendRejectedError:  # of this document, perhaps
            raise
        except BackendError as error:
            self._refusal = str(error)
            raise
        self._refusal = None

    async def _forget_lost(self, document_id: str, patience_s: float) -> None:
        if await self._documents.stored(document_id) is None:
            await self._take_back(document_id, patience_s)

    async def _take_back(self, document_id: str, patience_s: float) -> None:
        self._suspect(document_id)
        await self._writer.unsettle([document_id])
        await self._discard(document_id, patience_s)
        await self._writer.unsettle([document_id])

    async def _discard(self, document_id: str, patience_s: float) -> None:
        await self._ask(lambda: self._vectors.discard([document_id]), patience_s)

    async def _check_maker(self, made_by: str | None) -> None:
        if made_by is None:
            return
        recorded = await self._registry.recorded_model()
        if recorded is None or recorded.fingerprint != made_by:
            raise BackendRejectedError("documents", "The vectors were made by another model than the index's.")

    async def _ask(self, work: Callable[[], Awaitable[T]], patience_s: float) -> T:
        """Through the guard, so that a dead store fails at once."""
        return await self._vector_store.call(work, Deadline.after(patience_s, self._clock))


def _check_size(vectors: Matrix, chunks: Sequence[Chunk]) -> None:
    if len(vectors) != len(chunks):
        raise BackendRejectedError("documents", f"{len(vectors)} vectors were given for {len(chunks)} chunks.")

"""Writing to two stores that share no transaction: the document as pending, then its vectors, then as indexed.

If the process ends at any moment, the document store knows what is left to do: a document is indexed only
after its vectors were acknowledged, and pending before they are touched.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from rag_context.domain.documents import Chunk, Document
from rag_context.domain.journal import Change, Entry, Held, require_locations
from rag_context.domain.reports import counted
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import BackendError, BackendRejectedError, BackendUnavailableError, ForeignDataError
from rag_context.ingest.reconciliation import PAGE
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import (
    DocumentWriter,
    Journal,
    ModelRegistry,
    VectorWriter,
    Version,
    require_model,
    require_shape,
    written_in_turn,
)
from rag_context.resilience.dependency import Dependency

logger = logging.getLogger(__name__)

PROMPT_TIMEOUT_S = 2.5
"""How long a request waits for the vector store before its document is acknowledged as pending."""

NO_DOCUMENT = str(UUID(int=0))
"""An id that no document has."""

BACKGROUND_TIMEOUT_S = 30.0
"""How long background work waits for the vector store."""


class TwoStoreWriter:
    """Fits `IndexWriter` and `ModelRegistry` over a document store and a vector store."""

    def __init__(
        self,
        *,
        documents: DocumentStore,
        writer: DocumentWriter,
        registry: ModelRegistry,
        vectors: VectorWriter,
        vector_store: Dependency,
        suspect: Callable[[str], None],
    ) -> None:
        self._documents = documents
        self._writer = writer
        self._registry = registry
        self._in_request = vector_store.guard(vectors, PROMPT_TIMEOUT_S)
        self._in_background = vector_store.guard(vectors, BACKGROUND_TIMEOUT_S)
        self._suspect = suspect
        self._rejection: str | None = None

    async def try_write(self) -> None:
        """Write something that changes nothing: delete the vectors of a document that does not exist.

        Such a write may succeed on a full disk. So the last error of storing vectors is raised again as long as a
        document waits for its vectors; storing them is retried meanwhile.
        """
        if self._rejection is not None and await self._is_waited_for():
            raise BackendUnavailableError("vectors", self._rejection)
        await self._in_request.discard([NO_DOCUMENT])

    async def _is_waited_for(self) -> bool:
        """Whether a document is pending; False while the document store is unavailable."""
        try:
            return (await self._documents.counts()).pending > 0
        except BackendError:
            return False

    async def write(self, version: Version) -> bool:
        """Store a document in place of its earlier version; returns whether its vectors are in too.

        Raises: BackendRejectedError (the vectors do not match the chunks or the index's model; nothing changed).
        """
        # Before anything is stored: afterwards a rejection would leave the new version without its vectors.
        document, chunks, vectors = version.document, version.chunks, version.vectors
        if vectors is not None:
            require_shape("documents", vectors, len(chunks))
            await self._check_model(version.made_by)
        superseded = version.revision.supersedes
        await self.discard_moving(superseded)
        # From here on the document is pending: if the process ends, the background sweep embeds it again.
        await self._writer.put(document, chunks, version.revision)
        await self.discard_moving(superseded)
        if vectors is None:
            return False
        try:
            return await self._add(document, chunks, vectors, version.made_by, self._in_request)
        except BackendError as error:
            logger.warning("document %s is stored, its vectors follow: %s", document.id, error)
            return False

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        return await written_in_turn(versions, self)

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        await self._check_model(made_by)
        stored = await self._documents.stored(document_id)
        document = await self._documents.get(document_id)
        if stored is None or document is None or not stored.content_hash == document.content_hash == content_hash:
            return False
        if stored.indexed:
            return True
        chunks = await self._documents.chunks(document_id)
        # The three reads are not one: another process may have stored a new version between them.
        if stored.chunk_ids != tuple(chunk.id for chunk in chunks):
            return False
        require_shape("documents", vectors, len(chunks))
        return await self._add(document, chunks, vectors, made_by, self._in_background)

    async def rechunk(self, version: Version) -> bool:
        document, chunks, vectors = version.document, version.chunks, version.vectors
        if vectors is not None:
            require_shape("documents", vectors, len(chunks))
            await self._check_model(version.made_by)
        if not await self._writer.rechunk(replace(version, vectors=None)):
            return False
        return vectors is None or await self._add(document, chunks, vectors, version.made_by, self._in_background)

    async def delete(self, document_id: str) -> bool:
        """Delete a document: it is pending until its vectors are deleted, so that a crash leaves it complete."""
        if await self._documents.stored(document_id) is None:
            return False
        await self._writer.mark_pending([document_id])
        await self._in_request.discard([document_id])
        deleted = await self._writer.delete(document_id)
        try:
            # Another process may have completed it in between.
            await self._discard_if_deleted(document_id, self._in_request)
        except BackendError as error:
            logger.warning("document %s is deleted, but some of its vectors may be left: %s", document_id, error)
        return deleted

    async def discard_moving(self, document_ids: Sequence[str]) -> None:
        """Delete the vectors of documents that are about to move to another shelf, or have moved.

        Before, so that no search finds them where they were; after, because another process may have completed them in
        between. They are pending meanwhile: where the process ends, or they do not move, their vectors follow.
        """
        for start in range(0, len(document_ids), PAGE):
            page = document_ids[start : start + PAGE]
            await self._writer.mark_pending(page)
            await self._in_background.discard(page)
            await self._writer.mark_pending(page)

    async def held(self, document_ids: Sequence[str]) -> Held:
        """What the vector store has of these documents: vectors, each with a copy of its passage."""
        pages = [document_ids[start : start + PAGE] for start in range(0, len(document_ids), PAGE)]
        stored = [await self._in_background.stored_vectors(page) for page in pages]
        count = sum(len(each.chunk_ids) for page in stored for each in page.values())
        return Held(passages=count, vectors=count)

    async def recorded_model(self) -> EmbeddingModel | None:
        return await self._registry.recorded_model()

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Prepare the vector store for a model, and record it. Raises: IndexMismatchError, ForeignDataError."""
        await self._require_own_vectors()
        # In this order a recorded model always has a storage.
        await self._in_background.prepare(model)
        await self._registry.adopt_model(model)

    async def drop_vectors(self) -> int:
        """Delete all vectors, then the record of their model, which is there as long as they are. Returns how many."""
        await self._in_background.clear()
        return await self._registry.drop_vectors()

    async def _require_own_vectors(self) -> None:
        """Check that an index without a model, which has no vectors, finds none. Raises: ForeignDataError."""
        if await self._registry.recorded_model() is not None or not (count := await self._in_background.count()):
            return
        # Read again: another server of this index may have bound the model and stored vectors between the two.
        if await self._registry.recorded_model() is None:
            raise ForeignDataError(
                "vectors",
                f"There are {counted(count, 'vector')} of another index in the vector store. Nothing was changed: give "
                "this index a name of its own (stores.qdrant_collection or stores.chroma_collection). If no other index"
                " uses them, `rag-context reindex` replaces them.",
            )

    async def _add(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix, made_by: str | None, store: VectorWriter
    ) -> bool:
        """Store the vectors in the guarded vector store, then mark the document as indexed.

        Where the document changed meanwhile, these vectors may have replaced those of its newer version, and that
        version's writer may still mark it as indexed: it becomes pending and is compared later. Vectors of deleted
        documents and of other models are deleted.
        """
        await self._put(document, chunks, vectors, store)
        try:
            now = await self._documents.stored(document.id)
            has_moved = now is not None and now.shelf is not document.tenant.shelf
            indexed = not has_moved and await self._writer.mark_indexed(document.id, document.content_hash, made_by)
        except BackendRejectedError:
            await self._discard_and_suspect(document.id, store)
            raise
        if not indexed:
            self._suspect(document.id)
            await self._writer.mark_pending([document.id])
            await self._discard_if_deleted(document.id, store)
        return indexed

    async def _put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix, store: VectorWriter) -> None:
        try:
            await store.put(document, chunks, vectors)
        except BackendRejectedError:  # it may concern this document only
            raise
        except BackendError as error:
            self._rejection = str(error)
            raise
        # Only a write that stored something shows that the store has space again.
        self._rejection = None

    async def _discard_if_deleted(self, document_id: str, store: VectorWriter) -> None:
        if await self._documents.stored(document_id) is None:
            await self._discard_and_suspect(document_id, store)

    async def _discard_and_suspect(self, document_id: str, store: VectorWriter) -> None:
        self._suspect(document_id)
        # Before and after: a crash in between leaves it pending, and another process may mark it as indexed meanwhile.
        await self._writer.mark_pending([document_id])
        await store.discard([document_id])
        await self._writer.mark_pending([document_id])

    async def _check_model(self, made_by: str | None) -> None:
        if made_by is None:
            return
        recorded = await self._registry.recorded_model()
        require_model("documents", None if recorded is None else recorded.fingerprint, made_by)


class _TwoStoreJournal:
    """`Journal` of the document store, which moves no document whose vectors a search could find where it was."""

    def __init__(self, inner: Journal, writer: TwoStoreWriter, vectors: str) -> None:
        self._inner = inner
        self._writer = writer
        self._vectors = vectors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def make(self, change: Change) -> Entry:
        moves = [] if change.moves_nothing else change.moves
        ids = [move.before.id for move in moves if move.before is not None]
        require_locations(moves, {id_: link.place for id_, link in (await self._inner.links(ids)).items()})
        await self._writer.discard_moving(ids)
        entry = await self._inner.make(change)
        try:
            await self._writer.discard_moving(ids)
        except BackendError as error:
            logger.warning("change %d is made, but some vectors may be left: %s", entry.sequence, error)
        return entry

    async def held(self, document_ids: Sequence[str]) -> dict[str, Held]:
        return {**await self._inner.held(document_ids), self._vectors: await self._writer.held(document_ids)}


def journal_over(documents: Journal, writer: TwoStoreWriter, vectors: str) -> Journal:
    """The journal of a document store as one of two; `vectors` is the name of the vector store."""
    return cast("Journal", _TwoStoreJournal(documents, writer, vectors))

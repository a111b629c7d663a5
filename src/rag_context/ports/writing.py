"""Ports of the write path: one store that holds everything, or two that share no transaction."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

from rag_context.domain.documents import Chunk, Document, StoredVectors
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix


class IndexWriter(Protocol):
    """The one way in: after a call returns, what it wrote survives the end of the process.

    `made_by` is the fingerprint of the model that made the vectors. Where the index records another one by now,
    they are refused (BackendRejectedError) and nothing changes; None leaves that to the caller.
    """

    async def write(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Store a document in place of its earlier version; at no moment is neither found.

        Returns whether its vectors are in too. Without vectors, or where they could not be stored now, the document
        is stored as pending: found by text, its vectors follow by `attach`.
        """
        ...

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        """Add the vectors of a pending document; False where it changed or went away meanwhile."""
        ...

    async def recut(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Put other chunks in place of this version's; False where the document changed or went away meanwhile."""
        ...

    async def delete(self, document_id: str) -> bool: ...


class DocumentWriter(Protocol):
    """The documents' half of a write, where the vectors are kept by another store.

    A document is pending from `put` to `settle`. What a call returns from survives the end of the process.
    """

    async def put(self, document: Document, chunks: Sequence[Chunk]) -> None:
        """Store a document, pending, in place of its earlier version; it is found by text from now on."""
        ...

    async def recut(self, document: Document, chunks: Sequence[Chunk]) -> bool:
        """Put other chunks in place of this version's, pending; False where it changed or went away meanwhile."""
        ...

    async def settle(self, document_id: str, content_hash: str, made_by: str | None = None) -> bool:
        """Note that this version's vectors are in; False where it changed or went away meanwhile.

        Raises:
            BackendRejectedError: the index records another model than `made_by` by now.
        """
        ...

    async def unsettle(self, document_ids: Collection[str]) -> None:
        """Note that the vectors of these documents are not what they should be: they are pending again."""
        ...

    async def delete(self, document_id: str) -> bool: ...


class VectorWriter(Protocol):
    """The vectors' half of a write, where the documents are kept by another store. Every call may be repeated."""

    async def prepare(self, model: EmbeddingModel) -> None:
        """Make whatever is missing to hold vectors of this model.

        Raises:
            BackendRejectedError: there are vectors of another dimension.
        """
        ...

    async def put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> None:
        """Store the vectors of a document; those of its earlier versions go, but not before the new ones are found."""
        ...

    async def discard(self, document_ids: Collection[str]) -> None:
        """Forget the vectors of these documents."""
        ...

    async def held(self, document_ids: Collection[str]) -> dict[str, StoredVectors]:
        """What is there of these documents; those without a vector are left out."""
        ...

    def held_documents(self) -> AsyncIterator[str]:
        """The ids of all documents that have vectors, each at least once."""
        ...

    async def count(self) -> int:
        """How many vectors there are."""
        ...

    async def clear(self) -> None:
        """Forget all vectors."""
        ...

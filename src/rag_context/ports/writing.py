"""Ports of the write path: one store that holds everything, or two that share no transaction."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from rag_context.domain.documents import Chunk, Document, StoredVectors
from rag_context.domain.vectors import EmbeddingModel, Matrix


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a document to store, its chunks, and their vectors `(len(chunks), dim) float32` if there are any."""

    document: Document
    chunks: Sequence[Chunk]
    vectors: Matrix | None = None
    made_by: str | None = None


class IndexWriter(Protocol):
    """Writes documents with their vectors: after a call returns, what it wrote survives the end of the process.

    `made_by` is the fingerprint of the model that made the vectors. Where the index records another one by now,
    they are rejected (BackendRejectedError) and nothing changes; None skips this check.
    """

    async def write(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Store a document in place of its earlier version; one of the two is found at any time.

        Returns whether its vectors are stored too. Without vectors, or where they cannot be stored now, the document
        is pending: keyword search finds it, `attach` adds its vectors later.
        """
        ...

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        """As `write` for versions of different documents: what it returns or raises for each.

        One that fails keeps no other from being stored.
        """
        ...

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        """Add the vectors of a pending document; False where it was changed or deleted meanwhile."""
        ...

    async def rechunk(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix | None, made_by: str | None = None
    ) -> bool:
        """Put other chunks in place of this version's; False where the document was changed or deleted meanwhile."""
        ...

    async def delete(self, document_id: str) -> bool: ...


async def written_in_turn(versions: Sequence[Version], writer: IndexWriter) -> list[bool | Exception]:
    """`IndexWriter.write_all` for a store that has no cheaper way: one version after the other."""
    results: list[bool | Exception] = []
    for each in versions:
        try:
            results.append(await writer.write(each.document, each.chunks, each.vectors, each.made_by))
        except Exception as error:  # noqa: BLE001  (it belongs to this version)
            results.append(error)
    return results


class PendingClaims(Protocol):
    """Shares pending documents out among the servers of one index, so that none is embedded by two of them."""

    def claimed(self, document_id: str) -> AbstractAsyncContextManager[bool]:
        """Claim a document for the block; the value is False where another server has it."""
        ...


class DocumentWriter(Protocol):
    """Writes documents where another store keeps the vectors.

    A document is pending from `put` to `mark_indexed`. What a call has written survives the end of the process.
    """

    async def put(self, document: Document, chunks: Sequence[Chunk]) -> None:
        """Store a document, pending, in place of its earlier version; keyword search finds it from now on."""
        ...

    async def rechunk(self, document: Document, chunks: Sequence[Chunk]) -> bool:
        """Put other chunks in place of this version's, pending; False where it was changed or deleted meanwhile."""
        ...

    async def mark_indexed(self, document_id: str, content_hash: str, made_by: str | None = None) -> bool:
        """Record that this version's vectors are stored; False where it was changed or deleted meanwhile.

        Raises:
            BackendRejectedError: the index records another model than `made_by` by now.
        """
        ...

    async def mark_pending(self, document_ids: Collection[str]) -> None:
        """Make these documents pending again, because their vectors are missing or wrong."""
        ...

    async def delete(self, document_id: str) -> bool: ...


class VectorWriter(Protocol):
    """Writes vectors where another store keeps the documents. Every call may be repeated."""

    async def prepare(self, model: EmbeddingModel) -> None:
        """Create the storage for vectors of this model where it is missing.

        Raises:
            BackendRejectedError: the store has vectors of another dimension.
        """
        ...

    async def put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> None:
        """Store the vectors of a document; those of earlier versions are deleted after the new ones are found."""
        ...

    async def discard(self, document_ids: Collection[str]) -> None:
        """Delete the vectors of these documents."""
        ...

    async def stored_vectors(self, document_ids: Collection[str]) -> dict[str, StoredVectors]:
        """The stored vectors of these documents (chunk ids and revisions); documents without any are left out."""
        ...

    def stored_documents(self) -> AsyncIterator[str]:
        """The ids of all documents that have vectors, each at least once."""
        ...

    async def count(self) -> int:
        """The number of stored vectors."""
        ...

    async def clear(self) -> None:
        """Delete all vectors."""
        ...

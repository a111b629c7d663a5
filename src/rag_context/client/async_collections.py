"""Collections of a server, for coroutines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from rag_context.api.collections import (
    AddedDocumentsResponse,
    CollectionResponse,
    CollectionsResponse,
    CreatedCollectionResponse,
    DeletedDocumentResponse,
    DeletedMatchingResponse,
    DocumentsResponse,
    DroppedCollectionResponse,
    EmptiedCollectionResponse,
    MetadataResponse,
    QueryResponse,
    UpdatedDocumentResponse,
    ValuesResponse,
)
from rag_context.api.providers import ProviderHealthResponse, ProviderResponse, ProvidersResponse
from rag_context.client import collection_calls as calls
from rag_context.client.call import Call
from rag_context.client.collection_calls import CollectionDocument, Embedding, QueryMode

Answer = TypeVar("Answer")


class Send(Protocol):
    """How a call is made."""

    async def __call__(self, call: Call[Answer], request_id: str | None) -> Answer: ...


class AsyncCollections:
    """Named sets of documents with vectors of their own; see the page on collections.

    Args:
        send: how a call is made.
        connection: the connection that the collections live on.
    """

    def __init__(self, send: Send, connection: str = calls.DEFAULT_CONNECTION) -> None:
        self._send = send
        self._connection = connection

    def on(self, connection: str) -> "AsyncCollections":
        """The collections of another connection."""
        return AsyncCollections(self._send, connection)

    async def list(self, *, request_id: str | None = None) -> CollectionsResponse:
        """All of them, by name."""
        return await self._send(calls.collections(self._connection), request_id)

    async def get(self, name: str, *, request_id: str | None = None) -> CollectionResponse:
        """One of them. Raises: NotFoundError."""
        return await self._send(calls.collection(name, self._connection), request_id)

    async def create(
        self,
        name: str,
        *,
        metadata: Mapping[str, object] | None = None,
        embedding_provider: str | None = None,
        embedding_model: str | None = None,
        request_id: str | None = None,
    ) -> CreatedCollectionResponse:
        """Make an empty one; with the embedding provider `rag-context` the server embeds. Raises: ConflictError."""
        call = calls.create(name, metadata, embedding_provider, embedding_model, self._connection)
        return await self._send(call, request_id)

    async def drop(self, name: str, *, request_id: str | None = None) -> DroppedCollectionResponse:
        """Remove one with all that is in it. Raises: NotFoundError."""
        return await self._send(calls.drop(name, self._connection), request_id)

    async def replace_metadata(
        self, name: str, metadata: Mapping[str, object], *, request_id: str | None = None
    ) -> MetadataResponse:
        """Give a collection other metadata."""
        return await self._send(calls.put_metadata(name, metadata, False, self._connection), request_id)

    async def merge_metadata(
        self, name: str, metadata: Mapping[str, object], *, request_id: str | None = None
    ) -> MetadataResponse:
        """Set these keys of a collection's metadata and keep the others."""
        return await self._send(calls.put_metadata(name, metadata, True, self._connection), request_id)

    async def add(
        self, name: str, documents: Iterable[CollectionDocument], *, request_id: str | None = None
    ) -> AddedDocumentsResponse:
        """Store documents, all of them or none; a known id is replaced."""
        return await self._send(calls.add(name, documents, self._connection), request_id)

    async def documents(
        self,
        name: str,
        *,
        where: Mapping[str, object] | None = None,
        limit: int = 100,
        offset: int = 0,
        ids: Sequence[str] | None = None,
        embeddings: bool = False,
        request_id: str | None = None,
    ) -> DocumentsResponse:
        """A page of the documents that pass a filter, by id, or those of `ids`; at most 1000."""
        return await self._send(
            calls.documents(name, where, limit, offset, ids, embeddings, self._connection), request_id
        )

    async def delete(self, name: str, document_id: str, *, request_id: str | None = None) -> DeletedDocumentResponse:
        """Remove a document. Raises: NotFoundError."""
        return await self._send(calls.delete(name, document_id, self._connection), request_id)

    async def delete_where(
        self,
        name: str,
        where: Mapping[str, object],
        *,
        dry_run: bool = False,
        confirm: bool = False,
        request_id: str | None = None,
    ) -> DeletedMatchingResponse:
        """Remove the documents that pass a filter; more than 100, or more than half, only with `confirm`."""
        return await self._send(calls.delete_where(name, where, dry_run, confirm, self._connection), request_id)

    async def replace_document_metadata(
        self, name: str, document_id: str, metadata: Mapping[str, object], *, request_id: str | None = None
    ) -> UpdatedDocumentResponse:
        """Give a document other metadata; its text and vector stay. Raises: NotFoundError."""
        return await self._send(calls.update(name, document_id, metadata, False, self._connection), request_id)

    async def merge_document_metadata(
        self, name: str, document_id: str, metadata: Mapping[str, object], *, request_id: str | None = None
    ) -> UpdatedDocumentResponse:
        """Set these keys of a document's metadata and keep the others. Raises: NotFoundError."""
        return await self._send(calls.update(name, document_id, metadata, True, self._connection), request_id)

    async def empty(self, name: str, *, request_id: str | None = None) -> EmptiedCollectionResponse:
        """Remove all documents of a collection, or none; the collection stays."""
        return await self._send(calls.empty(name, self._connection), request_id)

    async def values(self, name: str, field: str, *, request_id: str | None = None) -> ValuesResponse:
        """The distinct values of a metadata field, sorted."""
        return await self._send(calls.values(name, field, self._connection), request_id)

    async def query(
        self,
        name: str,
        *,
        text: str | None = None,
        embedding: Embedding | None = None,
        where: Mapping[str, object] | None = None,
        top_k: int = 10,
        mode: QueryMode = "vector",
        min_score: float | None = None,
        request_id: str | None = None,
    ) -> QueryResponse:
        """The documents nearest to a vector, or to a text where the server embeds; or by keywords, or by both."""
        call = calls.query(name, text, embedding, where, top_k, mode, min_score, self._connection)
        return await self._send(call, request_id)

    async def providers(self, *, request_id: str | None = None) -> ProvidersResponse:
        """What collections can be kept by, also what is not installed here."""
        return await self._send(calls.providers(), request_id)

    async def provider(self, name: str, *, request_id: str | None = None) -> ProviderResponse:
        """One of them. Raises: NotFoundError."""
        return await self._send(calls.provider(name), request_id)

    async def test(
        self,
        provider: str,
        configuration: Mapping[str, object] | None = None,
        *,
        connection: str | None = None,
        request_id: str | None = None,
    ) -> ProviderHealthResponse:
        """Try a provider with a configuration, or as a connection has it."""
        return await self._send(calls.test(provider, configuration, connection), request_id)

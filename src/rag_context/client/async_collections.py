"""Collections of a server, for coroutines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rag_context.api import collection_documents, collection_operations, collections
from rag_context.api.operations import Response, routes
from rag_context.api.operations.routes import Route
from rag_context.client.call import DEFAULT_CONNECTION, Answer, Call, route_call
from rag_context.client.parameters import CollectionDocument, Embedding, QueryMode
from rag_context.errors import InvalidInputError


class Send(Protocol):
    async def __call__(self, call: Call[Answer], request_id: str | None) -> Answer: ...


class AsyncCollections:
    """Named sets of documents with vectors of their own; see the page on collections."""

    def __init__(self, send: Send, connection: str = DEFAULT_CONNECTION) -> None:
        self._send = send
        self._connection = connection

    def on(self, connection: str) -> "AsyncCollections":
        """The collections of another connection."""
        return AsyncCollections(self._send, connection)

    async def list(self, *, request_id: str | None = None) -> collections.CollectionsResponse:
        """All of them, by name."""
        return await self._call(routes.LIST_COLLECTIONS, request_id=request_id)

    async def get(self, name: str, *, request_id: str | None = None) -> collections.CollectionResponse:
        """One of them. Raises: NotFoundError."""
        return await self._call(routes.GET_COLLECTION, name, request_id=request_id)

    async def create(
        self,
        name: str,
        *,
        metadata: Mapping[str, object] | None = None,
        embedding_provider: str | None = None,
        embedding_model: str | None = None,
        request_id: str | None = None,
    ) -> collections.CreatedCollectionResponse:
        """Make an empty one; with the embedding provider `rag-context` the server embeds. Raises: ConflictError."""
        fields = {"metadata": metadata, "embedding_provider": embedding_provider, "embedding_model": embedding_model}
        return await self._call(routes.CREATE_COLLECTION, body={"name": name, **fields}, request_id=request_id)

    async def drop(self, name: str, *, request_id: str | None = None) -> collections.DroppedCollectionResponse:
        """Remove one with all that is in it. Raises: NotFoundError."""
        return await self._call(routes.DELETE_COLLECTION, name, request_id=request_id)

    async def replace_metadata(
        self, name: str, metadata: Mapping[str, object], *, request_id: str | None = None
    ) -> collections.MetadataResponse:
        """Give a collection other metadata."""
        return await self._call(routes.PUT_METADATA, name, body={"metadata": metadata}, request_id=request_id)

    async def merge_metadata(
        self, name: str, metadata: Mapping[str, object], *, request_id: str | None = None
    ) -> collections.MetadataResponse:
        """Set these keys of a collection's metadata and keep the others."""
        body = {"metadata": metadata}
        return await self._call(routes.PUT_METADATA, name, query={"merge": True}, body=body, request_id=request_id)

    async def add(
        self, name: str, documents: Iterable[CollectionDocument], *, request_id: str | None = None
    ) -> collections.AddedDocumentsResponse:
        """Store documents, all of them or none; a known id is replaced."""
        body = {"documents": list(documents)}
        return await self._call(routes.ADD_DOCUMENTS, name, body=body, request_id=request_id)

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
    ) -> collections.DocumentsResponse:
        """A page of the documents that pass a filter, by id, or those of `ids`; at most 1000."""
        query = {
            "limit": limit,
            "offset": offset,
            "ids": None if ids is None else list(ids),
            "include": "embeddings" if embeddings else None,
            "where": where,
        }
        return await self._call(routes.LIST_DOCUMENTS, name, query=query, request_id=request_id)

    async def delete(
        self, name: str, document_id: str, *, request_id: str | None = None
    ) -> collections.DeletedDocumentResponse:
        """Remove a document. Raises: NotFoundError."""
        if document_id == collection_documents.RESERVED_ID:
            raise InvalidInputError("No document is called 'all'; `empty` removes every document of a collection.")
        return await self._call(routes.DELETE_DOCUMENT, name, document_id, request_id=request_id)

    async def delete_where(
        self,
        name: str,
        where: Mapping[str, object],
        *,
        dry_run: bool = False,
        confirm: bool = False,
        request_id: str | None = None,
    ) -> collections.DeletedMatchingResponse:
        """Remove the documents that pass a filter; more than 100, or more than half, only with `confirm`."""
        query = {"where": where, "dry_run": dry_run, "confirm": confirm}
        return await self._call(routes.DELETE_MATCHING, name, query=query, request_id=request_id)

    async def replace_document_metadata(
        self, name: str, document_id: str, metadata: Mapping[str, object], *, request_id: str | None = None
    ) -> collections.UpdatedDocumentResponse:
        """Give a document other metadata; its text and vector stay. Raises: NotFoundError."""
        body = {"metadata": metadata}
        return await self._call(routes.PUT_DOCUMENT_METADATA, name, document_id, body=body, request_id=request_id)

    async def merge_document_metadata(
        self, name: str, document_id: str, metadata: Mapping[str, object], *, request_id: str | None = None
    ) -> collections.UpdatedDocumentResponse:
        """Set these keys of a document's metadata and keep the others. Raises: NotFoundError."""
        query, body = {"merge": True}, {"metadata": metadata}
        return await self._call(
            routes.PUT_DOCUMENT_METADATA, name, document_id, query=query, body=body, request_id=request_id
        )

    async def empty(self, name: str, *, request_id: str | None = None) -> collections.EmptiedCollectionResponse:
        """Remove all documents of a collection, or none; the collection stays."""
        return await self._call(routes.EMPTY_COLLECTION, name, request_id=request_id)

    async def values(self, name: str, field: str, *, request_id: str | None = None) -> collections.ValuesResponse:
        """The distinct values of a metadata field, sorted."""
        return await self._call(routes.LIST_VALUES, name, query={"field": field}, request_id=request_id)

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
    ) -> collections.QueryResponse:
        """The documents nearest to a vector, or to a text where the server embeds; or by keywords, or by both."""
        body = {
            "text": text,
            "embedding": embedding,
            "where": where,
            "top_k": top_k,
            "mode": mode,
            "min_score": min_score,
        }
        return await self._call(routes.QUERY_COLLECTION, name, body=body, request_id=request_id)

    async def providers(self, *, request_id: str | None = None) -> collection_operations.ProvidersResponse:
        """What collections can be kept by, also what is not installed here."""
        return await self._send(route_call(routes.LIST_PROVIDERS), request_id)

    async def provider(self, name: str, *, request_id: str | None = None) -> collection_operations.ProviderResponse:
        """One of them. Raises: NotFoundError."""
        return await self._send(route_call(routes.GET_PROVIDER, name), request_id)

    async def test(
        self,
        provider: str,
        configuration: Mapping[str, object] | None = None,
        *,
        connection: str | None = None,
        request_id: str | None = None,
    ) -> collection_operations.ProviderHealthResponse:
        """Try a provider with a configuration, or as a connection has it."""
        body = {"configuration": configuration, "connection": connection}
        return await self._send(route_call(routes.TEST_PROVIDER, provider, body=body), request_id)

    async def _call(
        self,
        route: Route[Response],
        *names: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        request_id: str | None,
    ) -> Response:
        call = route_call(route, *names, connection=self._connection, query=query, body=body)
        return await self._send(call, request_id)

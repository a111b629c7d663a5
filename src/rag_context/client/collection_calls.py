"""The calls of collections and providers as data."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict
from urllib.parse import quote, urlencode

from pydantic_core import PydanticSerializationError, to_json

from rag_context.api.collection_documents import RESERVED_ID
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
from rag_context.api.operations import Response, routes
from rag_context.api.operations.routes import Route
from rag_context.api.providers import ProviderHealthResponse, ProviderResponse, ProvidersResponse
from rag_context.client.call import Call, step_of
from rag_context.domain.vectors import Vector
from rag_context.errors import InvalidInputError

DEFAULT_CONNECTION = "default"

QueryMode: TypeAlias = Literal["vector", "text", "hybrid"]

Embedding: TypeAlias = Sequence[float] | Vector
"""`(dim,)`, any numbers."""


class CollectionDocument(TypedDict):
    """A document for a collection; without an embedding where the server embeds."""

    text: str
    id: NotRequired[str]
    metadata: NotRequired[Mapping[str, object]]
    embedding: NotRequired[Embedding]


def collections(connection: str) -> Call[CollectionsResponse]:
    """List collections."""
    return _call(routes.LIST_COLLECTIONS, connection=connection)


def collection(name: str, connection: str) -> Call[CollectionResponse]:
    """Read one."""
    return _call(routes.GET_COLLECTION, name, connection=connection)


def create(
    name: str,
    metadata: Mapping[str, object] | None,
    embedding_provider: str | None,
    embedding_model: str | None,
    connection: str,
) -> Call[CreatedCollectionResponse]:
    """Make one."""
    fields = {"metadata": metadata, "embedding_provider": embedding_provider, "embedding_model": embedding_model}
    return _call(routes.CREATE_COLLECTION, body={"name": name, **fields}, connection=connection)


def drop(name: str, connection: str) -> Call[DroppedCollectionResponse]:
    """Remove one."""
    return _call(routes.DELETE_COLLECTION, name, connection=connection)


def put_metadata(name: str, metadata: Mapping[str, object], merge: bool, connection: str) -> Call[MetadataResponse]:
    """Replace a collection's metadata, or set some of it."""
    return _call(routes.PUT_METADATA, name, body={"metadata": metadata}, connection=connection, query=_merging(merge))


def add(name: str, documents: Iterable[CollectionDocument], connection: str) -> Call[AddedDocumentsResponse]:
    """Store documents."""
    return _call(routes.ADD_DOCUMENTS, name, body={"documents": list(documents)}, connection=connection)


def documents(
    name: str,
    where: Mapping[str, object] | None,
    limit: int,
    offset: int,
    ids: Sequence[str] | None,
    embeddings: bool,
    connection: str,
) -> Call[DocumentsResponse]:
    """Read a page of documents, or those of some ids."""
    query = {"limit": str(limit), "offset": str(offset)}
    if ids is not None:
        query["ids"] = _json(list(ids)).decode()
    if embeddings:
        query["include"] = "embeddings"
    if where is not None:
        query["where"] = _json(where).decode()
    return _call(routes.LIST_DOCUMENTS, name, connection=connection, query=query)


def delete(name: str, document_id: str, connection: str) -> Call[DeletedDocumentResponse]:
    """Remove a document."""
    if document_id == RESERVED_ID:
        raise InvalidInputError("No document is called 'all'; `empty` removes every document of a collection.")
    return _call(routes.DELETE_DOCUMENT, name, document_id, connection=connection)


def delete_where(
    name: str, where: Mapping[str, object], dry_run: bool, confirm: bool, connection: str
) -> Call[DeletedMatchingResponse]:
    """Remove the documents that pass a filter."""
    query = {"where": _json(where).decode(), "dry_run": _truth(dry_run), "confirm": _truth(confirm)}
    return _call(routes.DELETE_MATCHING, name, connection=connection, query=query)


def update(
    name: str, document_id: str, metadata: Mapping[str, object], merge: bool, connection: str
) -> Call[UpdatedDocumentResponse]:
    """Replace a document's metadata, or set some of it."""
    body = {"metadata": metadata}
    return _call(
        routes.PUT_DOCUMENT_METADATA, name, document_id, body=body, connection=connection, query=_merging(merge)
    )


def empty(name: str, connection: str) -> Call[EmptiedCollectionResponse]:
    """Remove all documents."""
    return _call(routes.EMPTY_COLLECTION, name, connection=connection)


def values(name: str, field: str, connection: str) -> Call[ValuesResponse]:
    """Read the distinct values of a metadata field."""
    return _call(routes.LIST_VALUES, name, connection=connection, query={"field": field})


def query(
    name: str,
    text: str | None,
    embedding: Embedding | None,
    where: Mapping[str, object] | None,
    top_k: int,
    mode: QueryMode,
    min_score: float | None,
    connection: str,
) -> Call[QueryResponse]:
    """Find documents."""
    fields = {
        "text": text,
        "embedding": embedding,
        "where": where,
        "top_k": top_k,
        "mode": mode,
        "min_score": min_score,
    }
    return _call(routes.QUERY_COLLECTION, name, body=fields, connection=connection)


def providers() -> Call[ProvidersResponse]:
    """List providers."""
    return _call(routes.LIST_PROVIDERS)


def provider(name: str) -> Call[ProviderResponse]:
    """Read one."""
    return _call(routes.GET_PROVIDER, name)


def test(name: str, configuration: Mapping[str, object] | None, connection: str | None) -> Call[ProviderHealthResponse]:
    """Try a provider."""
    return _call(routes.TEST_PROVIDER, name, body={"configuration": configuration, "connection": connection})


def _call(
    route: Route[Response],
    *names: str,
    connection: str = DEFAULT_CONNECTION,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, object] | None = None,
) -> Call[Response]:
    """A call of a declared route; fields of the body without a value are left out."""
    path = route.address(*map(step_of, names))
    fields = {} if connection == DEFAULT_CONNECTION else {"connection": connection}
    fields.update(query or {})
    try:
        encoded = f"?{urlencode(fields, quote_via=quote)}" if fields else ""
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"This cannot be part of a URL: {error}") from None
    sent = None if body is None else _json({key: value for key, value in body.items() if value is not None})
    read = route.operation.response.model_validate_json
    return Call(path + encoded, read, sent, route.method, route.repeatable)


def _merging(merge: bool) -> dict[str, str]:
    return {"merge": "true"} if merge else {}


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _json(value: object) -> bytes:
    try:
        return to_json(value, fallback=_plain)
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"This is not JSON: {error}") from None


def _plain(value: object) -> object:
    """Arrays of numbers are lists."""
    listed = getattr(value, "tolist", None)
    if listed is None:
        raise TypeError(f"a {type(value).__name__} is no JSON")
    return listed()

"""What can be asked of collections and providers, as data."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict
from urllib.parse import quote, urlencode

from pydantic_core import PydanticSerializationError, to_json

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
from rag_context.api.operations.operation import Response
from rag_context.api.providers import ProviderHealthResponse, ProviderResponse, ProvidersResponse
from rag_context.client.calls import Call, step_of
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
    return _read(_path("collections", connection=connection), CollectionsResponse)


def collection(name: str, connection: str) -> Call[CollectionResponse]:
    """Read one."""
    return _read(_path("collections", name, connection=connection), CollectionResponse)


def create(
    name: str,
    metadata: Mapping[str, object] | None,
    embedding_provider: str | None,
    embedding_model: str | None,
    connection: str,
) -> Call[CreatedCollectionResponse]:
    """Make one. A second time it would be there already, so it is not repeated where it may have been done."""
    fields = {"metadata": metadata, "embedding_provider": embedding_provider, "embedding_model": embedding_model}
    body = _json({"name": name, **{key: value for key, value in fields.items() if value is not None}})
    path = _path("collections", connection=connection)
    return Call(path, CreatedCollectionResponse.model_validate_json, body, repeatable=False)


def drop(name: str, connection: str) -> Call[DroppedCollectionResponse]:
    """Remove one."""
    return _remove(_path("collections", name, connection=connection), DroppedCollectionResponse)


def put_metadata(name: str, metadata: Mapping[str, object], merge: bool, connection: str) -> Call[MetadataResponse]:
    """Replace a collection's metadata, or set some of it."""
    query = {"merge": "true"} if merge else {}
    path = _path("collections", name, "metadata", connection=connection, **query)
    return Call(path, MetadataResponse.model_validate_json, _json({"metadata": metadata}), "PUT")


def add(name: str, documents: Iterable[CollectionDocument], connection: str) -> Call[AddedDocumentsResponse]:
    """Store documents."""
    path = _path("collections", name, "documents", connection=connection)
    return _write(path, {"documents": list(documents)}, AddedDocumentsResponse)


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
    return _read(_path("collections", name, "documents", connection=connection, **query), DocumentsResponse)


def delete(name: str, document_id: str, connection: str) -> Call[DeletedDocumentResponse]:
    """Remove a document."""
    if document_id == "all":
        raise InvalidInputError("No document is called 'all'; `empty` removes every document of a collection.")
    return _remove(_path("collections", name, "documents", document_id, connection=connection), DeletedDocumentResponse)


def delete_where(
    name: str, where: Mapping[str, object], dry_run: bool, confirm: bool, connection: str
) -> Call[DeletedMatchingResponse]:
    """Remove the documents that pass a filter."""
    query = {"where": _json(where).decode(), "dry_run": _truth(dry_run), "confirm": _truth(confirm)}
    path = _path("collections", name, "documents", connection=connection, **query)
    return Call(path, DeletedMatchingResponse.model_validate_json, method="DELETE", repeatable=False)


def update(
    name: str, document_id: str, metadata: Mapping[str, object], merge: bool, connection: str
) -> Call[UpdatedDocumentResponse]:
    """Replace a document's metadata, or set some of it."""
    query = {"merge": "true"} if merge else {}
    path = _path("collections", name, "documents", document_id, "metadata", connection=connection, **query)
    return Call(path, UpdatedDocumentResponse.model_validate_json, _json({"metadata": metadata}), "PUT")


def empty(name: str, connection: str) -> Call[EmptiedCollectionResponse]:
    """Remove all documents."""
    path = _path("collections", name, "documents", "all", connection=connection)
    return Call(path, EmptiedCollectionResponse.model_validate_json, method="DELETE")


def values(name: str, field: str, connection: str) -> Call[ValuesResponse]:
    """Read the distinct values of a metadata field."""
    return _read(_path("collections", name, "metadata-values", connection=connection, field=field), ValuesResponse)


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
    path = _path("collections", name, "query", connection=connection)
    return _write(path, {key: value for key, value in fields.items() if value is not None}, QueryResponse)


def providers() -> Call[ProvidersResponse]:
    """List providers."""
    return _read(_path("providers"), ProvidersResponse)


def provider(name: str) -> Call[ProviderResponse]:
    """Read one."""
    return _read(_path("providers", name), ProviderResponse)


def test(name: str, configuration: Mapping[str, object] | None, connection: str | None) -> Call[ProviderHealthResponse]:
    """Try a provider."""
    fields = {"configuration": configuration, "connection": connection}
    given = {key: value for key, value in fields.items() if value is not None}
    return _write(_path("providers", name, "test"), given, ProviderHealthResponse)


def _path(*steps: str, **query: str) -> str:
    if query.get("connection") == DEFAULT_CONNECTION:
        del query["connection"]
    try:
        told = f"?{urlencode(query, quote_via=quote)}" if query else ""
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"This cannot stand in an address: {error}") from None
    return "/" + "/".join(step_of(step) for step in steps) + told


def _read(path: str, response: type[Response]) -> Call[Response]:
    return Call(path, response.model_validate_json, method="GET")


def _write(path: str, body: Mapping[str, object], response: type[Response]) -> Call[Response]:
    return Call(path, response.model_validate_json, _json(body))


def _remove(path: str, response: type[Response]) -> Call[Response]:
    """A second time nothing would be there (404), so it is not repeated where it may have been done."""
    return Call(path, response.model_validate_json, method="DELETE", repeatable=False)


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

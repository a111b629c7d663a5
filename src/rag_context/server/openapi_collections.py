"""The description of `/collections` and `/providers`, with an example for every body."""

from typing import Any

from pydantic import BaseModel

from rag_context.api.collection_fields import (
    ConnectionFields,
    DeleteFields,
    DocumentsFields,
    MetadataFields,
    NoFields,
    ValuesFields,
)
from rag_context.api.collections import (
    DOCUMENTS_SCHEMA,
    ID_SCHEMA,
    NAME_SCHEMA,
    UNCONFIRMED,
    AddedDocumentsResponse,
    CollectionResponse,
    CollectionsResponse,
    CreateCollectionRequest,
    CreatedCollectionResponse,
    DeletedDocumentResponse,
    DeletedMatchingResponse,
    DocumentsResponse,
    DroppedCollectionResponse,
    EmptiedCollectionResponse,
    MetadataRequest,
    MetadataResponse,
    QueryRequest,
    QueryResponse,
    UpdatedDocumentResponse,
    ValuesResponse,
)
from rag_context.api.documents import RESERVED_ID
from rag_context.api.providers import ProviderHealthResponse, ProviderResponse, ProvidersResponse, TestRequest
from rag_context.api.schema import Schema, json_schema
from rag_context.api.wire import WireRequest
from rag_context.server.described import READING, WRITING, Operation, json_answer, operation_of, ref
from rag_context.server.options import ServerOptions

_REQUESTS: tuple[type[BaseModel], ...] = (CreateCollectionRequest, MetadataRequest, QueryRequest, TestRequest)
_RESPONSES: tuple[type[BaseModel], ...] = (
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
    ProviderHealthResponse,
    ProviderResponse,
    ProvidersResponse,
    QueryResponse,
    UpdatedDocumentResponse,
    ValuesResponse,
)
_NAMED = (*READING, 400, 404)
_NAMED_WRITING = (*WRITING, 404)
_REMOVING = (400, 401, 403, 404, 409, 429, 500, 503)
_NEEDS_WRITE = " Needs a key that may write, where keys are set."
_WHERE = {"section_id": "retention-config"}


def collection_schemas() -> Schema:
    """The shapes of requests and answers by name."""
    any_of = [{"required": [field], "properties": {field: {}}} for field in ("embedding", "text")]
    return {
        **{model.__name__: json_schema(model, "validation") for model in _REQUESTS},
        **{model.__name__: json_schema(model, "serialization") for model in _RESPONSES},
        "DocumentsRequest": DOCUMENTS_SCHEMA,
        "QueryRequest": {**json_schema(QueryRequest, "validation"), "anyOf": any_of},
        "TestRequest": {
            **json_schema(TestRequest, "validation"),
            "not": {"required": ["configuration", "connection"]},
        },
    }


def collection_paths(options: ServerOptions) -> dict[str, Any]:
    """Every address of collections and providers."""
    return {
        "/collections": {"get": _list(), "post": _create()},
        "/collections/{name}": {"get": _get(), "delete": _drop()},
        "/collections/{name}/metadata": {"put": _put_metadata()},
        "/collections/{name}/documents": {"get": _documents(), "post": _add(options), "delete": _delete_matching()},
        "/collections/{name}/documents/{id}": {"delete": _delete()},
        "/collections/{name}/documents/{id}/metadata": {"put": _update()},
        f"/collections/{{name}}/documents/{RESERVED_ID}": {"delete": _empty()},
        "/collections/{name}/metadata-values": {"get": _values()},
        "/collections/{name}/query": {"post": _query()},
        "/providers": {"get": _providers()},
        "/providers/{name}": {"get": _provider()},
        "/providers/{name}/test": {"post": _test()},
    }


def _list() -> Operation:
    return _about(
        "List the collections", "list_collections", CollectionsResponse, (*READING, 400, 404), ConnectionFields
    )


def _create() -> Operation:
    operation = _about(
        "Create a collection",
        "create_collection",
        CreatedCollectionResponse,
        (*WRITING, 404, 409),
        ConnectionFields,
        "embedding_provider and embedding_model are labels: kept, returned, never judged. Only the embedding_provider "
        "rag-context means that this server embeds texts itself." + _NEEDS_WRITE,
    )
    operation["responses"]["201"] = operation["responses"].pop("200")
    example = {"name": "handbook", "metadata": {"owner": "docs"}, "embedding_provider": "rag-context"}
    return _with_body(operation, "CreateCollectionRequest", example)


def _get() -> Operation:
    return _named("Look at a collection", "get_collection", CollectionResponse, _NAMED)


def _drop() -> Operation:
    said = "With all documents in it; there is no way back." + _NEEDS_WRITE
    return _named("Delete a collection", "delete_collection", DroppedCollectionResponse, _REMOVING, description=said)


def _put_metadata() -> Operation:
    said = "Replaces it, or with merge=true sets the given keys. The labels stay, unless others are given."
    operation = _named(
        "Put a collection's metadata",
        "put_collection_metadata",
        MetadataResponse,
        (*_NAMED_WRITING, 409),
        MetadataFields,
        said + _NEEDS_WRITE,
    )
    return _with_body(operation, "MetadataRequest", {"metadata": {"owner": "docs", "stage": "live"}})


def _add(options: ServerOptions) -> Operation:
    operation = _named(
        "Store documents",
        "add_documents",
        AddedDocumentsResponse,
        (*_NAMED_WRITING, 409),
        description="All of them or none; a known id is replaced. The first ones bind the collection to the dimension "
        f"of their embeddings. At most {options.collection_body_bytes} bytes." + _NEEDS_WRITE,
    )
    document = {"id": "retention-1", "text": "Logs are kept for 31 days.", "metadata": _WHERE}
    return _with_body(operation, "DocumentsRequest", {"documents": [{**document, "embedding": [0.1, 0.7, 0.2]}]})


def _documents() -> Operation:
    said = (
        "Documents whose metadata passes a filter, by id, and how many there are in all. where is JSON: equality, "
        "implicit AND, $and, $or, $not, $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists and $contains."
    )
    return _named("List documents", "list_documents", DocumentsResponse, _NAMED, DocumentsFields, said)


def _delete() -> Operation:
    operation = _named(
        "Delete a document", "delete_document", DeletedDocumentResponse, _REMOVING, description=_NEEDS_WRITE.strip()
    )
    operation["parameters"].append(_document_id())
    return operation


def _delete_matching() -> Operation:
    said = (
        f"Those whose metadata passes a filter. More than {UNCONFIRMED} documents, or more than half of the "
        "collection, only go with confirm=true; dry_run=true says which ones would." + _NEEDS_WRITE
    )
    return _named(
        "Delete documents by a filter",
        "delete_matching_documents",
        DeletedMatchingResponse,
        _REMOVING,
        DeleteFields,
        said,
    )


def _update() -> Operation:
    said = "Replaces it, or with merge=true sets the given keys. The text and the vector stay." + _NEEDS_WRITE
    operation = _named(
        "Put a document's metadata",
        "put_document_metadata",
        UpdatedDocumentResponse,
        (*_NAMED_WRITING, 409),
        MetadataFields,
        said,
    )
    operation["parameters"].append(_document_id())
    return _with_body(operation, "MetadataRequest", {"metadata": {"reviewed": True}})


def _empty() -> Operation:
    said = "All of them or none; the collection itself, its metadata and its dimension stay." + _NEEDS_WRITE
    return _named(
        "Delete all documents", "delete_all_documents", EmptiedCollectionResponse, _REMOVING, description=said
    )


def _values() -> Operation:
    return _named("List the values of a metadata field", "metadata_values", ValuesResponse, _NAMED, ValuesFields)


def _query() -> Operation:
    operation = _named(
        "Find documents",
        "query_collection",
        QueryResponse,
        (*_NAMED_WRITING, 409),
        description="By an embedding, or by a text where the server embeds the collection's texts itself; with mode "
        "text by keywords, with mode hybrid by both. 409: another model made the collection's vectors.",
    )
    return _with_body(operation, "QueryRequest", {"embedding": [0.1, 0.7, 0.2], "where": _WHERE, "top_k": 3})


def _providers() -> Operation:
    return _about("List the providers", "list_providers", ProvidersResponse, (*READING, 400), NoFields, tag="providers")


def _provider() -> Operation:
    operation = _about("Look at a provider", "get_provider", ProviderResponse, _NAMED, NoFields, tag="providers")
    operation["parameters"].append(_provider_name())
    return operation


def _test() -> Operation:
    operation = _about(
        "Try a configuration",
        "test_provider",
        ProviderHealthResponse,
        _NAMED_WRITING,
        NoFields,
        "Opens the provider with a configuration, or takes a connection that there is, and says how it is: 200 also "
        "where it is not well." + _NEEDS_WRITE,
        tag="providers",
    )
    operation["parameters"].append(_provider_name())
    operation = _with_body(operation, "TestRequest", {"configuration": {}})
    operation["requestBody"]["required"] = False
    return operation


def _named(
    summary: str,
    name: str,
    response: type[BaseModel],
    errors: tuple[int, ...],
    fields: type[WireRequest] = ConnectionFields,
    description: str = "",
) -> Operation:
    """An operation on one collection."""
    operation = _about(summary, name, response, errors, fields, description)
    schema = {**NAME_SCHEMA, "not": {"enum": [".", ".."]}}
    operation["parameters"].insert(0, _in_path("name", schema, "The collection's name, percent-encoded"))
    return operation


def _about(
    summary: str,
    name: str,
    response: type[BaseModel],
    errors: tuple[int, ...],
    fields: type[WireRequest],
    description: str = "",
    tag: str = "collections",
) -> Operation:
    answer = json_answer(ref(response.__name__), (response.__doc__ or "The answer").split("\n")[0])
    operation = operation_of(summary, tag, name, answer, tuple(sorted(errors)), description)
    schema = json_schema(fields, "validation")
    required = schema.get("required", ())
    operation["parameters"] = [
        {
            "name": field,
            "in": "query",
            "required": field in required,
            "description": described.get("description", ""),
            "schema": described,
        }
        for field, described in schema.get("properties", {}).items()
    ]
    return operation


def _with_body(operation: Operation, schema: str, example: dict[str, Any]) -> Operation:
    content = {"application/json": {"schema": ref(schema), "example": example}}
    return {**operation, "requestBody": {"required": True, "content": content}}


def _document_id() -> Schema:
    schema = {**ID_SCHEMA, "not": {"enum": [RESERVED_ID, ".", ".."]}}
    return _in_path("id", schema, "The document's id, percent-encoded")


def _provider_name() -> Schema:
    return _in_path("name", {"type": "string", "minLength": 1}, "The provider's name, as the list gives it")


def _in_path(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}

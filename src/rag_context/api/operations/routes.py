"""What can be called at which address: operations at `/tools/NAME`, and REST routes at `/collections` and `/providers`.

The server's routes, body limits and OpenAPI, and the client's calls, are made from both.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Generic

from rag_context.api import collection_operations
from rag_context.api import collections as wire
from rag_context.api.collection_documents import RESERVED_ID
from rag_context.api.operations import Operation, Response, collections, memory, projects
from rag_context.api.wire import WireRequest

PERFORMED: Mapping[str, Operation[Any, Any]] = {
    operation.name: operation
    for module in (memory, collections, projects)
    for operation in vars(module).values()
    if isinstance(operation, Operation)
}
"""All operations by name, also those that are no tools."""

OPERATIONS: Mapping[str, Operation[Any, Any]] = {
    name: operation for name, operation in PERFORMED.items() if operation.is_tool
}
"""All tools by name, in the order of their declarations, in which they are listed."""


@dataclass(frozen=True)
class Route(Generic[Response]):
    """One method of one address. What stands in its path, query string and body are the operation's fields."""

    method: str
    path: str
    operation: Operation[Any, Response]
    operation_id: str
    """Its name in OpenAPI, which generated clients call it by."""
    _: KW_ONLY
    query: type[WireRequest] = collection_operations.ConnectionFields
    body: type[WireRequest] | None = None
    body_required: bool = True
    status: int = 200
    description: str = ""
    """Where the address differs from the operation; the operation's own description otherwise."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """A body; the fields of the operation's own example otherwise."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of JSON Schema that hold for the body beside its fields. Strict clients reject them on a tool."""
    is_large: bool = False
    """Whether the body may be of the size for documents of collections."""
    repeatable: bool = True
    """Whether a client that got no answer may send it again: a second time leaves what one leaves, and is no error."""

    @property
    def tag(self) -> str:
        return self.path.split("/")[1]

    @cached_property
    def steps(self) -> tuple[str, ...]:
        return tuple(self.path.split("/")[1:])

    def names_in(self, steps: Sequence[str]) -> Mapping[str, str] | None:
        """The names in an address that was cut at its slashes and decoded; None where the route does not fit."""
        if len(steps) != len(self.steps):
            return None
        names = {}
        for declared, step in zip(self.steps, steps, strict=True):
            if declared.startswith("{"):
                names[declared.strip("{}")] = step
            elif declared != step:
                return None
        return names

    def address(self, *names: str) -> str:
        """The address for names that are percent-encoded."""
        left = iter(names)
        return "/".join(("", *(next(left) if step.startswith("{") else step for step in self.steps)))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches every decoded address of it. A name may hold a slash."""
        return re.compile(re.sub(r"\{\w+\}", ".+", self.path))

    @property
    def body_example(self) -> Mapping[str, Any]:
        fields = {} if self.body is None else self.body.model_fields
        return self.example or {name: value for name, value in self.operation.example.items() if name in fields}

    @property
    def errors(self) -> tuple[int, ...]:
        with_body = (408, 413, 415) if self.body is not None else ()
        missing = () if self.steps == ("providers",) else (404,)
        conflict = (409,) if self.tag == "collections" and self.method != "GET" else ()
        return tuple(sorted((400, 401, 403, *missing, *with_body, *conflict, 429, 500, 503)))

    def request(self, path: Mapping[str, str], *parts: WireRequest) -> WireRequest:
        """The operation's request from what was read, and checked, of the address, the query string and the body."""
        fields = {name: getattr(part, name) for part in parts for name in type(part).model_fields}
        request: WireRequest = self.operation.request.model_construct(**{**path, **fields})
        return request


LIST_COLLECTIONS = Route("GET", "/collections", collections.COLLECTION_LIST, "list_collections")

CREATE_COLLECTION = Route(
    "POST",
    "/collections",
    collections.COLLECTION_CREATE,
    "create_collection",
    body=wire.CreateCollectionRequest,
    status=201,
    repeatable=False,
)

GET_COLLECTION = Route("GET", "/collections/{name}", collections.COLLECTION_GET, "get_collection")

DELETE_COLLECTION = Route(
    "DELETE", "/collections/{name}", collections.COLLECTION_DELETE, "delete_collection", repeatable=False
)

PUT_METADATA = Route(
    "PUT",
    "/collections/{name}/metadata",
    collections.COLLECTION_SET_METADATA,
    "put_collection_metadata",
    query=collection_operations.MetadataFields,
    body=wire.MetadataRequest,
    description="Replaces it, or with merge=true sets the given keys. The labels stay, unless others are given.",
)

LIST_DOCUMENTS = Route(
    "GET",
    "/collections/{name}/documents",
    collections.COLLECTION_DOCUMENTS,
    "list_documents",
    query=collection_operations.DocumentsFields,
    description=(
        "Documents whose metadata passes a filter, by id, and how many there are in all. where is JSON: equality, "
        "implicit AND, $and, $or, $not, $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists and $contains."
    ),
)

ADD_DOCUMENTS = Route(
    "POST",
    "/collections/{name}/documents",
    collections.COLLECTION_ADD,
    "add_documents",
    body=wire.DocumentsRequest,
    is_large=True,
    description=(
        "All of them or none; a known id is replaced. The first ones bind the collection to the dimension of their "
        "embeddings."
    ),
    example={
        "documents": [
            {
                "id": "retention-1",
                "text": "Logs are kept for 31 days.",
                "metadata": {"section_id": "retention-config"},
                "embedding": [0.1, 0.7, 0.2],
            }
        ]
    },
)

DELETE_MATCHING = Route(
    "DELETE",
    "/collections/{name}/documents",
    collections.COLLECTION_DELETE_DOCUMENTS,
    "delete_matching_documents",
    query=collection_operations.DeleteFields,
    description=(
        f"Those whose metadata passes a filter. More than {wire.UNCONFIRMED} documents, or more than half of the "
        "collection, only go with confirm=true; dry_run=true says which ones would."
    ),
    repeatable=False,
)

DELETE_DOCUMENT = Route(
    "DELETE",
    "/collections/{name}/documents/{id}",
    collections.COLLECTION_DELETE_DOCUMENT,
    "delete_document",
    repeatable=False,
)

EMPTY_COLLECTION = Route(
    "DELETE", f"/collections/{{name}}/documents/{RESERVED_ID}", collections.COLLECTION_EMPTY, "delete_all_documents"
)

PUT_DOCUMENT_METADATA = Route(
    "PUT",
    "/collections/{name}/documents/{id}/metadata",
    collections.COLLECTION_UPDATE_DOCUMENT,
    "put_document_metadata",
    query=collection_operations.MetadataFields,
    body=wire.MetadataRequest,
    description="Replaces it, or with merge=true sets the given keys. The text and the vector stay.",
)

LIST_VALUES = Route(
    "GET",
    "/collections/{name}/metadata-values",
    collections.COLLECTION_VALUES,
    "metadata_values",
    query=collection_operations.ValuesFields,
)

QUERY_COLLECTION = Route(
    "POST",
    "/collections/{name}/query",
    collections.COLLECTION_QUERY,
    "query_collection",
    body=wire.QueryRequest,
    description=(
        "By an embedding, or by a text where the server embeds the collection's texts itself; with mode text by "
        "keywords, with mode hybrid by both. 409: another model made the collection's vectors."
    ),
    rules={"anyOf": [{"required": [name], "properties": {name: {}}} for name in ("embedding", "text")]},
    example={"embedding": [0.1, 0.7, 0.2], "where": {"section_id": "retention-config"}, "top_k": 3},
)

LIST_PROVIDERS = Route(
    "GET", "/providers", collections.PROVIDER_LIST, "list_providers", query=collection_operations.NoFields
)

GET_PROVIDER = Route(
    "GET", "/providers/{name}", collections.PROVIDER_GET, "get_provider", query=collection_operations.NoFields
)

TEST_PROVIDER = Route(
    "POST",
    "/providers/{name}/test",
    collections.PROVIDER_TEST,
    "test_provider",
    query=collection_operations.NoFields,
    body=collection_operations.TestRequest,
    body_required=False,
    rules={"not": {"required": ["configuration", "connection"]}},
)

ROUTES: tuple[Route[Any], ...] = tuple(route for route in [*globals().values()] if isinstance(route, Route))
"""All of them. The last whose address fits is the one: the reserved id stands behind every other."""

"""The tools for collections: every operation of `/collections`, for clients that speak MCP."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rag_context.api.collection_tools import (
    AddDocumentsTool,
    CreateCollectionTool,
    DeleteCollectionTool,
    DeleteDocumentsTool,
    GetCollectionTool,
    ListCollectionsTool,
    ListDocumentsTool,
    ListValuesTool,
    QueryTool,
    SetMetadataTool,
    UpdateDocumentTool,
)
from rag_context.api.collections import (
    AddedDocumentsResponse,
    CollectionResponse,
    CollectionsResponse,
    CreateCollectionRequest,
    CreatedCollectionResponse,
    DeletedMatchingResponse,
    DocumentsResponse,
    DroppedCollectionResponse,
    MetadataRequest,
    MetadataResponse,
    QueryRequest,
    QueryResponse,
    UpdatedDocumentResponse,
    ValuesResponse,
)
from rag_context.api.wire import WireRequest, WireResponse
from rag_context.server.options import Access
from rag_context.server.registry import Answer, Call, Tool, Toolset
from rag_context.service.collections import CollectionService

R = TypeVar("R", bound=WireRequest)

_NAME = "handbook"
_FILTER = (
    'where compares metadata: {"doc_type": "code"}, or with $and, $or, $not, $eq, $ne, $gt, $gte, $lt, $lte, $in, '
    "$nin, $exists, $contains."
)


def build_collection_tools(service: CollectionService) -> list[Tool[Any]]:
    """The tools, those that read first."""
    doors = _Doors(service)
    return [
        _reading(
            "collection_query",
            "Search a collection",
            "Find documents in a named collection. mode vector is vector search (the server embeds text, or give an "
            "embedding), text is keyword search, hybrid is both. " + _FILTER,
            QueryTool,
            QueryResponse,
            doors.query,
            {"name": _NAME, "text": "How long are logs kept?", "mode": "hybrid", "top_k": 3},
        ),
        _reading(
            "collection_list",
            "List collections",
            "List the named collections of a connection, with their number of documents. Those with read_only belong "
            "to other programs: they can be read and queried, not written to.",
            ListCollectionsTool,
            CollectionsResponse,
            doors.listing,
            {},
        ),
        _reading(
            "collection_get",
            "Describe a collection",
            "Describe a collection: its metadata, its labels, the dimension and model of its vectors.",
            GetCollectionTool,
            CollectionResponse,
            doors.get,
            {"name": _NAME},
        ),
        _reading(
            "collection_documents",
            "List documents of a collection",
            "List documents by id, those that match a filter or those of the given ids, a page at a time. " + _FILTER,
            ListDocumentsTool,
            DocumentsResponse,
            doors.documents,
            {"name": _NAME, "where": {"section_id": "retention"}, "limit": 10},
        ),
        _reading(
            "collection_values",
            "List the values of a metadata field",
            "List the distinct values of a metadata field of a collection's documents, to find possible filters.",
            ListValuesTool,
            ValuesResponse,
            doors.values,
            {"name": _NAME, "field": "section_id"},
        ),
        _writing(
            "collection_create",
            "Create a collection",
            "Create an empty named collection. With embedding_provider rag-context the server embeds the texts of its "
            "documents itself; otherwise each document needs an embedding.",
            CreateCollectionTool,
            CreatedCollectionResponse,
            doors.create,
            {"name": _NAME, "embedding_provider": "rag-context"},
            destructive=False,
        ),
        _writing(
            "collection_add",
            "Store documents in a collection",
            "Store documents, all of them or none; a known id is replaced. Each has a text, and any metadata.",
            AddDocumentsTool,
            AddedDocumentsResponse,
            doors.add,
            {"name": _NAME, "documents": [{"id": "retention-1", "text": "Logs are kept for 31 days."}]},
        ),
        _writing(
            "collection_update_document",
            "Change a document's metadata",
            "Replace the metadata of one document, or set some keys of it with merge; its text and vector stay.",
            UpdateDocumentTool,
            UpdatedDocumentResponse,
            doors.update,
            {"name": _NAME, "id": "retention-1", "metadata": {"reviewed": True}, "merge": True},
        ),
        _writing(
            "collection_set_metadata",
            "Change a collection's metadata",
            "Replace the metadata of a collection, or set some keys of it with merge.",
            SetMetadataTool,
            MetadataResponse,
            doors.set_metadata,
            {"name": _NAME, "metadata": {"owner": "docs"}, "merge": True},
        ),
        _writing(
            "collection_delete_documents",
            "Delete documents of a collection",
            "Remove documents by ids, by a filter, or every one; name exactly one of the three. A filter that matches "
            "many needs confirm: call with dry_run first, and check the result. This cannot be undone. " + _FILTER,
            DeleteDocumentsTool,
            DeletedMatchingResponse,
            doors.delete_documents,
            {"name": _NAME, "where": {"section_id": "retention"}, "dry_run": True},
        ),
        _writing(
            "collection_delete",
            "Delete a collection",
            "Remove a collection with all documents in it. This cannot be undone.",
            DeleteCollectionTool,
            DroppedCollectionResponse,
            doors.drop,
            {"name": _NAME},
        ),
    ]


class _Doors:
    """From a tool's arguments to a use case."""

    def __init__(self, service: CollectionService) -> None:
        self._service = service

    async def listing(self, asked: ListCollectionsTool) -> WireResponse:
        return await self._service.listing(connection=asked.connection)

    async def get(self, asked: GetCollectionTool) -> WireResponse:
        return await self._service.get(asked.name, connection=asked.connection)

    async def create(self, asked: CreateCollectionTool) -> WireResponse:
        request = CreateCollectionRequest.model_construct(
            name=asked.name,
            metadata=asked.metadata,
            embedding_provider=asked.embedding_provider,
            embedding_model=asked.embedding_model,
        )
        return await self._service.create(request, connection=asked.connection)

    async def drop(self, asked: DeleteCollectionTool) -> WireResponse:
        return await self._service.drop(asked.name, connection=asked.connection)

    async def set_metadata(self, asked: SetMetadataTool) -> WireResponse:
        put = self._service.merge_metadata if asked.merge else self._service.replace_metadata
        request = MetadataRequest.model_construct(metadata=asked.metadata)
        return await put(asked.name, request, connection=asked.connection)

    async def add(self, asked: AddDocumentsTool) -> WireResponse:
        return await self._service.add(asked.name, asked.documents, connection=asked.connection)

    async def documents(self, asked: ListDocumentsTool) -> WireResponse:
        return await self._service.documents(
            asked.name,
            where=asked.where,
            limit=asked.limit,
            offset=asked.offset,
            ids=asked.ids,
            embeddings=asked.include is not None,
            connection=asked.connection,
        )

    async def delete_documents(self, asked: DeleteDocumentsTool) -> WireResponse:
        if asked.ids is not None:
            return await self._service.delete_ids(
                asked.name, asked.ids, dry_run=asked.dry_run, connection=asked.connection
            )
        return await self._service.delete_matching(
            asked.name,
            asked.where,
            every=asked.every is True,
            dry_run=asked.dry_run,
            confirm=asked.confirm,
            connection=asked.connection,
        )

    async def update(self, asked: UpdateDocumentTool) -> WireResponse:
        request = MetadataRequest.model_construct(metadata=asked.metadata)
        return await self._service.update(asked.name, asked.id, request, merge=asked.merge, connection=asked.connection)

    async def values(self, asked: ListValuesTool) -> WireResponse:
        return await self._service.values(asked.name, asked.field, connection=asked.connection)

    async def query(self, asked: QueryTool) -> WireResponse:
        fields = {field: getattr(asked, field) for field in QueryRequest.model_fields}
        return await self._service.query(
            asked.name, QueryRequest.model_construct(**fields), connection=asked.connection
        )


def _reading(
    name: str,
    title: str,
    description: str,
    request: type[R],
    response: type[WireResponse],
    work: Callable[[R], Awaitable[WireResponse]],
    example: dict[str, Any],
) -> Tool[R]:
    return Tool(
        name=name,
        title=title,
        description=description,
        request=request,
        response=response,
        run=_running(work),
        access=Access.READ,
        read_only=True,
        example=example,
        names_one=True,
        toolset=Toolset.COLLECTIONS,
    )


def _writing(
    name: str,
    title: str,
    description: str,
    request: type[R],
    response: type[WireResponse],
    work: Callable[[R], Awaitable[WireResponse]],
    example: dict[str, Any],
    *,
    destructive: bool = True,
) -> Tool[R]:
    return Tool(
        name=name,
        title=title,
        description=description,
        request=request,
        response=response,
        run=_running(work),
        access=Access.WRITE,
        read_only=False,
        example=example,
        destructive=destructive,
        names_one=True,
        toolset=Toolset.COLLECTIONS,
    )


def _running(
    work: Callable[[R], Awaitable[WireResponse]],
) -> Callable[[R, Call], Awaitable[Answer]]:
    async def run(request: R, _call: Call) -> Answer:
        return Answer(await work(request))

    return run

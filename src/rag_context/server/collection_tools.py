"""What does the operations of collections."""

from typing import TypeVar

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
    CreateCollectionRequest,
    MetadataRequest,
    QueryRequest,
)
from rag_context.api.operations import collections as operations
from rag_context.api.wire import WireRequest, WireResponse
from rag_context.server.registry import WorkByName, does
from rag_context.service.collections import CollectionService

R = TypeVar("R", bound=WireRequest)


def collection_work(service: CollectionService) -> WorkByName:
    """What does the operations of collections."""
    tools = _CollectionTools(service)
    return dict(
        (
            does(operations.CONVERSE, lambda request, _call: service.converse(request)),
            does(operations.COLLECTION_QUERY, lambda request, _call: tools.query(request)),
            does(operations.COLLECTION_LIST, lambda request, _call: tools.listing(request)),
            does(operations.COLLECTION_GET, lambda request, _call: tools.get(request)),
            does(operations.COLLECTION_DOCUMENTS, lambda request, _call: tools.documents(request)),
            does(operations.COLLECTION_VALUES, lambda request, _call: tools.values(request)),
            does(operations.COLLECTION_CREATE, lambda request, _call: tools.create(request)),
            does(operations.COLLECTION_ADD, lambda request, _call: tools.add(request)),
            does(operations.COLLECTION_UPDATE_DOCUMENT, lambda request, _call: tools.update(request)),
            does(operations.COLLECTION_SET_METADATA, lambda request, _call: tools.set_metadata(request)),
            does(operations.COLLECTION_DELETE_DOCUMENTS, lambda request, _call: tools.delete_documents(request)),
            does(operations.COLLECTION_DELETE, lambda request, _call: tools.drop(request)),
        )
    )


class _CollectionTools:
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

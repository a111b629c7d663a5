"""What does the operations of collections and providers, for tools and addresses alike."""

from rag_context.api.collection_tools import DeleteDocumentsTool, ListDocumentsTool, SetMetadataTool
from rag_context.api.operations import collections as operations
from rag_context.api.wire import WireResponse
from rag_context.server.registry import Call, WorkByName, does
from rag_context.service.collections import CollectionService


def collection_work(service: CollectionService) -> WorkByName:
    """What does the operations of collections and providers."""

    async def set_metadata(request: SetMetadataTool, _call: Call) -> WireResponse:
        put = service.merge_metadata if request.merge else service.replace_metadata
        return await put(request.name, request, connection=request.connection)

    async def documents(request: ListDocumentsTool, _call: Call) -> WireResponse:
        return await service.documents(
            request.name,
            where=request.where,
            limit=request.limit,
            offset=request.offset,
            ids=request.ids,
            embeddings=request.include is not None,
            connection=request.connection,
        )

    async def delete_documents(request: DeleteDocumentsTool, _call: Call) -> WireResponse:
        name, connection = request.name, request.connection
        if request.ids is not None:
            return await service.delete_ids(name, request.ids, dry_run=request.dry_run, connection=connection)
        return await service.delete_matching(
            name,
            request.where,
            every=request.every is True,
            dry_run=request.dry_run,
            confirm=request.confirm,
            connection=connection,
        )

    return dict(
        (
            does(operations.CONVERSE, lambda request, _call: service.converse(request)),
            does(
                operations.COLLECTION_QUERY,
                lambda request, _call: service.query(request.name, request, connection=request.connection),
            ),
            does(operations.COLLECTION_LIST, lambda request, _call: service.listing(connection=request.connection)),
            does(
                operations.COLLECTION_GET,
                lambda request, _call: service.get(request.name, connection=request.connection),
            ),
            does(operations.COLLECTION_DOCUMENTS, documents),
            does(
                operations.COLLECTION_VALUES,
                lambda request, _call: service.values(request.name, request.field, connection=request.connection),
            ),
            does(
                operations.COLLECTION_CREATE,
                lambda request, _call: service.create(request, connection=request.connection),
            ),
            does(
                operations.COLLECTION_ADD,
                lambda request, _call: service.add(request.name, request.documents, connection=request.connection),
            ),
            does(
                operations.COLLECTION_UPDATE_DOCUMENT,
                lambda request, _call: service.update(
                    request.name, request.id, request, merge=request.merge, connection=request.connection
                ),
            ),
            does(operations.COLLECTION_SET_METADATA, set_metadata),
            does(operations.COLLECTION_DELETE_DOCUMENTS, delete_documents),
            does(
                operations.COLLECTION_DELETE,
                lambda request, _call: service.drop(request.name, connection=request.connection),
            ),
            does(
                operations.COLLECTION_DELETE_DOCUMENT,
                lambda request, _call: service.delete(request.name, request.id, connection=request.connection),
            ),
            does(
                operations.COLLECTION_EMPTY,
                lambda request, _call: service.empty(request.name, connection=request.connection),
            ),
            does(operations.PROVIDER_LIST, lambda _request, _call: service.providers.listing()),
            does(operations.PROVIDER_GET, lambda request, _call: service.providers.get(request.name)),
            does(operations.PROVIDER_TEST, lambda request, _call: service.providers.test(request.name, request)),
        )
    )

"""What does the operations of collections and providers, for tools and addresses alike."""

from rag_context.api.collection_tools import DeleteDocumentsTool, ListDocumentsTool, SetMetadataTool
from rag_context.api.operations import collections as operations
from rag_context.api.wire import WireResponse
from rag_context.server.registry import Call, WorkByName, does
from rag_context.service.collections import CollectionService


def collection_work(service: CollectionService) -> WorkByName:
    """What does the operations of collections and providers."""

    async def set_metadata(asked: SetMetadataTool, _call: Call) -> WireResponse:
        put = service.merge_metadata if asked.merge else service.replace_metadata
        return await put(asked.name, asked, connection=asked.connection)

    async def documents(asked: ListDocumentsTool, _call: Call) -> WireResponse:
        return await service.documents(
            asked.name,
            where=asked.where,
            limit=asked.limit,
            offset=asked.offset,
            ids=asked.ids,
            embeddings=asked.include is not None,
            connection=asked.connection,
        )

    async def delete_documents(asked: DeleteDocumentsTool, _call: Call) -> WireResponse:
        name, connection = asked.name, asked.connection
        if asked.ids is not None:
            return await service.delete_ids(name, asked.ids, dry_run=asked.dry_run, connection=connection)
        return await service.delete_matching(
            name,
            asked.where,
            every=asked.every is True,
            dry_run=asked.dry_run,
            confirm=asked.confirm,
            connection=connection,
        )

    providers = service.providers
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
            does(operations.PROVIDER_LIST, lambda _request, _call: providers.listing()),
            does(operations.PROVIDER_GET, lambda request, _call: providers.get(request.name)),
            does(operations.PROVIDER_TEST, lambda request, _call: providers.test(request.name, request)),
        )
    )

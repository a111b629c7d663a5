"""The use cases of collections, one method each: requests in, responses out."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from rag_context.api.collection_documents import SubmittedDocuments, documents_of, documents_of_json
from rag_context.api.collection_operations import ConverseRequest, ConverseResponse, ConverseResult, OmittedCollection
from rag_context.api.collections import (
    MAX_PAGE,
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
    QueryResult,
    RecordedModel,
    StoredDocument,
    UpdatedDocumentResponse,
    ValuesResponse,
    page_size,
    sorted_values,
)
from rag_context.collections.collections import Collections, DocumentInput
from rag_context.collections.connections import DEFAULT, CollectionRef
from rag_context.collections.labels import MODEL_LABEL, OWN_EMBEDDER, PROVIDER_LABEL, recorded
from rag_context.collections.registry import ProviderRegistry
from rag_context.collections.searching import (
    CollectionQuery,
    Conversation,
    Conversations,
    Match,
    choose,
    clipped,
    search,
)
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Vector
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ports.provider import Collection, Entry
from rag_context.resilience.admission import Admissions
from rag_context.search.query import Mode
from rag_context.service.collection_maintenance import CollectionMaintenance
from rag_context.service.provider_service import AllowedAddresses, ProviderService
from rag_context.where import check_metadata, parse

MAX_OFFSET = 1_000_000_000
"""Larger than every collection; some engines reject larger offsets."""

_Metadata = Mapping[str, Json]


class CollectionService:
    """The use cases of collections.

    Every method raises NotFoundError if the collection or connection does not exist, InvalidInputError if the
    request is invalid, and BackendError if the provider is unavailable.

    Args:
        collections: the collections of all connections.
        registry: the provider kinds.
        admissions: bounds what runs at once; a call that waits too long raises OverloadedError.
        allowed: the addresses at which callers may test a provider.
    """

    def __init__(
        self,
        collections: Collections,
        registry: ProviderRegistry,
        admissions: Admissions | None = None,
        allowed: AllowedAddresses | None = None,
    ) -> None:
        self._collections = collections
        self._admissions = admissions or Admissions.unlimited()
        self.providers = ProviderService(collections.connections, registry, allowed or AllowedAddresses())
        self.maintenance = CollectionMaintenance(collections)
        """Health reports, and embedding collections again."""

        self._conversations = Conversations(collections)

    @property
    def embeddings_reused(self) -> int:
        """How often an embedding of a conversation's query was reused for another collection."""
        return self._conversations.reused

    async def close(self) -> None:
        """Stop the background work."""
        await self.maintenance.close()

    async def listing(self, *, connection: str = DEFAULT) -> CollectionsResponse:
        """All collections of a connection."""
        found = [_response(one, connection) for one in await self._collections.listing(connection)]
        return CollectionsResponse(collections=found, count=len(found))

    async def create(self, request: CreateCollectionRequest, *, connection: str = DEFAULT) -> CreatedCollectionResponse:
        """Create an empty collection. Raises: ConflictError if there is one of that name."""
        check_metadata(request.metadata)
        collection = Collection(
            name=request.name,
            metadata={key: value for key, value in request.metadata.items() if not _is_label(key, value)},
            embedding_provider=_label(request.embedding_provider, request.metadata, PROVIDER_LABEL),
            embedding_model=_label(request.embedding_model, request.metadata, MODEL_LABEL),
        )
        created = await self._collections.create(collection, connection)
        return CreatedCollectionResponse(**dict(_response(created, connection)))

    async def get(self, name: str, *, connection: str = DEFAULT) -> CollectionResponse:
        """Read one collection."""
        return _response(await self._collections.get(CollectionRef(name, connection)), connection)

    async def drop(self, name: str, *, connection: str = DEFAULT) -> DroppedCollectionResponse:
        """Delete a collection with all its documents."""
        await self._collections.drop(CollectionRef(name, connection))
        return DroppedCollectionResponse(collection=name)

    async def replace_metadata(
        self, name: str, request: MetadataRequest, *, connection: str = DEFAULT
    ) -> MetadataResponse:
        """Replace the metadata; the embedding labels stay unless the request sets them."""
        check_metadata(request.metadata)
        changed = await self._collections.replace_metadata(CollectionRef(name, connection), request.metadata)
        return MetadataResponse(collection=name, metadata=_metadata(changed))

    async def merge_metadata(
        self, name: str, request: MetadataRequest, *, connection: str = DEFAULT
    ) -> MetadataResponse:
        """Set these keys and keep the others."""
        check_metadata(request.metadata)
        changed = await self._collections.merge_metadata(CollectionRef(name, connection), request.metadata)
        return MetadataResponse(collection=name, metadata=_metadata(changed))

    async def add(
        self, name: str, documents: Iterable[Mapping[str, object]], *, connection: str = DEFAULT
    ) -> AddedDocumentsResponse:
        """Store documents with `text` and optionally `id`, `metadata` and `embedding` (numbers or an array)."""
        async with self._admissions.writes.admitted():
            collection = await self._collections.get(CollectionRef(name, connection))
            parsed = await asyncio.to_thread(documents_of, documents, check_metadata)
            return await self._add(collection, parsed, connection)

    async def add_json(self, name: str, body: bytes, *, connection: str = DEFAULT) -> AddedDocumentsResponse:
        """Store the documents of `{"documents": [...]}`."""
        async with self._admissions.writes.admitted():
            collection = await self._collections.get(CollectionRef(name, connection))
            parsed = await asyncio.to_thread(documents_of_json, body, check_metadata)
            return await self._add(collection, parsed, connection)

    async def documents(
        self,
        name: str,
        *,
        where: object = None,
        limit: int = MAX_PAGE,
        offset: int = 0,
        ids: Sequence[str] | None = None,
        embeddings: bool = False,
        connection: str = DEFAULT,
    ) -> DocumentsResponse:
        """A page of the documents that match a filter (JSON, or its text), sorted by id; or the documents of `ids`."""
        ref, clause = CollectionRef(name, connection), parse(where)
        async with self._admissions.searches.admitted():
            if ids is not None:
                stored = await self._collections.get_entries(ref, ids)
                entries = [stored[id_] for id_ in dict.fromkeys(ids) if id_ in stored]
                total = len(entries)
            else:
                page = await self._collections.entries(
                    ref, clause, limit=page_size(limit), offset=min(offset, MAX_OFFSET)
                )
                entries, total = list(page.entries), page.total
            vectors = await self._collections.vectors(ref, [entry.id for entry in entries]) if embeddings else {}
        found = [_document(entry, vectors) for entry in entries]
        return DocumentsResponse.model_construct(documents=found, count=len(found), total=total)

    async def delete(self, name: str, id_: str, *, connection: str = DEFAULT) -> DeletedDocumentResponse:
        """Delete one document."""
        await self._collections.delete(CollectionRef(name, connection), id_)
        return DeletedDocumentResponse(collection=name, id=id_)

    async def delete_ids(
        self, name: str, ids: Sequence[str], *, dry_run: bool = False, connection: str = DEFAULT
    ) -> DeletedMatchingResponse:
        """Delete documents by id; unknown ids are ignored."""
        ref = CollectionRef(name, connection)
        stored = await self._collections.get_entries(ref, ids)
        found = [id_ for id_ in dict.fromkeys(ids) if id_ in stored]
        if dry_run:
            return _deleted(name, found, len(found), dry_run=True)
        count_deleted = await self._collections.delete_matching(ref, found, EVERYTHING)
        return _deleted(name, found, count_deleted, dry_run=False)

    async def delete_matching(
        self,
        name: str,
        where: object,
        *,
        every: bool = False,
        dry_run: bool = False,
        confirm: bool = False,
        connection: str = DEFAULT,
    ) -> DeletedMatchingResponse:
        """Delete the documents that match a filter (JSON, or its text); an empty filter needs `every`.

        Raises:
            InvalidInputError: many documents match and `confirm` is not set; or the filter is empty without `every`.
        """
        ref, clause = CollectionRef(name, connection), parse(where)
        if clause == EVERYTHING and not every:
            message = (
                "where must not be empty: to delete every document, use DELETE documents/all, or every with a tool"
            )
            raise InvalidInputError(message, [FieldError("where", message)])
        ids, count = await self._collections.matching(ref, clause)
        if dry_run:
            return _deleted(name, ids, len(ids), dry_run=True)
        if not confirm and (len(ids) > UNCONFIRMED or 2 * len(ids) > count):
            message = (
                f"where matches {len(ids)} of {count} documents: list them with dry_run, and set confirm to delete "
                f"more than {UNCONFIRMED} documents or more than half of a collection"
            )
            raise InvalidInputError(message, [FieldError("confirm", message)])
        if clause == EVERYTHING:
            count_deleted = await self._collections.empty(ref)
        else:
            count_deleted = await self._collections.delete_matching(ref, ids, clause)
        return _deleted(name, ids, count_deleted, dry_run=False)

    async def update(
        self, name: str, id_: str, request: MetadataRequest, *, merge: bool = False, connection: str = DEFAULT
    ) -> UpdatedDocumentResponse:
        """Replace the metadata of one document, or with `merge` set some keys of it. Raises: NotFoundError."""
        check_metadata(request.metadata)
        changed = await self._collections.update_metadata(
            CollectionRef(name, connection), id_, request.metadata, merge=merge
        )
        return UpdatedDocumentResponse(collection=name, id=id_, metadata=dict(changed.metadata))

    async def empty(self, name: str, *, connection: str = DEFAULT) -> EmptiedCollectionResponse:
        """Delete all documents of a collection at once: if that fails, none is deleted."""
        count_deleted = await self._collections.empty(CollectionRef(name, connection))
        return EmptiedCollectionResponse(collection=name, count_deleted=count_deleted)

    async def values(self, name: str, field: str, *, connection: str = DEFAULT) -> ValuesResponse:
        """The distinct values of a metadata field; `a.b` is the field `b` of the object `a`."""
        async with self._admissions.searches.admitted():
            found = sorted_values(
                await self._collections.values(CollectionRef(name, connection), tuple(field.split(".")))
            )
        return ValuesResponse.model_construct(field=field, values=found, count=len(found))

    async def query(self, name: str, request: QueryRequest, *, connection: str = DEFAULT) -> QueryResponse:
        """Search a collection by a vector, a text, or both."""
        query = CollectionQuery(
            text=request.text,
            vector=request.vector(),
            mode=Mode(request.mode),
            limit=page_size(request.top_k),
            where=parse(request.where),
            min_score=request.min_score,
        )
        async with self._admissions.searches.admitted():
            found = await search(self._collections, CollectionRef(name, connection), query)
        return QueryResponse.model_construct(results=[_result(match) for match in found])

    async def converse(self, request: ConverseRequest) -> ConverseResponse:
        """Search several collections for the next message of a conversation."""
        query = choose(request.user_message, request.current_topic)
        refs = [self._collections.connections.ref(text) for text in request.collections]
        async with self._admissions.searches.admitted():
            return _conversation(await self._conversations.search(query, refs, limit=request.top_k))

    async def _add(self, collection: Collection, parsed: SubmittedDocuments, connection: str) -> AddedDocumentsResponse:
        if collection.embedding_provider == OWN_EMBEDDER:
            parsed.well_formed()
        else:
            parsed.all_embedded()
        documents = [DocumentInput(one.text, one.metadata, one.id, one.vector) for one in parsed.documents]
        ids = await self._collections.add(collection, connection, documents)
        return AddedDocumentsResponse(count=len(ids), ids=ids)


def _is_label(key: str, value: Json) -> bool:
    return key in (PROVIDER_LABEL, MODEL_LABEL) and (value is None or isinstance(value, str))


def _label(given: str | None, metadata: _Metadata, key: str) -> str | None:
    """A label has a field of its own in a request, or else is a key of the metadata."""
    found = metadata.get(key)
    return given if given is not None or not isinstance(found, str) else found


def _metadata(collection: Collection) -> dict[str, Json]:
    """The metadata that callers see: with the labels, without the keys that this program records for itself."""
    labels = {PROVIDER_LABEL: collection.embedding_provider, MODEL_LABEL: collection.embedding_model}
    own = {key: value for key, value in collection.metadata.items() if not key.startswith("$")}
    return {**own, **{key: value for key, value in labels.items() if value is not None}}


def _response(collection: Collection, connection: str) -> CollectionResponse:
    return CollectionResponse(
        name=collection.name,
        connection=connection,
        metadata=_metadata(collection),
        embedding_provider=collection.embedding_provider,
        embedding_model=collection.embedding_model,
        dimension=collection.dimension,
        count=collection.count,
        created=collection.created,
        model=_model(collection),
        read_only=True if collection.foreign else None,
    )


def _model(collection: Collection) -> RecordedModel | None:
    record = recorded(collection)
    return None if record is None else RecordedModel.model_validate(record)


def _document(entry: Entry, vectors: Mapping[str, Vector]) -> StoredDocument:
    vector = vectors.get(entry.id)
    embedding = None if vector is None else vector.tolist()
    return StoredDocument.model_construct(id=entry.id, text=entry.text, metadata=entry.metadata, embedding=embedding)


def _deleted(name: str, ids: Sequence[str], count: int, *, dry_run: bool) -> DeletedMatchingResponse:
    return DeletedMatchingResponse(
        status="preview" if dry_run else "deleted",
        collection=name,
        count_deleted=count,
        ids=list(ids[:UNCONFIRMED]),
    )


def _result(match: Match) -> QueryResult:
    entry = match.entry
    return QueryResult.model_construct(
        id=entry.id,
        text=entry.text,
        metadata=entry.metadata,
        score=match.score,
        cosine=match.cosine,
        keywords=match.share,
    )


def _conversation(found: Conversation) -> ConverseResponse:
    return ConverseResponse(
        results=[
            ConverseResult.model_construct(
                collection=one.ref.name,
                connection=one.ref.connection,
                id=one.hit.entry.id,
                text=one.hit.entry.text,
                metadata=one.hit.entry.metadata,
                score=clipped(one.hit.cosine),
            )
            for one in found.hits
        ],
        query=found.query.text,
        strategy=found.query.strategy.value,
        embeddings=found.embeddings,
        cache_hits=found.reused,
        omitted=[
            OmittedCollection(collection=one.ref.name, connection=one.ref.connection, error=str(one.error))
            for one in found.omissions
        ],
    )

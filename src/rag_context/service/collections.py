"""Collections and their providers between the wire and the domain, one method per use case."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

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
from rag_context.api.converse import ConverseRequest, ConverseResponse, ConverseResult, OmittedCollection
from rag_context.api.documents import GivenDocuments, documents_of, documents_of_json
from rag_context.collections.addresses import AllowedAddresses
from rag_context.collections.collections import Collections, DocumentInput
from rag_context.collections.connections import DEFAULT, CollectionRef
from rag_context.collections.labels import MODEL_LABEL, OWN_EMBEDDER, PROVIDER_LABEL
from rag_context.collections.models import recorded
from rag_context.collections.registry import ProviderRegistry
from rag_context.collections.searching import Match, Question, find
from rag_context.collections.strategy import Conversation, Conversations, choose
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Vector
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ports.provider import Collection, Entry, EntryHit
from rag_context.resilience.admission import Admissions
from rag_context.search.query import Mode
from rag_context.service.collection_maintenance import CollectionUpkeep
from rag_context.service.providers import ProviderService
from rag_context.where import check_metadata, parse

MAX_OFFSET = 1_000_000_000
"""Beyond every collection; some engines refuse larger ones."""

_Metadata = Mapping[str, Json]


class CollectionService:
    """The use cases, in requests and responses.

    Every method raises NotFoundError where a collection or connection is unknown, InvalidInputError where the
    request is wrong, and BackendError where the provider cannot be had.

    Args:
        collections: the domain.
        registry: the kinds of provider.
        admissions: how much is done at once; what waits too long raises OverloadedError.
        allowed: where kinds of provider may be tried for a caller.
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
        self.upkeep = CollectionUpkeep(collections)
        """Their health, and making their vectors again."""

        self._conversations = Conversations(collections)

    @property
    def embeddings_reused(self) -> int:
        """How often, within a talk, one embedding served a further collection."""
        return self._conversations.reused

    async def close(self) -> None:
        """End what runs in the background."""
        await self.upkeep.close()

    async def listing(self, *, connection: str = DEFAULT) -> CollectionsResponse:
        """All collections of a connection."""
        found = [_response(one, connection) for one in await self._collections.listing(connection)]
        return CollectionsResponse(collections=found, count=len(found))

    async def create(self, request: CreateCollectionRequest, *, connection: str = DEFAULT) -> CreatedCollectionResponse:
        """Make an empty collection. Raises: ConflictError where the name is taken."""
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
        """One collection."""
        return _response(await self._collections.get(CollectionRef(name, connection)), connection)

    async def drop(self, name: str, *, connection: str = DEFAULT) -> DroppedCollectionResponse:
        """Remove a collection with all that is in it."""
        await self._collections.drop(CollectionRef(name, connection))
        return DroppedCollectionResponse(collection=name)

    async def replace_metadata(
        self, name: str, request: MetadataRequest, *, connection: str = DEFAULT
    ) -> MetadataResponse:
        """Put other metadata in place of the old; the labels stay, unless others are given."""
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
        """Store documents: `text`, and where there are `id`, `metadata`, `embedding` (numbers or an array)."""
        async with self._admissions.writes.admitted():
            collection = await self._collections.get(CollectionRef(name, connection))
            given = await asyncio.to_thread(documents_of, documents, check_metadata)
            return await self._add(collection, given, connection)

    async def add_json(self, name: str, body: bytes, *, connection: str = DEFAULT) -> AddedDocumentsResponse:
        """Store the documents of `{"documents": [...]}`."""
        async with self._admissions.writes.admitted():
            collection = await self._collections.get(CollectionRef(name, connection))
            given = await asyncio.to_thread(documents_of_json, body, check_metadata)
            return await self._add(collection, given, connection)

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
        """A page of the documents that a filter (JSON, or its text) lets through, by id; or those of these ids."""
        place, clause = CollectionRef(name, connection), parse(where)
        async with self._admissions.searches.admitted():
            if ids is not None:
                there = await self._collections.get_entries(place, ids)
                entries = [there[id_] for id_ in dict.fromkeys(ids) if id_ in there]
                total = len(entries)
            else:
                page = await self._collections.entries(
                    place, clause, limit=page_size(limit), offset=min(offset, MAX_OFFSET)
                )
                entries, total = list(page.entries), page.total
            vectors = await self._collections.vectors(place, [entry.id for entry in entries]) if embeddings else {}
        found = [_document(entry, vectors) for entry in entries]
        return DocumentsResponse.model_construct(documents=found, count=len(found), total=total)

    async def delete(self, name: str, id_: str, *, connection: str = DEFAULT) -> DeletedDocumentResponse:
        """Remove one document."""
        await self._collections.delete(CollectionRef(name, connection), id_)
        return DeletedDocumentResponse(collection=name, id=id_)

    async def delete_ids(
        self, name: str, ids: Sequence[str], *, dry_run: bool = False, connection: str = DEFAULT
    ) -> DeletedMatchingResponse:
        """Remove these documents; unknown ones are passed over."""
        place = CollectionRef(name, connection)
        there = await self._collections.get_entries(place, ids)
        found = [id_ for id_ in dict.fromkeys(ids) if id_ in there]
        if dry_run:
            return _deleted(name, found, len(found), dry_run=True)
        gone = await self._collections.delete_matching(place, found, EVERYTHING)
        return _deleted(name, found, gone, dry_run=False)

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
        """Remove the documents that a filter (JSON, or its text) lets through; with `every`, an empty one too.

        Raises:
            InvalidInputError: those are many, and `confirm` is not set; or the filter lets everything through.
        """
        place, clause = CollectionRef(name, connection), parse(where)
        if clause == EVERYTHING and not every:
            said = "where must not be empty; every document is deleted by DELETE documents/all, or by every with a tool"
            raise InvalidInputError(said, [FieldError("where", said)])
        ids, count = await self._collections.matching(place, clause)
        if dry_run:
            return _deleted(name, ids, len(ids), dry_run=True)
        if not confirm and (len(ids) > UNCONFIRMED or 2 * len(ids) > count):
            said = (
                f"where matches {len(ids)} of {count} documents: look at them with dry_run, and set confirm to delete "
                f"more than {UNCONFIRMED} documents or more than half of a collection"
            )
            raise InvalidInputError(said, [FieldError("confirm", said)])
        if clause == EVERYTHING:
            gone = await self._collections.empty(place)
        else:
            gone = await self._collections.delete_matching(place, ids, clause)
        return _deleted(name, ids, gone, dry_run=False)

    async def update(
        self, name: str, id_: str, request: MetadataRequest, *, merge: bool = False, connection: str = DEFAULT
    ) -> UpdatedDocumentResponse:
        """Give one document other metadata, or set some keys of it. Raises: NotFoundError."""
        check_metadata(request.metadata)
        changed = await self._collections.update_metadata(
            CollectionRef(name, connection), id_, request.metadata, merge=merge
        )
        return UpdatedDocumentResponse(collection=name, id=id_, metadata=dict(changed.metadata))

    async def empty(self, name: str, *, connection: str = DEFAULT) -> EmptiedCollectionResponse:
        """Remove all documents, or none."""
        gone = await self._collections.empty(CollectionRef(name, connection))
        return EmptiedCollectionResponse(collection=name, count_deleted=gone)

    async def values(self, name: str, field: str, *, connection: str = DEFAULT) -> ValuesResponse:
        """The distinct values of a metadata field; `a.b` is a field of an object."""
        async with self._admissions.searches.admitted():
            found = sorted_values(
                await self._collections.values(CollectionRef(name, connection), tuple(field.split(".")))
            )
        return ValuesResponse.model_construct(field=field, values=found, count=len(found))

    async def query(self, name: str, request: QueryRequest, *, connection: str = DEFAULT) -> QueryResponse:
        """The best documents for a vector or a text."""
        question = Question(
            text=request.text,
            vector=request.vector(),
            mode=Mode(request.mode),
            limit=page_size(request.top_k),
            where=parse(request.where),
            min_score=request.min_score,
        )
        async with self._admissions.searches.admitted():
            found = await find(self._collections, CollectionRef(name, connection), question)
        return QueryResponse.model_construct(results=[_result(match) for match in found])

    async def converse(self, request: ConverseRequest) -> ConverseResponse:
        """Ask several collections within a talk."""
        question = choose(request.user_message, request.current_topic)
        places = [self._collections.connections.place(text) for text in request.collections]
        async with self._admissions.searches.admitted():
            return _conversation(await self._conversations.ask(question, places, limit=request.top_k))

    async def _add(self, collection: Collection, given: GivenDocuments, connection: str) -> AddedDocumentsResponse:
        if collection.embedding_provider == OWN_EMBEDDER:
            given.well_formed()
        else:
            given.all_embedded()
        drafts = [DocumentInput(one.text, one.metadata, one.id, one.vector) for one in given.documents]
        ids = await self._collections.add(collection, connection, drafts)
        return AddedDocumentsResponse(count=len(ids), ids=ids)


def _is_label(key: str, value: Json) -> bool:
    return key in (PROVIDER_LABEL, MODEL_LABEL) and (value is None or isinstance(value, str))


def _label(given: str | None, metadata: _Metadata, key: str) -> str | None:
    """A label stands beside the metadata, or else in it."""
    found = metadata.get(key)
    return given if given is not None or not isinstance(found, str) else found


def _metadata(collection: Collection) -> dict[str, Json]:
    """As callers see it: with the labels, without what is recorded under keys that are not theirs."""
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


def _score(hit: EntryHit) -> float:
    """A cosine, without what rounding put beyond its bounds."""
    return max(-1.0, min(1.0, float(hit.cosine)))


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
                collection=placed.place.name,
                connection=placed.place.connection,
                id=placed.hit.entry.id,
                text=placed.hit.entry.text,
                metadata=placed.hit.entry.metadata,
                score=_score(placed.hit),
            )
            for placed in found.hits
        ],
        query=found.question.text,
        strategy=found.question.strategy.value,
        embeddings=found.embeddings,
        cache_hits=found.reused,
        omitted=[
            OmittedCollection(collection=one.place.name, connection=one.place.connection, error=str(one.error))
            for one in found.omissions
        ],
    )

"""Collections and their providers between the wire and the domain, one method per use case."""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from rag_context.collections.collections import MODEL_LABEL, OWN_EMBEDDER, PROVIDER_LABEL, Collections, Draft
from rag_context.collections.connections import DEFAULT, Place
from rag_context.collections.registry import ProviderRegistry, Registered, probe
from rag_context.collections.strategy import Conversation, Conversations, choose
from rag_context.contract.collections import (
    MAX_PAGE,
    AddedDocumentsResponse,
    CollectionResponse,
    CollectionsResponse,
    CreateCollectionRequest,
    CreatedCollectionResponse,
    DeletedDocumentResponse,
    DocumentsResponse,
    DroppedCollectionResponse,
    EmptiedCollectionResponse,
    MetadataRequest,
    MetadataResponse,
    QueryRequest,
    QueryResponse,
    QueryResult,
    StoredDocument,
    ValuesResponse,
    page_size,
    sorted_values,
)
from rag_context.contract.converse import ConverseRequest, ConverseResponse, ConverseResult, OmittedCollection
from rag_context.contract.documents import GivenDocuments, documents_of, documents_of_json
from rag_context.contract.providers import (
    CapabilitiesResponse,
    ProviderHealthResponse,
    ProviderResponse,
    ProvidersResponse,
    TestRequest,
)
from rag_context.errors import FieldError, InvalidInputError, NotFoundError
from rag_context.provider import Capabilities, Collection, Entry, EntryHit, ProviderHealth
from rag_context.resilience.admission import Admissions
from rag_context.types import Json
from rag_context.where import check_metadata, parse

MAX_OFFSET = 1_000_000_000
"""Beyond every collection; some engines refuse larger ones."""

_PATH_FORMAT = re.compile(r'"format": "(file-|directory-)?path"')

_Metadata = Mapping[str, Json]


class CollectionService:
    """The use cases, in requests and responses.

    Every method raises NotFoundError where a collection or connection is unknown, InvalidInputError where the
    request is wrong, and BackendError where the provider cannot be had.

    Args:
        collections: the domain.
        registry: the kinds of provider.
        admissions: how much is done at once; what waits too long raises OverloadedError.
    """

    def __init__(
        self, collections: Collections, registry: ProviderRegistry, admissions: Admissions | None = None
    ) -> None:
        self._collections = collections
        self._registry = registry
        self._admissions = admissions or Admissions.unlimited()
        self._conversations = Conversations(collections)

    @property
    def embeddings_reused(self) -> int:
        """How often, within a talk, one embedding served a further collection."""
        return self._conversations.reused

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
        return _response(await self._collections.get(Place(name, connection)), connection)

    async def drop(self, name: str, *, connection: str = DEFAULT) -> DroppedCollectionResponse:
        """Remove a collection with all that is in it."""
        await self._collections.drop(Place(name, connection))
        return DroppedCollectionResponse(collection=name)

    async def replace_metadata(
        self, name: str, request: MetadataRequest, *, connection: str = DEFAULT
    ) -> MetadataResponse:
        """Put other metadata in place of the old; the labels stay, unless others are given."""
        check_metadata(request.metadata)
        changed = await self._collections.replace_metadata(Place(name, connection), request.metadata)
        return MetadataResponse(collection=name, metadata=_metadata(changed))

    async def merge_metadata(
        self, name: str, request: MetadataRequest, *, connection: str = DEFAULT
    ) -> MetadataResponse:
        """Set these keys and keep the others."""
        check_metadata(request.metadata)
        changed = await self._collections.merge_metadata(Place(name, connection), request.metadata)
        return MetadataResponse(collection=name, metadata=_metadata(changed))

    async def add(
        self, name: str, documents: Iterable[Mapping[str, object]], *, connection: str = DEFAULT
    ) -> AddedDocumentsResponse:
        """Store documents: `text`, and where there are `id`, `metadata`, `embedding` (numbers or an array)."""
        async with self._admissions.writes.admitted():
            collection = await self._collections.get(Place(name, connection))
            given = await asyncio.to_thread(documents_of, documents, check_metadata)
            return await self._add(collection, given, connection)

    async def add_json(self, name: str, body: bytes, *, connection: str = DEFAULT) -> AddedDocumentsResponse:
        """Store the documents of `{"documents": [...]}`."""
        async with self._admissions.writes.admitted():
            collection = await self._collections.get(Place(name, connection))
            given = await asyncio.to_thread(documents_of_json, body, check_metadata)
            return await self._add(collection, given, connection)

    async def documents(
        self,
        name: str,
        *,
        where: object = None,
        limit: int = MAX_PAGE,
        offset: int = 0,
        connection: str = DEFAULT,
    ) -> DocumentsResponse:
        """A page of the documents that a filter (JSON, or its text) lets through, by id."""
        clause = parse(where)
        async with self._admissions.searches.admitted():
            page = await self._collections.entries(
                Place(name, connection), clause, limit=page_size(limit), offset=min(offset, MAX_OFFSET)
            )
        found = [_document(entry) for entry in page.entries]
        return DocumentsResponse.model_construct(documents=found, count=len(found), total=page.total)

    async def delete(self, name: str, id_: str, *, connection: str = DEFAULT) -> DeletedDocumentResponse:
        """Remove one document."""
        await self._collections.delete(Place(name, connection), id_)
        return DeletedDocumentResponse(collection=name, id=id_)

    async def empty(self, name: str, *, connection: str = DEFAULT) -> EmptiedCollectionResponse:
        """Remove all documents, or none."""
        gone = await self._collections.empty(Place(name, connection))
        return EmptiedCollectionResponse(collection=name, count_deleted=gone)

    async def values(self, name: str, field: str, *, connection: str = DEFAULT) -> ValuesResponse:
        """The distinct values of a metadata field; `a.b` is a field of an object."""
        path = tuple(field.split("."))
        if not all(path):
            said = "field must name a metadata field, such as doc_type or author.name"
            raise InvalidInputError(said, [FieldError("field", said)])
        async with self._admissions.searches.admitted():
            found = sorted_values(await self._collections.values(Place(name, connection), path))
        return ValuesResponse.model_construct(field=field, values=found, count=len(found))

    async def query(self, name: str, request: QueryRequest, *, connection: str = DEFAULT) -> QueryResponse:
        """The documents nearest to a vector or a text."""
        place, clause, limit = Place(name, connection), parse(request.where), page_size(request.top_k)
        vector = request.vector()
        async with self._admissions.searches.admitted():
            if vector is not None:
                hits = await self._collections.search(place, vector, limit=limit, where=clause)
            else:
                hits = await self._collections.query(place, request.text or "", limit=limit, where=clause)
        return QueryResponse.model_construct(results=[_result(hit) for hit in hits])

    async def converse(self, request: ConverseRequest) -> ConverseResponse:
        """Ask several collections within a talk."""
        question = choose(request.user_message, request.current_topic)
        places = [self._collections.connections.place(text) for text in request.collections]
        async with self._admissions.searches.admitted():
            return _conversation(await self._conversations.ask(question, places, limit=request.top_k))

    async def providers(self) -> ProvidersResponse:
        """All kinds of provider, also those that cannot be used here."""
        await self._registry.load()
        found = [self._described(registered) for registered in self._registry]
        return ProvidersResponse(providers=found, count=len(found))

    async def provider(self, name: str) -> ProviderResponse:
        """One kind of provider."""
        return self._described(await self._known(name))

    async def test(self, name: str, request: TestRequest) -> ProviderHealthResponse:
        """Say how a provider is with a configuration, or on a connection that there is."""
        registered = await self._known(name)
        if request.connection is not None:
            connection = self._collections.connections.known(request.connection)
            if connection.provider != name:
                said = f"Connection '{connection.id}' is of the provider '{connection.provider}'"
                raise InvalidInputError(said, [FieldError("connection", said)])
            return _health(await connection.health())
        if not registered.available:
            said = f"Provider '{name}' is not available: {registered.reason}"
            raise InvalidInputError(said, [FieldError("", said)])
        configuration = request.configuration or {}
        _refuse_paths(registered.connection_schema(), configuration)
        return _health(await probe(registered, _validated(registered, configuration)))

    async def _add(self, collection: Collection, given: GivenDocuments, connection: str) -> AddedDocumentsResponse:
        if collection.embedding_provider == OWN_EMBEDDER:
            given.well_formed()
        else:
            given.all_embedded()
        drafts = [Draft(one.text, one.metadata, one.id, one.vector) for one in given.documents]
        ids = await self._collections.add(collection, connection, drafts)
        return AddedDocumentsResponse(count=len(ids), ids=ids)

    async def _known(self, name: str) -> Registered:
        await self._registry.load()
        found = self._registry.get(name)
        if found is None:
            known = ", ".join(dict.fromkeys(registered.name for registered in self._registry))
            raise NotFoundError(f"Provider '{name[:64]}' not found; known are {known}")
        return found

    def _described(self, registered: Registered) -> ProviderResponse:
        connections = self._collections.connections.values()
        return ProviderResponse(
            name=registered.name,
            title=registered.title,
            available=registered.available,
            reason=registered.reason,
            capabilities=_capabilities(registered.capabilities) if registered.available else None,
            connection_schema=registered.connection_schema() or None,
            connections=[one.id for one in connections if one.provider == registered.name],
        )


def _capabilities(capabilities: Capabilities) -> CapabilitiesResponse:
    return CapabilitiesResponse(
        collections=capabilities.collections,
        search=capabilities.search,
        embeddings=capabilities.embeddings,
        metadata_filtering=capabilities.metadata_filtering,
        scanned_operators=list(capabilities.scanned_operators),
    )


def _refuse_paths(schema: Mapping[str, Any], configuration: Mapping[str, object]) -> None:
    """A caller from elsewhere must not have files made on this machine. Raises: InvalidInputError."""
    properties = schema.get("properties", {})
    paths = [name for name in configuration if _PATH_FORMAT.search(json.dumps(properties.get(name, {})))]
    if paths:
        said = "names a place on the server's disk: configure a connection with it, and test that"
        raise InvalidInputError(
            "; ".join(f"{name} {said}" for name in paths),
            [FieldError(f"configuration.{name}", said) for name in paths],
        )


def _validated(registered: Registered, configuration: Mapping[str, object]) -> BaseModel:
    """A configuration as its kind wants it. Raises: InvalidInputError, about fields of the request."""
    try:
        return registered.validated(configuration)
    except InvalidInputError as error:
        details = [FieldError(f"configuration.{detail.field}", detail.message) for detail in error.details]
        raise InvalidInputError(str(error), details) from None


def _is_label(key: str, value: Json) -> bool:
    return key in (PROVIDER_LABEL, MODEL_LABEL) and (value is None or isinstance(value, str))


def _label(given: str | None, metadata: _Metadata, key: str) -> str | None:
    """A label stands beside the metadata, or else in it."""
    found = metadata.get(key)
    return given if given is not None or not isinstance(found, str) else found


def _metadata(collection: Collection) -> dict[str, Json]:
    labels = {PROVIDER_LABEL: collection.embedding_provider, MODEL_LABEL: collection.embedding_model}
    return {**collection.metadata, **{key: value for key, value in labels.items() if value is not None}}


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
    )


def _document(entry: Entry) -> StoredDocument:
    return StoredDocument.model_construct(id=entry.id, text=entry.text, metadata=entry.metadata)


def _score(hit: EntryHit) -> float:
    """A cosine, without what rounding put beyond its bounds."""
    return max(-1.0, min(1.0, float(hit.cosine)))


def _result(hit: EntryHit) -> QueryResult:
    entry = hit.entry
    return QueryResult.model_construct(id=entry.id, text=entry.text, metadata=entry.metadata, score=_score(hit))


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


def _health(health: ProviderHealth) -> ProviderHealthResponse:
    return ProviderHealthResponse(
        status=health.status,
        timestamp=health.checked,
        latency_ms=max(round(health.latency_ms, 3), 0.0),
        error=health.error,
        collections=health.collections,
        storage_bytes=health.storage_bytes,
    )

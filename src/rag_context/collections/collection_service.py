"""The use cases of collections, one method each: requests in, responses out."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from rag_context.api import collection_operations
from rag_context.api import collections as wire
from rag_context.api.collection_documents import SubmittedDocument, SubmittedDocuments, documents_of, documents_of_json
from rag_context.api.collection_operations import NoFields
from rag_context.api.handlers import performs
from rag_context.api.operations import collections as operations
from rag_context.collections import searching
from rag_context.collections.collection_maintenance import CollectionMaintenance
from rag_context.collections.collections import CollectionInput, Collections
from rag_context.collections.labels import MODEL_LABEL, OWN_EMBEDDER, PROVIDER_LABEL, model_record
from rag_context.collections.provider_connections import DEFAULT, CollectionRef, Connections
from rag_context.collections.registry import ProviderRegistry, Registered, probe
from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Vector
from rag_context.domain.where import check_metadata, parse
from rag_context.errors import FieldError, InvalidInputError, NotFoundError
from rag_context.ingest.redaction import Redactor
from rag_context.ports.provider import Collection, Entry, ProviderHealth
from rag_context.resilience.admission import Admissions
from rag_context.search.query import Mode

_PATH_FORMAT = re.compile(r'"format": "(file-|directory-)?path"')

_UNSAFE = re.compile(r"[\\\s\x00-\x1f\x7f]")
"""Characters that address parsers interpret differently."""

ANY = "*"


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """The addresses at which callers may test a provider: those in the server's configuration.

    With any address, a caller could scan the network of the server and read what its hosts answer. `listed` are `host`,
    `host:port`, or `*` for any; `configured` addresses need not be listed.
    """

    listed: tuple[str, ...] = ()
    configured: tuple[str, ...] = ()

    def forbidden(self, addresses: Iterable[str]) -> list[str]:
        if ANY in self.listed:
            return []
        allowed = {_parts(each) for each in (*self.listed, *self.configured)}
        return [each for each in addresses if not self._is_allowed(each, allowed)]

    def _is_allowed(self, address: str, allowed: set[tuple[str, int | None] | None]) -> bool:
        parts = _parts(address)
        if parts is None:
            return False
        host, port = parts
        listed = {_parts(each) for each in self.listed}
        return (host, port) in allowed or (host, None) in listed


def _parts(address: str) -> tuple[str, int | None] | None:
    """Host and port; None if it is not an address."""
    if _UNSAFE.search(address):
        return None
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if not host else (host.rstrip("."), port)


class ProviderService:
    def __init__(self, connections: Connections, registry: ProviderRegistry, allowed: AllowedAddresses) -> None:
        self._connections = connections
        self._registry = registry
        self._allowed = allowed

    @performs(operations.PROVIDER_LIST)
    async def listing(self, _request: NoFields) -> collection_operations.ProvidersResponse:
        await self._registry.load()
        found = [self._described(registered) for registered in self._registry]
        return collection_operations.ProvidersResponse(providers=found, count=len(found))

    @performs(operations.PROVIDER_GET)
    async def get(self, request: collection_operations.ProviderRequest) -> collection_operations.ProviderResponse:
        return self._described(await self._known(request.name))

    @performs(operations.PROVIDER_TEST)
    async def test(
        self, request: collection_operations.TestProviderRequest
    ) -> collection_operations.ProviderHealthResponse:
        name = request.name
        registered = await self._known(name)
        if request.connection is not None:
            connection = self._connections.require(request.connection)
            if connection.provider != name:
                message = f"Connection '{connection.id}' is of the provider '{connection.provider}'"
                raise InvalidInputError(message, [FieldError("connection", message)])
            return _health(await connection.health())
        if not registered.available:
            message = f"Provider '{name}' is not available: {registered.reason}"
            raise InvalidInputError(message, [FieldError("", message)])
        configuration = request.configuration or {}
        _reject_paths(registered.connection_schema(), configuration)
        options = _validated(registered, configuration)
        if self._allowed.forbidden(registered.addresses(options)):
            # Raised before any request: the response must not reveal whether something listens at the address.
            message = (
                "Only addresses in the server's configuration are tested: configure a connection with this one, or "
                "add it to server.test_addresses"
            )
            raise InvalidInputError(message, [FieldError("configuration", message)])
        return _health(await probe(registered, options))

    async def _known(self, name: str) -> Registered:
        await self._registry.load()
        found = self._registry.get(name)
        if found is None:
            known = ", ".join(dict.fromkeys(registered.name for registered in self._registry))
            raise NotFoundError(f"Provider '{name[:64]}' not found; known are {known}")
        return found

    def _described(self, registered: Registered) -> collection_operations.ProviderResponse:
        connections = self._connections.values()
        capabilities = collection_operations.CapabilitiesResponse(**asdict(registered.capabilities))
        return collection_operations.ProviderResponse(
            name=registered.name,
            title=registered.title,
            available=registered.available,
            reason=registered.reason,
            capabilities=capabilities if registered.available else None,
            connection_schema=registered.connection_schema() or None,
            connections=[one.id for one in connections if one.provider == registered.name],
        )


def _reject_paths(schema: Mapping[str, Any], configuration: Mapping[str, object]) -> None:
    """Reject paths: a remote caller must not create files on this machine. Raises: InvalidInputError."""
    properties = schema.get("properties", {})
    paths = [name for name in configuration if _PATH_FORMAT.search(json.dumps(properties.get(name, {})))]
    if paths:
        message = "is a path on the server's disk: configure a connection with it, and test that connection"
        raise InvalidInputError(
            "; ".join(f"{name} {message}" for name in paths),
            [FieldError(f"configuration.{name}", message) for name in paths],
        )


def _validated(registered: Registered, configuration: Mapping[str, object]) -> BaseModel:
    """The configuration as the model of its provider kind. Raises: InvalidInputError with the request's fields."""
    try:
        return registered.validated(configuration)
    except InvalidInputError as error:
        details = [FieldError(f"configuration.{detail.field}", detail.message) for detail in error.details]
        raise InvalidInputError(str(error), details) from None


def _health(health: ProviderHealth) -> collection_operations.ProviderHealthResponse:
    return collection_operations.ProviderHealthResponse(
        status=health.status,
        timestamp=health.checked,
        latency_ms=max(round(health.latency_ms, 3), 0.0),
        error=health.error,
        collections=health.collections,
        storage_bytes=health.storage_bytes,
    )


MAX_OFFSET = 1_000_000_000
"""Larger than every collection; some engines reject larger offsets."""

_Metadata = Mapping[str, Json]


class CollectionService:
    """The use cases of collections; all raise NotFoundError, InvalidInputError and BackendError only."""

    def __init__(
        self,
        collections: Collections,
        registry: ProviderRegistry,
        admissions: Admissions | None = None,
        allowed: AllowedAddresses | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._redactor = redactor or Redactor()
        self._collections = collections
        self._admissions = admissions or Admissions.unlimited()
        self.providers = ProviderService(collections.connections, registry, allowed or AllowedAddresses())
        self.maintenance = CollectionMaintenance(collections)
        """Health reports, and embedding collections again."""
        self._conversations = searching.Conversations(collections)

    @property
    def embeddings_reused(self) -> int:
        return self._conversations.reused

    async def close(self) -> None:
        await self.maintenance.close()

    @performs(operations.COLLECTION_LIST)
    async def listing(self, request: collection_operations.ListCollectionsRequest) -> wire.CollectionsResponse:
        found = [_response(one, request.connection) for one in await self._collections.listing(request.connection)]
        return wire.CollectionsResponse(collections=found, count=len(found))

    @performs(operations.COLLECTION_CREATE)
    async def create(self, request: collection_operations.NewCollectionRequest) -> wire.CreatedCollectionResponse:
        check_metadata(request.metadata)
        self._redactor.check_names({"name": request.name})
        metadata = self._metadata_to_store(request.metadata)
        collection = Collection(
            name=request.name,
            metadata={key: value for key, value in metadata.items() if not _is_label(key, value)},
            embedding_provider=_label(request.embedding_provider, request.metadata, PROVIDER_LABEL),
            embedding_model=_label(request.embedding_model, request.metadata, MODEL_LABEL),
        )
        created = await self._collections.create(collection, request.connection)
        return wire.CreatedCollectionResponse(**dict(_response(created, request.connection)))

    @performs(operations.COLLECTION_GET)
    async def get(self, request: collection_operations.GetCollectionRequest) -> wire.CollectionResponse:
        return _response(await self._collections.get(_ref(request)), request.connection)

    @performs(operations.COLLECTION_DELETE)
    async def drop(self, request: collection_operations.DeleteCollectionRequest) -> wire.DroppedCollectionResponse:
        await self._collections.drop(_ref(request))
        return wire.DroppedCollectionResponse(collection=request.name)

    @performs(operations.COLLECTION_SET_METADATA)
    async def set_metadata(self, request: collection_operations.SetMetadataRequest) -> wire.MetadataResponse:
        check_metadata(request.metadata)
        put = self._collections.merge_metadata if request.merge else self._collections.replace_metadata
        changed = await put(_ref(request), self._metadata_to_store(request.metadata))
        return wire.MetadataResponse(collection=request.name, metadata=_metadata(changed))

    @performs(operations.COLLECTION_ADD)
    async def add(self, request: collection_operations.AddDocumentsRequest) -> wire.AddedDocumentsResponse:
        return await self._add(_ref(request), partial(documents_of, request.documents, check_metadata))

    async def add_json(self, name: str, body: bytes, *, connection: str = DEFAULT) -> wire.AddedDocumentsResponse:
        """As `add` for the bytes of `{"documents": [...]}`, of which no request is made: they may be many."""
        return await self._add(CollectionRef(name, connection), partial(documents_of_json, body, check_metadata))

    @performs(operations.COLLECTION_DOCUMENTS)
    async def documents(self, request: collection_operations.ListDocumentsRequest) -> wire.DocumentsResponse:
        ref, clause = _ref(request), self._clause(request.where)
        async with self._admissions.searches.admitted():
            provider = await self._collections.reading(ref.connection)
            if request.ids is not None:
                stored = await provider.get(ref.name, request.ids)
                entries = [stored[id_] for id_ in dict.fromkeys(request.ids) if id_ in stored]
                total = len(entries)
            else:
                limit, offset = wire.page_size(request.limit), min(request.offset, MAX_OFFSET)
                page = await provider.entries(ref.name, clause, limit=limit, offset=offset)
                entries, total = list(page.entries), page.total
            ids = [entry.id for entry in entries]
            vectors = await provider.vectors(ref.name, ids) if request.include is not None else {}
        found = [_document(entry, vectors) for entry in entries]
        return wire.DocumentsResponse.model_construct(documents=found, count=len(found), total=total)

    @performs(operations.COLLECTION_DELETE_DOCUMENT)
    async def delete(self, request: collection_operations.DeleteDocumentRequest) -> wire.DeletedDocumentResponse:
        await self._collections.delete(_ref(request), request.id)
        return wire.DeletedDocumentResponse(collection=request.name, id=request.id)

    @performs(operations.COLLECTION_DELETE_DOCUMENTS)
    async def delete_documents(
        self, request: collection_operations.DeleteCollectionDocumentsRequest
    ) -> wire.DeletedMatchingResponse:
        if request.ids is None:
            return await self._delete_matching(request)
        ref = _ref(request)
        stored = await (await self._collections.reading(ref.connection)).get(ref.name, request.ids)
        found = [id_ for id_ in dict.fromkeys(request.ids) if id_ in stored]
        if request.dry_run:
            return _deleted(request.name, found, len(found), dry_run=True)
        count_deleted = await self._collections.delete_matching(ref, found, EVERYTHING)
        return _deleted(request.name, found, count_deleted, dry_run=False)

    async def _delete_matching(
        self, request: collection_operations.DeleteCollectionDocumentsRequest
    ) -> wire.DeletedMatchingResponse:
        ref, clause = _ref(request), self._clause(request.where)
        if clause == EVERYTHING and not request.every:
            message = (
                "where must not be empty: to delete every document, use DELETE documents/all, or every with a tool"
            )
            raise InvalidInputError(message, [FieldError("where", message)])
        ids, count = await self._collections.matching(ref, clause)
        if request.dry_run:
            return _deleted(request.name, ids, len(ids), dry_run=True)
        if not request.confirm and (len(ids) > wire.UNCONFIRMED or 2 * len(ids) > count):
            message = (
                f"where matches {len(ids)} of {count} documents: list them with dry_run, and set confirm to delete "
                f"more than {wire.UNCONFIRMED} documents or more than half of a collection"
            )
            raise InvalidInputError(message, [FieldError("confirm", message)])
        if clause == EVERYTHING:
            count_deleted = await self._collections.empty(ref)
        else:
            count_deleted = await self._collections.delete_matching(ref, ids, clause)
        return _deleted(request.name, ids, count_deleted, dry_run=False)

    @performs(operations.COLLECTION_UPDATE_DOCUMENT)
    async def update(self, request: collection_operations.UpdateDocumentRequest) -> wire.UpdatedDocumentResponse:
        check_metadata(request.metadata)
        changed = await self._collections.update_metadata(
            _ref(request), request.id, self._metadata_to_store(request.metadata), merge=request.merge
        )
        return wire.UpdatedDocumentResponse(collection=request.name, id=request.id, metadata=dict(changed.metadata))

    @performs(operations.COLLECTION_EMPTY)
    async def empty(self, request: collection_operations.EmptyCollectionRequest) -> wire.EmptiedCollectionResponse:
        count_deleted = await self._collections.empty(_ref(request))
        return wire.EmptiedCollectionResponse(collection=request.name, count_deleted=count_deleted)

    @performs(operations.COLLECTION_VALUES)
    async def values(self, request: collection_operations.ListValuesRequest) -> wire.ValuesResponse:
        async with self._admissions.searches.admitted():
            provider = await self._collections.reading(request.connection)
            found = wire.sorted_values(await provider.values(request.name, tuple(request.field.split("."))))
        return wire.ValuesResponse.model_construct(field=request.field, values=found, count=len(found))

    @performs(operations.COLLECTION_QUERY)
    async def query(self, request: collection_operations.QueryCollectionRequest) -> wire.QueryResponse:
        query = searching.CollectionQuery(
            text=request.text,
            vector=request.vector(),
            mode=Mode(request.mode),
            limit=wire.page_size(request.top_k),
            where=self._clause(request.where),
            min_score=request.min_score,
        )
        async with self._admissions.searches.admitted():
            found = await searching.search(self._collections, _ref(request), query)
        return wire.QueryResponse.model_construct(results=[_result(match) for match in found])

    @performs(operations.CONVERSE)
    async def converse(self, request: collection_operations.ConverseRequest) -> collection_operations.ConverseResponse:
        query = searching.choose(request.user_message, request.current_topic)
        refs = [self._collections.connections.ref(text) for text in request.collections]
        async with self._admissions.searches.admitted():
            return await self._conversations.search(query, refs, limit=request.top_k)

    async def _add(
        self, ref: CollectionRef, parse_all: Callable[[], SubmittedDocuments]
    ) -> wire.AddedDocumentsResponse:
        async with self._admissions.writes.admitted():
            collection = await self._collections.get(ref)
            parsed = await asyncio.to_thread(parse_all)
            parsed.check(all_embedded=collection.embedding_provider != OWN_EMBEDDER)
            documents, redactions = await asyncio.to_thread(self._redacted, parsed.documents)
            ids = await self._collections.add(collection, ref.connection, documents)
        return wire.AddedDocumentsResponse(count=len(ids), ids=ids, redactions=dict(redactions) or None)

    def _redacted(self, documents: Sequence[SubmittedDocument]) -> tuple[list[CollectionInput], Counter[str]]:
        """Documents as they may be stored, and how many secrets were taken out. Raises: InvalidInputError."""
        self._redactor.check_names({f"documents[{number}].id": one.id for number, one in enumerate(documents)})
        total: Counter[str] = Counter()
        inputs: list[CollectionInput] = []
        for number, one in enumerate(documents):
            text, metadata = f"documents[{number}].text", f"documents[{number}].metadata"
            masked, counts = self._redactor.fields({text: one.text, metadata: dict(one.metadata)})
            total.update(counts)
            inputs.append(CollectionInput(masked[text], masked[metadata], one.id, one.vector))
        return inputs, total

    def _metadata_to_store(self, metadata: _Metadata) -> _Metadata:
        masked: dict[str, _Metadata] = self._redactor.fields({"metadata": dict(metadata)})[0]
        return masked["metadata"]

    def _clause(self, where: Json) -> Clause:
        """A filter that finds what was stored under these values."""
        return parse(self._redactor.json(where))


def _ref(request: collection_operations.CollectionFields) -> CollectionRef:
    return CollectionRef(request.name, request.connection)


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


def _response(collection: Collection, connection: str) -> wire.CollectionResponse:
    record = model_record(collection)
    return wire.CollectionResponse(
        name=collection.name,
        connection=connection,
        metadata=_metadata(collection),
        embedding_provider=collection.embedding_provider,
        embedding_model=collection.embedding_model,
        dimension=collection.dimension,
        count=collection.count,
        created=collection.created,
        model=None if record is None else wire.RecordedModel.model_validate(record),
        read_only=True if collection.foreign else None,
    )


def _document(entry: Entry, vectors: Mapping[str, Vector]) -> wire.StoredDocument:
    vector = vectors.get(entry.id)
    embedding = None if vector is None else vector.tolist()
    return wire.StoredDocument.model_construct(
        id=entry.id, text=entry.text, metadata=entry.metadata, embedding=embedding
    )


def _deleted(name: str, ids: Sequence[str], count: int, *, dry_run: bool) -> wire.DeletedMatchingResponse:
    return wire.DeletedMatchingResponse(
        status="preview" if dry_run else "deleted",
        collection=name,
        count_deleted=count,
        ids=list(ids[: wire.UNCONFIRMED]),
    )


def _result(match: searching.CollectionMatch) -> wire.QueryResult:
    entry = match.entry
    return wire.QueryResult.model_construct(
        id=entry.id,
        text=entry.text,
        metadata=entry.metadata,
        score=match.score,
        cosine=match.cosine,
        keywords=match.share,
    )

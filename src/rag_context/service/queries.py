"""Queries for stored documents: one by id, pages of a list, versions, and the ids that a deletion selects."""

import asyncio
import time
from collections.abc import Callable, Sequence

from rag_context.api.index import metadata_json
from rag_context.api.stored_documents import (
    MANY,
    MAX_DELETED,
    DeleteRequest,
    GetRequest,
    GetResponse,
    ListedDocument,
    ListRequest,
    ListResponse,
    RetrievalStats,
    cursor_of,
    place_of,
)
from rag_context.api.wire import VersionsRequest, VersionsResponse
from rag_context.domain.documents import Cursor, Document, Listing, Retrievals, Stored, Tenant
from rag_context.domain.search import Filter
from rag_context.errors import FieldError, InvalidInputError, NotFoundError
from rag_context.ingest.indexer import STORE_S, Indexer
from rag_context.ports.reading import DocumentStore
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.service.mappers import filter_of, tenant_of


class DocumentQueries:
    """Reads from the document store.

    Args:
        documents: the store.
        dependency: its breaker and timeouts.
        clock: monotonic seconds.
    """

    def __init__(
        self, documents: DocumentStore, dependency: Dependency, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._documents = documents
        self._dependency = dependency
        self._clock = clock

    async def document(self, document_id: str, tenant: Tenant) -> Document:
        """Read a document of a tenant.

        Raises:
            NotFoundError: the tenant has no such document.
            BackendError: the store cannot be read.
        """
        document = await self._dependency.call(lambda: self._documents.get(document_id), self._deadline())
        if document is None or document.tenant != tenant:
            raise NotFoundError(f"Document {document_id} not found")
        return document

    async def get(self, request: GetRequest) -> GetResponse:
        """Read a document with its chunks and retrievals counted. Raises as `document` does."""
        document = await self.document(request.document_id, tenant_of(request))
        stored, retrievals = await self._dependency.call(lambda: self._particulars(document.id), self._deadline())
        return GetResponse(
            document_id=document.id,
            title=document.title,
            content=document.content,
            content_type=document.content_type,
            session_id=document.session_id,
            source=document.source,
            timestamp=document.timestamp,
            metadata=metadata_json(document.metadata),
            status="indexed" if stored is not None and stored.indexed else "pending",
            chunks=len(stored.chunk_ids) if stored is not None else 0,
            retrieval_stats=RetrievalStats(query_count=retrievals.count, last_retrieved=retrievals.last),
        )

    async def listing(self, request: ListRequest) -> ListResponse:
        """One page of documents, newest first.

        Raises:
            InvalidInputError: the cursor is not one that this method returned.
            BackendError: the store cannot be read.
        """
        after = place_of(request.cursor) if request.cursor is not None else None
        where = filter_of(request)
        # One more than the limit shows whether there is a next page.
        found = await self._dependency.call(
            lambda: self._documents.listing(where, limit=request.limit + 1, after=after), self._deadline()
        )
        page = found[: request.limit]
        return ListResponse(
            documents=[_listed(listing) for listing in page],
            next_cursor=cursor_of(Cursor(page[-1].timestamp, page[-1].id)) if len(found) > len(page) else None,
        )

    async def missing(self, request: VersionsRequest) -> VersionsResponse:
        """List the versions of documents that are not stored. Raises: BackendError."""
        versions = request.versions
        stored = await self._dependency.call(lambda: self._documents.content_hashes(list(versions)), self._deadline())
        return VersionsResponse(missing=[id_ for id_, version in versions.items() if stored.get(id_) != version])

    async def _particulars(self, document_id: str) -> tuple[Stored | None, Retrievals]:
        return await self._documents.stored(document_id), await self._documents.retrievals(document_id)

    def _deadline(self) -> Deadline:
        return Deadline.after(STORE_S, self._clock)


def _listed(listing: Listing) -> ListedDocument:
    return ListedDocument(
        document_id=listing.id,
        title=listing.title,
        content_type=listing.content_type,
        session_id=listing.session_id,
        source=listing.source,
        timestamp=listing.timestamp,
        metadata=metadata_json(listing.metadata),
        status="indexed" if listing.indexed else "pending",
    )


TOGETHER = 32
"""Documents that are deleted at once; the store commits them together."""


async def ids_to_delete(request: DeleteRequest, documents: DocumentStore) -> list[str]:
    """Ids of the documents that a deletion selects, oldest first.

    Raises:
        InvalidInputError: they are many, and the request does not set `confirm`.
        BackendError: the store cannot be read.
    """
    tenant = tenant_of(request)
    if request.document_id is None:
        where = Filter(tenant, source=request.source, session_id=request.session_id)
        ids = await documents.matching(where, MAX_DELETED)
        if not (request.dry_run or request.confirm):
            await _check_few(ids, tenant, documents)
        return ids
    document = await documents.get(request.document_id)
    return [document.id] if document is not None and document.tenant == tenant else []


async def _check_few(ids: Sequence[str], tenant: Tenant, documents: DocumentStore) -> None:
    """A session or a source may have far more documents than the caller expects; a single one needs no `confirm`."""
    if len(ids) <= 1:
        return
    share = ""
    if len(ids) <= MANY:
        twice = 2 * len(ids)
        if len(of_tenant := await documents.matching(Filter(tenant), twice)) >= twice:
            return
        share = f" of {len(of_tenant)}"
    message = (
        f"This would delete {len(ids)}{share} documents: send confirm true to delete them, or dryRun true to see "
        "which they are"
    )
    raise InvalidInputError(message, [FieldError("confirm", message)])


async def remove(ids: Sequence[str], indexer: Indexer) -> list[str]:
    """Delete documents; returns the ids of those that still existed. Raises: BackendError (the rest still exists)."""
    deleted: list[str] = []
    for start in range(0, len(ids), TOGETHER):
        batch = ids[start : start + TOGETHER]
        existed = await asyncio.gather(*(indexer.remove(id_) for id_ in batch))
        deleted.extend(id_ for id_, did_exist in zip(batch, existed, strict=True) if did_exist)
    return deleted

"""Queries for stored documents: one by id, pages of a list, versions, what a deletion selects, and similar documents.

Similar documents are found by vector search, or by keyword search if vectors are missing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote

import numpy as np

from rag_context.api import handlers, index, stored_documents
from rag_context.api import search as search_api
from rag_context.api.operations import memory
from rag_context.api.stored_documents import GetRequest, GetResponse
from rag_context.domain.documents import Chunk, Cursor, Document, Listing, Shelf, Tenant, slices
from rag_context.domain.search import ChunkRef, Filter, Passage
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendError, BackendStartingError, FieldError, InvalidInputError, NotFoundError
from rag_context.ingest.indexer import STORE_S, Indexer
from rag_context.ingest.redaction import Redactor
from rag_context.memory.facets import FacetCounts, filter_hint
from rag_context.memory.mappers import document_fields, filter_of, tenant_of
from rag_context.ports.reading import DocumentStore
from rag_context.resilience.deadline import Deadline
from rag_context.search import ranking, reads, retrievers

logger = logging.getLogger(__name__)


class DocumentQueries:
    def __init__(self, documents: DocumentStore, redactor: Redactor) -> None:
        self._documents = documents
        self._redactor = redactor
        self.facets = FacetCounts(documents)

    async def document(self, document_id: str, tenant: Tenant) -> Document:
        """Read a document of a tenant, which another one may have superseded. Raises: NotFoundError, BackendError."""
        document = await self._documents.get(document_id)
        if document is None or document.tenant not in {tenant, tenant.on(Shelf.SUPERSEDED)}:
            raise NotFoundError(f"Document {document_id} not found")
        return document

    async def get(self, request: stored_documents.GetRequest) -> stored_documents.GetResponse:
        """Read a document with its chunks and retrievals counted. Raises as `document` does."""
        document = await self.document(request.document_id, tenant_of(request))
        stored = await self._documents.stored(document.id)
        retrievals = await self._documents.retrievals(document.id)
        return stored_documents.GetResponse(
            document_id=document.id,
            content=document.content,
            status="indexed" if stored is not None and stored.indexed else "pending",
            chunks=len(stored.chunk_ids) if stored is not None else 0,
            retrieval_stats=stored_documents.RetrievalStats(
                query_count=retrievals.count, last_retrieved=retrievals.last
            ),
            **document_fields(document),
        )

    async def listing(self, request: stored_documents.ListRequest) -> stored_documents.ListResponse:
        """One page of documents, newest first. Raises: InvalidInputError (of another method's cursor), BackendError."""
        after = stored_documents.read_cursor(request.cursor) if request.cursor is not None else None
        where = filter_of(request, self._redactor)
        # One more than the limit shows whether there is a next page.
        found = await self._documents.listing(where, limit=request.limit + 1, after=after)
        page = found[: request.limit]
        return stored_documents.ListResponse(
            warning=await filter_hint(self._documents, where) if not found and after is None else None,
            documents=[_listed(listing) for listing in page],
            facets=await self.facets.of(where) if request.facets else None,
            next_cursor=stored_documents.write_cursor(Cursor(page[-1].timestamp, page[-1].id))
            if len(found) > len(page)
            else None,
        )

    async def missing(self, request: index.VersionsRequest) -> index.VersionsResponse:
        versions = request.versions
        stored = await self._documents.content_hashes(list(versions))
        return index.VersionsResponse(missing=[id_ for id_, version in versions.items() if stored.get(id_) != version])


def _listed(listing: Listing) -> stored_documents.ListedDocument:
    status: stored_documents.Readiness = "indexed" if listing.indexed else "pending"
    return stored_documents.ListedDocument(document_id=listing.id, status=status, **document_fields(listing))


TOGETHER = 32
"""Documents that are deleted at once; the store commits them together."""


async def ids_to_delete(
    request: stored_documents.DeleteRequest, documents: DocumentStore, redactor: Redactor
) -> list[str]:
    """Ids of the documents that a deletion selects, oldest first. Raises: InvalidInputError (many), BackendError."""
    tenant = tenant_of(request)
    if request.document_id is None:
        where = Filter(tenant, source=request.source, session_id=request.session_id)
        ids = await documents.matching(redactor.where(where), stored_documents.MAX_DELETED)
        if redactor.where(where) != where:  # stored before its secrets were redacted, or while they were not
            ids = [*ids, *await documents.matching(where, stored_documents.MAX_DELETED)][: stored_documents.MAX_DELETED]
        if not (request.dry_run or request.confirm):
            await _check_few(ids, tenant, documents)
        return ids
    document = await documents.get(request.document_id)
    return [document.id] if document is not None and document.tenant.visible == tenant else []


async def _check_few(ids: Sequence[str], tenant: Tenant, documents: DocumentStore) -> None:
    """A session or a source may have far more documents than the caller expects; a single one needs no `confirm`."""
    if len(ids) <= 1:
        return
    share = ""
    # Few documents need no `confirm` if they are at most half of all; twice as many ids are enough to know that.
    if len(ids) <= stored_documents.MANY:
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
    for batch in slices(ids, TOGETHER):
        existed = await asyncio.gather(*(indexer.remove(id_) for id_ in batch))
        deleted.extend(id_ for id_, did_exist in zip(batch, existed, strict=True) if did_exist)
    return deleted


SAMPLED_CHUNKS = 8
"""Chunks that represent a document: the first, the last, and others evenly between."""

KEYWORD_CHARS = 1000
"""Characters of a document's text that are its keyword query."""

POOL = 60
OWN_CHUNKS = 300
"""The first search has a limit of `POOL` hits, and more for up to so many hits of the document itself."""

WARNING = "Vector search unavailable, keyword search compared the documents instead"


@dataclass(frozen=True, slots=True)
class _Near:
    chunk_id: str
    score: float


class SimilarDocuments:
    def __init__(self, backends: retrievers.Backends, clock: Callable[[], float] = time.monotonic) -> None:
        guarded = backends.guarded(STORE_S)
        self._embedder, self._vectors = guarded.embedder, guarded.vectors
        self._documents, self._texts = guarded.documents, guarded.texts
        self._coverage = reads.Coverage(guarded.documents, clock, backends.lost_vectors)
        self._clock = clock

    async def similar(self, document: Document, limit: int) -> stored_documents.SimilarResponse:
        """The most similar documents of the same tenant. Raises: BackendError (keyword search failed too)."""
        where = Filter(document.tenant)
        chunks = await self._documents.chunks(document.id)
        try:
            with Deadline.after(STORE_S, self._clock).applied():
                missing = await self._coverage.missing(where)
                if reads.lowers_level(missing):
                    raise BackendStartingError("vectors", reads.described(missing))
                near = await self._by_vectors(document.id, chunks, limit, where)
            warning = reads.described(missing) if reads.matters(missing) else None
            is_fallback = False
        except BackendError as error:
            logger.info("document %s is compared by keyword search: %s", document.id, error)
            with Deadline.after(STORE_S, self._clock).applied():
                near = await self._by_keywords(document, len(chunks), limit, where)
            warning = WARNING
            is_fallback = True
        best = sorted(near.items(), key=lambda item: (-item[1].score, item[0]))[:limit]
        ids = [found.chunk_id for _, found in best]
        passages = await self._documents.passages(ids) if ids else {}
        return stored_documents.SimilarResponse(
            results=[_shown(passages[found.chunk_id], found.score) for _, found in best if found.chunk_id in passages],
            method="text" if is_fallback else "vector",
            fallback=is_fallback,
            fallback_level=2 if is_fallback else 1,
            warning=warning,
        )

    async def _by_vectors(
        self, document_id: str, chunks: Sequence[Chunk], limit: int, where: Filter
    ) -> Mapping[str, _Near]:
        sample = [chunk.embedded for chunk in _sample(chunks)]
        if not sample:
            return {}
        vectors = await self._embedder.embed_documents(sample)
        refs: dict[str, ChunkRef] = {}
        for hits in _search_limits(len(chunks)):
            refs = await self._candidates(document_id, vectors, hits, where)
            if len({ref.document_id for ref in refs.values()}) >= limit:
                break
        cosines = np.zeros((len(vectors), len(refs)), dtype=np.float32)
        for row, vector in enumerate(vectors):
            exact = await self._vectors.score(vector, list(refs))
            cosines[row] = [exact.get(id_, -1.0) for id_ in refs]
        calibration = self._embedder.model.calibration
        found = list(refs.values())
        near: dict[str, _Near] = {}
        columns_of: dict[str, list[int]] = {}
        for column, ref in enumerate(found):
            columns_of.setdefault(ref.document_id, []).append(column)
        for id_, columns in columns_of.items():
            of_document = cosines[:, columns]
            # The mean, over the sampled chunks, of the cosine of the nearest chunk in this document.
            mean = float(of_document.max(axis=1).mean())
            nearest = found[columns[int(of_document.max(axis=0).argmax())]]
            near[id_] = _Near(nearest.id, ranking.relevance(ranking.Candidate(nearest, mean, 0.0, 0.0), calibration))
        return near

    async def _candidates(self, document_id: str, vectors: Matrix, limit: int, where: Filter) -> dict[str, ChunkRef]:
        refs: dict[str, ChunkRef] = {}
        for vector in vectors:
            hits = await self._vectors.search(vector, limit=limit, where=where)
            refs.update((hit.chunk.id, hit.chunk) for hit in hits if hit.chunk.document_id != document_id)
        return refs

    async def _by_keywords(self, document: Document, own_chunks: int, limit: int, where: Filter) -> Mapping[str, _Near]:
        text = f"{document.title} {document.content[:KEYWORD_CHARS]}"
        near: dict[str, _Near] = {}
        for wide in _search_limits(own_chunks):
            hits = await self._texts.search(text, limit=wide, where=where)
            for hit in sorted(hits, key=lambda hit: -hit.share):
                if hit.chunk.document_id != document.id:
                    near.setdefault(hit.chunk.document_id, _Near(hit.chunk.id, hit.share))
            if len(near) >= limit:
                break
        return near


def _search_limits(own_chunks: int) -> tuple[int, ...]:
    """Limits of the first search, which leaves room for some of the document's own chunks, and of a second for all."""
    return tuple(dict.fromkeys((min(own_chunks, OWN_CHUNKS) + POOL, own_chunks + POOL)))


def _sample(chunks: Sequence[Chunk]) -> list[Chunk]:
    """At most `SAMPLED_CHUNKS` of the chunks, evenly spaced, the first and the last among them."""
    if len(chunks) <= SAMPLED_CHUNKS:
        return list(chunks)
    return [chunks[round(i * (len(chunks) - 1) / (SAMPLED_CHUNKS - 1))] for i in range(SAMPLED_CHUNKS)]


def _shown(passage: Passage, score: float) -> stored_documents.SimilarDocument:
    return stored_documents.SimilarDocument(
        document_id=passage.document_id,
        score=round(min(max(score, 0.0), 1.0), 4),
        content=passage.chunk.text,
        **document_fields(passage),
    )


FOUND = 10

Search: TypeAlias = Callable[[search_api.SearchRequest, handlers.CallContext], Awaitable[search_api.SearchResponse]]
Get: TypeAlias = Callable[[GetRequest], Awaitable[GetResponse]]


class SearchFetch:
    def __init__(self, search: Search, get: Get) -> None:
        self._search = search
        self._get = get

    @handlers.performs(memory.FIND)
    async def find(self, request: search_api.FindRequest, context: handlers.CallContext) -> search_api.FindResponse:
        answer = await self._search(
            search_api.SearchRequest(query=request.query, limit=FOUND, agent=request.agent), context
        )
        best: dict[str, search_api.SearchResult] = {}
        for result in answer.results:
            if result.document_id is not None:
                best.setdefault(result.document_id, result)
        found = [
            search_api.FoundDocument(
                id=id_, title=each.title or each.source, url=_url(id_, each.source), text=each.content
            )
            for id_, each in best.items()
        ]
        return search_api.FindResponse(results=found, warning=answer.warning)

    @handlers.performs(memory.FETCH)
    async def fetch(self, request: search_api.FetchRequest) -> search_api.FetchResponse:
        """Read a document. Raises: NotFoundError, BackendError."""
        document = await self._get(GetRequest(document_id=request.id))
        return search_api.FetchResponse(
            id=document.document_id,
            title=document.title or document.source,
            text=document.content,
            url=_url(document.document_id, document.source),
            metadata={**document.metadata, "source": document.source, "occurredAt": document.occurred_at.isoformat()},
        )


def _url(document_id: str, source: str) -> str:
    """Where a document is from: its source where that is an address, else its resource."""
    is_address = source.startswith(("https://", "http://"))
    return source if is_address else f"rag-context://documents/{quote(document_id, safe='')}"

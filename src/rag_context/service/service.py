"""The service: every use case of the memory, whichever door it came through."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np

from rag_context._version import __version__
from rag_context.api.delete import DeleteRequest, DeleteResponse
from rag_context.api.get import GetRequest, GetResponse
from rag_context.api.index import BulkLine, BulkReceipt, IndexRequest, IndexResponse
from rag_context.api.listing import ListRequest, ListResponse
from rag_context.api.maintenance import (
    ComponentHealth,
    HealthResponse,
    ModelName,
    ReindexRequest,
    ReindexResponse,
    StatsRequest,
    StatsResponse,
)
from rag_context.api.search import SearchOutcome, SearchRequest
from rag_context.api.similar import SimilarRequest, SimilarResponse
from rag_context.api.wire import VersionsRequest, VersionsResponse
from rag_context.domain.documents import Counts, Status
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendError, InvalidInputError
from rag_context.ingest.indexer import SLICE, SLICE_S, STORE_S, Indexer
from rag_context.ingest.receipts import Receipt
from rag_context.ports.maintenance import ModelRegistry
from rag_context.ports.models import Tokenizer
from rag_context.ports.reading import MetricsStore
from rag_context.projects.tenants import Tenants
from rag_context.resilience.admission import Admissions
from rag_context.resilience.breaker import BreakerState
from rag_context.resilience.deadline import Deadline
from rag_context.search.cache import ResultCache
from rag_context.search.chain import WARNINGS, SearchChain
from rag_context.search.query import Answer, Level, Query
from rag_context.search.retrievers import Backends
from rag_context.service.binding import BoundEmbedder
from rag_context.service.budget import within
from rag_context.service.collections import CollectionService
from rag_context.service.health import ROLES, HealthMonitor, IndexingProgress, detail_of, judged
from rag_context.service.maintenance import SWEEP_TOGETHER, Upkeep
from rag_context.service.mappers import (
    Naming,
    bulk_receipt,
    draft_of,
    index_response,
    query_of,
    search_response,
    stats_response,
    tenant_of,
)
from rag_context.service.meters import Meters
from rag_context.service.projects import ProjectParts, ProjectService
from rag_context.service.reading import Reading, meant, remove
from rag_context.service.rebuilding import Rebuilding
from rag_context.service.recording import Recording
from rag_context.service.reindexing import LOOK_EVERY_S, Progress, Reindexing
from rag_context.service.similarity import Likeness
from rag_context.service.telemetry import Telemetry

logger = logging.getLogger(__name__)

SPANS = {
    "1h": (timedelta(hours=1), 12),
    "24h": (timedelta(days=1), 24),
    "7d": (timedelta(days=7), 28),
    "30d": (timedelta(days=30), 30),
}
"""Length of each time range, and into how many slices its timeline is cut."""

PROBE = Query("health", limit=1)
"""What is asked to see whether searches are answered again."""

BULK_S = 15.0
"""A streamed document's wait for its vectors: few are embedded in vain, and receipts come before clients give up."""

COUNT_PATIENCE_S = 2.0
STATS_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a service is made of; `wiring` puts it together."""

    sources: Backends
    embedder: BoundEmbedder
    metrics: MetricsStore
    registry: ModelRegistry
    chain: SearchChain
    cache: ResultCache
    indexer: Indexer
    telemetry: Telemetry
    upkeep: Upkeep
    health: HealthMonitor
    rebuilding: Rebuilding | None = None
    projects: ProjectParts | None = None
    collections: CollectionService | None = None
    admissions: Admissions = field(default_factory=Admissions.unlimited)


class Service:
    """Searches, indexes and reports.

    Args:
        parts: the works.
        min_score: least score of results where a request names none; None: the model's threshold.
        clock: monotonic seconds.
        now: the wall clock.
    """

    def __init__(
        self,
        parts: Dependencies,
        *,
        min_score: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._parts = parts
        self._min_score = min_score
        self._clock = clock
        self._now = now
        self._counts = Counts(0, 0, 0, 0)
        self._progress = IndexingProgress(clock)
        sources = parts.sources
        self._reading = Reading(sources.documents, sources.document_store, clock)
        self._likeness = Likeness(sources, clock)
        self._reindexing = Reindexing(
            sources, parts.embedder, parts.registry, parts.upkeep.sweep_soon, clock, parts.rebuilding
        )
        cache = parts.cache
        self._meters = Meters(
            breaker_state=lambda: parts.chain.breaker.state,
            queue_depth=lambda: parts.telemetry.waiting,
            dropped=lambda: parts.telemetry.dropped,
            cache_hit_rate=lambda: cache.hits / max(cache.hits + cache.misses, 1),
            vectors=lambda: self._counts.vectors,
            embeddings_reused=lambda: parts.collections.embeddings_reused if parts.collections is not None else 0.0,
            admissions=parts.admissions,
        )
        self._recording = Recording(parts.telemetry, self._meters, now)
        followed = parts.projects
        self._naming = Naming(Tenants(sources.documents) if followed is None else followed.projects.tenants)
        self._projects = (
            ProjectService(parts.projects, self._recording.document_search, parts.admissions, clock=clock, now=now)
            if parts.projects is not None
            else None
        )

    @property
    def collections(self) -> CollectionService | None:
        """The use cases of collections and their providers; None where they are not offered."""
        return self._parts.collections

    @property
    def projects(self) -> ProjectService | None:
        """The use cases of project documents; None where they are not offered."""
        return self._projects

    async def search(self, request: SearchRequest, *, request_id: str) -> SearchOutcome:
        """Answer a question, at whatever level can be had."""
        started = self._clock()
        try:
            request = await self._naming.resolved(request)
        except BackendError as error:  # which projects there are cannot be read, and never could
            answer = Answer((), Level.EMPTY, {}, 0, warning=WARNINGS[Level.EMPTY], error=str(error))
        else:
            answer = await self._answer(query_of(request, self._min_score))
        latency_ms = (self._clock() - started) * 1000.0
        self._recording.search(request, answer, request_id, latency_ms)
        response = search_response(
            answer,
            request_id=request_id,
            latency_ms=latency_ms,
            explain=request.explain,
            breaker_open=not self._parts.chain.breaker.closed,
        )
        if request.max_tokens is not None:
            response = within(response, request.max_tokens, self.tokenizer)
        retry_after_s = answer.retry_after_s if answer.level is not Level.EMPTY else answer.retry_after_s or 1.0
        return SearchOutcome(response, retry_after_s)

    async def index(self, request: IndexRequest, *, request_id: str) -> IndexResponse:
        """Keep a document. Raises: InvalidInputError, BackendError (nothing changed; OverloadedError: not begun)."""
        started = self._clock()
        async with self._parts.admissions.writes.admitted():
            receipt = await self._index(request, request_id)
        return index_response(receipt, (self._clock() - started) * 1000.0)

    async def bulk(self, line: BulkLine, *, request_id: str) -> BulkReceipt:
        """Keep one document of many; what is wrong with it is in its receipt. Raises: BackendError."""
        try:
            async with self._parts.admissions.writes.admitted_in_turn():  # a stream comes no faster than it is taken
                receipt = await self._index(line, request_id, tuple(line.like or ()), BULK_S)
            return bulk_receipt(receipt, line.source)
        except InvalidInputError as error:
            return BulkReceipt(status="rejected", source=line.source, reason=str(error))

    async def missing(self, request: VersionsRequest) -> VersionsResponse:
        """Which versions of documents are not there. Raises: BackendError."""
        return await self._reading.missing(request)

    async def delete(self, request: DeleteRequest) -> DeleteResponse:
        """Remove documents, or say which ones would go.

        Raises:
            InvalidInputError: They are many, and nobody confirmed it.
            BackendError: What is not gone is still there.
        """
        sources, request = self._parts.sources, await self._naming.resolved(request)
        ids = await sources.document_store.bypass_open_breaker(
            lambda: meant(request, sources.documents), Deadline.after(STORE_S, self._clock)
        )
        gone = ids if request.dry_run else await remove(ids, self._parts.indexer)
        return DeleteResponse(deleted_count=len(gone), document_ids=gone, dry_run=request.dry_run)

    async def get(self, request: GetRequest) -> GetResponse:
        """All of one document. Raises: NotFoundError, BackendError."""
        return await self._reading.get(await self._naming.resolved(request))

    async def listing(self, request: ListRequest) -> ListResponse:
        """One page of documents, newest first. Raises: InvalidInputError (the cursor), BackendError."""
        return await self._reading.listing(await self._naming.resolved(request))

    async def similar(self, request: SimilarRequest) -> SimilarResponse:
        """The documents most like one. Raises: NotFoundError, BackendError."""
        async with self._parts.admissions.searches.admitted():
            document = await self._reading.document(
                request.document_id, tenant_of(await self._naming.resolved(request))
            )
            return await self._likeness.similar(document, request.limit)

    async def reindex_behind(self, request: ReindexRequest, on_progress: Progress) -> ReindexResponse:
        """Have all vectors made anew in the background where that is needed. Raises: BackendError."""
        answer = await self._reindexing.reindex(request, on_progress)
        if self._parts.collections is not None:
            return await self._parts.collections.upkeep.reindex_behind(request, answer)
        return answer

    async def rank(self, query: Query) -> Answer:
        """Answer a query in the domain's own words, for measuring: any limit, nothing remembered of it.

        It walks the same chain as `search`, under the same deadline, past the result cache and the statistics.
        """
        async with self._parts.admissions.searches.admitted_in_turn():
            return await self._parts.chain.search(query)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Embed texts as passages, behind any queries: `(n, dim) float32`. Raises: BackendError."""
        sources = self._parts.sources
        rows: list[Matrix] = []
        async with self._parts.admissions.writes.admitted():
            for start in range(0, len(texts), SLICE):
                work = partial(sources.embedder.embed_documents, texts[start : start + SLICE])
                rows.append(await sources.embedding.call(work, Deadline.after(SLICE_S, self._clock)))
        return np.concatenate(rows)

    def model(self) -> EmbeddingModel:
        """The model that `embed` and all searches use. Raises: BackendError while it is not known."""
        return self._parts.embedder.model

    @property
    def tokenizer(self) -> Tokenizer:
        """Cuts text as the model does; there before the model is loaded."""
        return self._parts.embedder.tokenizer

    async def health(self) -> HealthResponse:
        """Examine every part."""
        started = self._clock()
        breaker = self._parts.chain.breaker
        if breaker.state is BreakerState.HALF_OPEN:  # or a memory that nobody asks would stay closed to everybody
            await self._parts.chain.search(PROBE)
        counts = await self._count()  # first: a store that does not count is not believed any more
        findings = await self._parts.health.examine(counts)
        if self._parts.collections is not None:
            findings = (*findings, *await self._parts.collections.upkeep.examine())
        lack = self._progress.lack(counts, self._parts.upkeep.trouble)
        status = {finding.name: judged(finding, lack) for finding in findings}
        return HealthResponse(
            healthy=breaker.closed and all(status[role] is Status.HEALTHY for role in ROLES),
            qdrant_status=status["vectors"],
            lm_studio_status=status["embedder"],
            mongo_status=status["documents"],
            latency=round((self._clock() - started) * 1000.0, 3),
            indexed_documents=counts.documents if counts else 0,
            circuit_breaker_open=not breaker.closed,
            components=[
                ComponentHealth(
                    name=finding.name,
                    role=finding.role,
                    status=status[finding.name],
                    latency_ms=round(finding.latency_ms, 3),
                    detail=detail_of(finding, counts, lack),
                )
                for finding in findings
            ],
            embedding_model=self._model_name(),
            pending_documents=counts.pending if counts else 0,
            indexing=counts is not None and counts.pending > 0,
            version=__version__,
        )

    async def stats(self, request: StatsRequest) -> StatsResponse:
        """Sum up the searches of a time range. Raises: BackendError."""
        span, buckets = SPANS[request.time_range]
        until = self._now()
        await self._parts.telemetry.flush()
        deadline = Deadline.after(STATS_PATIENCE_S, self._clock)
        summary = await deadline.bound("documents", self._parts.metrics.summarise(until - span, until, buckets))
        sources = self._parts.sources
        counts = await sources.document_store.bypass_open_breaker(sources.documents.counts, deadline)
        return stats_response(summary, counts.documents)

    async def ready(self) -> bool:
        """Whether a search now would be answered at level 1."""
        if not self._parts.upkeep.bound.is_set() or self._parts.chain.breaker.state is BreakerState.OPEN:
            return False
        findings = await self._parts.health.examine()
        return all(finding.status is Status.HEALTHY for finding in findings if finding.name in ROLES)

    async def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the model is loaded and compared with the index; False where it is not to be had in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._parts.upkeep.settled.wait()
        except TimeoutError:
            return False
        return self._parts.upkeep.bound.is_set()

    async def reindex(self, on_progress: Callable[[int, int], None]) -> int:
        """Make all vectors anew with the configured model; the old ones answer meanwhile. Returns how many documents.

        An interrupted run is finished by the next start, or by the next call.

        Args:
            on_progress: told how many documents are done, and of how many.

        Raises:
            BackendError: the model or the store is not there, or another process works with another model.
        """
        rebuilding = self._parts.rebuilding
        if rebuilding is not None:
            await rebuilding.begin()
            total = await rebuilding.remaining() or 0
            on_progress(0, total)
            while not await rebuilding.work(lambda done: on_progress(done, max(total, done)), together=SWEEP_TOGETHER):
                left = await rebuilding.remaining()
                if left is None:  # this process's upkeep, or another process, was faster, or another model's run
                    await rebuilding.require_ended()
                    break
                on_progress(max(total - left, 0), total)
                await asyncio.sleep(LOOK_EVERY_S)
            return total
        total = await self._parts.registry.drop_vectors()
        await self._parts.embedder.bind()
        _ = self._parts.embedder.model  # another process may have given the index its own model meanwhile
        on_progress(0, total)
        await self._parts.upkeep.sweep(lambda done: on_progress(done, max(total, done)))
        # The upkeep's own sweep may have done a part of them.
        return total - (await self._parts.sources.documents.counts()).pending

    async def restore(self, broken: Sequence[str], on_progress: Callable[[int, int], None]) -> int:
        """Cut documents anew from their stored content and give all that lack vectors theirs; returns how many.

        Args:
            broken: ids of the documents to cut.
            on_progress: told how many documents have their vectors, and of how many.

        Raises:
            BackendError: the model or the store is not there; what is left stays pending.
        """
        for id_ in broken:
            await self._parts.indexer.rechunk(id_)
        total = (await self._parts.sources.documents.counts()).pending
        return await self._parts.upkeep.sweep(lambda done: on_progress(done, max(total, done)))

    async def prometheus(self) -> bytes:
        """The meters in Prometheus' text format; vectors as last counted where the store does not tell."""
        await self._count()
        return self._meters.text()

    async def _answer(self, query: Query) -> Answer:
        cache, documents = self._parts.cache, self._parts.sources.documents
        version = documents.version
        stamp = documents.stamp if cache.is_shared else None
        answer = cache.get(query, version)
        if answer is None and cache.is_shared:
            answer = await cache.fetch(query, version, stamp)
        if answer is None:
            async with self._parts.admissions.searches.admitted():  # the deadline begins here
                answer = await self._parts.chain.search(query)
            cache.put(query, version, answer, stamp)
        return answer

    async def _index(
        self, request: IndexRequest, request_id: str, like: Sequence[str] = (), at_least_s: float = 0.0
    ) -> Receipt:
        try:
            draft = draft_of(await self._naming.writable(request))
            receipt = await self._parts.indexer.index(draft, reuse_from=like, at_least_s=at_least_s)
        except BackendError as error:
            self._recording.error("index", error, request_id)
            self._parts.health.doubt_writes()
            raise
        if receipt.is_unfinished:
            self._parts.upkeep.finish_soon(receipt.document_id)
        return receipt

    async def _count(self) -> Counts | None:
        """Counts are never cached; None where the store does not tell."""
        sources = self._parts.sources
        try:
            self._counts = await sources.document_store.call(
                sources.documents.counts, Deadline.after(COUNT_PATIENCE_S, self._clock)
            )
        except BackendError:
            return None
        return self._counts

    def _model_name(self) -> ModelName | None:
        try:
            model = self._parts.embedder.model
        except BackendError:
            return None
        return ModelName(name=model.name, dimension=model.dimension)

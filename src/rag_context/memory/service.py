"""The service: one method per use case of the memory, called by HTTP, MCP, the CLI and Python alike."""

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial

import numpy as np
from cachetools import LRUCache

from rag_context.agents.sessions import Receipts
from rag_context.agents.workspace import Workspace
from rag_context.api import maintenance
from rag_context.api import stored_documents as stored
from rag_context.api.handlers import CallContext, Handler, handlers_of, performs
from rag_context.api.index import BulkLine, BulkReceipt, IndexRequest, IndexResponse, VersionsRequest, VersionsResponse
from rag_context.api.operations import memory
from rag_context.api.operations.routes import PERFORMED
from rag_context.api.search import LegReport, SearchFailedError, SearchRequest, SearchResponse
from rag_context.collections.collection_service import CollectionService
from rag_context.domain import callers, reports, vectors
from rag_context.domain.documents import CODE, DEFAULT_TENANT, Counts, Shelf, Status, Tenant, slices, utc_now
from rag_context.domain.journal import Cause, Link
from rag_context.domain.search import Filter
from rag_context.errors import BackendError, InvalidInputError, RagContextError
from rag_context.ingest.indexer import STORE_S, Indexer
from rag_context.ingest.redaction import Redactor
from rag_context.ingest.submissions import Receipt, Submission
from rag_context.ingest.text_vectors import SLICE, SLICE_S
from rag_context.memory import bounded, mappers
from rag_context.memory.background_maintenance import BackgroundMaintenance
from rag_context.memory.bound_embedder import BoundEmbedder, Rebuilding
from rag_context.memory.changing import UNSUPPORTED, Changes
from rag_context.memory.document_queries import DocumentQueries, SearchFetch, SimilarDocuments, ids_to_delete, remove
from rag_context.memory.facets import filter_hint
from rag_context.memory.health import ROLES, IndexingProgress, health_response, lost_vectors
from rag_context.memory.hook_service import HookDependencies, hook_answers
from rag_context.memory.index_maintenance import Reindexing
from rag_context.memory.meters import Meters, Readings
from rag_context.memory.review import Review
from rag_context.memory.single_writes import SingleWrites
from rag_context.memory.telemetry import TIME_RANGES, Recorder, Telemetry, describe, describe_indexing
from rag_context.ports import models, reading, writing
from rag_context.projects.project_requests import TenantResolver
from rag_context.projects.project_service import ProjectDependencies, ProjectService
from rag_context.references.repositories import Cited, Repositories
from rag_context.resilience import admission, component_checks, dependency
from rag_context.resilience.deadline import Deadline, set_within
from rag_context.search.chain import WARNINGS, SearchChain
from rag_context.search.query import Answer, Level, Mode, Query, ResultCache
from rag_context.search.question_rules import with_windows
from rag_context.search.retrievers import Backends
from rag_context.tracing import span

PROBE = Query("health", limit=1)
"""The query that tries whether searches work again after the breaker opened."""

BULK_S = 15.0
"""Time in which a streamed document is embedded: enough for most, and shorter than the timeouts of clients."""

BOUND_SERVICES = 256
"""Bounds whose services are kept."""

COUNT_TIMEOUT_S = 2.0
STATS_TIMEOUT_S = 10.0
ORIGINS_AGE_S, ORIGINS_S = 60.0, 0.5
"""How old counts of origins may be, and how long statistics wait for them: all passages are read for them."""

_ALL = timedelta(days=1)
"""Of all records none is later than this from now, by the clock of any server."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The components of a service; `wiring` builds them."""

    backends: Backends
    embedder: BoundEmbedder
    metrics: reading.MetricsStore
    registry: writing.ModelRegistry
    chain: SearchChain
    cache: ResultCache
    indexer: Indexer
    telemetry: Telemetry
    maintenance: BackgroundMaintenance
    health: component_checks.HealthMonitor
    rebuilding: Rebuilding | None = None
    projects: ProjectDependencies | None = None
    collections: CollectionService | None = None
    hooks: HookDependencies | None = None
    repositories: Repositories | None = None
    """What passages cite is checked against these."""
    admissions: admission.Admissions = field(default_factory=admission.Admissions.unlimited)
    redactor: Redactor = field(default_factory=Redactor)
    records_queries: bool = True
    """Whether records of searches hold the queries."""
    traces_content: bool = False
    """Whether traces hold queries, and ids of what was found."""
    journal: writing.Journal | None = None
    trash_kept: timedelta = timedelta(days=30)
    """How long what was forgotten can be restored."""
    forget_files: Callable[[Collection[str]], None] = lambda _: None
    """Removes these sources from the manifest of files, once their documents are purged."""
    kept: Mapping[str, timedelta] = field(default_factory=dict)
    """How long documents of a content type are kept; without one, for ever."""
    look: Callable[[], Awaitable[None]] | None = None
    """Brings the index's version up to date before a cached answer is given; None: it follows within a moment."""
    embedding_cache: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Hits and misses of the cache of query embeddings since the start."""


class Service:
    """Searches, indexes, reads, deletes and reports.

    Without a `min_score` requests have the model's threshold. `bounds` are those of the key that it is for; its
    dependencies know nothing else.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        *,
        min_score: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
        bounds: callers.Bounds | None = None,
    ) -> None:
        self._bounds = bounds
        self._bound: LRUCache[callers.Bounds, Service] = LRUCache(BOUND_SERVICES)
        self._dependencies = dependencies
        self._min_score = min_score
        self._clock = clock
        self._now = now
        self._counts = Counts(0, 0, 0, 0)
        self._progress = IndexingProgress(clock)
        self._single = SingleWrites(dependencies.admissions.writes, self._submit)
        backends = dependencies.backends
        self._embedder = backends.embedding.guard(backends.embedder, SLICE_S)
        self._documents = backends.document_store.guard(backends.documents, STORE_S)
        self._documents_past_breaker = backends.document_store.guard_bypassing_breaker(backends.documents, STORE_S)
        self._queries = DocumentQueries(self._documents, dependencies.redactor)
        self._similarity = SimilarDocuments(backends, clock)
        self.reindexing = Reindexing(
            backends,
            dependencies.embedder,
            dependencies.registry,
            dependencies.indexer,
            dependencies.maintenance,
            clock,
            dependencies.rebuilding,
        )
        """Embeds all documents again, in the foreground or in the background."""
        self._meters = Meters(self._readings, dependencies.admissions)
        self.counting_log_records = self._meters.counting_log_records
        query_chars = reports.QUERY_CHARS if dependencies.records_queries else 0
        self.record_access = dependencies.telemetry.record_error
        self._recorder = Recorder(dependencies.telemetry, self._meters, now, dependencies.redactor.text, query_chars)
        projects = dependencies.projects
        self._tenants = TenantResolver(backends.documents, None if projects is None else projects.projects)
        self.projects = (
            ProjectService(projects, self._recorder.document_search, dependencies.admissions, clock=clock, now=now)
            if projects is not None
            else None
        )
        """The use cases of project documents; None if this service has none."""
        self.changes = Changes(
            dependencies.journal,
            self._queries,
            self._tenants,
            self._correction,
            trash_kept=dependencies.trash_kept,
            kept=dependencies.kept,
            clear_queries=self._clear_queries,
            forget_files=dependencies.forget_files,
            sweep_soon=dependencies.maintenance.sweep_soon,
            on_failure=lambda error: self._recorder.error("expire", error, ""),
            now=now,
            clock=clock,
        )
        """Corrections, the journal and forgetting."""
        self._review = Review(self.changes, backends, self._tenants, dependencies.repositories, clock=clock, now=now)
        self._receipts = None if dependencies.hooks is None else Receipts(dependencies.hooks.log, self._documents)
        self.hooks = None if dependencies.hooks is None else hook_answers(self, dependencies.hooks, dependencies, now)
        """Answers hooks of agents; None if this service answers none."""
        self.collections = dependencies.collections
        """The use cases of collections and their providers; None if this service has none."""

    def bound_to(self, bounds: callers.Bounds | None) -> "Service":
        """This service as it is for a key with these bounds; None: as it is."""
        if bounds is None:
            return self
        if bounds not in self._bound:
            whole = self._dependencies
            backends = bounded.bounded_backends(whole.backends, bounds)
            own = replace(
                whole,
                backends=backends,
                chain=whole.chain.over(backends),
                cache=ResultCache(0, 0.0, self._clock),
                journal=None if whole.journal is None else bounded.bounded_journal(whole.journal, backends),
                projects=None,
                collections=None,
                hooks=None,
                repositories=None,
            )
            bound = Service(own, min_score=self._min_score, clock=self._clock, now=self._now, bounds=bounds)
            bound._recorder = self._recorder
            self._bound[bounds] = bound
        return self._bound[bounds]

    def performers(self, bounds: callers.Bounds) -> Mapping[str, Handler]:
        """What performs operations on documents, for a key with these bounds."""
        return self.bound_to(bounds).handlers()

    def handlers(self) -> dict[str, Handler]:
        """What performs each operation, by its name, within the bounds of its caller."""
        if self._bounds is not None:
            return self._performers
        return {
            name: bounded.within_bounds(PERFORMED[name], run, self.performers) for name, run in self._performers.items()
        }

    @cached_property
    def _performers(self) -> dict[str, Handler]:
        projects, collections = self.projects, self.collections
        parts = (projects and projects.questions, collections and collections.providers)
        pair = SearchFetch(self.search, self.get)
        # Probes call `health` without a request.
        health: dict[str, Handler] = {memory.HEALTH.name: lambda _request, _context: self.health()}
        return (
            handlers_of(self, self.changes, self._review, self._receipts, projects, collections, *parts, pair) | health
        )

    @performs(memory.SEARCH)
    async def search(self, request: SearchRequest, context: CallContext) -> SearchResponse:
        """Answer at the best level that works now; no failing backend raises. Raises: SearchFailedError (`strict`)."""
        with span("search", {"rag.mode": request.mode, "rag.limit": request.limit}) as traced:
            response, retry_after_s = await self._search(request, context)
            describe(traced, request, response, content=self._dependencies.traces_content)
        if request.strict and response.fallback_level >= Level.EMPTY:
            raise SearchFailedError(response, retry_after_s)
        return response

    async def _search(self, request: SearchRequest, context: CallContext) -> tuple[SearchResponse, float | None]:
        started = self._clock()
        query, superseded = None, dict[str, Link]()
        of_project = mappers.tenant_of(request) != DEFAULT_TENANT  # most are about the agents' own memory
        try:
            request = await self._tenants.resolved(request) if of_project else request
        except BackendError as error:  # the list of projects cannot be read, and no earlier copy of it is cached
            answer = Answer((), Level.EMPTY, {}, 0, warning=WARNINGS[Level.EMPTY], error=str(error))
        else:
            query = mappers.query_of(request, self._min_score, self._now(), self._dependencies.redactor)
            answer = await self._answer(query)
            if request.include_superseded or (request.as_of and self._dependencies.journal):
                answer, superseded = await self._with_superseded(query, answer, request)
            if of_project:
                answer = self._tenants.labelled(answer, query.where.tenant)
            if not answer.results and answer.level < Level.EMPTY:
                hint = await filter_hint(self._documents, query.where)
                answer = replace(answer, warning=" ".join(filter(None, (answer.warning, hint))) or None)
        latency_ms = (self._clock() - started) * 1000.0
        self._recorder.search(request, answer, context.request_id, latency_ms)
        response = mappers.search_response(
            answer,
            () if query is None else query.windows,
            request_id=context.request_id,
            latency_ms=latency_ms,
            explain=request.explain,
            breaker_open=not self._dependencies.chain.breaker.closed,
            superseded=superseded,
        )
        if request.max_tokens is not None:
            response = mappers.within_token_budget(response, request.max_tokens, self.tokenizer)
        response = await self._with_references(response, context, mappers.tenant_of(request) if of_project else None)
        retry_after_s = answer.retry_after_s if answer.level is not Level.EMPTY else answer.retry_after_s or 1.0
        return response, retry_after_s

    async def _with_references(
        self, response: SearchResponse, context: CallContext, tenant: Tenant | None
    ) -> SearchResponse:
        """The response with what became of what its passages cite, where their repository is known."""
        repositories, projects = self._dependencies.repositories, self._dependencies.projects
        if repositories is None:
            return response
        here = context.project
        if tenant is not None:
            followed = None if projects is None else projects.projects.followed(tenant)
            here = None if followed is None else await repositories.note_root(followed.repository_root)
        cited = [
            Cited(each.content, each.occurred_at.timestamp(), each.metadata.get("tags", ()), each.content_type == CODE)
            for each in response.results
        ]
        checked = await repositories.check(cited, here)
        if checked is None:
            return response
        results = [
            result.model_copy(update={"references": list(found)}) if found else result
            for result, found in zip(response.results, checked.references, strict=True)
        ]
        report = LegReport(
            status="ok" if checked.problem is None else "skipped",
            latency_ms=round(checked.latency_ms, 3),
            detail=checked.problem,
        )
        return response.model_copy(update={"results": results, "legs": {**response.legs, "references": report}})

    def work_on(self, project: Workspace | None) -> None:
        """Note a project that a caller works on, on this machine: passages about it are checked against it."""
        if project is not None and self._dependencies.repositories is not None:
            self._dependencies.repositories.note(project)

    async def _with_superseded(
        self, query: Query, answer: Answer, request: SearchRequest
    ) -> tuple[Answer, dict[str, Link]]:
        """The answer with the passages of superseded versions in their places, and what is known of those versions.

        As of a moment these are only the versions that were current then, and those that came later are left out.
        """
        ended_after = None if request.include_superseded else request.as_of
        where = replace(query.where, tenant=query.where.tenant.on(Shelf.SUPERSEDED), superseded_after=ended_after)
        other = await self._answer(replace(query, where=where))
        links = await self.changes.links(sorted({each.passage.document_id for each in other.results}))
        if ended_after is not None:  # a vector store beside the documents does not know since when they are superseded
            links = {id_: link for id_, link in links.items() if (link.superseded_at or ended_after) > ended_after}
        superseded = [each for each in other.results if each.passage.document_id in links]
        later = {link.place.superseded_by for link in links.values()} if ended_after is not None else set()
        # Merged, not sorted: in each of them later statements stand above earlier ones, whatever their scores.
        merged = heapq.merge(answer.results, superseded, key=lambda result: -result.ranked.score)
        results = [each for each in merged if each.passage.document_id not in later]
        is_unanswerable = answer.unanswerable and (other.unanswerable or not superseded)
        answer = replace(answer, results=tuple(results[: query.limit]), unanswerable=is_unanswerable)
        return answer if ended_after is None else await self._dependencies.chain.newer_first(query, answer), links

    @performs(memory.INDEX)
    async def index(self, request: IndexRequest, context: CallContext) -> IndexResponse:
        """Index a document. Raises: InvalidInputError, BackendError (nothing changed; OverloadedError: not begun)."""
        started = self._clock()
        submitted = await self._submission(request)
        if isinstance(submitted, RagContextError):
            raise submitted
        receipt = await self._single.index(submitted, context.request_id)
        if isinstance(receipt, Exception):
            raise receipt
        return mappers.index_response(receipt, (self._clock() - started) * 1000.0)

    async def bulk_all(self, lines: Sequence[BulkLine], *, request_id: str) -> list[BulkReceipt | Exception]:
        """Index documents of a stream together: a receipt for each, also if it is invalid, or its `BackendError`."""
        if any(line.defer_vectors for line in lines):
            self._dependencies.maintenance.delay_sweep()
        # Waits without a limit: the stream is read no faster than its documents are indexed.
        async with self._dependencies.admissions.writes.admitted_in_turn():
            given = [await self._submission(line) for line in lines]
            results = await self._submit(given, [request_id] * len(lines), BULK_S)
        return [mappers.bulk_result(result, line.source) for line, result in zip(lines, results, strict=True)]

    async def missing(self, request: VersionsRequest) -> VersionsResponse:
        """List the versions of documents that are not stored. Raises: BackendError."""
        return await self._queries.missing(request)

    @performs(memory.DELETE)
    async def delete(self, request: stored.DeleteRequest) -> stored.DeleteResponse:
        """Delete documents, or list them. Raises: InvalidInputError (many, without `confirm`), BackendError."""
        request = await self._tenants.resolved(request)
        ids = await ids_to_delete(request, self._documents_past_breaker, self._dependencies.redactor)
        deleted = ids if request.dry_run else await remove(ids, self._dependencies.indexer)
        return stored.DeleteResponse(deleted_count=len(deleted), document_ids=deleted, dry_run=request.dry_run)

    @performs(memory.GET)
    async def get(self, request: stored.GetRequest) -> stored.GetResponse:
        """Read one document. Raises: NotFoundError, BackendError."""
        response = await self._queries.get(await self._tenants.resolved(request))
        link = await self.changes.link(response.document_id)
        if link is None:
            return response
        stated = {"expires_at": link.expires_at, "pinned": link.is_pinned or None}
        return response.model_copy(update={"superseded_by": link.place.superseded_by, "reason": link.reason, **stated})

    @performs(memory.LIST)
    async def listing(self, request: stored.ListRequest) -> stored.ListResponse:
        """List one page of documents, newest first. Raises: InvalidInputError (the cursor), BackendError."""
        return await self._queries.listing(await self._tenants.resolved(request))

    @performs(memory.SIMILAR)
    async def similar(self, request: stored.SimilarRequest) -> stored.SimilarResponse:
        """Find the documents that are most similar to one. Raises: NotFoundError, BackendError."""
        async with self._dependencies.admissions.searches.admitted():
            tenant = mappers.tenant_of(await self._tenants.resolved(request))
            document = await self._queries.document(request.document_id, tenant)
            return await self._similarity.similar(document, request.limit)

    @performs(memory.REINDEX)
    async def reindex(self, request: maintenance.ReindexRequest, context: CallContext) -> maintenance.ReindexResponse:
        """Embed documents and collections of another model again in the background. Raises: BackendError."""
        response = await self.reindexing.reindex(request, context.on_progress)
        if self.collections is not None:
            return await self.collections.maintenance.reindex_behind(request, response)
        return response

    async def rank(self, query: Query) -> Answer:
        """Answer a query of the domain as `search` does, with any limit, without the result cache and statistics."""
        async with self._dependencies.admissions.searches.admitted_in_turn():
            return await self._dependencies.chain.search(with_windows(query, self._now()))

    async def embed(self, texts: Sequence[str]) -> vectors.Matrix:
        """Embed texts as passages, after queries that wait: `(n, dim) float32`. Raises: BackendError."""
        async with self._dependencies.admissions.writes.admitted():
            return np.concatenate([await self._embedder.embed_documents(part) for part in slices(texts, SLICE)])

    def model(self) -> vectors.EmbeddingModel:
        """The model that `embed` and all searches use. Raises: BackendError before it is loaded."""
        return self._dependencies.embedder.model

    @property
    def tokenizer(self) -> models.Tokenizer:
        """The tokenizer of the model; available before the model is loaded."""
        return self._dependencies.embedder.tokenizer

    async def health(self) -> maintenance.HealthResponse:
        started = self._clock()
        breaker = self._dependencies.chain.breaker
        if breaker.state is dependency.BreakerState.HALF_OPEN:  # without a search of its own it would stay half open
            await self._dependencies.chain.search(PROBE)
        counts = await self._count()  # first: a store that fails here is examined again, not answered from the cache
        findings = await self._dependencies.health.examine(counts, self._known_model())
        stores = [finding for finding in findings if finding.name in component_checks.STORES]
        if self._dependencies.maintenance.reconciler and all(each.status is Status.HEALTHY for each in stores):
            with suppress(BackendError):
                await self._dependencies.maintenance.stores_differ(COUNT_TIMEOUT_S)
            counts = await self._count()  # what is lost may have become pending since
        if self.collections is not None:
            findings = (*findings, *await self.collections.maintenance.examine())
        return health_response(
            findings,
            counts,
            self._progress.vector_problem(counts, self._dependencies.maintenance.problem)
            or lost_vectors(self._dependencies.backends.lost_vectors().vectors),
            breaker_closed=breaker.closed,
            model=self._known_model(),
            latency_ms=(self._clock() - started) * 1000.0,
        )

    @performs(memory.STATS)
    async def stats(self, request: maintenance.StatsRequest) -> maintenance.StatsResponse:
        """Summarise the searches of a time range. Raises: BackendError."""
        length, buckets = TIME_RANGES[request.time_range]
        until = self._now()
        await self._dependencies.telemetry.flush()
        deadline = Deadline.after(STATS_TIMEOUT_S, self._clock)
        summary = await deadline.bound(
            "documents", self._dependencies.metrics.summarise(until - length, until, buckets)
        )
        recent = None
        if request.include == "recent":
            searches = self._dependencies.metrics.recent(until - length, maintenance.MAX_RECENT)
            recent = await deadline.bound("documents", searches)
        with deadline.applied():
            counts = await self._documents_past_breaker.counts()
            periods = await self._documents_past_breaker.periods()
        cache = self._dependencies.embedding_cache()
        return mappers.stats_response(summary, counts.documents, periods, await self._origins(), cache, recent)

    async def _origins(self) -> Mapping[str, int] | None:
        """Passages by origin; None while they are being counted, or where they cannot be."""
        try:
            facets = await asyncio.wait_for(self._queries.facets.of(Filter(), age_s=ORIGINS_AGE_S), ORIGINS_S)
        except (TimeoutError, BackendError):
            return None
        return facets.origins

    @performs(memory.CLEAR_QUERIES)
    async def clear_queries(self, request: maintenance.ClearQueriesRequest) -> maintenance.ClearQueriesResponse:
        """Delete records of searches. Raises: BackendError (some may be left)."""
        return maintenance.ClearQueriesResponse(deleted_count=await self._clear_queries(request.before))

    async def _clear_queries(self, before: datetime | None = None) -> int:
        before = before or self._now() + _ALL
        await self._dependencies.telemetry.flush()
        deadline = Deadline.after(STATS_TIMEOUT_S, self._clock)
        deleted = await deadline.bound("documents", self._dependencies.metrics.prune(before))
        if self._dependencies.hooks is not None:
            await asyncio.to_thread(self._dependencies.hooks.log.prune, before)
        return deleted

    async def ready(self) -> bool:
        """Whether a search would be answered at level 1 now."""
        if (
            not self._dependencies.maintenance.bound.is_set()
            or self._dependencies.chain.breaker.state is dependency.BreakerState.OPEN
        ):
            return False
        findings = await self._dependencies.health.examine(model=self._known_model())
        return all(finding.status is Status.HEALTHY for finding in findings if finding.name in ROLES)

    async def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the model is loaded and compared with the index; False if it fails or takes longer."""
        maintenance = self._dependencies.maintenance
        return await set_within(maintenance.bind_tried, timeout_s) and maintenance.bound.is_set()

    async def prometheus(self) -> bytes:
        """The metrics in Prometheus' text format; the last known number of vectors if the store cannot be read."""
        await asyncio.sleep(0)  # what is recorded behind an answer comes first
        await self._count()
        return self._meters.text()

    def _readings(self) -> Readings:
        dependencies = self._dependencies
        cache, (hits, misses) = dependencies.cache, dependencies.embedding_cache()
        values = {
            "rag_queue_depth": dependencies.telemetry.waiting,
            "rag_records_dropped_total": dependencies.telemetry.dropped,
            "rag_cache_hit_rate": cache.hits / max(cache.hits + cache.misses, 1),
            "rag_embedding_cache_hits_total": hits,
            "rag_embedding_cache_misses_total": misses,
            "rag_embeddings_reused_total": self.collections.embeddings_reused if self.collections is not None else 0.0,
            "rag_vectors_total": self._counts.vectors,
            "rag_documents": self._counts.documents,
            "rag_documents_pending": self._counts.pending,
        }
        return Readings(dependencies.chain.breaker.state, dependencies.health.breaker_states(), values)

    async def _answer(self, query: Query) -> Answer:
        parts = self._dependencies

        async def search() -> Answer:
            async with parts.admissions.searches.admitted() as slot:  # the deadline begins here
                answer = await parts.chain.search(query)
                # During an outage answers come at once, and many more would be let in than can be answered after it.
                slot.is_typical = answer.level is Level.PRIMARY
                return answer

        embeds = query.mode is not Mode.TEXT and query.vector is None
        provenance = parts.embedder.provenance if embeds else models.CONFIRMED
        known = partial(parts.chain.state_of, query.where.tenant)
        return await parts.cache.answered(query, known, search, parts.look, provenance)

    async def _correction(self, submitted: Submission, request_id: str) -> Receipt:
        async with self._dependencies.admissions.writes.admitted():
            (receipt,) = await self._submit([submitted], [request_id])
        if isinstance(receipt, Exception):
            raise receipt
        return receipt

    async def _submit(
        self, given: Sequence[Submission | RagContextError], request_ids: Sequence[str], at_least_s: float = 0.0
    ) -> list[Receipt | Exception]:
        with span("index") as traced:
            if self._bounds is not None:
                has_journal = self._dependencies.journal is not None
                given = [await bounded.stamped(self._documents, self._bounds, each, has_journal) for each in given]
            submitted = [each for each in given if isinstance(each, Submission)]
            done = iter(await self._dependencies.indexer.index_all(submitted, at_least_s=at_least_s))
            results = [next(done) if isinstance(each, Submission) else each for each in given]
            describe_indexing(traced, results)
        if any(each.revision.supersedes for each in submitted):  # two stores: vectors of what moved to a shelf follow
            self._dependencies.maintenance.sweep_soon()
        if (hooks := self._dependencies.hooks) is not None:
            hooks.digests.change(tag for each in submitted for tag in each.document.metadata.tags)
        if self._bounds is not None:
            results = [await bounded.known_to_key(self._documents, each) for each in results]
        for result, request_id in zip(results, request_ids, strict=True):
            if isinstance(result, BackendError):
                self._recorder.error("index", result, request_id)
                self._dependencies.health.invalidate_writes()
            elif isinstance(result, Receipt):
                self._recorder.indexed(result.outcome)
                if result.is_unfinished:
                    self._dependencies.maintenance.finish_soon(result.document_id)
        return results

    async def _submission(self, request: IndexRequest) -> Submission | RagContextError:
        try:
            if mappers.tenant_of(request) != DEFAULT_TENANT:
                request = await self._tenants.writable(request)
            submitted = mappers.submission(request)
            if (cause := Cause.now()).only_adds:
                submitted = submitted.added_by(cause.by)
        except RagContextError as error:
            return error
        has_journal = self._dependencies.journal is not None
        return submitted if has_journal or submitted.revision.is_plain else InvalidInputError(UNSUPPORTED)

    async def _count(self) -> Counts | None:
        try:
            with Deadline.after(COUNT_TIMEOUT_S, self._clock).applied():
                self._counts = await self._documents.counts()
        except BackendError:
            return None
        return self._counts

    def _known_model(self) -> vectors.EmbeddingModel | None:
        try:
            return self._dependencies.embedder.model
        except BackendError:
            return None

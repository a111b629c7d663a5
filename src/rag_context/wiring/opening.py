"""Opens the service with the adapters that the settings select, and closes them in reverse order."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from rag_context.agents.digests import Digests
from rag_context.agents.histories import Capture, choice_of
from rag_context.agents.sessions import Budgets
from rag_context.agents.workspace import workspace
from rag_context.collections.copying import own_collections
from rag_context.collections.provider_connections import DEFAULT, PROBE_S, TextEmbedder
from rag_context.domain.documents import PROJECT_TAG, Missing
from rag_context.domain.reports import ErrorRecord
from rag_context.embedders.model_vectors import CachedEmbedder
from rag_context.errors import ConfigurationError
from rag_context.ingest.chunking.code import SyntaxProcesses
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.ingest.preparing import PreparingProcesses
from rag_context.ingest.redaction import RedactionMode, Redactor
from rag_context.ingest.text_vectors import ReusableVectors
from rag_context.memory.background_maintenance import BackgroundMaintenance, Duties
from rag_context.memory.bound_embedder import BoundEmbedder, OpenFormer, Rebuilding
from rag_context.memory.hook_service import HookDependencies
from rag_context.memory.index_maintenance import Audit
from rag_context.memory.service import Dependencies, Service
from rag_context.memory.telemetry import Telemetry
from rag_context.ports.models import ChatModel
from rag_context.ports.reading import DocumentStore
from rag_context.projects.activation import Projects
from rag_context.projects.assembly import Renderer
from rag_context.projects.housekeeping import HousekeepingRules
from rag_context.projects.project_service import ProjectDependencies
from rag_context.projects.retrieval import RetrievalDependencies
from rag_context.references.repositories import Repositories
from rag_context.resilience.admission import AdaptiveLimit, Admission, Admissions, Bounds, FixedLimit
from rag_context.resilience.component_checks import HealthMonitor
from rag_context.resilience.deadline import ended
from rag_context.resilience.dependency import Breaker, Dependency, constant_cooldown
from rag_context.resilience.shared_cache import SecondLevel
from rag_context.search.chain import Reranking, SearchChain
from rag_context.search.query import ResultCache
from rag_context.search.retrievers import Backends
from rag_context.settings import Settings, StoreSettings, check_available
from rag_context.settings.keys import TITLES
from rag_context.settings.sections import ChatSettings
from rag_context.stores import machine_tables
from rag_context.stores.sqlite.embedded import FILE_NAME, require_index
from rag_context.tracing import exported
from rag_context.transfer.beside_documents import BesideDocuments
from rag_context.transfer.exporter import Exporter
from rag_context.transfer.importer import Conflict, Importer
from rag_context.wiring.collection_providers import open_collection_service, open_connections
from rag_context.wiring.model_adapters import OnMismatch, check_model, former_embedders, open_embedder, open_reranking
from rag_context.wiring.stores import Stores, local_notes, open_cache, open_index_auditor, open_stores

logger = logging.getLogger(__name__)

SEARCHES_PER_CORE = 2
MOST_SEARCHES_PER_CORE = 16
TARGET_SHARE = 0.3
"""Share of the deadline that searches may take; if they take more, fewer run at once."""

EMBEDDER_TITLES = {"onnx": "bundled ONNX", "openai_compatible": "OpenAI-compatible server"}

DEFAULT_WINDOW = 254
"""The window in tokens before the model is loaded: that of the bundled model."""


@asynccontextmanager
async def open_service(
    settings: Settings, on_mismatch: OnMismatch = OnMismatch.REJECT, duties: Duties = Duties.ALL
) -> AsyncIterator[Service]:
    """Open the service on the configured backends; its model loads in the background.

    `duties` are OWN where another process of the same server looks after the index.

    Raises: ConfigurationError (the settings cannot work), IndexMismatchError (another model embedded the index, and
    `on_mismatch` is REJECT).
    """
    async with _opened(settings, on_mismatch, duties) as (_, service):
        yield service


@asynccontextmanager
async def open_export(
    settings: Settings, *, collections: bool = False, statistics: bool = False
) -> AsyncIterator[Exporter]:
    """Open the index for an export, without its model; other processes may use it at the same time.

    `collections` are those of the default connection; `statistics` the records of searches.

    Raises: ConfigurationError (the settings cannot work, or there is no index).
    """
    check_available(settings)
    if settings.stores.documents == "embedded":
        require_index(settings.data_dir / FILE_NAME)
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings))
        beside = BesideDocuments(searches=stores.metrics if statistics else None) if collections or statistics else None
        if beside is not None and collections:
            connections = await stack.enter_async_context(open_connections(settings))
            beside.provider = connections.require(DEFAULT).opened
            beside.names = await own_collections(await beside.provider())
        yield Exporter(stores.documents, stores.vectors, stores.registry, stores.journal, beside)


@asynccontextmanager
async def open_import(
    settings: Settings, conflict: Conflict, on_built: Callable[[float], None]
) -> AsyncIterator[tuple[Importer, Service]]:
    """Open the index for an import, with the service that embeds documents which came without vectors.

    Indexes of the store are built at the end of the block, if it did not fail; `on_built` is called with the share of
    the one over vectors that is built, 0..1.

    Raises: ConfigurationError (the settings cannot work), IndexMismatchError (another model embedded the index).
    """
    async with _opened(settings, OnMismatch.REJECT) as (stores, service), open_connections(settings) as connections:
        beside = BesideDocuments(connections.require(DEFAULT).opened, stores.metrics)
        importer = Importer(stores.documents, stores.writer, stores.registry, conflict, stores.journal, beside)
        async with nullcontext() if stores.bulk is None else stores.bulk.loading(on_built):
            yield importer, service


@asynccontextmanager
async def open_adopting(settings: Settings) -> AsyncIterator[tuple[DocumentStore, Service]]:
    """Open the index to take over documents of other programs: what it has, and the service that indexes them.

    Raises: ConfigurationError (the settings cannot work), IndexMismatchError (another model embedded the index).
    """
    async with _opened(settings, OnMismatch.REJECT) as (stores, service):
        yield stores.documents, service


@asynccontextmanager
async def open_audit(settings: Settings) -> AsyncIterator[Audit]:
    """Open the index for checks and repairs, without its model; other processes may use it at the same time.

    Raises: ConfigurationError (the settings cannot work, or there is no index).
    """
    check_available(settings)
    async with open_index_auditor(settings) as auditor:
        yield Audit(auditor)


async def recorded_accesses(settings: Settings, limit: int) -> list[ErrorRecord]:
    """The latest calls that changed something or were rejected, newest first; of all servers on these stores.

    Raises: ConfigurationError (the settings cannot work, or there is no index), BackendError (the store cannot be
    read).
    """
    check_available(settings)
    if settings.stores.documents == "embedded":
        require_index(settings.data_dir / FILE_NAME)
    async with open_stores(settings) as stores:
        return await stores.metrics.accesses(limit)


@asynccontextmanager
async def _opened(
    settings: Settings, on_mismatch: OnMismatch, duties: Duties = Duties.ALL
) -> AsyncIterator[tuple[Stores, Service]]:
    check_available(settings)
    # In the order in which they need each other; the stack closes them in reverse.
    async with AsyncExitStack() as stack:
        if settings.telemetry.traces:
            await stack.enter_async_context(exported())
        stores = await stack.enter_async_context(open_stores(settings))
        embedder = await stack.enter_async_context(open_embedder(settings))
        await check_model(stores, embedder, settings, on_mismatch)
        shared = await stack.enter_async_context(_open_shared(settings.stores))
        reranking = await stack.enter_async_context(open_reranking(settings))
        former = await stack.enter_async_context(former_embedders(settings))
        cached = CachedEmbedder(embedder, shared=shared)
        dependencies = _dependencies(
            stores,
            cached,
            stack.enter_context(SyntaxProcesses()),
            stack.enter_context(PreparingProcesses("rag_context.wiring.preparing", workers=_cores(settings))),
            shared,
            reranking,
            settings,
            former,
            duties,
            begin_on_mismatch=on_mismatch is OnMismatch.REINDEX,
        )
        # Not the embedder that is bound to the documents' index: every collection records its own model.
        own = TextEmbedder(cached, Dependency("embedder", cached.ping, probe_s=PROBE_S))
        collections = await stack.enter_async_context(
            open_collection_service(settings, own, dependencies.admissions, dependencies.redactor)
        )
        # Before the tasks, and so called after they have ended: what they recorded last is written too.
        stack.push_async_callback(dependencies.telemetry.close)
        await stack.enter_async_context(_running("telemetry", dependencies.telemetry.run()))
        await stack.enter_async_context(_running("maintenance", dependencies.maintenance.run()))
        projects = await stack.enter_async_context(open_projects(dependencies, settings))
        hooks = await stack.enter_async_context(_open_hooks(dependencies, settings, duties))
        repositories = Repositories()
        stack.push_async_callback(repositories.aclose)
        dependencies = replace(
            dependencies, collections=collections, projects=projects, hooks=hooks, repositories=repositories
        )
        service = Service(dependencies, min_score=settings.search.min_score)
        if duties is Duties.ALL:
            await stack.enter_async_context(_running("retention", service.changes.run()))
        yield stores, service


@asynccontextmanager
async def _open_shared(settings: StoreSettings) -> AsyncIterator[SecondLevel | None]:
    """The cache that processes share, behind the cache in memory; None if none is configured."""
    async with open_cache(settings) as cache:
        if cache is None:
            yield None
            return
        secret = settings.redis_secret.get_secret_value() if settings.redis_secret is not None else ""
        level = SecondLevel(cache, Dependency("cache", cache.ping), secret=secret)
        async with _running("cache", level.run()):
            yield level


def _dependencies(
    stores: Stores,
    embedder: CachedEmbedder,
    syntax: SyntaxProcesses,
    preparing: PreparingProcesses,
    shared: SecondLevel | None,
    reranking: Reranking | None,
    settings: Settings,
    open_former: OpenFormer,
    duties: Duties,
    *,
    begin_on_mismatch: bool,
) -> Dependencies:
    bound = BoundEmbedder(embedder, stores.registry, stores.rebuilder, open_former)
    backends = _backends(stores, bound)
    indexer = _indexer(stores, backends, syntax, preparing, settings)
    rebuilding = (
        Rebuilding(stores.rebuilder, embedder, bound, indexer, begin_on_mismatch=begin_on_mismatch)
        if stores.rebuilder is not None
        else None
    )
    deadline_s = settings.search.deadline_ms / 1000.0
    breaker = Breaker(
        "search",
        threshold=settings.breaker.threshold,
        cooldown=constant_cooldown(settings.breaker.timeout_ms / 1000.0),
        event_s=deadline_s,
    )
    monitored = _monitored(backends, shared, reranking, settings)
    load = stores.vectors.ping if settings.stores.vectors == "embedded" else None
    return Dependencies(
        backends=backends,
        embedder=bound,
        embedding_cache=lambda: (embedder.hits, embedder.misses),
        metrics=stores.metrics,
        registry=stores.registry,
        chain=SearchChain(
            backends, breaker, deadline_s=deadline_s, without=settings.search.without, reranking=reranking
        ),
        cache=ResultCache(settings.search.cache_size, settings.search.cache_ttl_s, time.monotonic, shared),
        indexer=indexer,
        telemetry=Telemetry(
            stores.metrics,
            stores.documents,
            retention=timedelta(days=settings.telemetry.retention_days),
            accesses_kept=timedelta(days=settings.log.audit_days),
        ),
        maintenance=BackgroundMaintenance(
            [part for _, part in monitored],
            bound,
            indexer,
            stores.documents,
            time.monotonic,
            stores.reconciler,
            rebuilding,
            load,
            duties,
            # A backend's own probe has shown that it answers: the next search need not wait for the cooldown.
            breaker.reset,
            stores.auditor,
        ),
        health=HealthMonitor(monitored, writes=stores.writes, notes=local_notes(settings.stores)),
        rebuilding=rebuilding,
        journal=stores.journal,
        forget_files=partial(_forget_files, settings.data_dir),
        trash_kept=timedelta(days=settings.retention.trash_days),
        kept={name: timedelta(days=days) for name, days in settings.retention.kinds.items()},
        admissions=_admissions(settings),
        redactor=_redactor(settings),
        records_queries=settings.telemetry.queries,
        traces_content=settings.telemetry.trace_content,
        look=stores.refresh_version if settings.server.workers > 1 else None,
    )


def _forget_files(data_dir: Path, sources: Collection[str]) -> None:
    """Remove files whose only document was purged from the manifest, which has their paths."""
    if (data_dir / machine_tables.FILES_NAME).exists():
        with machine_tables.open_file_manifest(data_dir) as manifest:
            entries = manifest.entries(sources).values()
            manifest.forget([entry.path for entry in entries if len(entry.documents) == 1])


def _backends(stores: Stores, bound: BoundEmbedder) -> Backends:
    return Backends(
        embedder=bound,
        vectors=stores.vectors,
        texts=stores.texts,
        documents=stores.documents,
        embedding=Dependency("embedder", bound.ping),
        vector_store=stores.vector_store,
        document_store=stores.document_store,
        candidates=stores.candidates,
        keyword_candidates=stores.keyword_candidates,
        lost_vectors=stores.reconciler.lost if stores.reconciler is not None else Missing,
    )


def _indexer(
    stores: Stores, backends: Backends, syntax: SyntaxProcesses, preparing: PreparingProcesses, settings: Settings
) -> Indexer:
    return Indexer(
        embedder=backends.embedder,
        embedding=backends.embedding,
        documents=stores.documents,
        document_store=backends.document_store,
        writer=stores.writer,
        policy=IndexingPolicy(DEFAULT_WINDOW, settings.indexing.timeout_s, _redactor(settings)),
        stored_vectors=ReusableVectors(
            stores.documents, backends.document_store, stores.vectors, backends.vector_store, stores.registry
        ),
        claims=stores.claims,
        journal=stores.journal,
        try_write=stores.writes.get("documents"),
        outline=syntax.outline,
        ahead=preparing.prepared,
    )


def _redactor(settings: Settings) -> Redactor:
    return Redactor(RedactionMode(settings.indexing.redaction))


def _monitored(
    backends: Backends, shared: SecondLevel | None, reranking: Reranking | None, settings: Settings
) -> tuple[tuple[str, Dependency], ...]:
    """The dependencies that are probed and reported, each with the description of its role."""
    return (
        (f"vector store ({TITLES[settings.stores.vectors]})", backends.vector_store),
        (f"embedding model ({EMBEDDER_TITLES[settings.embedder.kind]})", backends.embedding),
        (f"document store ({TITLES[settings.stores.documents]})", backends.document_store),
        *(((f"cache ({TITLES[settings.stores.cache]})", shared.guard),) if shared is not None else ()),
        *((("reranker", reranking.dependency),) if reranking is not None else ()),
    )


def _admissions(settings: Settings) -> Admissions:
    """The limits of what runs at once: as many searches as meet their deadline, and few enough writes beside them."""
    admission, deadline_s = settings.admission, settings.search.deadline_ms / 1000.0
    cores = _cores(settings)
    searches = (
        FixedLimit(admission.searches)
        if admission.searches
        else AdaptiveLimit(
            SEARCHES_PER_CORE * cores,
            least=cores,
            most=MOST_SEARCHES_PER_CORE * cores,
            target_s=TARGET_SHARE * deadline_s,
        )
    )
    bounds = Bounds(admission.max_wait_ms / 1000.0, admission.max_waiting)
    return Admissions(
        searches=Admission("searches", searches, bounds),
        writes=Admission("writes", FixedLimit(admission.writes or cores + 1), bounds),
    )


def _cores(settings: Settings) -> int:
    """Those of this process, where several share the machine."""
    return max((os.cpu_count() or 1) // settings.server.workers, 1)


@asynccontextmanager
async def _running(name: str, work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run a background task during the block, and cancel it at the end. A crash of it is logged."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_crash)
    try:
        yield
    finally:
        await ended(task)


def _log_crash(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("background task %s crashed", task.get_name(), exc_info=error)


SEARCH_SHARE = 0.8
"""Share of the deadline for the search of a project; the rest is for reading whole documents."""

PROJECT_READ_S = 30.0
"""Time budget of one read of project documents; a retrieval applies its own deadline, which is sooner."""


@asynccontextmanager
async def open_projects(dependencies: Dependencies, settings: Settings) -> AsyncIterator[ProjectDependencies]:
    deadline_s = settings.search.deadline_ms / 1000.0
    backends = dependencies.backends
    memory = dependencies.chain
    chain = SearchChain(
        backends,
        memory.breaker,
        deadline_s=SEARCH_SHARE * deadline_s,
        without=settings.search.without,
        reranking=memory.reranking,
    )
    registry = machine_tables.SqliteProjectRegistry(settings.data_dir)
    projects = Projects(
        dependencies.indexer, backends.documents, registry=registry, max_bytes=settings.indexing.max_file_bytes
    )
    retrieval = RetrievalDependencies(
        search=chain.search,
        documents=backends.document_store.guard(backends.documents, PROJECT_READ_S),
        document_lists=backends.document_store.guard(projects.document_lists, PROJECT_READ_S),
        renderer=Renderer(dependencies.embedder.tokenizer),
        model=lambda: dependencies.embedder.model,
        deadline_s=deadline_s,
    )
    # Projects in a data directory are this machine's; a store on a server may have projects of other machines.
    rules = HousekeepingRules(
        follow=settings.projects.follow, grace=timedelta(days=settings.projects.forget_after_days)
    )
    async with _open_chat(settings.chat) as chat:
        try:
            yield ProjectDependencies(projects, retrieval, chat, rules)
        finally:
            await projects.aclose()
            registry.close()


@asynccontextmanager
async def _open_hooks(
    dependencies: Dependencies, settings: Settings, duties: Duties
) -> AsyncIterator[HookDependencies]:
    rules, backends = settings.hooks, dependencies.backends
    silent = frozenset(filter(None, map(_project_tag, rules.silent_projects)))
    budgets = Budgets(rules.prompt_tokens, rules.start_tokens, rules.session_tokens)
    digests = Digests(
        settings.data_dir,
        backends.document_store.guard(backends.documents, PROJECT_READ_S),
        dependencies.embedder.tokenizer,
        budgets.start if rules.enabled else 0,
        silent_projects=silent,
    )
    manifest = machine_tables.SqliteHistoryManifest(settings.data_dir)
    capture = Capture(manifest, choice_of(settings))
    log = machine_tables.SqliteInjectionLog(settings.data_dir, timedelta(days=settings.telemetry.retention_days))
    try:
        async with _running("digests", digests.run()) if duties is Duties.ALL else nullcontext():
            yield HookDependencies(log, digests, budgets, capture, rules.enabled, silent)
    finally:
        await capture.aclose()
        manifest.close()
        log.close()


def _project_tag(named: str) -> str | None:
    if named.startswith(PROJECT_TAG):
        return named
    project = workspace(Path(named).expanduser())
    return None if project is None else project.tag


@asynccontextmanager
async def _open_chat(settings: ChatSettings) -> AsyncIterator[ChatModel | None]:
    if settings.url is None:
        yield None
        return
    if settings.model is None:
        raise ConfigurationError("chat.url is set, but no model: set chat.model to one that the chat server has.")
    from rag_context.openai_server import OpenAIChat  # noqa: PLC0415  (only if configured)

    key = settings.api_key.get_secret_value() if settings.api_key is not None else None
    chat = OpenAIChat(settings.url, model=settings.model, api_key=key, timeout_s=settings.timeout_s)
    try:
        yield chat
    finally:
        await chat.close()

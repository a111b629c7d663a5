"""Opens the stores: one for everything, or one for documents and another for their vectors."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from rag_context.errors import ConfigurationError
from rag_context.ingest import vector_generations
from rag_context.ingest.split_stores import Reconciler, TwoStoreAuditor, TwoStoreWriter, journal_over
from rag_context.ports import writing
from rag_context.ports.reading import Cache, CandidateSource, DocumentStore, IndexVectors, KeywordIndex, MetricsStore
from rag_context.resilience.dependency import Dependency
from rag_context.settings import Settings, StoreSettings
from rag_context.settings.keys import TITLES
from rag_context.stores.sqlite import embedded

if TYPE_CHECKING:
    from rag_context.stores.postgres import PostgresStore
    from rag_context.stores.qdrant.qdrant_api import QdrantOptions

LEAST_SHARE = 1.0 / 3.0
"""Share of a search's deadline; a call with a smaller time budget that times out does not count as a failure."""

ONLY_HERE = "on this machine only: another server does not have them"


def uses_servers(stores: StoreSettings) -> bool:
    return not all(_local_stores(stores).values())


def local_notes(stores: StoreSettings) -> dict[str, str]:
    """By component, what is kept on this machine alone although another store of the index is a server."""
    contents = {"documents": "documents and statistics", "vectors": "vectors"}
    if not uses_servers(stores):
        return {}
    return {name: f"{contents[name]} {ONLY_HERE}" for name, is_local in _local_stores(stores).items() if is_local}


def _local_stores(stores: StoreSettings) -> dict[str, bool]:
    is_folder = stores.vectors == "chroma" and stores.chroma_dir is not None
    return {"documents": stores.documents == "embedded", "vectors": stores.vectors == "embedded" or is_folder}


@dataclass(frozen=True, slots=True)
class Stores:
    documents: DocumentStore
    vectors: IndexVectors
    texts: KeywordIndex
    metrics: MetricsStore
    writer: writing.IndexWriter
    registry: writing.ModelRegistry
    document_store: Dependency
    vector_store: Dependency
    writes: Mapping[str, Callable[[], Awaitable[None]]]
    """By name of a store's dependency: makes a write there without effect. Raises BackendError."""
    reconciler: Reconciler | None = None
    """Compares documents and vectors; None if one store has both."""
    auditor: writing.IndexAuditor | None = None
    """Repairs an index in use that one store has; None if two have it."""
    rebuilder: writing.VectorRebuilder | None = None
    """Stores new vectors while the old ones are still used."""
    candidates: CandidateSource | None = None
    """Answers a search in one call; None if several stores answer it."""
    keyword_candidates: CandidateSource | None = None
    bulk: writing.BulkLoad | None = None
    """Postpones indexes while much is loaded; None if there are none to build."""
    journal: writing.Journal | None = None
    """Records changes and moves documents to shelves; None where the document store keeps none."""
    claims: writing.PendingClaims | None = None
    """Shares pending documents out among servers; None if the servers of one index are one machine's processes."""
    refresh_version: Callable[[], Awaitable[None]] | None = None
    """Brings `documents.version` up to what other processes have written by now; None: it follows within a moment."""


OpenGeneration: TypeAlias = Callable[[int], vector_generations.VectorStorage]
"""The vectors of a generation: generation 0 has the name in the settings, the others have names derived from it."""


@dataclass(frozen=True, slots=True)
class DocumentBackend:
    """The ports of a document store whose vectors are in another store."""

    documents: vector_generations.SplitDocuments
    texts: KeywordIndex
    metrics: MetricsStore
    auditor: writing.IndexAuditor
    journal: writing.Journal | None = None


@asynccontextmanager
async def open_stores(settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[Stores]:
    """Open the configured stores. If a server is down, this raises nothing: the ports raise until it is available.

    `clock` gives monotonic seconds, for the delay before unused vectors are deleted. Raises: ConfigurationError.
    """
    backends = settings.stores
    async with AsyncExitStack() as stack:
        if _has_one_store(backends):
            yield _one_store(await _open_store(settings, stack), settings)
        else:
            backend = await stack.enter_async_context(_open_documents(settings))
            yield _two_stores(backend, await stack.enter_async_context(_open_vectors(settings)), settings, clock)


@asynccontextmanager
async def open_index_auditor(settings: Settings) -> AsyncIterator[writing.IndexAuditor]:
    """Open the index for checks and repairs; other processes may use it at the same time.

    Raises: ConfigurationError (the configuration can never work, or there is no index).
    """
    path, is_embedded = settings.data_dir / embedded.FILE_NAME, settings.stores.documents == "embedded"
    async with AsyncExitStack() as stack:
        if not _has_one_store(settings.stores):
            if is_embedded:
                embedded.require_index(path)
            backend = await stack.enter_async_context(_open_documents(settings))
            generations = await stack.enter_async_context(_open_vectors(settings))
            vectors = vector_generations.VectorGenerations(generations, backend.documents)
            yield TwoStoreAuditor(backend.auditor, Reconciler(backend.documents, backend.documents, vectors))
        elif is_embedded:
            yield await stack.enter_async_context(embedded.open_auditor(path))
        else:
            yield (await _open_postgres(settings, stack)).auditor


def begin_empty_index(settings: Settings) -> str:
    """Create an empty embedded index in place of a lost one; returns what that one held, "" if that is unknown.

    Raises: ConfigurationError (there is an index, or documents are not stored in a file).
    """
    if settings.stores.documents != "embedded":
        raise ConfigurationError(f"Documents are stored in {TITLES[settings.stores.documents]}; nothing was changed.")
    return str(embedded.begin_empty(settings.data_dir / embedded.FILE_NAME))


@asynccontextmanager
async def open_cache(settings: StoreSettings) -> AsyncIterator[Cache | None]:
    """The cache that processes share; None if none is configured."""
    if settings.cache == "memory" or settings.redis_url is None:
        yield None
        return
    from rag_context.stores.redis import open_redis  # noqa: PLC0415  (an extra)

    async with open_redis(settings.redis_url, settings.redis_prefix) as cache:
        yield cache


def _has_one_store(backends: StoreSettings) -> bool:
    """Whether one backend has documents and vectors. Raises: ConfigurationError where PostgreSQL has one of them."""
    if "postgres" in (backends.documents, backends.vectors) and backends.documents != backends.vectors:
        raise ConfigurationError(
            f'PostgreSQL holds documents and vectors, but stores.documents is "{backends.documents}" and stores.vectors'
            f' is "{backends.vectors}": set both to "postgres", or neither.'
        )
    return backends.documents == backends.vectors and backends.documents in {"embedded", "postgres"}


async def _open_store(settings: Settings, stack: AsyncExitStack) -> "embedded.SqliteStore | PostgresStore":
    if settings.stores.documents == "postgres":
        return await _open_postgres(settings, stack)
    return await stack.enter_async_context(
        embedded.open_database(settings.data_dir / embedded.FILE_NAME, erase_after_s=settings.stores.erase_after_s)
    )


async def _open_postgres(settings: Settings, stack: AsyncExitStack) -> "PostgresStore":
    from rag_context.stores.postgres import open_postgres  # noqa: PLC0415  (an extra)

    backends = settings.stores
    return await stack.enter_async_context(
        open_postgres(
            _required(backends.postgres_url, "stores.postgres_url"),
            pool_size=backends.postgres_pool_size,
            statement_cache_size=backends.postgres_statement_cache_size,
        )
    )


def _one_store(store: "embedded.SqliteStore | PostgresStore", settings: Settings) -> Stores:
    return Stores(
        documents=store.documents,
        vectors=store.vectors,
        texts=store.texts,
        metrics=store.metrics,
        writer=store.documents,
        registry=store.documents,
        document_store=_guarded("documents", store.documents.ping, settings),
        vector_store=_guarded("vectors", store.vectors.ping, settings),
        writes={"documents": store.documents.try_write},
        rebuilder=store.rebuilder,
        candidates=store.candidates,
        keyword_candidates=store.keyword_candidates if isinstance(store, embedded.SqliteStore) else store.candidates,
        bulk=None if isinstance(store, embedded.SqliteStore) else store.bulk,
        journal=store.journal,
        claims=None if isinstance(store, embedded.SqliteStore) else store.claims,
        refresh_version=store.documents.refresh_version if isinstance(store, embedded.SqliteStore) else None,
        auditor=store.auditor,
    )


def _two_stores(
    backend: DocumentBackend, generations: OpenGeneration, settings: Settings, clock: Callable[[], float]
) -> Stores:
    vectors = vector_generations.VectorGenerations(generations, backend.documents)
    vector_store = _guarded("vectors", vectors.ping, settings)
    reconciler = Reconciler(backend.documents, backend.documents, vectors)
    writer = TwoStoreWriter(
        documents=backend.documents,
        writer=backend.documents,
        registry=backend.documents,
        vectors=vectors,
        vector_store=vector_store,
        suspect=reconciler.suspect,
    )
    return Stores(
        documents=backend.documents,
        vectors=vectors,
        texts=backend.texts,
        metrics=backend.metrics,
        writer=writer,
        registry=writer,
        document_store=_guarded("documents", backend.documents.ping, settings),
        vector_store=vector_store,
        writes={"documents": backend.documents.try_write, "vectors": writer.try_write},
        journal=None if backend.journal is None else journal_over(backend.journal, writer, settings.stores.vectors),
        reconciler=reconciler,
        rebuilder=vector_generations.GenerationRebuilder(backend.documents, vectors, clock=clock),
    )


def qdrant_options(stores: StoreSettings) -> "QdrantOptions":
    return {
        "api_key": stores.qdrant_api_key.get_secret_value() if stores.qdrant_api_key else None,
        "transport": stores.qdrant_transport,
        "grpc_port": stores.qdrant_grpc_port,
        "read_consistency": stores.qdrant_read_consistency,
        "replicas": stores.qdrant_replicas,
    }


def _guarded(name: str, ping: Callable[[], Awaitable[str]], settings: Settings) -> Dependency:
    return Dependency(name, ping, min_budget_s=LEAST_SHARE * settings.search.deadline_ms / 1000.0)


@asynccontextmanager
async def _open_documents(settings: Settings) -> AsyncIterator[DocumentBackend]:
    backends = settings.stores
    if backends.documents == "embedded":
        async with embedded.open_documents(
            settings.data_dir / embedded.FILE_NAME, erase_after_s=settings.stores.erase_after_s
        ) as half:
            yield DocumentBackend(half.documents, half.texts, half.metrics, half.auditor, half.journal)
        return
    from rag_context.stores.mongodb import open_mongodb  # noqa: PLC0415  (an extra)

    uri = _required(backends.mongodb_uri, "stores.mongodb_uri")
    async with open_mongodb(uri, documents=backends.mongodb_documents, metrics=backends.mongodb_metrics) as store:
        yield DocumentBackend(store.documents, store.texts, store.metrics, store.auditor)


@asynccontextmanager
async def _open_vectors(settings: Settings) -> AsyncIterator[OpenGeneration]:
    backends = settings.stores
    name = "-generation-{}"
    match backends.vectors:
        case "embedded":
            async with AsyncExitStack() as stack:
                first = settings.data_dir / embedded.VECTORS_FILE_NAME

                def opened(generation: int) -> vector_generations.VectorStorage:
                    number = f"{first.stem}{name.format(generation)}{first.suffix}"
                    half = embedded.start_vectors(
                        first if generation == 0 else first.with_name(number),
                        erase_after_s=settings.stores.erase_after_s,
                    )
                    stack.push_async_callback(half.close)
                    return half

                yield opened
        case "qdrant":
            await asyncio.to_thread(import_module, "rag_context.stores.qdrant")  # seconds, not on the loop
            from rag_context.stores.qdrant import CollectionPlan, open_qdrant  # noqa: PLC0415  (an extra)

            plan = CollectionPlan(
                backends.qdrant_collection, quantization=backends.qdrant_quantization, shards=backends.qdrant_shards
            )
            url = _required(backends.qdrant_url, "stores.qdrant_url")
            async with open_qdrant(url, plan, **qdrant_options(backends)) as qdrant:
                yield lambda generation: qdrant.sibling(name.format(generation)) if generation else qdrant
        case "chroma":
            await asyncio.to_thread(import_module, "rag_context.stores.chroma")
            from rag_context.stores.chroma import open_chroma  # noqa: PLC0415  (an extra)

            place = backends.chroma_dir or _required(backends.chroma_url, "stores.chroma_url")
            async with open_chroma(place, backends.chroma_collection) as chroma:
                yield lambda generation: chroma.sibling(name.format(generation)) if generation else chroma


def _required(value: str | None, name: str) -> str:
    if value is None:
        raise ConfigurationError(f"{name} is not set: set it to the address of the backend.")
    return value

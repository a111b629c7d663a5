"""The fuse box: reads settings once, opens adapters in order, closes them in reverse. Only it names adapters."""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from enum import Enum
from pathlib import Path

from rag_context.embedders.cached import CachedEmbedder
from rag_context.embedders.onnx import BUNDLED, OnnxEmbedder
from rag_context.errors import BackendError, IndexMismatchError
from rag_context.indexing.indexer import Indexer, IndexingPolicy, RedactionMode
from rag_context.ports import Embedder
from rag_context.resilience.breaker import Breaker, constant_cooldown
from rag_context.resilience.dependency import Dependency
from rag_context.search.cache import ResultCache
from rag_context.search.chain import SearchChain
from rag_context.search.legs import Sources
from rag_context.service.audit import Audit
from rag_context.service.binding import BoundEmbedder
from rag_context.service.health import HealthMonitor
from rag_context.service.service import Parts, Service
from rag_context.service.telemetry import Telemetry
from rag_context.service.upkeep import Upkeep
from rag_context.settings import Settings, check_available
from rag_context.stores.sqlite import FILE_NAME, SqliteStore, open_auditor, open_database

logger = logging.getLogger(__name__)

DEFAULT_WINDOW = 254
"""Window in tokens assumed while no model is known: the bundled model's."""


class OnMismatch(Enum):
    """What to do with an index that another model made."""

    REFUSE = "refuse"
    REINDEX = "reindex"


@asynccontextmanager
async def open_service(settings: Settings, on_mismatch: OnMismatch = OnMismatch.REFUSE) -> AsyncIterator[Service]:
    """The service on the configured backends; its model loads behind it.

    Raises:
        ConfigurationError: the settings cannot work.
        IndexMismatchError: another model made the index, and `on_mismatch` says to refuse.
    """
    check_available(settings)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_database(settings.data_dir / FILE_NAME))
        await _check_model(store, settings, on_mismatch)
        embedder = OnnxEmbedder(
            settings.embedder.model_dir or BUNDLED, workers=settings.embedder.workers or os.cpu_count() or 1
        )
        stack.push_async_callback(embedder.close)
        await embedder.start()
        parts = _parts(store, CachedEmbedder(embedder), settings)
        stack.push_async_callback(parts.telemetry.flush)
        await stack.enter_async_context(_running("telemetry", parts.telemetry.run()))
        await stack.enter_async_context(_running("upkeep", parts.upkeep.run()))
        yield Service(parts, min_score=settings.search.min_score)


@asynccontextmanager
async def open_audit(settings: Settings) -> AsyncIterator[Audit]:
    """The index as it lies there, without its model, to be examined or mended beside whoever uses it.

    Raises:
        ConfigurationError: the settings cannot work, or there is no index.
    """
    check_available(settings)
    async with open_auditor(settings.data_dir / FILE_NAME) as auditor:
        yield Audit(auditor)


def _parts(store: SqliteStore, embedder: Embedder, settings: Settings) -> Parts:
    bound = BoundEmbedder(embedder, store.documents)
    sources = Sources(
        embedder=bound,
        vectors=store.vectors,
        texts=store.texts,
        documents=store.documents,
        embedding=Dependency("embedder", bound.ping),
        vector_store=Dependency("vectors", store.vectors.ping),
        document_store=Dependency("documents", store.documents.ping),
    )
    indexer = Indexer(
        embedder=bound,
        embedding=sources.embedding,
        documents=store.documents,
        document_store=sources.document_store,
        writer=store.documents,
        policy=IndexingPolicy(DEFAULT_WINDOW, settings.indexing.timeout_s, RedactionMode(settings.indexing.redaction)),
    )
    breaker = Breaker(
        "search",
        threshold=settings.breaker.threshold,
        cooldown=constant_cooldown(settings.breaker.timeout_ms / 1000.0),
    )
    dependencies = (sources.embedding, sources.vector_store, sources.document_store)
    return Parts(
        sources=sources,
        embedder=bound,
        metrics=store.metrics,
        registry=store.documents,
        chain=SearchChain(sources, breaker, deadline_s=settings.search.deadline_ms / 1000.0),
        cache=ResultCache(settings.search.cache_size, settings.search.cache_ttl_s, time.monotonic),
        indexer=indexer,
        telemetry=Telemetry(
            store.metrics, store.documents, retention=timedelta(days=settings.telemetry.retention_days)
        ),
        upkeep=Upkeep(dependencies, bound, indexer, store.documents, time.monotonic),
        health=HealthMonitor(
            (
                ("vector store (embedded)", sources.vector_store),
                ("embedding model (bundled ONNX)", sources.embedding),
                ("document store (embedded)", sources.document_store),
            )
        ),
    )


async def _check_model(store: SqliteStore, settings: Settings, on_mismatch: OnMismatch) -> None:
    """Stop before serving an index whose vectors the configured model cannot be compared with.

    A store that cannot be read now is no reason to stop: the model is compared again once both are there.
    """
    directory = settings.embedder.model_dir or BUNDLED
    try:
        recorded = await store.documents.recorded_model()
        counts = await store.documents.counts()
        fingerprint = await asyncio.to_thread(_fingerprint, directory)
        if recorded is None or fingerprint in (None, recorded.fingerprint):
            return
        if counts.vectors == 0 or on_mismatch is OnMismatch.REINDEX:
            await store.documents.drop_vectors()
            return
    except BackendError as error:
        logger.warning("the index cannot be read yet: %s", error)
        return
    raise IndexMismatchError(
        f"The index in {settings.data_dir} was made by {recorded.name} ({recorded.fingerprint[:12]}), "
        f"and the configured model in {directory} is another: run `rag-context reindex`, "
        "or start with `rag-context serve --reindex`."
    )


def _fingerprint(directory: Path) -> str | None:
    """SHA-256 of the model file; None where it cannot be read, which the embedder will say itself."""
    try:
        with (directory / "model.onnx").open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


@asynccontextmanager
async def _running(name: str, work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run `work` beside the block, and end it with the block. Its crash is logged, not hidden."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_crash)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def _log_crash(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("background task %s crashed", task.get_name(), exc_info=error)

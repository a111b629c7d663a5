"""Opens the configured models: the embedder, which must be the one that embedded the index, and the reranker."""

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rag_context.domain.vectors import EmbeddingModel, same_model
from rag_context.embedders.onnx import BUNDLED, OnnxEmbedder
from rag_context.errors import BackendError, ConfigurationError, IndexMismatchError
from rag_context.memory.bound_embedder import OpenFormer
from rag_context.ports.models import Embedder
from rag_context.resilience.dependency import Dependency
from rag_context.search.chain import Reranking
from rag_context.settings.sections import EmbedderSettings, RerankerSettings, Settings
from rag_context.wiring.stores import Stores

if TYPE_CHECKING:
    from rag_context.embedders.openai_embedder import OpenAIEmbedder
    from rag_context.embedders.rerankers import CrossEncoder, RerankServer

logger = logging.getLogger(__name__)

SERVER_TIMEOUT_S = 2.0
"""How long a start waits for an embedding server to name its model."""

RERANK_TIMEOUT_S = 30.0
"""Longest wait for a rerank server, where no search's deadline is sooner."""

LEAST_BUDGET_S = 0.1
"""A reranker that had less than this of a search's time and was late is not down for that."""


class StartedEmbedder(Embedder, Protocol):
    async def ready(self, timeout_s: float) -> bool: ...


class OnMismatch(Enum):
    """What to do with an index that another model embedded."""

    REJECT = "reject"
    REINDEX = "reindex"


@asynccontextmanager
async def open_embedder(settings: Settings) -> AsyncIterator[StartedEmbedder]:
    """Start the configured embedder; its model loads, or its server is queried, in the background."""
    options = settings.embedder
    if options.kind == "openai_compatible" and options.url is not None and options.model is not None:
        server = _server(options, options.url, options.model)
        await server.start()
        try:
            yield server
        finally:
            await server.close()
        return
    bundled = OnnxEmbedder(options.model_dir or BUNDLED, workers=options.workers or os.cpu_count() or 1)
    try:
        await bundled.start()
        yield bundled
    finally:
        await bundled.close()


@asynccontextmanager
async def former_embedders(settings: Settings) -> AsyncIterator[OpenFormer]:
    """Loads the model that embedded an index, if it is the bundled one or the embedding server still has it.

    The function that it yields is called repeatedly while the model is needed, and returns None until it is loaded.
    """
    async with AsyncExitStack() as stack:
        opened: dict[str, StartedEmbedder] = {}

        async def open_former(model: EmbeddingModel) -> Embedder | None:
            if model.fingerprint not in opened:
                former = await _former(model, settings)
                if former is None:
                    return None
                await former.start()
                stack.push_async_callback(former.close)
                opened[model.fingerprint] = former
            embedder = opened[model.fingerprint]
            is_same = await embedder.ready(SERVER_TIMEOUT_S) and same_model(
                embedder.model.fingerprint, model.fingerprint
            )
            return embedder if is_same else None

        yield open_former


async def _former(model: EmbeddingModel, settings: Settings) -> "OnnxEmbedder | OpenAIEmbedder | None":
    # The bundled model is here in any case: what it embedded stays searchable while it is embedded again.
    if await asyncio.to_thread(_fingerprint, BUNDLED) == model.fingerprint:
        return OnnxEmbedder(BUNDLED, workers=1)
    options = settings.embedder
    if options.url is None or (options.kind == "openai_compatible" and options.model == model.name):
        return None  # a server has one model per name, and it is another one now
    return _server(options, options.url, model.name)


def _server(options: EmbedderSettings, url: str, model: str) -> "OpenAIEmbedder":
    from rag_context.embedders.openai_embedder import OpenAIEmbedder  # noqa: PLC0415  (only if configured)

    return OpenAIEmbedder(
        url=url,
        model=model,
        api_key=options.api_key.get_secret_value() if options.api_key else None,
        timeout_s=options.timeout_s,
    )


async def check_model(stores: Stores, embedder: StartedEmbedder, settings: Settings, on_mismatch: OnMismatch) -> None:
    """Check that the configured model embedded the index.

    If the store or the model is unavailable, nothing is raised: they are compared again once both are available.

    Raises: IndexMismatchError (another model embedded the index, and `on_mismatch` is REJECT).
    """
    try:
        recorded = await stores.registry.recorded_model()
        counts = await stores.documents.counts()
        found = await _found_fingerprint(embedder, settings) if recorded is not None else None
        if recorded is None or found is None or same_model(found, recorded.fingerprint):
            return
        run = None if stores.rebuilder is None else await stores.rebuilder.under_way()
        if run is not None and same_model(found, run.model.fingerprint):
            return  # the run continues, whichever process began it
        if counts.vectors == 0 or (on_mismatch is OnMismatch.REINDEX and stores.rebuilder is None):
            await stores.registry.drop_vectors()
            return
        if on_mismatch is OnMismatch.REINDEX:
            return
    except BackendError as error:
        logger.warning("the index cannot be read yet: %s", error)
        return
    store, embedding = settings.stores.documents, settings.embedder
    where = f"in {settings.data_dir}" if store == "embedded" else f"on {store}"
    is_folder = embedding.kind == "onnx"
    model = f"in {embedding.model_dir or BUNDLED}" if is_folder else f"{embedding.model!r} of the embedding server"
    raise IndexMismatchError(
        f"The index {where} was made by {recorded.name} ({recorded.fingerprint[:12]}), "
        f"and the configured model {model} is another: run `rag-context reindex`, "
        "or start with `rag-context serve --reindex`."
    )


async def _found_fingerprint(embedder: StartedEmbedder, settings: Settings) -> str | None:
    """The fingerprint of the configured model; None if it is unavailable now."""
    if isinstance(embedder, OnnxEmbedder):
        return await asyncio.to_thread(_fingerprint, settings.embedder.model_dir or BUNDLED)
    return embedder.model.fingerprint if await embedder.ready(SERVER_TIMEOUT_S) else None


def _fingerprint(directory: Path) -> str | None:
    """SHA-256 of the model file; None if it cannot be read, which the embedder reports itself."""
    try:
        with (directory / "model.onnx").open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


@asynccontextmanager
async def open_reranking(settings: Settings) -> AsyncIterator[Reranking | None]:
    """Start the configured reranker, None if none is configured; a model in a folder loads in the background.

    Raises: ConfigurationError (the settings name two rerankers, or one that cannot be used).
    """
    options = settings.reranker
    if options.model_dir is None and options.url is None:
        yield None
        return
    reranker = _reranker(options)
    await reranker.start()
    try:
        yield Reranking(
            reranker,
            Dependency("reranker", reranker.ping, min_budget_s=LEAST_BUDGET_S),
            passages=options.passages,
            timeout_s=settings.search.deadline_ms / 1000.0,
        )
    finally:
        await reranker.close()


def _reranker(options: RerankerSettings) -> "CrossEncoder | RerankServer":
    from rag_context.embedders.rerankers import CrossEncoder, RerankServer  # noqa: PLC0415  (only if configured)

    if options.url is None:
        folder = options.model_dir
        assert folder is not None  # noqa: S101  (one of them is set)
        for name in ("model.onnx", "tokenizer.json"):
            if not (folder / name).is_file():
                advice = f"put the ONNX export of a cross-encoder into {str(folder)!r}"
                raise ConfigurationError(f"reranker.model_dir has no {name}: {advice}.")
        return CrossEncoder(folder, os.cpu_count() or 1)
    if options.model_dir is not None:
        raise ConfigurationError("reranker.model_dir and reranker.url are both set: remove one of them.")
    if options.model is None and options.api == "cohere":
        raise ConfigurationError("reranker.url is set, but no model: set reranker.model to one that the server has.")
    key = options.api_key.get_secret_value() if options.api_key is not None else None
    return RerankServer(
        options.url, model=options.model or "", api_key=key, api=options.api, timeout_s=RERANK_TIMEOUT_S
    )

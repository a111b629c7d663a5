"""Opens the configured reranker; most installations have none."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rag_context.errors import ConfigurationError
from rag_context.resilience.dependency import Dependency
from rag_context.search.reranking import Reranking
from rag_context.settings import RerankerSettings, Settings

if TYPE_CHECKING:
    from rag_context.embedders.rerankers import CrossEncoder, RerankServer

SERVER_S = 30.0
"""Longest wait for a rerank server, where no search's deadline is sooner."""

LEAST_BUDGET_S = 0.1
"""A reranker that had less than this of a search's time and was late is not down for that."""


@asynccontextmanager
async def open_reranking(settings: Settings) -> AsyncIterator[Reranking | None]:
    """Start the configured reranker, None if none is configured; a model in a folder loads in the background.

    Raises:
        ConfigurationError: the settings name two rerankers, or one that cannot be used.
    """
    chosen = settings.reranker
    if chosen.model_dir is None and chosen.url is None:
        yield None
        return
    reranker = _reranker(chosen)
    await reranker.start()
    try:
        yield Reranking(
            reranker,
            Dependency("reranker", reranker.ping, min_budget_s=LEAST_BUDGET_S),
            passages=chosen.passages,
            timeout_s=settings.search.deadline_ms / 1000.0,
        )
    finally:
        await reranker.close()


def _reranker(chosen: RerankerSettings) -> "CrossEncoder | RerankServer":
    from rag_context.embedders.rerankers import CrossEncoder, RerankServer  # noqa: PLC0415  (only if configured)

    if chosen.url is None:
        assert chosen.model_dir is not None  # noqa: S101  (one of them is set)
        return CrossEncoder(_checked(chosen.model_dir), os.cpu_count() or 1)
    if chosen.model_dir is not None:
        raise ConfigurationError("reranker.model_dir and reranker.url are both set: remove one of them.")
    if chosen.model is None and chosen.api == "cohere":
        raise ConfigurationError("reranker.url is set, but no model: set reranker.model to one that the server has.")
    key = chosen.api_key.get_secret_value() if chosen.api_key is not None else None
    return RerankServer(chosen.url, model=chosen.model or "", api_key=key, api=chosen.api, timeout_s=SERVER_S)


def _checked(folder: Path) -> Path:
    for name in ("model.onnx", "tokenizer.json"):
        if not (folder / name).is_file():
            advice = f"put the ONNX export of a cross-encoder into {str(folder)!r}"
            raise ConfigurationError(f"reranker.model_dir has no {name}: {advice}.")
    return folder

"""Embeds the texts of collections, with a circuit breaker."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix, Vector
from rag_context.ingest.indexer import SLICE, SLICE_S
from rag_context.ports.models import Embedder
from rag_context.resilience.breaker import BreakerState
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency

QUERY_S = 5.0
PROBE_S = 5.0

T = TypeVar("T")


async def through(
    dependency: Dependency, work: Callable[[], Awaitable[T]], seconds: float, clock: Callable[[], float]
) -> T:
    """Call a dependency within `seconds`; there is no background probe, so a call probes it when its breaker is due.

    Raises:
        BackendError: it failed or did not answer in time, or its breaker is open.
    """
    if dependency.breaker.state is BreakerState.HALF_OPEN:
        await dependency.probe(Deadline.after(min(seconds, PROBE_S), clock))
    return await dependency.call(work, Deadline.after(seconds, clock))


class TextEmbedder:
    """Embeds texts and queries.

    Args:
        embedder: makes the vectors, of length 1.
        dependency: its breaker and timeouts.
        clock: monotonic seconds.
    """

    def __init__(self, embedder: Embedder, dependency: Dependency, clock: Callable[[], float] = time.monotonic) -> None:
        self._embedder = embedder
        self._dependency = dependency
        self._clock = clock

    @property
    def model(self) -> EmbeddingModel:
        """The model in use. Raises: BackendError before it is loaded."""
        return self._embedder.model

    async def query(self, text: str) -> Vector:
        """Embed a query: `(dim,) float32`. Raises: BackendError."""
        return await through(self._dependency, partial(self._embedder.embed_query, text), QUERY_S, self._clock)

    async def documents(self, texts: Sequence[str]) -> Matrix:
        """Embed passages, after queries that wait: `(n, dim) float32`. Raises: BackendError."""
        rows: list[Matrix] = []
        for start in range(0, len(texts), SLICE):
            work = partial(self._embedder.embed_documents, texts[start : start + SLICE])
            rows.append(await through(self._dependency, work, SLICE_S, self._clock))
        return np.concatenate(rows)

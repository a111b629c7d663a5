"""Embeds the texts of documents in slices, so that many texts keep no one waiting who has a few."""

import asyncio
import time
from collections.abc import Callable, Sequence

import numpy as np

from rag_context.domain.vectors import Matrix, Vector
from rag_context.ports.models import Embedder
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.tracing import span

SLICE = 32
"""Texts embedded per call: short enough that a long document cannot keep others waiting."""

SLICE_S = 30.0
"""Longest wait for one slice of background work."""


class TextVectors:
    """The vectors of texts.

    Args:
        embedder: makes them.
        embedding: guards it.
        clock: monotonic seconds.
    """

    def __init__(self, embedder: Embedder, embedding: Dependency, clock: Callable[[], float] = time.monotonic) -> None:
        self._embedder = embedder
        self._embedding = embedding
        self._clock = clock

    async def of(
        self, texts: Sequence[str], known: dict[str, Vector] | None = None, embedder: Embedder | None = None
    ) -> Matrix:
        """The vectors of all texts, `(n, dim) float32`, without a deadline; those in `known` are not made again.

        Raises:
            BackendError: the embedder failed.
        """
        made = {} if known is None else known
        await self.add(texts, made, None, embedder)
        return stacked(texts, made)

    async def add(
        self,
        texts: Sequence[str],
        known: dict[str, Vector],
        deadline: Deadline | None,
        embedder: Embedder | None = None,
    ) -> bool:
        """Add the vectors of texts to `known`; False where the deadline passed although the embedder works.

        Only a timeout of the first slice counts as a failure of the embedder: much text is no fault of it.

        Raises:
            BackendError: the embedder failed; the vectors of earlier slices are in `known`.
        """
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for start in range(0, len(missing), SLICE):
            part = missing[start : start + SLICE]
            slice_deadline = Deadline.after(SLICE_S, self._clock)
            try:
                if deadline is None or start == 0:
                    made = await self._embed(part, deadline or slice_deadline, embedder)
                else:
                    async with asyncio.timeout(deadline.remaining_s):
                        made = await self._embed(part, slice_deadline, embedder)
            except TimeoutError:
                return False
            known.update(zip(part, made, strict=True))
        return True

    async def _embed(self, texts: Sequence[str], deadline: Deadline, other: Embedder | None) -> Matrix:
        embedder = other or self._embedder
        with span("embedder.embed_documents", {"rag.texts": len(texts)}):
            return await self._embedding.call(lambda: embedder.embed_documents(texts), deadline)


def stacked(texts: Sequence[str], known: dict[str, Vector]) -> Matrix:
    """The vectors of texts, which are all known, a row each."""
    return np.stack([known[text] for text in texts])

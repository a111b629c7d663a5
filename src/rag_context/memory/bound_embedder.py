"""The embedding model of an index: it is used with the index that it made only."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from rag_context.domain import samples
from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector, probed_calibration, same_vectors
from rag_context.errors import BackendError, BackendRejectedError, BackendStartingError, IndexMismatchError
from rag_context.ports.models import Embedder, Provenance, Tokenizer
from rag_context.ports.writing import ModelRegistry, VectorRebuilder

OpenFormer: TypeAlias = Callable[[EmbeddingModel], Awaitable[Embedder | None]]
"""Loads the model that an index was embedded with; returns None while it loads, or if it is not available."""


@dataclass(eq=False)
class BoundEmbedder:
    """Forwards calls to the embedder as long as its model is the one of the index.

    While a run embeds all documents again with the model in use, queries are embedded by the model of the index, if it
    can be loaded (`open_former`).
    """

    inner: Embedder
    registry: ModelRegistry
    rebuilder: VectorRebuilder | None = None
    open_former: OpenFormer | None = None

    def __post_init__(self) -> None:
        self._former: Embedder | None = None
        self._recorded: EmbeddingModel | None = None
        self._failure: BackendError | None = None
        # Loading the former model takes time: without turns, a comparison that began before a run ended could
        # overwrite the result of the one after it, and searches would stay without vectors until the next.
        self._in_turn = asyncio.Lock()

    @property
    def model(self) -> EmbeddingModel:
        return self._matching()[1]

    @property
    def provenance(self) -> Provenance:
        return (self._former or self.inner).provenance

    @property
    def tokenizer(self) -> Tokenizer:
        return self.inner.tokenizer

    @property
    def recorded(self) -> EmbeddingModel | None:
        return self._recorded

    async def bind(self) -> None:
        """Compare the model with the index's; an index without a model records this one. Raises: BackendError."""
        async with self._in_turn:
            try:
                recorded = await self._agreed()
                if recorded is None or same_vectors(self.inner.model, recorded):
                    self._former = None
                else:
                    self._former = self._former or await self._opened(recorded)
                self._recorded = recorded  # searches need not wait for the calibration
                self._recorded = recorded and await self._calibrated(recorded)
            except BackendError as error:
                self._failure = error
                raise

    async def _agreed(self) -> EmbeddingModel | None:
        """The model that the index records, after recording this one if there was none."""
        model = self.inner.model
        recorded = await self.registry.recorded_model()
        if recorded is None or not (same_vectors(model, recorded) or self._former is not None):
            # The embedder's description of its model may be out of date: ask it again before recording it.
            await self.inner.ping()
        if recorded is None:
            with suppress(IndexMismatchError):  # another process was faster: its record is read below
                await self.registry.adopt_model(self.inner.model)
            recorded = await self.registry.recorded_model()
        return recorded

    async def _calibrated(self, recorded: EmbeddingModel) -> EmbeddingModel:
        """The record, with a calibration by texts of no tenant where the index's model has none of its own."""
        embedder = self._former or self.inner
        if embedder.model.calibration.is_measured or not same_vectors(embedder.model, recorded):
            return recorded
        questions = [row["question"] for row in samples.questions()]
        passages = [row["content"] for row in samples.documents()]
        if recorded.calibration.sampled == len(questions) * len(passages):
            return recorded
        with suppress(BackendError):  # another time: the model can be used as it is
            asked = np.stack([await embedder.embed_query(question) for question in questions])
            found = probed_calibration(asked, await embedder.embed_documents(passages))
            recorded = replace(recorded, calibration=found)
            await self.registry.adopt_model(recorded)
        return recorded

    async def _opened(self, recorded: EmbeddingModel) -> Embedder | None:
        """The model of the index, while a run embeds all documents again with the model in use."""
        if self.rebuilder is None or self.open_former is None:
            return None
        run = await self.rebuilder.under_way()
        is_ours = run is not None and same_vectors(self.inner.model, run.model)
        return await self.open_former(recorded) if is_ours else None

    async def embed_query(self, text: str) -> Vector:
        return await self._matching()[0].embed_query(text)

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        return await self._matching()[0].embed_documents(texts)

    async def ping(self) -> str:
        description = await self.inner.ping()
        embedder, _ = self._matching()
        if embedder is not self.inner:
            await embedder.ping()
        return description

    def _matching(self) -> tuple[Embedder, EmbeddingModel]:
        """The embedder whose vectors the index has, and its model."""
        model = self.inner.model
        if self._recorded is None:
            failure = self._failure
            if isinstance(failure, BackendRejectedError):  # waiting does not help
                raise BackendRejectedError("embedder", f"the index cannot be used with this model: {failure}")
            reason = "" if failure is None else f": {failure}"
            raise BackendStartingError("embedder", f"the model has not been compared with the index yet{reason}")
        embedder = self.inner
        if not same_vectors(model, self._recorded):
            if self._former is None or not same_vectors(self._former.model, self._recorded):
                raise BackendRejectedError("embedder", _mismatch(self._recorded, model))
            embedder, model = self._former, self._former.model
        calibration = model.calibration if model.calibration.is_measured else self._recorded.calibration
        # Its own fingerprint may differ from the index's by float noise, and stores compare fingerprints as text.
        return embedder, replace(model, fingerprint=self._recorded.fingerprint, calibration=calibration)


def _mismatch(index: EmbeddingModel, configured: EmbeddingModel) -> str:
    return (
        f"the index was made by {index.name} ({index.dimension} dimensions, {index.fingerprint[:12]}) and the model in "
        f"use is {configured.name} ({configured.dimension} dimensions, {configured.fingerprint[:12]}); "
        "run `rag-context reindex`, or start with `rag-context serve --reindex`"
    )

"""Embeds in this process with an ONNX sentence model; the one that comes with the package needs no network."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix, Vector
from rag_context.embedders.checks import Checker
from rag_context.embedders.onnx_model import BUNDLED, OnnxModel, load
from rag_context.embedders.pool import Urgency, WorkerPool
from rag_context.embedders.tokenizer import ModelTokenizer
from rag_context.errors import BackendStartingError, BackendUnavailableError

__all__ = ["BUNDLED", "OnnxEmbedder"]

logger = logging.getLogger(__name__)

COMPONENT = "embedder"


class OnnxEmbedder:
    """Fits `ports.Embedder`. The model loads in a thread after `start`; calls before it is loaded raise."""

    def __init__(self, directory: Path = BUNDLED, *, workers: int) -> None:
        """Take the directory of a model and how many texts to embed at once (as many as there are cores)."""
        self._directory = directory
        self._workers = workers
        self._checked = Checker()
        self._loading: asyncio.Task[None] | None = None
        self._loaded: tuple[OnnxModel, WorkerPool] | None = None
        self._failure: BackendUnavailableError | None = None
        self._fallback: ModelTokenizer | None = None
        self._closed = False

    async def start(self) -> None:
        """Begin to load the model, and return at once."""
        self._begin_loading()

    async def ready(self, timeout_s: float) -> bool:
        """Wait until loading has ended; True if the model can be used."""
        await self._settled(timeout_s)
        return self._loaded is not None

    async def close(self) -> None:
        """Reject the texts in the queue and end the threads."""
        self._closed = True
        await self._settled()
        if self._loaded is not None:
            _, pool = self._loaded
            self._loaded = None
            await pool.close()

    @property
    def model(self) -> EmbeddingModel:
        """The model in use.

        Raises:
            BackendStartingError: It is still loading.
            BackendUnavailableError: It could not be loaded; the message says why and what to do.
        """
        return self._require()[0].model

    @property
    def tokenizer(self) -> ModelTokenizer:
        """The model's tokenizer; the bundled one if the directory has no readable one. Needs no loaded model."""
        if self._loaded is not None:
            return self._loaded[0].tokenizer
        if self._fallback is None:
            try:
                self._fallback = ModelTokenizer(self._directory / "tokenizer.json")
            except BackendUnavailableError:
                if self._directory == BUNDLED:
                    raise
                logger.warning("%s has no readable tokenizer; using the bundled one", self._directory)
                self._fallback = ModelTokenizer(BUNDLED / "tokenizer.json")
        return self._fallback

    async def embed_query(self, text: str) -> Vector:
        """Embed one query, before any documents in the queue: `(dim,) float32`.

        Raises:
            BackendError: The model is not loaded (see `model`), or its vector is unusable.
        """
        model, pool = self._require()
        rows = await pool.run([model.model.query_prefix + text], Urgency.QUERY)
        vector: Vector = self._checked(rows, model.model.dimension)[0]
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: `(n, dim) float32`, a row per text in order. Raises as `embed_query` does."""
        model, pool = self._require()
        prefix = model.model.document_prefix
        rows = await pool.run([prefix + text for text in texts], Urgency.DOCUMENT)
        return self._checked(rows, model.model.dimension)

    async def ping(self) -> str:
        """Embed a probe; where the model could not be loaded, try again first. Raises as `embed_query` does."""
        if self._failure is not None:
            self._begin_loading()
            await self._settled()
        vector = await self.embed_query("probe")
        return f"{self.model.name}, {len(vector)} dimensions, {self._workers} workers"

    def _begin_loading(self) -> None:
        if self._closed or (self._loading is not None and not self._loading.done()):
            return
        self._loading = asyncio.create_task(self._load(), name="load the embedding model")

    async def _settled(self, timeout_s: float | None = None) -> None:
        """Wait for the load without cancelling it, however the waiting ends."""
        if self._loading is not None:
            await asyncio.wait({self._loading}, timeout=timeout_s)

    async def _load(self) -> None:
        try:
            model = await asyncio.to_thread(load, self._directory)
        except BackendUnavailableError as error:
            logger.error("%s", error)
            self._failure = error
            return
        self._failure = None
        self._loaded = model, WorkerPool(model.embed, dimension=model.model.dimension, workers=self._workers)

    def _require(self) -> tuple[OnnxModel, WorkerPool]:
        if self._loaded is not None:
            return self._loaded
        if self._closed:
            raise BackendUnavailableError(COMPONENT, "the embedder is closed")
        if self._failure is not None:
            raise BackendUnavailableError(COMPONENT, str(self._failure)) from self._failure
        if self._loading is not None and self._loading.done():
            self._loading.result()  # a bug while loading surfaces here
        raise BackendStartingError(COMPONENT, f"the embedding model in {self._directory} is still loading")

"""An embedder bound to an index: it refuses to make vectors that the index could not compare with its own."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from rag_context.embedders.fingerprint import same_model
from rag_context.errors import BackendError, BackendRejectedError, BackendStartingError, IndexMismatchError
from rag_context.ports import Embedder, ModelRegistry, Tokenizer
from rag_context.types import EmbeddingModel, Matrix, Vector


class BoundEmbedder:
    """Passes calls on while the model is the one that made the index.

    Args:
        inner: the embedder.
        registry: remembers the index's model.
    """

    def __init__(self, inner: Embedder, registry: ModelRegistry) -> None:
        self._inner = inner
        self._registry = registry
        self._recorded: EmbeddingModel | None = None
        self._trouble = ""

    @property
    def model(self) -> EmbeddingModel:
        return self._matching()

    @property
    def tokenizer(self) -> Tokenizer:
        return self._inner.tokenizer

    async def bind(self) -> None:
        """Compare with the index, and give an index without a model this one. Raises: BackendError."""
        try:
            self._recorded = await self._agreed()
        except BackendError as error:
            self._trouble = f": {error}"
            raise

    async def _agreed(self) -> EmbeddingModel | None:
        """The model that the index records by now."""
        model = self._inner.model
        recorded = await self._registry.recorded_model()
        if recorded is None or not same_vectors(model, recorded):
            # What is known of the model may be old: another process drops the vectors when the model has changed.
            await self._inner.ping()
        if recorded is None:
            with suppress(IndexMismatchError):  # another process was faster: what it recorded is read below
                await self._registry.adopt_model(self._inner.model)
            recorded = await self._registry.recorded_model()
        return recorded

    async def embed_query(self, text: str) -> Vector:
        self._matching()
        return await self._inner.embed_query(text)

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        self._matching()
        return await self._inner.embed_documents(texts)

    async def ping(self) -> str:
        said = await self._inner.ping()
        self._matching()
        return said

    def _matching(self) -> EmbeddingModel:
        model = self._inner.model
        if self._recorded is None:
            raise BackendStartingError("embedder", f"the model has not been compared with the index yet{self._trouble}")
        if not same_vectors(model, self._recorded):
            raise BackendRejectedError("embedder", mismatch(self._recorded, model))
        # Its own fingerprint may differ from the index's by float noise, and stores compare letter by letter.
        return replace(model, fingerprint=self._recorded.fingerprint)


def same_vectors(one: EmbeddingModel, other: EmbeddingModel) -> bool:
    """Whether vectors of the two models can be compared."""
    alike = (one.dimension, one.query_prefix, one.document_prefix) == (
        other.dimension,
        other.query_prefix,
        other.document_prefix,
    )
    return alike and same_model(one.fingerprint, other.fingerprint)


def mismatch(index: EmbeddingModel, configured: EmbeddingModel) -> str:
    """One sentence for people about an index and a model that do not fit."""
    return (
        f"the index was made by {index.name} ({index.dimension} dimensions, {index.fingerprint[:12]}) and the model in "
        f"use is {configured.name} ({configured.dimension} dimensions, {configured.fingerprint[:12]}); "
        "run `rag-context reindex`, or start with `rag-context serve --reindex`"
    )

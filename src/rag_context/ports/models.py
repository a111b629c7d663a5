"""Ports of models: a tokenizer, an embedder, a reranker, a chat model."""

from collections.abc import Sequence
from typing import Protocol

from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector


class Tokenizer(Protocol):
    """Cuts text as the embedder does."""

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Character span of every token of `text`, in order; special tokens excluded, nothing truncated."""
        ...

    def count(self, texts: Sequence[str]) -> Sequence[int]:
        """The number of tokens of each text, as many as `offsets` has of it; faster, and more so for many at once."""
        return [len(self.offsets(text)) for text in texts]


class Embedder(Protocol):
    """Turns text into vectors."""

    @property
    def model(self) -> EmbeddingModel:
        """The model in use. Raises: BackendError while it is not known (loading, unreachable)."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def embed_query(self, text: str) -> Vector:
        """Embed one query, before any documents in the queue."""
        ...

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Embed passages; one row per text."""
        ...

    async def ping(self) -> str:
        """Embed a probe text without any cache; returns one line for people. Raises: BackendError."""
        ...


class Reranker(Protocol):
    """Reads a question with each passage."""

    async def scores(self, query: str, passages: Sequence[str]) -> Sequence[float]:
        """A score of each passage, in their order: higher is better, within one call. Raises: BackendError."""
        ...

    async def ping(self) -> str:
        """Score a probe; returns one line for people. Raises: BackendError."""
        ...


class ChatModel(Protocol):
    """Writes text."""

    async def complete(self, instructions: str, message: str) -> str:
        """The model's answer to `message` under the system prompt `instructions`; never blank."""
        ...

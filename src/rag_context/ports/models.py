"""Ports of models: a tokenizer, an embedder, a reranker, a chat model."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.errors import BackendError

CONFIRM_TIMEOUT_S = 0.25
"""How long a request waits to learn whether a cached value may be used."""


class Tokenizer(Protocol):
    """Cuts text as the embedder does."""

    path: Path | None = None
    """Its file, from which another process can load the same; None: it exists in this process only."""

    splits_at_spaces: bool = False
    """Whether white space parts tokens whatever stands around it, so that a stretch between spaces has the same ones
    alone; and no token of ASCII is shorter than a character."""

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Character span of every token of `text`, in order; special tokens excluded, nothing truncated."""

    def count(self, texts: Sequence[str]) -> Sequence[int]:
        """The number of tokens of each text, as many as `offsets` has of it; faster, and more so for many at once."""
        return [len(self.offsets(text)) for text in texts]


class Provenance:
    """Whether the vectors that come in a model's name were made by it: a server may have another model at any time.

    A vector is confirmed once a probe that was sent after it came in shows the model. Where it has another one, another
    provenance begins, and what this one has not confirmed it never will. `confirm` probes the server, not earlier than
    at a time; None: the model is in this process.
    """

    def __init__(self, confirm: Callable[[float], Awaitable[object]] | None = None) -> None:
        self._confirm = confirm
        self.newest = -math.inf
        """When the newest vector came in, in monotonic seconds; infinite once this has ended."""
        self.confirmed = math.inf if confirm is None else -math.inf
        """Vectors that came in before this time were made by the model."""

    def proof(self) -> "Proof":
        """For what was made of all vectors that came in so far."""
        return Proof(self, self.newest)

    def end(self) -> None:
        """Confirm nothing more."""
        self.newest = math.inf

    async def ask(self, made_at: float) -> None:
        """Ask the server whether it still has the model. A server that is late or fails confirms nothing."""
        if self._confirm is not None and self.newest < math.inf:
            with suppress(BackendError, TimeoutError):
                async with asyncio.timeout(CONFIRM_TIMEOUT_S):
                    await self._confirm(made_at)


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether what was made of a query's vector may be cached: the vector was confirmed after it came in."""

    provenance: Provenance
    made_at: float
    """When the newest of the vectors came in."""

    @property
    def is_known(self) -> bool:
        """Whether it is confirmed by now."""
        return self.made_at <= self.provenance.confirmed

    async def holds(self) -> bool:
        """Whether it is confirmed; where that is not known yet, the server is probed."""
        if not self.is_known:
            await self.provenance.ask(self.made_at)
        return self.is_known


CONFIRMED = Provenance()
"""Of models in this process."""


class Embedder(Protocol):
    @property
    def model(self) -> EmbeddingModel:
        """The model in use. Raises: BackendError while it is not known (loading, unreachable)."""

    @property
    def provenance(self) -> Provenance:
        """Of the vectors that come in from now on, as far as is known."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def embed_query(self, text: str) -> Vector:
        """Embed one query, before any documents in the queue."""

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Embed passages; one row per text."""

    async def ping(self) -> str:
        """Embed a probe text without any cache; returns one line for people. Raises: BackendError."""


class Reranker(Protocol):
    async def scores(self, query: str, passages: Sequence[str]) -> Sequence[float]:
        """A score of each passage, in their order: higher is better, within one call. Raises: BackendError."""

    async def ping(self) -> str:
        """Score a probe; returns one line for people. Raises: BackendError."""


class ChatModel(Protocol):
    async def complete(self, instructions: str, message: str) -> str:
        """The model's answer to `message` under the system prompt `instructions`; never blank."""

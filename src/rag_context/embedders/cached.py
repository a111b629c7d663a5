"""Remembers the vectors of recent queries in front of any embedder."""

import hashlib
from collections.abc import Sequence

from cachetools import LRUCache

from rag_context.ports import Embedder, Tokenizer
from rag_context.types import EmbeddingModel, Matrix, Vector

DEFAULT_SIZE = 1000
"""Queries remembered; 1.5 MB of vectors at 384 dimensions."""


class CachedEmbedder:
    """Fits `ports.Embedder` around another. Documents pass through; so do all errors, which are never remembered."""

    def __init__(self, inner: Embedder, *, size: int = DEFAULT_SIZE) -> None:
        """Take the embedder that does the work."""
        self._inner = inner
        self._vectors: LRUCache[bytes, Vector] = LRUCache(maxsize=size)
        self.hits = 0
        self.misses = 0

    @property
    def model(self) -> EmbeddingModel:
        """The inner embedder's model, with its errors."""
        return self._inner.model

    @property
    def tokenizer(self) -> Tokenizer:
        """The inner embedder's tokenizer."""
        return self._inner.tokenizer

    async def embed_query(self, text: str) -> Vector:
        """Embed one query, or remember it: `(dim,) float32`, read-only. Raises what the inner embedder raises."""
        key = _key(self._inner.model, text)
        known: Vector | None = self._vectors.get(key)
        if known is not None:
            self.hits += 1
            return known
        self.misses += 1
        vector = (await self._inner.embed_query(text)).copy()
        vector.setflags(write=False)
        self._vectors[key] = vector
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Embed passages with the inner embedder; one row per text."""
        return await self._inner.embed_documents(texts)

    async def ping(self) -> str:
        """Ask the inner embedder, past the memory."""
        return await self._inner.ping()


def _key(model: EmbeddingModel, text: str) -> bytes:
    """SHA-256 of what decides a query's vector: model, prefix and text, each ended so that none runs into the next."""
    parts = (model.fingerprint, model.query_prefix, text)
    return hashlib.sha256(b"".join(part.encode("utf-8", "surrogatepass") + b"\0" for part in parts)).digest()

"""A cache of the vectors of recent queries in front of any embedder."""

import hashlib
from collections.abc import Sequence

import numpy as np
from cachetools import LRUCache

from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.ports.models import Embedder, Tokenizer
from rag_context.resilience.shared_cache import SecondLevel

DEFAULT_SIZE = 1000
"""Queries remembered; 1.5 MB of vectors at 384 dimensions."""

SHARED_TTL_S = 7 * 86400.0
"""How long the shared level keeps a vector; the same text always has the same one."""


class CachedEmbedder:
    """Fits `ports.Embedder` around another. Documents and errors are not cached."""

    def __init__(self, inner: Embedder, *, size: int = DEFAULT_SIZE, shared: SecondLevel | None = None) -> None:
        """Take the embedder that does the work, and a second cache level that other processes share."""
        self._inner = inner
        self._vectors: LRUCache[bytes, Vector] = LRUCache(maxsize=size)
        self._shared = shared
        self.hits = 0
        """Vectors found in either level."""

        self.misses = 0
        """Vectors found in neither."""

    @property
    def model(self) -> EmbeddingModel:
        """The inner embedder's model, with its errors."""
        return self._inner.model

    @property
    def tokenizer(self) -> Tokenizer:
        """The inner embedder's tokenizer."""
        return self._inner.tokenizer

    async def embed_query(self, text: str) -> Vector:
        """The vector of one query, cached: `(dim,) float32`, read-only. Raises what the inner embedder raises."""
        model = self._inner.model
        # The model is part of the key: after a change of models an old vector must not answer.
        key = _key(model, text)
        known: Vector | None = self._vectors.get(key)
        if known is not None:
            self.hits += 1
            return known
        if self._shared is not None:
            known = _vector(await self._shared.get(_shared_key(key)), model.dimension)
        if known is not None:
            self.hits += 1
            self._vectors[key] = known
            return known
        self.misses += 1
        vector = (await self._inner.embed_query(text)).copy()
        vector.setflags(write=False)
        self._vectors[key] = vector
        if self._shared is not None:
            self._shared.put(_shared_key(key), vector.astype("<f4").tobytes, SHARED_TTL_S)
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Embed passages with the inner embedder; one row per text."""
        return await self._inner.embed_documents(texts)

    async def ping(self) -> str:
        """Ping the inner embedder, without the cache."""
        return await self._inner.ping()


def _key(model: EmbeddingModel, text: str) -> bytes:
    """SHA-256 of what decides a query's vector: model, prefix and text, each ended so that none runs into the next."""
    parts = (model.fingerprint, model.query_prefix, text)
    return hashlib.sha256(b"".join(part.encode("utf-8", "surrogatepass") + b"\0" for part in parts)).digest()


def _shared_key(key: bytes) -> str:
    return f"vector:{key.hex()}"


def _vector(value: bytes | None, dimension: int) -> Vector | None:
    """The vector as it was stored, read-only; None if the bytes are not a vector of this dimension."""
    if value is None or len(value) != 4 * dimension:
        return None
    return np.frombuffer(value, dtype="<f4").astype(np.float32, copy=False)

"""Around any embedding model: its vectors are checked, and cached for recent queries."""

import hashlib
import logging
from collections.abc import Sequence

import numpy as np
from cachetools import LRUCache

from rag_context.domain.callers import cached_for
from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.errors import BackendDataError
from rag_context.ports.models import CONFIRMED, Embedder, Proof, Provenance, Tokenizer
from rag_context.resilience.shared_cache import SecondLevel

logger = logging.getLogger(__name__)

COMPONENT = "embedder"
NORMS = (0.9, 1.1)
"""Norms that count as 1; others are normalised."""


def checked(vectors: Matrix, dimension: int) -> Matrix:
    """`(n, dimension) float32` with norms in `NORMS`: the array itself if it is. Raises: BackendDataError."""
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise BackendDataError(
            COMPONENT,
            f"the model returned vectors of shape {vectors.shape}, expected (n, {dimension}): "
            "another model is running than the configured one",
        )
    # In float64, where the square of no float32 overflows or vanishes.
    exact = vectors.astype(np.float64)
    norms = np.sqrt((exact * exact).sum(axis=1))
    low, high = NORMS
    if ((norms >= low) & (norms <= high)).all():
        return vectors
    if not np.isfinite(norms).all():
        row = int(np.flatnonzero(~np.isfinite(norms))[0])
        raise BackendDataError(COMPONENT, f"vector {row} of {len(vectors)} holds values that are not finite")
    if not norms.all():
        row = int(np.flatnonzero(norms == 0)[0])
        raise BackendDataError(COMPONENT, f"vector {row} of {len(vectors)} is zero")
    normalised: Matrix = (vectors / norms[:, None]).astype(np.float32)
    return normalised


class Checker:
    def __init__(self) -> None:
        self._warned = False

    def __call__(self, vectors: Matrix, dimension: int) -> Matrix:
        result = checked(vectors, dimension)
        if result is not vectors and not self._warned:
            self._warned = True
            logger.warning("the embedding model returns vectors that are not of norm 1; they are normalised")
        return result


DEFAULT_SIZE = 1000
"""Queries remembered; 1.5 MB of vectors at 384 dimensions."""

SHARED_TTL_S = 7 * 86400.0
"""How long the shared level keeps a vector; the same text always has the same one."""


class CachedEmbedder:
    """Fits `ports.Embedder` around another. Only queries are cached, and only once their vectors are confirmed."""

    def __init__(self, inner: Embedder, *, size: int = DEFAULT_SIZE, shared: SecondLevel | None = None) -> None:
        """Take the embedder that does the work, and a second cache level that other processes share."""
        self._inner = inner
        self._vectors: LRUCache[bytes, tuple[Vector, Proof]] = LRUCache(maxsize=size)
        self._shared = shared
        self.hits = 0
        """Vectors found in either level."""
        self.misses = 0
        """Vectors found in neither."""

    @property
    def model(self) -> EmbeddingModel:
        return self._inner.model

    @property
    def provenance(self) -> Provenance:
        return self._inner.provenance

    @property
    def tokenizer(self) -> Tokenizer:
        return self._inner.tokenizer

    async def embed_query(self, text: str) -> Vector:
        """The vector of one query, cached: `(dim,) float32`, read-only. Raises what the inner embedder raises."""
        model = self._inner.model
        # The model is part of the key: after a change of models an old vector must not answer.
        key = _key(model, text)
        known, proof = self._vectors.get(key, (None, CONFIRMED.proof()))
        # Embedded again rather than confirmed: it costs the server the same.
        if known is not None and proof.is_known:
            self.hits += 1
            return known
        shared = None if self._shared is None else _vector(await self._shared.get(_shared_key(key)), model.dimension)
        if shared is not None:
            self.hits += 1
            self._vectors[key] = shared, CONFIRMED.proof()
            return shared
        self.misses += 1
        provenance = self._inner.provenance  # before embedding: it ends where the model turns out to be another
        # A copy, because a row keeps its whole matrix in memory; read-only, because all callers get the same array.
        vector = (await self._inner.embed_query(text)).copy()
        vector.setflags(write=False)
        proof = provenance.proof()
        self._vectors[key] = vector, proof
        if self._shared is not None:
            self._shared.put(_shared_key(key), vector.astype("<f4").tobytes, SHARED_TTL_S, proof)
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        return await self._inner.embed_documents(texts)

    async def ping(self) -> str:
        return await self._inner.ping()


def _key(model: EmbeddingModel, text: str) -> bytes:
    """SHA-256 of model, prefix, text and whose bounds it is within, each ended so that none runs into the next."""
    parts = (model.fingerprint, model.query_prefix, text, *filter(None, [cached_for()]))
    return hashlib.sha256(b"".join(part.encode("utf-8", "surrogatepass") + b"\0" for part in parts)).digest()


def _shared_key(key: bytes) -> str:
    return f"vector:{key.hex()}"


def _vector(value: bytes | None, dimension: int) -> Vector | None:
    """The vector as it was stored, read-only; None if the bytes are not a vector of this dimension."""
    if value is None or len(value) != 4 * dimension:
        return None
    return np.frombuffer(value, dtype="<f4").astype(np.float32, copy=False)

"""Around any embedding model: its vectors are checked, cached for recent queries, and used with the right index only.

Where there is no file to hash, a model is identified by its vector of a probe text. The same model returns a slightly
different one on another machine, in another build, in another batch. So a fingerprint carries a sketch of the vector,
and two fingerprints are compared by the angle between their sketches, never letter by letter. The sketch is the
vector's product with random signs (Achlioptas, "Database-friendly random projections", 2003): 64 numbers, whose angles
are those of the vectors themselves within some tenths.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendRejectedError,
    BackendStartingError,
    IndexMismatchError,
)
from rag_context.ports.models import CONFIRMED, Embedder, Proof, Provenance, Tokenizer
from rag_context.ports.writing import ModelRegistry, VectorRebuilder
from rag_context.resilience.shared_cache import SecondLevel

logger = logging.getLogger(__name__)


PROBE = "The quick brown fox of Zürich jumps over 12 lazy dogs."
"""The text that every model embeds; the fingerprints of all indexes depend on it, so it never changes."""

SAME_COSINE = 0.999
"""Least cosine of two vectors of one model. Float noise leaves 1e-5 to 1, another quantisation takes 1e-2 away."""

_NUMBERS = 64
_DIGITS = 12


def fingerprint(vector: Vector) -> str:
    """The fingerprint of the model whose vector of `PROBE` is this, `(dim,) float32`."""
    sketch = (_signs(len(vector)) @ vector.astype(np.float64) / np.sqrt(_NUMBERS)).astype("<f2").tobytes()
    return f"{hashlib.sha256(sketch).hexdigest()[:_DIGITS]}:{base64.b64encode(sketch).decode()}"


def same_model(one: str, other: str) -> bool:
    """Whether two fingerprints are of one model: equal, or sketches of nearly the same vector."""
    if one == other:
        return True
    first, second = _sketch(one), _sketch(other)
    if first is None or second is None:
        return False
    return bool(first @ second >= SAME_COSINE * np.linalg.norm(first) * np.linalg.norm(second))


def same_vectors(one: EmbeddingModel, other: EmbeddingModel) -> bool:
    """Whether vectors of the two models can be compared."""
    alike = (one.dimension, one.query_prefix, one.document_prefix) == (
        other.dimension,
        other.query_prefix,
        other.document_prefix,
    )
    return alike and same_model(one.fingerprint, other.fingerprint)


def _signs(dimension: int) -> NDArray[np.int8]:
    """`(64, dimension)` of 1 and -1, the same on every machine."""
    count = _NUMBERS * dimension
    # From a hash function, because a random generator may change with a release of numpy.
    bits = np.unpackbits(np.frombuffer(hashlib.shake_256(b"rag-context").digest(count // 8), np.uint8))
    signs: NDArray[np.int8] = bits.reshape(_NUMBERS, dimension).astype(np.int8) * 2 - 1
    return signs


def _sketch(text: str) -> NDArray[np.float64] | None:
    """The sketch in a fingerprint; None for the fingerprint of a file."""
    _, colon, encoded = text.partition(":")
    try:
        numbers = np.frombuffer(base64.b64decode(encoded, validate=True), "<f2").astype(np.float64)
    except ValueError:
        return None
    return numbers if colon and len(numbers) == _NUMBERS else None


COMPONENT = "embedder"
NORMS = (0.9, 1.1)
"""Norms that count as 1; others are normalised."""


def checked(vectors: Matrix, dimension: int) -> Matrix:
    """Return `(n, dimension) float32` with every norm in `NORMS`: the array itself where nothing had to change.

    Raises:
        BackendDataError: The dimension is another, a value is not finite, or a vector is zero.
    """
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise BackendDataError(
            COMPONENT,
            f"the model returned vectors of shape {vectors.shape}, expected (n, {dimension}): "
            "another model is running than the configured one",
        )
    # In float64, where the square of no float32 overflows or vanishes.
    exact = vectors.astype(np.float64)
    norms = np.sqrt((exact * exact).sum(axis=1))
    if not np.isfinite(norms).all():
        row = int(np.flatnonzero(~np.isfinite(norms))[0])
        raise BackendDataError(COMPONENT, f"vector {row} of {len(vectors)} holds values that are not finite")
    if not norms.all():
        row = int(np.flatnonzero(norms == 0)[0])
        raise BackendDataError(COMPONENT, f"vector {row} of {len(vectors)} is zero")
    low, high = NORMS
    if ((norms >= low) & (norms <= high)).all():
        return vectors
    normalised: Matrix = (vectors / norms[:, None]).astype(np.float32)
    return normalised


class Checker:
    """Checks the vectors of one embedder and logs once when it has to normalise them."""

    def __init__(self) -> None:
        self._warned = False

    def __call__(self, vectors: Matrix, dimension: int) -> Matrix:
        """Check as `checked` does, with its errors."""
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
        """The inner embedder's model, with its errors."""
        return self._inner.model

    @property
    def provenance(self) -> Provenance:
        """The inner embedder's."""
        return self._inner.provenance

    @property
    def tokenizer(self) -> Tokenizer:
        """The inner embedder's tokenizer."""
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


OpenFormer: TypeAlias = Callable[[EmbeddingModel], Awaitable[Embedder | None]]
"""Loads the model that an index was embedded with; returns None while it loads, or if it is not available."""


class BoundEmbedder:
    """Forwards calls to the embedder as long as its model is the one of the index.

    While a run embeds all documents again with the model in use, queries are embedded by the model of the index, if it
    can be loaded.

    Args:
        inner: the embedder.
        registry: stores which model the index was embedded with.
        rebuilder: knows whether a run embeds all documents again; None: the store has no such runs.
        open_former: loads the model of the index.
    """

    def __init__(
        self,
        inner: Embedder,
        registry: ModelRegistry,
        rebuilder: VectorRebuilder | None = None,
        open_former: OpenFormer | None = None,
    ) -> None:
        self._inner = inner
        self._registry = registry
        self._rebuilder = rebuilder
        self._open_former = open_former
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
        return (self._former or self._inner).provenance

    @property
    def tokenizer(self) -> Tokenizer:
        return self._inner.tokenizer

    @property
    def recorded(self) -> EmbeddingModel | None:
        """The model of the index, as of the last comparison."""
        return self._recorded

    async def bind(self) -> None:
        """Compare the model with the index's; an index without a model records this one. Raises: BackendError."""
        async with self._in_turn:
            try:
                recorded = await self._agreed()
                if recorded is None or same_vectors(self._inner.model, recorded):
                    self._former = None
                else:
                    self._former = self._former or await self._opened(recorded)
                self._recorded = recorded
            except BackendError as error:
                self._failure = error
                raise

    async def _agreed(self) -> EmbeddingModel | None:
        """The model that the index records, after recording this one if there was none."""
        model = self._inner.model
        recorded = await self._registry.recorded_model()
        if recorded is None or not (same_vectors(model, recorded) or self._former is not None):
            # The embedder's description of its model may be out of date: ask it again before recording it.
            await self._inner.ping()
        if recorded is None:
            with suppress(IndexMismatchError):  # another process was faster: its record is read below
                await self._registry.adopt_model(self._inner.model)
            recorded = await self._registry.recorded_model()
        return recorded

    async def _opened(self, recorded: EmbeddingModel) -> Embedder | None:
        """The model of the index, while a run embeds all documents again with the model in use."""
        if self._rebuilder is None or self._open_former is None:
            return None
        run = await self._rebuilder.under_way()
        is_ours = run is not None and same_vectors(self._inner.model, run.model)
        return await self._open_former(recorded) if is_ours else None

    async def embed_query(self, text: str) -> Vector:
        return await self._matching()[0].embed_query(text)

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        return await self._matching()[0].embed_documents(texts)

    async def ping(self) -> str:
        description = await self._inner.ping()
        embedder, _ = self._matching()
        if embedder is not self._inner:
            await embedder.ping()
        return description

    def _matching(self) -> tuple[Embedder, EmbeddingModel]:
        """The embedder whose vectors the index has, and its model."""
        model = self._inner.model
        if self._recorded is None:
            failure = self._failure
            if isinstance(failure, BackendRejectedError):  # waiting does not help
                raise BackendRejectedError("embedder", f"the index cannot be used with this model: {failure}")
            reason = "" if failure is None else f": {failure}"
            raise BackendStartingError("embedder", f"the model has not been compared with the index yet{reason}")
        embedder = self._inner
        if not same_vectors(model, self._recorded):
            if self._former is None or not same_vectors(self._former.model, self._recorded):
                raise BackendRejectedError("embedder", _mismatch(self._recorded, model))
            embedder, model = self._former, self._former.model
        # Its own fingerprint may differ from the index's by float noise, and stores compare fingerprints as text.
        return embedder, replace(model, fingerprint=self._recorded.fingerprint)


def _mismatch(index: EmbeddingModel, configured: EmbeddingModel) -> str:
    """The error message for an index that another model embedded."""
    return (
        f"the index was made by {index.name} ({index.dimension} dimensions, {index.fingerprint[:12]}) and the model in "
        f"use is {configured.name} ({configured.dimension} dimensions, {configured.fingerprint[:12]}); "
        "run `rag-context reindex`, or start with `rag-context serve --reindex`"
    )

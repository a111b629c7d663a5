"""Identifies a model by its vector of a probe text, where there is no file to hash; checks the vectors of any model.

The same model returns a slightly different vector of the probe on another machine, in another build, in another batch.
So a fingerprint carries a sketch of the vector, and two fingerprints are compared by the angle between their
sketches, never letter by letter. The sketch is the vector's product with random signs (Achlioptas, "Database-friendly
random projections", 2003): 64 numbers, whose angles are those of the vectors themselves within some tenths.
"""

import base64
import hashlib
import logging

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendDataError

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


def _signs(dimension: int) -> NDArray[np.int8]:
    """`(64, dimension)` of 1 and -1, the same on every machine."""
    count = _NUMBERS * dimension
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
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
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

"""Whether two embedding models are the same one, so that their vectors can be compared.

Where there is no file to hash, a model is identified by its vector of a probe text. The same model returns a slightly
different one on another machine, in another build, in another batch. So a fingerprint carries a sketch of the vector,
and two fingerprints are compared by the angle between their sketches, never letter by letter. The sketch is the
vector's product with random signs (Achlioptas, "Database-friendly random projections", 2003): 64 numbers, whose angles
are those of the vectors themselves within some tenths.
"""

import base64
import hashlib

import numpy as np
from numpy.typing import NDArray

from rag_context.domain.vectors import EmbeddingModel, Vector

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

"""Checks the vectors of an embedder before anything is stored or searched with them."""

import logging

import numpy as np

from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendDataError

logger = logging.getLogger(__name__)

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

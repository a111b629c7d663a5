"""Embeddings as arrays; apart from the other types, so that a program without vectors does not load numpy."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""One embedding: `(dim,) float32`, L2 norm 1."""

Matrix: TypeAlias = NDArray[np.float32]
"""Embeddings row by row: `(n, dim) float32`, each of L2 norm 1."""

"""Embeddings as arrays, and an embedding model as an index must know it.

Apart from the other types, so that a program without vectors does not load numpy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""One embedding: `(dim,) float32`, L2 norm 1."""

Matrix: TypeAlias = NDArray[np.float32]
"""Embeddings row by row: `(n, dim) float32`, each of L2 norm 1."""


UNRELATED_LOG_ODDS = -4.01
"""What a calibration says of unrelated texts, in log-odds: MiniLM's of a cosine of 0, where its unrelated texts are."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """`p = sigmoid(slope * cosine + intercept)`: how likely a passage of this cosine is relevant under this model."""

    slope: float
    intercept: float
    threshold: float = 0.3
    """Default least probability of a returned passage."""
    answerable_cosine: float = 0.4
    """Below this best cosine, probably nothing in the index answers the query."""

    @property
    def unrelated_cosine(self) -> float:
        """The cosine of unrelated texts, 0 for MiniLM: fusion counts cosines from there."""
        return max((UNRELATED_LOG_ODDS - self.intercept) / self.slope, 0.0)


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """The properties of an embedding model that an index records with its vectors."""

    name: str
    dimension: int
    fingerprint: str
    """SHA-256 of the model file, or of a probe's vector where there is no file."""
    window: int
    """Most tokens of a text the model reads, its own special tokens excluded."""
    calibration: Calibration
    query_prefix: str = ""
    document_prefix: str = ""

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> "EmbeddingModel":
        """The model that an index records: the fields of `dataclasses.asdict`."""
        return cls(**{**fields, "calibration": Calibration(**fields["calibration"])})

    def is_comparable(self, other: "EmbeddingModel") -> bool:
        """Whether vectors of the two can be compared; the name decides nothing."""
        return (self.dimension, self.fingerprint, self.query_prefix, self.document_prefix) == (
            other.dimension,
            other.fingerprint,
            other.query_prefix,
            other.document_prefix,
        )


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A run that makes the vectors of `model` beside those that answer; `touched` when it last got on (since 1970)."""

    model: EmbeddingModel
    touched: float

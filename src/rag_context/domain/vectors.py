"""Embeddings as arrays, and an embedding model as an index must know it.

Apart from the other types, so that a program without vectors does not load numpy.

Where there is no file to hash, a model is identified by its vector of a probe text. The same model returns a slightly
different one on another machine, in another build, in another batch. So a fingerprint carries a sketch of the vector,
and two fingerprints are compared by the angle between their sketches, never letter by letter. The sketch is the
vector's product with random signs (Achlioptas, "Database-friendly random projections", 2003): 64 numbers, whose angles
are those of the vectors themselves within some tenths.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    sampled: int = 0
    """Of how many vectors, or pairs of sample texts, it was made; 0: it was measured or guessed."""

    @property
    def is_measured(self) -> bool:
        """Whether it says something of this model: it has a threshold."""
        return self.threshold > 0.0

    @property
    def unrelated_cosine(self) -> float:
        """The cosine of unrelated texts, 0 for MiniLM: fusion counts cosines from there."""
        return max((UNRELATED_LOG_ODDS - self.intercept) / self.slope, 0.0)


MINILM = Calibration(slope=12.1, intercept=UNRELATED_LOG_ODDS, threshold=0.3, answerable_cosine=0.40)
"""Fitted on relevant against random pairs of eight collections; the other measured models likewise."""

UNMEASURED = Calibration(MINILM.slope, MINILM.intercept, threshold=0.0, answerable_cosine=0.0)
"""For models that were not measured, until they were: probabilities as MiniLM's, no threshold."""

RANDOM_MEAN = 0.19
RANDOM_SPREAD = 0.145
"""Mean and standard deviation of MiniLM's cosines of random pairs, in the mean of nine collections and open sets: they
are of .11 to .27 and of .125 to .21, and somewhat related, as texts of one index are."""

LEAST_SAMPLED = 100
SAMPLED = 512
"""Of so many vectors at least a calibration is made, and of so many where there are more."""

SAMPLE_MEAN = 0.0687
SAMPLE_SPREAD = 0.108
"""Mean and standard deviation of MiniLM's cosines of each question of `domain.samples` with each document there."""


def probed_calibration(questions: Matrix, passages: Matrix) -> Calibration:
    """A calibration of an unmeasured model, by its vectors of the texts of `domain.samples`, which belong to no tenant.

    It has no threshold. A model that tells no texts apart gets MiniLM's, marked as made.
    """
    cosines = (questions @ passages.T).ravel().astype(np.float64)
    made = _on_scale_of(cosines, SAMPLE_MEAN, SAMPLE_SPREAD) or UNMEASURED
    return replace(made, sampled=len(cosines))


def sampled_calibration(vectors: Matrix) -> Calibration | None:
    """A calibration of an unmeasured model, by cosines of random pairs of a collection's vectors, `(n, dim) float32`.

    It has no threshold: where the texts are all alike, questions are farther from them than they are from each other.
    None where there are too few vectors, or all are the same.
    """
    if len(vectors) < LEAST_SAMPLED:
        return None
    pairs = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)].astype(np.float64)
    made = _on_scale_of(pairs, RANDOM_MEAN, RANDOM_SPREAD)
    return made and replace(made, sampled=len(vectors))


def _on_scale_of(cosines: NDArray[np.float64], mean: float, spread: float) -> Calibration | None:
    """MiniLM's calibration, stretched and moved so that its cosines of that mean and spread become these.

    Vectors that are moved by a constant direction, which squeezes all cosines alike, get the same ranking.
    """
    stretch = float(cosines.std()) / spread
    if stretch < 0.01:
        return None
    unrelated = float(cosines.mean()) - mean * stretch
    slope = MINILM.slope / stretch
    answerable = unrelated + MINILM.answerable_cosine * stretch
    return Calibration(slope, MINILM.intercept - slope * unrelated, UNMEASURED.threshold, answerable)


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
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


@dataclass(frozen=True, slots=True)
class Generations:
    """Which generation of vectors is active (0 in a new index), the fingerprint of its model, and a run under way.

    `inactive` may exist beside it: the generation that the run builds, or that an earlier one has left.
    """

    active: int = 0
    made_by: str | None = None
    run: Rebuild | None = None
    inactive: int | None = None

    @property
    def building(self) -> str | None:
        """Fingerprint of the model of the run under way."""
        return None if self.run is None else self.run.model.fingerprint


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

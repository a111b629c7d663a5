"""Measures of rankings, their confidence intervals, and the significance of differences. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SEED = 20260101
RESAMPLES = 2000
PERMUTATIONS = 10_000
CONFIDENCE = 0.95

Range = tuple[int, int]


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """Normalised discounted cumulative gain of the first `k`, 0..1, with gains `2^grade - 1`.

    Sources: Jaervelin and Kekaelaeinen, ACM TOIS 20 (2002), for the discount `log2(1 + rank)`; Burges et al.,
    ICML 2005, for the gains.
    """
    ideal = _discounted(sorted(grades.values(), reverse=True)[:k])
    return _discounted([grades.get(id_, 0) for id_ in ranking[:k]]) / ideal if ideal > 0 else 0.0


def recall(ranking: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """Share of the relevant documents that are among the first `k`, 0..1."""
    relevant = {id_ for id_, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """`1 / rank` of the first relevant document among the first `k`; 0 if there is none."""
    return next((1.0 / rank for rank, id_ in enumerate(ranking[:k], 1) if grades.get(id_, 0) > 0), 0.0)


def success(ranking: Sequence[str], grades: Mapping[str, int], k: int = 3) -> float:
    """1 if one of the first `k` is relevant, else 0."""
    return float(any(grades.get(id_, 0) > 0 for id_ in ranking[:k]))


def covered(relevant: Sequence[Range], returned: Sequence[Range]) -> float:
    """Share of the characters of the `relevant` ranges that are in a `returned` range, 0..1; ends are excluded."""
    expected = _merged(relevant)
    have = _merged(returned)
    both = sum(max(min(end, stop) - max(start, begin), 0) for start, end in expected for begin, stop in have)
    total = sum(end - start for start, end in expected)
    return both / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    mean: float
    low: float
    high: float


def estimate(*samples: Sequence[float]) -> Estimate:
    """Mean of the samples' means with a percentile bootstrap interval; each sample is drawn from by itself.

    One sample gives the mean of a collection, several the macro mean over collections. The seed is fixed.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    drawn = np.random.default_rng(SEED)
    macro = np.zeros(RESAMPLES)
    for sample in samples:
        values = np.asarray(sample, dtype=np.float64)
        picks = drawn.integers(0, len(values), size=(RESAMPLES, len(values)))
        macro += values[picks].mean(axis=1)
    low, high = np.quantile(macro / len(samples), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    # `fsum` is exact: the mean does not depend on the order of the queries.
    return Estimate(math.fsum(math.fsum(sample) / len(sample) for sample in samples) / len(samples), low, high)


def significance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p-value of the difference of two paired samples' means, by randomisation with a fixed seed.

    Source: Smucker, Allan and Carterette, CIKM 2007: under the null hypothesis the sign of each query's
    difference is a coin toss. One is added to both counts, so that p is never 0.
    """
    # Paired: the spread between easy and hard queries is the same on both sides, and cancels out.
    differences = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    tossed = np.random.default_rng(SEED).choice((-1.0, 1.0), size=(PERMUTATIONS, len(differences)))
    # Sums in another order differ in their last bits; differences as large as ours must count.
    as_far = np.abs(tossed @ differences) >= abs(float(differences.sum())) - 1e-12
    return float((1 + as_far.sum()) / (1 + PERMUTATIONS))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed (nearest rank); 0 of none."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)] if values else 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of requests, in milliseconds; 0 without requests."""

    average_ms: float
    p95_ms: float
    p99_ms: float

    @classmethod
    def of(cls, taken_ms: Sequence[float]) -> "Latency":
        average = sum(taken_ms) / len(taken_ms) if taken_ms else 0.0
        return cls(average, percentile(taken_ms, 0.95), percentile(taken_ms, 0.99))


def _discounted(grades: Sequence[int]) -> float:
    return sum((2.0**grade - 1.0) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def _merged(ranges: Sequence[Range]) -> list[Range]:
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged

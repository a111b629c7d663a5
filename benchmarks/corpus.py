"""Invented text of any size: sentences over a vocabulary with a natural skew, the same on every run."""

import random
from functools import lru_cache
from itertools import accumulate

import numpy as np

from rag_context.domain.vectors import Matrix

SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "ki", "lo", "mu", "ne", "pa", "ri", "so", "tu", "ve", "wi", "ya", "zo")
COMMON = ("system", "server", "request", "error", "time", "data", "user", "value", "file", "change", "test", "update")


@lru_cache
def vocabulary(size: int) -> tuple[str, ...]:
    """Distinct words, the same for every writer; the first are ordinary ones that will be common."""
    chance = random.Random(7)
    words = dict.fromkeys(COMMON)
    while len(words) < size:
        words["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4)))] = None
    return tuple(words)


@lru_cache
def _odds(size: int) -> tuple[float, ...]:
    """Cumulative weights of the vocabulary's words, the common ones first."""
    return tuple(accumulate(rank**-0.9 for rank in range(1, size + 1)))


class Writer:
    """Writes texts whose words follow Zipf's law."""

    def __init__(self, words: int = 20_000, seed: int = 7) -> None:
        self._words, self._odds = vocabulary(words), _odds(words)
        self._chance = random.Random(seed)

    def words(self, count: int) -> list[str]:
        """Some words, common ones often."""
        return self._chance.choices(self._words, cum_weights=self._odds, k=count)

    def sentence(self) -> str:
        """One sentence of 8 to 16 words."""
        return " ".join(self.words(self._chance.randrange(8, 17))).capitalize() + "."

    def passage(self, sentences: int = 5) -> str:
        """A passage of about one chunk."""
        return " ".join(self.sentence() for _ in range(sentences))

    def question(self) -> str:
        """A question of five to nine words, one of them common."""
        return "How does the " + " ".join(self.words(self._chance.randrange(3, 7))) + " " + COMMON[0] + " work?"


def unit_vectors(count: int, dimension: int, seed: int = 7) -> Matrix:
    """Random directions, `(count, dimension) float32`."""
    rows: Matrix = np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows

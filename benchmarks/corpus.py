"""Invented text of any size: sentences over a vocabulary with a natural skew, the same on every run."""

import random

import numpy as np

from rag_context.types import Matrix

SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "ki", "lo", "mu", "ne", "pa", "ri", "so", "tu", "ve", "wi", "ya", "zo")
COMMON = ("system", "server", "request", "error", "time", "data", "user", "value", "file", "change", "test", "update")


def vocabulary(size: int, seed: int = 7) -> list[str]:
    """Distinct words; the first are ordinary ones that will be common."""
    chance = random.Random(seed)
    words = dict.fromkeys(COMMON)
    while len(words) < size:
        words["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4)))] = None
    return list(words)


class Writer:
    """Writes texts whose words follow Zipf's law."""

    def __init__(self, words: int = 20_000, seed: int = 7) -> None:
        self._words = vocabulary(words, seed)
        weights = 1.0 / np.arange(1, words + 1) ** 0.9
        self._odds = weights / weights.sum()
        self._chance = np.random.default_rng(seed)

    def words(self, count: int) -> list[str]:
        """Some words, common ones often."""
        return [self._words[i] for i in self._chance.choice(len(self._words), size=count, p=self._odds)]

    def sentence(self) -> str:
        """One sentence of 8 to 16 words."""
        return " ".join(self.words(int(self._chance.integers(8, 17)))).capitalize() + "."

    def passage(self, sentences: int = 5) -> str:
        """A passage of about one chunk."""
        return " ".join(self.sentence() for _ in range(sentences))

    def question(self) -> str:
        """A question of five to nine words, one of them common."""
        return "How does the " + " ".join(self.words(int(self._chance.integers(3, 7)))) + " " + COMMON[0] + " work?"


def unit_vectors(count: int, dimension: int, seed: int = 7) -> Matrix:
    """Random directions, `(count, dimension) float32`."""
    rows: Matrix = np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows

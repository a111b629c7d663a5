"""An embedder without a model: texts with common words get similar vectors. For tests only."""

import hashlib
from collections.abc import Sequence

import numpy as np

from rag_context.domain.embedding_model import Calibration, EmbeddingModel
from rag_context.domain.vectors import Matrix, Vector
from rag_context.text.analysis import terms


class WordTokenizer:
    """One token per word."""

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The character span of every word, separated by white space."""
        spans, start = [], None
        for i, character in enumerate(text):
            if character.isspace():
                if start is not None:
                    spans.append((start, i))
                start = None
            elif start is None:
                start = i
        if start is not None:
            spans.append((start, len(text)))
        return spans


class FakeEmbedder:
    """Implements `ports.Embedder`: the sum of one fixed random direction per term, normalised.

    Args:
        name: the model's name; another name gives other vectors.
        dimension: of the vectors.
        window: tokens (words) it claims to read.
    """

    def __init__(self, name: str = "fake", *, dimension: int = 64, window: int = 254) -> None:
        self.model = EmbeddingModel(
            name=name,
            dimension=dimension,
            fingerprint=hashlib.sha256(f"{name}/{dimension}".encode()).hexdigest(),
            window=window,
            calibration=Calibration(slope=12.1, intercept=-4.01),
        )
        self.tokenizer = WordTokenizer()
        self.calls = 0
        """Texts embedded so far."""

    async def embed_query(self, text: str) -> Vector:
        return self._vector(text)

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        return np.stack([self._vector(text) for text in texts])

    async def ping(self) -> str:
        self._vector("probe")
        return "a fake"

    def _vector(self, text: str) -> Vector:
        self.calls += 1
        total = np.zeros(self.model.dimension)
        for term in terms(text) or [text]:
            seed = hashlib.sha256(f"{self.model.name}/{term}".encode("utf-8", "surrogatepass")).digest()
            total += np.random.default_rng(list(seed[:8])).standard_normal(self.model.dimension)
        vector: Vector = (total / np.linalg.norm(total)).astype(np.float32)
        return vector

"""Small fakes: an embedder without a model, a cache, a clock that stands still, faults."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar, cast

import numpy as np

from rag_context.domain.text import terms
from rag_context.domain.vectors import Calibration, EmbeddingModel, Matrix, Vector
from rag_context.errors import RagContextError
from rag_context.ports.models import CONFIRMED

T = TypeVar("T")


class WordTokenizer:
    """One token per word."""

    path: Path | None = None
    splits_at_spaces: bool = True

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

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of words of each text."""
        return [len(text.split()) for text in texts]


class FakeEmbedder:
    """Implements `ports.Embedder`: the sum of one fixed random direction per term, normalised.

    `window` is how many tokens (words) it claims to read.
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
        self.provenance = CONFIRMED
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


@dataclass(slots=True)
class MemoryCache:
    """Implements `ports.Cache`."""

    clock: Callable[[], float]
    values: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    """Each value with the time at which it expires."""

    async def get(self, key: str) -> bytes | None:
        value, until = self.values.get(key, (None, 0.0))
        return value if self.clock() < until else None

    async def set(self, key: str, value: bytes, ttl_s: float) -> None:
        self.values[key] = (value, self.clock() + ttl_s)

    async def ping(self) -> str:
        return f"{len(self.values)} values in memory"


@dataclass(slots=True)
class FrozenClock:
    """Call it for the time in seconds."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self.seconds += seconds


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a call: an error, a delay in seconds, or an endless wait."""

    error: RagContextError | None = None
    delay_s: float = 0.0
    hang: bool = False


class FakeReranker:
    """Implements `ports.Reranker`: a passage's score is the last number in it, or 0."""

    async def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        return [float(next((word for word in reversed(text.split()) if word.isdigit()), "0")) for text in passages]

    async def ping(self) -> str:
        return "a fake"


class Faulty(Generic[T]):
    """Wraps a port. `port` can be used in place of the target; `fault` may be changed at any time.

    Without names of methods all async ones fail.
    """

    def __init__(self, target: T, *methods: str) -> None:
        self.fault: Fault | None = None
        self.calls = 0
        """The number of calls to the failing methods so far, successful or not."""
        self.methods = frozenset(methods)
        self.port = cast("T", _Front(target, self))


class _Front:
    def __init__(self, target: object, owner: "Faulty[T]") -> None:
        self._target = target
        self._owner = owner

    def __getattr__(self, name: str) -> object:
        value = getattr(self._target, name)
        if not asyncio.iscoroutinefunction(value) or (self._owner.methods and name not in self._owner.methods):
            return value
        return self._faulty(value)

    def _faulty(self, work: Callable[..., object]) -> Callable[..., object]:
        async def call(*args: object, **kwargs: object) -> object:
            self._owner.calls += 1
            fault = self._owner.fault
            if fault is not None:
                if fault.hang:
                    await asyncio.Event().wait()
                await asyncio.sleep(fault.delay_s)
                if fault.error is not None:
                    raise fault.error
            return await work(*args, **kwargs)  # type: ignore[misc]

        return call

"""Small fakes: an embedder without a model, a cache, a clock that stands still, faults, a provider of collections."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Generic, TypeVar, cast

import numpy as np

from rag_context.domain.clauses import Clause
from rag_context.domain.documents import Json, Status
from rag_context.domain.text import terms
from rag_context.domain.vectors import Calibration, EmbeddingModel, Matrix, Vector
from rag_context.domain.where import matches, value_at
from rag_context.errors import InvalidInputError, NotFoundError, RagContextError
from rag_context.ports.models import CONFIRMED
from rag_context.ports.provider import Capabilities, Collection, Entry, EntryHit, EntryPage, ProviderHealth

T = TypeVar("T")


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


@dataclass(slots=True)
class _MemoryRecord:
    collection: Collection
    rows: dict[str, tuple[Entry, Vector]] = field(default_factory=dict)


class MemoryCollections:
    """Implements the `Provider` port; filters are evaluated by the reference evaluator."""

    def __init__(self) -> None:
        self.capabilities = Capabilities()
        self._records: dict[str, _MemoryRecord] = {}

    async def collections(self) -> list[Collection]:
        return [self._shown(self._records[name]) for name in sorted(self._records)]

    async def collection(self, name: str) -> Collection | None:
        record = self._records.get(name)
        return None if record is None else self._shown(record)

    async def create(self, collection: Collection) -> bool:
        if collection.name in self._records:
            return False
        created = collection.created or datetime.now(UTC)
        self._records[collection.name] = _MemoryRecord(replace(collection, count=0, dimension=None, created=created))
        return True

    async def drop(self, name: str) -> None:
        self._known(name)
        del self._records[name]

    async def replace_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        record = self._known(name)
        record.collection = replace(record.collection, metadata=dict(metadata))
        return self._shown(record)

    async def merge_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        return await self.replace_metadata(name, {**self._known(name).collection.metadata, **metadata})

    async def upsert(self, name: str, entries: Sequence[Entry], vectors: Matrix) -> None:
        record = self._known(name)
        if not entries:
            return
        _check_dimension(record, vectors.shape[1])
        record.collection = replace(record.collection, dimension=vectors.shape[1])
        record.rows.update({entry.id: (entry, vector) for entry, vector in zip(entries, vectors, strict=True)})

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> EntryPage:
        found = [entry for entry, _ in self._matching(name, where)]
        return EntryPage(tuple(found[offset : offset + limit]), len(found))

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        rows = self._known(name).rows
        return {id_: rows[id_][1] for id_ in ids if id_ in rows}

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[EntryHit]:
        _check_dimension(self._known(name), len(vector))
        hits = [EntryHit(entry, float(np.dot(row, vector))) for entry, row in self._matching(name, where)]
        return sorted(hits, key=lambda hit: -hit.cosine)[:limit]

    async def delete(self, name: str, id_: str) -> bool:
        return self._known(name).rows.pop(id_, None) is not None

    async def empty(self, name: str) -> int:
        rows = self._known(name).rows
        deleted = len(rows)
        rows.clear()
        return deleted

    async def values(self, name: str, path: tuple[str, ...]) -> list[Json]:
        found: dict[tuple[bool, Json], Json] = {}
        for entry, _ in self._known(name).rows.values():
            value = value_at(entry.metadata, path)
            for single in value if isinstance(value, list) else [value]:
                if isinstance(single, str | int | float):
                    found.setdefault((isinstance(single, bool), single), single)
        return list(found.values())

    async def health(self) -> ProviderHealth:
        return ProviderHealth(Status.HEALTHY, datetime.now(UTC), 0.0, collections=len(self._records))

    def _known(self, name: str) -> _MemoryRecord:
        if name not in self._records:
            raise NotFoundError(f"Collection '{name}' not found")
        return self._records[name]

    def _matching(self, name: str, where: Clause) -> list[tuple[Entry, Vector]]:
        rows = self._known(name).rows
        return [rows[id_] for id_ in sorted(rows) if matches(where, rows[id_][0].metadata)]

    def _shown(self, record: _MemoryRecord) -> Collection:
        return replace(record.collection, count=len(record.rows))


def _check_dimension(record: _MemoryRecord, dimension: int) -> None:
    bound = record.collection.dimension
    if bound is not None and bound != dimension:
        raise InvalidInputError(
            f"Collection '{record.collection.name}' holds vectors of {bound} dimensions, not of {dimension}"
        )

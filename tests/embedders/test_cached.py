"""The memory of query vectors, in front of the bundled model."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from rag_context.domain.vectors import EmbeddingModel, Matrix, Vector
from rag_context.embedders.model_vectors import CachedEmbedder
from rag_context.embedders.onnx import OnnxEmbedder
from rag_context.errors import BackendStartingError, BackendUnavailableError
from rag_context.ports.models import CONFIRMED, Embedder, Tokenizer
from rag_context.ports.reading import Cache
from rag_context.resilience.dependency import Dependency
from rag_context.resilience.shared_cache import SecondLevel
from rag_context.testing import Fault, Faulty, FrozenClock, MemoryCache


class Counted:
    """The real embedder, with its calls counted, its model's name tag exchangeable, and its provenance too."""

    def __init__(self, inner: OnnxEmbedder) -> None:
        self.inner = inner
        self.model: EmbeddingModel = inner.model
        self.calls: list[str] = []
        self.provenance = CONFIRMED

    @property
    def tokenizer(self) -> Tokenizer:
        return self.inner.tokenizer

    async def embed_query(self, text: str) -> Vector:
        self.calls.append(text)
        return await self.inner.embed_query(self.model.query_prefix + text)

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        self.calls.extend(texts)
        return await self.inner.embed_documents(texts)

    async def ping(self) -> str:
        self.calls.append("ping")
        return await self.inner.ping()


@pytest.fixture
async def counted() -> AsyncIterator[Counted]:
    embedder = OnnxEmbedder(workers=1)
    await embedder.start()
    assert await embedder.ready(timeout_s=30)
    yield Counted(embedder)
    await embedder.close()


async def test_a_repeated_query_is_embedded_once(counted: Counted) -> None:
    cached = CachedEmbedder(counted)
    first = await cached.embed_query("retry logic")
    second = await cached.embed_query("retry logic")
    assert counted.calls == ["retry logic"]
    assert (cached.hits, cached.misses) == (1, 1)
    assert np.array_equal(first, second)
    assert np.array_equal(first, await counted.inner.embed_query("retry logic"))


async def test_what_is_remembered_cannot_be_written_over(counted: Counted) -> None:
    vector = await CachedEmbedder(counted).embed_query("retry logic")
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 0


async def test_the_query_unused_longest_is_forgotten_first(counted: Counted) -> None:
    cached = CachedEmbedder(counted, size=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await cached.embed_query(text)
    assert counted.calls == ["a", "b", "c", "b"]
    assert (cached.hits, cached.misses) == (2, 4)


async def test_a_thousand_queries_are_cached_by_default(counted: Counted) -> None:
    cached = CachedEmbedder(counted)
    for number in (*range(1001), 1, 0):
        await cached.embed_query(str(number))
    assert (cached.hits, cached.misses) == (1, 1002)


@pytest.mark.parametrize("change", [{"fingerprint": "other"}, {"query_prefix": "query: "}])
async def test_another_model_or_prefix_is_another_vector(counted: Counted, change: dict[str, str]) -> None:
    cached = CachedEmbedder(counted)
    await cached.embed_query("retry logic")
    counted.model = replace(counted.model, **change)  # type: ignore[arg-type]
    await cached.embed_query("retry logic")
    assert (cached.hits, cached.misses) == (0, 2)


async def test_documents_and_probes_pass_through(counted: Counted) -> None:
    cached = CachedEmbedder(counted)
    for _ in range(2):
        await cached.embed_documents(["text"])
        await cached.ping()
    assert counted.calls == ["text", "ping", "text", "ping"]
    assert (cached.hits, cached.misses) == (0, 0)


async def test_a_failure_is_not_cached() -> None:
    inner = OnnxEmbedder(workers=1)
    cached = CachedEmbedder(inner)
    with pytest.raises(BackendStartingError):
        await cached.embed_query("retry logic")
    await inner.start()
    assert await inner.ready(timeout_s=30)
    assert len(await cached.embed_query("retry logic")) == 384
    await inner.close()


async def test_it_fits_the_port_and_shows_the_inner_model(counted: Counted) -> None:
    cached: Embedder = CachedEmbedder(counted)
    assert cached.model == counted.model
    assert cached.tokenizer.offsets("two words") == [(0, 3), (4, 9)]


def second_level(cache: Cache, clock: FrozenClock) -> SecondLevel:
    return SecondLevel(cache, Dependency("cache", MemoryCache(clock).ping, clock), timeout_s=5.0)


async def test_a_query_that_another_process_embedded_is_not_embedded_again(counted: Counted) -> None:
    clock = FrozenClock()
    shared = second_level(MemoryCache(clock), clock)
    first = await CachedEmbedder(counted, shared=shared).embed_query("retry logic")
    await shared.flush()
    other = CachedEmbedder(counted, shared=shared)
    for _ in range(2):
        second = await other.embed_query("retry logic")
        assert (second.tobytes(), second.dtype) == (first.tobytes(), first.dtype)
        with pytest.raises(ValueError, match="read-only"):
            second[0] = 0
    assert counted.calls == ["retry logic"]
    assert (other.hits, other.misses) == (2, 0)


@pytest.mark.parametrize("change", [{"fingerprint": "other"}, {"query_prefix": "query: "}])
async def test_another_model_or_prefix_is_another_shared_vector(counted: Counted, change: dict[str, str]) -> None:
    clock = FrozenClock()
    shared = second_level(MemoryCache(clock), clock)
    await CachedEmbedder(counted, shared=shared).embed_query("retry logic")
    await shared.flush()
    counted.model = replace(counted.model, **change)  # type: ignore[arg-type]
    other = CachedEmbedder(counted, shared=shared)
    await other.embed_query("retry logic")
    assert (other.hits, other.misses) == (0, 1)


async def test_a_shared_vector_of_another_dimension_is_a_miss(counted: Counted) -> None:
    clock = FrozenClock()
    shared = second_level(MemoryCache(clock), clock)
    await CachedEmbedder(counted, shared=shared).embed_query("retry logic")
    await shared.flush()
    counted.model = replace(counted.model, dimension=383)
    other = CachedEmbedder(counted, shared=shared)
    assert len(await other.embed_query("retry logic")) == 384
    assert (other.hits, other.misses) == (0, 1)


async def test_with_a_dead_shared_level_queries_are_embedded_as_ever(counted: Counted) -> None:
    clock = FrozenClock()
    dead: Faulty[Cache] = Faulty(MemoryCache(clock))
    dead.fault = Fault(BackendUnavailableError("cache", "gone"))
    cached = CachedEmbedder(counted, shared=second_level(dead.port, clock))
    for number in range(5):
        await cached.embed_query(str(number))
    await cached.embed_query("0")
    assert counted.calls == ["0", "1", "2", "3", "4"]
    assert (cached.hits, cached.misses) == (1, 5)

"""A query's vector is cached only once its server has shown after it that it still has the model (D-10, E-4)."""

import asyncio

from rag_context.domain.vectors import PROBE
from rag_context.embedders.model_vectors import CachedEmbedder
from rag_context.embedders.openai_embedder import OpenAIEmbedder
from rag_context.testing import FrozenClock
from tests.embedders.remote_embedder import embedder_over
from tests.servers.embedding_stub import EmbeddingStub, embedding_stub


def texts_of(stub: EmbeddingStub) -> list[str]:
    """The texts that were embedded and are no probes."""
    return [text for texts in stub.texts for text in texts if text != PROBE]


async def confirm(embedder: OpenAIEmbedder) -> None:
    await embedder.ping()


async def test_a_vector_is_cached_once_the_model_is_confirmed_after_it() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        cached = CachedEmbedder(embedder)
        await cached.embed_query("a")
        await confirm(embedder)
        await cached.embed_query("a")
        assert (texts_of(stub), cached.hits) == (["a"], 1)


async def test_a_vector_that_came_from_another_model_is_never_cached() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        cached = CachedEmbedder(embedder)
        stub.seed = "another"
        await cached.embed_query("a")  # unnoticed so far
        await confirm(embedder)
        stub.seed = "one"
        await confirm(embedder)
        vector = await cached.embed_query("a")
        assert (texts_of(stub), cached.hits) == (["a", "a"], 0)
        assert abs(vector - stub.vector("a")).max() < 1e-6


async def test_a_confirmation_that_comes_too_late_confirms_nothing() -> None:
    clock = FrozenClock()
    async with embedding_stub() as stub, embedder_over(stub.url, clock=clock) as embedder:
        clock.advance(0.1)
        await embedder.embed_query("a")
        proof = embedder.provenance.proof()
        clock.advance(5.0)
        await confirm(embedder)
        assert not await proof.holds()


async def test_who_needs_to_know_has_the_model_confirmed() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        await embedder.embed_query("a")
        proof = embedder.provenance.proof()
        assert await proof.holds()
        assert await embedder.provenance.proof().holds()


async def test_a_server_that_does_not_answer_confirms_nothing() -> None:
    async with embedding_stub() as stub, embedder_over(stub.url) as embedder:
        await embedder.embed_query("a")
        proof = embedder.provenance.proof()
        await stub.stop()
        assert not await proof.holds()


async def test_the_model_is_confirmed_beside_a_query_after_a_while_without_any() -> None:
    clock = FrozenClock()
    async with embedding_stub() as stub, embedder_over(stub.url, clock=clock) as embedder:
        before = len(stub.texts)
        clock.advance(20.0)
        await asyncio.gather(*(embedder.embed_query(text) for text in "abcd"))
        assert stub.texts[before:].count([PROBE]) == 1
        assert sorted(texts_of(stub)) == list("abcd")

"""Hybrid queries of a collection count cosines from that of its unrelated texts, whatever the model."""

import numpy as np

from rag_context.api.collection_operations import AddDocumentsRequest, NewCollectionRequest
from rag_context.collections.collections import Collections
from rag_context.collections.provider_connections import DEFAULT, CollectionRef
from rag_context.collections.searching import CollectionQuery, search
from rag_context.search.query import Mode
from tests.collections.memory_collections import MemoryCollections
from tests.search.moved import MovedEmbedder

from .services import connections_to, service_over

WORDS = "valve pump reactor pressure bar opens closes nine seven retry timeout".split()  # noqa: SIM905
REF = CollectionRef("texts", DEFAULT)


async def order(far: float) -> list[str]:
    rng, embedder, provider = np.random.default_rng(3), MovedEmbedder.unmeasured(far), MemoryCollections()
    service = service_over({DEFAULT: provider}, embedder)
    await service.create(NewCollectionRequest(name="texts", embedding_provider="rag-context", embedding_model="m"))
    texts = [" ".join(rng.choice(WORDS, rng.integers(3, 12))) for _ in range(150)]
    documents = [{"id": f"{number:03}", "text": text} for number, text in enumerate(texts)]
    await service.add(AddDocumentsRequest(name="texts", documents=documents))
    collections = Collections(connections_to({DEFAULT: provider}, embedder))
    found = await search(collections, REF, CollectionQuery("valve opens at nine bar", limit=20, mode=Mode.HYBRID))
    return [match.entry.id for match in found]


async def test_vectors_moved_by_a_constant_direction_rank_as_before() -> None:
    assert await order(1.5) == await order(0.0)

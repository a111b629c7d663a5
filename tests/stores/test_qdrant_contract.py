"""Qdrant is a vector store like every other: the shared tests, over HTTP and over gRPC.

All of them run against the server at RAG_TEST_QDRANT_URL where that is set, each in a collection of its own.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from rag_context.domain.search import Filter
from rag_context.ports.reading import VectorStore
from rag_context.ports.writing import VectorWriter, Version
from rag_context.stores.qdrant import CollectionPlan, QdrantVectors, open_qdrant
from rag_context.testing.memory_stores import MemoryStore
from tests.servers.qdrant import Endpoint, endpoint
from tests.stores import test_vector_store as contract
from tests.stores.builders import Stores, axis, document, ids, put, unit_vectors

for _name, _test in vars(contract).items():
    if _name.startswith("test_"):
        globals()[_name] = _test


@dataclass
class Documents(MemoryStore):
    """Documents in memory, whose vectors are kept by another store."""

    elsewhere: VectorWriter = field(kw_only=True)

    async def write(self, version: Version) -> bool:
        await super().write(version)
        if version.vectors is None:
            await self.elsewhere.discard([version.document.id])
            return False
        await self.elsewhere.put(version.document, version.chunks, version.vectors)
        return True

    async def delete(self, document_id: str) -> bool:
        there = await super().delete(document_id)
        if there:
            await self.elsewhere.discard([document_id])
        return there


@dataclass(frozen=True)
class SplitStores:
    """Documents here, vectors there."""

    documents: Documents
    vectors: QdrantVectors


@pytest.fixture(scope="module")
def server() -> Iterator[Endpoint]:
    with endpoint() as found:
        yield found


@pytest.fixture(params=["http", "grpc"])
async def store(request: pytest.FixtureRequest, server: Endpoint) -> AsyncIterator[SplitStores]:
    plan = CollectionPlan(f"test-{uuid4().hex}")
    async with open_qdrant(
        server.url, plan, api_key=server.api_key, transport=request.param, grpc_port=server.grpc_port
    ) as vectors:
        yield SplitStores(Documents(elsewhere=vectors), vectors)
        await vectors.clear()


async def test_it_fits_both_ports_of_vectors(store: SplitStores) -> None:
    reads: VectorStore = store.vectors
    writes: VectorWriter = store.vectors
    assert await reads.search(axis(0), limit=1, where=Filter()) == []
    assert await writes.count() == 0


async def test_scores_are_the_cosines_of_the_search(store: Stores) -> None:
    for number, vector in enumerate(unit_vectors(30)):
        await put(store, document(str(number)), vector=vector)
    pending = await put(store, document("pending"))
    hits = await store.vectors.search(axis(1), limit=30, where=Filter())
    scores = await store.vectors.score(axis(1), [*reversed(ids(hits)), *pending, "nobody"])
    assert scores == pytest.approx({hit.chunk.id: hit.cosine for hit in hits}, abs=1e-6)


async def test_a_replaced_document_is_found_at_every_moment(store: Stores, server: Endpoint) -> None:
    """One version or the other, and both for the moment between the two calls that replace it; never neither.

    A real server reads payloads after its search, and leaves out what was removed in between: a search that is under
    way during the whole replacement may find neither.
    """
    found = await contract.versions_found_while_replaced(store, 20)

    assert {1} <= found.keys() <= {0, 1, 2}
    assert found[0] <= (found.total() // 10 if server.is_real else 0)

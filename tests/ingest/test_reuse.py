"""What was embedded once is not embedded again, and never with another model's vector."""

import numpy as np
import pytest

from rag_context.domain.documents import DocumentInput, Origin
from rag_context.errors import BackendUnavailableError
from rag_context.ingest.identity import document_id
from rag_context.ingest.indexer import Indexer
from rag_context.ingest.receipts import IndexingPolicy, Outcome
from rag_context.ingest.reuse import StoredVectors
from rag_context.ports.reading import VectorStore
from rag_context.resilience.dependency import Dependency
from rag_context.testing import FakeEmbedder, Fault, Faulty, MemoryStore

TEXT = "\n\n".join(f"Paragraph {number} speaks of matter {number} and of nothing else at all." for number in range(60))


class House:
    """A write path over memory."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.embedder = FakeEmbedder()
        self.vectors: Faulty[VectorStore] = Faulty(self.store.vectors)
        guard = Dependency("documents", self.store.ping)
        self.indexer = Indexer(
            embedder=self.embedder,
            embedding=Dependency("embedder", self.embedder.ping),
            documents=self.store,
            document_store=guard,
            writer=self.store,
            policy=IndexingPolicy(254),
            stored_vectors=StoredVectors(
                self.store, guard, self.vectors.port, Dependency("vectors", self.store.ping), self.store
            ),
        )

    async def embedded(self, draft: DocumentInput, *like: DocumentInput) -> int:
        """Index a draft; returns how many texts that had to be embedded."""
        before = self.embedder.calls
        receipt = await self.indexer.index(draft, reuse_from=[document_id(each) for each in like])
        assert not receipt.pending
        assert receipt.outcome in (Outcome.INDEXED, Outcome.REPLACED)
        return self.embedder.calls - before

    async def check(self, draft: DocumentInput) -> None:
        """Every vector is that of its own chunk's text."""
        chunks = await self.store.chunks(document_id(draft))
        vectors = await self.store.vectors.vectors([chunk.id for chunk in chunks])
        for chunk in chunks:
            assert np.array_equal(vectors[chunk.id], await self.embedder.embed_query(chunk.searchable))


def file(name: str, content: str) -> DocumentInput:
    return DocumentInput(content, "documentation", "files", f"/docs/{name}", origin=Origin.FILE)


@pytest.fixture
async def house() -> House:
    house = House()
    await house.store.adopt_model(house.embedder.model)
    return house


async def test_an_edit_embeds_what_is_new(house: House) -> None:
    await house.embedded(file("a.md", f"# Title\n\n## One\n\n{TEXT}\n\n## Two\n\n{TEXT}"))
    edited = file("a.md", f"# Title\n\n## Zero\n\nNew.\n\n## One\n\n{TEXT}\n\n## Two\n\n{TEXT}")
    assert await house.embedded(edited) <= 2
    await house.check(edited)


async def test_a_renamed_file_embeds_nothing(house: House) -> None:
    old, new = file("a.md", TEXT), file("b.md", TEXT)
    whole = await house.embedded(old)
    assert whole > 3
    assert await house.embedded(new, old) == 0
    await house.check(new)


async def test_without_vectors_to_reuse_everything_is_embedded(house: House) -> None:
    whole = await house.embedded(file("a.md", TEXT))
    assert await house.embedded(file("b.md", TEXT)) == whole
    assert await house.embedded(file("c.md", TEXT), file("nowhere.md", "")) == whole


async def test_a_text_that_stands_twice_is_embedded_once(house: House) -> None:
    await house.embedded(file("a.md", "Old."))
    part = "# Part\n\nThe same words.\n\n"
    assert await house.embedded(file("a.md", part * 3)) == 1


async def test_vectors_of_another_model_are_not_reused(house: House) -> None:
    old = file("a.md", TEXT)
    whole = await house.embedded(old)
    house.store._model = FakeEmbedder("other").model
    before = house.embedder.calls
    receipt = await house.indexer.index(file("b.md", TEXT), reuse_from=[document_id(old)])
    assert house.embedder.calls - before == whole
    assert receipt.pending
    assert receipt.warning is not None
    assert "model" in receipt.warning


async def test_vectors_that_cannot_be_read_are_recreated(house: House) -> None:
    old, new = file("a.md", TEXT), file("b.md", TEXT)
    whole = await house.embedded(old)
    house.vectors.fault = Fault(BackendUnavailableError("vectors", "gone"))
    assert await house.embedded(new, old) == whole
    await house.check(new)


async def test_a_source_without_vectors_has_none_to_reuse(house: House) -> None:
    old, new = file("a.md", TEXT), file("b.md", TEXT)
    whole = await house.embedded(old)
    await house.store.drop_vectors()
    await house.store.adopt_model(house.embedder.model)
    assert await house.embedded(new, old) == whole

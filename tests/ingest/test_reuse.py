"""What was embedded once is not embedded again, and never with another model's vector."""

from dataclasses import replace

import numpy as np
import pytest

from rag_context.domain.documents import Channel, DocumentInput, document_id
from rag_context.errors import BackendUnavailableError
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.ingest.submissions import Outcome
from rag_context.ingest.text_vectors import ReusableVectors
from rag_context.ports.reading import VectorStore
from rag_context.resilience.dependency import Dependency
from rag_context.testing import FakeEmbedder, Fault, Faulty
from rag_context.testing.fakes import WordTokenizer
from tests.memory_stores import MemoryStore

TEXT = "\n\n".join(f"Paragraph {number} speaks of matter {number} and of nothing else at all." for number in range(60))


class WritePath:
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
            stored_vectors=ReusableVectors(
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
    return DocumentInput(content, "documentation", "files", f"/docs/{name}", channel=Channel.FILE)


@pytest.fixture
async def write_path() -> WritePath:
    write_path = WritePath()
    await write_path.store.adopt_model(write_path.embedder.model)
    return write_path


async def test_an_edit_embeds_what_is_new(write_path: WritePath) -> None:
    await write_path.embedded(file("a.md", f"# Title\n\n## One\n\n{TEXT}\n\n## Two\n\n{TEXT}"))
    edited = file("a.md", f"# Title\n\n## Zero\n\nNew.\n\n## One\n\n{TEXT}\n\n## Two\n\n{TEXT}")
    assert await write_path.embedded(edited) <= 2
    await write_path.check(edited)


async def test_a_renamed_file_embeds_nothing(write_path: WritePath) -> None:
    old, new = file("a.md", TEXT), file("b.md", TEXT)
    whole = await write_path.embedded(old)
    assert whole > 3
    assert await write_path.embedded(new, old) == 0
    await write_path.check(new)


async def test_without_vectors_to_reuse_everything_is_embedded(write_path: WritePath) -> None:
    whole = await write_path.embedded(file("a.md", TEXT))
    assert await write_path.embedded(file("b.md", TEXT)) == whole
    assert await write_path.embedded(file("c.md", TEXT), file("nowhere.md", "")) == whole


async def test_a_text_that_stands_twice_is_embedded_once(write_path: WritePath) -> None:
    await write_path.embedded(file("a.md", "Old."))
    part = "# Part\n\nThe same words.\n\n"
    assert await write_path.embedded(file("a.md", part * 3)) == 1


async def test_vectors_of_another_model_are_not_reused(write_path: WritePath) -> None:
    old = file("a.md", TEXT)
    whole = await write_path.embedded(old)
    write_path.store.model = FakeEmbedder("other").model
    before = write_path.embedder.calls
    receipt = await write_path.indexer.index(file("b.md", TEXT), reuse_from=[document_id(old)])
    assert write_path.embedder.calls - before == whole
    assert receipt.pending
    assert receipt.warning is not None
    assert "model" in receipt.warning


async def test_vectors_that_cannot_be_read_are_recreated(write_path: WritePath) -> None:
    old, new = file("a.md", TEXT), file("b.md", TEXT)
    whole = await write_path.embedded(old)
    write_path.vectors.fault = Fault(BackendUnavailableError("vectors", "gone"))
    assert await write_path.embedded(new, old) == whole
    await write_path.check(new)


async def test_a_source_without_vectors_has_none_to_reuse(write_path: WritePath) -> None:
    old, new = file("a.md", TEXT), file("b.md", TEXT)
    whole = await write_path.embedded(old)
    await write_path.store.drop_vectors()
    await write_path.store.adopt_model(write_path.embedder.model)
    assert await write_path.embedded(new, old) == whole


class CountingTokenizer(WordTokenizer):
    runs = 0

    def offsets(self, text: str) -> list[tuple[int, int]]:
        self.runs += 1
        return super().offsets(text)


async def test_what_was_cut_here_is_not_cut_again_for_its_vectors(write_path: WritePath) -> None:
    tokenizer = write_path.embedder.tokenizer = CountingTokenizer()
    pending = file("a.md", f"# Title\n\n{TEXT}")
    receipt = await write_path.indexer.index(pending, defer_vectors=True)
    assert receipt.pending
    runs = tokenizer.runs
    assert await write_path.indexer.complete(receipt.document_id)
    assert tokenizer.runs == runs > 0
    await write_path.check(pending)

    receipt = await write_path.indexer.index(file("b.md", f"# Other\n\n{TEXT}"), defer_vectors=True)
    write_path.embedder.model = replace(write_path.embedder.model, window=40)  # of another one, which came meanwhile
    runs = tokenizer.runs
    assert await write_path.indexer.complete(receipt.document_id)
    assert tokenizer.runs > runs

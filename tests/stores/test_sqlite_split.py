"""Documents in one file and vectors in another are a store like every other: the shared tests."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from rag_context.domain.documents import Counts
from rag_context.ingest.reconciliation import Reconciler
from rag_context.ingest.split_stores import TwoStoreWriter
from rag_context.ports.reading import KeywordIndex, MetricsStore, VectorStore
from rag_context.ports.writing import Version
from rag_context.resilience.dependency import Dependency
from rag_context.stores.sqlite import open_documents, open_vectors
from tests.stores import test_document_store, test_listing, test_vector_store
from tests.stores.builders import Documents, Stores, axis, chunks_of, document, put, unit_vectors

OTHERWISE = {
    "test_chunks_that_stay_keep_their_vectors_while_the_rest_is_pending",  # they do, under their old filters
    "test_vectors_of_another_dimension_are_rejected_and_the_old_version_stays",  # the new one waits, see below
}
"""What two stores without a transaction cannot do, and do in another way."""

for _contract in (test_document_store, test_listing, test_vector_store):
    for _name, _test in vars(_contract).items():
        if _name.startswith("test_") and _name not in OTHERWISE:
            globals()[f"{_name}__{_contract.__name__.rpartition('.')[2]}"] = _test


class _Whole:
    """The document store, written to by the writer over both."""

    def __init__(self, reads: object, writes: object) -> None:
        self._parts = (writes, reads)

    def __getattr__(self, name: str) -> object:
        for part in self._parts:
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(name)


@dataclass(frozen=True)
class SplitStores:
    """Both halves as one."""

    documents: Documents
    vectors: VectorStore
    texts: KeywordIndex
    metrics: MetricsStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SplitStores]:
    async with open_documents(tmp_path / "documents.db") as home, open_vectors(tmp_path / "vectors.db") as vectors:
        writer = TwoStoreWriter(
            documents=home.documents,
            writer=home.writer,
            registry=home.documents,
            vectors=vectors,
            vector_store=Dependency("vectors", vectors.ping),
            suspect=Reconciler(home.documents, home.writer, vectors).suspect,
        )
        yield SplitStores(cast("Documents", _Whole(home.documents, writer)), vectors, home.texts, home.metrics)


async def test_vectors_count_as_stored_once_their_document_is_indexed(store: Stores) -> None:
    await put(store, document("a"), "one", "two", vector=axis(0))
    await put(store, document("b"), "three")
    assert await store.documents.counts() == Counts(documents=2, pending=1, chunks=3, vectors=2)


async def test_vectors_of_another_dimension_are_rejected_and_the_new_version_waits(store: Stores) -> None:
    await put(store, document("a", "old"), vector=axis(0))
    new = document("a", "new")
    assert not await store.documents.write(Version(new, chunks_of(new), unit_vectors(1, dimension=8)))
    assert await store.documents.get(new.id) == new
    assert await store.documents.pending(5) == [new.id]

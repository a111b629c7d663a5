"""What is special about documents in one file and vectors in another; the tests of every store run on them too."""

import pytest

from rag_context.domain.documents import Counts
from rag_context.ports.writing import Version
from tests.stores.builders import Stores, axis, chunks_of, document, put, unit_vectors


@pytest.fixture
def store_name() -> str:
    return "two files"


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

"""Collections through every way to the memory, with names that no address likes."""

from uuid import uuid4

import numpy as np
import pytest

from rag_context import errors
from rag_context.client import AsyncClient, BadRequestError, ConflictError, NotFoundError
from rag_context.errors import InvalidInputError

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def name() -> str:
    """A collection of this test's own."""
    return f"ä/b c%2F?#&{uuid4().hex}"


async def test_a_collection_lives_from_its_making_to_its_end(context: AsyncClient, name: str) -> None:
    collections = context.collections
    made = await collections.create(name, metadata={"owner": "zoo"}, embedding_provider="mine", embedding_model="m")
    assert (made.name, made.count, made.embedding_provider) == (name, 0, "mine")
    with pytest.raises(ConflictError) as taken:
        await collections.create(name)
    assert isinstance(taken.value, errors.ConflictError)
    assert name in {collection.name for collection in (await collections.list()).collections}

    added = await collections.add(
        name,
        [
            {"id": "a/1", "text": "one", "metadata": {"n": 1, "tags": ["x"]}, "embedding": [1.0, 0.0]},
            {"id": "b", "text": "two", "metadata": {"n": 2}, "embedding": np.array([0.0, 1.0], dtype=np.float32)},
            {"text": "three", "embedding": (1.0, 1.0)},
        ],
    )
    assert (added.count, added.ids[:2]) == (3, ["a/1", "b"])
    assert (await collections.get(name)).dimension == 2
    page = await collections.documents(name, where={"n": {"$gte": 1}}, limit=1, offset=1)
    assert ([document.id for document in page.documents], page.count, page.total) == (["b"], 1, 2)
    assert (await collections.values(name, "n")).values == [1, 2]
    found = await collections.query(name, embedding=np.array([0.1, 1.0]), top_k=2)
    assert found.results[0].id == "b"
    assert [hit.id for hit in (await collections.query(name, embedding=[1, 0], where={"n": 1})).results] == ["a/1"]

    assert (await collections.merge_metadata(name, {"city": "Ulm"})).metadata["owner"] == "zoo"
    assert "owner" not in (await collections.replace_metadata(name, {"city": "Ulm"})).metadata
    assert (await collections.delete(name, "a/1")).id == "a/1"
    with pytest.raises(NotFoundError):
        await collections.delete(name, "a/1")
    assert (await collections.empty(name)).count_deleted == 2
    await collections.drop(name)
    with pytest.raises(NotFoundError) as gone:
        await collections.get(name)
    assert isinstance(gone.value, errors.NotFoundError)
    assert str(gone.value) == f"Collection '{name}' not found"


async def test_the_server_embeds_where_it_is_requested(context: AsyncClient, name: str) -> None:
    await context.collections.create(name, embedding_provider="rag-context")
    await context.collections.add(name, [{"text": "Barn owls hunt voles."}, {"text": "Deer eat leaves."}])
    found = await context.collections.query(name, text="birds of the night", top_k=1)
    assert [hit.text for hit in found.results] == ["Barn owls hunt voles."]


async def test_what_is_wrong_is_reported(context: AsyncClient, name: str) -> None:
    await context.collections.create(name)
    with pytest.raises(BadRequestError) as reported:
        await context.collections.add(name, [{"text": "one", "embedding": [float("nan")]}])
    assert reported.value.status == 400
    with pytest.raises(InvalidInputError, match="`empty`"):
        await context.collections.delete(name, "all")
    with pytest.raises(InvalidInputError, match="not JSON"):
        await context.collections.add(name, [{"text": "one", "metadata": {"what": object()}}])
    with pytest.raises((NotFoundError, BadRequestError), match="nowhere"):
        await context.collections.on("nowhere").list()


async def test_providers_are_listed_and_checked(context: AsyncClient) -> None:
    names = {provider.name for provider in (await context.collections.providers()).providers}
    assert {"embedded", "qdrant", "chroma"} <= names
    assert (await context.collections.provider("embedded")).available
    with pytest.raises(NotFoundError):
        await context.collections.provider("no such")
    assert (await context.collections.test("embedded", connection="default")).status == "healthy"

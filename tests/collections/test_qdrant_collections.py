"""Collections on a Qdrant server: beside others', under faults, and after a crash in the middle."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient, models

from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import Status
from rag_context.domain.vectors import Matrix
from rag_context.domain.where import parse
from rag_context.errors import BackendDataError, BackendRejectedError, InvalidInputError, NotFoundError
from rag_context.ports.provider import Collection, Entry, Provider
from rag_context.stores.qdrant.qdrant_collections import QdrantCollections, open_qdrant_collections
from tests.collections.isolated_providers import qdrant_collections
from tests.servers.qdrant import Endpoint, Running, running

SECRET = "correct horse"


@pytest.fixture
async def provider(qdrant_server: Endpoint) -> AsyncIterator[Provider]:
    async with qdrant_collections(qdrant_server) as opened:
        yield opened


@pytest.fixture
async def client(qdrant_server: Endpoint) -> AsyncIterator[AsyncQdrantClient]:
    made = AsyncQdrantClient(qdrant_server.url, api_key=qdrant_server.api_key, check_compatibility=False)
    yield made
    await made.close()


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    with running(api_key="k3y") as server:
        yield server


def axes(count: int, dimension: int = 4) -> Matrix:
    return np.eye(dimension, dtype=np.float32)[np.arange(count) % dimension]


def notes(count: int) -> list[Entry]:
    return [Entry(f"{number:04d}", SECRET, {"even": number % 2 == 0}) for number in range(count)]


async def storages(client: AsyncQdrantClient, provider: Provider) -> list[str]:
    """Qdrant's collections that hold documents of this provider."""
    assert isinstance(provider, QdrantCollections)
    prefix = provider._connection.collection.removesuffix("-catalogue")
    return [each.name for each in (await client.get_collections()).collections if each.name.startswith(f"{prefix}.")]


async def test_others_collections_are_listed_as_such_and_never_touched(
    provider: Provider, client: AsyncQdrantClient
) -> None:
    await provider.create(Collection("docs"))
    await provider.upsert("docs", notes(3), axes(3))
    (storage,) = await storages(client, provider)
    prefix = storage.split(".")[0]
    others = [f"{prefix}context", f"{prefix}.docs", f"{prefix}.docs.backup", f"{prefix}.docs.{'0' * 31}"]
    for name in others:
        await client.delete_collection(name)
        await client.create_collection(name, models.VectorParams(size=2, distance=models.Distance.DOT))
        await client.upsert(name, [models.PointStruct(id=1, vector=[1.0, 2.0], payload={"mine": True})])
    listed = {collection.name: collection.foreign for collection in await provider.collections()}
    assert listed == {"docs": False, **dict.fromkeys(others, True)}
    assert not await provider.create(Collection(others[0]))
    with pytest.raises(NotFoundError):
        await provider.drop(others[0])
    await provider.empty("docs")
    await provider.drop("docs")
    for name in others:
        assert (await client.count(name)).count == 1
        await client.delete_collection(name)
    assert await storages(client, provider) == []


async def test_two_prefixes_on_one_server_know_nothing_of_each_other(qdrant_server: Endpoint) -> None:
    async with qdrant_collections(qdrant_server) as one, qdrant_collections(qdrant_server) as other:
        await one.create(Collection("docs", {"whose": "one's"}))
        assert await other.collections() == []
        assert await other.create(Collection("docs"))
        await other.upsert("docs", notes(2), axes(2))
        await one.drop("docs")
        assert (await other.entries("docs", EVERYTHING, limit=5)).total == 2


async def test_simultaneous_merges_lose_nothing(qdrant_server: Endpoint) -> None:
    """Of two processes, as it were: neither knows what the other is about to write."""
    async with qdrant_collections(qdrant_server) as one:
        assert isinstance(one, QdrantCollections)
        other = QdrantCollections(one._connection, one._connection.collection.removesuffix("-catalogue"))
        await one.create(Collection("docs"))
        await asyncio.gather(
            *(
                provider.merge_metadata("docs", {f"{number}": number})
                for number in range(10)
                for provider in (one, other)
            )
        )
        described = await one.collection("docs")
        assert described is not None
        assert described.metadata == {f"{number}": number for number in range(10)}


async def test_what_can_be_found_is_found_by_the_server(keyed: Running) -> None:
    async with open_qdrant_collections(keyed.url, api_key="k3y") as provider:
        await provider.create(Collection("docs"))
        await provider.upsert("docs", notes(10), axes(10))
        keyed.calls.clear()
        assert (await provider.entries("docs", parse({"even": True}), limit=2)).total == 5
        (scroll,) = [body for _, path, body in keyed.calls if path.endswith("/points/scroll")]
        assert scroll["with_payload"] == ["id"]
        assert scroll["filter"]
        assert keyed.server.indexes
        (indexes,) = [made for name, made in keyed.server.indexes.items() if ".docs." in name]
        assert set(indexes) == {"facts", "numbers[].path", "numbers[].value"}
        await provider.drop("docs")


async def test_the_nearest_are_found_behind_many_that_a_filter_takes_away(provider: Provider) -> None:
    """Substrings are searched in the rows that come back; more rows are requested until there are enough."""
    vectors = np.ones((300, 8), dtype=np.float32)
    vectors[:, 0] += np.arange(300, dtype=np.float32)[::-1] / 300
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    entries = [
        Entry(f"{number:03d}", "text", {"title": "a needle in it" if number > 290 else "hay"}) for number in range(300)
    ]
    await provider.create(Collection("docs"))
    await provider.upsert("docs", entries, vectors)
    axis = np.eye(8, dtype=np.float32)[0]
    hits = await provider.search("docs", axis, limit=3, where=parse({"title": {"$contains": "needle"}}))
    assert [hit.entry.id for hit in hits] == ["291", "292", "293"]
    hits = await provider.search("docs", axis, limit=50, where=parse({"title": {"$gt": "a"}}))
    assert [hit.entry.id for hit in hits] == [f"{number:03d}" for number in range(50)]


async def test_more_than_one_operation_covers_is_completed_by_a_repeat(provider: Provider) -> None:
    large = "x" * (9 << 20)
    await provider.create(Collection("docs"))
    with pytest.raises(BackendRejectedError) as caught:  # the second operation is one that no server takes
        await provider.upsert("docs", [Entry("1", large), Entry("2", large + "\ud800")], axes(2))
    assert large[:9] not in str(caught.value)
    assert (await provider.entries("docs", EVERYTHING, limit=0)).total == 1
    await provider.upsert("docs", [Entry("1", large), Entry("2", large)], axes(2))
    assert (await provider.entries("docs", EVERYTHING, limit=0)).total == 2


async def test_a_first_write_that_was_cut_off_binds_nothing_that_is_not_seen(
    provider: Provider, client: AsyncQdrantClient
) -> None:
    """The process died after it made the place of the documents, and before it noted their dimension."""
    await provider.create(Collection("docs"))
    assert isinstance(provider, QdrantCollections)
    record = await provider._registry.require("docs")
    await client.create_collection(record.storage, models.VectorParams(size=4, distance=models.Distance.COSINE))
    assert (await provider.entries("docs", EVERYTHING, limit=1)).total == 0
    with pytest.raises(InvalidInputError, match="4 dimensions, not of 3"):
        await provider.upsert("docs", notes(1), axes(1, 3))
    described = await provider.collection("docs")
    assert described is not None
    assert described.dimension == 4
    await provider.upsert("docs", notes(1), axes(1))
    assert (await provider.entries("docs", parse({"even": True}), limit=1)).total == 1


async def test_documents_that_are_gone_are_no_empty_answer(provider: Provider, client: AsyncQdrantClient) -> None:
    """Someone removed Qdrant's collection, or a removal was cut off."""
    await provider.create(Collection("docs"))
    await provider.upsert("docs", notes(3), axes(3))
    (storage,) = await storages(client, provider)
    await client.delete_collection(storage)
    for work in (
        provider.entries("docs", EVERYTHING, limit=1),
        provider.search("docs", axes(1)[0], limit=1, where=EVERYTHING),
        provider.vectors("docs", ["0001"]),
        provider.delete("docs", "0001"),
        provider.values("docs", ("even",)),
    ):
        with pytest.raises(BackendDataError, match="was deleted"):
            await work
    assert [collection.count for collection in await provider.collections()] == [0]
    await provider.upsert("docs", notes(1), axes(1))
    assert (await provider.entries("docs", EVERYTHING, limit=1)).total == 1
    await client.delete_collection(storage)
    await provider.drop("docs")
    with pytest.raises(NotFoundError):
        await provider.entries("docs", EVERYTHING, limit=1)


async def test_a_collection_that_is_removed_while_it_is_read_is_unknown(provider: Provider) -> None:
    await provider.create(Collection("docs"))
    await provider.upsert("docs", notes(3), axes(3))
    assert isinstance(provider, QdrantCollections)
    reading = await provider._storage("docs")
    await provider.drop("docs")
    with pytest.raises(NotFoundError, match="Collection 'docs' not found"):
        await reading.get(["0001"])
    with pytest.raises(NotFoundError, match="Collection 'docs' not found"):
        await provider.upsert("docs", notes(1), axes(1))


async def test_what_a_removal_left_behind_is_never_found_again(provider: Provider, client: AsyncQdrantClient) -> None:
    """A write that overlaps a removal puts documents into a place that no card leads to any more."""
    await provider.create(Collection("docs"))
    await provider.upsert("docs", notes(3), axes(3))
    (storage,) = await storages(client, provider)
    await provider.drop("docs")
    await client.create_collection(storage, models.VectorParams(size=4, distance=models.Distance.COSINE))
    await client.upsert(storage, [models.PointStruct(id=1, vector=[1.0, 0.0, 0.0, 0.0], payload={})])
    await provider.create(Collection("docs"))
    await provider.upsert("docs", notes(2), axes(2))
    assert (await provider.entries("docs", EVERYTHING, limit=5)).total == 2
    await provider.drop("docs")
    assert await storages(client, provider) == []


async def test_a_foreign_point_is_a_backend_error(provider: Provider, client: AsyncQdrantClient) -> None:
    await provider.create(Collection("docs"))
    await provider.upsert("docs", notes(1), axes(1))
    (storage,) = await storages(client, provider)
    await client.upsert(
        storage, [models.PointStruct(id=1, vector=[1.0, 0.0, 0.0, 0.0], payload={"metadata": "no JSON"})]
    )
    for where in (EVERYTHING, parse({"a": {"$not": {"$gt": "x"}}})):
        with pytest.raises(BackendDataError, match="not stored by rag-context"):
            await provider.entries("docs", where, limit=1)


async def test_a_wrong_key_is_reported_and_not_shown(keyed: Running) -> None:
    async with open_qdrant_collections(keyed.url, api_key=SECRET) as provider:
        with pytest.raises(BackendRejectedError, match="rejected the key") as caught:
            await provider.collections()
        health = await provider.health()
    assert SECRET not in str(caught.value)
    assert health.status is Status.UNAVAILABLE
    assert "rejected the key" in str(health.error)

"""Collections in Chroma, on a real server and in a folder: beside others', exact, and complete after a kill."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from rag_context.collections.copying import Located, copy_collection
from rag_context.collections.labels import with_labels
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.vectors import Matrix
from rag_context.domain.where import matches, parse
from rag_context.errors import BackendDataError, BackendError, BackendRejectedError, NotFoundError
from rag_context.ports.provider import Collection, Entry, Provider
from rag_context.stores.chroma import open_chroma
from rag_context.stores.chroma.chroma_api import CollectionGoneError, Rows
from rag_context.stores.chroma.chroma_collections import ChromaCollections, open_chroma_collections
from rag_context.stores.chroma.collections_storage import rows_of
from rag_context.stores.chroma.server import ChromaServer
from tests.collections.isolated_providers import chroma_collections
from tests.collections.memory_collections import MemoryCollections
from tests.servers.chroma import chroma_server
from tests.servers.process import ServerProcess
from tests.stores.builders import axis, chunks_of, document

COUNT = 900
"""More than are compared one by one."""


def address(server: ServerProcess) -> str:
    return f"http://{server.host}:{server.port}"


@pytest.fixture
async def provider(chroma_collections_server: ServerProcess) -> AsyncIterator[Provider]:
    async with chroma_collections(address(chroma_collections_server)) as opened:
        yield opened


@pytest.fixture
async def api(chroma_collections_server: ServerProcess) -> AsyncIterator[ChromaServer]:
    server = ChromaServer(address(chroma_collections_server))
    yield server
    await server.aclose()


def axes(count: int) -> Matrix:
    return np.eye(4, dtype=np.float32)[np.arange(count) % 4]


def notes(count: int) -> list[Entry]:
    return [Entry(f"{number:04d}", f"text {number}", {"number": number}) for number in range(count)]


async def test_others_collections_are_listed_as_such_and_never_touched(
    chroma_collections_server: ServerProcess, api: ChromaServer
) -> None:
    prefix = f"test-{uuid4().hex[:8]}"
    async with open_chroma_collections(address(chroma_collections_server), prefix=prefix) as provider:
        for name in (f"{prefix}.theirs", f"{prefix}.docs.backup", f"{prefix}-docs"):
            made = await api.create(name, {"mine": True})
            assert made is not None
            await api.upsert(made.id, Rows(["1"], [{"mine": True}], ["text"], axes(1)))
        await provider.create(Collection("docs"))
        listed = {collection.name: collection.foreign for collection in await provider.collections()}
        assert listed == {
            "docs": False,
            f"{prefix}.theirs": True,
            f"{prefix}.docs.backup": True,
            f"{prefix}-docs": True,
        }
        assert not await provider.create(Collection(f"{prefix}-docs"))
        for name in (f"{prefix}.theirs", f"{prefix}-docs"):
            with pytest.raises(NotFoundError):
                await provider.drop(name)
            with pytest.raises(NotFoundError):
                await provider.delete(name, "1")
            with pytest.raises(NotFoundError):
                await provider.upsert(name, notes(1), axes(1))
        with pytest.raises(BackendRejectedError, match="not made by rag-context"):
            await provider.create(Collection("theirs"))
        with pytest.raises(BackendRejectedError, match="not made by rag-context"):
            await provider.drop("theirs")
        await provider.drop("docs")
        for name in (f"{prefix}.theirs", f"{prefix}.docs.backup", f"{prefix}-docs"):
            found = await api.find(name)
            assert found is not None
            assert await api.count(found.id) == 1
            await api.drop(name)


async def test_others_collections_show_their_metadata_and_labels_and_a_copy_keeps_both_and_the_name(
    chroma_collections_server: ServerProcess, api: ChromaServer
) -> None:
    name = f"theirs-{uuid4().hex[:8]}"
    described = {"owner": "them", "embedding_provider": "openai", "embedding_model": "ada"}
    made = await api.create(name, described)
    assert made is not None
    await api.upsert(made.id, Rows(["1"], [{"mine": True}], ["text"], axes(1)))
    elsewhere = MemoryCollections()
    async with open_chroma_collections(address(chroma_collections_server), prefix="test-labels") as provider:
        theirs = await provider.collection(name)
        assert theirs is not None
        shown = with_labels(theirs)
        assert (shown.metadata, shown.embedding_provider, shown.embedding_model) == ({"owner": "them"}, "openai", "ada")
        for _ in range(2):
            report = await copy_collection(Located(provider, name), Located(elsewhere, name))
            assert report.documents == 1
    copied = await elsewhere.collection(name)
    assert copied is not None
    shown = with_labels(copied)
    assert (shown.metadata, shown.embedding_provider, shown.embedding_model) == ({"owner": "them"}, "openai", "ada")
    assert not shown.foreign
    found = await api.find(name)
    assert found is not None
    assert found.fields == described
    await api.drop(name)


async def test_a_name_can_be_used_once_however_many_request_it(provider: Provider) -> None:
    made = await asyncio.gather(*(provider.create(Collection("docs", {"by": number})) for number in range(8)))
    assert sum(made) == 1
    described = await provider.collection("docs")
    assert described is not None
    assert described.metadata == {"by": made.index(True)}


async def test_simultaneous_merges_within_a_process_lose_nothing(provider: Provider) -> None:
    await provider.create(Collection("docs"))
    await asyncio.gather(*(provider.merge_metadata("docs", {f"{number}": number}) for number in range(10)))
    described = await provider.collection("docs")
    assert described is not None
    assert described.metadata == {f"{number}": number for number in range(10)}


async def test_a_number_that_was_replaced_is_not_found_by_what_chroma_kept_of_it(provider: Provider) -> None:
    await provider.create(Collection("docs"))
    await provider.upsert("docs", [Entry("1", "one", {"a": 5, "b": 7, "c": [1]})], axes(1))
    await provider.upsert("docs", [Entry("1", "one", {"b": "7", "c": []})], axes(1))
    for where, total in (
        ({"a": {"$gt": 1}}, 0),
        ({"$not": {"a": {"$gt": 1}}}, 1),
        ({"b": {"$lte": 7}}, 0),
        ({"b": "7"}, 1),
        ({"b": {"$nin": ["7", "8"]}}, 0),
        ({"b": {"$in": ["8", "7"]}}, 1),
        ({"c": {"$contains": 1}}, 0),
        ({"a": {"$exists": False}}, 1),
    ):
        assert (await provider.entries("docs", parse(where), limit=5)).total == total, where


async def test_hundreds_of_values_in_one_filter_are_answered_exactly(provider: Provider) -> None:
    await provider.create(Collection("docs"))
    await provider.upsert("docs", notes(50), axes(50))
    page = await provider.entries("docs", parse({"number": {"$in": list(range(40, 900))}}), limit=100)
    assert [entry.id for entry in page.entries] == [f"{number:04d}" for number in range(40, 50)]
    page = await provider.entries("docs", parse({"number": {"$nin": list(range(3, 900))}}), limit=100)
    assert page.total == 3


@pytest.fixture(scope="module")
def drawn() -> Matrix:
    found = np.random.default_rng(3).normal(size=(COUNT, 16)).astype(np.float32)
    found[100:160] = found[100]  # as many equal ones
    normalised: Matrix = found / np.linalg.norm(found, axis=1, keepdims=True)
    return normalised


async def test_the_nearest_of_many_are_the_nearest_under_every_filter(provider: Provider, drawn: Matrix) -> None:
    entries = [Entry(f"{n:04d}", "t", {"n": n, "kind": f"k{n % 3}", "word": f"w{n % 7} end"}) for n in range(COUNT)]
    await provider.create(Collection("docs"))
    await provider.upsert("docs", entries, drawn)
    for asked in (
        {},
        {"kind": "k1"},
        {"n": {"$gte": 20}},
        {"n": {"$lt": 5}},
        {"word": {"$contains": "3 e"}},
        {"$not": {"word": {"$contains": "3 e"}}},
        {"kind": "none"},
    ):
        where = parse(asked)
        for query in (drawn[7], drawn[100], -drawn[500]):
            passing = [n for n in range(COUNT) if matches(where, entries[n].metadata)]
            cosines = np.vecdot(drawn[passing], query)
            best = sorted(zip(passing, cosines.tolist(), strict=True), key=lambda each: (-round(each[1], 5), each[0]))
            hits = await provider.search("docs", query, limit=10, where=where)
            found = [(int(hit.entry.id), round(hit.cosine, 3)) for hit in hits]
            wanted = [(n, round(cosine, 3)) for n, cosine in best[:10]]
            assert [cosine for _, cosine in found] == pytest.approx([cosine for _, cosine in wanted], abs=2e-3), asked
            assert len({n for n, _ in found} & {n for n, _ in wanted}) >= len(wanted) - 1, asked


async def test_emptying_is_all_or_nothing_when_the_server_is_killed_meanwhile(tmp_path: Path) -> None:
    with chroma_server(folder=tmp_path) as server:
        async with open_chroma_collections(address(server)) as provider:
            await provider.create(Collection("docs"))
            await provider.upsert("docs", notes(300), axes(300))
            emptying = asyncio.create_task(provider.empty("docs"))
            await asyncio.wait({emptying}, timeout=0.05)
            server.kill()
            await asyncio.wait({emptying})
            server.start()
            left = (await provider.entries("docs", EVERYTHING, limit=1)).total
            assert left in (0, 300)
            assert await provider.empty("docs") == left
            assert (await provider.entries("docs", parse({"number": {"$gte": 0}}), limit=1)).total == 0


async def test_what_a_removal_left_behind_is_never_found_again(provider: Provider, api: ChromaServer) -> None:
    """A write that overlaps a removal makes a place for documents that belongs to no collection any more."""
    assert isinstance(provider, ChromaCollections)
    await provider.create(Collection("docs"))
    gone = await provider._registry.require("docs")
    await provider.drop("docs")
    left = await api.create(gone.rows_name, gone.rows_fields)
    assert left is not None
    await api.upsert(left.id, Rows(["=x"], [{"metadata": "{}"}], ["text"], axes(1)))
    await provider.create(Collection("docs"))
    assert (await provider.entries("docs", EVERYTHING, limit=5)).total == 0
    described = await provider.collection("docs")
    assert described is not None
    assert (described.count, described.dimension) == (0, None)
    await provider.upsert("docs", notes(2), np.eye(7, dtype=np.float32)[:2])
    assert [entry.id for entry in (await provider.entries("docs", EVERYTHING, limit=5)).entries] == ["0000", "0001"]


async def test_a_write_to_what_was_just_emptied_is_not_lost(provider: Provider) -> None:
    """It knows the place that is no more; as two processes would."""
    assert isinstance(provider, ChromaCollections)
    await provider.create(Collection("docs"))
    await provider.upsert("docs", notes(3), axes(3))
    known = await provider._registry.require("docs")
    other = ChromaCollections(provider._api, provider._registry._prefix)
    await other.empty("docs")
    with pytest.raises(CollectionGoneError):
        await provider._write(known, 4, rows_of(notes(1), axes(1)))
    await asyncio.gather(*(provider.upsert("docs", [note], axes(1)) for note in notes(8)))
    assert (await provider.entries("docs", EVERYTHING, limit=1)).total == 8


async def test_a_foreign_row_is_a_backend_error(provider: Provider, api: ChromaServer) -> None:
    await provider.create(Collection("docs"))
    await provider.upsert("docs", notes(1), axes(1))
    assert isinstance(provider, ChromaCollections)
    ours = (await provider._registry.require("docs")).rows
    assert ours is not None
    await api.upsert(ours.id, Rows(["=x"], [{"metadata": "no JSON"}], ["text"], axes(1)))
    with pytest.raises(BackendDataError, match="not stored by rag-context"):
        await provider.entries("docs", EVERYTHING, limit=5)


async def test_a_folder_is_kept_and_measured_and_shared_with_the_vectors_of_documents(tmp_path: Path) -> None:
    async with open_chroma(tmp_path, "documents") as vectors, open_chroma_collections(tmp_path) as provider:
        written = document("a")
        await vectors.put(written, chunks_of(written), axis(0)[None])
        await provider.create(Collection("docs"))
        await provider.upsert("docs", notes(5), axes(5))
        assert [collection.name for collection in await provider.collections()] == ["docs", "documents"]
        assert await vectors.count() == 1
        health = await provider.health()
        assert health.collections == 1
        assert health.storage_bytes is not None
        assert health.storage_bytes > 10_000
    async with open_chroma_collections(tmp_path) as provider:
        assert (await provider.entries("docs", EVERYTHING, limit=1)).total == 5


async def test_a_folder_that_can_never_be_one_is_a_backend_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    async with open_chroma_collections(tmp_path / "file") as provider:
        with pytest.raises(BackendError):
            await provider.collections()
        assert (await provider.health()).error

"""A collection and the model that made its vectors: recorded, compared, and made again by another."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np
import pytest

from rag_context.collections.collection_maintenance import CollectionReindexing
from rag_context.collections.collections import CollectionInput, Collections
from rag_context.collections.labels import OWN_EMBEDDER, RECORD, built_name
from rag_context.collections.provider_connections import DEFAULT, CollectionRef
from rag_context.collections.searching import CollectionQuery, keyword_scores, search
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendUnavailableError, ConflictError, InvalidInputError
from rag_context.ports.provider import Collection, Provider
from rag_context.testing.fakes import FakeEmbedder
from tests.collections.memory_collections import MemoryCollections
from tests.servers.faults import UNAVAILABLE, FaultProxy, Pass, Refusal, fault_proxy
from tests.servers.process import ServerProcess
from tests.servers.qdrant import Endpoint

from .conftest import OPENERS
from .isolated_providers import chroma_collections, qdrant_collections
from .services import connections_to

DOCS = CollectionRef("docs")
TEXTS = [f"note number {number}" for number in range(250)]


class OtherModel(FakeEmbedder):
    """Another model that may fail after some texts."""

    def __init__(self, dimension: int = 64, fail_after: int = 1 << 30) -> None:
        super().__init__("other", dimension=dimension)
        self.embedded: list[str] = []
        self._fail_after = fail_after

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        if len(self.embedded) >= self._fail_after:
            raise BackendUnavailableError("embedder", "gone")
        self.embedded += texts
        return await super().embed_documents(texts)


@pytest.fixture(params=["embedded", "postgres", "qdrant over http", "chroma"])
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    """Every provider that can switch."""
    async with OPENERS[request.param](request) as opened:
        yield opened


async def filled(provider: Provider, texts: Sequence[str] = TEXTS[:20]) -> None:
    collections = Collections(connections_to({DEFAULT: provider}))
    made = await collections.create(Collection("docs", {"owner": "me"}, OWN_EMBEDDER, "label"), DEFAULT)
    drafts = [CollectionInput(text, {"number": number}, f"{number:03d}") for number, text in enumerate(texts)]
    await collections.add(made, DEFAULT, drafts)


def under(provider: Provider, embedder: FakeEmbedder) -> Collections:
    return Collections(connections_to({DEFAULT: provider}, embedder))


@pytest.mark.parametrize("dimension", [64, 32])
async def test_another_model_is_rejected_until_the_vectors_are_recreated(provider: Provider, dimension: int) -> None:
    """V-4, D-13: also of another dimension; metadata, labels, date and documents stay."""
    await filled(provider)
    before = await provider.collection("docs")
    collections = under(provider, OtherModel(dimension))
    for asked in (search(collections, DOCS, CollectionQuery("x", limit=1)), collections.embed_query(DOCS, "x")):
        with pytest.raises(ConflictError, match=r"rag-context reindex.*'docs'"):
            await asked
    with pytest.raises(ConflictError):
        await collections.add(await collections.get(DOCS), DEFAULT, [CollectionInput("new")])

    (done,) = await CollectionReindexing(collections).run()
    assert (done.ref, done.documents, done.error) == (DOCS, 20, None)
    after = await provider.collection("docs")
    assert before is not None
    assert after is not None
    assert (after.embedding_model, after.created, after.count) == ("label", before.created, 20)
    assert after.dimension == dimension
    assert {key: value for key, value in after.metadata.items() if key != RECORD} == {"owner": "me"}
    (best, *_) = await search(collections, DOCS, CollectionQuery(TEXTS[7], limit=3))
    assert (best.entry.id, best.entry.metadata) == ("007", {"number": 7})
    assert await provider.collection(built_name("docs")) is None
    assert await CollectionReindexing(collections).run() == []


async def test_a_run_that_was_cut_short_goes_on_where_it_was(provider: Provider) -> None:
    """D-13: and until it is done, the old vectors are all there."""
    await filled(provider, TEXTS)
    stopped = OtherModel(fail_after=100)
    (reported,) = await CollectionReindexing(under(provider, stopped)).run()
    assert reported.error == "gone"
    assert (await provider.entries("docs", EVERYTHING, limit=1)).total == len(TEXTS)
    names = [one.name for one in await under(provider, stopped).listing(DEFAULT)]
    assert "docs" in names
    assert built_name("docs") not in names
    await provider.delete("docs", "003")  # meanwhile
    again = OtherModel()
    (reported,) = await CollectionReindexing(under(provider, again)).run()
    assert reported.error is None
    assert len(again.embedded) == len(TEXTS) - len(stopped.embedded)
    page = await provider.entries("docs", EVERYTHING, limit=1000)
    assert page.total == len(TEXTS) - 1
    assert "003" not in {entry.id for entry in page.entries}


LAST_STEP = {"qdrant": b"-catalogue/points/delete", "chroma": b"DELETE "}
"""The last request of a provider to its server when it switches; the embedded one does it all in one transaction."""


@asynccontextmanager
async def behind_a_proxy(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Provider, FaultProxy]]:
    """A provider, and what goes wrong on its way to the server."""
    if kind == "chroma":
        server: ServerProcess = request.getfixturevalue("chroma_collections_server")
        async with fault_proxy(server.host, server.port) as proxy, chroma_collections(proxy.url()) as provider:
            yield provider, proxy
        return
    there: Endpoint = request.getfixturevalue("qdrant_server")
    place = urlsplit(there.url)
    async with (
        fault_proxy(str(place.hostname), place.port or 6333) as proxy,
        qdrant_collections(replace(there, url=proxy.url())) as provider,
    ):
        yield provider, proxy


@pytest.mark.parametrize("kind", LAST_STEP)
async def test_a_switch_that_was_cut_short_costs_no_documents(kind: str, request: pytest.FixtureRequest) -> None:
    """D-13: what was built is in use already, and is still there under the name that it was built by."""
    async with behind_a_proxy(kind, request) as (provider, proxy):
        await filled(provider)
        proxy.fault = Refusal(LAST_STEP[kind], UNAVAILABLE)
        (reported,) = await CollectionReindexing(under(provider, OtherModel())).run()
        assert reported.error is not None
        proxy.fault = Pass()
        await whole_after_the_switch(provider)


async def whole_after_the_switch(provider: Provider) -> None:
    """The documents are there with the new vectors, and can be recreated and removed."""
    assert await provider.collection(built_name("docs")) is not None
    assert (await search(under(provider, OtherModel()), DOCS, CollectionQuery(TEXTS[3], limit=1)))[0].entry.id == "003"

    (reported,) = await CollectionReindexing(under(provider, FakeEmbedder())).run()
    assert reported.error is None
    collections = under(provider, FakeEmbedder())
    assert (await search(collections, DOCS, CollectionQuery(TEXTS[3], limit=1)))[0].entry.id == "003"
    assert (await provider.entries("docs", EVERYTHING, limit=1)).total == 20
    await collections.drop(DOCS)
    assert await provider.collection("docs") is None


async def test_a_collection_from_before_is_bound_only_to_a_model_that_makes_its_vectors() -> None:
    """V-4: its record is missing, so some of its texts are embedded again and compared."""
    provider = MemoryCollections()
    await filled(provider)
    await provider.replace_metadata("docs", {"owner": "me"})
    with pytest.raises(ConflictError, match="another model"):
        await search(under(provider, OtherModel()), DOCS, CollectionQuery("x", limit=1))
    assert (await search(under(provider, FakeEmbedder()), DOCS, CollectionQuery(TEXTS[5], limit=1)))[
        0
    ].entry.id == "005"
    with pytest.raises(ConflictError, match="made by fake"):
        await search(under(provider, OtherModel()), DOCS, CollectionQuery("x", limit=1))


async def test_replaced_metadata_keeps_the_record_and_no_caller_can_write_it() -> None:
    """V-4."""
    provider = MemoryCollections()
    await filled(provider)
    collections = under(provider, FakeEmbedder())
    await collections.replace_metadata(DOCS, {"owner": "you"})
    assert RECORD in (await collections.get(DOCS)).metadata
    with pytest.raises(ConflictError):
        await search(under(provider, OtherModel()), DOCS, CollectionQuery("x", limit=1))


async def test_a_provider_that_cannot_switch_says_what_to_do() -> None:
    """D-13: a plug-in need not be able to."""
    provider = MemoryCollections()
    await filled(provider)
    (reported,) = await CollectionReindexing(under(provider, OtherModel())).run()
    assert "create a new collection" in str(reported.error)
    assert (await provider.entries("docs", EVERYTHING, limit=1)).total == 20


async def test_a_write_during_the_switch_is_not_lost(provider: Provider) -> None:
    """D-13: writers of this process wait for the switch, or it sees what they wrote."""
    await filled(provider)
    collections = under(provider, OtherModel())
    vector = np.zeros(64, dtype=np.float32)
    vector[0] = 1.0
    collection = await collections.get(DOCS)

    async def write(number: int) -> None:
        await collections.add(collection, DEFAULT, [CollectionInput("late", {}, f"late {number}", vector)])

    run = asyncio.create_task(CollectionReindexing(collections).run())
    for number in range(10):
        await write(number)
    await run
    page = await provider.entries("docs", EVERYTHING, limit=100)
    assert {f"late {number}" for number in range(10)} <= {entry.id for entry in page.entries}


async def test_keyword_search_needs_a_filter_that_selects_few_enough_documents() -> None:
    """V-7: the best of a part would look like the best of all."""
    provider = MemoryCollections()
    await filled(provider)
    with pytest.raises(InvalidInputError, match="at most 10 documents, and 20 match"):
        await keyword_scores(provider, "docs", "note", EVERYTHING, limit=5, most_read=10)

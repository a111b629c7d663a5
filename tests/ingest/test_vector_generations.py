"""A new generation of vectors beside the one that answers, on every vector store that is one of two."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rag_context.domain.documents import Document
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Generations, Rebuild
from rag_context.errors import BackendRejectedError
from rag_context.ingest.vector_generations import GRACE_S, GenerationRebuilder
from rag_context.ports.writing import Version
from rag_context.settings import Settings, StoreSettings
from rag_context.stores.mongodb.document_store import MongoDocuments
from rag_context.stores.sqlite.document_ports import SqliteSplitDocuments
from rag_context.testing import FakeEmbedder, FrozenClock
from rag_context.wiring.stores import Stores, open_stores
from tests.ingest.split_stores import chunks_of, document
from tests.servers.mongodb import empty, mongodb_database
from tests.servers.process import ServerProcess
from tests.servers.qdrant import Endpoint

OLD, NEW = FakeEmbedder("old", dimension=16), FakeEmbedder("new", dimension=24)
OTHER = FakeEmbedder("other", dimension=24)
TEXTS = {
    "fox": ("Red foxes hunt mice at night", "They sleep by day"),
    "ship": ("Container vessels cross the ocean",),
    "weir": ("The sluice is opened at noon", "Herons wait below it"),
}


@pytest.fixture(scope="module", params=["embedded and qdrant", "embedded and chroma", "mongodb and embedded"])
def backends(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Settings of the stores, all but the names within them."""
    match request.param:
        case "embedded and qdrant":
            found: Endpoint = request.getfixturevalue("shared_qdrant")
            yield {"vectors": "qdrant", "qdrant_url": found.url, "qdrant_api_key": found.api_key}
        case "embedded and chroma":
            made: ServerProcess = request.getfixturevalue("shared_chroma")
            yield {"vectors": "chroma", "chroma_url": f"http://{made.host}:{made.port}"}
        case _:
            with mongodb_database(request.getfixturevalue("shared_mongodb")) as database:
                yield {"documents": "mongodb", "mongodb_uri": database}


@pytest.fixture
def settings(backends: dict[str, Any], tmp_path: Path) -> Settings:
    name = f"test-{uuid4().hex}"
    if "mongodb_uri" in backends:
        empty(backends["mongodb_uri"])
    named: dict[str, Any] = {"qdrant_collection": name, "chroma_collection": name}
    return Settings(data_dir=tmp_path, stores=StoreSettings(**backends, **named))


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def stores(settings: Settings, clock: FrozenClock) -> AsyncIterator[Stores]:
    """Two stores with the old model's vectors."""
    async with open_stores(settings, clock=clock) as opened:
        await opened.registry.adopt_model(OLD.model)
        for each, sentences in TEXTS.items():
            await write(opened, document(each, *sentences))
        yield opened


async def write(stores: Stores, written: Document) -> None:
    chunks = chunks_of(written)
    vectors = await OLD.embed_documents([chunk.text for chunk in chunks])
    assert await stores.writer.write(Version(written, chunks, vectors, OLD.model.fingerprint))


def rebuilder_of(stores: Stores) -> GenerationRebuilder:
    assert isinstance(stores.rebuilder, GenerationRebuilder)
    return stores.rebuilder


async def add(stores: Stores, written: Document) -> bool:
    vectors = await NEW.embed_documents([chunk.text for chunk in chunks_of(written)])
    return await rebuilder_of(stores).add(written.id, written.content_hash, vectors, NEW.model.fingerprint)


async def best(stores: Stores, model: FakeEmbedder, query: str) -> list[str]:
    hits = await stores.vectors.search(await model.embed_query(query), limit=20, where=Filter())
    return [hit.chunk.document_id for hit in hits]


async def gone_by(clock: FrozenClock, rebuilder: GenerationRebuilder) -> None:
    """Time in which every process learns which generation is active; the others are removed after it."""
    for _ in range(2):
        assert await rebuilder.under_way() is None
        clock.advance(GRACE_S)
    assert await rebuilder.under_way() is None


async def test_the_old_generation_answers_until_the_new_one_is_complete(stores: Stores, clock: FrozenClock) -> None:
    rebuilder = rebuilder_of(stores)
    await rebuilder.begin(NEW.model)
    assert await rebuilder.remaining() == 3
    assert await rebuilder.missing("", 10) == sorted(document(each).id for each in TEXTS)
    for each, sentences in TEXTS.items():
        assert not await rebuilder.switch(NEW.model.fingerprint, ())
        assert (await best(stores, OLD, "foxes hunt mice"))[0] == document("fox").id
        assert stores.vectors.made_by == OLD.model.fingerprint
        assert await add(stores, document(each, *sentences))
    version = stores.documents.version
    assert await rebuilder.switch(NEW.model.fingerprint, ())
    assert stores.documents.version > version, "no answer of before is remembered"
    assert await stores.registry.recorded_model() == NEW.model
    assert stores.vectors.made_by == NEW.model.fingerprint
    assert (await best(stores, NEW, "foxes hunt mice"))[0] == document("fox").id
    assert len(await best(stores, NEW, "foxes")) == 5
    assert (await stores.documents.counts()).pending == 0
    # What answered before is removed once no one can ask it any more, and the next run works as this one did.
    await gone_by(clock, rebuilder)
    assert stores.reconciler is not None
    assert not await stores.reconciler.compare()
    await rebuilder.begin(NEW.model)
    for each, sentences in TEXTS.items():
        assert await add(stores, document(each, *sentences))
    assert await rebuilder.switch(NEW.model.fingerprint, ())
    assert (await best(stores, NEW, "container vessels"))[0] == document("ship").id


async def test_what_is_written_or_deleted_meanwhile_is_right_afterwards(stores: Stores) -> None:
    rebuilder = rebuilder_of(stores)
    await rebuilder.begin(NEW.model)
    for each, sentences in TEXTS.items():
        await add(stores, document(each, *sentences))
    changed = document("fox", "Grey foxes climb trees")
    await write(stores, changed)
    await stores.writer.delete(document("ship").id)
    assert await rebuilder.missing("", 10) == [changed.id]
    assert not await add(stores, document("fox", *TEXTS["fox"])), "an earlier version"
    assert not await add(stores, document("ship", *TEXTS["ship"])), "it is gone"
    assert (await best(stores, OLD, "grey foxes climb"))[0] == changed.id
    assert await add(stores, changed)
    assert await rebuilder.switch(NEW.model.fingerprint, ())
    assert sorted(await best(stores, NEW, "foxes")) == sorted([changed.id, *[document("weir").id] * 2])
    assert stores.reconciler is not None
    assert not await stores.reconciler.compare()


async def test_a_run_outlives_its_process(stores: Stores, settings: Settings) -> None:
    await rebuilder_of(stores).begin(NEW.model)
    await add(stores, document("fox", *TEXTS["fox"]))
    async with open_stores(settings) as other:
        run = await rebuilder_of(other).under_way()
        assert run is not None
        assert run.model == NEW.model
        assert document("fox").id not in await rebuilder_of(other).missing("", 10)
        for each in ("ship", "weir"):
            assert await add(other, document(each, *TEXTS[each]))
        assert await rebuilder_of(other).switch(NEW.model.fingerprint, ())
    assert await rebuilder_of(stores).under_way() is None
    assert stores.vectors.made_by == NEW.model.fingerprint
    assert (await best(stores, NEW, "sluice opened"))[0] == document("weir").id
    with pytest.raises(BackendRejectedError):
        await add(stores, document("fox", *TEXTS["fox"]))


async def test_an_abandoned_generation_is_removed(stores: Stores, clock: FrozenClock) -> None:
    rebuilder = rebuilder_of(stores)
    await rebuilder.begin(NEW.model)
    await add(stores, document("fox", *TEXTS["fox"]))
    await rebuilder.abandon()
    await gone_by(clock, rebuilder)
    await rebuilder.begin(NEW.model)
    assert len(await rebuilder.missing("", 10)) == 3
    assert (await best(stores, OLD, "foxes hunt mice"))[0] == document("fox").id


async def test_processes_that_begin_at_once_make_one_generation(stores: Stores, settings: Settings) -> None:
    async with open_stores(settings) as other:
        begun = await asyncio.gather(*(rebuilder_of(each).begin(NEW.model) for each in (stores, other, stores)))
        assert sorted(begun) == [False, False, True]
        for each, sentences in TEXTS.items():
            assert await add(other if each == "fox" else stores, document(each, *sentences))
        assert await rebuilder_of(other).switch(NEW.model.fingerprint, ())
    assert await rebuilder_of(stores).under_way() is None
    assert (await best(stores, NEW, "foxes hunt mice"))[0] == document("fox").id


async def test_a_process_that_is_late_changes_no_other_run(stores: Stores) -> None:
    registry, rebuilder = stores.documents, rebuilder_of(stores)
    assert isinstance(registry, SqliteSplitDocuments | MongoDocuments)
    await rebuilder.begin(NEW.model)
    await rebuilder.abandon()
    left = await registry.generations()
    assert left.inactive is not None
    assert await rebuilder.begin(OTHER.model)
    made = await registry.generations()
    assert made.inactive != left.inactive, "what is removed late is not what is made now"
    late = Rebuild(NEW.model, 0.0)
    assert not await registry.record_generations(left, replace(left, inactive=None)), "it was removed"
    assert not await registry.record_generations(replace(left, run=late), replace(left, run=late)), "it got on"
    assert not await registry.record_generations(left, replace(left, run=late)), "it begins"
    assert await registry.generations() == made
    assert made.run is not None
    assert made.run.model == OTHER.model
    assert made.run.touched > 0.0
    await rebuilder.abandon()
    assert not await registry.record_generations(made, made)
    assert (await registry.generations()).run is None


async def test_a_run_that_was_begun_again_is_completed_before_it_answers(stores: Stores, settings: Settings) -> None:
    rebuilder, registry = rebuilder_of(stores), stores.documents
    assert isinstance(registry, SqliteSplitDocuments | MongoDocuments)
    await rebuilder.begin(NEW.model)
    for each, sentences in TEXTS.items():
        assert await add(stores, document(each, *sentences))
    earlier = await registry.generations()
    async with open_stores(settings) as other:
        await rebuilder_of(other).abandon()
        assert await rebuilder_of(other).begin(NEW.model)
    assert earlier.inactive is not None
    ended = Generations(earlier.inactive, NEW.model.fingerprint, inactive=earlier.active)
    assert not await registry.record_generations(earlier, ended)
    assert not await rebuilder.switch(NEW.model.fingerprint, ())
    for each, sentences in TEXTS.items():
        assert await add(stores, document(each, *sentences))
    assert await rebuilder.switch(NEW.model.fingerprint, ())
    assert (await best(stores, NEW, "container vessels"))[0] == document("ship").id

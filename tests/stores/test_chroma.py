"""Chroma as a vector store: a real server, and a real one in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import httpx2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import Document, Metadata, Origin, Tenant
from rag_context.domain.search import Filter, Passage
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendDataError, BackendRejectedError, ConfigurationError
from rag_context.ports.reading import VectorStore
from rag_context.ports.writing import VectorWriter
from rag_context.stores.chroma import ChromaVectors, open_chroma
from rag_context.stores.chroma.chroma_api import Rows
from rag_context.stores.chroma.payload import rows_of
from rag_context.testing import FakeEmbedder
from tests.servers.process import ServerProcess
from tests.stores.builders import DIMENSION, NOON, axis, chunks_of, document, ids, minutes, unit_vectors
from tests.stores.filters import corpora, filters, passes

EVERYTHING = Filter()
MODEL = FakeEmbedder(dimension=DIMENSION).model

Open: TypeAlias = Callable[[str], AbstractAsyncContextManager[ChromaVectors]]


@pytest.fixture(scope="module")
def server(shared_chroma: ServerProcess) -> ServerProcess:
    return shared_chroma


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chroma")


@pytest.fixture(params=["server", "folder"])
def opener(request: pytest.FixtureRequest) -> Open:
    """Opens a collection, in either kind of Chroma."""
    if request.param == "server":
        server: ServerProcess = request.getfixturevalue("server")
        return lambda name: open_chroma(f"http://{server.host}:{server.port}", name)
    folder: Path = request.getfixturevalue("folder")
    return lambda name: open_chroma(folder, name)


@pytest.fixture
def name() -> str:
    return f"test-{uuid4()}"


@pytest.fixture
async def vectors(opener: Open, name: str) -> AsyncIterator[ChromaVectors]:
    """An empty collection."""
    async with opener(name) as opened:
        yield opened


async def put(vectors: VectorWriter, document: Document, *texts: str, vector: Vector) -> list[str]:
    """Store a document, each chunk with `vector`; returns the chunk ids."""
    chunks = chunks_of(document, *texts)
    await vectors.put(document, chunks, np.tile(vector, (len(chunks), 1)))
    return [chunk.id for chunk in chunks]


async def put_all(vectors: ChromaVectors, documents: Sequence[Document], matrix: Matrix) -> None:
    """Store documents of one chunk each, many per call."""
    opened = await vectors._api.open(vectors._name)
    rows = [rows_of(each, chunks_of(each), row[np.newaxis]) for each, row in zip(documents, matrix, strict=True)]
    for start in range(0, len(rows), 500):
        some = rows[start : start + 500]
        merged = Rows(
            [id_ for each in some for id_ in each.ids],
            [fields for each in some for fields in each.fields],
            [text for each in some for text in each.texts],
            matrix[start : start + 500],
        )
        await vectors._api.upsert(opened.id, merged)


def mix(*parts: float) -> Vector:
    """A unit vector with these shares of the first axes."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(parts)] = parts
    unit: Vector = vector / np.float32(np.linalg.norm(vector))
    return unit


def test_it_fits_both_ports(vectors: ChromaVectors) -> None:
    ports: tuple[VectorStore, VectorWriter] = (vectors, vectors)
    assert len(set(map(id, ports))) == 1


async def test_the_nearest_comes_first_with_its_cosine(vectors: ChromaVectors) -> None:
    near = await put(vectors, document("near"), vector=mix(3, 4))
    far = await put(vectors, document("far"), vector=mix(-1))
    hits = await vectors.search(mix(1), limit=5, where=EVERYTHING)
    assert ids(hits) == near + far
    assert [hit.cosine for hit in hits] == pytest.approx([0.6, -1.0], abs=1e-6)


async def test_a_hit_names_its_chunk_as_ranking_needs_it(vectors: ChromaVectors) -> None:
    written = document("a", content_type="chat", thread="talk")
    _, second = await put(vectors, written, "one", "two", vector=axis(0))
    hits = await vectors.search(axis(0), limit=5, where=EVERYTHING)
    hit = next(hit for hit in hits if hit.chunk.id == second)
    assert (hit.chunk.document_id, hit.chunk.position) == (written.id, 1)
    assert (hit.chunk.content_type, hit.chunk.thread) == ("chat", "talk")


async def test_a_passage_comes_back_as_it_was_stored(vectors: ChromaVectors) -> None:
    metadata = Metadata(
        "a", ("x", "y", "x", ""), "d", {"n": 1.0, "i": 1, "deep": [{"k": None}], "": "\0"}, category="c", game="g"
    )
    zone = timezone(timedelta(hours=2))
    written = document("a", tenant=Tenant("p", "b", "h"), content_type="chat", session_id="ſ\0", source="/ü/\U0010ffff")
    written = replace(written, metadata=metadata, timestamp=datetime(2026, 1, 1, 2, 0, 0, 1, zone), title="")
    (chunk,) = chunks_of(written, "Ünï\0cödé\n", times=[datetime(2025, 5, 1, tzinfo=UTC)])
    await vectors.put(written, [chunk], axis(0)[np.newaxis])
    expected = Passage(chunk, written.id, **{**written.described(), "timestamp": datetime(2026, 1, 1, 0, 0, 0, 1, UTC)})
    assert await vectors.passages([chunk.id, "nobody"]) == {chunk.id: expected}


async def test_a_row_of_an_earlier_version_counts_with_the_time_of_indexing(
    vectors: ChromaVectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = document("earlier", timestamp=NOON, occurred_at=NOON)
    rows = rows_of(earlier, chunks_of(earlier), axis(0)[np.newaxis])
    details = json.loads(rows.fields[0]["details"])
    del details["indexedAt"]
    rows = replace(rows, fields=[{**rows.fields[0], "details": json.dumps(details)}])
    monkeypatch.setattr("rag_context.stores.chroma.chroma_vectors.rows_of", lambda *_: rows)
    await vectors.put(earlier, chunks_of(earlier), axis(0)[np.newaxis])
    (hit,) = await vectors.search(axis(0), limit=5, where=Filter(since=NOON, until=NOON + minutes(1)))
    passage = (await vectors.passages([hit.chunk.id]))[hit.chunk.id]
    assert (passage.timestamp, passage.occurred_at) == (NOON, NOON)


async def test_an_empty_collection_has_no_hits(vectors: ChromaVectors) -> None:
    assert await vectors.search(axis(0), limit=5, where=EVERYTHING) == []
    assert await vectors.score(axis(0), ["nobody"]) == {}
    assert await vectors.score(axis(0), []) == {}
    assert await vectors.passages([]) == {}
    assert await vectors.stored_vectors(["nobody"]) == {}
    assert [each async for each in vectors.stored_documents()] == []
    assert await vectors.count() == 0
    await vectors.discard(["nobody"])
    assert "no vectors" in await vectors.ping()


async def test_no_more_hits_than_requested(vectors: ChromaVectors) -> None:
    for number in range(5):
        await put(vectors, document(str(number)), vector=axis(number))
    assert len(await vectors.search(axis(0), limit=3, where=EVERYTHING)) == 3
    assert await vectors.search(axis(0), limit=0, where=EVERYTHING) == []


async def test_equal_vectors_come_by_chunk_id(vectors: ChromaVectors) -> None:
    written = await put(vectors, document("a"), *(str(number) for number in range(300)), vector=mix(1, 2, 3))
    hits = await vectors.search(mix(1), limit=7, where=EVERYTHING)
    assert ids(hits) == sorted(written)[:7]
    assert len({hit.cosine for hit in hits}) == 1


async def test_scores_are_the_cosines_of_the_search(vectors: ChromaVectors) -> None:
    drawn = unit_vectors(300)
    written = document("a")
    chunks = chunks_of(written, *(str(number) for number in range(300)))
    await vectors.put(written, chunks, drawn)
    hits = await vectors.search(mix(1, -1), limit=300, where=EVERYTHING)
    scores = await vectors.score(mix(1, -1), [*reversed(ids(hits)), "nobody"])
    assert scores == {hit.chunk.id: hit.cosine for hit in hits}
    true = {chunk.id: float(row @ mix(1, -1)) for chunk, row in zip(chunks, drawn, strict=True)}
    assert scores == pytest.approx(true, abs=1e-6)


async def test_vectors_come_back(vectors: ChromaVectors) -> None:
    written, drawn = document("a"), unit_vectors(3)
    chunks = chunks_of(written, "1", "2", "3")
    await vectors.put(written, chunks, drawn)
    found = await vectors.vectors([chunks[2].id, chunks[0].id, "nobody"])
    assert found.keys() == {chunks[0].id, chunks[2].id}
    assert np.allclose(found[chunks[2].id], drawn[2], atol=1e-6)
    assert found[chunks[2].id].dtype == np.float32


async def test_a_query_of_another_dimension_is_rejected(vectors: ChromaVectors) -> None:
    chunk_ids = await put(vectors, document("a"), vector=axis(0))
    other_program = unit_vectors(1, dimension=8)[0]
    with pytest.raises(BackendDataError, match="dimension 16"):
        await vectors.search(other_program, limit=5, where=EVERYTHING)
    with pytest.raises(BackendDataError, match="dimension 16"):
        await vectors.score(other_program, chunk_ids)


async def test_vectors_of_another_dimension_are_rejected_and_change_nothing(vectors: ChromaVectors) -> None:
    chunk_ids = await put(vectors, document("a"), vector=axis(0))
    with pytest.raises(BackendDataError, match="dimension 16"):
        await put(vectors, document("a"), "other", vector=unit_vectors(1, dimension=8)[0])
    assert ids(await vectors.search(axis(0), limit=5, where=EVERYTHING)) == chunk_ids


async def test_a_vector_for_each_chunk_is_needed(vectors: ChromaVectors) -> None:
    written = document("a")
    with pytest.raises(BackendRejectedError, match="2 vectors were submitted for 1 chunks"):
        await vectors.put(written, chunks_of(written), unit_vectors(2))


async def test_a_tenant_never_sees_another_tenants_chunks(vectors: ChromaVectors) -> None:
    mine = Tenant("mine", "main", "aa")
    own = await put(vectors, document("own", tenant=mine), vector=axis(0))
    others = await put(vectors, document("default"), vector=axis(0))
    await put(vectors, document("branch", tenant=Tenant("mine", "dev", "aa")), vector=axis(0))
    await put(vectors, document("odd", tenant=Tenant('mine", "main', "", "aa")), vector=axis(0))
    assert ids(await vectors.search(axis(0), limit=5, where=Filter(tenant=mine))) == own
    assert ids(await vectors.search(axis(0), limit=5, where=EVERYTHING)) == others
    assert await vectors.search(axis(0), limit=5, where=Filter(tenant=Tenant("nobody"))) == []


async def test_changed_metadata_is_filtered_by_at_once(vectors: ChromaVectors) -> None:
    old = document("a", metadata=Metadata(tags=("old",), category="c", game="chess"), source="/old/a")
    new = document("a", metadata=Metadata(tags=("new",), game="go"), source="a")
    await put(vectors, old, vector=axis(0))
    chunk_ids = await put(vectors, new, vector=axis(0))
    for gone in (Filter(tags=("old",)), Filter(game="chess"), Filter(category="c"), Filter(source_prefix="/old/")):
        assert await vectors.search(axis(0), limit=5, where=gone) == []
    assert ids(await vectors.search(axis(0), limit=5, where=Filter(tags=("new",), game="go"))) == chunk_ids
    await put(vectors, document("a", source="a"), vector=axis(0))
    assert await vectors.search(axis(0), limit=5, where=Filter(tags=("new",))) == []


async def test_a_new_version_takes_the_place_of_the_old_one(vectors: ChromaVectors) -> None:
    first = document("a", "old")
    await put(vectors, first, "kept", "gone", "gone too", vector=axis(0))
    other = await put(vectors, document("b"), vector=axis(1))
    second = document("a", "new")
    kept = await put(vectors, second, "kept", vector=axis(2))
    hits = await vectors.search(axis(2), limit=5, where=EVERYTHING)
    assert ids(hits) == kept + other
    held = await vectors.stored_vectors([first.id, document("b").id, "nobody"])
    assert held[first.id].chunk_ids == set(kept)
    assert held[first.id].revisions == {second.content_hash}
    assert held.keys() == {first.id, document("b").id}
    assert await vectors.count() == 2


async def test_a_replaced_document_is_found_at_every_moment(vectors: ChromaVectors) -> None:
    await put(vectors, document("a", "text 0"), vector=axis(0))
    done = False
    seen: list[int] = []

    async def look() -> None:
        while not done:
            seen.append(len(await vectors.search(axis(0), limit=5, where=EVERYTHING)))

    watching = [asyncio.create_task(look()) for _ in range(3)]
    for number in range(20):
        await put(vectors, document("a", f"text {number}"), vector=axis(0))
    done = True
    await asyncio.gather(*watching)
    assert min(seen) >= 1


async def test_writing_twice_changes_nothing(vectors: ChromaVectors) -> None:
    for _ in range(2):
        await put(vectors, document("a"), "one", "two", vector=axis(0))
    assert await vectors.count() == 2


async def test_what_is_discarded_is_gone_and_the_rest_stays(vectors: ChromaVectors) -> None:
    names = [str(number) for number in range(12)]
    for each in names:
        await put(vectors, document(each), "one", "two", vector=axis(0))
    gone = [document(each).id for each in names[:10]]
    for _ in range(2):
        await vectors.discard([*gone, "nobody"])
    assert {each async for each in vectors.stored_documents()} == {document("10").id, document("11").id}
    assert await vectors.count() == 4


async def test_a_document_of_many_chunks_is_stored_listed_and_removed_as_a_whole(vectors: ChromaVectors) -> None:
    long = document("long")
    chunks = chunks_of(long, *(f"chunk {number}" for number in range(1234)))
    await vectors.put(long, chunks, unit_vectors(1234))
    held = await vectors.stored_vectors([long.id])
    assert held[long.id].chunk_ids == {chunk.id for chunk in chunks}
    assert len(await vectors.passages([chunk.id for chunk in chunks])) == 1234
    assert [each async for each in vectors.stored_documents()] == [long.id]
    hits = await vectors.search(unit_vectors(1234)[7], limit=3, where=EVERYTHING)
    assert hits[0].chunk.id == chunks[7].id
    await vectors.discard([long.id])
    assert await vectors.count() == 0


async def test_a_cleared_collection_accepts_vectors_of_another_dimension(vectors: ChromaVectors) -> None:
    await put(vectors, document("a"), vector=axis(0))
    await vectors.clear()
    assert await vectors.count() == 0
    other = unit_vectors(1, dimension=8)[0]
    await put(vectors, document("a"), vector=other)
    assert len(await vectors.search(other, limit=5, where=EVERYTHING)) == 1


async def test_preparing_makes_the_collection_and_rejects_another_dimension(vectors: ChromaVectors) -> None:
    for _ in range(2):
        await vectors.prepare(MODEL)
    await put(vectors, document("a"), vector=axis(0))
    await vectors.prepare(MODEL)
    with pytest.raises(BackendRejectedError, match=r"dimension 16.*dimension 8"):
        await vectors.prepare(replace(MODEL, dimension=8))
    assert await vectors.count() == 1


async def test_an_emptied_collection_is_prepared_for_another_dimension(vectors: ChromaVectors) -> None:
    await put(vectors, document("a"), vector=axis(0))
    await vectors.discard([document("a").id])
    await vectors.prepare(replace(MODEL, dimension=8))
    await put(vectors, document("a"), vector=unit_vectors(1, dimension=8)[0])
    assert await vectors.count() == 1


async def test_a_collection_that_was_recreated_by_another_client_is_used(opener: Open, name: str) -> None:
    async with opener(name) as one, opener(name) as other:
        await put(one, document("a"), vector=axis(0))
        await other.clear()
        assert await one.search(axis(0), limit=5, where=EVERYTHING) == []
        await other.clear()
        await put(one, document("a"), vector=axis(0))
        assert await other.count() == 1


async def test_a_collection_that_is_gone_is_an_error_to_searches_until_something_is_written(
    vectors: ChromaVectors, name: str
) -> None:
    first = await put(vectors, document("a"), vector=axis(0))
    await vectors._api.drop(name)
    for _ in range(2):
        for reading in (
            vectors.search(axis(0), limit=5, where=EVERYTHING),
            vectors.score(axis(0), first),
            vectors.ping(),
        ):
            with pytest.raises(BackendDataError, match="is gone"):
                await reading
    await put(vectors, document("b"), vector=axis(0))
    assert len(await vectors.search(axis(0), limit=5, where=EVERYTHING)) == 1
    await vectors._api.drop(name)
    assert await vectors.stored_vectors([document("a").id]) == {}
    await vectors._api.drop(name)
    assert [each async for each in vectors.stored_documents()] == []
    await vectors._api.drop(name)
    await vectors.prepare(MODEL)
    assert await vectors.count() == 0


async def test_what_was_written_is_there_after_reopening(opener: Open, name: str) -> None:
    async with opener(name) as vectors:
        chunk_ids = await put(vectors, document("a"), vector=axis(0))
    async with opener(name) as vectors:
        assert ids(await vectors.search(axis(0), limit=5, where=EVERYTHING)) == chunk_ids
        assert "1 vector of dimension 16" in await vectors.ping()


async def test_a_name_that_chroma_does_not_accept_cannot_work(opener: Open) -> None:
    for wrong in ("ab", "a b c", "-abc", "abc/../def"):
        with pytest.raises(ConfigurationError, match=r"stores\.chroma_collection"):
            async with opener(wrong):
                raise AssertionError(wrong)


async def test_a_collection_that_compares_otherwise_is_rejected(server: ServerProcess, name: str) -> None:
    url = f"http://{server.host}:{server.port}"
    path = f"{url}/api/v2/tenants/default_tenant/databases/default_database/collections"
    async with httpx2.AsyncClient(trust_env=False) as client:
        await client.post(path, json={"name": name, "configuration": {"hnsw": {"space": "l2"}}})
    async with open_chroma(url, name) as vectors:
        await put(vectors, document("a"), vector=axis(0))
        with pytest.raises(BackendRejectedError, match="'l2', not by cosine"):
            await vectors.prepare(MODEL)


async def test_rows_of_others_are_never_found(server: ServerProcess, name: str) -> None:
    url = f"http://{server.host}:{server.port}"
    path = f"{url}/api/v2/tenants/default_tenant/databases/default_database/collections"
    async with httpx2.AsyncClient(trust_env=False) as client, open_chroma(url, name) as vectors:
        collection = (await client.post(path, json={"name": name, "get_or_create": True})).json()["id"]
        foreign = {"ids": ["theirs"], "embeddings": [axis(0).tolist()], "metadatas": [None], "documents": ["text"]}
        assert (await client.post(f"{path}/{collection}/upsert", json=foreign)).status_code == 200
        assert await vectors.search(axis(0), limit=5, where=EVERYTHING) == []
        assert [each async for each in vectors.stored_documents()] == []
        with pytest.raises(BackendDataError, match="'theirs'"):
            await vectors.passages(["theirs"])


@pytest.fixture(scope="module")
def crowd() -> list[Document]:
    """More documents than are compared one by one, of which few pass some filters."""
    return [
        document(
            f"crowd {number}",
            tenant=Tenant("few") if number % 50 == 0 else Tenant("many"),
            session_id=f"s{number % 3}",
            source=f"/repo/{number % 7}/{number}.md" if number % 2 else f"note-{number}",
            timestamp=NOON + minutes(number),
            metadata=Metadata(tags=("rare",) if number % 100 == 1 else ()),
        )
        for number in range(1500)
    ]


MANY = Tenant("many")


@pytest.mark.parametrize(
    "where",
    [
        Filter(MANY),
        Filter(Tenant("few")),
        Filter(MANY, session_id="s1"),
        Filter(MANY, tags=("rare",)),
        Filter(MANY, source_prefix="/repo/3/"),
        Filter(MANY, source_prefix="/repo/3/10"),
        Filter(MANY, source_prefix="note-1"),
        Filter(MANY, source_prefix="/"),
        Filter(MANY, since=NOON + minutes(1400)),
        Filter(MANY, until=NOON + minutes(700), session_id="s0"),
        Filter(MANY, source="/repo/1/1.md"),
        Filter(MANY, source="nowhere"),
    ],
    ids=repr,
)
async def test_any_filter_on_many_rows_finds_all_that_it_should(
    crowd: list[Document], crowded: ChromaVectors, where: Filter
) -> None:
    drawn = unit_vectors(len(crowd), seed=3)
    for limit, query in ((10, drawn[5]), (150, unit_vectors(1, seed=9)[0])):
        hits = await crowded.search(query, limit=limit, where=where)
        cosines = {each.id: float(row @ query) for each, row in zip(crowd, drawn, strict=True) if passes(each, where)}
        best = sorted(cosines, key=lambda id_: -cosines[id_])[:limit]
        assert len(hits) == len(best)
        assert [hit.cosine for hit in hits] == pytest.approx([cosines[hit.chunk.document_id] for hit in hits], abs=1e-6)
        assert len(set(best) & {hit.chunk.document_id for hit in hits}) >= 0.98 * len(best)


@pytest.fixture
async def crowded(server: ServerProcess, crowd: list[Document]) -> AsyncIterator[ChromaVectors]:
    """The crowd's vectors, written once."""
    async with open_chroma(f"http://{server.host}:{server.port}", "crowd") as vectors:
        if await vectors.count() < len(crowd):
            await put_all(vectors, crowd, unit_vectors(len(crowd), seed=3))
        yield vectors


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=corpora(st.just("text")),
    asked=st.lists(filters, min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    limit=st.integers(1, 30),
)
async def test_every_filter_gives_what_trying_every_chunk_gives(
    vectors: ChromaVectors, documents: list[Document], asked: list[Filter], seed: int, limit: int
) -> None:
    matrix = unit_vectors(len(documents), seed)
    drawn = {each.id: vector for each, vector in zip(documents, matrix, strict=True)}
    query = unit_vectors(1, seed + 1)[0]
    await vectors.clear()
    await put_all(vectors, documents, matrix)
    for where in asked:
        hits = await vectors.search(query, limit=limit, where=where)
        passing = [each for each in documents if passes(each, where)]
        passing.sort(key=lambda each: -float(drawn[each.id].astype(float) @ query.astype(float)))
        assert [hit.chunk.document_id for hit in hits] == [each.id for each in passing[:limit]]


async def test_standing_instructions_are_found_among_themselves(vectors: ChromaVectors) -> None:
    mine, _ = await put(
        vectors, document("talk", origin=Origin.OWNER), "Always use metric units.", "Yes.", vector=axis(1)
    )
    await put(vectors, document("manual"), "Always close the valve.", vector=axis(0))
    standing = Filter(standing=True)
    assert ids(await vectors.search(axis(0), limit=5, where=standing)) == [mine]
    assert await vectors.search(axis(0), limit=5, where=replace(standing, session_id="other")) == []

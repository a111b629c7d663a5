"""What is Qdrant's own: how the collection is made, kept and repaired, what a point carries, how prefixes are found."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.local.payload_filters import check_filter

from rag_context.domain.documents import Metadata, Origin, StoredVectors, Tenant
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Calibration, EmbeddingModel
from rag_context.errors import BackendDataError, BackendRejectedError
from rag_context.ports.reading import VectorStore
from rag_context.ports.writing import VectorWriter
from rag_context.stores.qdrant import CollectionPlan, QdrantVectors, open_qdrant
from rag_context.stores.qdrant.filters import INDEXES, conditions
from rag_context.stores.qdrant.points import payload_of
from tests.servers.qdrant import Endpoint, Running, running
from tests.stores.builders import DIMENSION, NOON, axis, chunks_of, document, ids, minutes, unit_vectors
from tests.stores.filters import filters, metadata, moments, origins, passes

MODEL = EmbeddingModel("mini", DIMENSION, "f00d", 254, Calibration(12.1, -4.01))
WIDER = EmbeddingModel("wide", 2 * DIMENSION, "beef", 254, Calibration(12.1, -4.01))
EVERYTHING = Filter()


@pytest.fixture(scope="module")
def server(shared_qdrant: Endpoint) -> Endpoint:
    return shared_qdrant


@pytest.fixture
def plan() -> CollectionPlan:
    return CollectionPlan(f"test-{uuid4().hex}")


@pytest.fixture(params=["http", "grpc"])
async def vectors(
    request: pytest.FixtureRequest, server: Endpoint, plan: CollectionPlan
) -> AsyncIterator[QdrantVectors]:
    async with open_qdrant(
        server.url, plan, api_key=server.api_key, transport=request.param, grpc_port=server.grpc_port
    ) as opened:
        yield opened
        await opened.clear()


@pytest.fixture
async def admin(server: Endpoint) -> AsyncIterator[AsyncQdrantClient]:
    """Someone else who uses the same server."""
    headers = {"api-key": server.api_key} if server.api_key else None
    client = AsyncQdrantClient(url=server.url, headers=headers, check_compatibility=False)
    yield client
    await client.close()


@pytest.fixture(scope="module")
def stub() -> Iterator[Running]:
    """For what can only be seen from inside the server."""
    with running() as stub_server:
        yield stub_server


async def test_it_fits_both_ports_of_vectors(vectors: QdrantVectors) -> None:
    reads: VectorStore = vectors
    writes: VectorWriter = vectors
    assert await reads.search(axis(0), limit=1, where=EVERYTHING) == []
    assert await writes.count() == 0


async def held_by(store: QdrantVectors) -> set[str]:
    return {document_id async for document_id in store.stored_documents()}


async def test_a_passage_comes_back_with_all_that_an_answer_says(vectors: QdrantVectors) -> None:
    written = document(
        "a",
        "Größe 日本語 🦊 \x00 end",
        tenant=Tenant("p", "main", "0123456789abcdef"),
        content_type="chat",
        session_id="s-1",
        source="/docs/ä.md",
        metadata=Metadata(
            "opus", ("z", "a", "z"), "d-1", {"n": [1, 2.5, None, 2**70], "": {"": 1}}, category="strategy", game="chess"
        ),
        timestamp=datetime(2026, 5, 4, 3, 2, 1, 987654, tzinfo=timezone(timedelta(hours=-7))),
        thread="s-1",
    )
    chunks = chunks_of(written, written.content, "second")
    await vectors.put(written, chunks, unit_vectors(2))
    passages = await vectors.passages([chunks[1].id, "unknown", str(uuid4()), chunks[0].id])
    assert {id_: passage.chunk for id_, passage in passages.items()} == {chunk.id: chunk for chunk in chunks}
    passage = passages[chunks[0].id]
    assert (passage.document_id, passage.title, passage.content_type) == (written.id, written.title, "chat")
    assert (passage.session_id, passage.source) == ("s-1", "/docs/ä.md")
    assert (passage.metadata, passage.timestamp) == (written.metadata, written.timestamp)


async def test_a_point_carries_what_other_programs_expect(
    vectors: QdrantVectors, admin: AsyncQdrantClient, plan: CollectionPlan
) -> None:
    said = Metadata("opus", ("x",), category="strategy", game="chess")
    written = document("a", metadata=said, tenant=Tenant("p", "b", "c"))
    (chunk,) = chunks_of(written)
    await vectors.put(written, [chunk], unit_vectors(1))
    (record,) = await admin.retrieve(plan.name, [chunk.id])
    expected = {
        "sessionId": "session",
        "contentType": "documentation",
        "content": chunk.text,
        "source": "source.md",
        "category": "strategy",
        "game": "chess",
        "agent": "opus",
        "tags": ["x"],
        "timestamp": "2026-03-01T12:00:00+00:00",
        "chunkId": chunk.id,
        "project": "p",
        "branch": "b",
        "pathHash": "c",
        "documentId": written.id,
    }
    assert record.payload is not None
    assert {key: record.payload[key] for key in expected} == expected


async def test_a_time_without_a_zone_is_in_utc(vectors: QdrantVectors) -> None:
    written = document("a", timestamp=NOON.replace(tzinfo=None))
    await vectors.put(written, chunks_of(written), unit_vectors(1))
    for moment, found in ((NOON.replace(tzinfo=None), 1), (NOON, 1), (NOON + timedelta(microseconds=1), 0)):
        assert len(await vectors.search(axis(0), limit=5, where=Filter(since=moment))) == found
        assert len(await vectors.search(axis(0), limit=5, where=Filter(until=moment))) == 1 - found


async def test_putting_the_same_again_changes_nothing(vectors: QdrantVectors) -> None:
    written = document("a")
    chunks = chunks_of(written, "one", "two")
    for _ in range(2):
        await vectors.put(written, chunks, unit_vectors(2))
    assert await vectors.count() == 2
    assert await vectors.stored_vectors([written.id, "nobody"]) == {
        written.id: StoredVectors(frozenset(chunk.id for chunk in chunks), frozenset({written.content_hash}))
    }


async def test_other_chunks_replace_the_earlier_ones(vectors: QdrantVectors) -> None:
    before, after, other = document("a", "old"), document("a", "new"), document("b")
    await vectors.put(before, chunks_of(before, "one", "two", "three"), unit_vectors(3))
    await vectors.put(other, chunks_of(other), unit_vectors(1))
    kept, new = chunks_of(after, "one", "other")
    await vectors.put(after, [kept, new], unit_vectors(2))
    assert await vectors.stored_vectors([before.id]) == {
        before.id: StoredVectors(frozenset({kept.id, new.id}), frozenset({after.content_hash}))
    }
    assert await vectors.count() == 3
    await vectors.put(after, [], unit_vectors(0))
    assert await held_by(vectors) == {other.id}


async def test_what_is_discarded_is_gone_and_nothing_else(vectors: QdrantVectors) -> None:
    documents = [document(str(number)) for number in range(5)]
    for each in documents:
        await vectors.put(each, chunks_of(each), unit_vectors(1))
    for _ in range(2):
        await vectors.discard([documents[0].id, documents[3].id, "nobody"])
    assert await held_by(vectors) == {documents[1].id, documents[2].id, documents[4].id}
    await vectors.discard([])
    assert await vectors.count() == 3


async def test_a_long_document_is_stored_and_listed_completely(vectors: QdrantVectors) -> None:
    """More chunks than fit in one upsert, and in one page of a scroll."""
    written = document("long")
    chunks = chunks_of(written, *(f"text {number}" for number in range(1050)))
    made = unit_vectors(1050)
    await vectors.put(written, chunks, made)
    held = (await vectors.stored_vectors([written.id]))[written.id]
    assert held.chunk_ids == {chunk.id for chunk in chunks}
    assert await held_by(vectors) == {written.id}
    stored = await vectors.vectors([chunk.id for chunk in chunks] + ["nobody"])
    assert np.allclose([stored[chunk.id] for chunk in chunks], made, atol=1e-6)
    assert {vector.dtype for vector in stored.values()} == {np.dtype(np.float32)}


async def test_upserts_go_in_hundreds_and_wait_until_they_are_found(stub: Running, plan: CollectionPlan) -> None:
    written = document("long")
    chunks = chunks_of(written, *(f"text {number}" for number in range(250)))
    async with open_qdrant(stub.url, plan) as vectors:
        await vectors.put(written, chunks, unit_vectors(250))
    path = f"/collections/{plan.name}/points"
    sizes = [len(body["points"]) for method, called, body in stub.calls if (method, called) == ("PUT", path)]
    assert sizes == [100, 100, 50]


async def test_results_are_scored_by_full_vectors(stub: Running, plan: CollectionPlan) -> None:
    async with open_qdrant(stub.url, plan) as vectors:
        written = document("a")
        (chunk,) = chunks_of(written)
        await vectors.put(written, [chunk], unit_vectors(1))
        await vectors.search(axis(0), limit=5, where=EVERYTHING)
        await vectors.score(axis(0), [chunk.id])
    path = f"/collections/{plan.name}/points/query"
    search, score = [body["params"] for _, called, body in stub.calls if called == path]
    assert search["quantization"]["rescore"] is True
    assert not search.get("exact") and not search.get("indexed_only")
    assert score["exact"] is True
    assert score["quantization"]["ignore"] is True


@pytest.mark.parametrize(("kind", "inside"), [("none", None), ("scalar", "scalar"), ("binary", "binary")])
async def test_a_new_collection_is_made_as_planned(
    stub: Running, kind: Any, inside: str | None, plan: CollectionPlan
) -> None:
    planned = CollectionPlan(plan.name, quantization=kind, shards=3)
    async with open_qdrant(stub.url, planned, replicas=2) as vectors:
        await vectors.prepare(MODEL)
    asked = stub.server.made[plan.name]
    assert (asked.shard_number, asked.replication_factor) == (3, 2)
    assert isinstance(asked.vectors, models.VectorParams)
    assert (asked.vectors.size, asked.vectors.distance) == (DIMENSION, models.Distance.COSINE)
    assert asked.vectors.on_disk is (kind != "none")
    quantization = asked.quantization_config
    assert (None if quantization is None else next(iter(quantization.model_fields_set))) == inside


async def test_preparing_makes_the_collection_and_every_index(
    vectors: QdrantVectors, admin: AsyncQdrantClient, plan: CollectionPlan
) -> None:
    for _ in range(2):
        await vectors.prepare(MODEL)
    info = await admin.get_collection(plan.name)
    assert set(info.payload_schema) == set(INDEXES)
    assert info.payload_schema["timestamp"].data_type == models.PayloadSchemaType.DATETIME
    for field in ("project", "branch", "pathHash"):
        params = info.payload_schema[field].params
        assert isinstance(params, models.KeywordIndexParams)
        assert params.is_tenant is True


@pytest.mark.parametrize("look", ["prepare", "ping"])
async def test_an_index_that_is_missing_or_of_another_type_is_made(
    vectors: QdrantVectors, admin: AsyncQdrantClient, plan: CollectionPlan, look: str
) -> None:
    await admin.create_collection(
        plan.name, vectors_config=models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    )
    await admin.create_payload_index(plan.name, "timestamp", models.PayloadSchemaType.KEYWORD)
    await (vectors.prepare(MODEL) if look == "prepare" else vectors.ping())
    info = await admin.get_collection(plan.name)
    assert set(info.payload_schema) == set(INDEXES)
    assert info.payload_schema["timestamp"].data_type == models.PayloadSchemaType.DATETIME


async def test_a_first_put_needs_no_preparation(vectors: QdrantVectors) -> None:
    assert await vectors.search(axis(0), limit=5, where=EVERYTHING) == []
    assert await vectors.passages([str(uuid4())]) == {}
    assert await vectors.vectors([str(uuid4())]) == {}
    assert await held_by(vectors) == set()
    assert await vectors.stored_vectors(["nobody"]) == {}
    await vectors.discard(["nobody"])
    assert "no collection" in await vectors.ping()
    written = document("a")
    chunks = chunks_of(written)
    await vectors.put(written, chunks, unit_vectors(1))
    assert ids(await vectors.search(axis(0), limit=5, where=EVERYTHING)) == [chunks[0].id]
    assert "1 vector in" in await vectors.ping()


async def test_many_that_begin_at_once_make_one_collection_and_lose_nothing(
    vectors: QdrantVectors, server: Endpoint, plan: CollectionPlan
) -> None:
    documents = [document(str(number)) for number in range(8)]
    async with open_qdrant(server.url, plan, api_key=server.api_key) as other:
        await asyncio.gather(
            *(store.prepare(MODEL) for store in (vectors, other)),
            *(
                store.put(each, chunks_of(each), unit_vectors(1))
                for each, store in zip(documents, [vectors, other] * 4, strict=True)
            ),
        )
    assert await held_by(vectors) == {each.id for each in documents}


async def test_a_collection_that_is_gone_is_an_error_to_searches_and_recreated_by_a_put(
    vectors: QdrantVectors, admin: AsyncQdrantClient, plan: CollectionPlan
) -> None:
    first, second = document("a"), document("b")
    await vectors.put(first, chunks_of(first), unit_vectors(1))
    await admin.delete_collection(plan.name)
    chunk_id = chunks_of(first)[0].id
    for asked in (
        lambda: vectors.search(axis(0), limit=5, where=EVERYTHING),
        lambda: vectors.score(axis(0), [chunk_id]),
        lambda: vectors.passages([chunk_id]),
        vectors.ping,
    ):
        with pytest.raises(BackendRejectedError, match=plan.name):
            await asked()
    assert await vectors.count() == 0
    assert await held_by(vectors) == set()
    await vectors.put(second, chunks_of(second), unit_vectors(1))
    assert await held_by(vectors) == {second.id}
    assert set((await admin.get_collection(plan.name)).payload_schema) == set(INDEXES)


async def test_vectors_of_another_dimension_are_rejected_while_there_are_some(vectors: QdrantVectors) -> None:
    written, other = document("a"), document("b")
    await vectors.put(written, chunks_of(written), unit_vectors(1))
    with pytest.raises(BackendRejectedError, match="dimension 16, not 32"):
        await vectors.prepare(WIDER)
    with pytest.raises(BackendRejectedError, match="dimension 16, not 32"):
        await vectors.put(other, chunks_of(other), unit_vectors(1, dimension=32))
    await vectors.discard([written.id])
    await vectors.prepare(WIDER)
    await vectors.put(other, chunks_of(other), unit_vectors(1, dimension=32))
    assert len(await vectors.search(unit_vectors(1, dimension=32)[0], limit=5, where=EVERYTHING)) == 1


async def test_after_clearing_another_model_may_begin(vectors: QdrantVectors) -> None:
    written = document("a")
    await vectors.put(written, chunks_of(written), unit_vectors(1))
    for _ in range(2):
        await vectors.clear()
    assert await vectors.count() == 0
    assert await vectors.search(axis(0), limit=5, where=EVERYTHING) == []
    await vectors.put(written, chunks_of(written), unit_vectors(1, dimension=32))
    assert await vectors.count() == 1


async def test_a_dimension_that_another_process_changed_is_noticed(
    vectors: QdrantVectors, server: Endpoint, plan: CollectionPlan
) -> None:
    written, wide = document("a"), unit_vectors(1, dimension=32)
    await vectors.put(written, chunks_of(written), unit_vectors(1))
    async with open_qdrant(server.url, plan, api_key=server.api_key) as other:
        await other.clear()
        await other.put(written, chunks_of(written), wide)
    with pytest.raises(BackendDataError, match="dimension 32, not 16"):
        await vectors.search(axis(0), limit=5, where=EVERYTHING)
    assert len(await vectors.search(wide[0], limit=5, where=EVERYTHING)) == 1


async def test_a_collection_of_another_kind_is_left_alone(
    vectors: QdrantVectors, admin: AsyncQdrantClient, plan: CollectionPlan
) -> None:
    params = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
    await admin.create_collection(plan.name, vectors_config={"named": params})
    written = document("a")
    for rejected in (vectors.prepare(MODEL), vectors.put(written, chunks_of(written), unit_vectors(1)), vectors.ping()):
        with pytest.raises(BackendRejectedError, match=r"stores\.qdrant_collection"):
            await rejected
    assert (await admin.get_collection(plan.name)).payload_schema == {}


async def test_points_of_another_program_are_no_documents_and_never_found(
    vectors: QdrantVectors, admin: AsyncQdrantClient, plan: CollectionPlan
) -> None:
    await vectors.prepare(MODEL)
    other_program = str(uuid4())
    point = models.PointStruct(id=other_program, vector=axis(0).tolist(), payload={"content": "old", "documentId": 5})
    await admin.upsert(plan.name, [point, models.PointStruct(id=7, vector=axis(0).tolist())])
    assert await vectors.search(axis(0), limit=5, where=EVERYTHING) == []
    assert await held_by(vectors) == set()
    with pytest.raises(BackendDataError, match="not stored by rag-context"):
        await vectors.passages([other_program])


async def test_which_of_many_equal_ones_are_shown_is_decided_by_their_ids(vectors: QdrantVectors) -> None:
    """Far more equal ones than are requested: a licence that stands in every file."""
    written = document("a")
    chunks = chunks_of(written, *(f"text {number}" for number in range(300)))
    await vectors.put(written, chunks, np.tile(axis(0), (300, 1)))
    hits = await vectors.search(axis(0), limit=10, where=EVERYTHING)
    assert ids(hits) == sorted(chunk.id for chunk in chunks)[:10]


async def test_text_that_is_no_unicode_is_rejected(vectors: QdrantVectors) -> None:
    await vectors.prepare(MODEL)
    with pytest.raises(BackendRejectedError, match="Unicode"):
        await vectors.search(axis(0), limit=5, where=Filter(source="\ud800"))
    written = document("a", session_id="\ud800")
    with pytest.raises(BackendRejectedError, match="Unicode"):
        await vectors.put(written, chunks_of(written), unit_vectors(1))


async def test_a_source_beyond_all_measure_is_rejected(vectors: QdrantVectors) -> None:
    longest, longer = document("a", source="x" * 40_000), document("b", source="x" * 50_000)
    await vectors.put(longest, chunks_of(longest), unit_vectors(1))
    with pytest.raises(BackendRejectedError, match="source"):
        await vectors.put(longer, chunks_of(longer), unit_vectors(1))
    assert await held_by(vectors) == {longest.id}


SIMILAR = st.text(st.sampled_from("ab/\x00\xff\u0101é🦊"), max_size=14)


def lets_through(where: Filter, **of_document: Any) -> bool:
    """What Qdrant makes of our conditions, by the client library's own reading of them."""
    written = document("a", **of_document)
    return check_filter(conditions(where), payload_of(written, chunks_of(written)[0]), "a", {})


@given(source=SIMILAR, prefix=SIMILAR)
def test_a_prefix_is_a_prefix_whatever_its_bytes(source: str, prefix: str) -> None:
    assert lets_through(Filter(source_prefix=prefix), source=source) == source.startswith(prefix)


@given(source=st.text(max_size=40), length=st.integers(0, 40), tail=st.text(max_size=2))
def test_every_beginning_is_found_and_no_other(source: str, length: int, tail: str) -> None:
    prefix = source[:length] + tail
    assert lets_through(Filter(source_prefix=prefix), source=source) == source.startswith(prefix)


@given(where=filters, said=metadata, moment=moments, source=SIMILAR, origin=origins)
def test_conditions_mean_what_the_filter_means(
    where: Filter, said: Metadata, moment: datetime, source: str, origin: Origin
) -> None:
    of_document: dict[str, Any] = {"metadata": said, "timestamp": moment, "source": source, "session_id": "s1"}
    of_document["origin"] = origin
    assert lets_through(where, **of_document) == passes(document("a", **of_document), where)


def test_numbers_of_a_source_are_exact_as_floats() -> None:
    written = document("a", source="\U0010ffff" * 10_000)
    numbers = payload_of(written, chunks_of(written)[0])["sourceBlocks"]
    assert [int(float(number)) for number in numbers] == numbers
    assert max(numbers) < 2**53


async def test_a_point_of_an_earlier_version_counts_with_the_time_of_indexing(
    vectors: QdrantVectors, admin: AsyncQdrantClient, plan: CollectionPlan
) -> None:
    old, new = (
        document(name, timestamp=NOON, occurred_at=NOON - minutes(ago)) for name, ago in (("old", 0), ("new", 9))
    )
    for each in (old, new):
        await vectors.put(each, chunks_of(each), axis(0)[np.newaxis])
    (id_,) = [chunk.id for chunk in chunks_of(old)]
    (point,) = await admin.retrieve(plan.name, [id_], with_payload=True)
    assert point.payload is not None
    del point.payload["occurredAt"]
    earlier = models.PointStruct(id=point.id, vector=axis(0).tolist(), payload=point.payload)
    await admin.upsert(plan.name, [earlier], wait=True)
    assert ids(await vectors.search(axis(0), limit=5, where=Filter(since=NOON))) == [id_]
    assert ids(await vectors.search(axis(0), limit=5, where=Filter(until=NOON))) == [chunks_of(new)[0].id]
    assert (await vectors.passages([id_]))[id_].occurred_at == NOON

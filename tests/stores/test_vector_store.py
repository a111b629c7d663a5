"""What every vector store does: exact cosines, under any filter."""

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import Document, Metadata, Origin, Tenant, microseconds
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError
from tests.servers.qdrant import Endpoint
from tests.stores.builders import DIMENSION, NOON, Stores, axis, document, ids, minutes, put, unit_vectors
from tests.stores.filters import corpora, filters, passes, remove_examples

EVERYTHING = Filter()


def mix(*parts: float) -> Vector:
    """A unit vector with these shares of the first axes."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(parts)] = parts
    unit: Vector = vector / np.float32(np.linalg.norm(vector))
    return unit


@pytest.fixture(params=["sqlite", "two files", "postgres", "qdrant over http", "qdrant over grpc"])
def store_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_the_nearest_comes_first_with_its_cosine(store: Stores) -> None:
    near = await put(store, document("near"), vector=mix(3, 4))
    far = await put(store, document("far"), vector=mix(-1))
    hits = await store.vectors.search(mix(1), limit=5, where=EVERYTHING)
    assert ids(hits) == near + far
    assert [hit.cosine for hit in hits] == pytest.approx([0.6, -1.0], abs=1e-6)


async def test_a_hit_names_its_chunk_as_ranking_needs_it(store: Stores) -> None:
    written = document("a", content_type="chat", thread="talk")
    _, second = await put(store, written, "one", "two", vector=axis(0))
    hits = await store.vectors.search(axis(0), limit=5, where=EVERYTHING)
    hit = next(hit for hit in hits if hit.chunk.id == second)
    assert (hit.chunk.document_id, hit.chunk.position) == (written.id, 1)
    assert (hit.chunk.content_type, hit.chunk.thread) == ("chat", "talk")


async def test_an_empty_index_has_no_hits(store: Stores) -> None:
    assert await store.vectors.search(axis(0), limit=5, where=EVERYTHING) == []
    assert await store.vectors.score(axis(0), ["nobody"]) == {}


async def test_no_more_hits_than_requested(store: Stores) -> None:
    for number in range(5):
        await put(store, document(str(number)), vector=axis(number))
    assert len(await store.vectors.search(axis(0), limit=3, where=EVERYTHING)) == 3
    assert await store.vectors.search(axis(0), limit=0, where=EVERYTHING) == []


async def test_equal_vectors_come_by_chunk_id(store: Stores) -> None:
    written = [(await put(store, document(str(number)), vector=mix(1, 2, 3)))[0] for number in range(20)]
    hits = await store.vectors.search(mix(1), limit=7, where=EVERYTHING)
    assert ids(hits) == sorted(written)[:7]
    assert len({hit.cosine for hit in hits}) == 1


async def test_scores_are_the_cosines_of_the_search(store: Stores, store_name: str) -> None:
    vectors = unit_vectors(30)
    for number, vector in enumerate(vectors):
        await put(store, document(str(number)), vector=vector)
    pending = await put(store, document("pending"))
    hits = await store.vectors.search(mix(1, -1), limit=30, where=EVERYTHING)
    scores = await store.vectors.score(mix(1, -1), [*reversed(ids(hits)), *pending, "nobody"])
    rounding = 1e-6 if store_name.startswith("qdrant") else 0.0  # it scores a search and given points in two ways
    assert scores == pytest.approx({hit.chunk.id: hit.cosine for hit in hits}, abs=rounding)


async def test_a_query_of_another_dimension_is_rejected(store: Stores) -> None:
    chunk_ids = await put(store, document("a"), vector=axis(0))
    other_program = unit_vectors(1, dimension=8)[0]
    with pytest.raises(BackendDataError, match="dimension 16"):
        await store.vectors.search(other_program, limit=5, where=EVERYTHING)
    with pytest.raises(BackendDataError, match="dimension 16"):
        await store.vectors.score(other_program, chunk_ids)


async def test_a_tenant_never_sees_another_tenants_chunks(store: Stores) -> None:
    mine = Tenant("mine", "main", "aa")
    own = await put(store, document("own", tenant=mine), vector=axis(0))
    others = await put(store, document("default"), vector=axis(0))
    await put(store, document("branch", tenant=Tenant("mine", "dev", "aa")), vector=axis(0))
    assert ids(await store.vectors.search(axis(0), limit=5, where=Filter(tenant=mine))) == own
    assert ids(await store.vectors.search(axis(0), limit=5, where=EVERYTHING)) == others
    assert await store.vectors.search(axis(0), limit=5, where=Filter(tenant=Tenant("nobody"))) == []


async def test_changed_metadata_is_filtered_by_at_once(store: Stores) -> None:
    await put(store, document("a", metadata=Metadata(tags=("old",), game="chess")), vector=axis(0))
    chunk_ids = await put(store, document("a", metadata=Metadata(tags=("new",), game="go")), vector=axis(0))
    assert await store.vectors.search(axis(0), limit=5, where=Filter(tags=("old",))) == []
    assert await store.vectors.search(axis(0), limit=5, where=Filter(game="chess")) == []
    assert ids(await store.vectors.search(axis(0), limit=5, where=Filter(tags=("new",), game="go"))) == chunk_ids


async def versions_found_while_replaced(store: Stores, replacements: int) -> Counter[int]:
    """How many searches found so many versions of a document at once, while it was replaced again and again."""
    await put(store, document("other"), vector=axis(5))
    await put(store, document("a", "text 0"), vector=axis(0))
    done = False
    seen: list[int] = []

    async def look() -> None:
        while not done:
            hits = await store.vectors.search(axis(0), limit=5, where=Filter())
            seen.append(sum(hit.chunk.document_id == document("a").id for hit in hits))

    watching = [asyncio.create_task(look()) for _ in range(3)]
    for number in range(replacements):
        await put(store, document("a", f"text {number}"), vector=axis(0))
    done = True
    await asyncio.gather(*watching)
    return Counter(seen)


async def test_a_replaced_document_is_found_at_every_moment(
    store: Stores, store_name: str, request: pytest.FixtureRequest
) -> None:
    """One version or the other, but always one, and never both.

    In Qdrant both may be found in the moment between the two calls that replace it. A real server reads payloads after
    its search, and leaves out what was removed in between: a search that is under way during the whole replacement may
    find neither.
    """
    if not store_name.startswith("qdrant"):
        assert (await versions_found_while_replaced(store, 40)).keys() == {1}
        return
    server: Endpoint = request.getfixturevalue("shared_qdrant")
    seen = await versions_found_while_replaced(store, 20)
    assert {1} <= seen.keys() <= {0, 1, 2}
    assert seen[0] <= (seen.total() // 10 if server.is_real else 0)


async def test_deleting_and_writing_in_any_order_leaves_what_is_there(store: Stores) -> None:
    rng = np.random.default_rng(7)
    vectors = unit_vectors(20)
    there: dict[str, int] = {}
    for _ in range(80):
        number = int(rng.integers(20))
        each = document(str(number))
        if rng.random() < 0.4:
            await store.documents.delete(each.id)
            there.pop(each.id, None)
        else:
            await put(store, each, vector=vectors[number])
            there[each.id] = number
    hits = await store.vectors.search(vectors[0], limit=100, where=EVERYTHING)
    assert {hit.chunk.document_id for hit in hits} == set(there)
    for hit in hits:
        assert hit.cosine == pytest.approx(float(vectors[there[hit.chunk.document_id]] @ vectors[0]), abs=1e-6)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=corpora(st.just("text")),
    asked=st.lists(filters, min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    limit=st.integers(1, 30),
)
async def test_every_filter_gives_what_trying_every_chunk_gives(
    store: Stores, documents: list[Document], asked: list[Filter], seed: int, limit: int
) -> None:
    vectors = {each.id: vector for each, vector in zip(documents, unit_vectors(len(documents), seed), strict=True)}
    query = unit_vectors(1, seed + 1)[0]
    await remove_examples(store)
    for each in documents:
        await put(store, each, vector=vectors[each.id])
    for where in asked:
        hits = await store.vectors.search(query, limit=limit, where=where)
        passing = [each for each in documents if passes(each, where)]
        passing.sort(key=lambda each: -float(vectors[each.id].astype(float) @ query.astype(float)))
        assert [hit.chunk.document_id for hit in hits] == [each.id for each in passing[:limit]]


async def test_every_passage_of_a_conversation_is_found_by_its_own_time(store: Stores) -> None:
    times = [NOON, NOON + minutes(1), NOON + minutes(2)]
    talk = document("talk", content_type="chat", timestamp=NOON + minutes(9), occurred_at=NOON)
    first, second, third = await put(store, talk, "one", "two", "three", vector=axis(0), times=times)
    await put(store, document("today", timestamp=NOON + minutes(9)), vector=axis(0))

    async def found(since: int | None, until: int | None) -> set[str]:
        since_at, until_at = (None if at is None else NOON + minutes(at) for at in (since, until))
        return set(ids(await store.vectors.search(axis(0), limit=9, where=Filter(since=since_at, until=until_at))))

    hits = await store.vectors.search(axis(0), limit=9, where=Filter())
    said = {hit.chunk.id: hit.chunk.occurred_us for hit in hits}
    assert [said[id_] for id_ in (first, second, third)] == [microseconds(at) for at in times]
    assert await found(0, 1) == {first}
    assert await found(1, 9) == {second, third}
    assert await found(None, 2) == {first, second}
    assert len(await found(2, None)) == 2


async def test_a_hit_has_the_speaker_of_its_chunk(store: Stores) -> None:
    said = ("User", None, "Zoë\0 B")
    talk = document("talk", content_type="chat")
    talked = await put(store, talk, "one", "two", "three", vector=axis(0), speakers=said)
    hits = await store.vectors.search(axis(0), limit=9, where=Filter())
    assert {hit.chunk.id: hit.chunk.speaker for hit in hits} == dict(zip(talked, said, strict=True))
    passages = await store.vectors.passages(talked)
    assert [passages[id_].chunk.speaker for id_ in talked] == list(said)


async def test_standing_instructions_are_found_among_themselves(store: Stores) -> None:
    """`Filter.standing`: those that are marked, until they are replaced."""
    texts = ("Always use metric units.", "The valve is open.")
    talk = document("talk", content_type="chat", origin=Origin.OWNER)
    mine, other = await put(store, talk, *texts, vector=mix(3, 4))
    (manual,) = await put(store, document("manual", origin=Origin.DOCUMENT), texts[0], vector=axis(0))
    message = document("message", content_type="chat", origin=Origin.OWNER)
    (second,) = await put(store, message, texts[0], vector=axis(0))
    standing = Filter(standing=True)
    assert ids(await store.vectors.search(axis(0), limit=5, where=standing)) == [second, mine]
    assert ids(await store.vectors.search(axis(0), limit=1, where=standing)) == [second]
    passages = await store.vectors.passages([mine, other, manual])
    told = {id_: (each.chunk.origin, each.chunk.is_standing) for id_, each in passages.items()}
    owner, read = Origin.OWNER, Origin.DOCUMENT
    assert told == {mine: (owner, True), other: (owner, False), manual: (read, False)}
    assert ids(await store.vectors.search(axis(0), limit=5, where=replace(standing, content_type="code"))) == []
    await put(store, document("message", "Forget it.", content_type="chat"), vector=axis(0))
    assert ids(await store.vectors.search(axis(0), limit=5, where=standing)) == [mine]
    assert len(await store.vectors.search(axis(0), limit=9, where=EVERYTHING)) == 4

"""What every document store does, whatever is behind it."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from rag_context.domain.documents import Counts, MessageTime, Metadata, Missing, Stored, Tenant
from rag_context.domain.reports import Period, Periods
from rag_context.domain.search import ChunkRef, Filter, Neighbours
from rag_context.domain.vectors import Calibration, EmbeddingModel
from rag_context.errors import BackendRejectedError, IndexMismatchError
from rag_context.ports.writing import Version
from tests.stores.builders import NOON, Stores, axis, chunks_of, document, ids, minutes, put, unit_vectors

MODEL = EmbeddingModel("mini", 16, "f00d", 254, Calibration(12.1, -4.01), document_prefix="passage: ")


IN_ONE_TRANSACTION = ["sqlite", "postgres"]
"""Stores that have documents and vectors. Of two stores the chunks that stay have vectors too, under the filters of the
earlier version, and a new version waits whose vectors are rejected (`test_sqlite_split`)."""


@pytest.fixture(params=["sqlite", "two files", "postgres", "mongodb"])
def store_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_a_document_comes_back_as_it_was_written(store: Stores) -> None:
    written = document(
        "a",
        "Größe 日本語 🦊 \x00 end",
        tenant=Tenant("p", "main", "0123456789abcdef"),
        content_type="chat",
        session_id="s-1",
        source="/docs/ä.md",
        metadata=Metadata(
            "opus", ("z", "a"), "d-1", {"n": [1, 2.5, None], "deep": {"ok": True}}, category="strategy", game="chess"
        ),
        timestamp=datetime(2026, 5, 4, 3, 2, 1, 987654, tzinfo=UTC),
        occurred_at=datetime(2025, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        thread="s-1",
        similarity_hash=2**64 - 5,
        message_times=(MessageTime(0, NOON), MessageTime(7, datetime(1969, 1, 1, 0, 0, 0, 1, tzinfo=UTC))),
    )
    await put(store, written)
    assert await store.documents.get(written.id) == written


async def test_a_timestamp_of_another_zone_is_the_same_moment(store: Stores) -> None:
    there = timezone(timedelta(hours=-7))
    written = document("a", timestamp=NOON.astimezone(there))
    await put(store, written)
    read = await store.documents.get(written.id)
    assert read is not None
    assert read.timestamp == NOON


async def test_chunks_come_back_in_order_with_their_places(store: Stores) -> None:
    written = document("a", "one two three")
    await put(store, written, "one", "two", "three")
    assert await store.documents.chunks(written.id) == chunks_of(written, "one", "two", "three")


async def test_a_passage_says_all_that_an_answer_needs(store: Stores) -> None:
    written = document("a", "one two", session_id="s-9", metadata=Metadata(agent="opus", tags=("x",)))
    times = [NOON - minutes(60), NOON]
    first, _ = await put(store, written, "one", "two", times=times)
    passages = await store.documents.passages([first, "unknown"])
    assert list(passages) == [first]
    passage = passages[first]
    assert passage.chunk == chunks_of(written, "one", "two", times=times)[0]
    assert passage.occurred_at == NOON - minutes(60)
    assert (passage.document_id, passage.title, passage.session_id) == (written.id, written.title, "s-9")
    assert (passage.metadata, passage.timestamp) == (written.metadata, NOON)


async def test_what_is_unknown_is_not_an_error(store: Stores) -> None:
    assert await store.documents.get("nobody") is None
    assert await store.documents.stored("nobody") is None
    assert await store.documents.chunks("nobody") == []
    assert await store.documents.passages([]) == {}
    assert await store.documents.neighbours(["nobody"]) == {}
    assert await store.documents.delete("nobody") is False
    assert await store.documents.attach("nobody", "hash", unit_vectors(1)) is False


async def test_what_is_stored_of_a_document_is_its_newest_version(store: Stores) -> None:
    await put(store, document("a", "old"), vector=axis(0))
    new = document("a", "new")
    chunk_ids = await put(store, new, "one", "two")
    assert await store.documents.stored(new.id) == Stored(
        new.content_hash, indexed=False, chunk_ids=tuple(chunk_ids), occurred_at=NOON
    )
    await store.documents.attach(new.id, new.content_hash, np.stack([axis(0), axis(1)]))
    assert await store.documents.stored(new.id) == Stored(
        new.content_hash, indexed=True, chunk_ids=tuple(chunk_ids), occurred_at=NOON
    )


async def test_counts_follow_what_is_written_and_deleted(store: Stores) -> None:
    assert await store.documents.counts() == Counts(0, 0, 0, 0)
    await put(store, document("a"), "one", "two", vector=axis(0))
    await put(store, document("b"), "three")
    assert await store.documents.counts() == Counts(documents=2, pending=1, chunks=3, vectors=2)
    await store.documents.delete(document("a").id)
    assert await store.documents.counts() == Counts(documents=1, pending=1, chunks=1, vectors=0)


async def test_writing_twice_leaves_one_copy(store: Stores) -> None:
    for _ in range(2):
        await put(store, document("a", "fox"), "fox", "den", vector=axis(0))
    assert await store.documents.counts() == Counts(documents=1, pending=0, chunks=2, vectors=2)
    assert len(await store.texts.search("fox", limit=5, where=Filter())) == 1
    assert len(await store.vectors.search(axis(0), limit=5, where=Filter())) == 2


async def test_a_replaced_document_leaves_no_trace_of_the_old_one(store: Stores) -> None:
    old = await put(store, document("a", "wolf"), "wolf", "wolf den", vector=axis(1))
    new = await put(store, document("a", "fox"), vector=axis(2))
    assert await store.documents.passages(old) == {}
    assert await store.texts.search("wolf", limit=5, where=Filter()) == []
    assert ids(await store.vectors.search(axis(1), limit=5, where=Filter())) == new
    assert await store.documents.counts() == Counts(documents=1, pending=0, chunks=1, vectors=1)


async def test_a_deleted_document_is_found_by_nothing(store: Stores) -> None:
    chunk_ids = await put(store, document("a", "fox", metadata=Metadata(tags=("t",))), vector=axis(0))
    assert await store.documents.delete(document("a").id) is True
    assert await store.documents.get(document("a").id) is None
    assert await store.documents.passages(chunk_ids) == {}
    assert await store.texts.search("fox", limit=5, where=Filter()) == []
    assert await store.vectors.search(axis(0), limit=5, where=Filter()) == []


async def test_a_document_without_vectors_is_pending_and_found_by_keyword_search(store: Stores) -> None:
    written = document("a", "fox")
    await put(store, written)
    assert await store.documents.pending(10) == [written.id]
    assert len(await store.texts.search("fox", limit=5, where=Filter())) == 1
    assert await store.vectors.search(axis(0), limit=5, where=Filter()) == []


async def test_pending_documents_come_oldest_first_up_to_the_limit(store: Stores) -> None:
    written = [document(name) for name in "abcd"]
    for each in written:
        await put(store, each)
    assert await store.documents.pending(3) == [each.id for each in written[:3]]


async def test_matching_documents_come_oldest_first_up_to_the_limit(store: Stores) -> None:
    theirs = Tenant("p", "main", "aa")
    written = [document(name, source=source) for name, source in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "x"))]
    for each in (*written, document("e", source="x", tenant=theirs)):
        await put(store, each)
    assert await store.documents.matching(Filter(source="x"), 2) == [written[0].id, written[2].id]
    assert await store.documents.matching(Filter(session_id="session"), 10) == [each.id for each in written]
    assert await store.documents.matching(Filter(theirs, source="x"), 10) == [document("e").id]
    assert await store.documents.matching(Filter(source="x*"), 10) == []
    await store.documents.delete(written[0].id)
    assert await store.documents.matching(Filter(source="x"), 1) == [written[2].id]


async def test_attached_vectors_complete_a_document(store: Stores) -> None:
    written = document("a")
    first, second = await put(store, written, "one", "two")
    vectors = np.stack([axis(3), axis(4)])
    assert await store.documents.attach(written.id, written.content_hash, vectors) is True
    assert await store.documents.pending(10) == []
    assert ids(await store.vectors.search(axis(4), limit=1, where=Filter())) == [second]
    assert ids(await store.vectors.search(axis(3), limit=1, where=Filter())) == [first]


async def test_vectors_of_an_older_version_are_not_attached(store: Stores) -> None:
    old = document("a", "old")
    await put(store, old)
    await put(store, document("a", "new"))
    assert await store.documents.attach(old.id, old.content_hash, unit_vectors(1)) is False
    assert (await store.documents.counts()).vectors == 0


async def test_attaching_twice_changes_nothing(store: Stores) -> None:
    written = document("a")
    await put(store, written)
    for _ in range(2):
        assert await store.documents.attach(written.id, written.content_hash, axis(0)[None]) is True
    assert await store.documents.counts() == Counts(documents=1, pending=0, chunks=1, vectors=1)


@pytest.mark.parametrize("store_name", IN_ONE_TRANSACTION, indirect=True)
async def test_chunks_that_stay_keep_their_vectors_while_the_rest_is_pending(store: Stores) -> None:
    written = document("a", "one two", session_id="before")
    first, _ = await put(store, written, "one", "two", vector=axis(0))
    changed = document("a", "one three", session_id="after")
    await put(store, changed, "one", "three")
    assert ids(await store.vectors.search(axis(0), limit=5, where=Filter(session_id="after"))) == [first]
    assert await store.vectors.search(axis(0), limit=5, where=Filter(session_id="before")) == []
    assert await store.documents.pending(10) == [changed.id]


async def test_vectors_that_do_not_fit_the_chunks_are_rejected_and_nothing_is_stored(store: Stores) -> None:
    written = document("a")
    with pytest.raises(BackendRejectedError):
        await store.documents.write(Version(written, chunks_of(written), unit_vectors(2)))
    assert await store.documents.counts() == Counts(0, 0, 0, 0)


@pytest.mark.parametrize("store_name", IN_ONE_TRANSACTION, indirect=True)
async def test_vectors_of_another_dimension_are_rejected_and_the_old_version_stays(store: Stores) -> None:
    await put(store, document("a", "old"), vector=axis(0))
    new = document("a", "new")
    with pytest.raises(BackendRejectedError, match="dimension 8"):
        await store.documents.write(Version(new, chunks_of(new), unit_vectors(1, dimension=8)))
    assert await store.documents.get(new.id) == document("a", "old")


async def test_one_bad_write_among_many_fails_alone(store: Stores) -> None:
    good = [document(f"good {number}") for number in range(30)]
    bad = document("bad")
    results = await asyncio.gather(
        *(put(store, each) for each in good[:15]),
        store.documents.write(Version(bad, chunks_of(bad), unit_vectors(7))),
        *(put(store, each) for each in good[15:]),
        return_exceptions=True,
    )
    assert [type(result) for result in results if isinstance(result, Exception)] == [BackendRejectedError]
    assert (await store.documents.counts()).documents == 30


async def test_a_document_without_chunks_can_be_kept(store: Stores) -> None:
    empty = document("a", "")
    await store.documents.write(Version(empty, []))
    assert await store.documents.attach(empty.id, empty.content_hash, unit_vectors(0)) is True
    assert await store.documents.counts() == Counts(documents=1, pending=0, chunks=0, vectors=0)


async def test_the_version_grows_with_every_change_and_with_nothing_else(store: Stores) -> None:
    seen = [store.documents.version]
    await put(store, document("a"), "one", vector=axis(0))
    seen.append(store.documents.version)
    await put(store, document("a"), "one", vector=axis(0))
    seen.append(store.documents.version)
    await put(store, document("b"))
    seen.append(store.documents.version)
    await store.documents.attach(document("b").id, document("b").content_hash, axis(1)[None])
    seen.append(store.documents.version)
    await store.documents.delete(document("a").id)
    seen.append(store.documents.version)
    assert seen == sorted(set(seen))
    await store.documents.record_retrievals([document("b").id], NOON)
    await store.texts.search("text", limit=3, where=Filter())
    assert store.documents.version == seen[-1]


async def test_neighbours_are_the_chunks_before_and_after_in_the_document(store: Stores) -> None:
    written = document("a")
    first, second, third = await put(store, written, "one", "two", "three")
    found = await store.documents.neighbours([second, third])
    assert found[second] == Neighbours(
        ChunkRef(first, written.id, 0, "documentation"), ChunkRef(third, written.id, 2, "documentation")
    )
    assert found[third] == Neighbours(ChunkRef(second, written.id, 1, "documentation"), None)


async def test_neighbours_of_a_message_are_the_messages_around_it(store: Stores) -> None:
    tenant = Tenant("p")
    conversation = [document(f"turn {n}", content_type="chat", thread="talk", tenant=tenant) for n in range(3)]
    first = await put(store, conversation[0], "hello", "there")
    await put(store, document("other talk", thread="other", tenant=tenant))
    await put(store, document("same talk elsewhere", thread="talk"))
    middle = await put(store, conversation[1], "how are you")
    last = await put(store, conversation[2], "fine", "thanks")
    found = await store.documents.neighbours([*first, *middle, *last])
    before, after = found[middle[0]].before, found[middle[0]].after
    assert before == ChunkRef(first[1], conversation[0].id, 1, "chat", "talk")
    assert after == ChunkRef(last[0], conversation[2].id, 0, "chat", "talk")
    assert found[first[0]].before is None
    assert found[last[1]].after is None


async def test_messages_follow_each_other_by_their_times_whenever_they_were_stored(store: Stores) -> None:
    for hour in (3, 1, 2):
        at = NOON + timedelta(hours=hour)
        await put(store, document(f"turn {hour}", content_type="chat", thread="talk", occurred_at=at))
    (middle,) = (chunk.id for chunk in chunks_of(document("turn 2", content_type="chat", thread="talk")))
    found = (await store.documents.neighbours([middle]))[middle]
    assert found.before is not None
    assert found.after is not None
    assert (found.before.document_id, found.after.document_id) == (document("turn 1").id, document("turn 3").id)


async def test_a_replaced_message_keeps_its_position_in_the_conversation(store: Stores) -> None:
    for name in "abc":
        await put(store, document(name, thread="talk"))
    middle = await put(store, document("b", "changed", thread="talk"))
    found = (await store.documents.neighbours(middle))[middle[0]]
    assert found.before is not None
    assert found.after is not None
    assert (found.before.document_id, found.after.document_id) == (document("a").id, document("c").id)


@pytest.mark.parametrize("flips", [(), (0,), (0, 17), (15, 31, 63), (1, 2, 3), (63, 62, 61)])
async def test_documents_within_three_bits_are_similar(store: Stores, flips: tuple[int, ...]) -> None:
    original = 0xF0E1_D2C3_B4A5_9687
    near = document("near", similarity_hash=original ^ sum(1 << bit for bit in flips))
    await put(store, near)
    assert await store.documents.similar([document("asked", similarity_hash=original)]) == [[near.id]]


async def test_four_bits_the_document_itself_other_tenants_and_no_hash_are_not_similar(store: Stores) -> None:
    original = 0x0123_4567_89AB_CDEF
    asked = document("asked", similarity_hash=original)
    await put(store, asked)
    await put(store, document("far", similarity_hash=original ^ 0b1111))
    await put(store, document("elsewhere", similarity_hash=original, tenant=Tenant("p")))
    await put(store, document("unknown", similarity_hash=0))
    assert await store.documents.similar([asked, asked]) == [[], []]
    assert await store.documents.similar([document("also unknown", similarity_hash=0)]) == [[]]


async def test_versions_written_together_each_have_a_result_of_their_own(store: Stores) -> None:
    one, two, three = (document(name) for name in ("one", "two", "three"))
    results = await store.documents.write_all(
        [
            Version(one, chunks_of(one), unit_vectors(1)),
            Version(two, chunks_of(two), unit_vectors(2)),
            Version(three, chunks_of(three)),
        ]
    )
    assert results[0] is True
    assert isinstance(results[1], BackendRejectedError)
    assert results[2] is False
    assert await store.documents.states([three.id, "nobody", two.id, one.id]) == {
        one.id: await store.documents.stored(one.id),
        three.id: await store.documents.stored(three.id),
    }


async def test_the_model_is_remembered(store: Stores) -> None:
    assert await store.documents.recorded_model() is None
    await store.documents.adopt_model(MODEL)
    assert await store.documents.recorded_model() == MODEL


async def test_another_model_is_rejected_while_there_are_vectors(store: Stores) -> None:
    await store.documents.adopt_model(MODEL)
    other = EmbeddingModel("other", 16, "beef", 510, Calibration(1.0, 0.0))
    await put(store, document("a"), vector=axis(0))
    with pytest.raises(IndexMismatchError, match="mini"):
        await store.documents.adopt_model(other)
    assert await store.documents.recorded_model() == MODEL


async def test_a_model_may_be_changed_while_there_are_no_vectors(store: Stores) -> None:
    await store.documents.adopt_model(MODEL)
    await put(store, document("pending"))
    other = EmbeddingModel("other", 8, "beef", 510, Calibration(1.0, 0.0))
    await store.documents.adopt_model(other)
    assert await store.documents.recorded_model() == other


async def test_dropping_the_vectors_makes_room_for_another_model(store: Stores) -> None:
    await store.documents.adopt_model(MODEL)
    await put(store, document("a", "fox"), vector=axis(0))
    await put(store, document("b"))
    assert await store.documents.drop_vectors() == 2
    assert await store.documents.counts() == Counts(documents=2, pending=2, chunks=2, vectors=0)
    assert await store.documents.recorded_model() is None
    assert await store.vectors.search(axis(0), limit=5, where=Filter()) == []
    assert len(await store.texts.search("fox", limit=5, where=Filter())) == 1
    await store.documents.attach(
        document("a", "fox").id, document("a", "fox").content_hash, unit_vectors(1, dimension=8)
    )
    assert len(await store.vectors.search(unit_vectors(1, dimension=8)[0], limit=5, where=Filter())) == 1


async def test_missing_vectors_are_counted_under_a_filter(store: Stores) -> None:
    await store.documents.adopt_model(MODEL)
    tenant = Tenant("p", "main", "0123456789abcdef")
    await put(store, document("a", session_id="s-1", metadata=Metadata(tags=("x",))), vector=axis(0))
    assert await store.documents.missing_vectors(Filter()) == Missing()
    assert await store.documents.has_all_vectors()
    await put(store, document("b", "one two", session_id="s-2"), "one", "two")
    await put(store, document("c", session_id="s-2"), vector=axis(1))
    await put(store, document("d", tenant=tenant))
    assert await store.documents.missing_vectors(Filter()) == Missing(2, 4)
    assert not await store.documents.has_all_vectors()
    assert await store.documents.missing_vectors(Filter(session_id="s-2")) == Missing(2, 3)
    assert await store.documents.missing_vectors(Filter(session_id="s-1")) == Missing()
    assert await store.documents.missing_vectors(Filter(tags=("x",))) == Missing()
    assert await store.documents.missing_vectors(Filter(tenant)) == Missing(1, 1)
    assert await store.documents.missing_vectors(Filter(Tenant("unknown"))) == Missing()
    await store.documents.delete(document("b", "one two").id)
    assert await store.documents.missing_vectors(Filter()) == Missing()
    await store.documents.delete(document("d", tenant=tenant).id)
    assert await store.documents.has_all_vectors()


async def test_retrievals_of_unknown_documents_are_no_error(store: Stores) -> None:
    await put(store, document("a"))
    await store.documents.record_retrievals([document("a").id, "unknown"], NOON)
    await store.documents.record_retrievals([document("a").id], NOON + minutes(1))
    assert (await store.documents.counts()).documents == 1


async def test_a_healthy_store_says_so_in_one_line(store: Stores) -> None:
    await put(store, document("a"), vector=axis(0))
    assert "\n" not in await store.documents.ping()
    assert "\n" not in await store.vectors.ping()


async def test_vectors_of_a_model_that_is_no_longer_the_indexs_are_rejected(store: Stores) -> None:
    """A reindexing elsewhere must not be mixed with what was begun before it."""
    await store.documents.adopt_model(MODEL)
    first, second = document("first"), document("second")
    await store.documents.write(Version(first, chunks_of(first), unit_vectors(1), MODEL.fingerprint))
    await store.documents.write(Version(second, chunks_of(second)))
    with pytest.raises(BackendRejectedError, match="another model"):
        await store.documents.write(Version(document("third"), chunks_of(document("third")), unit_vectors(1), "b" * 64))
    await store.documents.drop_vectors()
    with pytest.raises(BackendRejectedError, match="another model"):
        await store.documents.attach(second.id, second.content_hash, unit_vectors(1), MODEL.fingerprint)
    counts = await store.documents.counts()
    assert (counts.documents, counts.pending, counts.vectors) == (2, 2, 0)


async def test_documents_are_chosen_by_when_they_were_written_not_indexed(store: Stores) -> None:
    late, early = (
        document(name, timestamp=NOON, occurred_at=NOON - minutes(ago)) for name, ago in (("b", 5), ("a", 9))
    )
    for each in (late, early):
        await put(store, each)
    assert await store.documents.matching(Filter(since=NOON - minutes(5)), 9) == [late.id]
    assert await store.documents.matching(Filter(until=NOON - minutes(5)), 9) == [early.id]
    assert [each.occurred_at for each in await store.documents.listing(Filter(until=NOON - minutes(6)), limit=9)] == [
        NOON - minutes(9)
    ]


async def test_the_times_of_all_tenants_are_known(store: Stores) -> None:
    assert await store.documents.periods() is None
    await put(store, document("a", timestamp=NOON, occurred_at=NOON - minutes(9)))
    await put(store, document("b", timestamp=NOON + minutes(3), occurred_at=NOON + minutes(1), tenant=Tenant("p")))
    assert await store.documents.periods() == Periods(
        Period(NOON - minutes(9), NOON + minutes(1)), Period(NOON, NOON + minutes(3))
    )

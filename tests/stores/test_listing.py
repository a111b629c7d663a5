"""What every document store lists: documents newest first, all of them by id, and what a vector store shows itself."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import (
    DEFAULT_TENANT,
    Cursor,
    Document,
    Listing,
    Metadata,
    Missing,
    Origin,
    Retrievals,
    Stored,
    Tenant,
    microseconds,
)
from rag_context.domain.reports import DAY_US, SessionCount
from rag_context.domain.search import Filter
from rag_context.ports.writing import Version
from tests.stores.builders import NOON, Stores, axis, chunks_of, document, minutes, put, unit_vectors
from tests.stores.filters import corpora, filters, passes, remove_examples

EVERYTHING = Filter()


async def pages(store: Stores, where: Filter, size: int) -> AsyncIterator[list[Listing]]:
    """Page after page, each behind the last document of the one before."""
    after = None
    while page := await store.documents.listing(where, limit=size, after=after):
        yield page
        after = Cursor(page[-1].timestamp, page[-1].id)


@pytest.fixture(params=["sqlite", "two files", "postgres"])
def store_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_documents_are_listed_newest_first(store: Stores) -> None:
    for number in (2, 0, 1):
        await put(store, document(str(number), timestamp=NOON + minutes(number)))
    listed = await store.documents.listing(EVERYTHING, limit=10)
    assert [each.id for each in listed] == [document(name).id for name in "210"]


async def test_documents_of_one_moment_are_listed_by_id(store: Stores) -> None:
    for number in range(7):
        await put(store, document(str(number)))
    listed = await store.documents.listing(EVERYTHING, limit=10)
    assert [each.id for each in listed] == sorted(document(str(number)).id for number in range(7))


async def test_times_that_differ_by_a_microsecond_are_distinguished(store: Stores) -> None:
    later, sooner = document("later", timestamp=NOON + timedelta(microseconds=1)), document("sooner", timestamp=NOON)
    await put(store, later)
    await put(store, sooner)
    assert [each.id for each in await store.documents.listing(EVERYTHING, limit=1)] == [later.id]
    rest = await store.documents.listing(EVERYTHING, limit=5, after=Cursor(later.timestamp, later.id))
    assert [each.id for each in rest] == [sooner.id]


async def test_a_listing_says_what_a_document_is(store: Stores) -> None:
    made = document(
        "a",
        "A long content that is not listed.",
        content_type="decision",
        session_id="s-9",
        source="/x/ä.md",
        metadata=Metadata("opus", ("z", "a"), "d-1", {"n": [1, None]}, category="strategy", game="chess"),
    )
    await put(store, made, vector=axis(0))
    await put(store, document("b", timestamp=NOON - minutes(1)))
    listed = await store.documents.listing(EVERYTHING, limit=10)
    assert (made.content_type, made.session_id, made.source, made.timestamp) == ("decision", "s-9", "/x/ä.md", NOON)
    assert listed[0] == Listing(made.id, NOON, indexed=True, **made.described())
    assert not listed[1].indexed


@pytest.mark.parametrize("store_name", ["sqlite", "postgres", "mongodb"], indirect=True)
async def test_documents_are_counted_by_what_they_have_in_common(store: Stores) -> None:
    fields: dict[str, Any] = {"content_type": "decision", "session_id": "s", "metadata": Metadata("opus", ("b", "a"))}
    for number in range(3):
        await put(store, document(str(number), occurred_at=NOON + minutes(number), **fields))
    await put(store, document("early", occurred_at=datetime(1969, 12, 31, 23, tzinfo=UTC)))
    await put(store, document("other", tenant=Tenant("shop", "main", "0" * 16), **fields))
    await put(store, document("gone", **fields))
    await store.documents.delete(document("gone", **fields).id)
    counts = await store.documents.field_counts(EVERYTHING, 10)
    assert (counts.content_types, counts.agents) == ({"decision": 3, "documentation": 1}, {"opus": 3})
    assert (counts.tags, counts.days) == ({"a": 3, "b": 3}, {microseconds(NOON) // DAY_US: 3, -1: 1})
    last = microseconds(NOON + minutes(2))
    first = SessionCount("s", 3, last, {"opus"}, {"decision"}, {"a", "b"})
    assert (counts.sessions, counts.latest[0]) == (2, first)
    assert (await store.documents.field_counts(EVERYTHING, 1)).latest == [first]
    narrowed = await store.documents.field_counts(Filter(tags=("a",), since=NOON + minutes(1)), 10)
    assert (narrowed.content_types, narrowed.sessions) == ({"decision": 2}, 1)
    assert (await store.documents.field_counts(Filter(tags=("none",)), 10)).latest == []


@pytest.mark.parametrize("store_name", ["sqlite", "postgres", "mongodb"], indirect=True)
async def test_passages_are_counted_by_whose_words_they_are(store: Stores) -> None:
    mixed = document("mixed", origin=Origin.AGENT, session_id="s-1")
    said = [replace(each, origin=origin) for each, origin in zip(chunks_of(mixed, "one", "two"), Origin, strict=False)]
    await store.documents.write(Version(mixed, said, unit_vectors(2)))
    await put(store, document("page", origin=Origin.WEB))
    await put(store, document("other", tenant=Tenant("shop", "main", "0" * 16)))
    for where, expected in (
        (EVERYTHING, {Origin.OWNER: 1, Origin.AGENT: 1, Origin.WEB: 1}),
        (Filter(session_id="s-1"), {Origin.OWNER: 1, Origin.AGENT: 1}),
        (Filter(session_id="unknown"), {}),
        # Which documents pass is a matter of their own origin, as in a listing.
        (Filter(origins=(Origin.OWNER, Origin.AGENT)), {Origin.OWNER: 1, Origin.AGENT: 1}),
    ):
        assert (await store.documents.field_counts(where, 10)).origins == expected


async def test_the_tenants_are_those_of_whom_there_are_documents(store: Stores) -> None:
    assert await store.documents.tenants() == []
    shop, other = Tenant("shop", "main", "0" * 16), Tenant("shop", "next", "0" * 16)
    for name, tenant in (("a", shop), ("b", shop), ("c", other), ("d", Tenant())):
        await put(store, document(name, tenant=tenant))
    assert set(await store.documents.tenants()) == {shop, other, Tenant()}
    await store.documents.delete(document("c", tenant=other).id)
    assert set(await store.documents.tenants()) == {shop, Tenant()}


async def test_a_page_ends_at_its_limit_and_an_empty_store_has_none(store: Stores) -> None:
    assert await store.documents.listing(EVERYTHING, limit=10) == []
    for number in range(3):
        await put(store, document(str(number)))
    assert len(await store.documents.listing(EVERYTHING, limit=2)) == 2


async def test_paging_goes_on_behind_a_document_that_was_deleted_meanwhile(store: Stores) -> None:
    for number in range(4):
        await put(store, document(str(number), timestamp=NOON + minutes(number)))
    first = await store.documents.listing(EVERYTHING, limit=2)
    await store.documents.delete(first[-1].id)
    rest = await store.documents.listing(EVERYTHING, limit=9, after=Cursor(first[-1].timestamp, first[-1].id))
    assert [each.id for each in rest] == [document("1").id, document("0").id]


async def test_what_comes_in_while_paging_shifts_nothing(store: Stores) -> None:
    for number in range(4):
        await put(store, document(str(number), timestamp=NOON + minutes(number)))
    seen: list[str] = []
    async for page in pages(store, EVERYTHING, 1):
        seen.extend(each.id for each in page)
        await put(store, document(f"new {len(seen)}", timestamp=NOON + minutes(100 + len(seen))))
    assert seen == [document(name).id for name in "3210"]


async def test_another_tenants_documents_are_not_listed(store: Stores) -> None:
    mine = Tenant("mine", "main", "aa")
    own = document("own", tenant=mine)
    await put(store, own)
    await put(store, document("default"))
    assert [each.id for each in await store.documents.listing(Filter(tenant=mine), limit=5)] == [own.id]
    assert await store.documents.listing(Filter(tenant=Tenant("mine")), limit=5) == []


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=corpora(st.just("text")), where=filters, size=st.integers(1, 6))
async def test_pages_put_together_are_all_that_a_filter_lets_through(
    store: Stores, documents: list[Document], where: Filter, size: int
) -> None:
    await remove_examples(store)
    for each in documents:
        await put(store, each)
    listed = [listing.id async for page in pages(store, where, size) for listing in page]
    passing = [each for each in documents if passes(each, where)]
    passing.sort(key=lambda each: (-each.timestamp.timestamp(), each.id))
    assert listed == [each.id for each in passing]
    counts, agents = await store.documents.field_counts(where, 1), [each.metadata.agent for each in passing]
    assert counts.content_types == Counter(each.content_type for each in passing)
    assert (counts.agents, counts.tags) == (
        Counter(filter(None, agents)),
        Counter(tag for each in passing for tag in each.metadata.tags),
    )
    last = {each.session_id: each for each in sorted(passing, key=lambda each: each.occurred_at)}
    latest = sorted(last.values(), key=lambda each: (-microseconds(each.occurred_at), each.session_id))
    assert counts.sessions == len(last)
    assert [each.session_id for each in counts.latest] == [each.session_id for each in latest[:1]]


async def test_an_inventory_has_every_document_of_every_tenant_once(store: Stores) -> None:
    made = {}
    for number in range(7):
        tenant = Tenant("p", str(number)) if number % 2 else Tenant()
        each = document(str(number), tenant=tenant)
        chunk_ids = await put(store, each, "one", "two", vector=axis(0) if number % 3 else None)
        made[each.id] = Stored(
            each.content_hash, indexed=bool(number % 3), chunk_ids=tuple(chunk_ids), occurred_at=NOON
        )
    found: dict[str, Stored] = {}
    last = ""
    while page := await store.documents.inventory(last, 3):
        assert 1 <= len(page) <= 3
        assert min(page) > last
        assert not set(page) & set(found)
        found.update(page)
        last = max(page)
    assert found == made
    assert list(found) == sorted(made)


async def test_content_hashes_cover_the_stored_documents_of_every_tenant(store: Stores) -> None:
    one, two = document("one"), document("two", tenant=Tenant("p"))
    await put(store, one)
    await put(store, two, vector=axis(0))

    found = await store.documents.content_hashes([one.id, "nobody", two.id, one.id])

    assert found == {one.id: one.content_hash, two.id: two.content_hash}
    assert await store.documents.content_hashes([]) == {}


async def test_retrievals_are_counted_with_the_latest_moment(store: Stores) -> None:
    one, two = document("one"), document("two")
    await put(store, one)
    await put(store, two)
    assert await store.documents.retrievals(one.id) == Retrievals()
    assert await store.documents.retrievals("nobody") == Retrievals()
    await store.documents.record_retrievals([one.id, two.id], NOON + minutes(5))
    await store.documents.record_retrievals([one.id], NOON)
    if (write_remaining := getattr(store.documents, "close", None)) is not None:
        await write_remaining()
    assert await store.documents.retrievals(one.id) == Retrievals(2, NOON + minutes(5))
    assert await store.documents.retrievals(two.id) == Retrievals(1, NOON + minutes(5))


async def test_every_change_of_the_index_gives_it_another_stamp(store: Stores) -> None:
    await store.documents.ping()
    stamps = [(await store.documents.tenant_state(DEFAULT_TENANT)).stamp]
    one = document("one")
    await put(store, one)
    stamps.append((await store.documents.tenant_state(DEFAULT_TENANT)).stamp)
    await store.documents.attach(one.id, one.content_hash, unit_vectors(1))
    stamps.append((await store.documents.tenant_state(DEFAULT_TENANT)).stamp)
    await put(store, document("one", "Other text."), vector=axis(1))
    stamps.append((await store.documents.tenant_state(DEFAULT_TENANT)).stamp)
    await store.documents.delete(one.id)
    stamps.append((await store.documents.tenant_state(DEFAULT_TENANT)).stamp)
    assert len(set(stamps)) == 5


async def test_reading_leaves_the_stamp_as_it_is(store: Stores) -> None:
    one = document("one")
    await put(store, one, vector=axis(0))
    await store.documents.ping()
    before = (await store.documents.tenant_state(DEFAULT_TENANT)).stamp
    await store.vectors.search(axis(0), limit=1, where=EVERYTHING)
    await store.documents.listing(EVERYTHING, limit=1)
    await store.documents.record_retrievals([one.id], NOON)
    await store.documents.ping()
    assert (await store.documents.tenant_state(DEFAULT_TENANT)).stamp == before


async def test_a_vector_store_shows_the_passages_of_its_chunks_by_itself(store: Stores) -> None:
    made = document("a", "one two", session_id="s-9", metadata=Metadata(agent="opus", tags=("x",)))
    first, second = await put(store, made, "one", "two", vector=axis(0))
    pending = await put(store, document("pending"))
    assert await store.vectors.passages([]) == {}
    shown = await store.vectors.passages([second, "nobody", first])
    assert set(shown) == {first, second}
    reported = await store.documents.passages([first, second])
    for id_ in (first, second):
        assert shown[id_].chunk.text == reported[id_].chunk.text
        assert (shown[id_].document_id, shown[id_].title, shown[id_].source) == (made.id, made.title, made.source)
        assert (shown[id_].metadata, shown[id_].timestamp) == (made.metadata, made.timestamp)
    assert set(await store.vectors.passages(pending)) <= set(pending)


async def test_vectors_come_back_as_they_were_put_in(store: Stores) -> None:
    made = document("a", "one two three")
    chunks = chunks_of(made, "one", "two", "three")
    vectors = unit_vectors(3, seed=4)
    await store.documents.write(Version(made, chunks, vectors))
    pending = await put(store, document("pending"))
    found = await store.vectors.vectors([*(chunk.id for chunk in reversed(chunks)), *pending, "nobody"])
    assert set(found) == {chunk.id for chunk in chunks}
    for chunk, vector in zip(chunks, vectors, strict=True):
        assert found[chunk.id].dtype == np.float32
        assert found[chunk.id] == pytest.approx(vector, abs=1e-6)
    assert await store.vectors.vectors([]) == {}


async def test_missing_vectors_are_counted_within_a_time(store: Stores) -> None:
    await put(store, document("a", content_type="chat"), "one", "two", times=[NOON, NOON + minutes(1)])
    assert await store.documents.missing_vectors(Filter(since=NOON + minutes(1))) == Missing(1, 1)

"""Reading documents: one in full, and lists page by page."""

from datetime import timedelta
from typing import Any

import pytest

from rag_context.api.index import BulkLine, VersionsRequest
from rag_context.api.stored_documents import (
    GetRequest,
    GetResponse,
    ListRequest,
    ListResponse,
    read_cursor,
    write_cursor,
)
from rag_context.domain.documents import Cursor
from rag_context.domain.search import Filter
from rag_context.errors import BackendUnavailableError, InvalidInputError, NotFoundError
from rag_context.memory.facets import FacetCounts
from rag_context.memory.service import Service
from rag_context.testing import Fault, FrozenClock
from tests.memory.harness import ServiceHarness


async def get(harness: ServiceHarness, **fields: Any) -> GetResponse:
    return await harness.service.get(GetRequest.model_validate(fields))


async def listing(harness: ServiceHarness, **fields: Any) -> ListResponse:
    return await harness.service.listing(ListRequest.model_validate(fields))


async def test_a_document_comes_back_complete_with_its_metadata(harness: ServiceHarness) -> None:
    """T-5."""
    text = "Red foxes live here. " * 200
    receipt = await harness.index(text, source="foxes.md", metadata={"agent": "oracle", "tags": ["a"], "mood": "calm"})
    document = await get(harness, documentId=receipt.document_id)
    assert document.content == text
    assert document.metadata == {"agent": "oracle", "tags": ["a"], "mood": "calm"}
    assert (document.source, document.session_id, document.content_type) == ("foxes.md", "s", "documentation")
    assert (document.status, document.chunks) == ("indexed", receipt.chunks_indexed)
    assert document.chunks > 1
    assert document.timestamp == harness.now


async def test_it_reports_how_often_searches_returned_it(harness: ServiceHarness) -> None:
    """D-4."""
    receipt = await harness.index("Red foxes live here.")
    before = (await get(harness, documentId=receipt.document_id)).retrieval_stats
    assert (before.query_count, before.last_retrieved) == (0, None)
    for question in ("red foxes", "foxes here"):
        assert (await harness.search(question)).results
    await harness.telemetry.flush()
    after = (await get(harness, documentId=receipt.document_id)).retrieval_stats
    assert (after.query_count, after.last_retrieved) == (2, harness.now)


async def test_a_document_without_vectors_says_so(harness: ServiceHarness) -> None:
    harness.embedder.fault = Fault(BackendUnavailableError("embedder", "down"))
    receipt = await harness.index("Red foxes live here.")
    assert (await get(harness, documentId=receipt.document_id)).status == "pending"
    assert [document.status for document in (await listing(harness)).documents] == ["pending"]


async def test_missing_and_foreign_documents_get_the_same_answer(harness: ServiceHarness) -> None:
    """Q-2."""
    theirs = await harness.index("Red foxes live here.", project="theirs")
    for fields in ({"documentId": "nothing"}, {"documentId": theirs.document_id}):
        with pytest.raises(NotFoundError, match=f"Document {fields['documentId']} not found"):
            await get(harness, **fields)
    assert (await get(harness, documentId=theirs.document_id, project="theirs")).chunks == 1


async def test_a_list_is_newest_first_and_goes_on_where_it_left_off(harness: ServiceHarness) -> None:
    """T-5."""
    for number in range(7):
        harness.now += timedelta(seconds=1)
        await harness.index(f"Fox number {number}.", source=str(number))
    seen, cursor = [], None
    for size in (3, 3, 1):
        page = await listing(harness, limit=3, cursor=cursor)
        assert len(page.documents) == size
        seen += [document.source for document in page.documents]
        cursor = page.next_cursor
    assert cursor is None
    assert seen == ["6", "5", "4", "3", "2", "1", "0"]


async def test_a_full_last_page_has_no_next_one(harness: ServiceHarness) -> None:
    for number in range(2):
        await harness.index(f"Fox number {number}.", source=str(number))
    page = await listing(harness, limit=2)
    assert len(page.documents) == 2
    assert page.next_cursor is None


async def test_documents_of_one_moment_are_listed_once_each(harness: ServiceHarness) -> None:
    receipts = [await harness.index(f"Fox number {number}.", source=str(number)) for number in range(5)]
    seen, cursor = [], None
    while True:
        page = await listing(harness, limit=2, cursor=cursor)
        seen += [document.document_id for document in page.documents]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(seen) == sorted(receipt.document_id for receipt in receipts)


@pytest.mark.parametrize(
    "fields",
    [
        {"sessionId": "s1"},
        {"contentType": "chat"},
        {"source": "talk*"},
        {"source": "talk/1"},
        {"tags": ["x", "y"]},
        {"game": "FireKirin"},
        {"category": "strategy"},
        {"since": "2026-01-01T00:00:01Z"},
        {"project": "p", "branch": "main"},
    ],
)
async def test_a_list_is_narrowed_as_a_search_is(harness: ServiceHarness, fields: dict[str, Any]) -> None:
    await harness.index("Of another kind.", contentType="decision", metadata={"tags": ["x"]})
    harness.now += timedelta(seconds=1)
    scope = {name: fields[name] for name in ("project", "branch") if name in fields}
    meant = await harness.index(
        "The one that is meant.",
        contentType="chat",
        sessionId="s1",
        source="talk/1",
        metadata={"tags": ["x", "y"], "game": "FireKirin", "category": "strategy"},
        **scope,
    )
    page = await listing(harness, **fields)
    assert [document.document_id for document in page.documents] == [meant.document_id]


@pytest.mark.parametrize("cursor", ["x", "e30", "WzEsMl0", "bm90IGpzb24", "ÿÿ", "W10=", "IlwiIg", "A" * 1024])
async def test_a_cursor_that_was_made_up_is_rejected(harness: ServiceHarness, cursor: str) -> None:
    with pytest.raises(InvalidInputError, match="nextCursor") as caught:
        await listing(harness, cursor=cursor)
    assert [detail.field for detail in caught.value.details] == ["cursor"]


def test_a_cursor_names_its_position() -> None:
    place = Cursor(ServiceHarness().now, "ü/1")
    assert read_cursor(write_cursor(place)) == place


async def test_an_unreadable_store_is_a_failure_and_no_empty_list(harness: ServiceHarness) -> None:
    harness.documents.fault = Fault(BackendUnavailableError("documents", "down"))
    with pytest.raises(BackendUnavailableError):
        await listing(harness)


async def missing(service: Service, **versions: str) -> list[str]:
    return (await service.missing(VersionsRequest(versions=versions))).missing


async def test_a_receipt_names_the_version_until_it_is_replaced_or_deleted(harness: ServiceHarness) -> None:
    async def keep(content: str) -> tuple[str, str]:
        line = BulkLine(content=content, content_type="code", session_id="s", source="a.py", from_file=True)
        receipt = await harness.bulk(line)
        assert receipt.document_id is not None
        assert receipt.content_hash is not None
        return receipt.document_id, receipt.content_hash

    id_, first = await keep("x = 1")
    assert await missing(harness.service, **{id_: first}) == []
    assert await keep("x = 1") == (id_, first), "also where nothing changed"

    _, second = await keep("x = 2")
    assert await missing(harness.service, **{id_: first}) == [id_]
    assert await missing(harness.service, **{id_: second, "unknown": second}) == ["unknown"]

    await harness.indexer.remove(id_)
    assert await missing(harness.service, **{id_: second}) == [id_]


async def test_a_list_counts_all_that_pass_its_filter(harness: ServiceHarness) -> None:
    """W-4."""
    for name, kind, agent in (("a", "chat", "opus"), ("b", "chat", "codex"), ("c", "decision", "opus")):
        fields = {"source": name, "sessionId": f"s-{kind}", "contentType": kind}
        await harness.index(f"Text of {name}.", metadata={"agent": agent, "tags": ["project:x", name]}, **fields)
    assert (await listing(harness)).facets is None
    page = await listing(harness, limit=1, facets=True)
    assert page.facets is not None
    assert (page.facets.total, page.facets.session_count) == (3, 2)
    assert page.facets.content_types == {"chat": 2, "decision": 1}
    assert page.facets.agents == {"opus": 2, "codex": 1}
    assert page.facets.tags["project:x"] == 3
    assert page.facets.days == {"2026-01-01": 3}
    assert page.facets.origins == {"agent": 1, "unknown": 2}
    (chat,) = [each for each in page.facets.sessions if each.session_id == "s-chat"]
    assert (chat.count, chat.agents, chat.last) == (2, ["codex", "opus"], harness.now)
    narrowed = await listing(harness, facets=True, sessionId="s-chat", tags=["a"])
    assert narrowed.facets is not None
    assert narrowed.facets.content_types == {"chat": 1}


async def test_what_is_counted_quickly_is_counted_again_at_once(harness: ServiceHarness) -> None:
    await harness.index("One.", source="one")
    assert [each.total for each in [(await listing(harness, facets=True)).facets] if each] == [1]
    await harness.index("Two.", source="two")
    assert [each.total for each in [(await listing(harness, facets=True)).facets] if each] == [2]


async def test_what_takes_long_is_counted_again_behind_the_answer(harness: ServiceHarness) -> None:
    counts = FacetCounts(harness.store, at_once=(1, 0.0))
    await harness.index("One.", source="one")
    await harness.index("Two.", source="two")
    assert (await counts.of(Filter())).total == 2
    await harness.index("Three.", source="three")
    assert [(await counts.of(Filter())).total for _ in range(2)] == [2, 3]


async def test_counts_that_take_long_are_as_old_as_they_may_be(harness: ServiceHarness) -> None:
    clock = FrozenClock()
    counts = FacetCounts(harness.store, at_once=(1, 0.0), clock=clock)
    await harness.index("One.", source="one")
    await harness.index("Two.", source="two")
    assert (await counts.of(Filter(), age_s=60.0)).total == 2
    await harness.index("Three.", source="three")
    assert [(await counts.of(Filter(), age_s=60.0)).total for _ in range(3)] == [2, 2, 2]
    clock.advance(60.0)
    assert [(await counts.of(Filter(), age_s=60.0)).total for _ in range(2)] == [2, 3]

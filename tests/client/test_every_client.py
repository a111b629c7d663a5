"""The same methods, results and errors over HTTP with and without coroutines, and inside this process."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from rag_context import errors
from rag_context.client import AsyncClient, BadRequestError, ClientError, Metadata, NotFoundError, TenantOptions
from rag_context.errors import InvalidInputError
from tests.end_to_end.process import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWL = "The barn owl hunts voles at night."
FOX = "Red foxes dig their dens in sandy slopes."


@pytest.fixture
def session() -> str:
    """A session that no other test writes to."""
    return f"s-{uuid4().hex}"


async def keep(context: AsyncClient, content: str, session: str, source: str = "notes") -> str:
    receipt = await context.index(content, content_type="documentation", session_id=session, source=source)
    return receipt.document_id


async def test_what_is_indexed_is_found_with_all_its_metadata(context: AsyncClient, session: str) -> None:
    metadata = Metadata(agent="scout", tags=("birds", "night"), category="nature", game="Owls", extra={"page": 7})
    receipt = await context.index(
        OWL, content_type="chat", session_id=session, source="talk", metadata=metadata, agent="scout"
    )
    assert (receipt.success, receipt.status, receipt.chunks_indexed) == (True, "indexed", 1)
    found = await context.search(
        "what do owls eat?", session_id=session, tags=("night",), game="Owls", limit=2, explain=True
    )
    assert found.fallback_level == 1
    assert found.warning is None
    (result,) = found.results
    assert result.content == OWL
    assert result.document_id == receipt.document_id
    assert result.metadata == {
        "agent": "scout", "tags": ["birds", "night"], "category": "nature", "game": "Owls", "page": 7,
    }  # fmt: skip
    assert result.explain is not None


async def test_the_same_text_again_changes_nothing(context: AsyncClient, session: str) -> None:
    first = await keep(context, OWL, session)
    again = await context.index(OWL, content_type="documentation", session_id=session, source="notes")
    assert (again.status, again.document_id) == ("unchanged", first)


async def test_what_is_remembered_is_recalled_in_its_project_only(context: AsyncClient, session: str) -> None:
    mine, other = f"project:mine-{session}", f"project:other-{session}"
    ferry, question = f"The ferry {session} leaves from pier nine.", f"from which pier does the ferry {session} leave?"
    receipt = await context.remember(ferry, kind="fix", tags=["piers"], workspace=mine)
    again = await context.remember(ferry, kind="fix", tags=["piers"], workspace=mine)
    assert (receipt.status, again.status, again.document_id) == ("indexed", "unchanged", receipt.document_id)

    recalled = await context.recall(question, workspace=mine, limit=3)
    assert receipt.document_id in [each.document_id for each in recalled.results]
    assert len(recalled.results) <= 3
    foreign = await context.recall(question, workspace=other, limit=3)
    assert receipt.document_id not in [each.document_id for each in foreign.results]
    with pytest.raises(InvalidInputError, match="empty"):
        await context.remember(" ")


async def test_a_secret_is_masked_and_the_writer_is_warned(context: AsyncClient, session: str) -> None:
    text = "deploy with AKIAIOSFODNN7EXAMQLE as the key"
    receipt = await context.index(text, content_type="chat", session_id=session, source="talk")
    assert receipt.redactions is not None
    assert sum(receipt.redactions.values()) == 1
    document = await context.get(receipt.document_id)
    assert "AKIAIOSFODNN7EXAMQLE" not in document.content


async def test_documents_are_read_listed_and_deleted(context: AsyncClient, session: str) -> None:
    own: TenantOptions = {"project": session}
    ids = []
    for text, source in ((OWL, "a"), (FOX, "b"), (OWL + FOX, "c")):
        receipt = await context.index(text, content_type="documentation", session_id="s", source=source, **own)
        ids.append(receipt.document_id)
    document = await context.get(ids[0], **own)
    assert (document.content, document.status, document.source) == (OWL, "indexed", "a")
    page = await context.list(limit=2, **own)
    rest = await context.list(limit=2, cursor=page.next_cursor, **own)
    assert [listed.document_id for listed in (*page.documents, *rest.documents)] == ids[::-1]
    assert rest.next_cursor is None
    assert [listed.document_id async for listed in context.list_all(**own)] == ids[::-1]
    like = await context.similar(ids[2], limit=20, **own)
    assert {document.document_id for document in like.results} == set(ids[:2])

    would = await context.delete(session_id="s", dry_run=True, **own)
    assert (would.deleted_count, would.dry_run) == (3, True)
    assert (await context.delete(document_id=ids[1], **own)).document_ids == [ids[1]]
    await context.index("Kept.", content_type="documentation", session_id="other", source="d", **own)
    assert (await context.delete(session_id="s", confirm=True, **own)).deleted_count == 2
    assert (await context.delete(session_id="s", **own)).deleted_count == 0
    with pytest.raises(NotFoundError) as gone:
        await context.get(ids[0], **own)
    assert isinstance(gone.value, errors.NotFoundError)
    assert (gone.value.status, gone.value.code) == (404, "NOT_FOUND")


async def test_times_narrow_a_search(context: AsyncClient, session: str) -> None:
    await keep(context, OWL, session)
    now = datetime.now(UTC)
    recent = await context.search("owl", session_id=session, since=now - timedelta(minutes=5))
    earlier = await context.search("owl", session_id=session, until=now - timedelta(minutes=5))
    assert [len(recent.results), len(earlier.results)] == [1, 0]


async def test_a_bulk_run_gives_each_document_its_receipt_in_order(context: AsyncClient, session: str) -> None:
    good = [
        {"content": f"Fact {n}: {OWL}", "contentType": "documentation", "sessionId": session, "source": f"f{n}"}
        for n in range(70)
    ]
    documents = [*good[:3], {**good[3], "content": "  "}, {**good[4], "contentTyp": "chat"}, *good[5:]]
    receipts = [receipt async for receipt in context.bulk(documents)]
    assert [receipt.line for receipt in receipts] == list(range(1, 71))
    assert [receipt.source for receipt in receipts] == [f"f{n}" for n in range(70)]
    assert {receipt.status for receipt in receipts[:3] + receipts[5:]} == {"indexed"}
    assert (receipts[3].status, receipts[3].reason) == ("rejected", "Content cannot be empty")
    assert receipts[4].status == "rejected"
    assert "did you mean 'contentType'" in (receipts[4].reason or "")
    again = [receipt async for receipt in context.bulk(good[:2])]
    assert [receipt.status for receipt in again] == ["unchanged", "unchanged"]


async def test_documents_of_a_bulk_run_may_be_awaited(server: Served, session: str) -> None:
    async def produced() -> AsyncIterator[dict[str, object]]:
        for n in range(3):
            yield {"content": f"{n} {FOX}", "content_type": "chat", "session_id": session, "source": "talk"}

    async with AsyncClient(server.url, api_key="") as client:
        receipts = [receipt async for receipt in client.bulk(produced())]
    assert [(receipt.line, receipt.status) for receipt in receipts] == [(n, "indexed") for n in (1, 2, 3)]


async def test_health_and_statistics_are_reported(context: AsyncClient, session: str) -> None:
    await keep(context, OWL, session)
    await context.search("owl", agent=session)
    report = await context.health()
    assert report.healthy
    assert report.indexed_documents >= 1
    by_span = await context.stats(timedelta(minutes=30))
    by_name = await context.stats("1h")
    assert by_span.queries_by_agent[session] == by_name.queries_by_agent[session] == 1
    assert (await context.reindex(status_only=True)).status == "current"


async def test_a_fast_search_is_cached_until_something_is_written(context: AsyncClient, session: str) -> None:
    for n in range(5):
        await context.index(
            f"{OWL} {n}", content_type="chat", session_id=session, source="talk", metadata={"game": session}
        )
    first = await context.search_fast("owls", session, "scout")
    again = await context.search_fast("owls", session)
    assert len(first.results) == 3
    assert again.cached is True
    assert again.request_id == first.request_id  # no server was called
    await context.delete(session_id=session)
    assert (await context.search_fast("owls", session)).results == []


async def test_any_tool_is_called_by_its_name(context: AsyncClient, session: str) -> None:
    await keep(context, OWL, session)
    answer = await context.call("rag_context_list", sessionId=session, limit=1)
    documents = answer["documents"]
    assert isinstance(documents, list)
    assert len(documents) == 1
    with pytest.raises(NotFoundError, match="Tool no such%tool not found"):
        await context.call("no such%tool")
    with pytest.raises(InvalidInputError, match="not JSON"):
        await context.call("rag_context_list", limit=float("nan"))


async def test_a_wrong_request_names_every_field_before_it_is_sent(context: AsyncClient) -> None:
    with pytest.raises(InvalidInputError) as reported:
        await context.search("", limit=50)
    assert not isinstance(reported.value, ClientError)
    assert {detail.field for detail in reported.value.details} == {"query", "limit"}
    with pytest.raises(InvalidInputError, match="exactly one of"):
        await context.delete()
    with pytest.raises(InvalidInputError, match="request_id"):
        await context.health(request_id="no spaces\r\nplease")


LOOP: dict[str, object] = {}
LOOP["again"] = LOOP
DEEP: dict[str, object] = {}
for _ in range(5000):
    DEEP = {"deeper": DEEP}


@pytest.mark.parametrize("nonsense", [LOOP, DEEP, {"x": object()}, {"x": float("nan")}, {"x": "\ud800"}, ["a"], "a"])
async def test_what_is_no_json_is_no_metadata_and_no_argument(context: AsyncClient, nonsense: Any) -> None:
    with pytest.raises(InvalidInputError, match="metadata"):
        await context.index(OWL, content_type="chat", session_id="s", source="talk", metadata=nonsense)
    if not isinstance(nonsense, list | str):
        with pytest.raises(InvalidInputError, match="not JSON"):
            await context.call("rag_context_index", metadata=nonsense)


@pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
async def test_a_name_that_no_address_can_contain_is_rejected(context: AsyncClient, name: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be the name"):
        await context.call(name)
    with pytest.raises(InvalidInputError, match="cannot be the name"):
        await context.collections.get(name)


async def test_a_bulk_run_accepts_whatever_a_file_may_contain(context: AsyncClient, session: str) -> None:
    good = {"content": OWL, "content_type": "chat", "session_id": session, "source": "talk"}
    lines: list[Any] = [None, 3, "text", [1], {}, {**good, "content": "\ud800"}, good]
    receipts = [receipt async for receipt in context.bulk(lines)]
    assert [receipt.status for receipt in receipts] == ["rejected"] * 6 + ["indexed"]
    assert all(receipt.reason for receipt in receipts[:6])
    assert [receipt async for receipt in context.bulk([])] == []


async def test_what_only_the_server_can_reject_carries_status_code_and_request_id(context: AsyncClient) -> None:
    with pytest.raises(BadRequestError) as reported:
        await context.search("owl", category="unheard-of", request_id="mine-1")
    error = reported.value
    assert isinstance(error, InvalidInputError)
    assert (error.status, error.code, error.request_id) == (400, "INVALID_INPUT", "mine-1")
    assert error.details[0].field == "category"
    assert "mine-1" in error.__notes__[0]


async def test_the_request_id_is_the_callers(context: AsyncClient) -> None:
    assert (await context.search("owl", request_id="mine-2")).request_id == "mine-2"

"""`rag_context_list` over HTTP: pages of real documents, and cursors that are ours."""

from collections.abc import Iterator
from typing import cast

import httpx2
import pytest

from rag_context.server.options import ServerOptions
from tests.service.harness import ServiceHarness

from .server_thread import INDEX, running
from .stub_service import StubService

LIST = "/tools/rag_context_list"


@pytest.fixture(scope="module")
def memory() -> Iterator[httpx2.Client]:
    """A server over a real service that holds five documents."""
    with (
        running(cast("StubService", ServiceHarness().service), ServerOptions(port=0)) as open_server,
        open_server.client() as client,
    ):
        for number in range(5):
            body = {"content": f"Fox {number}.", "contentType": "decision", "sessionId": "s", "source": f"n/{number}"}
            assert client.post(INDEX, json=body).status_code == 200
        yield client


def test_pages_follow_each_other_to_the_end(memory: httpx2.Client) -> None:
    """T-5."""
    seen, cursor = set(), None
    for size in (2, 2, 1):
        page = memory.post(LIST, json={"limit": 2, "cursor": cursor}).json()
        assert len(page["documents"]) == size
        seen |= {document["source"] for document in page["documents"]}
        cursor = page.get("nextCursor")
    assert cursor is None
    assert len(seen) == 5


def test_filters_narrow_it(memory: httpx2.Client) -> None:
    page = memory.post(LIST, json={"source": "n/3", "contentType": "decision", "since": "2020-01-01T00:00:00Z"}).json()
    assert [document["source"] for document in page["documents"]] == ["n/3"]
    assert memory.post(LIST, json={"sessionId": "other"}).json() == {"documents": []}


def test_without_a_body_it_is_the_first_page(memory: httpx2.Client) -> None:
    assert len(memory.post(LIST).json()["documents"]) == 5


@pytest.mark.parametrize(
    ("body", "field"), [({"cursor": "no"}, "cursor"), ({"limit": 101}, "limit"), ({"category": "other"}, "category")]
)
def test_what_cannot_be_is_rejected_by_name(memory: httpx2.Client, body: dict[str, object], field: str) -> None:
    reply = memory.post(LIST, json=body)
    assert reply.status_code == 400
    assert [detail["field"] for detail in reply.json()["details"]] == [field]

"""Stored documents over HTTP: one by its id, pages of them, similar ones, deleting, and re-embedding all."""

from collections.abc import Iterator
from typing import Any, cast

import httpx2
import pytest

from rag_context.errors import BackendUnavailableError
from rag_context.server.options import ServerOptions
from tests.memory.harness import ServiceHarness

from .server_thread import INDEX, Running, running
from .stub_service import StubService

GET = "/tools/rag_context_get"


def test_a_document_is_read_by_its_id(client: httpx2.Client) -> None:
    """T-5."""
    reply = client.post(GET, json={"documentId": "d1", "project": None})
    assert reply.status_code == 200
    assert reply.json() == {
        "documentId": "d1",
        "title": "Patterns",
        "content": "MongoDB connections should use retry logic with exponential backoff.",
        "contentType": "documentation",
        "sessionId": "s1",
        "source": "docs/architecture/mongodb-patterns.md",
        "timestamp": "2026-02-18T10:30:00Z",
        "occurredAt": "2026-02-18T10:30:00Z",
        "metadata": {"agent": "oracle"},
        "origin": "unknown",
        "status": "indexed",
        "chunks": 1,
        "retrievalStats": {"queryCount": 2, "lastRetrieved": "2026-02-18T10:30:00Z"},
    }


def test_what_is_not_there_is_404_in_the_one_shape(client: httpx2.Client) -> None:
    """T-6."""
    reply = client.post(GET, json={"documentId": "d9"})
    assert reply.status_code == 404
    body = reply.json()
    assert (body["error"], body["code"]) == ("Document d9 not found", "NOT_FOUND")
    assert body["requestId"] == reply.headers["x-request-id"]


def test_without_an_id_it_is_the_request_that_is_wrong(client: httpx2.Client) -> None:
    reply = client.post(GET, json={"id": "d1"})
    assert reply.status_code == 400
    assert [detail["field"] for detail in reply.json()["details"]] == ["documentId", "id"]


def test_a_key_that_may_only_read_may_read_documents(locked: Running) -> None:
    """X-1."""
    with locked.client(**{"X-API-Key": "read-me"}) as client:
        assert client.post(GET, json={"documentId": "d1"}).status_code == 200


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
    assert memory.post(LIST, json={"sessionId": "other"}).json() == {
        "documents": [],
        "warning": 'No document has the session id "other".',
    }


def test_without_a_body_it_is_the_first_page(memory: httpx2.Client) -> None:
    assert len(memory.post(LIST).json()["documents"]) == 5


@pytest.mark.parametrize(
    ("body", "field"), [({"cursor": "no"}, "cursor"), ({"limit": 101}, "limit"), ({"category": "other"}, "category")]
)
def test_what_cannot_be_is_rejected_by_name(memory: httpx2.Client, body: dict[str, object], field: str) -> None:
    reply = memory.post(LIST, json=body)
    assert reply.status_code == 400
    assert [detail["field"] for detail in reply.json()["details"]] == [field]


SIMILAR = "/tools/rag_context_similar"


def test_similar_documents_come_with_their_label(client: httpx2.Client) -> None:
    """T-5."""
    reply = client.post(SIMILAR, json={"documentId": "d1", "limit": 3})
    assert reply.status_code == 200
    body = reply.json()
    assert (body["method"], body["fallback"], body["fallbackLevel"]) == ("vector", False, 1)
    assert body["results"][0]["documentId"] == "d2"


def test_limits_and_ids_are_checked_together(client: httpx2.Client) -> None:
    reply = client.post(SIMILAR, json={"limit": 21})
    assert reply.status_code == 400
    assert [detail["field"] for detail in reply.json()["details"]] == ["documentId", "limit"]


DELETE = "/tools/rag_context_delete"


def test_documents_are_named_by_one_key(client: httpx2.Client, open_server: Running) -> None:
    """T-5."""
    reply = client.post(DELETE, json={"source": "notes.md", "dryRun": True, "project": "p"})
    assert reply.status_code == 200
    assert reply.json() == {"deletedCount": 1, "documentIds": ["d1"], "dryRun": True}
    (asked,) = open_server.service.deleted
    assert (asked.source, asked.document_id, asked.session_id, asked.project) == ("notes.md", None, None, "p")


@pytest.mark.parametrize(
    "body",
    [{}, {"dryRun": True}, {"source": "a", "sessionId": "b"}, {"documentId": "a", "source": "b"}, {"source": None}],
)
def test_no_key_or_two_keys_delete_nothing(client: httpx2.Client, open_server: Running, body: dict[str, Any]) -> None:
    reply = client.post(DELETE, json=body)
    assert reply.status_code == 400
    assert reply.json()["error"] == "Name exactly one of documentId or source or sessionId"
    assert open_server.service.deleted == []


def test_null_does_not_count_as_a_key(client: httpx2.Client, open_server: Running) -> None:
    """T-8: null means absent."""
    assert client.post(DELETE, json={"source": None, "sessionId": "s", "documentId": None}).status_code == 200
    assert open_server.service.deleted[0].session_id == "s"


def test_only_a_key_that_may_write_deletes(locked: Running) -> None:
    for key, status in (("read-me", 403), ("write-me", 200)):
        with locked.client(**{"X-API-Key": key}) as client:
            assert client.post(DELETE, json={"sessionId": "s"}).status_code == status
    assert len(locked.service.deleted) == 1


def test_the_tools_schema_has_no_choice_at_its_top_and_openapi_has(client: httpx2.Client) -> None:
    """P-2: strict clients reject `oneOf` at the top of a tool's schema."""
    tools = {tool["name"]: tool for tool in client.get("/tools").json()["tools"]}
    assert not {"oneOf", "anyOf", "allOf"} & set(tools["rag_context_delete"]["inputSchema"])
    published = client.get("/openapi.json").json()["components"]["schemas"]["DeleteRequest"]
    assert [choice["required"] for choice in published["oneOf"]] == [["documentId"], ["source"], ["sessionId"]]


REINDEX = "/tools/rag_context_reindex"


def test_it_says_how_far_it_is(client: httpx2.Client) -> None:
    """T-5."""
    reply = client.post(REINDEX)
    assert reply.json() == {"status": "current", "documents": 523, "done": 523, "pending": 0}


def test_without_its_backends_it_says_when_to_come_back(client: httpx2.Client, open_server: Running) -> None:
    open_server.service.failure = BackendUnavailableError("embedder", "down", retry_after_s=3)
    reply = client.post(REINDEX, json={"force": True})
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "3")
    assert reply.json()["error"] == "Embedding service unavailable"


@pytest.mark.parametrize(("key", "status"), [("read-me", 403), ("write-me", 200)])
def test_only_a_key_that_may_write_reindexes(locked: Running, key: str, status: int) -> None:
    """X-1."""
    with locked.client(**{"X-API-Key": key}) as client:
        assert client.post(REINDEX, json={}).status_code == status

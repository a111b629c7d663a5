"""`rag_context_get` over HTTP: a document, or 404."""

import httpx2

from .server_thread import Running

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
        "metadata": {"agent": "oracle"},
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

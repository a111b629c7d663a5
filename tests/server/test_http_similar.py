"""`rag_context_similar` over HTTP."""

import httpx2

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

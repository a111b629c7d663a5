"""`rag_context_reindex` over HTTP: by keys that may write."""

import httpx2
import pytest

from rag_context.errors import BackendUnavailableError

from .server_thread import Running

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

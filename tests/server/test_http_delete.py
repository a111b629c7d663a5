"""`rag_context_delete` over HTTP: exactly one key, and a key that may write."""

from typing import Any

import httpx2
import pytest

from .server_thread import Running

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

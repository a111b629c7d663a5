"""Secrets do not reach the memory: of a whole configuration, and in every field of a request."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rag_context.stores.sqlite.embedded import FILE_NAME
from tests.end_to_end.process import Served, command, served
from tests.ingest.secret_shapes import SHAPES, named_secrets, written


def test_of_named_secrets_in_every_shape_nearly_none_is_stored(tmp_path: Path) -> None:
    named = list(named_secrets())
    stored: dict[str, str] = {}
    with served(tmp_path / "data", RAG_CONTEXT_INDEXING__TIMEOUT_S="0.1") as server:
        for shape in SHAPES:
            text = "\n\n".join(written(shape, name, value) for name, value in named)
            receipt = server.index(text, source=shape)
            assert sum(receipt["redactions"].values()) >= 0.9 * len(named), shape
            stored[shape] = server.tool("get", {"documentId": receipt["documentId"]}).json()["content"]
    left = [(shape, name) for shape in SHAPES for name, value in named if value in stored[shape]]
    assert len(left) <= 0.02 * len(SHAPES) * len(named), left


def token(number: int) -> str:
    """A token of a form that is masked everywhere, which no other number has."""
    return f"ghp_{number:04d}AbCdEfGhIjKlMnOpQrStUvWxYz123456"


ADDRESSED = "https://ann:{}@git.example.net/r.git"
DOCUMENT: Mapping[str, Any] = {
    "content": f"The deployment uses {token(1)} for its releases.",
    "contentType": "documentation",
    "source": ADDRESSED.format(token(2)),
    "sessionId": f"session {token(3)}",
    "agent": f"agent {token(4)}",
    "metadata": {
        "tags": [f"tag {token(5)}", "plain"],
        "decisionId": token(6),
        "game": token(7),
        "owner": {"note": [f"see {token(8)}"], token(9): 1, "password": "kJ7mQ2xW9pLs"},
    },
}
TOKENS = [*map(token, range(100)), "kJ7mQ2xW9pLs"]


def left_in(text: str) -> list[str]:
    return [secret for secret in TOKENS if secret in text]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("masked") / "data", RAG_CONTEXT_INDEXING__TIMEOUT_S="0.1") as server:
        yield server


def test_no_field_of_a_document_keeps_a_secret_and_its_filters_still_find_it(server: Served) -> None:
    first = server.tool("index", DOCUMENT).json()
    assert sum(first["redactions"].values()) == 10
    again = server.tool("index", DOCUMENT).json()
    assert (again["status"], again["documentId"]) == ("unchanged", first["documentId"])
    found = server.tool("get", {"documentId": first["documentId"]}).json()
    assert found["metadata"]["owner"]["password"] == "[REDACTED:assigned-secret]"
    assert found["source"] == ADDRESSED.format("[REDACTED:url-password]")
    filters = {
        "source": DOCUMENT["source"],
        "sessionId": DOCUMENT["sessionId"],
        "tags": DOCUMENT["metadata"]["tags"],
        "game": DOCUMENT["metadata"]["game"],
    }
    for name, value in filters.items():
        listed = server.tool("list", {name: value}).json()["documents"]
        assert [each["documentId"] for each in listed] == [first["documentId"]], name
        results = server.search("deployment releases", minScore=0, **{name: value})["results"]
        assert [each["documentId"] for each in results] == [first["documentId"]], name
        assert left_in(json.dumps([listed, results, found])) == []
    other = server.tool("index", {**DOCUMENT, "source": ADDRESSED.format(token(10))}).json()
    assert other["documentId"] != first["documentId"]  # nothing is replaced that differs in a secret alone
    deleted = server.tool("delete", {"source": DOCUMENT["source"], "confirm": True}).json()
    assert deleted["deletedCount"] == 2


def test_no_field_of_a_collection_keeps_a_secret(server: Served) -> None:
    assert server.post("/collections", {"name": f"c {token(20)}"}).status_code == 400
    assert server.post("/collections", {"name": "notes", "metadata": {"by": token(21)}}).status_code in (200, 201)
    documents = [{"text": f"uses {token(22)}", "metadata": {"url": ADDRESSED.format(token(23))}, "embedding": [1, 0]}]
    added = server.post("/collections/notes/documents", {"documents": documents})
    assert added.json()["redactions"] == {"github-token": 1, "url-password": 1}
    named = server.post("/collections/notes/documents", {"documents": [{**documents[0], "id": token(24)}]})
    assert named.status_code == 400
    assert "documents[0].id" in named.text
    where = {"url": ADDRESSED.format(token(23))}
    listed = server.get(f"/collections/notes/documents?where={json.dumps(where)}").json()
    assert listed["count"] == 1
    assert (
        left_in(json.dumps([listed, server.get("/collections/notes").json(), server.get("/collections").json()])) == []
    )


def test_recorded_queries_hold_no_secret_and_can_be_cleared(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"

    def recorded() -> list[str]:
        with closing(sqlite3.connect(data_dir / FILE_NAME)) as connection:
            return [query for (query,) in connection.execute("SELECT query FROM searches ORDER BY timestamp")]

    with served(data_dir, RAG_CONTEXT_INDEXING__TIMEOUT_S="0.1") as server:
        server.search(f"what is {token(30)} for", agent=f"agent {token(31)}")
        server.search("where do quokkas sleep")
        assert server.tool("stats", {}).json()["totalQueries"] == 2  # and so both are written
        assert recorded() == ["what is [REDACTED:github-token] for", "where do quokkas sleep"]
        with closing(sqlite3.connect(data_dir / FILE_NAME)) as connection:
            assert left_in("\n".join(connection.iterdump())) == []
        cleared = command("clear-queries", "--yes", "--json", data_dir=data_dir)
        assert json.loads(cleared.stdout) == {"deletedCount": 2}
        assert recorded() == []
        assert server.tool("stats", {}).json()["totalQueries"] == 0
    with served(data_dir, RAG_CONTEXT_TELEMETRY__QUERIES="false") as server:
        server.search("where do quokkas sleep")
        assert server.tool("stats", {}).json()["totalQueries"] == 1
        assert recorded() == [""]


def test_a_rejected_request_says_which_fields_hold_secrets(tmp_path: Path) -> None:
    with served(tmp_path / "data", RAG_CONTEXT_INDEXING__REDACTION="reject") as server:
        rejected = server.tool("index", DOCUMENT)
        assert rejected.status_code == 400
        fields = {detail["field"] for detail in rejected.json()["details"]}
        assert fields == {
            "content",
            "source",
            "sessionId",
            "metadata",
            "metadata.agent",
            "metadata.tags",
            "metadata.game",
            "metadata.decisionId",
        }
        assert left_in(rejected.text) == []
        assert server.tool("list", {}).json()["documents"] == []
        metadata = server.post("/collections", {"name": "notes", "metadata": {"by": token(40)}})
        assert (metadata.status_code, metadata.json()["details"][0]["field"]) == (400, "metadata")

"""Documents in MongoDB: a long one in Chinese, a long question, and an index of another program's in the way.

The server behind these tests is a stub that rejects what MongoDB rejects (`tests/servers/mongodb_limits.py`).
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pymongo
import pytest

from tests.end_to_end.process import Served, served
from tests.servers.mongodb import mongodb_process, uri_of

CHARACTERS = 420_000
"""In one record with its chunks and terms, as MongoDB would have to hold it, this is 17.5 MB."""

TIMEOUT_S = 200.0
FOREIGN = "tags_idx"


@dataclass(frozen=True)
class Memory:
    """A running server, its database, and the receipt of the long document that it was given."""

    server: Served
    database: pymongo.database.Database[dict[str, Any]]
    content: str
    receipt: dict[str, Any]

    def index_names(self, collection: str) -> set[str]:
        return {index["name"] for index in self.database[collection].list_indexes()}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    folder = tmp_path_factory.mktemp("mongodb")
    (folder / "memory").mkdir()
    content = "".join(random.Random(7).choices([chr(0x4E00 + number) for number in range(2500)], k=CHARACTERS))
    with mongodb_process(folder / "data") as process:
        uri = uri_of(process.port, "outcomes")
        with pymongo.MongoClient[dict[str, Any]](uri) as client:
            database = client.get_default_database()
            database["C0N7EXT"].create_index([("theirs", 1)], name=FOREIGN)
            patient = {"RAG_CONTEXT_SEARCH__DEADLINE_MS": "10000"}  # what is tested is not how fast the stub is
            with served(folder / "memory", MONGODB_URI=uri, **patient) as server:
                server.wait_ready()
                line = {"content": content, "contentType": "documentation", "sessionId": "s", "source": "long.md"}
                body = json.dumps(line, ensure_ascii=False).encode() + b"\n"
                with httpx2.Client(base_url=server.url, timeout=TIMEOUT_S) as asking:
                    reply = asking.post("/bulk", content=body, headers={"content-type": "application/x-ndjson"})
                yield Memory(server, database, content, json.loads(reply.text.splitlines()[0]))


def documents_detail(server: Served) -> str:
    """What health says of the store of documents."""
    return " ".join(each["detail"] for each in server.health()["components"] if each["name"] == "documents")


def test_a_document_of_420_000_chinese_characters_is_stored_and_found(memory: Memory) -> None:
    assert memory.receipt["status"] in ("indexed", "deferred"), memory.receipt
    for start in (0, 210_000, CHARACTERS - 30):
        quoted = memory.content[start : start + 30]
        answer = memory.server.search(quoted, mode="text")
        assert any(quoted[10:20] in result["content"] for result in answer["results"]), answer


def test_a_question_of_a_thousand_chinese_characters_is_answered_from_what_it_quotes(memory: Memory) -> None:
    quoted = memory.content[100_000:101_000]
    answer = memory.server.search(quoted, mode="text")
    texts = [result["content"] for result in answer["results"]]
    assert texts, answer
    # Neighbouring pieces are shown as one passage, which may begin before the quotation and go on behind it.
    assert all(any(text[at : at + 20] in quoted for at in range(0, len(text), 20)) for text in texts), texts


@pytest.mark.parametrize(
    ("tool", "fields"),
    [
        ("forget", {"tag": "a"}),
        ("log", {}),
        ("correct", {"content": "x"}),
        ("index", {"content": "x", "contentType": "chat", "sessionId": "s", "source": "s", "pinned": True}),
    ],
)
def test_changes_over_time_are_rejected_with_what_to_do_instead(
    memory: Memory, tool: str, fields: dict[str, Any]
) -> None:
    """H-5: MongoDB keeps no journal."""
    of = {"documentId": memory.receipt["documentId"]} if tool == "correct" else {}
    reply = memory.server.tool(tool, {**fields, **of})
    assert (reply.status_code, "rag_context_delete" in reply.text) == (400, True), reply.text
    assert memory.database["C0N7EXT"].count_documents({"content": "x"}) == 0


def test_an_index_of_another_program_is_named_by_health_and_stops_no_other(memory: Memory) -> None:
    detail = documents_detail(memory.server)
    assert "index C0N7EXT.tags_idx is missing" in detail
    assert "code 86" in detail
    assert {"content_text_index", "source_idx", "status_idx"} < memory.index_names("C0N7EXT")
    assert "terms_idx" in memory.index_names("C0N7EXT_chunks")

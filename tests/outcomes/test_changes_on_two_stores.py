"""H-3, H-5, H-7 with documents in the embedded store and vectors in Qdrant: what two stores can do, from outside."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.end_to_end.process import TIMEOUT_S, Served, served, wait_until
from tests.outcomes.changes import contents, done, log, state
from tests.outcomes.test_corrections import (
    test_a_chain_of_corrections_is_undone_step_by_step_to_the_byte,
    test_a_correction_is_found_and_what_it_corrects_is_not,
    test_a_question_as_of_a_moment_finds_the_version_that_was_current_then,
    test_two_writers_correct_one_document_and_one_of_them_gets_a_conflict,
)
from tests.outcomes.test_forgetting import (
    fill,
    test_superseded_versions_go_with_the_document_that_took_their_place,
    test_what_expires_is_forgotten_and_what_is_pinned_is_not,
)
from tests.servers import qdrant

__all__ = [
    "test_a_chain_of_corrections_is_undone_step_by_step_to_the_byte",
    "test_a_correction_is_found_and_what_it_corrects_is_not",
    "test_a_question_as_of_a_moment_finds_the_version_that_was_current_then",
    "test_superseded_versions_go_with_the_document_that_took_their_place",
    "test_two_writers_correct_one_document_and_one_of_them_gets_a_conflict",
    "test_what_expires_is_forgotten_and_what_is_pinned_is_not",
]

COLLECTION = "changes"
PAYS = "two: the TREASURER of two pays the berth."


@pytest.fixture(scope="module")
def vectors() -> Iterator[str]:
    with qdrant.running() as endpoint:
        yield endpoint.url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, vectors: str) -> Iterator[Served]:
    stores = {"VECTORS": "qdrant", "QDRANT_URL": vectors, "QDRANT_COLLECTION": COLLECTION}
    data_dir: Path = tmp_path_factory.mktemp("changes") / "data"
    with served(data_dir, **{f"RAG_CONTEXT_STORES__{name}": value for name, value in stores.items()}) as running:
        running.wait_ready()
        running.index("The buoys of berth 4 are red.", source="buoys.md")
        yield running


def points(vectors: str) -> list[dict[str, Any]]:
    """All that Qdrant has of the index."""
    url = f"{vectors}/collections/{COLLECTION}/points/scroll"
    answer = httpx2.post(url, json={"limit": 1000, "with_payload": True}, timeout=TIMEOUT_S)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["result"]["points"]
    return found


def test_what_is_forgotten_stays_so_and_comes_back_exactly(server: Served, vectors: str) -> None:
    ids = fill(server, "two")
    before, stored = state(server), len(points(vectors))
    receipt = done(server, "forget", tag="tag-two")
    assert (receipt["documents"], receipt["passages"], receipt["vectors"]) == (2, 2, 2)
    own = receipt["stores"]["embedded"]
    assert (own["documents"], own["passages"], own["vectors"]) == (2, 2, 0)
    assert receipt["stores"]["qdrant"] == {"documents": 0, "passages": 2, "vectors": 2, "derived": 0}
    assert contents(server.search("Who pays the berth?", source="two.md", minScore=0)) == []
    again = server.index(PAYS, source="two.md", sessionId="session-two")
    assert (again["status"], again["documentId"]) == ("forgotten", ids[1])
    done(server, "undo", id=receipt["id"])
    wait_until(lambda: len(points(vectors)) == stored)
    assert state(server) == before
    assert done(server, "forget", tag="tag-two", purge=True)["stores"]["qdrant"]["vectors"] == 2
    left = points(vectors)
    assert len(left) == stored - 2
    assert "TREASURER" not in json.dumps(left)
    assert done(server, "forget", tag="tag-two", purge=True, dryRun=True)["vectors"] == 0
    assert server.index(PAYS, source="two.md", sessionId="session-two")["status"] == "forgotten"
    assert log(server)[0]["operation"] == "purge"

"""H-3, H-5, H-7 on PostgreSQL: corrections, forgetting and undo, from outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.process import Served, served
from tests.outcomes.changes import done, state
from tests.outcomes.test_corrections import (
    test_a_chain_of_corrections_is_undone_step_by_step_to_the_byte,
    test_a_correction_is_found_and_what_it_corrects_is_not,
    test_two_writers_correct_one_document_and_one_of_them_gets_a_conflict,
)
from tests.outcomes.test_forgetting import (
    fill,
    test_superseded_versions_go_with_the_document_that_took_their_place,
    test_what_expires_is_forgotten_and_what_is_pinned_is_not,
)
from tests.servers.postgres import postgres_database, postgres_server

__all__ = [
    "test_a_chain_of_corrections_is_undone_step_by_step_to_the_byte",
    "test_a_correction_is_found_and_what_it_corrects_is_not",
    "test_superseded_versions_go_with_the_document_that_took_their_place",
    "test_two_writers_correct_one_document_and_one_of_them_gets_a_conflict",
    "test_what_expires_is_forgotten_and_what_is_pinned_is_not",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    stores = {"RAG_CONTEXT_STORES__DOCUMENTS": "postgres", "RAG_CONTEXT_STORES__VECTORS": "postgres"}
    data_dir: Path = tmp_path_factory.mktemp("changes") / "data"
    with (
        postgres_server() as url,
        postgres_database(url) as database,
        served(data_dir, **stores, RAG_CONTEXT_STORES__POSTGRES_URL=database) as running,
    ):
        running.wait_ready()
        running.index("The buoys of berth 4 are red.", source="buoys.md")
        yield running


def test_what_is_forgotten_stays_so_and_comes_back_exactly(server: Served) -> None:
    ids = fill(server, "postgres")
    before = state(server)
    receipt = done(server, "forget", tag="tag-postgres")
    assert (receipt["documents"], receipt["passages"], receipt["vectors"]) == (2, 2, 2)
    again = server.index("postgres: the TREASURER of postgres pays the berth.", source="postgres.md",
                         sessionId="session-postgres")  # fmt: skip
    assert (again["status"], again["documentId"]) == ("forgotten", ids[1])
    done(server, "undo", id=receipt["id"])
    assert state(server) == before
    assert done(server, "forget", tag="tag-postgres", purge=True)["documents"] == 2
    assert done(server, "forget", tag="tag-postgres", purge=True, dryRun=True)["documents"] == 0

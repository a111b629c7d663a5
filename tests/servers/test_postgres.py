"""The PostgreSQL that tests run against is a real one, of either major version."""

import pytest

from tests.servers.postgres import FAST, binaries, postgres_database, postgres_process, query, url_of


@pytest.mark.parametrize("version", ["16", "18"])
def test_a_server_has_pgvector_and_databases_that_are_copies(version: str) -> None:
    with postgres_process(*FAST, version=version) as server:
        url = url_of(server.port)
        assert query(url, "SHOW server_version")[0][0].split(".")[0] == version
        with postgres_database(url) as template:
            query(template, "CREATE EXTENSION vector")
            with postgres_database(url, template) as copy:
                assert query(copy, "SELECT '[1,2]'::vector <-> '[1,4]'::vector")[0][0] == 2.0


def test_a_server_that_ends_at_once_fails_with_what_it_printed() -> None:
    with pytest.raises(RuntimeError, match="no_such_setting"), postgres_process("-c", "no_such_setting=1"):
        pass


def test_an_unknown_version_is_no_reason_to_skip() -> None:
    with pytest.raises(RuntimeError, match="PostgreSQL 9"):
        binaries("9")

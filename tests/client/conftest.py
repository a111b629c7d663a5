"""One real server for all tests of this directory that break nothing."""

from collections.abc import Iterator

import pytest

from tests.end_to_end.process import Served, served


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A ready server in a process of its own."""
    with served(tmp_path_factory.mktemp("data")) as server:
        server.wait_ready()
        yield server

"""A server that holds two documents."""

from collections.abc import Iterator

import pytest

from tests.end_to_end.process import Served, served


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A ready server in a process of its own."""
    with served(tmp_path_factory.mktemp("data")) as server:
        server.wait_ready()
        said = {"agent": "scout", "tags": ["birds"], "score": "high", "game": "Owls"}
        server.index("# Owls\n\nThe barn owl hunts voles at night.", source="owls.md", metadata=said)
        server.index("Red foxes dig their dens in sandy slopes.", source="foxes.md")
        yield server

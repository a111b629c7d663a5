"""One real server for all tests of this directory that break nothing, and every kind of client of it."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from rag_context.client import AsyncClient
from tests.end_to_end.process import Served, served

from .client_kinds import CLIENT_KINDS, opened


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A ready server in a process of its own."""
    with served(tmp_path_factory.mktemp("data")) as server:
        server.wait_ready()
        yield server


@pytest_asyncio.fixture(params=CLIENT_KINDS, scope="module", loop_scope="module")
async def context(
    request: pytest.FixtureRequest, server: Served, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AsyncClient]:
    """The memory through each kind of client, for modules whose tests share a loop."""
    async with opened(request.param, server.url, tmp_path_factory.mktemp("own")) as context:
        yield context

"""Servers that all tests of a process share: each starts when a test first needs it, and once."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.process import ServerProcess
    from tests.servers.qdrant import Endpoint


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[str]:
    """The address of a PostgreSQL; each test takes a database of its own."""
    from tests.servers.postgres import postgres_server

    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def shared_postgres_template(shared_postgres: str) -> Iterator[str]:
    """The address of a database with the schema and nothing in it, which others are copied from."""
    from rag_context.stores.postgres import open_postgres
    from tests.servers.postgres import postgres_database

    async def migrate(url: str) -> None:
        async with open_postgres(url) as store:
            await store.documents.ping()

    with postgres_database(shared_postgres) as url:
        asyncio.run(migrate(url))
        yield url


@pytest.fixture(scope="session")
def shared_mongodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a MongoDB; each module takes a database of its own."""
    from tests.servers.mongodb import mongodb_server

    with mongodb_server(tmp_path_factory.mktemp("mongodb") / "data") as uri:
        yield uri


@pytest.fixture(scope="session")
def shared_qdrant() -> Iterator["Endpoint"]:
    """A Qdrant; each test takes collections of its own."""
    from tests.servers.qdrant import endpoint

    with endpoint() as found:
        yield found


@pytest.fixture(scope="session")
def shared_chroma() -> Iterator["ServerProcess"]:
    """A Chroma; each test takes collections of its own."""
    from tests.servers.chroma import chroma_server

    with chroma_server() as server:
        yield server

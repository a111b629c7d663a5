"""What tests of PostgreSQL ask for; imported by the modules that do."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from rag_context.stores.postgres import PostgresStore, open_postgres
from tests.servers.postgres import postgres_database, postgres_server


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a running server, started once."""
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    """The address of a database with the schema and nothing in it, which others are copied from."""
    with postgres_database(server) as url:
        migrate(url)
        yield url


@pytest.fixture
def empty(server: str) -> Iterator[str]:
    """The address of a database of one's own without the schema."""
    with postgres_database(server) as url:
        yield url


@pytest.fixture
def database(server: str, template: str) -> Iterator[str]:
    """The address of a database of one's own with the schema."""
    with postgres_database(server, template) as url:
        yield url


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[PostgresStore]:
    """The store on it."""
    async with open_postgres(database) as opened:
        yield opened


def migrate(url: str) -> None:
    """Make the schema in a database."""

    async def opened() -> None:
        async with open_postgres(url) as store:
            await store.documents.ping()

    asyncio.run(opened())

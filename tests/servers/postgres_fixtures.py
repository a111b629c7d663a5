"""What tests of PostgreSQL ask for; imported by the modules that do."""

from collections.abc import AsyncIterator, Iterator

import pytest

from rag_context.stores.postgres import PostgresStore, open_postgres
from tests.servers.postgres import postgres_database


@pytest.fixture(scope="session")
def server(shared_postgres: str) -> str:
    """The address of a running server."""
    return shared_postgres


@pytest.fixture(scope="session")
def template(shared_postgres_template: str) -> str:
    """The address of a database with the schema and nothing in it, which others are copied from."""
    return shared_postgres_template


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

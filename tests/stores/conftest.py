from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rag_context.stores.sqlite.embedded import FILE_NAME
from tests.servers.mongodb import mongodb_database
from tests.servers.postgres import postgres_database
from tests.stores.builders import Stores
from tests.stores.opened import opening


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture
def store_name(request: pytest.FixtureRequest) -> str:
    """Which store a test is for: the embedded one where nothing else is named."""
    name: str = getattr(request, "param", "sqlite")
    return name


@pytest.fixture
def opened_store(store_name: str, request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Stores]:
    return opening(store_name, request)


@pytest.fixture
async def store(opened_store: AbstractAsyncContextManager[Stores]) -> AsyncIterator[Stores]:
    """An empty store with documents, vectors, texts and metrics; see `opened`."""
    async with opened_store as opened:
        yield opened


@pytest.fixture
def contract_postgres(shared_postgres: str, shared_postgres_template: str) -> Iterator[str]:
    """The address of a database of one's own with the schema."""
    with postgres_database(shared_postgres, shared_postgres_template) as url:
        yield url


@pytest.fixture(scope="session")
def contract_mongodb(shared_mongodb: str) -> Iterator[str]:
    """The address of a database whose indexes stay from test to test."""
    with mongodb_database(shared_mongodb) as uri:
        yield uri


@pytest.fixture(scope="session")
def contract_chroma_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chroma")

"""Every provider, for the tests that each must pass."""

import runpy
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel

from rag_context.collections.registry import ProviderKind
from rag_context.ports.provider import Provider
from rag_context.stores.qdrant.qdrant_api import Transport
from rag_context.stores.sqlite.collections import open_collections
from rag_context.stores.sqlite.embedded import FILE_NAME
from tests.collections.isolated_providers import chroma_collections, postgres_collections, qdrant_collections
from tests.collections.memory_collections import MemoryCollections
from tests.servers.chroma import chroma_server
from tests.servers.postgres import postgres_database
from tests.servers.postgres_fixtures import server
from tests.servers.process import ServerProcess
from tests.servers.qdrant import Endpoint, endpoint

__all__ = ["server"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/provider-in-one-file/rag_context_json_files.py"

Opener = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Provider]]


@asynccontextmanager
async def embedded(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    folder: Path = request.getfixturevalue("tmp_path")
    async with open_collections(folder / FILE_NAME) as provider:
        yield provider


@asynccontextmanager
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    yield MemoryCollections()


@asynccontextmanager
async def postgres(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    url: str = request.getfixturevalue("collections_database")
    async with postgres_collections(url) as provider:
        yield provider


@asynccontextmanager
async def qdrant(request: pytest.FixtureRequest, transport: Transport) -> AsyncIterator[Provider]:
    server: Endpoint = request.getfixturevalue("qdrant_server")
    async with qdrant_collections(server, transport=transport) as provider:
        yield provider


@asynccontextmanager
async def chroma(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    server: ServerProcess = request.getfixturevalue("chroma_collections_server")
    async with chroma_collections(f"http://{server.host}:{server.port}") as provider:
        yield provider


@asynccontextmanager
async def chroma_folder(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    folder: Path = request.getfixturevalue("chroma_collections_folder")
    async with chroma_collections(folder) as provider:
        yield provider


@asynccontextmanager
async def example(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    """The provider that the documentation shows."""
    kind: ProviderKind[BaseModel] = runpy.run_path(str(EXAMPLE))["KIND"]
    folder: Path = request.getfixturevalue("tmp_path")
    async with kind.open(kind.configuration(folder=folder / "files")) as provider:
        yield provider


OPENERS: dict[str, Opener] = {
    "embedded": embedded,
    "memory": memory,
    "postgres": postgres,
    "qdrant over http": lambda request: qdrant(request, "http"),
    "qdrant over grpc": lambda request: qdrant(request, "grpc"),
    "chroma": chroma,
    "chroma in a folder": chroma_folder,
    "example": example,
}
"""How each provider is opened, empty."""


@pytest.fixture(scope="session")
def collections_database(server: str) -> Iterator[str]:
    """The address of a database of a real PostgreSQL, for collections only."""
    with postgres_database(server) as url:
        yield url


@pytest.fixture(scope="session")
def qdrant_server() -> Iterator[Endpoint]:
    """The real server at RAG_TEST_QDRANT_URL, or a stub."""
    with endpoint() as found:
        yield found


@pytest.fixture(scope="session")
def chroma_collections_server() -> Iterator[ServerProcess]:
    with chroma_server() as server:
        yield server


@pytest.fixture(scope="session")
def chroma_collections_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chroma")


@pytest.fixture(params=list(OPENERS))
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    """Every provider; each must pass every test that uses this fixture."""
    async with OPENERS[request.param](request) as opened:
        yield opened

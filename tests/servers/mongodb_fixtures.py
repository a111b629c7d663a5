"""What tests of MongoDB ask for; imported by the modules that do."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias

import pymongo
import pytest
from pymongo.asynchronous.database import AsyncDatabase

from rag_context.stores.mongodb import MongoStore, open_mongodb
from tests.servers.mongodb import empty, mongodb_database
from tests.stores.builders import chunks_of, document

Raw: TypeAlias = AsyncDatabase[dict[str, Any]]


@pytest.fixture(scope="module")
def server(shared_mongodb: str) -> str:
    """The address of a running server."""
    return shared_mongodb


@pytest.fixture(scope="module")
def kept(server: str) -> Iterator[str]:
    """The address of a database whose indexes stay from test to test."""
    with mongodb_database(server) as uri:
        yield uri


@pytest.fixture
def database(kept: str) -> str:
    """The address of a database without documents."""
    empty(kept)
    return kept


@pytest.fixture
async def mongodb(database: str) -> AsyncIterator[MongoStore]:
    """The store on it."""
    async with open_mongodb(database) as opened:
        yield opened


@pytest.fixture
async def raw(database: str) -> AsyncIterator[Raw]:
    """The database as the driver sees it."""
    async with pymongo.AsyncMongoClient[dict[str, Any]](database, tz_aware=True) as client:
        yield client.get_default_database()


async def put(store: MongoStore, name: str, *texts: str, settled: bool = False, **fields: Any) -> list[str]:
    """Store a document; with `settled`, its vectors count as stored too. Returns the ids of its chunks."""
    written = document(name, **fields)
    chunks = chunks_of(written, *texts)
    await store.documents.put(written, chunks)
    if settled:
        await store.documents.mark_indexed(written.id, written.content_hash)
    return [chunk.id for chunk in chunks]

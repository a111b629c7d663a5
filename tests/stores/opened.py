"""Every store of ours, opened and empty, for the tests that all of them must pass.

The fixture `store` opens the one that `store_name` names. A module names those that its tests are for in a fixture
`store_name` of its own; a test that is for some of them only has a `parametrize("store_name", ..., indirect=True)`.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from rag_context.ingest.split_stores import Reconciler, TwoStoreWriter, journal_over
from rag_context.ports.reading import KeywordIndex, MetricsStore, VectorStore
from rag_context.ports.writing import Journal, VectorRebuilder, VectorWriter, Version
from rag_context.resilience.dependency import Dependency
from rag_context.settings import Settings, StoreSettings
from rag_context.stores.postgres import open_postgres
from rag_context.stores.qdrant import CollectionPlan, QdrantVectors, open_qdrant
from rag_context.stores.sqlite.document_ports import SqliteVectorBackend
from rag_context.stores.sqlite.embedded import FILE_NAME, open_database, open_documents, start_vectors
from rag_context.wiring.stores import open_stores
from tests.memory_stores import MemoryStore, MemoryTexts, MemoryVectors
from tests.servers.mongodb import empty
from tests.servers.process import ServerProcess
from tests.servers.qdrant import Endpoint
from tests.stores.builders import Documents, Stores

PAIRS = [
    "embedded and qdrant",
    "embedded and chroma",
    "embedded and chroma folder",
    "mongodb and qdrant",
    "mongodb and chroma",
]
"""Documents in the one store, vectors in the other."""


def opening(name: str, request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Stores]:
    """The store of this name, to be opened by a test."""
    folder: Path = request.getfixturevalue("tmp_path")
    match name:
        case "sqlite":
            return open_database(folder / FILE_NAME)
        case "two files":
            return two_files(folder)
        case "postgres":
            return open_postgres(request.getfixturevalue("contract_postgres"))
        case "memory":
            return in_memory()
        case "qdrant over http" | "qdrant over grpc":
            return only_qdrant(request.getfixturevalue("shared_qdrant"), name.rpartition(" ")[2])
        case "mongodb":
            name = "mongodb and embedded"
    documents, _, vectors = name.partition(" and ")
    return two_stores(folder, documents, vectors, request)


@dataclass(frozen=True)
class TwoStores:
    """Documents in one store, vectors in another, as one."""

    documents: Documents
    vectors: VectorStore
    texts: KeywordIndex
    metrics: MetricsStore
    rebuilder: VectorRebuilder | None = None
    journal: Journal | None = None


class _Together:
    """The document store, written to by the writer over both."""

    def __init__(self, reads: object, writes: object) -> None:
        self._parts = (writes, reads)

    def __getattr__(self, name: str) -> object:
        for part in self._parts:
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(name)


@asynccontextmanager
async def two_stores(
    folder: Path, documents: str, vectors: str, request: pytest.FixtureRequest
) -> AsyncIterator[TwoStores]:
    """Two stores, as a server opens them."""
    name = f"test-{uuid4().hex}"
    chosen: dict[str, Any] = {"documents": documents, "vectors": vectors.removesuffix(" folder")}
    match documents:
        case "mongodb":
            chosen["mongodb_uri"] = request.getfixturevalue("contract_mongodb")
            empty(chosen["mongodb_uri"])
    match vectors:
        case "qdrant":
            qdrant: Endpoint = request.getfixturevalue("shared_qdrant")
            chosen |= {"qdrant_url": qdrant.url, "qdrant_api_key": qdrant.api_key, "qdrant_collection": name}
        case "chroma":
            server: ServerProcess = request.getfixturevalue("shared_chroma")
            chosen |= {"chroma_url": f"http://{server.host}:{server.port}", "chroma_collection": name}
        case "chroma folder":
            chosen |= {"chroma_dir": request.getfixturevalue("contract_chroma_folder"), "chroma_collection": name}
    async with open_stores(Settings(data_dir=folder, stores=StoreSettings(**chosen))) as opened:
        whole = cast("Documents", _Together(opened.documents, opened.writer))
        yield TwoStores(whole, opened.vectors, opened.texts, opened.metrics, opened.rebuilder, opened.journal)
        await opened.registry.drop_vectors()


@asynccontextmanager
async def open_vectors(path: Path) -> AsyncIterator[SqliteVectorBackend]:
    """A file with the vectors of another store's documents."""
    vectors = start_vectors(path)
    try:
        yield vectors
    finally:
        await vectors.close()


@asynccontextmanager
async def two_files(folder: Path) -> AsyncIterator[TwoStores]:
    """Documents in one file, vectors in another."""
    async with open_documents(folder / "documents.db") as home, open_vectors(folder / "vectors.db") as vectors:
        writer = TwoStoreWriter(
            documents=home.documents,
            writer=home.documents,
            registry=home.documents,
            vectors=vectors,
            vector_store=Dependency("vectors", vectors.ping),
            suspect=Reconciler(home.documents, home.documents, vectors).suspect,
        )
        documents = cast("Documents", _Together(home.documents, writer))
        journal = journal_over(home.journal, writer, "vectors")
        yield TwoStores(documents, vectors, home.texts, home.metrics, journal=journal)


@dataclass
class _DocumentsInMemory(MemoryStore):
    """Documents in memory, whose vectors are kept by another store."""

    elsewhere: VectorWriter = field(kw_only=True)

    async def write(self, version: Version) -> bool:
        await super().write(version)
        if version.vectors is None:
            await self.elsewhere.discard([version.document.id])
            return False
        await self.elsewhere.put(version.document, version.chunks, version.vectors)
        return True

    async def delete(self, document_id: str) -> bool:
        there = await super().delete(document_id)
        if there:
            await self.elsewhere.discard([document_id])
        return there


@dataclass(frozen=True)
class VectorsInQdrant:
    """Documents here, vectors there."""

    documents: _DocumentsInMemory
    vectors: QdrantVectors


@asynccontextmanager
async def only_qdrant(server: Endpoint, transport: Any) -> AsyncIterator[Stores]:
    """Vectors in Qdrant alone."""
    plan = CollectionPlan(f"test-{uuid4().hex}")
    async with open_qdrant(
        server.url, plan, api_key=server.api_key, transport=transport, grpc_port=server.grpc_port
    ) as vectors:
        yield cast("Stores", VectorsInQdrant(_DocumentsInMemory(elsewhere=vectors), vectors))
        await vectors.clear()


@dataclass(frozen=True)
class StoreInMemory:
    """The ports of one `MemoryStore`."""

    documents: MemoryStore
    vectors: MemoryVectors
    texts: MemoryTexts


@asynccontextmanager
async def in_memory() -> AsyncIterator[Stores]:
    """The shipped fakes."""
    store = MemoryStore()
    yield cast("Stores", StoreInMemory(store, store.vectors, store.texts))

"""A project on disk with the real write path over the embedded store; only the model is a fake."""

import asyncio
import json
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rag_context.domain.documents import Tenant
from rag_context.domain.search import Filter
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.ingest.text_vectors import ReusableVectors
from rag_context.memory.bound_embedder import BoundEmbedder
from rag_context.ports.writing import IndexWriter
from rag_context.projects.config import ProjectConfig
from rag_context.projects.doc_types import DocTypes, doc_types_of
from rag_context.projects.document_lists import DocumentLists
from rag_context.projects.project_documents import DocsFolder
from rag_context.projects.sync import Synchroniser
from rag_context.resilience.dependency import Dependency
from rag_context.stores.sqlite.embedded import SqliteStore, open_database
from rag_context.testing import FakeEmbedder, Faulty

TENANT = Tenant("shop", "main", "0123456789abcdef")


def built_in() -> DocTypes:
    """The kinds of documents without any of a project's own."""
    return doc_types_of(ProjectConfig(Path("/nowhere/.rag-context/config.json"), "shop"), Path("/nowhere"))


def write(path: Path, text: str) -> Path:
    """Write a file, its folders as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(textwrap.dedent(text).lstrip("\n").encode())
    return path


def configure(root: Path, **values: object) -> Path:
    """Write a project's configuration."""
    path = root / ".rag-context" / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"project_name": "shop", **values}))
    return path


class ManualWatch:
    """Reports what a test tells it, of whatever folder is watched."""

    def __init__(self) -> None:
        self.stops: list[asyncio.Event] = []
        """One for each that was watched."""
        self._waiting: dict[Path, asyncio.Queue[frozenset[Path]]] = {}

    async def __call__(
        self, root: Path, *, debounce_s: float = 0.5, stop: asyncio.Event
    ) -> AsyncIterator[frozenset[Path]]:
        self.stops.append(stop)
        waiting = self._waiting[root] = asyncio.Queue()
        yield frozenset()
        stopped = asyncio.ensure_future(stop.wait())
        while not stop.is_set():
            changed = asyncio.ensure_future(waiting.get())
            await asyncio.wait({changed, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if changed.done():
                yield changed.result()
            else:
                changed.cancel()

    def tell(self, root: Path, *paths: Path) -> None:
        """Say that something changed below a folder."""
        self._waiting[root].put_nowait(frozenset(paths))


@dataclass
class SyncHarness:
    """The write path, and what it counts."""

    store: SqliteStore
    embedder: FakeEmbedder = field(default_factory=FakeEmbedder)

    def __post_init__(self) -> None:
        self.documents = self.store.documents
        self.writer: Faulty[IndexWriter] = Faulty(self.documents, "write_all", "delete")
        self.document_lists = DocumentLists(self.documents)
        bound = BoundEmbedder(self.embedder, self.documents)
        guard = Dependency("documents", self.documents.ping)
        self.bound = bound
        self.indexer = Indexer(
            embedder=bound,
            embedding=Dependency("embedder", bound.ping),
            documents=self.documents,
            document_store=guard,
            writer=self.writer.port,
            policy=IndexingPolicy(254),
            stored_vectors=ReusableVectors(
                self.documents,
                guard,
                self.store.vectors,
                Dependency("vectors", self.store.vectors.ping),
                self.documents,
            ),
        )

    def synchroniser(self, docs: Path, tenant: Tenant = TENANT) -> Synchroniser:
        """What keeps a folder's documents."""
        return Synchroniser(DocsFolder(tenant, docs, built_in()), self.indexer, self.document_lists)

    async def contents(self, tenant: Tenant = TENANT) -> Mapping[str, str]:
        """What is stored, by path."""
        found = {}
        for id_ in await self.documents.matching(Filter(tenant), 10_000):
            document = await self.documents.get(id_)
            if document is not None:  # it may have gone meanwhile
                found[str(document.metadata.extra["path"])] = document.content
        return found

    async def embedded(self) -> int:
        """Texts embedded so far."""
        return self.embedder.calls


@asynccontextmanager
async def open_sync_harness(folder: Path) -> AsyncIterator[SyncHarness]:
    """The write path over a store in this folder."""
    async with open_database(folder / "rag-context.db") as store:
        harness = SyncHarness(store)
        await harness.bound.bind()
        yield harness

"""An index to send documents to: the real write path over memory and a fake model, whose calls are counted."""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rag_context.api.index import BulkLine, BulkReceipt, FileReceipt
from rag_context.domain.search import Filter
from rag_context.errors import BackendError
from rag_context.files.file_jobs import ReadingSettings
from rag_context.files.file_reading import Labels
from rag_context.files.folder_sync import FolderSync, Gone
from rag_context.files.formats.converter import Converter
from rag_context.files.target import OnReceipt
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.ingest.text_vectors import ReusableVectors
from rag_context.memory.mappers import bulk_receipt, document_input
from rag_context.ports.models import Embedder
from rag_context.ports.writing import FileManifest
from rag_context.resilience.dependency import Dependency
from rag_context.testing import FakeEmbedder, Faulty
from tests.memory_stores import MemoryStore

MAX_BYTES = 2000


@dataclass
class IndexTarget:
    """Fits `Target`."""

    store: MemoryStore = field(default_factory=MemoryStore)
    lines: list[BulkLine] = field(default_factory=list)
    """What was sent."""
    down: BackendError | None = None
    """Why nothing can be reached."""
    refusing: set[str] = field(default_factory=set)
    """Ends of sources that are rejected for a reason that may pass."""

    def __post_init__(self) -> None:
        fake = FakeEmbedder()
        self.embedder: Faulty[Embedder] = Faulty(fake, "embed_documents")
        documents = Dependency("documents", self.store.ping)
        vectors = Dependency("vectors", self.store.vectors.ping)
        self.indexer = Indexer(
            embedder=self.embedder.port,
            embedding=Dependency("embedder", fake.ping),
            documents=self.store,
            document_store=documents,
            writer=self.store,
            policy=IndexingPolicy(254),
            stored_vectors=ReusableVectors(self.store, documents, self.store.vectors, vectors, self.store),
        )
        self._model = fake.model

    @property
    def embeddings(self) -> int:
        """How often the model was called."""
        return self.embedder.calls

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
        self._check()
        if await self.store.recorded_model() is None:
            await self.store.adopt_model(self._model)
        for place, line in enumerate(lines):
            self.lines.append(line)
            if any(map(line.source.endswith, self.refusing)):
                on_receipt(place, BulkReceipt(status="rejected", reason="Database unavailable", retryable=True))
                continue
            receipt = await self.indexer.index(document_input(line), reuse_from=line.like or ())
            on_receipt(place, bulk_receipt(receipt, line.source))

    async def missing(self, versions: Mapping[str, str]) -> Collection[str]:
        self._check()
        there = await self.store.content_hashes(list(versions))
        return [id_ for id_, version in versions.items() if there.get(id_) != version]

    async def remove(self, document_id: str) -> None:
        self._check()
        await self.indexer.remove(document_id)

    async def sources(self, prefix: str) -> AsyncIterator[tuple[str, str]]:
        for each in await self.store.listing(Filter(source_prefix=prefix), limit=10_000):
            yield each.source, each.id

    async def state(self) -> dict[str, tuple[str, bool]]:
        """What is stored: content hash, and whether the vectors are in, by source."""
        found = {}
        for id_, stored in (await self.store.inventory("", 10_000)).items():
            document = await self.store.get(id_)
            if document is None:
                raise AssertionError(id_)
            found[document.source] = (stored.content_hash, stored.indexed)
        return found

    def _check(self) -> None:
        if self.down is not None:
            raise self.down


@dataclass
class CollectedReceipts:
    """The receipts of a run."""

    receipts: list[FileReceipt] = field(default_factory=list)

    def take(self, below: Path) -> list[tuple[str, str]]:
        """Status and relative name of those that came since the last time."""
        taken: list[tuple[str, str]] = [
            (each.status, (each.source or "").removeprefix(f"{below.as_posix()}/")) for each in self.receipts
        ]
        self.receipts.clear()
        return taken


@contextmanager
def syncing(
    target: IndexTarget,
    ledger: FileManifest,
    received: CollectedReceipts,
    *,
    gone: Gone = Gone.REMOVE,
    labels: Labels | None = None,
    racy_ns: int | None = None,
) -> Iterator[FolderSync]:
    """Brings the index in step with files."""
    said = labels or Labels()
    recipe = ReadingSettings(said, MAX_BYTES, repr(said).encode())
    with Converter() as converter:
        sync = FolderSync(target, ledger, recipe, converter, gone, received.receipts.append)
        yield sync if racy_ns is None else replace(sync, racy_ns=racy_ns)

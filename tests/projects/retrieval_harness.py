"""A knowledge base in memory, whose parts can be made to fail, and the retrieval service over it."""

from dataclasses import dataclass, field
from pathlib import Path

from rag_context.domain.documents import DOCUMENTATION, Channel, DocumentInput, Tenant
from rag_context.files.file_reading import FILES_SESSION
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.ports.models import Embedder
from rag_context.ports.reading import DocumentStore, IndexVectors, KeywordIndex
from rag_context.projects.assembly import Renderer
from rag_context.projects.config import ProjectConfig
from rag_context.projects.doc_types import doc_types_of
from rag_context.projects.document_lists import DocumentLists
from rag_context.projects.project_documents import DocsFolder, project_input
from rag_context.projects.retrieval import RetrievalDependencies, RetrievalService
from rag_context.resilience.dependency import Breaker, Dependency, constant_cooldown
from rag_context.search.chain import SearchChain
from rag_context.search.retrievers import Backends
from rag_context.testing import FakeEmbedder, Faulty
from tests.memory_stores import MemoryStore

OURS = Tenant("shop", "main", "0123456789abcdef")
ROOT = Path("/repo/docs")


@dataclass
class RetrievalHarness:
    """Documents by path, written as files would be, and what reads them."""

    deadline_s: float = 2.0
    store: MemoryStore = field(default_factory=MemoryStore)
    fake: FakeEmbedder = field(default_factory=FakeEmbedder)

    def __post_init__(self) -> None:
        self.embedder: Faulty[Embedder] = Faulty(self.fake, "embed_query")
        self.vectors: Faulty[IndexVectors] = Faulty(self.store.vectors, "search")
        self.texts: Faulty[KeywordIndex] = Faulty(self.store.texts, "search")
        self.reads: Faulty[DocumentStore] = Faulty(self.store, "get")
        self.lists: Faulty[DocumentStore] = Faulty(self.reads.port, "matching", "content_hashes", "listing")
        self.documents: Faulty[DocumentStore] = Faulty(self.lists.port, "passages", "neighbours", "counts")
        self.sources = Backends(
            embedder=self.embedder.port,
            vectors=self.vectors.port,
            texts=self.texts.port,
            documents=self.documents.port,
            embedding=Dependency("embedder", self.fake.ping),
            vector_store=Dependency("vectors", self.store.ping),
            document_store=Dependency("documents", self.store.ping),
        )
        breaker = Breaker("search", threshold=5, cooldown=constant_cooldown(60.0))
        self.chain = SearchChain(self.sources, breaker, deadline_s=0.5 * self.deadline_s)
        self.indexer = Indexer(
            embedder=self.fake,
            embedding=self.sources.embedding,
            documents=self.store,
            document_store=self.sources.document_store,
            writer=self.store,
            policy=IndexingPolicy(254),
        )
        self.works = RetrievalDependencies(
            search=self.chain.search,
            documents=self.sources.document_store.guard(self.documents.port, self.deadline_s),
            document_lists=self.sources.document_store.guard(DocumentLists(self.documents.port), self.deadline_s),
            renderer=Renderer(self.fake.tokenizer),
            model=lambda: self.fake.model,
            deadline_s=self.deadline_s,
        )
        self.doc_types = doc_types_of(ProjectConfig(ROOT.parent / ".rag-context/config.json", "shop"), ROOT.parent)

    @property
    def service(self) -> RetrievalService:
        return self.of(OURS)

    def of(self, tenant: Tenant) -> RetrievalService:
        """The service for a tenant."""
        return RetrievalService(self.works, tenant)

    async def add(self, path: str, text: str, *, tenant: Tenant = OURS, **front: str) -> None:
        """Write a document; `front` is its front matter."""
        lines = "".join(f"{key}: {value}\n" for key, value in front.items())
        content = f"---\n{lines}---\n{text}" if front else text
        draft = DocumentInput(
            content, DOCUMENTATION, FILES_SESSION, f"{ROOT}/{path}", tenant=tenant, channel=Channel.FILE
        )
        folder = DocsFolder(tenant, ROOT, self.doc_types)
        await self.store.adopt_model(self.fake.model)
        receipt = await self.indexer.index(project_input(draft, path, folder).document)
        assert not receipt.pending

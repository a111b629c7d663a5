"""A chain over memory, whose parts can be made to fail."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from rag_context.domain.documents import CHAT, DOCUMENTATION, Chunk, Document, Metadata, Origin, Span, Tenant
from rag_context.domain.provenance import origins
from rag_context.ports.models import Embedder
from rag_context.ports.reading import DocumentStore, IndexVectors, KeywordIndex
from rag_context.ports.writing import Version
from rag_context.resilience.dependency import Breaker, Dependency, constant_cooldown
from rag_context.search.chain import SearchChain
from rag_context.search.retrievers import Backends
from rag_context.testing import FakeEmbedder, Faulty, FrozenClock
from tests.memory_stores import MemoryStore

TEXTS = {
    "retry": "MongoDB connections use retry logic with exponential backoff, five times at most.",
    "jackpot": "FireKirin pays the grand jackpot at five hundred dollars.",
    "browser": "Selenium waits thirty seconds for a page before it gives up.",
}


@dataclass
class ChainHarness:
    """The chain, its parts, and the handles that break them."""

    store: MemoryStore = field(default_factory=MemoryStore)
    fake: FakeEmbedder = field(default_factory=FakeEmbedder)
    clock: FrozenClock = field(default_factory=FrozenClock)
    deadline_s: float = 1.0

    def __post_init__(self) -> None:
        self.embedder: Faulty[Embedder] = Faulty(self.fake, "embed_query")
        self.vectors: Faulty[IndexVectors] = Faulty(self.store.vectors, "search")
        self.texts: Faulty[KeywordIndex] = Faulty(self.store.texts, "search")
        self.counts: Faulty[DocumentStore] = Faulty(self.store, "tenant_state")
        self.documents: Faulty[DocumentStore] = Faulty(self.counts.port, "passages", "neighbours")
        self.sources = Backends(
            embedder=self.embedder.port,
            vectors=self.vectors.port,
            texts=self.texts.port,
            documents=self.documents.port,
            embedding=Dependency("embedder", self.fake.ping),
            vector_store=Dependency("vectors", self.store.ping),
            document_store=Dependency("documents", self.store.ping),
        )
        self.breaker = Breaker("search", threshold=5, cooldown=constant_cooldown(60.0), clock=self.clock)
        self.chain = SearchChain(self.sources, self.breaker, deadline_s=self.deadline_s)

    async def add(
        self,
        name: str,
        text: str,
        *,
        kind: str = DOCUMENTATION,
        tenant: Tenant | None = None,
        thread: str | None = None,
        speaker: str | None = None,
        day: int = 1,
        pending: bool = False,
        copies: int = 1,
        at: datetime | None = None,
    ) -> None:
        """Store one document, whose every chunk holds the text; `pending` without its vectors."""
        said = at or datetime(2026, 1, day, tzinfo=UTC)
        document = Document(
            id=name,
            tenant=tenant or Tenant(),
            content_type=kind,
            session_id=thread or name,
            source=f"{name}.md",
            title=name,
            content=text,
            content_hash=name,
            timestamp=datetime(2026, 1, 1, tzinfo=UTC),
            occurred_at=said,
            metadata=Metadata(),
            thread=thread if kind == CHAT else None,
        )
        span = Span(0, len(text), 1, 1)
        ((_, is_standing),) = origins(text, kind, Origin.OWNER, [(0, len(text), speaker)])
        chunks = [
            Chunk(f"{name}-{i}", name, i, text, span, occurred_at=said, speaker=speaker, is_standing=is_standing)
            for i in range(copies)
        ]
        vectors = None if pending else await self.fake.embed_documents([text] * copies)
        await self.store.write(Version(document, chunks, vectors))

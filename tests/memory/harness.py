"""A whole service over memory and a fake embedder, whose parts can be made to fail."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rag_context.api.handlers import CallContext
from rag_context.api.index import BulkLine, BulkReceipt, IndexRequest, IndexResponse
from rag_context.api.search import SearchRequest, SearchResponse
from rag_context.domain.documents import Missing
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.ingest.redaction import RedactionMode, Redactor
from rag_context.memory.background_maintenance import BackgroundMaintenance
from rag_context.memory.bound_embedder import BoundEmbedder
from rag_context.memory.service import Dependencies, Service
from rag_context.memory.telemetry import Telemetry
from rag_context.ports.models import Embedder
from rag_context.ports.reading import DocumentStore, MetricsStore
from rag_context.ports.writing import IndexWriter
from rag_context.resilience.component_checks import HealthMonitor
from rag_context.resilience.dependency import Breaker, Dependency, constant_cooldown
from rag_context.search.chain import SearchChain
from rag_context.search.query import ResultCache
from rag_context.search.retrievers import Backends
from rag_context.testing import FakeEmbedder, Faulty, FrozenClock
from tests.memory_stores import MemoryStore

SEARCH_S = 5.0
"""Deadlines have tests of their own; here a busy machine must not make a search another one."""


@dataclass
class ServiceHarness:
    """A service, its parts, and the handles that break them."""

    redaction: RedactionMode = RedactionMode.REDACT
    index_timeout_s: float = 5.0
    store: MemoryStore = field(default_factory=MemoryStore)
    fake: FakeEmbedder = field(default_factory=FakeEmbedder)
    clock: FrozenClock = field(default_factory=FrozenClock)
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    writes: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    """What tries whether stores take writes, by their names."""

    def __post_init__(self) -> None:
        self.embedder: Faulty[Embedder] = Faulty(self.fake)
        self.documents: Faulty[DocumentStore] = Faulty(self.store)
        self.writer: Faulty[IndexWriter] = Faulty(self.store, "write_all")
        self.metrics: Faulty[MetricsStore] = Faulty(self.store, "append")
        self.bound = BoundEmbedder(self.embedder.port, self.store)
        self.sources = Backends(
            embedder=self.bound,
            vectors=self.store.vectors,
            texts=self.store.texts,
            documents=self.documents.port,
            embedding=Dependency("embedder", self.bound.ping),
            vector_store=Dependency("vectors", self.store.vectors.ping),
            document_store=Dependency("documents", self.documents.port.ping),
            lost_vectors=self._lost_vectors,
        )
        self.indexer = Indexer(
            embedder=self.bound,
            embedding=self.sources.embedding,
            documents=self.documents.port,
            document_store=self.sources.document_store,
            writer=self.writer.port,
            policy=IndexingPolicy(254, self.index_timeout_s, Redactor(self.redaction)),
            try_write=self._try_write,
            now=lambda: self.now,
        )
        self.telemetry = Telemetry(
            self.metrics.port,
            self.documents.port,
            retention=timedelta(days=31),
            accesses_kept=timedelta(days=365),
            now=lambda: self.now,
            capacity=100,
        )
        dependencies = (self.sources.embedding, self.sources.vector_store, self.sources.document_store)
        self.maintenance = BackgroundMaintenance(
            dependencies, self.bound, self.indexer, self.documents.port, self.clock
        )
        self.service = Service(
            Dependencies(
                backends=self.sources,
                embedder=self.bound,
                metrics=self.metrics.port,
                registry=self.store,
                chain=SearchChain(
                    self.sources, Breaker("search", threshold=5, cooldown=constant_cooldown(60.0)), deadline_s=SEARCH_S
                ),
                cache=ResultCache(1000, 300.0, self.clock),
                indexer=self.indexer,
                telemetry=self.telemetry,
                maintenance=self.maintenance,
                health=HealthMonitor(
                    [
                        ("vector store", self.sources.vector_store),
                        ("embedding model", self.sources.embedding),
                        ("document store", self.sources.document_store),
                    ],
                    self.clock,
                    self.writes,
                ),
                redactor=Redactor(self.redaction),
            ),
            clock=self.clock,
            now=lambda: self.now,
        )

    async def search(self, query: str, **fields: Any) -> SearchResponse:
        """Search, the short way."""
        request = SearchRequest.model_validate({"query": query, **fields})
        try:
            return await self.service.search(request, CallContext("r-1"))
        finally:
            await asyncio.sleep(0)  # it is recorded behind the answer

    async def index(self, content: str, **fields: Any) -> IndexResponse:
        """Index, the short way."""
        body = {"content": content, "contentType": "documentation", "sessionId": "s", "source": "notes", **fields}
        return await self.service.index(IndexRequest.model_validate(body), CallContext("r-1"))

    def _lost_vectors(self) -> Missing:
        reconciler = self.maintenance.reconciler
        return Missing() if reconciler is None else reconciler.lost()

    async def _try_write(self) -> None:
        if self.writer.fault is not None and self.writer.fault.error is not None:
            raise self.writer.fault.error

    async def bulk(self, line: BulkLine) -> BulkReceipt:
        """Index one document of a stream."""
        (receipt,) = await self.service.bulk_all([line], request_id="r-1")
        assert isinstance(receipt, BulkReceipt)
        return receipt

    @asynccontextmanager
    async def maintained(self) -> AsyncIterator[None]:
        """Run the background work beside the block."""
        task = asyncio.create_task(self.maintenance.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

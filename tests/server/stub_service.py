"""A service that answers from a script: enough to see what the server does with it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from rag_context.api import changes
from rag_context.api.handlers import CallContext, Handler, handlers_of, performs
from rag_context.api.index import BulkLine, BulkReceipt, IndexRequest, IndexResponse, VersionsRequest, VersionsResponse
from rag_context.api.maintenance import (
    ClearQueriesRequest,
    ClearQueriesResponse,
    ComponentHealth,
    HealthResponse,
    InjectedPassage,
    InjectionsRequest,
    InjectionsResponse,
    ModelName,
    ReindexRequest,
    ReindexResponse,
    StatsRequest,
    StatsResponse,
)
from rag_context.api.operations import memory
from rag_context.api.search import LegReport, SearchFailedError, SearchRequest, SearchResponse, SearchResult
from rag_context.api.stored_documents import (
    DeleteRequest,
    DeleteResponse,
    GetRequest,
    GetResponse,
    ListedDocument,
    ListRequest,
    ListResponse,
    RetrievalStats,
    SimilarDocument,
    SimilarRequest,
    SimilarResponse,
)
from rag_context.collections.collection_service import CollectionService
from rag_context.domain.callers import Bounds
from rag_context.domain.documents import Status
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import NotFoundError
from rag_context.memory.service import Service
from rag_context.projects.project_service import ProjectService
from rag_context.testing.fakes import FakeEmbedder, WordTokenizer
from tests.collections.services import memory_service

WHEN = datetime(2026, 2, 18, 10, 30, tzinfo=UTC)
WARNINGS = {
    1: None,
    2: "Vector search unavailable, using text search fallback",
    3: "All search methods failed, returning empty results",
    4: "Circuit breaker is open - too many failures",
}


@dataclass
class StubService:
    """Answers what a test says, and records the requests."""

    level: int = 1
    retry_after_s: float | None = None
    failure: Exception | None = None
    is_ready: bool = True
    is_healthy: bool = True
    delay_s: float = 0.0
    searches: list[SearchRequest] = field(default_factory=list)
    indexed: list[IndexRequest] = field(default_factory=list)
    bulked: list[BulkLine] = field(default_factory=list)
    deleted: list[DeleteRequest] = field(default_factory=list)
    embedded: list[str] = field(default_factory=list)
    embedder: FakeEmbedder = field(default_factory=FakeEmbedder)
    request_ids: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    given_up: int = 0
    collections: CollectionService = field(default_factory=memory_service)
    projects: ProjectService | None = None

    def handlers(self) -> dict[str, Handler]:
        projects = () if self.projects is None else (self.projects, self.projects.questions)
        health: dict[str, Handler] = {memory.HEALTH.name: lambda _request, _context: self.health()}
        return handlers_of(self, self.collections, self.collections.providers, *projects) | health

    def bound_to(self, bounds: Bounds | None) -> "StubService":
        assert bounds is None, "there are no bounds here"
        return self

    def performers(self, bounds: Bounds) -> dict[str, Handler]:
        raise AssertionError(f"{bounds}: there are no bounds here")

    async def wait_ready(self, timeout_s: float) -> bool:
        """There is no model to wait for, and nothing to be prepared behind it."""
        return False

    @performs(memory.SEARCH)
    async def search(self, request: SearchRequest, context: CallContext) -> SearchResponse:
        self.searches.append(request)
        self.request_ids.append(context.request_id)
        await self._behave()
        found = self._found(request, context.request_id)
        if request.strict and self.level >= 3:
            raise SearchFailedError(found, self.retry_after_s)
        return found

    def _found(self, request: SearchRequest, request_id: str) -> SearchResponse:
        result = SearchResult(
            content="MongoDB connections should use retry logic with exponential backoff.",
            score=0.89,
            source="docs/architecture/mongodb-patterns.md",
            timestamp=WHEN,
            occurred_at=WHEN,
            metadata={"agent": "oracle", "tags": ["mongodb", "retry"]},
            document_id="d1",
            start_line=3,
        )
        return SearchResponse(
            results=[result] * request.limit if self.level < 3 else [],
            latency=1.25,
            fallback=self.level > 1,
            fallback_level=self.level,
            circuit_breaker_open=self.level == 4,
            total_indexed=523,
            request_id=request_id,
            legs={"text": LegReport(status="ok", latency_ms=0.5)},
            warning=WARNINGS[self.level],
        )

    @performs(memory.INDEX)
    async def index(self, request: IndexRequest, context: CallContext) -> IndexResponse:
        self.indexed.append(request)
        self.request_ids.append(context.request_id)
        await self._behave()
        return IndexResponse(
            success=True, chunks_indexed=1, vector_ids=["v1"], latency_ms=2.5, document_id="d1", status="indexed"
        )

    async def bulk_all(self, lines: Sequence[BulkLine], *, request_id: str) -> list[BulkReceipt | Exception]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.request_ids += [request_id] * len(lines)
        try:
            await self._behave()
            return [self._bulked(line) for line in lines]
        finally:
            self.running -= 1

    def _bulked(self, line: BulkLine) -> BulkReceipt:
        self.bulked.append(line)
        return BulkReceipt(status="indexed", document_id=f"d{len(self.bulked)}", chunks_indexed=1)

    async def missing(self, request: VersionsRequest) -> VersionsResponse:
        await self._behave()
        return VersionsResponse(missing=[id_ for id_, version in request.versions.items() if version != "stored"])

    @performs(memory.DELETE)
    async def delete(self, request: DeleteRequest) -> DeleteResponse:
        self.deleted.append(request)
        await self._behave()
        return DeleteResponse(deleted_count=1, document_ids=["d1"], dry_run=request.dry_run)

    @performs(memory.GET)
    async def get(self, request: GetRequest) -> GetResponse:
        await self._behave()
        if request.document_id != "d1":
            raise NotFoundError(f"Document {request.document_id} not found")
        return GetResponse(
            document_id="d1",
            title="Patterns",
            content="MongoDB connections should use retry logic with exponential backoff.",
            content_type="documentation",
            session_id="s1",
            source="docs/architecture/mongodb-patterns.md",
            timestamp=WHEN,
            occurred_at=WHEN,
            metadata={"agent": "oracle"},
            status="indexed",
            chunks=1,
            retrieval_stats=RetrievalStats(query_count=2, last_retrieved=WHEN),
        )

    @performs(memory.LIST)
    async def listing(self, _request: ListRequest) -> ListResponse:
        await self._behave()
        document = ListedDocument(
            document_id="d1",
            title="Patterns",
            content_type="documentation",
            session_id="s1",
            source="docs/architecture/mongodb-patterns.md",
            timestamp=WHEN,
            occurred_at=WHEN,
            metadata={},
            status="indexed",
        )
        return ListResponse(documents=[document])

    @performs(memory.SIMILAR)
    async def similar(self, _request: SimilarRequest) -> SimilarResponse:
        await self._behave()
        document = SimilarDocument(
            document_id="d2",
            score=0.5,
            title="Retries",
            content="Try again.",
            content_type="chat",
            session_id="s2",
            source="talk",
            timestamp=WHEN,
            occurred_at=WHEN,
            metadata={},
        )
        return SimilarResponse(results=[document], method="vector", fallback=False, fallback_level=1)

    @performs(memory.REINDEX)
    async def reindex(self, _request: ReindexRequest, _context: CallContext) -> ReindexResponse:
        await self._behave()
        return ReindexResponse(status="current", documents=523, done=523, pending=0)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        self.embedded.extend(texts)
        await self._behave()
        return await self.embedder.embed_documents(texts)

    def model(self) -> EmbeddingModel:
        if self.failure is not None:
            raise self.failure
        return self.embedder.model

    @property
    def tokenizer(self) -> WordTokenizer:
        return self.embedder.tokenizer

    async def health(self) -> HealthResponse:
        await self._behave()
        status = Status.HEALTHY if self.is_healthy else Status.UNAVAILABLE
        return HealthResponse(
            healthy=self.is_healthy,
            qdrant_status=status,
            lm_studio_status=Status.HEALTHY,
            mongo_status=Status.HEALTHY,
            latency=15.3,
            indexed_documents=523,
            circuit_breaker_open=False,
            components=[ComponentHealth(name="sqlite", role="documents", status=Status.HEALTHY, latency_ms=0.1)],
            embedding_model=ModelName(name="all-MiniLM-L6-v2", dimension=384),
            pending_documents=0,
            version="0.1.0",
        )

    @performs(memory.CORRECT)
    async def correct(self, request: changes.CorrectRequest) -> changes.CorrectResponse:
        await self._behave()
        kept = IndexResponse(
            success=True, chunks_indexed=1, vector_ids=["v"], latency_ms=1.0, document_id="new", status="indexed"
        )
        return changes.CorrectResponse(**dict(kept), superseded=[request.document_id or "old"])

    @performs(memory.HISTORY)
    async def history(self, request: changes.HistoryRequest) -> changes.HistoryResponse:
        await self._behave()
        at = datetime(2026, 1, 31, tzinfo=UTC)
        version = changes.VersionInfo(document_id=request.document_id, source="a.md", timestamp=at, content_hash="0")
        return changes.HistoryResponse(versions=[version])

    @performs(memory.LOG)
    async def log(self, request: changes.LogRequest) -> changes.LogResponse:
        await self._behave()
        place = changes.LocationInfo(document_id="d", content_hash="0")
        entry = changes.LogEntry(
            id=request.before or 1,
            at=datetime(2026, 1, 31, tzinfo=UTC),
            by="key",
            operation="index",
            moves=[changes.MoveInfo(after=place)],
            count=1,
            undoable=True,
        )
        return changes.LogResponse(entries=[entry])

    @performs(memory.UNDO)
    async def undo(self, request: changes.UndoRequest) -> changes.UndoResponse:
        await self._behave()
        return changes.UndoResponse(id=request.id + 1, undone=request.id, operation="undo", document_ids=["d"])

    @performs(memory.FORGET)
    async def forget(self, request: changes.ForgetRequest) -> changes.ForgetResponse:
        await self._behave()
        return changes.ForgetResponse(
            dry_run=request.dry_run,
            purged=request.purge,
            documents=0,
            passages=0,
            vectors=0,
            derived=0,
            stores={},
            listed=[],
        )

    @performs(memory.REVIEW)
    async def review(self, request: changes.ReviewRequest) -> changes.ReviewResponse:
        await self._behave()
        at = datetime(2026, 1, 31, tzinfo=UTC)
        document = changes.SuggestedDocument(
            document_id="d", title="", source="a.md", occurred_at=at, origin="agent", excerpt="Three times."
        )
        call = changes.SuggestedCall(action="forget", tool=memory.FORGET.name, arguments={"documentId": "d"})
        suggestion = changes.Suggestion(kind="neverFound", detail="Unused", documents=[document], calls=[call])
        return changes.ReviewResponse(suggestions=[suggestion], examined=request.limit)

    @performs(memory.DECIDE)
    async def decide(self, request: changes.DecideRequest) -> changes.DecideResponse:
        await self._behave()
        return changes.DecideResponse(id=1, operation="keep")

    @performs(memory.INJECTIONS)
    async def injections(self, request: InjectionsRequest) -> InjectionsResponse:
        await self._behave()
        passage = InjectedPassage(
            at=datetime(2026, 1, 31, tzinfo=UTC),
            session_id=request.session_id or "s1",
            client="claude-code",
            event="prompt",
            project="project:harbour-0123abcd",
            shown=True,
            tokens=42,
            scores={"relevance": 0.9},
        )
        return InjectionsResponse(injections=[passage], tokens=42)

    @performs(memory.CLEAR_QUERIES)
    async def clear_queries(self, request: ClearQueriesRequest) -> ClearQueriesResponse:
        await self._behave()
        return ClearQueriesResponse(deleted_count=1 if request.before else 2)

    @performs(memory.STATS)
    async def stats(self, request: StatsRequest) -> StatsResponse:
        await self._behave()
        hours = {"1h": 1, "24h": 24, "7d": 168, "30d": 720}[request.time_range]
        return StatsResponse(
            total_documents=523,
            passages_by_origin={"owner": 1, "agent": 522},
            total_queries=hours,
            avg_latency=12.5,
            p95_latency=20.0,
            p99_latency=30.0,
            cache_hit_rate=0.5,
            fallback_rate=0.0,
            queries_by_agent={"unknown": hours},
            queries_by_level={"1": hours},
            queries_by_game={},
            timeline=[],
        )

    async def ready(self) -> bool:
        return self.is_ready

    async def prometheus(self) -> bytes:
        return b"# HELP rag_vectors_total Vectors\n# TYPE rag_vectors_total gauge\nrag_vectors_total 3.0\n"

    async def _behave(self) -> None:
        if self.delay_s:
            try:
                await asyncio.sleep(self.delay_s)
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        if self.failure is not None:
            raise self.failure


def as_service(stub: StubService) -> Service:
    """The stub where a service is expected: it has all that the server calls."""
    return cast("Service", stub)

"""Counts and records of searches, submitted documents and errors.

Metrics are counted at once, those of a search behind its answer. Records, from which statistics are made, go to a
bounded queue, which one task writes out, off the request path.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from rag_context.api.search import SearchRequest, SearchResponse
from rag_context.domain.documents import FILTERED, utc_now
from rag_context.domain.reports import ERROR, QUERY_CHARS, ErrorRecord, SearchRecord
from rag_context.errors import BackendError, BackendRejectedError
from rag_context.ingest.submissions import Receipt
from rag_context.memory.mappers import search_record
from rag_context.memory.meters import Meters
from rag_context.ports.reading import DocumentStore, MetricsStore
from rag_context.projects.records import Label
from rag_context.resilience.deadline import Deadline
from rag_context.search.query import Answer, Level, RetrieverReport, RetrieverStatus
from rag_context.tracing import TraceSpan

logger = logging.getLogger(__name__)

MAX_AGENTS = 100
"""Agents after the first hundred share the label `other`, so that the number of time series is bounded."""

CAPACITY = 30_000
BATCH = 1_000

FLUSH_S = 0.25
"""Records are visible in the statistics within a second."""

RETRY_S = 1.0

STORE_S = 30.0
"""Time budget of a write by the background task."""

FLUSH_TIMEOUT_S = 2.0
"""Time budget of a write before statistics are read, and at the end of the process."""

PRUNE_S = 3600.0

TIME_RANGES = {
    "1h": (timedelta(hours=1), 12),
    "24h": (timedelta(days=1), 24),
    "7d": (timedelta(days=7), 28),
    "30d": (timedelta(days=30), 30),
}
"""Length of each time range, and the number of buckets of its timeline."""


@dataclass(eq=False)
class Telemetry:
    """Queues records and writes them in batches. What a store does not take waits until it does."""

    metrics: MetricsStore
    documents: DocumentStore
    _: KW_ONLY
    retention: timedelta
    accesses_kept: timedelta
    now: Callable[[], datetime] = utc_now
    capacity: int = CAPACITY

    def __post_init__(self) -> None:
        self._queue: deque[SearchRecord | ErrorRecord] = deque()
        self._retrieved: deque[str] = deque(maxlen=self.capacity)
        self._again = 0
        """How many records at the head of the queue were in a batch that failed."""
        self._writing: asyncio.Task[None] | None = None
        self._has_failed = False
        self.dropped = 0
        """Records that were dropped because the queue was full, or because the store rejected them."""

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def record_search(self, record: SearchRecord, retrieved: Iterable[str]) -> None:
        self._append(record)
        self._retrieved.extend(retrieved)

    def record_error(self, record: ErrorRecord) -> None:
        self._append(record)

    async def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Write what is queued, as far as the store takes it within the timeout; the rest waits."""
        # One write at a time, and no caller cancels it: statistics that are read after `flush` have what another flush
        # had taken out before, and whether a cancelled write was done is not known.
        end = time.monotonic() + timeout_s
        if self._writing is not None:  # which may have passed what has come since
            await asyncio.wait({self._writing}, timeout=timeout_s)
        writing = self._writing
        if writing is None or writing.done():
            writing = self._writing = asyncio.create_task(self._write(), name="write records")
        _, late = await asyncio.wait({writing}, timeout=max(end - time.monotonic(), 0.0))
        if not late:
            writing.result()

    async def run(self) -> None:
        """Flush until cancelled, and delete old records once an hour."""
        loop = asyncio.get_running_loop()
        prune_at = loop.time()
        while True:
            await asyncio.sleep(RETRY_S if self._again else FLUSH_S)
            await self.flush(STORE_S)
            if loop.time() >= prune_at:
                prune_at = loop.time() + PRUNE_S
                now = self.now()
                try:
                    await self.metrics.prune(now - self.retention, now - self.accesses_kept)
                except BackendError as error:
                    logger.warning("telemetry: old records could not be removed: %s", error)

    async def close(self) -> None:
        """Write what is queued, if the store takes it soon; what is left is lost and logged."""
        await self.flush()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})
        if self._queue:
            logger.warning("telemetry: %d records were not written and are lost", len(self._queue))

    def _append(self, record: SearchRecord | ErrorRecord) -> None:
        self._queue.append(record)
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._queue) > self.capacity:
            self._queue.popleft()
            self._again = max(self._again - 1, 0)
            self.dropped += 1

    async def _write(self) -> None:
        while self._queue and await self._write_batch():
            pass
        if self._again or not self._retrieved:  # what takes no records takes no counts either
            return
        retrieved = list(self._retrieved)
        self._retrieved.clear()
        try:
            await self._in_time(self.documents.record_retrievals(retrieved, self.now()))
        except BackendError as error:
            logger.info("telemetry: %d retrievals were not counted: %s", len(retrieved), error)

    async def _write_batch(self) -> bool:
        """Write the head of the queue; False where it waits for another attempt."""
        # A batch that failed is sent again as it was, so that a store can tell that it has it: see `MetricsStore`.
        size = self._again or min(len(self._queue), BATCH)
        batch, self._again = [self._queue.popleft() for _ in range(size)], 0
        searches = [record for record in batch if isinstance(record, SearchRecord)]
        errors = [record for record in batch if isinstance(record, ErrorRecord)]
        try:
            await self._in_time(self.metrics.append(searches, errors))
        except BackendRejectedError as error:
            self.dropped += size
            logger.warning("telemetry: %d records were rejected and dropped: %s", size, error)
        except BackendError as error:
            level = logging.DEBUG if self._has_failed else logging.WARNING  # /metrics counts the rest
            logger.log(level, "telemetry: records wait until they can be written: %s", error)
            self._has_failed = True
            self._put_back(batch)
            return False
        except asyncio.CancelledError:
            self._put_back(batch)
            raise
        else:
            self._has_failed = False
        return True

    def _put_back(self, batch: Sequence[SearchRecord | ErrorRecord]) -> None:
        self._queue.extendleft(reversed(batch))
        self._again = len(batch)
        self._drop_oldest()

    async def _in_time(self, work: Awaitable[None]) -> None:
        await Deadline.after(STORE_S, time.monotonic).bound("documents", work)


MEMORY = "memory"
"""The data source of searches; with content, a project's is its name."""


def describe(traced: TraceSpan, request: SearchRequest, response: SearchResponse, *, content: bool = False) -> None:
    """Note in a search's span how it was answered, by OpenTelemetry's names; with `content`, also what was found."""
    level, results = response.fallback_level, len(response.results)
    traced.set({"rag.level": level, "rag.results": results, "rag.cached": bool(response.cached)})
    traced.set({"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.top_k": request.limit})
    traced.set({"gen_ai.data_source.id": (content and request.project) or MEMORY})
    if content:
        documents = [{"id": each.document_id, "score": each.score} for each in response.results]
        traced.set({"gen_ai.retrieval.query.text": request.query, "gen_ai.retrieval.documents": json.dumps(documents)})
    if level > Level.TEXT:
        traced.fail("NoAnswer")


def describe_indexing(traced: TraceSpan, results: Sequence[Receipt | Exception]) -> None:
    receipts = [each for each in results if isinstance(each, Receipt)]
    traced.set({"rag.chunks": sum(len(each.chunk_ids) for each in receipts)})
    traced.set({"gen_ai.operation.name": "upsert_memory", "gen_ai.memory.record.count": len(receipts)})
    if len(results) > 1:
        traced.set({"rag.documents": len(results)})
    elif receipts:
        traced.set({"rag.status": receipts[0].outcome.value})
    for error in results:
        if isinstance(error, Exception):
            traced.fail(type(error).__name__)


VALIDATING_AGENT = "rag-context validate"
LOAD_AGENT = "rag-context bench"
"""The agents of test searches: they count in the metrics, but statistics of use leave them out."""

_FAILURES = (RetrieverStatus.FAILED, RetrieverStatus.TIMEOUT)
"""A part that is skipped while its breaker is open has failed before, and was recorded then."""

_COMPONENTS = {"embedding": "embedder", "vector": "vectors", "text": "documents", "ranking": "documents"}


class Recorder:
    def __init__(
        self,
        telemetry: Telemetry,
        meters: Meters,
        now: Callable[[], datetime],
        redact: Callable[[str], str],
        query_chars: int = QUERY_CHARS,
    ) -> None:
        self._telemetry = telemetry
        self._redact = redact
        self._query_chars = query_chars
        self._now = now
        self._agents: set[str] = set()
        self._queries = meters.counter("rag_queries_total")
        self._latency = meters.histogram("rag_latency_seconds")
        self._embedding = meters.histogram("rag_embedding_latency_seconds")
        self._fallbacks = meters.counter("rag_fallback_total")
        self._indexed = meters.counter("rag_documents_indexed_total")
        self._errors = meters.counter("rag_errors_total")

    def search(self, request: SearchRequest, answer: Answer, request_id: str, latency_ms: float) -> None:
        """Record it once the event loop is free: most answers are sent by then."""
        named = {"request_id": request_id, "latency_ms": latency_ms, "timestamp": self._now()}
        asyncio.get_running_loop().call_soon(partial(self._search, request, answer, **named))

    def _search(self, request: SearchRequest, answer: Answer, **named: Any) -> None:
        record = self._without_secrets(search_record(request, answer, **named))
        self._count(record, answer.legs)
        if request.agent in (VALIDATING_AGENT, LOAD_AGENT):
            return
        self._telemetry.record_search(record, {result.passage.document_id for result in answer.results})
        self._failures(answer.legs, answer.error, record.request_id)

    def document_search(self, record: SearchRecord, label: Label, retrieved: Collection[str]) -> None:
        record = self._without_secrets(record)
        self._count(record, label.legs)
        self._telemetry.record_search(record, retrieved)
        self._failures(label.legs, record.error, record.request_id)

    def _without_secrets(self, record: SearchRecord) -> SearchRecord:
        # Redacted before it is cut: a rule may not know the beginning of a token.
        query = self._redact(record.query)[: self._query_chars] if self._query_chars else ""
        # Names that were counted before have no secrets.
        agent = record.agent if record.agent in self._agents else self._redact(record.agent)
        narrowed: dict[str, Any] = {name: self._redact(value) for name in FILTERED if (value := getattr(record, name))}
        return replace(record, query=query, agent=agent, **narrowed)

    def indexed(self, status: str) -> None:
        self._indexed.labels(status).inc()

    def error(self, operation: str, error: BackendError, request_id: str) -> None:
        self._errors.labels(error.component, operation).inc()
        self._telemetry.record_error(
            ErrorRecord(self._now(), ERROR, error.component, operation, str(error), request_id)
        )

    def _failures(self, legs: Mapping[str, RetrieverReport], error: str | None, request_id: str) -> None:
        """Count and record what failed in a search; the search itself where no part of it is known to have failed."""
        failed = {part: leg.detail or leg.status for part, leg in legs.items() if leg.status in _FAILURES}
        for part, detail in failed.items():
            self.error("search", BackendError(_COMPONENTS.get(part, part), detail), request_id)
        if error is not None and not failed:
            self.error("search", BackendError("search", error), request_id)

    def _count(self, record: SearchRecord, legs: Mapping[str, RetrieverReport]) -> None:
        agent = record.agent
        if agent not in self._agents:
            # An agent's name comes from the caller: without a bound, a caller could fill Prometheus with time series.
            if len(self._agents) < MAX_AGENTS:
                self._agents.add(agent)
            else:
                agent = "other"
        self._queries.labels(str(record.level), agent).inc()
        self._latency.observe(record.latency_ms / 1000.0)
        if record.is_fallback:
            self._fallbacks.inc()
        embedding = legs.get("embedding")
        if embedding is not None and not record.cache_hit:
            self._embedding.observe(embedding.latency_ms / 1000.0)

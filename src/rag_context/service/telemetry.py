"""Records of searches and errors: the metrics that Prometheus reads, and the statistics in the store.

Metrics are counted at once; the number of label values is bounded, however many agents there are. Records go to a
bounded queue, which one task writes out, off the request path.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from rag_context.api.search import SearchRequest
from rag_context.domain.reports import ErrorRecord, SearchRecord
from rag_context.domain.times import utc_now
from rag_context.errors import BackendError, BackendTimeoutError
from rag_context.ports.reading import DocumentStore, MetricsStore
from rag_context.projects.records import Label
from rag_context.resilience.admission import Admission, Admissions
from rag_context.resilience.breaker import BreakerState
from rag_context.resilience.deadline import Deadline
from rag_context.search.query import Answer
from rag_context.service.mappers import UNKNOWN_AGENT, search_record

logger = logging.getLogger(__name__)


T = TypeVar("T")


CAPACITY = 10_000
FLUSH_S = 0.25
"""Records are visible in the statistics within a second."""

STORE_S = 30.0
"""Time budget of a write by the background task."""

FLUSH_TIMEOUT_S = 2.0
"""Time budget of a write before statistics are read, and at the end of the process."""

PRUNE_S = 3600.0


class Telemetry:
    """Queues records and writes them in batches.

    Args:
        metrics: where records go.
        documents: where retrievals are counted.
        retention: how long records are kept.
        now: the wall clock.
        capacity: records that may wait; more are dropped and counted.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        metrics: MetricsStore,
        documents: DocumentStore,
        *,
        retention: timedelta,
        now: Callable[[], datetime] = utc_now,
        capacity: int = CAPACITY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._documents = documents
        self._retention = retention
        self._now = now
        self._capacity = capacity
        self._clock = clock
        self._searches: deque[SearchRecord] = deque()
        self._errors: deque[ErrorRecord] = deque()
        self._retrieved: deque[str] = deque()
        self._turn = asyncio.Lock()
        self._has_failed = False
        self.dropped = 0
        """Records that were dropped because the queue was full or the store failed."""

    @property
    def waiting(self) -> int:
        return len(self._searches) + len(self._errors)

    def record_search(self, record: SearchRecord, retrieved: Iterable[str]) -> None:
        """Queue a search and the documents it returned."""
        if self.waiting >= self._capacity:
            self.dropped += 1
            return
        self._searches.append(record)
        self._retrieved.extend(retrieved)

    def record_error(self, record: ErrorRecord) -> None:
        """Queue an error."""
        if self.waiting >= self._capacity:
            self.dropped += 1
            return
        self._errors.append(record)

    async def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Write the queue to the store; records that cannot be written are dropped and counted.

        If an earlier write takes longer than the timeout, the queue stays as it is.
        """
        deadline = Deadline.after(timeout_s, self._clock)
        try:
            await deadline.bound("documents", self._turn.acquire())
        except BackendTimeoutError:
            return
        try:
            await self._write(deadline)
        finally:
            self._turn.release()

    async def run(self) -> None:
        """Flush until cancelled, and delete old records once an hour."""
        loop = asyncio.get_running_loop()
        prune_at = loop.time()
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush(STORE_S)
            if loop.time() >= prune_at:
                prune_at = loop.time() + PRUNE_S
                await self._prune()

    async def _write(self, deadline: Deadline) -> None:
        searches, errors = _drained(self._searches), _drained(self._errors)
        retrieved = _drained(self._retrieved)
        try:
            if searches or errors:
                await deadline.bound("documents", self._metrics.append(searches, errors))
        except BackendError as error:
            self.dropped += len(searches) + len(errors)
            level = logging.DEBUG if self._has_failed else logging.WARNING  # /metrics counts the rest
            logger.log(level, "telemetry: %d records dropped: %s", len(searches) + len(errors), error)
            self._has_failed = True
        else:
            self._has_failed = self._has_failed and not (searches or errors)
        try:
            if retrieved:
                await deadline.bound("documents", self._documents.record_retrievals(retrieved, self._now()))
        except BackendError as error:
            logger.warning("telemetry: %d retrievals were not counted: %s", len(retrieved), error)

    async def _prune(self) -> None:
        try:
            await self._metrics.prune(self._now() - self._retention)
        except BackendError as error:
            logger.warning("telemetry: old records could not be removed: %s", error)


def _drained(queue: deque[T]) -> list[T]:
    items = list(queue)
    queue.clear()
    return items


MAX_AGENTS = 100
"""Agents after the first hundred share the label `other`, so that the number of time series is bounded."""

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_STATES = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


@dataclass(frozen=True, slots=True)
class _Counted(Collector):
    """A counter whose value is computed by a function; the library's own counter cannot do that."""

    name: str
    text: str
    value: Callable[[], float]

    def collect(self) -> Iterable[Metric]:
        """The count now."""
        yield CounterMetricFamily(self.name, self.text, self.value())


class Meters:
    """Counts searches and exports the state of the components.

    Args:
        breaker_state: the state of the breaker around searches.
        queue_depth: records waiting to be written.
        dropped: records that were dropped since the start.
        cache_hit_rate: 0..1 since the start.
        vectors: vectors in the index, as last counted.
        embeddings_reused: how often one embedding served a further collection.
        admissions: the queues of requests that wait to run.
    """

    def __init__(
        self,
        *,
        breaker_state: Callable[[], BreakerState],
        queue_depth: Callable[[], float],
        dropped: Callable[[], float],
        cache_hit_rate: Callable[[], float],
        vectors: Callable[[], float],
        embeddings_reused: Callable[[], float] = lambda: 0.0,
        admissions: Admissions | None = None,
    ) -> None:
        self._registry = CollectorRegistry()
        self._agents: set[str] = set()
        self._queries = Counter("rag_queries", "Searches", ["level", "agent"], registry=self._registry)
        self._latency = Histogram("rag_latency_seconds", "Time of a search", buckets=_BUCKETS, registry=self._registry)
        self._embedding = Histogram(
            "rag_embedding_latency_seconds", "Time to embed a query", buckets=_BUCKETS, registry=self._registry
        )
        self._fallbacks = Counter("rag_fallback", "Searches not answered at level 1", registry=self._registry)
        for name, text, value in (
            ("rag_circuit_breaker_state", "0 closed, 1 half open, 2 open", lambda: _STATES[breaker_state()]),
            ("rag_queue_depth", "Records waiting to be written", queue_depth),
            ("rag_cache_hit_rate", "Searches answered from the cache, 0..1", cache_hit_rate),
            ("rag_vectors_total", "Vectors in the index", vectors),
        ):
            Gauge(name, text, registry=self._registry).set_function(value)
        for name, text, value in (
            ("rag_records_dropped", "Records of searches and errors that were lost", dropped),
            ("rag_embeddings_reused", "Embeddings that served a further collection", embeddings_reused),
        ):
            self._registry.register(_Counted(name, text, value))
        if admissions is not None:
            self._watch(admissions)

    def count(self, answer: Answer, latency_s: float, agent: str) -> None:
        """Count one search."""
        self._queries.labels(str(int(answer.level)), self._label(agent)).inc()
        self._latency.observe(latency_s)
        if answer.level > 1:
            self._fallbacks.inc()
        embedding = answer.legs.get("embedding")
        if embedding is not None and not answer.cached:
            self._embedding.observe(embedding.latency_ms / 1000.0)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _watch(self, admissions: Admissions) -> None:
        """Export the queues, by class of requests."""
        classes = ["class"]
        registry = self._registry
        waiting = Gauge("rag_admission_waiting", "Calls that wait for their turn", classes, registry=registry)
        running = Gauge("rag_admission_running", "Calls that are worked on", classes, registry=registry)
        limit = Gauge("rag_admission_limit", "Calls that may be worked on at once", classes, registry=registry)
        wait = Histogram(
            "rag_admission_wait_seconds", "Wait of a call for its turn", classes, buckets=_BUCKETS, registry=registry
        )
        rejected = Counter("rag_admission_rejected", "Calls rejected as overloaded", classes, registry=registry)

        def meter(admission: Admission) -> None:
            waiting.labels(admission.name).set_function(lambda: admission.waiting)
            running.labels(admission.name).set_function(lambda: admission.running)
            limit.labels(admission.name).set_function(lambda: admission.limit.at_once)
            admission.on_wait = wait.labels(admission.name).observe
            admission.on_rejected = rejected.labels(admission.name).inc

        meter(admissions.searches)
        meter(admissions.writes)

    def _label(self, agent: str) -> str:
        if agent in self._agents:
            return agent
        # An agent's name comes from the caller: without a bound, a caller could fill Prometheus with time series.
        if len(self._agents) >= MAX_AGENTS:
            return "other"
        self._agents.add(agent)
        return agent


VALIDATING_AGENT = "rag-context validate"
LOAD_AGENT = "rag-context bench"
"""The agents of test searches: they count in the metrics, but statistics of use leave them out."""


class SearchRecorder:
    """Counts and records searches and failures.

    Args:
        telemetry: stores the records, off the request path.
        meters: the metrics.
        now: the wall clock.
    """

    def __init__(self, telemetry: Telemetry, meters: Meters, now: Callable[[], datetime]) -> None:
        self._telemetry = telemetry
        self._meters = meters
        self._now = now

    def search(self, request: SearchRequest, answer: Answer, request_id: str, latency_ms: float) -> None:
        """Record a search in the memory of the agents."""
        self._meters.count(answer, latency_ms / 1000.0, request.agent or UNKNOWN_AGENT)
        if request.agent in (VALIDATING_AGENT, LOAD_AGENT):
            return
        record = search_record(request, answer, request_id=request_id, latency_ms=latency_ms, timestamp=self._now())
        self._telemetry.record_search(record, {result.passage.document_id for result in answer.results})
        if answer.error is not None:
            self.error("search", BackendError("search", answer.error), request_id)

    def document_search(self, record: SearchRecord, label: Label, retrieved: Collection[str]) -> None:
        """Record a search in the documents of a project."""
        answer = Answer((), label.level, label.legs, 0)
        self._meters.count(answer, record.latency_ms / 1000.0, record.agent)
        self._telemetry.record_search(record, retrieved)

    def error(self, operation: str, error: BackendError, request_id: str) -> None:
        """Record a failure of a component."""
        self._telemetry.record_error(
            ErrorRecord(self._now(), "error", error.component, operation, str(error), request_id)
        )

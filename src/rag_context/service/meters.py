"""Prometheus metrics of one service. The number of label values is bounded, however many agents there are."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from rag_context.resilience.admission import Admission, Admissions
from rag_context.resilience.breaker import BreakerState
from rag_context.search.query import Answer

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
        if len(self._agents) >= MAX_AGENTS:
            return "other"
        self._agents.add(agent)
        return agent

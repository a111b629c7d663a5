"""The metrics that Prometheus reads: what each one is, once, and their export."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UntypedMetricFamily
from prometheus_client.registry import Collector

from rag_context._version import __version__
from rag_context.domain.documents import Counts
from rag_context.resilience.admission import Admissions
from rag_context.resilience.dependency import BreakerState

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_STATES = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}

_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | UntypedMetricFamily
Kind: TypeAlias = Literal["counter", "gauge", "histogram", "untyped"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One metric, as /metrics, the documentation and the tests know it.

    Attributes:
        name: as Prometheus stores it; a histogram has `_bucket`, `_sum` and `_count` after it.
        description: what it is, for the HELP line and the documentation.
        unit: what its numbers count, in the documentation.
        worry: what should make an operator look, in the documentation.
    """

    name: str
    kind: Kind
    description: str
    unit: str
    worry: str
    labels: tuple[str, ...] = ()


METRICS: Mapping[str, Declaration] = {
    each.name: each
    for each in (
        Declaration(
            "rag_queries_total",
            "counter",
            "Searches, by the level that answered and by agent; the 101st agent and later ones are `other`",
            "searches",
            "level 3 or 4 grows: agents get empty answers",
            ("level", "agent"),
        ),
        Declaration(
            "rag_latency_seconds",
            "histogram",
            "Time of a search, with its wait for admission",
            "seconds",
            "the 99th percentile exceeds 0.5 s",
        ),
        Declaration(
            "rag_embedding_latency_seconds",
            "histogram",
            "Time to embed a query",
            "seconds",
            "it takes most of rag_latency_seconds: the embedder is the bottleneck",
        ),
        Declaration(
            "rag_fallback_total",
            "counter",
            "Searches for which vectors were unavailable: keyword search alone, or levels 3 and 4",
            "searches",
            "more than 5 % of all searches",
        ),
        Declaration(
            "rag_cache_hit_rate",
            "gauge",
            "Share of searches since the start that the result cache answered",
            "ratio, 0 to 1",
            "never by itself; a fall explains higher latencies",
        ),
        Declaration(
            "rag_vectors_total", "untyped", "Vectors in the index", "vectors", "it falls although nothing was deleted"
        ),
        Declaration(
            "rag_documents",
            "gauge",
            "Documents in the index, pending ones included",
            "documents",
            "it falls although nothing was deleted",
        ),
        Declaration(
            "rag_documents_pending",
            "gauge",
            "Documents whose vectors are not stored yet; keyword search finds them",
            "documents",
            "it does not fall for half an hour: the embedder or the vector store fails",
        ),
        Declaration(
            "rag_documents_indexed_total",
            "counter",
            "Documents that were submitted, by outcome: indexed, replaced, unchanged or pending",
            "documents",
            "pending grows as fast as the others",
            ("status",),
        ),
        Declaration(
            "rag_errors_total",
            "counter",
            "Failed searches and failed writes, by the component that failed",
            "failures",
            '`operation="index"` grows: documents are not stored',
            ("component", "operation"),
        ),
        Declaration(
            "rag_circuit_breaker_state",
            "gauge",
            "Circuit breaker of searches: 0 closed, 1 half open, 2 open",
            "state",
            "it is 2: searches are answered without results",
        ),
        Declaration(
            "rag_dependency_breaker_state",
            "gauge",
            "Circuit breaker of the embedder, a store or the cache: 0 closed, 1 half open, 2 open",
            "state",
            "it is not 0 for some minutes: that component is down",
            ("dependency",),
        ),
        Declaration(
            "rag_queue_depth",
            "gauge",
            "Records of searches and errors that wait to be written",
            "records",
            "it grows for minutes: the document store is too slow or rejects writes",
        ),
        Declaration(
            "rag_records_dropped_total",
            "counter",
            "Records of searches and errors that were lost",
            "records",
            "it grows: statistics are incomplete",
        ),
        Declaration(
            "rag_embedding_cache_hits_total", "counter", "Query embeddings that the cache had", "embeddings", "never"
        ),
        Declaration(
            "rag_embedding_cache_misses_total",
            "counter",
            "Query embeddings that the model made",
            "embeddings",
            "it grows as fast as rag_queries_total although questions repeat: the cache is too small or not shared",
        ),
        Declaration(
            "rag_embeddings_reused_total",
            "counter",
            "Embeddings of a query that served a further collection",
            "embeddings",
            "never",
        ),
        Declaration(
            "rag_admission_waiting",
            "gauge",
            "Calls that wait for their turn, by class: searches or writes",
            "calls",
            "it stays above 0: there is more load than the machine can answer",
            ("class",),
        ),
        Declaration(
            "rag_admission_running",
            "gauge",
            "Calls that are worked on, by class",
            "calls",
            "it stays at rag_admission_limit",
            ("class",),
        ),
        Declaration(
            "rag_admission_limit",
            "gauge",
            "Calls that may be worked on at once, by class; the limit of searches adapts",
            "calls",
            "never by itself",
            ("class",),
        ),
        Declaration(
            "rag_admission_wait_seconds",
            "histogram",
            "Wait of a call for its turn, by class",
            "seconds",
            "the 95th percentile exceeds 0.5 s",
            ("class",),
        ),
        Declaration(
            "rag_admission_rejected_total",
            "counter",
            "Calls rejected with 503 OVERLOADED, by class",
            "calls",
            "it grows",
            ("class",),
        ),
        Declaration(
            "rag_build_info",
            "gauge",
            "The version of rag-context; always 1",
            "none",
            "two versions run longer than a roll-out takes",
            ("version",),
        ),
        Declaration(
            "rag_worker_up",
            "gauge",
            "With several workers: whether the worker answered",
            "0 or 1",
            "it is 0: a process of the server hangs",
            ("worker",),
        ),
        Declaration(
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            "seconds",
            "its rate stays at the number of cores",
        ),
        Declaration(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory size in bytes.",
            "bytes",
            "it comes near the memory of the machine or the limit of the container",
        ),
        Declaration(
            "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", "bytes", "never by itself"
        ),
        Declaration(
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
            "seconds",
            "it changes without a deployment: the process was restarted",
        ),
        Declaration(
            "process_open_fds",
            "gauge",
            "Number of open file descriptors.",
            "descriptors",
            "it comes near process_max_fds",
        ),
        Declaration(
            "process_max_fds", "gauge", "Maximum number of open file descriptors.", "descriptors", "never by itself"
        ),
    )
}
"""Every metric, in the order of the documentation. `process_*` are those of prometheus-client, on Linux only."""


@dataclass(frozen=True, slots=True)
class Readings:
    """What the metrics read of the components when they are scraped."""

    breaker: BreakerState
    dependencies: Mapping[str, BreakerState]
    counts: Counts
    queue_depth: float
    dropped: float
    cache_hit_rate: float
    embeddings_reused: float = 0.0
    embedding_cache: tuple[int, int] = (0, 0)


class Meters:
    """Makes the metrics that are counted as things happen, and exports all of them with the state of the components."""

    def __init__(self, read: Callable[[], Readings], admissions: Admissions) -> None:
        self._read = read
        self._admissions = admissions
        self._registry = CollectorRegistry()
        wait = self.histogram("rag_admission_wait_seconds")
        rejected = self.counter("rag_admission_rejected_total")
        for admission in (admissions.searches, admissions.writes):
            admission.on_wait = wait.labels(admission.name).observe
            admission.on_rejected = rejected.labels(admission.name).inc
        self._registry.register(_Computed(self._families))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(_WithoutCreated(self._registry))

    def counter(self, name: str) -> Counter:
        """The declared counter, to be counted by the caller; once for each."""
        metric = METRICS[name]
        return Counter(metric.name, metric.description, metric.labels, registry=self._registry)

    def histogram(self, name: str) -> Histogram:
        """The declared histogram, as `counter`."""
        metric = METRICS[name]
        return Histogram(metric.name, metric.description, metric.labels, buckets=_BUCKETS, registry=self._registry)

    def _families(self) -> Iterable[Metric]:
        now = self._read()
        classes = (self._admissions.searches, self._admissions.writes)
        yield _family("rag_circuit_breaker_state", {(): _STATES[now.breaker]})
        yield _family(
            "rag_dependency_breaker_state", {(name,): _STATES[state] for name, state in now.dependencies.items()}
        )
        yield _family("rag_queue_depth", {(): now.queue_depth})
        yield _family("rag_records_dropped_total", {(): now.dropped})
        yield _family("rag_cache_hit_rate", {(): now.cache_hit_rate})
        hits, misses = now.embedding_cache
        yield _family("rag_embedding_cache_hits_total", {(): hits})
        yield _family("rag_embedding_cache_misses_total", {(): misses})
        yield _family("rag_embeddings_reused_total", {(): now.embeddings_reused})
        yield _family("rag_vectors_total", {(): now.counts.vectors})
        yield _family("rag_documents", {(): now.counts.documents})
        yield _family("rag_documents_pending", {(): now.counts.pending})
        yield _family("rag_admission_waiting", {(each.name,): each.waiting for each in classes})
        yield _family("rag_admission_running", {(each.name,): each.running for each in classes})
        yield _family("rag_admission_limit", {(each.name,): each.limit.at_once for each in classes})
        yield _family("rag_build_info", {(__version__,): 1})


def _family(name: str, values: Mapping[Sequence[str], float]) -> Metric:
    """A declared metric with its values by labels."""
    metric = METRICS[name]
    makers: Mapping[str, type[_Family]] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "untyped": UntypedMetricFamily,
    }
    family = makers[metric.kind](metric.name, metric.description, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


@dataclass(frozen=True, eq=False)
class _Computed(Collector):
    families: Callable[[], Iterable[Metric]]

    def collect(self) -> Iterable[Metric]:
        return self.families()


@dataclass(frozen=True, eq=False)
class _WithoutCreated(Collector):
    """The same metrics without the time when each series began, which would be a third of all series."""

    registry: Collector

    def collect(self) -> Iterable[Metric]:
        for family in self.registry.collect():
            kept = Metric(family.name, family.documentation, family.type, family.unit)
            kept.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield kept

"""The metrics that Prometheus reads: what each one is, once, and their export."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UntypedMetricFamily
from prometheus_client.registry import Collector

from rag_context._version import __version__
from rag_context.resilience.admission import Admissions
from rag_context.resilience.dependency import BreakerState

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_STATES = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}

_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | UntypedMetricFamily
Kind: TypeAlias = Literal["counter", "gauge", "histogram", "untyped"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One metric, as /metrics, the documentation and the tests know it.

    A histogram has `_bucket`, `_sum` and `_count` behind its name. `unit` is what its numbers count, `worry` what
    should make an operator look.
    """

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...] = ()
    _: KW_ONLY
    description: str
    worry: str


_DECLARED = (
    Declaration("rag_queries_total", "counter", "searches", labels=("level", "agent"),
        description="Searches, by the level that answered and by agent; the 101st agent and later ones are `other`",
        worry="level 3 or 4 grows: agents get empty answers"),
    Declaration("rag_latency_seconds", "histogram", "seconds",
        description="Time of a search, with its wait for admission",
        worry="the 99th percentile exceeds 0.5 s"),
    Declaration("rag_embedding_latency_seconds", "histogram", "seconds",
        description="Time to embed a query",
        worry="it takes most of rag_latency_seconds: the embedder is the bottleneck"),
    Declaration("rag_fallback_total", "counter", "searches",
        description="Searches for which vectors were unavailable: keyword search alone, or levels 3 and 4",
        worry="more than 5 % of all searches"),
    Declaration("rag_cache_hit_rate", "gauge", "ratio, 0 to 1",
        description="Share of searches since the start that the result cache answered",
        worry="never by itself; a fall explains higher latencies"),
    Declaration("rag_vectors_total", "untyped", "vectors",
        description="Vectors in the index",
        worry="it falls although nothing was deleted"),
    Declaration("rag_documents", "gauge", "documents",
        description="Documents in the index, pending ones included",
        worry="it falls although nothing was deleted"),
    Declaration("rag_documents_pending", "gauge", "documents",
        description="Documents whose vectors are not stored yet; keyword search finds them",
        worry="it does not fall for half an hour: the embedder or the vector store fails"),
    Declaration("rag_documents_indexed_total", "counter", "documents", labels=("status",),
        description="Documents that were submitted, by outcome: indexed, replaced, unchanged or pending",
        worry="pending grows as fast as the others"),
    Declaration("rag_errors_total", "counter", "failures", labels=("component", "operation"),
        description="Failed searches, writes and sweeps of what has expired, by the component that failed",
        worry='`operation="index"` grows: documents are not stored; `expire`: nothing is forgotten or purged in time'),
    Declaration("rag_log_records_total", "counter", "records", labels=("level", "logger"),
        description="Warnings and errors that a server logged, as far as log.level lets them, by the module",
        worry="level error grows: the log says what is wrong; of a warning, the module says which part has trouble"),
    Declaration("rag_circuit_breaker_state", "gauge", "state",
        description="Circuit breaker of searches: 0 closed, 1 half open, 2 open",
        worry="it is 2: searches are answered without results"),
    Declaration("rag_dependency_breaker_state", "gauge", "state", labels=("dependency",),
        description="Circuit breaker of the embedder, a store or the cache: 0 closed, 1 half open, 2 open",
        worry="it is not 0 for some minutes: that component is down"),
    Declaration("rag_queue_depth", "gauge", "records",
        description="Records of searches and errors that wait to be written",
        worry="it grows for minutes: the document store is too slow or rejects writes"),
    Declaration("rag_records_dropped_total", "counter", "records",
        description="Records of searches and errors that were lost",
        worry="it grows: statistics are incomplete"),
    Declaration("rag_embedding_cache_hits_total", "counter", "embeddings",
        description="Query embeddings that the cache had",
        worry="never"),
    Declaration("rag_embedding_cache_misses_total", "counter", "embeddings",
        description="Query embeddings that the model made",
        worry="it grows as fast as rag_queries_total although questions repeat: the cache is too small or not shared"),
    Declaration("rag_embeddings_reused_total", "counter", "embeddings",
        description="Embeddings of a query that served a further collection",
        worry="never"),
    Declaration("rag_admission_waiting", "gauge", "calls", labels=("class",),
        description="Calls that wait for their turn, by class: searches or writes",
        worry="it stays above 0: there is more load than the machine can answer"),
    Declaration("rag_admission_running", "gauge", "calls", labels=("class",),
        description="Calls that are worked on, by class",
        worry="it stays at rag_admission_limit"),
    Declaration("rag_admission_limit", "gauge", "calls", labels=("class",),
        description="Calls that may be worked on at once, by class; the limit of searches adapts",
        worry="never by itself"),
    Declaration("rag_admission_wait_seconds", "histogram", "seconds", labels=("class",),
        description="Wait of a call for its turn, by class",
        worry="the 95th percentile exceeds 0.5 s"),
    Declaration("rag_admission_rejected_total", "counter", "calls", labels=("class",),
        description="Calls rejected with 503 OVERLOADED, by class",
        worry="it grows"),
    Declaration("rag_build_info", "gauge", "none", labels=("version",),
        description="The version of rag-context; always 1",
        worry="two versions run longer than a roll-out takes"),
    Declaration("rag_worker_up", "gauge", "0 or 1", labels=("worker",),
        description="With several workers: whether the worker answered",
        worry="it is 0: a process of the server hangs"),
    Declaration("process_cpu_seconds_total", "counter", "seconds",
        description="Total user and system CPU time spent in seconds.",
        worry="its rate stays at the number of cores"),
    Declaration("process_resident_memory_bytes", "gauge", "bytes",
        description="Resident memory size in bytes.",
        worry="it comes near the memory of the machine or the limit of the container"),
    Declaration("process_virtual_memory_bytes", "gauge", "bytes",
        description="Virtual memory size in bytes.",
        worry="never by itself"),
    Declaration("process_start_time_seconds", "gauge", "seconds",
        description="Start time of the process since unix epoch in seconds.",
        worry="it changes without a deployment: the process was restarted"),
    Declaration("process_open_fds", "gauge", "descriptors",
        description="Number of open file descriptors.",
        worry="it comes near process_max_fds"),
    Declaration("process_max_fds", "gauge", "descriptors",
        description="Maximum number of open file descriptors.",
        worry="never by itself"),
)  # fmt: skip
METRICS: Mapping[str, Declaration] = {each.name: each for each in _DECLARED}
"""Every metric, in the order of the documentation. `process_*` are those of prometheus-client, on Linux only."""


@dataclass(frozen=True, slots=True)
class Readings:
    """The state of the components: their breakers, and the values of metrics without labels by their names."""

    breaker: BreakerState
    dependencies: Mapping[str, BreakerState]
    values: Mapping[str, float]


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
        self._log_records = self.counter("rag_log_records_total")
        self._registry.register(_Computed(self._families))
        ProcessCollector(registry=self._registry)

    @contextmanager
    def counting_log_records(self) -> Iterator[None]:
        """Count the warnings and errors of this package for the time of the block."""
        counting = _Counting(self._log_records)
        logger = logging.getLogger("rag_context")
        logger.addHandler(counting)
        try:
            yield
        finally:
            logger.removeHandler(counting)

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
        for name, value in {"rag_circuit_breaker_state": _STATES[now.breaker], **now.values}.items():
            yield _family(name, {(): value})
        yield _family(
            "rag_dependency_breaker_state", {(name,): _STATES[state] for name, state in now.dependencies.items()}
        )
        classes = (self._admissions.searches, self._admissions.writes)
        yield _family("rag_admission_waiting", {(each.name,): each.waiting for each in classes})
        yield _family("rag_admission_running", {(each.name,): each.running for each in classes})
        yield _family("rag_admission_limit", {(each.name,): each.limit.at_once for each in classes})
        yield _family("rag_build_info", {(__version__,): 1})


class _Counting(logging.Handler):
    def __init__(self, counter: Counter) -> None:
        super().__init__(logging.WARNING)
        self._counter = counter

    def emit(self, record: logging.LogRecord) -> None:
        self._counter.labels(record.levelname.lower(), record.name).inc()


def _family(name: str, values: Mapping[Sequence[str], float]) -> Metric:
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

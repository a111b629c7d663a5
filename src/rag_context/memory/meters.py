"""The metrics that Prometheus reads: what each one is, once, and their export."""

import logging
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UntypedMetricFamily
from prometheus_client.registry import Collector

from rag_context._version import __version__
from rag_context.resilience.admission import Admissions
from rag_context.resilience.dependency import BreakerState

_TABLE = Path(__file__).with_suffix(".toml")
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_STATES = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}

_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | UntypedMetricFamily
Kind: TypeAlias = Literal["counter", "gauge", "histogram", "untyped"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One metric, as /metrics, the documentation and the tests know it.

    `unit` is what its numbers count, `worry` what should make an operator look.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    worry: str
    labels: Sequence[str] = ()


METRICS: Mapping[str, Declaration] = {
    name: Declaration(name, **fields) for name, fields in tomllib.loads(_TABLE.read_text(encoding="utf-8")).items()
}
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

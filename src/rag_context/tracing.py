"""Spans of OpenTelemetry, or nothing: while traces are off, none of its code is loaded, and a span is a function call.

Spans have names of operations and components, counts and outcomes: never texts, queries, keys or messages of errors.
As with logging, there is one destination in a process: that of the program if it has set one up, else an exporter that
the standard variables `OTEL_*` describe.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from rag_context._version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import SpanKind, Tracer

logger = logging.getLogger(__name__)

Attributes: TypeAlias = Mapping[str, str | bool | int | float]

END_S = 2.0
"""Longest wait for the last spans to be sent when the process ends."""

_EXPORTER_LOG = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class TraceSpan:
    """One operation; this one is not recorded."""

    __slots__ = ()

    def __enter__(self) -> "TraceSpan":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        """The operation ended; with an error, its class is noted."""

    def set(self, attributes: Attributes) -> None:
        """Note what is known of the operation by now."""

    def rename(self, name: str) -> None:
        """Name it by what is known by now."""

    def fail(self, kind: str) -> None:
        """Note that it failed, although it raises nothing."""


NOT_RECORDED = TraceSpan()
tracer: "Tracer | None" = None
"""What makes spans; None while traces are off."""


class _Recorded(TraceSpan):
    __slots__ = ("_entered", "_span")

    def __init__(
        self,
        tracer: "Tracer",
        name: str,
        attributes: Attributes | None,
        *,
        kind: "SpanKind",
        parent: "Context | None" = None,
    ) -> None:
        # Messages of errors may quote what they are about; the class of an error cannot.
        self._entered = tracer.start_as_current_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )

    def __enter__(self) -> TraceSpan:
        self._span = self._entered.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if kind is asyncio.CancelledError:
            self.set({"rag.cancelled": True})
        elif kind is not None:
            self.fail(kind.__name__)
        self._entered.__exit__(kind, error, traceback)

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, kind: str) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415  (loaded already where a span is recorded)

        self._span.set_status(StatusCode.ERROR)
        self._span.set_attribute("error.type", kind)


def span(name: str, attributes: Attributes | None = None) -> TraceSpan:
    """A span of an operation, for a `with` block; those within are its children."""
    return NOT_RECORDED if tracer is None else _inner(tracer, name, attributes)


def child_span(name: str) -> TraceSpan:
    """As `span`, but nothing where no operation is traced: routine work in the background makes no traces."""
    return NOT_RECORDED if tracer is None or not _is_traced() else _inner(tracer, name, None)


def server_span(method: str, headers: Mapping[bytes, bytes]) -> TraceSpan:
    """The span of a request, within the trace that its header `traceparent` names."""
    if tracer is None:
        return NOT_RECORDED
    from opentelemetry.propagate import extract  # noqa: PLC0415
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
    return _Recorded(tracer, method, {"http.request.method": method}, kind=SpanKind.SERVER, parent=extract(carrier))


def past_span(name: str, latency_ms: float, ago_ms: float = 0.0) -> None:
    """Record an operation that took so long and ended so long ago; for work in threads, which know no trace."""
    if tracer is not None:
        end_ns = time.time_ns() - int(ago_ms * 1e6)
        tracer.start_span(name, start_time=end_ns - int(latency_ms * 1e6)).end(end_ns)


def _inner(tracer: "Tracer", name: str, attributes: Attributes | None) -> TraceSpan:
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    return _Recorded(tracer, name, attributes, kind=SpanKind.INTERNAL)


def _is_traced() -> bool:
    from opentelemetry.trace import get_current_span  # noqa: PLC0415

    return get_current_span().is_recording()


@contextmanager
def recorded_by(provider: "TracerProvider") -> Iterator[None]:
    """Give spans to a provider for the time of the block."""
    global tracer  # noqa: PLW0603  (one in a process, as the root logger is)
    before, tracer = tracer, provider.get_tracer("rag_context", __version__)
    try:
        yield
    finally:
        tracer = before


@asynccontextmanager
async def exported() -> AsyncIterator[None]:
    """Send spans to a collector for the time of the block, as the variables `OTEL_*` say, with OTLP over HTTP.

    They wait in a bounded queue and are sent by a thread, so that a collector that is down or hangs delays nothing. A
    program that has set up OpenTelemetry itself gets the spans instead.
    """
    # The exporter loads requests and protobuf, which takes a fifth of a second: not on the loop.
    provider, ours = await asyncio.to_thread(_provider)
    with recorded_by(provider):
        try:
            yield
        finally:
            if ours:
                await _end(provider.force_flush)


def _provider() -> "tuple[TracerProvider, bool]":
    """The provider of the process, and whether it is this program's own."""
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    found: Any = trace.get_tracer_provider()
    if isinstance(found, TracerProvider):
        return found, False
    own = Resource.create().merge(Resource({"service.name": "rag-context", "service.version": __version__}))
    # At its end the library would wait half a minute for a dead collector; `exported` waits for two seconds.
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_reporting(OTLPSpanExporter())))
    trace.set_tracer_provider(provider)
    return provider, True


def _reporting(exporter: "SpanExporter") -> "SpanExporter":
    """An exporter that logs when a collector begins to fail and when it works again, not each failed attempt."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415

    logging.getLogger(_EXPORTER_LOG).setLevel(logging.CRITICAL)

    class Reporting(SpanExporter):
        has_failed = False

        def export(self, spans: "Sequence[ReadableSpan]") -> "SpanExportResult":
            result = exporter.export(spans)
            failed = result is not SpanExportResult.SUCCESS
            if failed and not self.has_failed:
                logger.warning("traces cannot be sent: no collector accepts OTLP over HTTP where OTEL_* says")
            elif self.has_failed and not failed:
                logger.info("traces are sent again")
            self.has_failed = failed
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return Reporting()


async def _end(flush: Callable[[], object]) -> None:
    """Send what is left, for a bounded time: a thread that hangs at a dead collector does not keep the process."""
    last = threading.Thread(target=flush, name="last traces", daemon=True)
    last.start()
    until = time.monotonic() + END_S
    while last.is_alive() and time.monotonic() < until:  # noqa: ASYNC110  (a thread sets no event of the loop)
        await asyncio.sleep(0.01)

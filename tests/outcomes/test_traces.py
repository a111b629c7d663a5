"""Traces of a real server, received with OTLP over HTTP on loopback; and a collector that hangs or is gone."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.end_to_end.process import Served, served, wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
PATIENT = {"RAG_CONTEXT_SEARCH__DEADLINE_MS": "10000", "OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
"""A busy machine must not change a search, and one that waited for the collector must not be answered in time."""

TEXT = "Quokkas live on Rottnest Island."


@dataclass
class Collector:
    """Receives spans; `released` lets those requests go on that arrived while it hangs."""

    received: list[ExportTraceServiceRequest] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    released: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in list(self.received)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector = Collector()
    collector.released.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.arrived.set()
            collector.released.wait()
            collector.paths.add(self.path)
            collector.received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the library's name)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield collector
        collector.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces") / "data"


@pytest.fixture(scope="module")
def server(place: Path, collector: Collector) -> Iterator[Served]:
    with served(
        place,
        RAG_CONTEXT_TELEMETRY__TRACES="true",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_SERVICE_NAME="memory-of-the-zoo",
        OTEL_BSP_SCHEDULE_DELAY="50",
        **PATIENT,
    ) as server:
        server.wait_ready()
        yield server


def test_a_request_continues_the_trace_of_its_caller(server: Served, collector: Collector) -> None:
    """W-2."""
    server.index(TEXT)
    reply = httpx2.post(
        f"{server.url}/tools/rag_context_search",
        json={"query": "where do quokkas live"},
        headers={"traceparent": f"00-{TRACE}-{PARENT}-01"},
    )
    assert reply.json()["fallbackLevel"] == 1
    wait_until(lambda: [span for span in collector.spans if span.parent_span_id.hex() == PARENT])

    spans = {span.name: span for span in collector.spans if span.trace_id.hex() == TRACE}
    request, search = spans["POST /tools/{name}"], spans["search"]
    assert request.parent_span_id.hex() == PARENT
    assert search.parent_span_id == request.span_id
    snapshot = spans["index_read"]
    assert {spans[name].parent_span_id for name in ("query_embedding", "index_read")} == {search.span_id}
    # On a busy machine the answer of level 2 was prepared too, and has a ranking of its own.
    within = {span.name: span for span in collector.spans if span.parent_span_id == snapshot.span_id}
    vector, keywords, ranking = (within[name] for name in ("vector_search", "keyword_search", "ranking"))
    assert snapshot.start_time_unix_nano <= vector.start_time_unix_nano <= vector.end_time_unix_nano
    assert keywords.start_time_unix_nano <= keywords.end_time_unix_nano
    assert ranking.start_time_unix_nano <= ranking.end_time_unix_nano <= snapshot.end_time_unix_nano


def test_spans_arrive_at_the_standard_path_under_the_name_that_is_set(server: Served, collector: Collector) -> None:
    server.search("where do quokkas sleep")
    wait_until(lambda: collector.named("search"))
    (resource,) = {request.resource_spans[0].resource.SerializeToString() for request in collector.received}

    assert collector.paths == {"/v1/traces"}
    assert b"memory-of-the-zoo" in resource
    assert b"service.version" in resource
    assert not [request for request in collector.received if b"uokka" in request.SerializeToString()]


def test_probes_make_no_traces(server: Served, collector: Collector) -> None:
    before = len(collector.spans)
    for path in ("/live", "/ready", "/health", "/metrics"):
        server.get(path)
    server.search("the search after the probes")
    wait_until(lambda: len(collector.spans) > before)

    assert {span.name for span in collector.spans} & {"GET /health", "GET /metrics", "GET /live", "GET /ready"} == set()


def test_a_collector_that_hangs_or_is_gone_changes_no_answer(server: Served, collector: Collector, place: Path) -> None:
    """Nor does it keep the server from its end; the log says so once."""
    collector.arrived.clear()
    collector.released.clear()
    server.search("the first search of the outage")
    assert collector.arrived.wait(30)
    levels = {server.search(f"search {number} while the collector hangs")["fallbackLevel"] for number in range(30)}
    assert levels == {1}
    assert server.stop() == 0

    with served(
        place,
        RAG_CONTEXT_TELEMETRY__TRACES="true",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_BSP_SCHEDULE_DELAY="50",
        **{**PATIENT, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"},
    ) as alone:
        alone.wait_ready()
        log = place.with_suffix(".log")
        alone.search("a search without a collector")
        wait_until(lambda: "traces cannot be sent" in log.read_text())
        assert {alone.search(f"search {number} without a collector")["fallbackLevel"] for number in range(30)} == {1}
        assert alone.stop() == 0
        assert log.read_text().count("traces cannot be sent") == 1
        assert "Traceback" not in log.read_text()

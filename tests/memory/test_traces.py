"""What a search, an indexing and the background work leave in a trace, and what they never do."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from rag_context.errors import BackendUnavailableError
from rag_context.memory.service import Service
from rag_context.testing import Fault
from rag_context.tracing import recorded_by, span
from tests.memory.harness import ServiceHarness

TEXT = "Quokkas live on Rottnest Island."
WORDS = ("quokka", "rottnest", "island", "where")


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """Everything that is recorded during a test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with recorded_by(provider):
        yield exporter


def paths(exporter: InMemorySpanExporter) -> set[str]:
    """Every span with those that it is within: `search > vector_search > vectors.search`."""
    spans = exporter.get_finished_spans()
    by_id = {each.context.span_id: each for each in spans if each.context is not None}

    def path(each: ReadableSpan) -> str:
        return f"{path(by_id[each.parent.span_id])} > {each.name}" if each.parent is not None else each.name

    return {path(each) for each in spans}


def one(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [each for each in exporter.get_finished_spans() if each.name == name]
    return found


async def test_a_search_is_one_span_with_its_retrievers_and_backends(
    harness: ServiceHarness, exporter: InMemorySpanExporter
) -> None:
    """W-2."""
    await harness.index(TEXT)
    exporter.clear()
    await harness.search("where do quokkas live")

    found = paths(exporter)
    assert {
        "search",
        "search > query_embedding > embedder.embed_query",
        "search > vector_search > vectors.search",
        "search > keyword_search > documents.search",
        "search > ranking",
        "search > ranking > documents.passages",
    } <= found
    assert {path.partition(" > ")[0] for path in found} == {"search"}
    assert dict(one(exporter, "search").attributes or {}) == {
        "rag.mode": "hybrid",
        "rag.limit": 5,
        "rag.level": 1,
        "rag.results": 1,
        "rag.cached": False,
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.top_k": 5,
        "gen_ai.data_source.id": "memory",
    }
    exporter.clear()
    await harness.search("where do quokkas live")
    assert [(each.name, (each.attributes or {})["rag.cached"]) for each in exporter.get_finished_spans()] == [
        ("search", True)
    ]


async def test_indexing_is_one_span_with_its_parts(harness: ServiceHarness, exporter: InMemorySpanExporter) -> None:
    await harness.index(TEXT)

    assert {"index", "index > index.chunk", "index > embedder.embed_documents", "index > index.write"} <= paths(
        exporter
    )
    assert dict(one(exporter, "index").attributes or {}) == {
        "rag.status": "indexed",
        "rag.chunks": 1,
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.memory.record.count": 1,
    }


async def test_queries_and_what_was_found_are_traced_where_that_is_set(
    harness: ServiceHarness, exporter: InMemorySpanExporter
) -> None:
    receipt = await harness.index(TEXT)
    harness.service = Service(replace(harness.service._dependencies, traces_content=True), now=lambda: harness.now)
    (found,) = (await harness.search("where do quokkas live", minScore=0.0)).results

    traced = one(exporter, "search").attributes or {}
    assert traced["gen_ai.retrieval.query.text"] == "where do quokkas live"
    documents = json.loads(str(traced["gen_ai.retrieval.documents"]))
    assert documents == [{"id": receipt.document_id, "score": found.score}]


async def test_a_document_that_is_completed_later_has_a_trace_of_its_own(
    harness: ServiceHarness, exporter: InMemorySpanExporter
) -> None:
    harness.embedder.fault = Fault(BackendUnavailableError("embedder", "down"))
    await harness.index(TEXT)
    harness.embedder.fault = None
    exporter.clear()
    await harness.maintenance.sweep(lambda _done: None)

    assert "index.complete > embedder.embed_documents" in paths(exporter)
    exporter.clear()
    await harness.maintenance.sweep(lambda _done: None)
    assert exporter.get_finished_spans() == ()


async def test_a_failure_is_an_error_of_the_spans_that_it_passes(
    harness: ServiceHarness, exporter: InMemorySpanExporter
) -> None:
    await harness.index(TEXT)
    exporter.clear()
    harness.embedder.fault = Fault(BackendUnavailableError("embedder", "down"))
    harness.documents.fault = Fault(BackendUnavailableError("documents", f"no answer to {TEXT}"))
    await harness.search("where do quokkas live")

    failed = {each.name for each in exporter.get_finished_spans() if each.status.status_code is StatusCode.ERROR}
    assert {"search", "query_embedding", "documents.passages"} <= failed
    assert (one(exporter, "search").attributes or {})["rag.level"] == 3
    assert all(each.events == () and each.status.description is None for each in exporter.get_finished_spans())


async def test_no_text_is_in_any_span(harness: ServiceHarness, exporter: InMemorySpanExporter) -> None:
    """X-5: neither of documents nor of queries, also where something fails."""
    await harness.index(TEXT, metadata={"agent": "island", "tags": ["rottnest"]})
    await harness.search("where do quokkas live", agent="island")
    harness.documents.fault = Fault(BackendUnavailableError("documents", f"no answer to {TEXT}"))
    await harness.search("where on the island")

    told = "\n".join(each.to_json() for each in exporter.get_finished_spans()).lower()
    assert len(exporter.get_finished_spans()) > 20
    assert [word for word in WORDS if word in told] == []


def test_nothing_of_opentelemetry_is_loaded_while_traces_are_off() -> None:
    with span("search") as traced:
        traced.set({"rag.level": 1})
    code = (
        "import sys; import rag_context.wiring, rag_context.server.app, rag_context.tracing as t\n"
        "with t.span('a'), t.child_span('b'), t.server_span('GET', {}): t.past_span('c', 1.0)\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The tools through the official client: what is listed, what is answered, and how failures are reported."""

import asyncio
import json
import logging

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from rag_context.api.handlers import CallContext
from rag_context.api.operations import Access
from rag_context.api.search import SearchRequest, SearchResponse
from rag_context.errors import BackendUnavailableError
from rag_context.testing import Fault
from tests.memory.harness import ServiceHarness
from tests.server.stub_service import StubService

from .mcp_client import BOTH_ERAS, REQUEST_ID, check_portable, connected, memory_of, raw, read

DOCUMENT = {"content": "Red foxes hunt mice.", "contentType": "decision", "sessionId": "s", "source": "foxes"}


@pytest.fixture
async def harness() -> ServiceHarness:
    """A service whose model is bound to its empty index."""
    made = ServiceHarness()
    await made.bound.bind()
    return made


async def test_every_tool_of_the_registry_is_listed_with_its_schemas_and_hints() -> None:
    """P-1."""
    async with connected(StubService(), structured=True) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(listed) == list(memory_of(StubService()).tools)
    for name, tool in memory_of(StubService()).tools.items():
        shown = listed[name]
        assert shown.input_schema["properties"].keys() == tool.input_schema["properties"].keys() - (
            tool.request.unlisted() | {"category"}
        )
        assert shown.output_schema is not None
        assert shown.output_schema["required"] == tool.output_schema["required"]
        assert shown.title == tool.title
        assert shown.annotations is not None
        assert shown.annotations.read_only_hint is (tool.access is Access.READ)
        assert shown.annotations.open_world_hint is False
    destructive = {name for name, tool in listed.items() if tool.annotations and tool.annotations.destructive_hint}
    assert destructive == {
        "rag_context_index",
        "rag_context_delete",
        "rag_context_undo",
        "rag_context_forget",
        "rag_context_clear_queries",
        "collection_add",
        "collection_update_document",
        "collection_set_metadata",
        "collection_delete_documents",
        "collection_delete",
    }


async def test_schemas_contain_nothing_that_strict_clients_reject() -> None:
    """P-2."""
    rejected = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "propertyNames", "const", "not", "additionalProperties"}

    async with connected(StubService(), structured=True) as client:
        for tool in (await client.list_tools()).tools:
            assert tool.input_schema["type"] == "object"
            check_portable(tool.input_schema, rejected)
            check_portable(tool.output_schema, rejected)


async def test_a_list_for_models_has_no_schemas_of_answers() -> None:
    async with connected(StubService()) as client:
        assert all(tool.output_schema is None for tool in (await client.list_tools()).tools)


async def test_arguments_that_are_not_listed_are_accepted(harness: ServiceHarness) -> None:
    async with connected(harness.service, structured=True) as client:
        found = await client.call_tool("rag_context_search", {"query": "red foxes", "explain": True, "mode": "text"})
    assert not found.is_error


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_an_answer_comes_once_as_text_or_as_data(harness: ServiceHarness, mode: str) -> None:
    """P-1."""
    question = {"query": "red foxes", "since": "2020-01-01T00:00:00Z"}
    async with connected(harness.service, mode=mode, structured=True) as client:
        kept = await client.call_tool("rag_context_index", DOCUMENT)
        found = await client.call_tool("rag_context_search", question)
    async with connected(harness.service, mode=mode) as client:
        words = read(await client.call_tool("rag_context_search", question))
        again = read(await client.call_tool("rag_context_index", DOCUMENT))
    assert not found.is_error
    assert json.loads(raw(found)) == found.structured_content
    assert found.structured_content["requestId"] == REQUEST_ID
    (passage,) = found.structured_content["results"]
    assert words.startswith("1 passage from 1 document, best first.")
    assert f"[1] foxes:1 · relevance {passage['score']:.2f} · decision · 2026-01-01" in words
    assert f"documentId {passage['documentId']}" in words
    assert words.endswith("Red foxes hunt mice.")
    assert words.count("Red foxes hunt mice.") == 1
    assert kept.structured_content["documentId"] == passage["documentId"]
    assert again == f"Already stored; nothing changed. documentId {passage['documentId']}, 1 chunk."


async def test_a_degraded_answer_says_its_level_and_warning_first(harness: ServiceHarness) -> None:
    """F-1."""
    async with connected(harness.service) as client:
        await client.call_tool("rag_context_index", DOCUMENT)
        harness.embedder.fault = Fault(BackendUnavailableError("embedder", "down"))
        found = await client.call_tool("rag_context_search", {"query": "red foxes"})
    assert read(found).splitlines()[:3] == [
        "Level 2 of 4: keyword search alone.",
        "Warning: Vector search unavailable, using text search fallback",
        "1 passage from 1 document, best first.",
    ]


async def test_a_bounded_answer_says_how_much_was_left_out(harness: ServiceHarness) -> None:
    """P-1."""
    async with connected(harness.service) as client:
        for number in range(3):
            await client.call_tool("rag_context_index", {**DOCUMENT, "source": str(number)})
        found = await client.call_tool("rag_context_search", {"query": "red foxes", "maxTokens": 4})
    assert read(found).count("Red foxes hunt mice.") == 1
    assert "2 more were left out because of maxTokens." in read(found)


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_wrong_arguments_are_reported_so_that_a_model_can_correct_them(
    harness: ServiceHarness, mode: str
) -> None:
    """T-6, T-8."""
    async with connected(harness.service, mode=mode) as client:
        reported = await client.call_tool("rag_context_search", {"query": "", "limt": 3, "tags": "x", "limit": "3"})
    assert reported.is_error
    assert "INVALID_INPUT" in read(reported)
    assert "- limit: limit must be a whole number" in read(reported)
    assert "- limt: Unknown field 'limt'; did you mean 'limit'?" in read(reported)
    assert "- tags: tags must be an array" in read(reported)


async def test_null_means_absent_and_missing_arguments_are_none(harness: ServiceHarness) -> None:
    """T-8."""
    async with connected(harness.service) as client:
        assert not (await client.call_tool("rag_context_search", {"query": "a", "game": None, "limit": None})).is_error
        assert not (await client.call_tool("rag_context_health")).is_error
        assert (await client.call_tool("rag_context_search")).is_error


async def test_too_much_is_reported_with_the_limit(harness: ServiceHarness) -> None:
    async with connected(harness.service, structured=True) as client:
        reported = await client.call_tool("rag_context_index", {**DOCUMENT, "content": "x" * 100_001})
        assert json.loads(raw(reported))["error"] == "Content too large (max 100KB)"
        reported = await client.call_tool("rag_context_search", {"query": "x" * 1001})
        assert json.loads(raw(reported))["error"] == "Query too long (max 1000 characters)"


@pytest.mark.parametrize("name", ["rag_context_find", "", "x" * 10_000, "rag_context_search\x00"])
async def test_an_unknown_tool_is_a_protocol_error(name: str) -> None:
    async with connected(StubService()) as client:
        with pytest.raises(MCPError, match="Unknown tool") as caught:
            await client.call_tool(name, {})
    assert caught.value.error.code == INVALID_PARAMS
    assert len(caught.value.error.message) < 200


async def test_what_is_not_there_is_reported_as_an_error_result(harness: ServiceHarness) -> None:
    async with connected(harness.service) as client:
        reported = await client.call_tool("rag_context_get", {"documentId": "d9"})
    assert reported.is_error
    assert read(reported) == "Document d9 not found (NOT_FOUND)"


async def test_a_dead_backend_is_reported_without_its_internals() -> None:
    service = StubService(failure=BackendUnavailableError("documents", "mongodb://user:secret@host is down"))
    async with connected(service) as client:
        reported = await client.call_tool("rag_context_stats", {})
    assert reported.is_error
    assert read(reported) == "Database unavailable (SERVICE_UNAVAILABLE)\nGo on without context, and say so."
    assert "secret" not in reported.model_dump_json()


async def test_a_strict_search_that_could_not_be_made_is_an_error_result() -> None:
    """T-7."""
    async with connected(StubService(level=4, retry_after_s=30)) as client:
        reported = await client.call_tool("rag_context_search", {"query": "q", "strict": True})
    assert reported.is_error
    assert read(reported).startswith("Search failed: Circuit breaker is open")


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_bug_is_an_internal_error_and_says_nothing_of_itself(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(StubService(failure=ZeroDivisionError("secret state")), mode=mode) as client:
        with caplog.at_level(logging.ERROR), pytest.raises(MCPError) as caught:
            await client.call_tool("rag_context_health", {})
    assert (caught.value.error.code, caught.value.error.message) == (INTERNAL_ERROR, "Internal server error")
    assert caught.value.error.data == {"requestId": REQUEST_ID}
    assert "ZeroDivisionError" in caplog.text


async def test_who_may_only_read_is_offered_only_that_and_cannot_do_more() -> None:
    """X-1."""
    service = StubService()
    async with connected(service, Access.READ) as client:
        offered = {tool.name for tool in (await client.list_tools()).tools}
        reported = await client.call_tool("rag_context_index", DOCUMENT)
    assert not offered & {"rag_context_index", "rag_context_delete", "rag_context_reindex"}
    assert "rag_context_search" in offered
    assert read(reported) == "This API key may only read (FORBIDDEN)"
    assert service.indexed == []


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_long_work_reports_its_progress(harness: ServiceHarness, mode: str) -> None:
    """P-1."""
    received: list[tuple[float, float | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total))
        assert message is None

    async with harness.maintained(), connected(harness.service, mode=mode) as client:
        for number in range(3):
            await client.call_tool("rag_context_index", {**DOCUMENT, "source": str(number)})
        arguments = {"force": True, "wait": True}
        reported = await client.call_tool("rag_context_reindex", arguments, progress_callback=listen)
    assert read(reported) == "All documents have their vectors; nothing to do. 3 of 3 documents done."
    assert received[-1] == (3, 3)


class Hanging(StubService):
    """Searches without end, and records when it was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.stopped = asyncio.Event()

    async def search(self, request: SearchRequest, context: CallContext) -> SearchResponse:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        raise AssertionError


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_call_that_is_cancelled_stops_its_work(mode: str) -> None:
    """P-1."""
    service = Hanging()
    async with asyncio.timeout(60), connected(service, mode=mode) as client:
        call = asyncio.create_task(client.call_tool("rag_context_search", {"query": "q"}))
        await service.begun.wait()
        call.cancel()
        await service.stopped.wait()
        assert not (await client.call_tool("rag_context_health", {})).is_error


async def test_calls_run_side_by_side() -> None:
    service = Hanging()
    async with asyncio.timeout(60), connected(service) as client:
        call = asyncio.create_task(client.call_tool("rag_context_search", {"query": "q"}))
        await service.begun.wait()
        assert not (await client.call_tool("rag_context_health", {})).is_error
        call.cancel()

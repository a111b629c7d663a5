"""A session over MCP in the sample project that the repository ships, from activation to forgetting it."""

import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mcp import Client
from rag_context.api.operations import Access
from rag_context.api.toolsets import ALL_TOOLS, Toolset, toolsets_named
from rag_context.api.wire import Vocabulary
from rag_context.domain.callers import CallerId
from rag_context.server.mcp.handshake import instructions
from rag_context.server.mcp.protocol import McpServer, Memory, RequestContext
from rag_context.server.mcp.readable import readable
from rag_context.server.tools import build_tools
from tests.mcp.mcp_client import check_portable, raw
from tests.projects.http_harness import HttpHarness, open_http_harness

SAMPLE = Path(__file__).parents[2] / "examples" / "sample-project"
ASK = "Why did the checkout run out of database connections?"


@pytest.fixture
async def harness() -> AsyncIterator[HttpHarness]:
    async with open_http_harness() as opened:
        yield opened


@pytest.fixture
def config(tmp_path: Path) -> str:
    """The configuration of a fresh checkout of the sample project."""
    shutil.copytree(SAMPLE, tmp_path / "sample-project")
    return str(tmp_path / "sample-project" / ".rag-context" / "config.json")


def connected(
    harness: HttpHarness, session: str | None = "one", access: Access = Access.WRITE, *, structured: bool = True
) -> Client:
    """The official client connected to the server, in a session of its own."""
    memory = Memory(harness.service, build_tools(harness.service, Vocabulary()))

    async def opened() -> Memory:
        return memory

    visit = RequestContext("r-1", access, ALL_TOOLS, CallerId(session), structured=structured)
    return Client(McpServer(opened, lambda _context: visit).server())


async def test_the_sample_interactions_run_as_written(harness: HttpHarness, config: str) -> None:
    tools = build_tools(harness.service, Vocabulary())
    async with connected(harness) as client:
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}

        async def call(name: str, **arguments: Any) -> tuple[Any, str]:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, raw(result)
            jsonschema.validate(result.structured_content, schemas[name] or {})
            body = tools[name].response.model_validate(result.structured_content)
            if body.text_only:  # what is long stands in the text alone
                return result.structured_content, raw(result)
            assert json.loads(raw(result)) == result.structured_content
            return result.structured_content, readable(body)

        activated, said = await call("activate_project", config_path=config)
        assert (activated["status"], activated["project_name"]) == ("activated", "sample-shop")
        assert "runbook" in {each["name"] for each in activated["doc_types"] if each["custom"]}
        assert said.startswith(f"Active: project sample-shop (branch {activated['branch_name']}, ")

        answer, said = await call("rag_query", query=ASK, max_sources=2)
        assert "problems/connection-pool-exhaustion.md" in {source["path"] for source in answer["sources"]}
        assert answer["critical_docs"]
        assert "context" not in answer
        for document in (*answer["critical_docs"], *answer["sources"], *answer["linked_docs"]):
            assert f"### {document['title']}\n- **Path**: {document['path']}\n" in said

        found, said = await call("semantic_search", query="connection pool", doc_types=["problem"], limit=5)
        assert {result["doc_type"] for result in found["results"]} == {"problem"}
        assert found["results"][0]["path"] in said

        types, said = await call("list_doc_types")
        assert {"problem", "insight", "codebase", "tool", "style", "runbook"} <= {
            each["name"] for each in types["doc_types"]
        }
        assert "- runbook (" in said

        path = found["results"][0]["path"]
        promoted, said = await call("update_promotion_level", document_path=path, promotion_level="critical")
        assert (promoted["document_path"], promoted["new_level"]) == (path, "critical")
        assert "is critical now" in said
        answer, _ = await call("rag_query", query="feature flags")
        assert path in {source["path"] for source in answer["critical_docs"]}

        indexed, said = await call("index_document", path=path)
        assert (indexed["status"], indexed["path"]) == ("indexed", path)
        assert said.startswith(f"Indexed {path} of project sample-shop")

        external, said = await call("search_external_docs", query="payments", min_relevance_score=0)
        assert external["results"]
        assert external["external_docs_path"] == "vendor"
        external, _ = await call("rag_query_external", query="payments", min_relevance_score=0)
        assert external["char_count"] > 0

        preview, said = await call("delete_documents", project_name="sample-shop", dry_run=True)
        assert "would be removed" in said
        deleted, said = await call("delete_documents", project_name="sample-shop")
        assert deleted["deleted_count"] == preview["deleted_count"] > 0
        gone = await client.call_tool("rag_query", {"query": ASK})
        assert gone.is_error
        assert json.loads(raw(gone))["code"] == "PROJECT_NOT_ACTIVATED"


async def test_sessions_work_on_projects_of_their_own(harness: HttpHarness, config: str) -> None:
    async with connected(harness, "one") as one, connected(harness, "two") as two:
        assert not (await one.call_tool("activate_project", {"config_path": config})).is_error
        assert not (await one.call_tool("list_doc_types", {})).is_error
        assert (await two.call_tool("list_doc_types", {})).is_error
        named = await two.call_tool("list_doc_types", {"project": "sample-shop"})
        assert named.structured_content is not None
        assert named.structured_content["project_name"] == "sample-shop"


@pytest.mark.parametrize("sets", [*Toolset, "all", "memory,projects", "projects,collections", "operations,memory"])
async def test_the_instructions_name_only_tools_that_are_offered(harness: HttpHarness, sets: str) -> None:
    """P-1."""
    toolsets = toolsets_named(sets)
    tools = build_tools(harness.service, Vocabulary())
    named = tools.keys() & set(re.findall(r"\w+", instructions(toolsets)))
    if Toolset.SEARCH_FETCH not in toolsets:
        named -= {"search", "fetch"}  # are words, too
    assert named
    assert named <= tools.only(toolsets).keys()


async def test_who_may_only_read_is_shown_the_tools_that_read(harness: HttpHarness) -> None:
    async with connected(harness, access=Access.READ) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"rag_query", "semantic_search", "list_doc_types", "search_external_docs", "rag_query_external"} <= names
    assert {"activate_project", "list_projects"} <= names
    assert not names & {"index_document", "update_promotion_level", "delete_documents"}


async def test_schemas_contain_nothing_that_strict_clients_reject(harness: HttpHarness) -> None:
    rejected = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "propertyNames", "const", "not"}

    async with connected(harness) as client:
        for tool in (await client.list_tools()).tools:
            check_portable(tool.input_schema, rejected)
            check_portable(tool.output_schema, rejected)

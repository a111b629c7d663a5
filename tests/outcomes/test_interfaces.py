"""What agents and programs meet at the interfaces: MCP answers that come once, OpenAI's errors on /v1, true figures."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation, TextContent

from mcp import Client, StdioServerParameters
from tests.end_to_end.process import COMMAND, Served, command, environment, served

LIST_CHARS = 6_200
"""Of the tools' names, descriptions and input schemas as JSON: about 1 350 tokens."""

PASSAGE = "The pump of hall seven is checked every Monday before the shift begins."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("doors") / "data") as server:
        server.wait_ready()
        server.index(PASSAGE, source="pumps")
        yield server


def initialized(server: Served, version: str) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"Accept": "application/json, text/event-stream"}
    reply = httpx2.post(f"{server.url}/mcp", json=message, headers=headers, timeout=60)
    result: dict[str, Any] = reply.json()["result"]
    return result


def test_a_revision_that_requires_batches_is_not_negotiated(server: Served, tmp_path: Path) -> None:
    assert initialized(server, "2025-03-26")["protocolVersion"] == "2024-11-05"
    assert initialized(server, "2025-06-18")["protocolVersion"] == "2025-06-18"
    params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    over_stdio = subprocess.run(
        [COMMAND, "mcp", "--data-dir", str(tmp_path)],
        input=json.dumps(message) + "\n",
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    assert json.loads(over_stdio.stdout)["result"]["protocolVersion"] == "2024-11-05"


async def test_an_answer_comes_once(server: Served) -> None:
    async with Client(f"{server.url}/mcp") as client:
        reported = await client.call_tool("rag_context_search", {"query": "when is the pump checked"})
    assert reported.model_dump_json().count(PASSAGE) == 1
    assert reported.structured_content is None
    async with Client(f"{server.url}/mcp?structured=true") as client:
        reported = await client.call_tool("rag_context_search", {"query": "when is the pump checked"})
    assert reported.structured_content is not None
    assert reported.structured_content["results"][0]["content"] == PASSAGE


async def test_an_agents_tools_cost_little_and_index_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "pumps.md").write_text(f"# Pumps\n\n{PASSAGE}\n")
    (folder / "uv.lock").write_text("locked")
    how = StdioServerParameters(
        command=COMMAND, args=["mcp", "--data-dir", str(tmp_path / "data")], env=environment(), cwd=tmp_path
    )
    async with Client(how) as client:
        tools = (await client.list_tools()).tools
        listed = [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema} for tool in tools
        ]
        assert len(json.dumps(listed, separators=(",", ":"))) <= LIST_CHARS
        assert "additionalProperties" not in json.dumps(listed)
        assert "casino game" not in json.dumps(listed)
        taken = await client.call_tool("rag_context_index_files", {"path": str(folder)})
        assert "1 indexed" in text(taken)
        assert "uv.lock: a lock file" in text(taken)
        assert PASSAGE in text(await client.call_tool("rag_context_search", {"query": "when is the pump checked"}))
        again = await client.call_tool("rag_context_index_files", {"path": str(folder)})
        assert "1 unchanged" in text(again)
        missing = await client.call_tool("rag_context_index_files", {"path": str(tmp_path / "nowhere")})
    assert missing.is_error
    assert "There is no file or folder at" in text(missing)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", {f"rag_context_{name}" for name in ("search", "index", "correct", "get", "list", "delete")}),
        ("?tools=search-fetch", {"search", "fetch"}),
        ("?tools=operations,search-fetch", {"search", "fetch", "rag_context_stats", "rag_context_health"}),
    ],
)
async def test_the_address_says_which_tools_are_offered(server: Served, query: str, names: set[str]) -> None:
    async with Client(f"{server.url}/mcp{query}") as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        with pytest.raises(MCPError, match="add the set collections"):
            await client.call_tool("collection_delete", {"name": "faq"})
    assert names <= listed
    assert ("operations" in query) or listed == names


def test_an_unknown_set_of_tools_is_reported(server: Served) -> None:
    reply = httpx2.post(f"{server.url}/mcp?tools=everything", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert reply.status_code == 400
    assert "memory, operations, projects, collections, search-fetch, all" in reply.json()["error"]


async def test_a_research_client_searches_and_fetches(server: Served) -> None:
    async with Client(f"{server.url}/mcp?tools=search-fetch") as client:
        found = json.loads(text(await client.call_tool("search", {"query": "when is the pump checked"})))
        (result,) = found["results"]
        document = json.loads(text(await client.call_tool("fetch", {"id": result["id"]})))
    assert result.keys() == {"id", "title", "url", "text"}
    assert document.keys() == {"id", "title", "text", "url", "metadata"}
    assert result["text"] == document["text"] == PASSAGE
    assert result["url"] == document["url"] == f"rag-context://documents/{result['id']}"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_statistics_name_the_program_that_called(server: Served, mode: str) -> None:
    program = Implementation(name=f"tester-{mode}", version="1")
    async with Client(f"{server.url}/mcp", mode=cast("Any", mode), client_info=program) as client:
        await client.call_tool("rag_context_search", {"query": "who checks the pump"})
    stats = httpx2.post(f"{server.url}/tools/rag_context_stats", json={}).json()
    assert stats["queriesByAgent"][program.name] == 1


def text(result: Any) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def test_errors_below_v1_are_openais(server: Served) -> None:
    asked = {"/v1/embeddings": ({"input": ""}, 400, "input[0]"), "/v1/chat/completions": ({"messages": []}, 404, None)}
    for path, (body, status, param) in asked.items():
        reply = httpx2.post(server.url + path, json=body)
        error = reply.json()["error"]
        assert (reply.status_code, error["type"], error.get("param")) == (status, "invalid_request_error", param)
        assert error["message"]
    model = httpx2.get(f"{server.url}/v1/models").json()["data"][0]["id"]
    assert httpx2.get(f"{server.url}/v1/models/{model}").json()["id"] == model
    for reply in (
        httpx2.get(f"{server.url}/v1/models/text-embedding-3-small"),
        httpx2.post(f"{server.url}/v1/embeddings", json={"input": "a", "model": "text-embedding-3-small"}),
    ):
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


def test_a_cached_answer_does_not_repeat_the_times_of_the_first(server: Served) -> None:
    first = server.search("who checks the pump of hall seven")
    again = server.search("who checks the pump of hall seven")
    assert first["legs"]["embedding"]["latencyMs"] > 0
    assert again["cached"]
    assert {leg["latencyMs"] for leg in again["legs"].values()} == {0}
    assert {leg["status"] for leg in again["legs"].values()} == {"skipped"}


def test_counters_are_counters(server: Served) -> None:
    metrics = server.get("/metrics").text
    for name in ("rag_records_dropped", "rag_embeddings_reused"):
        assert f"# TYPE {name}_total counter" in metrics


def test_hits_and_misses_of_the_embedding_cache_are_counted(server: Served) -> None:
    def counts() -> tuple[float, float]:
        found = dict(re.findall(r"^rag_embedding_cache_(hits|misses)_total (\S+)$", server.get("/metrics").text, re.M))
        stats = server.tool("stats", {}).json()
        assert (stats["embeddingCacheHits"], stats["embeddingCacheMisses"]) == (
            float(found["hits"]),
            float(found["misses"]),
        )
        return float(found["hits"]), float(found["misses"])

    hits, misses = counts()
    for limit in (3, 4):  # another limit is another result, of the same embedding
        server.search("who checks the pump of hall eleven", limit=limit)
    assert counts() == (hits + 1, misses + 1)


def test_validating_the_system_leaves_the_statistics_alone(server: Served) -> None:
    before = server.tool("stats", {}).json()["totalQueries"]
    done = command("validate", "--url", server.url, data_dir=Path("unused"))
    assert done.returncode == 0, done.stdout + done.stderr
    server.search("one more question")
    stats = server.tool("stats", {}).json()
    while stats["totalQueries"] == before:  # a record is written within a second
        stats = server.tool("stats", {}).json()
    assert "rag-context validate" not in stats["queriesByAgent"]
    assert "validate" not in stats["queriesByAgent"]


def test_every_fault_of_a_request_is_reported_or_counted(server: Served) -> None:
    four = server.tool("search", {"query": "", "limit": 0, "mode": "x", "tags": "y"}).json()
    assert len(four["details"]) == 4
    assert "more" not in four["error"]
    many = server.tool("search", {"query": "q", **{f"field{n}": 1 for n in range(9)}}).json()
    assert many["error"].endswith("; and 6 more problems, see details")

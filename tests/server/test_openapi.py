"""The published description, and a fuzzer that holds the server to it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rag_context.server.app import create_app
from rag_context.server.openapi import build_openapi
from rag_context.server.options import HashedKey, ServerOptions, hash_key
from tests.end_to_end.process import environment

from .server_thread import Running
from .stub_service import StubService, as_service

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,positive_data_acceptance,unsupported_method,allow_header_conformance"
)


JUDGED_BY_WHAT_IS_THERE = "".join(
    f"""
[[operations]]
include-path = "{path}"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "401", "403", "404", "409", "5xx"]
"""
    for path in (
        "/collections",
        "/collections/{name}/documents",
        "/collections/{name}/documents/{id}/metadata",
        "/collections/{name}/metadata",
        "/collections/{name}/query",
        "/providers/{name}/test",
        "/tools/collection_add",
        "/tools/collection_create",
        "/tools/collection_delete_documents",
        "/tools/collection_documents",
        "/tools/collection_query",
        "/tools/collection_set_metadata",
        "/tools/collection_update_document",
    )
)
"""Whether vectors fit a collection and each other, keys deep in metadata, and configurations of plug-ins: no schema
says it, so that the answer may be 400."""


def fuzz(schema: str, open_server: Running, *options: str, checks: str, phases: str, directory: Path) -> None:
    """Run schemathesis against the server, but for /bulk (it cannot write NDJSON) and /events (which never end)."""
    (directory / "schemathesis.toml").write_text(JUDGED_BY_WHAT_IS_THERE)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", schema, "--url", open_server.url),
        *("--exclude-path", "/bulk", "--exclude-path", "/events"),
        *("--checks", checks, "--mode", "all", "--max-examples", "10", "--seed", "7", "--no-color"),
        *("--phases", phases, "--warnings", "off", *options),
    ]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=600, check=False, env=environment()
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def with_null(node: Any) -> Any:
    """The same schema with null allowed for every optional property: what is accepted, though not advertised."""
    if isinstance(node, list):
        return [with_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    changed = {key: with_null(value) for key, value in node.items()}
    if node.get("type") == "object" and "properties" in node:
        for name, schema in changed["properties"].items():
            if name not in node.get("required", ()) and isinstance(schema.get("type"), str):
                schema["type"] = [schema["type"], "null"]
                if "enum" in schema:
                    schema["enum"] = [*schema["enum"], None]
    return changed


def test_whatever_is_sent_the_server_keeps_to_its_description(open_server: Running, tmp_path: Path) -> None:
    """T-6: no 500, no undocumented status, header or body; whatever fits the schema is accepted.

    Tools of collections take the models of the addresses: the test below has both.
    """
    twins = ("--exclude-path-regex", "^/tools/collection_")
    schema = f"{open_server.url}/openapi.json"
    fuzz(schema, open_server, *twins, checks=CHECKS, phases="examples,fuzzing", directory=tmp_path)
    assert open_server.service.searches


def test_what_does_not_fit_the_schema_is_rejected(open_server: Running, tmp_path: Path) -> None:
    """T-8: null for an optional field is the one thing accepted beyond what is advertised. Every value on a boundary
    is among what is sent here, and what the server answers to it is checked against the description too."""
    with open_server.client() as client:
        described = client.get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    for name in (name for name in schemas if name.endswith(("Request", "Tool"))):
        schemas[name] = with_null(schemas[name])
    del described["paths"]["/collections/{name}/documents/{id}"]["delete"]  # with the id `all` it is another operation
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(described))
    checks = f"negative_data_rejection,{CHECKS}"
    fuzz(str(path), open_server, checks=checks, phases="examples,coverage", directory=tmp_path)
    assert len(open_server.service.searches) > 20


def test_the_description_covers_every_route(client: httpx2.Client) -> None:
    """Every route, tool and error is in it."""
    described = client.get("/openapi.json").json()
    assert described["openapi"] == "3.1.0"
    assert sorted(described["paths"]) == [
        "/",
        "/bulk",
        "/bulk/versions",
        "/collections",
        "/collections/{name}",
        "/collections/{name}/documents",
        "/collections/{name}/documents/all",
        "/collections/{name}/documents/{id}",
        "/collections/{name}/documents/{id}/metadata",
        "/collections/{name}/metadata",
        "/collections/{name}/metadata-values",
        "/collections/{name}/query",
        "/docs",
        "/events",
        "/health",
        "/live",
        "/mcp",
        "/metrics",
        "/openapi.json",
        "/page/{name}",
        "/providers",
        "/providers/{name}",
        "/providers/{name}/test",
        "/ready",
        "/tools",
        "/tools/collection_add",
        "/tools/collection_create",
        "/tools/collection_delete",
        "/tools/collection_delete_documents",
        "/tools/collection_documents",
        "/tools/collection_get",
        "/tools/collection_list",
        "/tools/collection_query",
        "/tools/collection_set_metadata",
        "/tools/collection_update_document",
        "/tools/collection_values",
        "/tools/rag_context_clear_queries",
        "/tools/rag_context_converse",
        "/tools/rag_context_correct",
        "/tools/rag_context_decide",
        "/tools/rag_context_delete",
        "/tools/rag_context_forget",
        "/tools/rag_context_get",
        "/tools/rag_context_health",
        "/tools/rag_context_history",
        "/tools/rag_context_index",
        "/tools/rag_context_injections",
        "/tools/rag_context_list",
        "/tools/rag_context_log",
        "/tools/rag_context_reindex",
        "/tools/rag_context_review",
        "/tools/rag_context_search",
        "/tools/rag_context_similar",
        "/tools/rag_context_stats",
        "/tools/rag_context_undo",
        "/v1/embeddings",
        "/v1/models",
        "/v1/models/{name}",
    ]
    search = described["paths"]["/tools/rag_context_search"]["post"]
    assert set(search["responses"]) == {"200", "400", "401", "403", "404", "408", "413", "415", "429", "500", "503"}
    assert search["requestBody"]["content"]["application/json"]["example"]["query"] == "mongodb retry logic"


def test_every_reference_leads_somewhere(client: httpx2.Client) -> None:
    described = client.get("/openapi.json").json()

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if "$ref" in node else []
            return own + [found for value in node.values() for found in references(value)]
        return [found for item in node for found in references(item)] if isinstance(node, list) else []

    for reference in references(described):
        target = described
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


def test_schemas_are_named_after_requests_not_after_tools(client: httpx2.Client) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]

    assert not [name for name in schemas if name.endswith("Tool")]


def test_keys_are_described_where_they_are_needed() -> None:
    options = ServerOptions(api_keys=(HashedKey.parse("k", hash_key("secret")),))
    described = build_openapi(create_app(as_service(StubService()), options).tools, options, "1")
    assert described["security"] == [{"bearer": []}, {"key": []}]
    assert {} in described["paths"]["/live"]["get"]["security"]
    assert "security" not in described["paths"]["/metrics"]["get"]
    without_keys = build_openapi(create_app(as_service(StubService()), ServerOptions()).tools, ServerOptions(), "1")
    assert without_keys.get("security") is None


@pytest.mark.parametrize("name", ["inputSchema", "outputSchema"])
def test_published_tool_schemas_are_plain(client: httpx2.Client, name: str) -> None:
    """T-8, P-2: no null, no references, items on every array."""

    def look(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                look(item)
        elif isinstance(node, dict):
            assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf"} & node.keys()
            assert node.get("type") != "null"
            assert node.get("type") != "array" or "items" in node
            for value in node.values():
                look(value)

    for tool in client.get("/tools").json()["tools"]:
        assert tool[name]["type"] == "object"
        look(tool[name])

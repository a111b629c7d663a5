"""The C# client speaks as the server does: every field that it sends or reads is published, with that type.

`make csharp` compiles it and runs it against a real server, where a C# compiler is installed.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from rag_context.api.parsing import ErrorResponse
from rag_context.api.wire import json_schema
from rag_context.client.background import BackgroundIndexer
from tests.end_to_end.process import Served

FOLDER = Path(__file__).resolve().parents[2] / "clients" / "csharp"
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.cs")))
CLASS = re.compile(r"class (\w+)(?: : [\w, ]+)?\s*\{(.*?)\n    \}", re.DOTALL)
MEMBER = re.compile(r'DataMember\(Name = "(\w+)"[^)]*\)\]\s+(?:public|private) ([\w<>, ?]+?) \w+ [{=]')
SCALARS = {"string": "string", "int": "integer", "double": "number", "double?": "number", "bool": "boolean"}


def members() -> dict[str, dict[str, str]]:
    """The C# type of every field on the wire, by class."""
    found = {name: dict(MEMBER.findall(body)) for name, body in CLASS.findall(SOURCE)}
    return {name: fields for name, fields in found.items() if fields}


def mismatches(fields: dict[str, str], schema: dict[str, Any], where: str) -> list[str]:
    """What the schema does not know, or knows as something else."""
    found = []
    for name, kind in fields.items():
        published = schema["properties"].get(name)
        if published is None:
            found.append(f"{where}.{name} is not published")
        else:
            found.extend(_differences(kind, published, f"{where}.{name}"))
    return found


def _differences(kind: str, published: dict[str, Any], where: str) -> list[str]:
    item = re.fullmatch(r"List<(\w+)>", kind)
    entry = re.fullmatch(r"Dictionary<string, (\w+)>", kind)
    if item:
        return (
            [] if published.get("type") == "array" and not _differences(item[1], published["items"], where) else [where]
        )
    if entry:
        return [] if published["additionalProperties"]["type"] == SCALARS[entry[1]] else [where]
    if kind in SCALARS:
        return [] if published.get("type", "string") == SCALARS[kind] else [f"{where} is no {kind}"]
    return mismatches(members()[kind], published, where)


@pytest.mark.parametrize(
    ("name", "tool", "side"),
    [
        ("SearchRequest", "rag_context_search", "inputSchema"),
        ("RagSearchResult", "rag_context_search", "outputSchema"),
        ("IndexRequest", "rag_context_index", "inputSchema"),
        ("RagIndexResult", "rag_context_index", "outputSchema"),
        ("RagHealthStatus", "rag_context_health", "outputSchema"),
        ("StatsRequest", "rag_context_stats", "inputSchema"),
        ("RagStats", "rag_context_stats", "outputSchema"),
    ],
)
def test_every_field_is_published_with_its_type(server: Served, name: str, tool: str, side: str) -> None:
    (schema,) = [listed[side] for listed in server.get("/tools").json()["tools"] if listed["name"] == tool]
    assert mismatches(members()[name], schema, name) == []
    if side == "inputSchema":
        assert set(schema.get("required", ())) <= members()[name].keys()


def test_the_shape_of_an_error_is_recognised() -> None:
    assert mismatches(members()["ErrorResponse"], json_schema(ErrorResponse, "serialization"), "ErrorResponse") == []


def test_a_field_that_is_not_published_would_be_noticed() -> None:
    schema = {"properties": {"known": {"type": "string"}, "tags": {"type": "array", "items": {"type": "integer"}}}}
    wrong = {"known": "int", "unknown": "string", "tags": "List<string>"}
    assert mismatches(wrong, schema, "C") == ["C.known is no int", "C.unknown is not published", "C.tags"]


def test_all_of_the_interface_is_there() -> None:
    interface = re.search(r"interface IRagContext\s*\{(.*?)\n    \}", SOURCE, re.DOTALL)
    assert interface is not None
    methods = set(re.findall(r"(\w+Async)\(", interface[1]))
    assert methods == {"SearchAsync", "IndexAsync", "GetHealthAsync", "GetStatsAsync", "SearchFastAsync"}
    assert all(re.search(rf"public (async )?Task<\w+> {method}\(", SOURCE) for method in methods)
    assert len(members()) >= 11


def test_every_property_of_a_record_can_be_set() -> None:
    """A program that uses the client has a fake of the interface in its tests."""
    records = [body for name, body in CLASS.findall(SOURCE) if name.startswith("Rag") and "[DataMember" in body]
    properties = [line for body in records for line in body.splitlines() if re.search(r"public .* \{ get", line)]
    assert len(properties) > 30
    assert [line for line in properties if "set" not in line] == []


def test_the_queue_takes_what_the_python_queue_takes() -> None:
    taken = set(re.findall(r"public void (Queue\w*)\(", SOURCE))
    python = {name.title().replace("_", "") for name in dir(BackgroundIndexer) if name.startswith("queue")}
    assert taken == python

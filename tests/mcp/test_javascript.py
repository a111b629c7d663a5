"""The official conformance suite, and the official TypeScript client, against real processes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.process import COMMAND, Served, served

from . import javascript

SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that holds a document."""
    javascript.install()
    with served(tmp_path_factory.mktemp("data")) as server:
        server.wait_ready()
        server.index("Grey wolves hunt deer.")
        yield server


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_the_server_conforms_to_the_protocol(server: Served, revision: str, tmp_path: Path) -> None:
    """P-2: all that the revision requires, but what `expected-*.yml` names with a reason."""
    url = server.url.replace("127.0.0.1", "localhost") + "/mcp"
    expected = f"expected-{revision}.yml"
    done = javascript.node(
        SUITE, "server", "--url", url, "--requirements", revision, "--expected-failures", expected, "-o", tmp_path
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    for scenario in ("tools-list", "resources-list", "prompts-list", "dns-rebinding-protection"):
        assert f"✓ {scenario}: " in done.stdout


@pytest.mark.parametrize("kind", ["http", "stdio"])
def test_the_typescript_client_does_its_work(server: Served, kind: str, tmp_path: Path) -> None:
    """P-1: strict about schemas, on both transports."""
    over_stdio = (COMMAND, "mcp", "--structured", "--data-dir", str(tmp_path))
    where = (f"{server.url}/mcp?structured=true",) if kind == "http" else over_stdio
    done = javascript.node("client.mjs", kind, *where)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert "rag_context_search" in seen["tools"]
    assert seen["server"]["name"] == "rag-context"
    assert seen["found"] == seen["structured"] == seen["document"] == "Red foxes hunt mice."
    assert seen["wrong"] is True
    assert seen["prompt"] == 1
    assert seen["unknown"] == -32602

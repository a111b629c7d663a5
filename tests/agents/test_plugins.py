"""The plug-ins of clients, the registry's entry and llms.txt: generated from the table of clients, as it is now."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rag_context._version import __version__
from rag_context.agents.clients import CLIENTS
from rag_context.agents.pieces import HOOK_PROGRAM, runs_hook, runs_server

HERE = Path(__file__).resolve().parents[2]
MANIFESTS = {
    "claude-code": ".claude-plugin/plugin.json",
    "codex": ".codex-plugin/plugin.json",
    "gemini": "gemini-extension.json",
    "cursor": ".cursor-plugin/plugin.json",
}
CURSOR_FIELDS = (
    "name displayName description version author publisher homepage repository license logo keywords category tags"
    " commands agents skills rules hooks mcpServers"
)
"""What Cursor's schema of a plug-in allows."""


def load(path: str) -> Any:
    return json.loads((HERE / path).read_text(encoding="utf-8"))


def test_every_file_is_as_it_is_generated() -> None:
    spec = importlib.util.spec_from_file_location("generate_plugins", HERE / "scripts" / "generate_plugins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files: dict[str, str] = module.files()
    stale = [path for path, text in files.items() if (HERE / path).read_text(encoding="utf-8") != text]
    assert not stale, "run `make docs`"
    present = {path.relative_to(HERE).as_posix() for path in (HERE / "plugins").rglob("*") if path.is_file()}
    assert present <= set(files)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_plug_in_has_the_server_the_hooks_and_the_instructions(name: str) -> None:
    folder = HERE / "plugins" / name
    manifest = load(f"plugins/{name}/{MANIFESTS[name]}")
    assert manifest["name"] == "rag-context"
    assert manifest["version"] == __version__
    table = manifest.get("mcpServers")
    if not isinstance(table, dict):
        table = load(f"plugins/{name}/{'mcp' if name == 'cursor' else '.mcp'}.json")["mcpServers"]
    assert runs_server(table["rag-context"])
    hooks = load(f"plugins/{name}/hooks/hooks.json")["hooks"]
    client = CLIENTS[name]
    assert client.hooks is not None
    assert list(hooks) == [event.native for event in client.hooks.events.values()]
    for entries in hooks.values():
        hook = entries[0].get("hooks", entries)[0]
        assert runs_hook(hook)
        assert hook["command"].split()[0] == HOOK_PROGRAM, "plug-ins know no path of a machine"
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.md*")]
    assert any("rag_context_search" in text for text in texts)


def test_cursor_gets_no_field_that_its_schema_rejects() -> None:
    assert set(load("plugins/cursor/.cursor-plugin/plugin.json")) <= set(CURSOR_FIELDS.split())


def test_marketplaces_lead_to_the_plug_ins() -> None:
    claude = load(".claude-plugin/marketplace.json")["plugins"][0]
    assert (HERE / claude["source"] / MANIFESTS["claude-code"]).is_file()
    codex = load(".agents/plugins/marketplace.json")["plugins"][0]
    assert (HERE / codex["source"]["path"] / MANIFESTS["codex"]).is_file()


def test_the_registry_takes_the_entry() -> None:
    entry = load("server.json")
    assert len(entry["description"]) <= 100
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert f"mcp-name: {entry['name']}" in (HERE / "README.md").read_text(encoding="utf-8")
    assert {entry["version"], entry["packages"][0]["version"]} == {__version__}


def test_the_index_for_models_leads_to_every_page() -> None:
    text = (HERE / "llms.txt").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)]*)\)", text)
    pages = {path.relative_to(HERE).as_posix() for path in (HERE / "docs").rglob("*.md")}
    assert set(linked) == pages - {"docs/index.md"}

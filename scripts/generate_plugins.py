"""The plug-ins of clients, the entry of the MCP registry and the index for models, made of the table of clients.

`generate_docs.py` writes them with the pages, and compares them with `--check`.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rag_context._version import __version__
from rag_context.agents.clients import CLIENTS, NAME, Client
from rag_context.agents.entries import DESCRIPTION, RULES, Launch, hook_entries, server_entry, skill_head

TITLE = "rag-context"
AUTHOR = {"name": "The rag-context authors"}
LICENSE = "Apache-2.0"
SUMMARY = "The memory that agents share: past conversations, decisions and fixes, when they matter."
KEYWORDS = ["memory", "context", "search", "mcp"]
REGISTRY_NAME = "io.github.rag-context/rag-context"
"""The name in the MCP registry; README holds it too, by which the registry knows the owner of the package."""

MAX_DESCRIPTION = 100
REGISTRY_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"


def files() -> dict[str, str]:
    """Every file by its path in the repository."""
    plain = {**snippets(), "llms.txt": index_for_models()}
    data = {"server.json": registry_entry(), **claude_code(), **codex(), **gemini(), **cursor()}
    return plain | {path: text if isinstance(text, str) else _json(text) for path, text in data.items()}


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def manifest(**more: Any) -> dict[str, Any]:
    """What every client's description of a plug-in holds."""
    return {
        "name": NAME,
        "version": __version__,
        "description": SUMMARY,
        "author": AUTHOR,
        "license": LICENSE,
        "keywords": KEYWORDS,
        **more,
    }


def hooks(client: Client) -> dict[str, Any]:
    """The hooks of a client, in its form."""
    assert client.hooks is not None
    entries = {event: [entry] for event, entry in hook_entries(client, client.hooks, Launch(), "linux").items()}
    return {"version": 1, "hooks": entries} if client.hooks.has_version else {"hooks": entries}


def servers(client: Client) -> dict[str, Any]:
    """The table of servers of a client."""
    return {NAME: server_entry(client, Launch())}


def skill() -> str:
    """The instructions as a skill."""
    return f"{skill_head()}\n{RULES}"


def claude_code() -> Mapping[str, Any]:
    """The plug-in of Claude Code, and the marketplace by which it is installed from this repository."""
    client, folder = CLIENTS["claude-code"], "plugins/claude-code"
    source = {"name": NAME, "source": f"./{folder}", "description": SUMMARY}
    return {
        ".claude-plugin/marketplace.json": {
            "name": NAME,
            "owner": AUTHOR,
            "metadata": {"description": SUMMARY},
            "plugins": [source],
        },
        f"{folder}/.claude-plugin/plugin.json": manifest(mcpServers=servers(client)),
        f"{folder}/hooks/hooks.json": {"description": SUMMARY, **hooks(client)},
        f"{folder}/skills/{NAME}/SKILL.md": skill(),
    }


def codex() -> Mapping[str, Any]:
    """The plug-in of Codex, and the marketplace by which it is installed from this repository."""
    client, folder = CLIENTS["codex"], "plugins/codex"
    return {
        ".agents/plugins/marketplace.json": {
            "name": NAME,
            "interface": {"displayName": TITLE},
            "plugins": [
                {
                    "name": NAME,
                    "source": {"source": "local", "path": f"./{folder}"},
                    "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
                    "category": "Productivity",
                }
            ],
        },
        f"{folder}/.codex-plugin/plugin.json": manifest(
            skills="./skills/",
            mcpServers="./.mcp.json",
            hooks="./hooks/hooks.json",
            interface={
                "displayName": TITLE,
                "shortDescription": SUMMARY,
                "longDescription": DESCRIPTION,
                "developerName": AUTHOR["name"],
                "category": "Productivity",
                "capabilities": ["Read", "Write"],
            },
        ),
        f"{folder}/.mcp.json": {"mcpServers": servers(client)},
        f"{folder}/hooks/hooks.json": hooks(client),
        f"{folder}/skills/{NAME}/SKILL.md": skill(),
    }


def gemini() -> Mapping[str, Any]:
    """The extension of Gemini CLI."""
    client, folder = CLIENTS["gemini"], "plugins/gemini"
    return {
        f"{folder}/gemini-extension.json": {
            "name": NAME,
            "version": __version__,
            "description": SUMMARY,
            "mcpServers": servers(client),
            "contextFileName": "GEMINI.md",
        },
        f"{folder}/hooks/hooks.json": hooks(client),
        f"{folder}/GEMINI.md": RULES,
    }


def cursor() -> Mapping[str, Any]:
    """The plug-in of Cursor."""
    client, folder = CLIENTS["cursor"], "plugins/cursor"
    assert client.rules is not None
    return {
        f"{folder}/.cursor-plugin/plugin.json": manifest(displayName=TITLE),
        f"{folder}/mcp.json": {"mcpServers": servers(client)},
        f"{folder}/hooks/hooks.json": hooks(client),
        f"{folder}/rules/{NAME}.mdc": f"{client.rules.head}\n{RULES}",
    }


def registry_entry() -> dict[str, Any]:
    """The entry of the MCP registry. Raises: ValueError (the description is too long for it)."""
    if len(SUMMARY) > MAX_DESCRIPTION:
        raise ValueError(f"the registry takes {MAX_DESCRIPTION} characters of description")
    package = {
        "registryType": "pypi",
        "identifier": NAME,
        "version": __version__,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "mcp"}],
    }
    return {
        "$schema": REGISTRY_SCHEMA,
        "name": REGISTRY_NAME,
        "title": TITLE,
        "description": SUMMARY,
        "version": __version__,
        "packages": [package],
    }


def snippets() -> Mapping[str, str]:
    """The instructions for a file that people write themselves, such as AGENTS.md or CLAUDE.md."""
    return {"plugins/AGENTS.md": f"## Memory\n\n{RULES}"}


def index_for_models() -> str:
    """The pages of the documentation with one line each, in the form of llms.txt."""
    text = (Path(__file__).resolve().parent.parent / "docs" / "index.md").read_text(encoding="utf-8")
    return "\n".join([f"# {TITLE}", "", f"> {SUMMARY}", *_listed(text)]) + "\n"


def _listed(text: str) -> Iterator[str]:
    for line in text.splitlines()[4:]:
        yield line.replace("](", "](docs/") if line.startswith(("- [", "  [")) else line

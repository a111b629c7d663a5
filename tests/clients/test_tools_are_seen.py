"""The tools stand in the first request that a client sends to its model, also where the machine is busy (P-3).

A client waits a second or so for the list of tools of a server that it has just started, and shows its model none of
those that come later. A model that was shown none cannot call any. Claude Code's second may be over before it has read
what came in time, where the machine is busy; so `install` writes `alwaysLoad`, for which it waits.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rag_context
from rag_context.agents.clients import CLIENTS
from rag_context.api.toolsets import MEMORY_TOOLS
from rag_context.server.mcp.handshake import LISTS
from tests.clients.agents import CLAUDE_CODE, AgentClient
from tests.clients.machine import Machine
from tests.clients.model import Sent
from tests.end_to_end.process import COMMAND

pytestmark = pytest.mark.only("claude-code", "codex")

BUSY = 8
"""Processes beside the client, on a machine of two cores: a build, a test run."""

RUNS = int(os.environ.get("RAG_TEST_CLIENT_RUNS", "2"))
"""How often a client is started; the figures of docs/design/benchmarks.md are of 20."""

LISTED = json.loads(Path(LISTS).read_bytes())["tools"]
OURS = {each["tool"]["name"] for each in LISTED if each["toolset"] in set(MEMORY_TOOLS)}
TOML = ("[[", "name", "hash", "access")


@contextmanager
def busy(number: int) -> Iterator[None]:
    """So many processes that compute, for the time of the block."""
    loop = "import time\nend = time.monotonic() + 3600\nwhile time.monotonic() < end: pass"
    burning = [subprocess.Popen([sys.executable, "-S", "-c", loop]) for _ in range(number)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def connect(machine: Machine, client: AgentClient, entry: dict[str, object]) -> list[str]:
    """Write a server into a client's configuration; returns the options that the client needs to read it."""
    if client is CLAUDE_CODE:
        wire = CLIENTS[client.name].mcp
        assert wire is not None
        entry = {**(wire.of_url if "url" in entry else wire.of_command), **entry}  # as `install` writes it
        file = machine.home / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {"rag-context": entry}}))
        return ["--mcp-config", str(file)]
    with (machine.home / ".codex" / "config.toml").open("a") as config:
        config.write("\n[mcp_servers.rag-context]\n")
        for name, value in entry.items():
            config.write(f"{name} = {json.dumps(value)}\n" if not isinstance(value, dict) else "")
        for name, value in entry.items():
            if isinstance(value, dict):
                config.write(f"[mcp_servers.rag-context.{name}]\n")
                config.writelines(f"{key} = {json.dumps(each)}\n" for key, each in value.items())
    return []


def seen(machine: Machine, client: AgentClient, options: list[str], folder: Path, **variables: str) -> set[str]:
    """Which of our tools the client shows the model in its first request."""
    turn = machine.turn(client, "say forty-two", folder, *options, variables=variables)
    assert turn.status == 0, turn.err
    return ours(turn.first)


def ours(sent: Sent) -> set[str]:
    """Which of our tools a request shows the model."""
    return {each for each in OURS if any(name.endswith(each) for name in sent.tools)}


def test_the_tools_are_seen_on_a_busy_machine(machine: Machine, client: AgentClient) -> None:
    options = connect(machine, client, {"command": COMMAND, "args": ["mcp"]})
    folder = machine.project("harbour")
    with busy(BUSY):
        assert [seen(machine, client, options, folder) for _ in range(RUNS)] == [OURS] * RUNS


def test_they_are_seen_at_the_first_start_after_an_upgrade(
    machine: Machine, client: AgentClient, tmp_path: Path
) -> None:
    """Nothing of the new version is compiled yet."""
    source = Path(rag_context.__file__).parent
    shutil.copytree(source, tmp_path / "new" / "rag_context", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(tmp_path / "new"), "PYTHONDONTWRITEBYTECODE": "1"}
    options = connect(machine, client, {"command": COMMAND, "args": ["mcp"], "env": environment})
    with busy(BUSY):
        folder = machine.project("harbour")
        assert [seen(machine, client, options, folder) for _ in range(RUNS)] == [OURS] * RUNS


@pytest.mark.only("claude-code")
@pytest.mark.parametrize("is_installed", [True, False])
def test_they_are_not_kept_back_for_a_search(machine: Machine, client: AgentClient, *, is_installed: bool) -> None:
    """Against its own models Claude Code shows other tools only after the model has used a search."""
    options = connect(machine, client, {"command": COMMAND, "args": ["mcp"], "alwaysLoad": is_installed})
    prompt = f"CALL Bash {json.dumps({'command': 'sleep 4', 'description': 'wait'})} NOW"
    variables = {"ENABLE_TOOL_SEARCH": "true", "IS_SANDBOX": "1"}
    options = [*options, "--dangerously-skip-permissions"]
    turn = machine.turn(client, prompt, machine.project("harbour"), *options, variables=variables)
    shown = [ours(each) for each in turn.asked]
    # An entry that was made by hand is not waited for: its tools come as soon as it is connected.
    assert shown[0] == OURS or not is_installed
    assert shown[-1] == OURS


def test_they_are_seen_over_http_with_a_key(machine: Machine, client: AgentClient) -> None:
    made = machine.rag_context("key", "agents")
    config = machine.home / "keys.toml"
    config.write_text("".join(line for line in made.stderr.splitlines(keepends=True) if line.startswith(TOML)))
    key = made.stdout.strip()
    with machine.serving("--config", str(config)) as url:
        address: dict[str, object] = {"url": f"{url}/mcp"}
        entry = {**address, "headers": {"Authorization": "Bearer ${RAG_CONTEXT_API_KEY}"}}
        if client is not CLAUDE_CODE:
            entry = {**address, "bearer_token_env_var": "RAG_CONTEXT_API_KEY"}
        options, folder = connect(machine, client, entry), machine.project("harbour")
        machine.wait_prepared()
        with busy(BUSY):
            found = [seen(machine, client, options, folder, RAG_CONTEXT_API_KEY=key) for _ in range(RUNS)]
    assert found == [OURS - {"rag_context_index_files"}] * RUNS  # the files of the server's are not the client's

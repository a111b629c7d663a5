"""`install` and `uninstall` on the command line, in a home of their own."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from rag_context.agents.clients import CLIENTS
from tests.end_to_end.loaded import Program
from tests.end_to_end.process import COMMAND, environment

Extra: TypeAlias = Mapping[str, str] | None

STORED = """\
{
  // mine
  "theme": "dark",
  "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}
}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user's folder with two clients in it, whose name has a blank and a quote."""
    home = tmp_path / "Jo Ann's home"
    (home / ".claude").mkdir(parents=True)
    (home / ".claude" / "settings.json").write_text(STORED)
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_bytes(b'# mine\r\nmodel = "m"\r\n')
    subprocess.run(["git", "init", "-q", home / "code" / "harbour"], check=True)
    (home / "data").mkdir()
    return home


def started(
    home: Path, *arguments: str, cwd: Path | None = None, extra: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    folders = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "XDG_CONFIG_HOME": str(home / "config")}
    return Program(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd or home,
        env=environment(**folders, **(extra or {})),
    )


def run(
    home: Path, *arguments: str, status: int = 0, cwd: Path | None = None, extra: Mapping[str, str] | None = None
) -> tuple[str, str]:
    process = started(home, *arguments, cwd=cwd, extra=extra)
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, out + err
    return out, err


def tree(folder: Path) -> Mapping[str, bytes | None]:
    return {str(path): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def printed(home: Path, *arguments: str) -> Any:
    out, _ = run(home, *arguments, "--json")
    return json.loads(out)


def commands(settings: Any) -> Iterator[str]:
    """The programs that Claude Code's settings run."""
    for groups in settings["hooks"].values():
        yield from (hook["command"] for group in groups for hook in group["hooks"])


def test_all_clients_are_connected_and_the_files_restored(home: Path) -> None:
    before = tree(home)
    assert {each["client"]: each["scopes"]["user"] for each in printed(home, "install")["clients"]} == {
        "claude-code": "not installed",
        "codex": "not installed",
    }
    out, _ = run(home, "install", "--all", "--dry-run")
    assert "+++ " in out
    assert tree(home) == before

    out, _ = run(home, "install", "--all")
    assert "Type `/hooks` in Codex" in out
    assert {each["scopes"]["user"] for each in printed(home, "install")["clients"]} == {"installed"}
    entry = json.loads((home / ".claude.json").read_text())["mcpServers"]["rag-context"]
    assert entry == {"type": "stdio", "alwaysLoad": True, "command": COMMAND, "args": ["mcp"]}
    assert "say done" in (home / ".claude" / "settings.json").read_text()
    changed = tree(home)
    run(home, "install", "--all")
    assert tree(home) == changed

    run(home, "uninstall", "--all")
    assert tree(home) == before


def test_two_installations_at_once_both_count(home: Path) -> None:
    before = tree(home)
    processes = [started(home, "install", name) for name in ("claude-code", "codex", "claude-code", "codex")]
    ends = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert [status for _, status in ends] == [0] * 4, ends
    assert (home / ".codex" / "config.toml").read_text().count("[mcp_servers.rag-context]") == 1
    run(home, "uninstall", "--all")
    assert tree(home) == before


def test_a_project_gets_programs_by_name(home: Path) -> None:
    project = home / "code" / "harbour"
    below = project / "src"
    below.mkdir()
    before = tree(project)
    out, err = run(home, "install", "claude-code", "--scope", "project", cwd=below)
    assert "approve the server" in out
    assert "PATH" in err
    assert json.loads((project / ".mcp.json").read_text())["mcpServers"]["rag-context"]["command"] == "rag-context"
    run(home, "install", "claude-code", "--scope", "project", "--data-dir", "/x", cwd=below, status=2)
    run(home, "install", "claude-code", "--scope", "project", status=2)
    run(home, "uninstall", "claude-code")
    assert tree(project) == before


def test_what_the_environment_says_goes_with_the_command(home: Path) -> None:
    """A client has neither this folder nor this environment."""
    config = home / "own.toml"
    config.write_text("[search]\ncache_size = 10\n")
    secret = "redis://:hunter2@cache:6379/0"
    extra = {"RAG_CONTEXT_DATA_DIR": str(home / "mine"), "REDIS_URL": secret, "MCP_SERVER_PORT": "4000"}
    out, err = run(home, "mcp", "--print-config", "claude-desktop", "--config", str(config), extra=extra)
    entry = json.loads(out)["mcpServers"]["rag-context"]
    assert entry["args"] == ["mcp", "--config", str(config), "--data-dir", str(home / "mine")]
    assert "REDIS_URL: " in err
    assert "MCP_SERVER_PORT" not in err
    assert "hunter2" not in out + err
    assert "claude_desktop_config.json" in err

    run(home, "install", "claude-code", "codex", extra=extra)
    hooks = json.loads((home / ".claude" / "settings.json").read_text().replace("// mine", ""))["hooks"]
    assert hooks["Stop"][1]["hooks"][0]["args"][-2:] == ["--data-dir", str(home / "mine")]
    line = json.loads((home / ".codex" / "hooks.json").read_text())["hooks"]["Stop"][0]["hooks"][0]["command"]
    told = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == str(home / "mine")


@pytest.mark.parametrize("url", ["http://localhost:3000", "http://localhost:3000/", "http://localhost:3000/mcp"])
def test_an_address_takes_the_place_of_the_command(home: Path, url: str) -> None:
    run(home, "install", "codex", "--url", url, "--tools", "memory,projects")
    entry = tomllib.loads((home / ".codex" / "config.toml").read_text())["mcp_servers"]["rag-context"]
    assert entry == {"url": "http://localhost:3000/mcp?tools=memory,projects"}


def test_a_link_on_the_path_is_run_by_its_name(home: Path) -> None:
    """So an upgrade of what it leads to breaks nothing, and settings of user and project are the same."""
    folder = home / "bin"
    folder.mkdir()
    own = Path(sys.executable).parent
    for name in ("rag-context", "rag-context-hook"):
        if (own / name).is_file():
            (folder / name).symlink_to(own / name)
    path = f"{folder}{os.pathsep}/usr/bin:/bin"
    run(home, "install", "claude-code", "cursor", extra={"PATH": path})
    assert json.loads((home / ".claude.json").read_text())["mcpServers"]["rag-context"]["command"] == "rag-context"
    entry = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["rag-context"]
    assert entry["command"] == str(folder / "rag-context"), "it is not started from a shell"


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("install", "emacs"), 2, "known are claude-code"),
        (("uninstall",), 2, "--all"),
        (("install", "cursor", "--url", "localhost:3000"), 2, "begin with http://"),
        (("install", "claude-desktop", "--url", "http://localhost:3000"), 2, "takes commands only"),
        (("install", "cursor", "--tools", "some"), 2, "memory, operations"),
        (("install", "cursor", "--tools", "all", "--url", "http://localhost:3000/mcp?structured=true"), 2, "exclude"),
        (("mcp", "--url", "http://localhost:3000"), 2, "--url goes with --print-config"),
        (("mcp", "--print-config", "aider"), 2, "no file for MCP servers"),
    ],
)
def test_what_cannot_be_done_is_reported(home: Path, arguments: tuple[str, ...], status: int, says: str) -> None:
    before = tree(home)
    out, err = run(home, *arguments, status=status)
    assert out == ""
    assert says in " ".join(err.split())
    assert tree(home) == before


def test_a_damaged_file_fails_one_client_of_several(home: Path) -> None:
    (home / ".claude" / "settings.json").write_text('{"a": 1,\n "b" }')
    out, err = run(home, "install", "--all", status=78)
    assert "Codex: installed" in out
    assert "settings.json: Expecting ':': line 2 column 6" in err
    assert (home / ".claude" / "settings.json").read_text() == '{"a": 1,\n "b" }'
    assert not (home / ".claude.json").exists()


def test_the_page_for_people_names_every_client() -> None:
    page = (Path(__file__).parents[2] / "docs" / "works-with.md").read_text(encoding="utf-8")
    for client in CLIENTS.values():
        assert f"## {client.title}\n" in page
        assert f"rag-context uninstall {client.name}`" in page

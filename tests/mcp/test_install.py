"""This server in the configuration of an MCP client: printed, merged, kept as it was otherwise."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rag_context.cli.command_line import app
from rag_context.cli.mcp_clients import CLIENTS, Launch, find_client, planned

LAUNCH = Launch("/opt/rag-context", ("mcp", "--data-dir", "/data dir/ü"))
OTHER = {"command": "other", "args": ["a b"]}


def run(*arguments: str, **extra: str) -> tuple[int, str, str]:
    ended = CliRunner(env={"NO_COLOR": "1", **extra}).invoke(app, ["mcp", *arguments])
    return ended.exit_code, ended.stdout, ended.stderr


def read(name: str, text: str) -> Any:
    """The table of servers in a client's file."""
    known = find_client(name)
    return (tomllib.loads(text) if known.is_toml else json.loads(text))[known.section]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", CLIENTS)
def test_a_snippet_is_a_whole_file_that_runs_this_program(name: str) -> None:
    entry = read(name, find_client(name).snippet(LAUNCH))["rag-context"]
    assert entry["command"] == "/opt/rag-context"
    assert entry["args"] == ["mcp", "--data-dir", "/data dir/ü"]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("claude-code", "url"),
        ("cursor", "url"),
        ("vscode", "url"),
        ("windsurf", "serverUrl"),
        ("codex", "url"),
        ("gemini", "httpUrl"),
    ],
)
@pytest.mark.parametrize("url", ["http://localhost:3000", "http://localhost:3000/", "http://localhost:3000/mcp"])
def test_an_address_takes_the_place_of_the_command(name: str, field: str, url: str) -> None:
    status, printed, _ = run("--print-config", name, "--url", url)
    assert status == 0
    entry = read(name, printed)["rag-context"]
    assert entry[field] == "http://localhost:3000/mcp"
    assert "command" not in entry


def test_what_the_environment_says_goes_with_the_command(tmp_path: Path) -> None:
    """A client has neither this folder nor this environment."""
    config = tmp_path / "own.toml"
    config.write_text("[search]\ncache_size = 10\n")
    status, printed, said = run(
        "--print-config", "claude", "--config", str(config), RAG_CONTEXT_DATA_DIR=str(tmp_path / "data")
    )
    assert status == 0
    arguments = read("claude", printed)["rag-context"]["args"]
    assert arguments == ["mcp", "--data-dir", str(tmp_path / "data"), "--config", str(config)]
    assert "claude_desktop_config.json" in said


def test_a_set_of_tools_goes_with_the_command(tmp_path: Path) -> None:
    _, printed, _ = run("--print-config", "cursor", "--tools", "projects")
    assert read("cursor", printed)["rag-context"]["args"] == ["mcp", "--tools", "projects"]
    path = tmp_path / "mcp.json"
    run("install", "cursor", "--path", str(path), "--tools", "all")
    assert read("cursor", path.read_text())["rag-context"]["args"] == ["mcp", "--tools", "all"]


def test_what_the_client_rejects_of_this_environment_is_reported() -> None:
    """Else the agent would work on another store than its person."""
    secret = "redis://:hunter2@cache:6379/0"
    status, printed, said = run(
        "--print-config", "claude", QDRANT_URL="http://q:6333", REDIS_URL=secret, MCP_SERVER_PORT="4000"
    )
    assert status == 0
    assert "QDRANT_URL, REDIS_URL: " in said
    assert "MCP_SERVER_PORT" not in said
    assert "hunter2" not in said + printed
    assert run("--print-config", "cursor", "--url", "http://q:3000", QDRANT_URL="http://q:6333")[2].count("QDRANT") == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--print-config", "emacs"), "known are claude, claude-code, cursor"),
        (("--print-config", "claude", "--url", "http://localhost:3000"), "takes commands only"),
        (("--print-config", "cursor", "--url", "localhost:3000"), "begin with http://"),
        (("install", "emacs"), "known are claude"),
        (("--url", "http://localhost:3000", "install", "cursor"), "behind `mcp install`"),
        (("--tools", "projects", "install", "cursor"), "behind `mcp install`"),
        (("--url", "http://localhost:3000"), "--url goes with --print-config"),
        (
            ("--print-config", "cursor", "--tools", "some"),
            "memory, operations, projects, collections, search-fetch, all",
        ),
        (("install", "cursor", "--tools", "all", "--url", "http://localhost:3000/mcp?structured=true"), "exclude"),
    ],
)
def test_what_cannot_be_configured_is_reported(arguments: tuple[str, ...], says: str) -> None:
    status, printed, said = run(*arguments)
    assert (status, printed) == (2, "")
    assert says in said


@pytest.mark.parametrize("name", ["cursor", "vscode", "codex"])
def test_a_file_that_is_not_there_is_made(tmp_path: Path, name: str) -> None:
    path = tmp_path / "deep" / "folder" / find_client(name).path().name
    status, _, _ = run("install", name, "--path", str(path))
    assert status == 0
    assert read(name, path.read_text())["rag-context"]["args"] == ["mcp"]
    assert names(path.parent) == [path.name], "no copy of nothing, nothing left behind"


@pytest.mark.parametrize("name", ["cursor", "codex"])
def test_all_else_stays_and_a_copy_is_kept(tmp_path: Path, name: str) -> None:
    path = tmp_path / find_client(name).path().name
    before = {
        "cursor": json.dumps({"theme": "dark ü", "mcpServers": {"other": OTHER}}, indent=4, ensure_ascii=False),
        "codex": '# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "other"\nargs = ["a b"]\n\n[tui]\nx = 1\n',
    }[name]
    path.write_text(before)
    path.chmod(0o600)
    status, said, _ = run("install", name, "--path", str(path))
    assert status == 0
    after = path.read_text()
    assert read(name, after) == {"other": OTHER, "rag-context": read(name, after)["rag-context"]}
    assert "dark ü" in after or "# mine" in after
    backup = path.with_name(path.name + ".bak")
    assert backup.read_text() == before
    assert str(backup) in said
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["cursor", "codex"])
def test_a_second_time_changes_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / find_client(name).path().name
    run("install", name, "--path", str(path))
    before = path.read_text(), path.stat().st_mtime_ns
    status, said, _ = run("install", name, "--path", str(path))
    assert status == 0
    assert "already there" in said
    assert (path.read_text(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("name", ["cursor", "codex"])
def test_an_entry_of_old_is_brought_up_to_date_where_it_is_one_of_many(tmp_path: Path, name: str) -> None:
    path = tmp_path / find_client(name).path().name
    old = {
        "cursor": json.dumps(
            {
                "mcpServers": {
                    "rag-context": {"url": "old", "headers": {"H": "v"}, "env": {"A": "b ü"}, "disabled": True},
                    "other": OTHER,
                }
            }
        ),
        "codex": (
            '[mcp_servers."rag-context"]\nurl = "old"\nbearer_token_env_var = "K"\ndisabled = true\n'
            '[mcp_servers.rag-context.env]\nA = "b ü"\n'
            '[mcp_servers.other]\ncommand = "other"\nargs = ["a b"]\n'
        ),
    }[name]
    path.write_text(old)
    change = planned(find_client(name), LAUNCH, path)
    assert read(name, change.after) == {
        "other": OTHER,
        "rag-context": {
            "command": LAUNCH.command,
            "args": list(LAUNCH.arguments),
            "env": {"A": "b ü"},
            "disabled": True,
        },
    }, "what was added to it stays"
    by_address = read(name, planned(find_client(name), Launch(url="http://h/mcp"), path).after)["rag-context"]
    assert {"env", "disabled"} & by_address.keys() == {"disabled"}, "what only commands have does not"
    path.write_text(change.after)
    assert not planned(find_client(name), LAUNCH, path).is_needed


def test_a_dry_run_shows_the_file_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}}')
    status, printed, said = run("install", "cursor", "--path", str(path), "--dry-run")
    assert status == 0
    assert "rag-context" in json.loads(printed)["mcpServers"]
    assert "would be written" in said
    assert path.read_text() == '{"mcpServers": {}}'
    assert names(tmp_path) == ["mcp.json"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cursor", "{ // a comment\n}"),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": []}'),
        ("cursor", '{"mcpServers": {"a": '),
        ("codex", "mcp_servers = 7"),
        ("codex", "no toml"),
        ("codex", 'mcp_servers = { other = { command = "x" } }'),
        ("codex", "[mcp_servers.rag-context]\nsince = 2026-01-01\n"),
    ],
)
def test_a_file_that_cannot_be_added_to_is_left_as_it_is(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / find_client(name).path().name
    path.write_text(text)
    status, _, said = run("install", name, "--path", str(path))
    assert status == 78
    assert f"`rag-context mcp --print-config {name}`" in said
    assert path.read_text() == text
    assert names(tmp_path) == [path.name]


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")
    link = tmp_path / "mcp.json"
    link.symlink_to(target)
    assert run("install", "cursor", "--path", str(link))[0] == 0
    assert link.is_symlink()
    assert "rag-context" in target.read_text()


@pytest.mark.parametrize("name", CLIENTS)
def test_the_page_for_people_shows_what_would_be_printed(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "clients" / f"{name}.md").read_text(encoding="utf-8")
    assert find_client(name).snippet(Launch("rag-context", ("mcp",))) in page
    assert f"mcp install {name}" in page

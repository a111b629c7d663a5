"""`doctor` names each real fault of an installation with what to do about it, and changes nothing."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_context.cli.doctor import index_file
from rag_context.embedders.onnx_model import BUNDLED
from rag_context.settings import Settings
from tests.end_to_end.process import COMMAND, Served, environment, run, served
from tests.outcomes.test_disk_and_directory import obey_permissions


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user's folder without anything in it."""
    home = tmp_path / "home"
    home.mkdir()
    return home


def doctor(
    home: Path, *arguments: str, before: Callable[[], None] | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run it in a user's folder; `before` runs in its process first."""
    variables = environment(HOME=str(home), XDG_CONFIG_HOME=str(home / "config"), **extra)
    return run([COMMAND, "doctor", *arguments], cwd=home, env=variables, before=before)


def findings(told: subprocess.CompletedProcess[str], *status: str) -> dict[str, str]:
    """The findings of a status, by area: fact and next step in one line; several of one area in one text."""
    found: dict[str, str] = {}
    report: dict[str, Any] = json.loads(told.stdout)
    for each in report["findings"]:
        if each["status"] in status:
            line = f"{each['message']} -> {each['nextStep']}"
            found[each["area"]] = f"{found[each['area']]}\n{line}" if each["area"] in found else line
    return found


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, with its size and the time of its last change."""
    stats = {str(path): path.stat() for path in folder.rglob("*")}
    return {path: (each.st_size, each.st_mtime_ns) for path, each in stats.items()}


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    place = tmp_path_factory.mktemp("doctor") / "data"
    with served(place) as server:
        server.wait_ready()
        server.index("Quokkas live on Rottnest Island.")
        yield server, place


def test_a_new_installation_has_nothing_wrong_and_stays_as_it_is(home: Path) -> None:
    before = tree(home)
    told = doctor(home, "--data-dir", str(home / "new"), MCP_SERVER_PORT=free_port())

    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.endswith("Nothing is wrong.\n")
    assert f'data_dir = "{home / "new"}" (flag --data-dir)' in told.stdout
    assert "all-MiniLM-L6-v2 embeds texts in 384 dimensions" in told.stdout
    assert "rag-context 0." in told.stdout
    assert tree(home) == before


def test_beside_a_running_server_its_components_are_reported(home: Path, server: tuple[Served, Path]) -> None:
    running, place = server
    told = doctor(home, "--json", "--data-dir", str(place))
    fine = findings(told, "ok")

    assert (told.returncode, findings(told, "wrong", "warning")) == (0, {})
    assert f"runs at {running.url}" in fine["server"]
    assert "1 document in 1 chunk" in fine["server"].replace("documents", "document").replace("chunks", "chunk")
    assert "port" not in fine


def test_the_port_of_another_server_and_what_the_first_left_behind(home: Path, server: tuple[Served, Path]) -> None:
    running, _ = server
    data = home / "data"
    data.mkdir(mode=0o700)
    (data / "rag-context.db.json").write_text('{"documents": 12, "collections": 0}')
    (data / "server.json").write_text('{"pid": 1, "url": "http://127.0.0.1:9", "instance": "x", "secret": "s"}')
    told = doctor(home, "--json", "--data-dir", str(data), MCP_SERVER_PORT=running.url.rpartition(":")[2])

    assert told.returncode == 1
    assert "is in use by a rag-context" in findings(told, "wrong")["port"]
    assert "another data directory -> stop it, use its --data-dir" in findings(told, "wrong")["port"]
    assert "rag-context.db is gone; it had 12 documents -> restore a backup" in findings(told, "wrong")["index"]
    assert "server.json names a server that does not answer" in findings(told, "warning")["server"]


def test_each_of_many_faults_is_named_with_what_to_do(home: Path) -> None:
    """A read-only folder, a damaged index, a port that is taken, a damaged model, a dead backend, a broken client."""
    data, model = home / "data", home / "model"
    shutil.copytree(BUNDLED, model)
    (model / "model.onnx").write_bytes(b"\0" * 1000)
    data.mkdir(mode=0o500)
    (data / "rag-context.db").write_bytes(b"no database" * 1000)
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text('{"mcpServers": {"rag-context": {"command": "/gone/rag-context"}}}')
    (home / ".claude.json").write_text('{"mcpServers": ')
    (data / "rag-context.db").chmod(0o400)
    data.chmod(0o500)
    before = tree(home)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = doctor(
            home,
            "--json",
            "--data-dir",
            str(data),
            before=obey_permissions,
            MCP_SERVER_PORT=port,
            RAG_CONTEXT_EMBEDDER__MODEL_DIR=str(model),
            REDIS_URL=f"redis://:secret@127.0.0.1:{free_port()}/0",
        )
    data.chmod(0o700)
    wrong = findings(told, "wrong")

    assert told.returncode == 1, told.stderr
    assert "cannot be written by this user" in wrong["data directory"]
    assert "chown" in wrong["data directory"]
    assert wrong["index"].startswith(f"{data / 'rag-context.db'} is damaged, or no database -> see `rag-context check`")
    assert f"Port {port} on 127.0.0.1 is in use -> stop the other program" in wrong["port"]
    assert "correct embedder.model_dir" in wrong["model"]
    assert "Redis at redis://:********@127.0.0.1" in wrong["backends"]
    assert "cannot be reached -> start it, or correct stores.redis_url" in wrong["backends"]
    assert "Cursor" in wrong["clients"]
    assert "'/gone/rag-context', which is not there -> `rag-context install cursor`" in wrong["clients"]
    assert "The settings of Claude Code (user) cannot be read" in findings(told, "warning")["clients"]
    assert "clients" not in findings(told, "ok")
    assert "secret" not in told.stdout + told.stderr
    assert set(wrong) == {"data directory", "index", "port", "model", "backends", "clients"}
    assert {path: known for path, known in tree(home).items() if before.get(path) != known} == {}


@pytest.mark.parametrize(("left", "state"), [(None, "gone"), (b"", "empty")])
def test_a_lost_index_is_not_mistaken_for_a_new_one(home: Path, left: bytes | None, state: str) -> None:
    (home / "rag-context.db.json").write_text('{"documents": 12, "collections": 0}')
    if left is not None:
        (home / "rag-context.db").write_bytes(left)
    found = list(index_file(Settings(data_dir=home)))

    assert [(each.status, each.message) for each in found] == [
        ("wrong", f"{home / 'rag-context.db'} is {state}; it had 12 documents")
    ]
    assert "check --start-empty" in str(found[0].next_step)


def test_an_entry_of_claude_code_that_does_not_wait_for_the_tools_is_named(home: Path) -> None:
    entry = {"type": "stdio", "command": COMMAND, "args": ["mcp"]}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"rag-context": entry}}))
    says = "Claude Code (user) may begin without the tools: its entry has no alwaysLoad"

    warnings = findings(doctor(home, "--json"), "warning")
    assert f'{says} -> add "alwaysLoad": true to it, as `rag-context install claude-code` does' in warnings["clients"]
    variables = environment(HOME=str(home), XDG_CONFIG_HOME=str(home / "config"))
    installed = run([COMMAND, "install", "claude-code"], cwd=home, env=variables)
    assert installed.returncode == 0, installed.stderr
    assert says not in doctor(home, "--json").stdout


def test_a_configuration_file_that_is_no_toml_is_named_with_what_to_do(home: Path) -> None:
    (home / "rag-context.toml").write_text("port = = 3")
    told = doctor(home)

    assert told.returncode == 1
    assert "rag-context.toml is not valid TOML (Invalid value (at line 1, column 8))\n" in told.stdout
    assert "next: correct it; docs/settings.md lists every setting" in told.stdout
    assert told.stdout.endswith("1 problem found, 1 warning.\n")


def test_settings_that_cannot_be_read_are_all_named(home: Path) -> None:
    told = doctor(home, "--json", LOG_LEVEL="loud", RAG_CONTEXT_STORES__VEKTORS="qdrant")

    assert told.returncode == 1
    assert "log.level (environment LOG_LEVEL) must be one of" in findings(told, "wrong")["settings"]
    assert "did you mean RAG_CONTEXT_STORES__VECTORS?" in findings(told, "wrong")["settings"]
    assert "not examined" in findings(told, "warning")["settings"]


CODEX = """\
#!{python}
# As much of `codex app-server` as lists hooks.
import json, pathlib, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "hooks/list":
        groups = json.loads((pathlib.Path.home() / ".codex" / "hooks.json").read_text())["hooks"]
        hooks = [
            {{"eventName": event, "command": hook["command"], "trustStatus": "un" * (event != "Stop") + "trusted"}}
            for event, entries in groups.items() for entry in entries for hook in entry["hooks"]
        ]
        print(json.dumps({{"id": asked["id"], "result": {{"data": [{{"hooks": hooks}}]}}}}), flush=True)
    elif "id" in asked:
        print(json.dumps({{"id": asked["id"], "result": {{}}}}), flush=True)
"""


def test_what_clients_run_is_run_and_what_remains_to_do_is_named(home: Path) -> None:
    data = home / "data"
    codex = home / "bin" / "codex"
    codex.parent.mkdir()
    codex.write_text(CODEX.format(python=sys.executable))
    codex.chmod(0o755)
    project = home / "harbour"
    subprocess.run(["git", "init", "-q", project], check=True)
    folders = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "RAG_CONTEXT_DATA_DIR": str(data)}
    place = environment(**folders, PATH=f"{codex.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for arguments in (("claude-code", "codex"), ("claude-code", "--scope", "project")):
        run([COMMAND, "install", *arguments], env=place, cwd=project).check_returncode()

    def told() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        ended = run([COMMAND, "doctor", "--json"], env=place, cwd=project)
        return findings(ended, "ok"), findings(ended, "warning"), findings(ended, "wrong")

    ok, warning, wrong = told()
    assert "Claude Code (user) runs" in ok["clients"]
    assert "tools after" in ok["clients"]
    assert "Claude Code (user): 5 hooks" in warning["clients"]
    assert "none has run in a session yet -> start a session in Claude Code" in warning["clients"]
    assert "Codex does not run 4 hooks that are not trusted: SessionStart, " in warning["clients"]
    assert "Type `/hooks` in Codex" in warning["clients"]
    assert "has not been allowed to start the server of this project's .mcp.json" in warning["clients"]
    assert "Claude Code (project) runs 'rag-context', which is not there" in wrong["clients"]

    hook = [f"{COMMAND}-hook", "stop", "--client", "claude-code", "--data-dir", str(data)]
    subprocess.run(hook, input=b'{"session_id": "s"}', check=True)
    assert {(data / name).stat().st_mode & 0o777 for name in ("", "hooks")} == {0o700}
    (project / ".claude" / "settings.local.json").write_text('{"enabledMcpjsonServers": ["rag-context"]}')
    settings = home / ".codex" / "hooks.json"
    settings.write_text(settings.read_text().replace("rag-context-hook stop", "gone/rag-context-hook stop"))
    ok, warning, wrong = told()
    assert "Claude Code (user): 5 hooks" in ok["clients"]
    assert "; last run 2" in ok["clients"]
    assert "Codex (user) runs" in wrong["clients"]
    assert "at Stop, which is not there -> `rag-context install codex` writes" in wrong["clients"]
    assert "has not been allowed" not in warning["clients"]

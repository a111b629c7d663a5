"""Installing into the files of clients: everything else in them stays, and uninstalling makes them what they were."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rag_context.agents.clients import CLIENTS, Client, HookShape, Scope
from rag_context.agents.entries import (
    RULES,
    RULES_MAX_CHARS,
    Launch,
    Machine,
    files_of,
    hook_entries,
    hook_words,
    shell_line,
)
from rag_context.agents.installing import Installer, State
from rag_context.agents.json_text import parse
from rag_context.agents.pieces import HOOK_PROGRAM
from rag_context.agents.wires import WireError, hooks_of, try_hook
from rag_context.errors import ConfigurationError, InvalidInputError
from rag_context.server.mcp.handshake import LISTS

LAUNCH = Launch("/opt/Jo Ann's/rag-context", "/opt/Jo Ann's/rag-context-hook", ("--data-dir", "/data dir/ü"))
SETTINGS = """\
{
  // what I like
  "theme": "dark ü", /* not light */
  "hooks": {
    "Stop": [
      {"hooks": [{"type": "command", "command": "say done"}]}, // loud
    ],
    "sessionStart": [{"command": "echo hello"}]
  },
  "mcpServers": {"other": {"command": "other", "args": ["a b"]}},
  "last": [1, 2]   // the end
}
"""
TOML = """\
# mine
model = "m"  # the best

[mcp_servers.other]
command = "other"
args = ["a b"]

[tui]
x = 1
"""
TEXT = "# House rules\n\nBe kind.\n"
FORMS: Mapping[str, bytes] = {
    "as people write it": b"%s",
    "with CRLF": b"crlf",
    "with a BOM": b"\xef\xbb\xbf%s",
    "without a last line end": b"strip",
}
EVERY = [
    pytest.param(client, scope, id=f"{client.name}-{scope}")
    for client in CLIENTS.values()
    for scope in Scope
    if files_of(client, scope, Machine(Path("/h"), {}), Path("/p"), Launch())
]


def bytes_of(path: Path, form: str) -> bytes:
    """What people keep in a file of this kind."""
    text = {".json": SETTINGS, ".toml": TOML}.get(path.suffix, TEXT)
    match FORMS[form]:
        case b"crlf":
            return text.replace("\n", "\r\n").encode()
        case b"strip":
            return text.rstrip("\n").encode()
        case pattern:
            return pattern.replace(b"%s", text.encode())


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    """In a home with a blank and a quote in its name, for a project."""
    home = tmp_path / "Jo Ann's"
    project = home / "code" / "harbour"
    project.mkdir(parents=True)
    return Installer(Machine(home, {}, "linux"), home / ".local" / "share" / "rag-context", project)


def paths(installer: Installer, client: Client, scope: Scope) -> list[Path]:
    return list(files_of(client, scope, installer.machine, installer.project, LAUNCH))


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder of clients with its content."""
    every = [path for path in folder.rglob("*") if ".local" not in path.parts]
    return {str(path): None if path.is_dir() else path.read_bytes() for path in every}


def read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8-sig")
    return tomllib.loads(text) if path.suffix == ".toml" else parse(text).value


def is_shared(path: Path) -> bool:
    """Whether a file may hold what is not ours."""
    return "rag-context" not in path.name and path.name != "SKILL.md"


@pytest.mark.parametrize(("client", "scope"), EVERY)
def test_nothing_is_left_where_nothing_was(installer: Installer, client: Client, scope: Scope) -> None:
    before = tree(installer.machine.home)

    installer.install(client, scope, LAUNCH)
    assert installer.state(client, scope, LAUNCH) is State.ALL
    assert all(path.is_file() for path in paths(installer, client, scope))

    installer.uninstall(client, [scope])
    assert installer.state(client, scope, LAUNCH) is State.NONE
    assert tree(installer.machine.home) == before


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("client", "scope"), EVERY)
def test_a_file_becomes_what_it_was(installer: Installer, client: Client, scope: Scope, form: str) -> None:
    for path in paths(installer, client, scope):
        if is_shared(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes_of(path, form))
    before = tree(installer.machine.home)

    installer.install(client, scope, LAUNCH)
    for path in paths(installer, client, scope):
        text = path.read_bytes()
        assert b"rag-context" in text
        if is_shared(path):
            assert b"\r\n" not in text if form != "with CRLF" else b"\n" not in text.replace(b"\r\n", b"")
            rest = iter(text)
            assert all(byte in rest for byte in bytes_of(path, form)), "something was only added"
        if path.suffix == ".json" and is_shared(path):
            assert read(path)["theme"] == "dark ü"
    installer.uninstall(client, [scope])

    assert tree(installer.machine.home) == before


@pytest.mark.parametrize(("client", "scope"), EVERY)
def test_a_second_time_writes_nothing(installer: Installer, client: Client, scope: Scope) -> None:
    installer.install(client, scope, LAUNCH)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths(installer, client, scope)}

    changes = installer.install(client, scope, LAUNCH)

    assert not any(change.is_needed for change in changes)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before


@pytest.mark.parametrize(("client", "scope"), EVERY)
def test_a_program_that_moved_is_adopted(installer: Installer, client: Client, scope: Scope) -> None:
    """And what was changed in between goes all the same when it is uninstalled."""
    for path in paths(installer, client, scope):
        if is_shared(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes_of(path, "as people write it"))
    before = tree(installer.machine.home)
    old = Launch("C:\\old place\\rag-context.exe", "/old/rag-context-hook")
    installer.install(client, scope, old)

    installer.install(client, scope, LAUNCH)

    assert installer.state(client, scope, LAUNCH) is State.ALL
    for path in paths(installer, client, scope):
        assert b"old place" not in path.read_bytes()
        assert b"/old/" not in path.read_bytes()
    installer.uninstall(client, [scope])
    assert tree(installer.machine.home) == before


@pytest.mark.parametrize(("client", "scope"), EVERY)
def test_without_the_manifest_only_ours_goes(installer: Installer, client: Client, scope: Scope) -> None:
    shared = [path for path in paths(installer, client, scope) if is_shared(path)]
    for path in shared:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes_of(path, "as people write it"))
    installer.install(client, scope, LAUNCH)
    (installer.data_dir / "installed.json").unlink()

    installer.uninstall(client, [scope])

    for path in shared:
        assert b"rag-context" not in path.read_bytes()
        if path.suffix == ".json":
            assert {**read(path), "version": 1} == {**parse(SETTINGS).value, "version": 1}
        else:
            assert path.read_bytes().strip() == bytes_of(path, "as people write it").strip()


def test_what_people_change_meanwhile_stays(installer: Installer) -> None:
    client = CLIENTS["claude-code"]
    path = installer.machine.path("{claude}/settings.json")
    path.parent.mkdir()
    path.write_text(SETTINGS)
    installer.install(client, Scope.USER, LAUNCH)
    later = path.read_text().replace('"dark ü"', '"light"').replace("// what I like", "// what I liked\n  // once")
    later = later.replace('"last": [1, 2]', '"more": {"a": 1},\n  "last": [1, 2]')
    path.write_text(later)

    installer.uninstall(client, [Scope.USER])

    expected = SETTINGS.replace('"dark ü"', '"light"').replace("// what I like", "// what I liked\n  // once")
    assert path.read_text() == expected.replace('"last": [1, 2]', '"more": {"a": 1},\n  "last": [1, 2]')


def test_entries_between_ours_and_in_our_groups_stay(installer: Installer) -> None:
    client = CLIENTS["claude-code"]
    path = installer.machine.path("{claude}/settings.json")
    installer.install(client, Scope.USER, LAUNCH)
    settings = json.loads(path.read_text())
    settings["hooks"]["Stop"].insert(0, {"hooks": [{"type": "command", "command": "first"}]})
    settings["hooks"]["PreCompact"][0]["hooks"].append({"type": "command", "command": "beside"})
    settings["hooks"]["Notification"] = [{"hooks": [{"type": "command", "command": "my-rag-context-hooks prompt"}]}]
    path.write_text(json.dumps(settings))

    installer.uninstall(client, [Scope.USER])

    assert json.loads(path.read_text()) == {
        "hooks": {
            "Stop": [{"hooks": [{"type": "command", "command": "first"}]}],
            "PreCompact": [{"hooks": [{"type": "command", "command": "beside"}]}],
            "Notification": [{"hooks": [{"type": "command", "command": "my-rag-context-hooks prompt"}]}],
        }
    }


@pytest.mark.parametrize("name", ["cursor", "codex", "opencode", "copilot"])
def test_what_was_added_to_the_entry_stays(installer: Installer, name: str) -> None:
    client = CLIENTS[name]
    assert client.mcp is not None
    path = installer.machine.path(client.mcp.files[Scope.USER])
    section = client.mcp.section[0]
    path.parent.mkdir(parents=True)
    own = {"url": "http://old/mcp", "env": {"A": "b ü"}, "headers": {"H": "v"}, "disabled": True, "enabled": False}
    if path.suffix == ".toml":
        path.write_text(
            '[mcp_servers.rag-context]\nurl = "http://old/mcp"\ndisabled = true\nenabled = false\n\n'
            '[mcp_servers.rag-context.headers]\nH = "v"\n[mcp_servers.rag-context.env]\nA = "b ü"\n\n'
            '[mcp_servers.other]\ncommand = "x"\n'
        )
    else:
        path.write_text(json.dumps({section: {"rag-context": own, "other": {"command": "x"}}}))

    installer.install(client, Scope.USER, LAUNCH)

    servers = read(path)[section]
    assert servers["other"] == {"command": "x"}
    entry = servers["rag-context"]
    assert entry["env"] == {"A": "b ü"}
    assert entry["disabled"] is True
    assert "url" not in entry
    assert "headers" not in entry
    installer.install(client, Scope.USER, Launch(url="http://h/mcp"))
    entry = read(path)[section]["rag-context"]
    assert entry["url"] == "http://h/mcp"
    assert not entry.keys() & {"command", "args", "env"}


def test_a_server_under_another_name_is_not_doubled(installer: Installer) -> None:
    path = installer.machine.path("~/.cursor/mcp.json")
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"memory": {"command": "/old/rag-context", "args": ["mcp"]}}}')
    installer.install(CLIENTS["cursor"], Scope.USER, LAUNCH)
    assert {name: entry["command"] for name, entry in read(path)["mcpServers"].items()} == {"memory": LAUNCH.server}


@pytest.mark.parametrize(
    ("place", "text", "says"),
    [
        ("{claude}/settings.json", '{\n  "a": 1,\n  "b" 2\n}', "line 3 column 7"),
        ("{claude}/settings.json", "[]", "the whole is not an object"),
        ("{claude}/settings.json", '{"hooks": []}', "hooks is not an object"),
        ("{claude}/settings.json", '{"hooks": {"Stop": {}}}', "hooks.Stop is not an array"),
        ("{claude_state}/.claude.json", '{"mcpServers": []}', "mcpServers is not an object"),
        ("{claude_state}/.claude.json", '{"mcpServers": {"a": ', "line 1 column 22"),
        ("{claude}/skills/rag-context/SKILL.md", "mine", "not written by"),
        ("{codex}/config.toml", "no toml", "line 1"),
        ("{codex}/config.toml", "mcp_servers = 7", "no table 'mcp_servers'"),
        ("{codex}/config.toml", 'mcp_servers = { other = { command = "x" } }', "another way"),
    ],
)
def test_a_file_that_cannot_be_changed_stops_the_installation_before_it_begins(
    installer: Installer, place: str, text: str, says: str
) -> None:
    path = installer.machine.path(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    before = tree(installer.machine.home)
    client = CLIENTS["codex" if "codex" in place else "claude-code"]
    with pytest.raises(ConfigurationError) as raised:
        installer.install(client, Scope.USER, LAUNCH)
    assert says in str(raised.value)
    assert str(path) in str(raised.value)
    assert tree(installer.machine.home) == before


def test_a_file_that_is_not_utf_8_or_read_only_is_left_alone(installer: Installer) -> None:
    path = installer.machine.path("{claude_state}/.claude.json")
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        installer.install(CLIENTS["claude-code"], Scope.USER, LAUNCH)
    path.write_bytes(b"{}")
    path.chmod(0o444)
    before = tree(installer.machine.home)
    with pytest.raises(ConfigurationError, match="read-only"):
        installer.install(CLIENTS["claude-code"], Scope.USER, LAUNCH)
    assert tree(installer.machine.home) == before


def test_a_link_stays_a_link_and_the_mode_stays(installer: Installer, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "claude.json"
    target.parent.mkdir()
    target.write_text(SETTINGS)
    target.chmod(0o640)
    link = installer.machine.path("{claude}/settings.json")
    link.parent.mkdir()
    link.symlink_to(target)
    installer.install(CLIENTS["claude-code"], Scope.USER, LAUNCH)
    assert link.is_symlink()
    assert HOOK_PROGRAM in target.read_text()
    installer.uninstall(CLIENTS["claude-code"], [Scope.USER])
    assert link.is_symlink()
    assert target.read_text() == SETTINGS
    assert target.stat().st_mode & 0o777 == 0o640


def test_what_two_clients_use_stays_until_both_are_gone(installer: Installer) -> None:
    assert installer.project is not None
    rules = installer.project / "AGENTS.md"
    rules.write_text(TEXT)
    installer.install(CLIENTS["opencode"], Scope.PROJECT, LAUNCH)
    installer.install(CLIENTS["amp"], Scope.PROJECT, LAUNCH)
    assert rules.read_text().count("rag-context: begin") == 1
    installer.uninstall(CLIENTS["opencode"], [Scope.PROJECT])
    assert rules.read_text().count("rag-context: begin") == 1
    installer.uninstall(CLIENTS["amp"], [Scope.PROJECT])
    assert rules.read_text() == TEXT


def test_other_projects_are_restored_too(installer: Installer) -> None:
    installer.install(CLIENTS["claude-code"], Scope.PROJECT, Launch())
    elsewhere = Installer(installer.machine, installer.data_dir, None)
    elsewhere.uninstall(CLIENTS["claude-code"], [*Scope])
    assert installer.project is not None
    assert list(installer.project.iterdir()) == []


@pytest.mark.parametrize("client", [client for client in CLIENTS.values() if client.plugin], ids=lambda each: each.name)
def test_a_plug_in_and_entries_in_the_settings_exclude_each_other(installer: Installer, client: Client) -> None:
    mark = client.plugin
    assert mark is not None
    path = installer.machine.path(mark.place)
    if mark.section and path.suffix == ".toml":
        path.parent.mkdir()
        path.write_text('[plugins."rag-context@market"]\nenabled = true\n')
    elif mark.section:
        path.parent.mkdir()
        path.write_text(json.dumps({mark.section[0]: {"rag-context@market": True}}))
    else:
        path.mkdir(parents=True)
    before = tree(installer.machine.home)
    with pytest.raises(InvalidInputError, match="Remove the plug-in first"):
        installer.install(client, Scope.USER, LAUNCH)
    assert tree(installer.machine.home) == before


@pytest.mark.parametrize(("client", "scope"), [each for each in EVERY if each.values[1] is Scope.PROJECT])
def test_the_files_of_a_project_name_no_place_of_this_machine(
    installer: Installer, client: Client, scope: Scope
) -> None:
    installer.install(client, scope, Launch())
    for path in paths(installer, client, scope):
        assert str(installer.machine.home).encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o444 == 0o444


def test_time_outs_are_in_the_unit_of_the_client() -> None:
    for client in CLIENTS.values():
        if client.hooks is None or client.hooks.shape is HookShape.PLUGIN:
            continue
        for entry in hook_entries(client, client.hooks, LAUNCH).values():
            hook = entry["hooks"][0] if "hooks" in entry else entry
            timeout = hook.get("timeout", hook.get("timeoutSec", hook.get("timeout_ms")))
            assert timeout in ((5, 10) if client.name not in ("gemini", "qwen", "kiro") else (5000, 10000)), client.name


def test_commands_survive_every_shell() -> None:
    words = hook_words(CLIENTS["codex"], "prompt", LAUNCH)
    assert shell_line(words, "linux").startswith("'/opt/Jo Ann'\"'\"'s/rag-context-hook' prompt --client codex ")
    windows = ["C:\\Program Files\\Ann's\\rag-context-hook.exe", "prompt"]
    assert shell_line(windows, "win32") == "& 'C:\\Program Files\\Ann''s\\rag-context-hook.exe' 'prompt'"
    assert shell_line(["rag-context-hook", "prompt"], "win32") == shell_line(["rag-context-hook", "prompt"], "linux")


@pytest.mark.parametrize(
    ("system", "environment", "expected"),
    [
        ("linux", {}, "/h/.config/Code/User"),
        ("linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Code/User"),
        ("darwin", {}, "/h/Library/Application Support/Code/User"),
        ("win32", {"APPDATA": "/h/AppData/Roaming"}, "/h/AppData/Roaming/Code/User"),
        ("win32", {}, "/h/AppData/Roaming/Code/User"),
    ],
)
def test_places_follow_the_system_and_its_variables(system: str, environment: dict[str, str], expected: str) -> None:
    assert Machine(Path("/h"), environment, system).path("{app}/Code/User") == Path(expected)


def test_the_variables_of_clients_move_their_files() -> None:
    machine = Machine(Path("/h"), {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "~/x"}, "linux")
    assert machine.path("{claude_state}/.claude.json") == Path("/c/.claude.json")
    assert machine.path("{claude}/settings.json") == Path("/c/settings.json")
    assert machine.path("{codex}/hooks.json") == Path("/h/x/hooks.json")


def test_the_instructions_are_short_and_name_tools_that_agents_have() -> None:
    listed = json.loads(Path(LISTS).read_bytes())["tools"]
    tools = {each["tool"]["name"] for each in listed if each["toolset"] == "memory"}
    named = {word.strip("`.,:") for word in RULES.split() if "rag_context_" in word}
    assert named
    assert named <= tools
    assert len(RULES) <= RULES_MAX_CHARS


def test_an_earlier_form_of_a_hook_is_brought_up_to_date_and_removed(installer: Installer) -> None:
    """Earlier releases wrote Gemini CLI's hooks so that it sent no prompt once the program was gone."""
    client = CLIENTS["gemini"]
    installer.install(client, Scope.USER, LAUNCH)
    settings = installer.machine.home / ".gemini" / "settings.json"
    new = settings.read_text()
    lines = [hook["hooks"][0]["command"] for hook in read_hooks(installer)]
    assert lines
    assert all(line.endswith(" || exit 0") for line in lines)
    settings.write_text(new.replace(" || exit 0", ""))
    installer.install(client, Scope.USER, LAUNCH)
    assert settings.read_text() == new

    settings.write_text(new.replace(" || exit 0", ""))
    installer.uninstall(client, [Scope.USER])
    assert not settings.exists() or "rag-context" not in settings.read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="PowerShell has another line")
def test_a_line_for_a_shell_ends_well_without_the_program_and_doctor_tries_the_program(installer: Installer) -> None:
    client = CLIENTS["gemini"]
    installer.install(client, Scope.USER, LAUNCH)
    (line, *_) = [hook["hooks"][0]["command"] for hook in read_hooks(installer)]
    assert subprocess.run(["sh", "-c", line], capture_output=True, check=False).returncode == 0
    (hook, *_) = hooks_of(client, Scope.USER, installer.machine, installer.project)
    with pytest.raises(WireError, match="127"):
        try_hook(hook, installer.machine.home)


def read_hooks(installer: Installer) -> list[dict[str, Any]]:
    settings = read(installer.machine.home / ".gemini" / "settings.json")
    return [hook for hooks in settings["hooks"].values() for hook in hooks]

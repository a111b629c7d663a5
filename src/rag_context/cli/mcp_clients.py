"""The MCP clients: where each keeps its configuration, how an entry for this server looks there, and `mcp install`."""

import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rag_context.api.toolsets import MEMORY_TOOLS, Toolsets, names_of, toolsets_named
from rag_context.cli.command_line import ExitCode
from rag_context.cli.console import Console
from rag_context.cli.options import ConfigOptions
from rag_context.errors import ConfigurationError, InvalidInputError
from rag_context.settings import Loaded

NAME = "rag-context"

_OURS = frozenset({"type", "command", "args", "url", "httpUrl", "serverUrl"})
_OF_COMMANDS = frozenset({"env", "envFile", "env_vars", "cwd"})
_OF_ADDRESSES = frozenset({"headers", "http_headers", "env_http_headers", "bearer_token_env_var", "auth", "oauth"})
_OF_THIS_PROGRAM = ("server.", "client.", "log.")
"""Settings that have no effect on what a client runs."""

Entry: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Launch:
    """How a client reaches this server: by a command it runs, or at an address."""

    command: str = ""
    arguments: tuple[str, ...] = ()
    url: str | None = None


def address(url: str, toolsets: Toolsets = MEMORY_TOOLS) -> Launch:
    """The address of a running server, and of the tools that it is to offer.

    Raises:
        InvalidInputError: It is none.
    """
    if not url.startswith(("http://", "https://")):
        raise InvalidInputError(f"--url {url!r}: begin with http:// or https://")
    if toolsets != MEMORY_TOOLS and "?" in url:
        raise InvalidInputError("--tools and an address with a query exclude each other: put tools=SETS into the query")
    base, mark, query = url.partition("?")
    base = base if base.rstrip("/").endswith("/mcp") else base.rstrip("/") + "/mcp"
    return Launch(url=base + mark + query if toolsets == MEMORY_TOOLS else f"{base}?tools={names_of(toolsets)}")


def command(toolsets: Toolsets, data_dir: Path | None, config: Path | None) -> Launch:
    """The command that runs this program, with absolute paths: clients start it anywhere, with another PATH."""
    arguments = ["mcp"]
    if toolsets != MEMORY_TOOLS:
        arguments += ["--tools", names_of(toolsets)]
    if data_dir is not None:
        arguments += ["--data-dir", str(data_dir.expanduser().absolute())]
    if config is not None:
        arguments += ["--config", str(config.expanduser().absolute())]
    return Launch(_program(), tuple(arguments))


def _program() -> str:
    beside = Path(sys.executable).with_name("rag-context.exe" if os.name == "nt" else "rag-context")
    if beside.is_file():
        return str(beside)
    return shutil.which("rag-context") or "rag-context"


@dataclass(frozen=True, slots=True)
class Client:
    """A program that speaks MCP.

    `name` is what the command line calls it; `path` is its configuration file; `section` the table of servers in it;
    `entry` how one looks; `remark` what a person should know.
    """

    name: str
    title: str
    path: Callable[[], Path]
    section: str
    entry: Callable[[Launch], Entry]
    remark: str = ""

    @property
    def is_toml(self) -> bool:
        """Whether the file is TOML rather than JSON."""
        return self.path().suffix == ".toml"

    def snippet(self, launch: Launch) -> str:
        """The whole file, if it held nothing else."""
        entry = self.entry(launch)
        if self.is_toml:
            return _toml(f"{self.section}.{NAME}", entry)
        return json.dumps({self.section: {NAME: entry}}, indent=2, ensure_ascii=False) + "\n"


def _command(launch: Launch) -> Entry:
    return {"command": launch.command, "args": list(launch.arguments)}


def _typed(launch: Launch) -> Entry:
    return {"type": "http", "url": launch.url} if launch.url else {"type": "stdio", **_command(launch)}


def _with(field: str) -> Callable[[Launch], Entry]:
    """An entry whose address stands in `field`."""
    return lambda launch: {field: launch.url} if launch.url else _command(launch)


def _desktop(launch: Launch) -> Entry:
    if launch.url:
        raise InvalidInputError(
            "Claude Desktop's file takes commands only: leave --url out, or add the address as a connector in its "
            "settings"
        )
    return _command(launch)


def _application_data() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if os.name == "nt":
        return Path.home() / "AppData" / "Roaming"
    return Path.home() / ".config"


_KNOWN = (
    Client(
        "claude",
        "Claude Desktop",
        lambda: _application_data() / "Claude" / "claude_desktop_config.json",
        "mcpServers",
        _desktop,
        "Quit and start Claude Desktop afterwards.",
    ),
    Client(
        "claude-code",
        "Claude Code",
        lambda: Path(".mcp.json"),
        "mcpServers",
        _typed,
        "The file belongs in the project's folder.",
    ),
    Client("cursor", "Cursor", lambda: Path.home() / ".cursor" / "mcp.json", "mcpServers", _with("url")),
    Client(
        "vscode",
        "VS Code",
        lambda: Path(".vscode") / "mcp.json",
        "servers",
        _typed,
        "The file belongs in the project's folder.",
    ),
    Client(
        "windsurf",
        "Windsurf",
        lambda: Path.home() / ".codeium" / "windsurf" / "mcp_config.json",
        "mcpServers",
        _with("serverUrl"),
    ),
    Client("codex", "Codex", lambda: Path.home() / ".codex" / "config.toml", "mcp_servers", _with("url")),
    Client("gemini", "Gemini CLI", lambda: Path.home() / ".gemini" / "settings.json", "mcpServers", _with("httpUrl")),
)
CLIENTS: Mapping[str, Client] = {client.name: client for client in _KNOWN}


def find_client(name: str) -> Client:
    """A client by its name.

    Raises:
        InvalidInputError: None is called so.
    """
    try:
        return CLIENTS[name]
    except KeyError:
        raise InvalidInputError(f"No client {name!r} is known; known are {', '.join(CLIENTS)}") from None


@dataclass(frozen=True, slots=True)
class Change:
    """What an installation does to a file. `before` is None where there is none yet."""

    path: Path
    before: str | None
    after: str

    @property
    def is_needed(self) -> bool:
        """Whether the file is to change."""
        return self.before != self.after

    def apply(self) -> Path | None:
        """Write the file, whole or not at all; what it held goes into a copy beside it, which is returned."""
        target = self.path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        backup = None
        if self.before is not None:
            backup = target.with_name(target.name + ".bak")
            shutil.copy2(target, backup)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(self.after)
            if backup is not None:
                shutil.copymode(backup, name)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return backup


def planned(client: Client, launch: Launch, path: Path) -> Change:
    """How a client's file would look with this server in it; all else in it stays, and what was added to its entry.

    Raises:
        ConfigurationError: The file cannot be read, or is not of the form that the client's files have.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Cannot read {path}: {error}") from error
    merge = _merged_toml if client.is_toml else _merged_json
    try:
        return Change(path, before, merge(before or "", client, launch))
    except _UnreadableError as error:
        raise ConfigurationError(
            f"Cannot add to {path}: {error}. Add the lines of `rag-context mcp --print-config {client.name}` to it "
            "yourself."
        ) from error


class _UnreadableError(Exception):
    """A client's file is not of the form that its files have."""


def _merged_json(before: str, client: Client, launch: Launch) -> str:
    if not before.strip():
        return client.snippet(launch)
    try:
        content = json.loads(before)
    except ValueError as error:
        raise _UnreadableError(f"it is not plain JSON ({error}), perhaps because of comments") from error
    servers = _servers(content, client)
    entry = _updated(servers, client.entry(launch))
    if servers.get(NAME) == entry:
        return before
    content[client.section] = {**servers, NAME: entry}
    return json.dumps(content, indent=_indent(before), ensure_ascii=False) + "\n"


def _servers(content: Any, client: Client) -> Entry:
    servers = content.get(client.section, {}) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise _UnreadableError(f"it has no table {client.section!r} of servers")
    return servers


def _updated(servers: Entry, entry: Entry) -> Entry:
    """The entry with what people and their client have added to the one that is there, such as `env`."""
    existing = servers.get(NAME)
    if not isinstance(existing, dict):
        return entry
    # Some clients reject an entry with what belongs to the other way to reach a server.
    foreign = _OURS | (_OF_ADDRESSES if "command" in entry else _OF_COMMANDS)
    return entry | {key: value for key, value in existing.items() if key not in foreign}


def _indent(text: str) -> int | str:
    """The indentation that a file uses."""
    for line in text.splitlines():
        space = line[: len(line) - len(line.lstrip())]
        if space and line.strip():
            return space
    return 2


def _merged_toml(before: str, client: Client, launch: Launch) -> str:
    try:
        content = tomllib.loads(before)
    except tomllib.TOMLDecodeError as error:
        raise _UnreadableError(f"it is not TOML ({error})") from error
    servers = _servers(content, client)
    entry = _updated(servers, client.entry(launch))
    if servers.get(NAME) == entry:
        return before
    kept = _without_table(before, f"{client.section}.{NAME}")
    after = f"{kept.rstrip()}\n\n" if kept.strip() else ""
    expected = {**content, client.section: {**servers, NAME: entry}}
    try:
        after += _toml(f"{client.section}.{NAME}", entry)
        is_right = tomllib.loads(after) == expected
    except (tomllib.TOMLDecodeError, TypeError):  # or a value is of a kind that JSON has not
        is_right = False
    if not is_right:
        raise _UnreadableError(f"its table {client.section!r} is written in another way")
    return after


def _without_table(text: str, name: str) -> str:
    kept = []
    inside = False
    for line in text.splitlines(keepends=True):
        head = line.strip()
        if head.startswith("["):
            title = head.strip("[]").split("]")[0].strip().replace('"', "")
            inside = title == name or title.startswith(f"{name}.")
        if not inside:
            kept.append(line)
    return "".join(kept)


def _toml(table: str, entry: Entry) -> str:
    # A JSON string or number, or a list of them, is the same in TOML.
    below = {key: value for key, value in entry.items() if isinstance(value, dict)}
    lines = [
        f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items() if key not in below
    ]
    text = "\n".join([f"[{table}]", *lines]) + "\n"
    return text + "".join(f"\n{_toml(f'{table}.{_key(key)}', value)}" for key, value in below.items())


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Target:
    """What an entry is to reach: a command with its options, or an address."""

    tools: str
    url: str | None
    options: ConfigOptions


def run_print(name: str, target: Target) -> ExitCode:
    """Print the lines for people to copy; where they belong goes to stderr."""
    console = Console()
    client = find_client(name)
    snippet = client.snippet(_launch_of(target, console))
    console.line(snippet.rstrip("\n"))
    console.note((f"{client.title} reads this from {client.path()}. {client.remark}".strip(), "dim"))
    return ExitCode.OK


def run_install(name: str, target: Target, *, path: Path | None, dry_run: bool) -> ExitCode:
    """Write the entry where it belongs, or say what would be written."""
    console = Console()
    client = find_client(name)
    change = planned(client, _launch_of(target, console), path or client.path())
    if dry_run:
        console.line(change.after.rstrip("\n"))
        would = "would be written to" if change.is_needed else "is already in"
        console.note((f"This {would} {change.path}.", "dim"))
        return ExitCode.OK
    if not change.is_needed:
        console.show(f"{client.title}: already there, in {change.path}.")
        return ExitCode.OK
    try:
        backup = change.apply()
    except OSError as error:
        raise ConfigurationError(f"Cannot write {change.path}: {error.strerror}") from error
    console.show(f"{client.title}: added to {change.path}." + (f" The file as it was: {backup}." if backup else ""))
    if client.remark:
        console.note((client.remark, "dim"))
    return ExitCode.OK


def _launch_of(target: Target, console: Console) -> Launch:
    """What the client is to run. It has neither this folder nor this environment, so what they say goes with it."""
    toolsets = toolsets_named(target.tools)
    if target.url is not None:
        return address(target.url, toolsets)
    loaded = target.options.load()
    is_named = loaded.sources["data_dir"].startswith(("flag", "environment"))
    _warn_of_environment(loaded, console)
    return command(toolsets, loaded.settings.data_dir if is_named else None, loaded.file)


def _warn_of_environment(loaded: Loaded, console: Console) -> None:
    """Other settings of this environment may be secret, and are for people to hand over."""
    left = {
        source.removeprefix("environment ")
        for key, source in loaded.sources.items()
        if source.startswith("environment ") and key != "data_dir" and not key.startswith(_OF_THIS_PROGRAM)
    }
    if left:
        console.warning(
            f"the client does not have this environment's {', '.join(sorted(left))}: put that into the entry's env, or "
            "into the file that --config names"
        )

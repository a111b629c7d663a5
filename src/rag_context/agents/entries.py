"""What the settings of a client get: the entries for server and hooks in its own form, and the instructions.

In the template of a place `~` is the home of the user and `{claude}` a folder of `_FOLDERS`; a relative path is below
the project.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rag_context.agents import clients, pieces
from rag_context.api.toolsets import MEMORY_TOOLS, Toolsets, names_of
from rag_context.errors import InvalidInputError

_PLAIN = re.compile(r"[\w./:@%+=,-]+")
"""A word that every shell takes as it is."""

UNFAILING: Final = {"win32": "; exit 0", "": " || exit 0"}
"""What ends a line for PowerShell, and one for other shells, so that a missing program does not count as a refusal."""

PLUGIN: Final = Path(__file__).with_name("opencode.js")

RULES_MAX_CHARS: Final = 900
"""Instructions that are always read cost tokens in each request."""

RULES: Final = Path(__file__).with_name("rules.md").read_text("utf-8")
RULES_WITHOUT_TOOLS: Final = Path(__file__).with_name("rules_without_tools.md").read_text("utf-8")
DESCRIPTION: Final = (
    "The memory that agents on this machine share. Use it before decisions about design or conventions, when a failure "
    "may have happened before, and to store what was decided and why."
)

_FOLDERS: Final[Mapping[str, str]] = {
    "claude": "$CLAUDE_CONFIG_DIR|~/.claude",
    "claude_state": "$CLAUDE_CONFIG_DIR|~",
    "codex": "$CODEX_HOME|~/.codex",
    "gemini": "$GEMINI_CLI_HOME|~",
    "copilot": "$COPILOT_HOME|~/.copilot",
    "config": "$XDG_CONFIG_HOME|~/.config",
    "app": "$XDG_CONFIG_HOME|~/.config",
    "zed": "$XDG_CONFIG_HOME|~/.config",
}
"""Folders of settings: the first of the variables and paths that is set."""

_ELSEWHERE: Final[Mapping[tuple[str, str], str]] = {
    ("darwin", "app"): "~/Library/Application Support",
    ("win32", "app"): "$APPDATA|~/AppData/Roaming",
    ("darwin", "zed"): "~/.config",
    ("win32", "zed"): "$APPDATA|~/AppData/Roaming",
}
"""Those that another system has elsewhere."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where this is: the user's home, the environment and the system, as `sys.platform` names it."""

    home: Path
    environment: Mapping[str, str]
    system: str = sys.platform

    def path(self, template: str, project: Path | None = None) -> Path:
        """The file or folder that a template names; a relative one is below the project."""
        if template.startswith("{"):
            name, _, rest = template[1:].partition("}")
            choices = _ELSEWHERE.get((self.system, name)) or _FOLDERS[name]
            for choice in choices.split("|"):
                value = self.environment.get(choice[1:]) if choice.startswith("$") else choice
                if value:
                    return self._expanded(value) / rest.lstrip("/")
        if template.startswith("~"):
            return self._expanded(template)
        return (project or Path()) / template

    def _expanded(self, path: str) -> Path:
        return self.home / path[1:].lstrip("/\\") if path.startswith("~") else Path(path)


@dataclass(frozen=True, slots=True)
class Launch:
    """How clients reach this program: by the `url` of a running server, or by programs, with `options` for both."""

    server: str = clients.NAME
    hook: str = pieces.HOOK_PROGRAM
    options: tuple[str, ...] = ()
    server_options: tuple[str, ...] = ()
    url: str | None = None


def address(url: str, toolsets: Toolsets = MEMORY_TOOLS) -> str:
    """The address of a running server for MCP, and of the tools that it is to offer. Raises: InvalidInputError."""
    if not url.startswith(("http://", "https://")):
        raise InvalidInputError(f"--url {url!r}: begin with http:// or https://")
    if toolsets != MEMORY_TOOLS and "?" in url:
        raise InvalidInputError("--tools and an address with a query exclude each other: put tools=SETS into the query")
    base, mark, query = url.partition("?")
    base = base if base.rstrip("/").endswith("/mcp") else base.rstrip("/") + "/mcp"
    return base + mark + query if toolsets == MEMORY_TOOLS else f"{base}?tools={names_of(toolsets)}"


def server_entry(client: clients.Client, launch: Launch) -> dict[str, Any]:
    """The entry for this server. Raises: InvalidInputError (the client cannot have it)."""
    mcp = _mcp(client)
    if launch.url is not None:
        if not mcp.url_key:
            raise InvalidInputError(f"{client.title}: leave --url out. {client.remark}")
        return {**mcp.of_url, mcp.url_key: launch.url}
    arguments = ["mcp", *launch.server_options, *launch.options]
    if mcp.in_one_list:
        return {**mcp.of_command, "command": [launch.server, *arguments]}
    return {**mcp.of_command, "command": launch.server, "args": arguments}


def _mcp(client: clients.Client) -> clients.Mcp:
    if client.mcp is None:
        raise InvalidInputError(f"{client.title} has no file for MCP servers")
    return client.mcp


def hook_words(client: clients.Client, event: clients.EventName, launch: Launch) -> list[str]:
    reported = client.hooks.reported_as if client.hooks is not None else ""
    return [launch.hook, event, "--client", reported or client.name, *launch.options]


def server_piece(client: clients.Client, path: Path, launch: Launch) -> pieces.Piece:
    section = _mcp(client).section
    entry = server_entry(client, launch)
    return pieces.TomlServer(section[0], entry) if path.suffix == ".toml" else pieces.JsonServer(section, entry)


def hook_pieces(
    client: clients.Client, hooks: clients.Hooks, launch: Launch, system: str = sys.platform
) -> Iterator[pieces.Piece]:
    if hooks.shape is clients.HookShape.PLUGIN:
        words = {event: hook_words(client, event, launch) for event in hooks.events}
        yield pieces.WholeFile(PLUGIN.read_text(encoding="utf-8").replace('"COMMANDS"', json.dumps(words, indent=2)))
        return
    if hooks.shape is clients.HookShape.AGENT:
        yield pieces.WholeFile(_agent(client, hooks, launch, system))
        return
    if hooks.has_version:
        yield pieces.JsonDefault("version", 1)
    yield pieces.JsonHooks(hook_entries(client, hooks, launch, system))


def hook_entries(
    client: clients.Client, hooks: clients.Hooks, launch: Launch, system: str = sys.platform
) -> dict[str, dict[str, Any]]:
    return {
        native.native: _hook_entry(
            hooks, native, hook_words(client, event, launch), clients.TIMEOUTS_S[event] * hooks.units_per_s, system
        )
        for event, native in hooks.events.items()
    }


def _hook_entry(
    hooks: clients.Hooks, event: clients.Event, words: Sequence[str], timeout: int, system: str
) -> dict[str, Any]:
    line = shell_line(words, system)
    if hooks.takes_failure_for_refusal:
        line += UNFAILING.get(system, UNFAILING[""])
    match hooks.shape:
        case clients.HookShape.FLAT:
            return {"command": line, "timeout": timeout}
        case clients.HookShape.SHELLS:
            return {
                "type": "command",
                "bash": shell_line(words, "linux"),
                "powershell": shell_line(words, "win32"),
                "timeoutSec": timeout,
            }
        case clients.HookShape.AGENT:
            return {"command": line, "timeout_ms": timeout}
        case clients.HookShape.ARGUMENTS:
            hook = {"type": "command", "command": words[0], "args": [*words[1:]], "timeout": timeout}
        case _:
            hook = {"type": "command", "command": line, "timeout": timeout}
    return {**({"matcher": event.matcher} if event.matcher else {}), "hooks": [hook]}


def shell_line(words: Sequence[str], system: str) -> str:
    """A command for the shell of a system; on Windows PowerShell, which takes a quoted first word for a text."""
    if all(_PLAIN.fullmatch(word) for word in words):
        return " ".join(words)
    if system == "win32":
        quoted = ["'" + word.replace("'", "''") + "'" for word in words]
        return "& " + " ".join(quoted)
    return shlex.join(words)


def _agent(client: clients.Client, hooks: clients.Hooks, launch: Launch, system: str) -> str:
    events: Mapping[str, Any] = hook_entries(client, hooks, launch, system)
    agent = {
        "name": clients.NAME,
        "description": f"{DESCRIPTION} {pieces.WRITTEN_BY}.",
        "tools": ["*"],
        "includeMcpJson": True,
        "hooks": {event: [entry] for event, entry in events.items()},
    }
    return json.dumps(agent, indent=2) + "\n"


def rules_piece(rules: clients.Rules) -> pieces.Piece:
    if rules.form is clients.RulesForm.BLOCK:
        return pieces.MarkedBlock(RULES if rules.has_tools else RULES_WITHOUT_TOOLS)
    head = skill_head() if rules.form is clients.RulesForm.SKILL else rules.head
    return pieces.WholeFile(f"{head}<!-- {pieces.WRITTEN_BY}; `rag-context uninstall` removes it. -->\n\n{RULES}")


def skill_head() -> str:
    return f"---\nname: {clients.NAME}\ndescription: {DESCRIPTION}\n---\n"


def files_of(
    client: clients.Client, scope: clients.Scope, machine: Machine, project: Path | None, launch: Launch
) -> dict[Path, list[pieces.Piece]]:
    """What goes into which file of a client, in a scope."""
    files: dict[Path, list[pieces.Piece]] = {}
    if client.mcp is not None and (place := client.mcp.files.get(scope)) is not None:
        path = machine.path(place, project)
        files.setdefault(path, []).append(server_piece(client, path, launch))
    if client.hooks is not None and (place := client.hooks.files.get(scope)) is not None:
        hooks = hook_pieces(client, client.hooks, launch, machine.system)
        files.setdefault(machine.path(place, project), []).extend(hooks)
    if client.rules is not None and (place := client.rules.files.get(scope)) is not None:
        files.setdefault(machine.path(place, project), []).append(rules_piece(client.rules))
    return files

"""The programs that agents run in: where each keeps its settings, what an entry is like, and its events.

They are data in `clients.toml`; here is what the fields mean. It needs the standard library only. Places are templates,
as `Machine.path` reads them.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

NAME: Final = "rag-context"
"""What our entries, files and plug-ins are called."""

EventName: TypeAlias = Literal["session-start", "prompt", "action", "stop", "compact"]

TIMEOUTS_S: Final[Mapping[EventName, int]] = {"session-start": 5, "prompt": 5, "action": 5, "stop": 10, "compact": 10}
"""When a client gives a hook up; the program gives up much earlier by itself."""


class Scope(StrEnum):
    USER = "user"
    PROJECT = "project"


class Tier(StrEnum):
    """What reaches the model by itself."""

    PROMPT = "A"
    START = "B"
    RULES = "C"


Files: TypeAlias = Mapping[Scope, str]
"""The place of a file in each scope that has one."""


@dataclass(frozen=True, slots=True)
class Mcp:
    """How a client learns of an MCP server.

    Attributes:
        files: where; JSON, or TOML by its suffix.
        section: the keys that lead to the table of servers.
        of_command, of_url: what an entry has besides the command or the address.
        url_key: the field of the address; empty where only commands are possible.
        in_one_list: the program stands with its arguments in one list.
        key: what to add for a server with keys; the key itself stays in the environment.
    """

    files: Files
    section: tuple[str, ...] = ("mcpServers",)
    of_command: Mapping[str, Any] = field(default_factory=dict)
    of_url: Mapping[str, Any] = field(default_factory=dict)
    url_key: str = "url"
    in_one_list: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a client, by the client's own name; `matcher` selects the tools whose use it reports."""

    native: str
    matcher: str = ""


class HookShape(StrEnum):
    ARGUMENTS = "arguments"
    """`{matcher, hooks: [{type, command, args, timeout}]}`: the program is started without a shell."""
    GROUPS = "groups"
    """`{matcher, hooks: [{type, command, timeout}]}`: a line for a shell."""
    FLAT = "flat"
    """`{command, timeout}`"""
    SHELLS = "shells"
    """`{type, bash, powershell, timeoutSec}`"""
    PLUGIN = "plugin"
    """A program in JavaScript, which is the whole file."""
    AGENT = "agent"
    """An agent of its own, which is the whole file; below its events `{command, timeout_ms}`."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """How a client runs a program at its events.

    Attributes:
        files: where they are configured.
        events: the client's event for each of ours that it has.
        units_per_s: in how many parts of a second the client counts time-outs.
        reported_as: the name that the program gets for `--client`; another one where both read the same file.
        has_version: the file says `"version": 1`.
        takes_failure_for_refusal: it sends no prompt where the program of a hook is missing.
    """

    files: Files
    events: Mapping[EventName, Event]
    shape: HookShape = HookShape.GROUPS
    units_per_s: int = 1
    reported_as: str = ""
    has_version: bool = False
    takes_failure_for_refusal: bool = False


class RulesForm(StrEnum):
    SKILL = "skill"
    """A file of our own that the client shows when it fits, by its name and description."""
    FILE = "file"
    """A file of our own."""
    BLOCK = "block"
    """A block between marks in a file that has other text."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Where a client reads instructions; agents run our command line where it `has_tools` not.

    `head` stands before them in a file of our own.
    """

    files: Files
    form: RulesForm
    head: str = ""
    has_tools: bool = True


@dataclass(frozen=True, slots=True)
class PluginMark:
    """How an installed plug-in is recognised: by a folder, or by a key of settings that begins with `rag-context@`."""

    place: str
    section: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """A program in which agents run, found by one of its `programs` or `folders`.

    `is_desktop`: it is not started from a terminal, and so has another `PATH`. `to_do` is what remains for the person,
    by scope, `remark` what people should know besides.
    """

    name: str
    title: str
    tier: Tier
    programs: tuple[str, ...]
    folders: tuple[str, ...]
    mcp: Mcp | None = None
    hooks: Hooks | None = None
    rules: Rules | None = None
    plugin: PluginMark | None = None
    is_desktop: bool = False
    to_do: Mapping[Scope, str] = field(default_factory=dict)
    remark: str = ""


def _read() -> Mapping[str, Client]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: _client(name, row) for name, row in rows.items()}


def _client(name: str, row: dict[str, Any]) -> Client:
    kinds = {"mcp": Mcp, "hooks": Hooks, "rules": Rules, "plugin": PluginMark}
    parts = {part: kind(**_values(row.pop(part))) for part, kind in kinds.items() if part in row}
    return Client(name, **_values(row), **parts)


def _values(row: dict[str, Any]) -> dict[str, Any]:
    """A table of the file as arguments: the places of a file stand there by scope, `tools` are those of an action."""
    kinds = {"tier": Tier, "shape": HookShape, "form": RulesForm}
    files = {scope: row.pop(scope) for scope in Scope if scope in row}
    tools, events = row.pop("tools", ""), row.pop("events", {})
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    values |= {key: kinds[key](values[key]) for key in kinds if key in values}
    values |= {"files": files} if files else {}
    of_each = {event: Event(native, tools if event == "action" else "") for event, native in events.items()}
    return values | ({"events": of_each} if of_each else {})


CLIENTS: Final = _read()

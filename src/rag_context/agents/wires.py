"""Tries what is installed: starts the servers and hooks of clients as these would, and reads what a client trusts."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Final, TypeVar

from rag_context.agents.clients import Client, HookShape, Scope
from rag_context.agents.entries import UNFAILING, Machine
from rag_context.agents.hook import FOLDER, RAN, TRIAL
from rag_context.agents.json_text import parse
from rag_context.agents.pieces import HOOK_PROGRAM, hooks_in, server_in

T = TypeVar("T")

TIMEOUT_S: Final = 20.0
SLOW_SERVER_MS: Final = 1000
"""Claude Code waits about so long for the list of tools before its first request."""
SLOW_HOOK_MS: Final = 500

_COMMANDS = re.compile(r"^const COMMANDS = (\{.*?^\})", re.DOTALL | re.MULTILINE)
_CLIENT_INFO: Final = {"name": "rag-context doctor", "version": "1"}
_OPENING: Final[Sequence[Mapping[str, Any]]] = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize",
     "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": _CLIENT_INFO}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)  # fmt: skip


class WireError(Exception):
    """A command of a client does not do what it should; the message says what it did."""


@dataclass(frozen=True, slots=True)
class Hook:
    """An installed hook: the client's event, and the words of its command, or a line for a shell."""

    event: str
    command: Sequence[str] | str

    @property
    def argv(self) -> list[str]:
        if not isinstance(self.command, str):
            return [*self.command]
        return ["powershell", "-Command", self.command] if sys.platform == "win32" else ["sh", "-c", self.command]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command) if isinstance(self.command, str) else [*self.command]


def server_of(client: Client, scope: Scope, machine: Machine, project: Path | None) -> Mapping[str, Any] | None:
    """The entry for this server in a client's settings. Raises: OSError, ValueError, TypeError."""
    if client.mcp is None or (place := client.mcp.files.get(scope)) is None:
        return None
    path = machine.path(place, project)
    if not path.is_file():
        return None
    return server_in(path.read_text(encoding="utf-8"), client.mcp.section, is_toml=path.suffix == ".toml")


def hooks_of(client: Client, scope: Scope, machine: Machine, project: Path | None) -> list[Hook]:
    """Our hooks in a client's settings. Raises: OSError, ValueError, TypeError."""
    if client.hooks is None or (place := client.hooks.files.get(scope)) is None:
        return []
    path = machine.path(place, project)
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    if client.hooks.shape is HookShape.PLUGIN:
        commands = _COMMANDS.search(text)
        return [Hook(event, words) for event, words in json.loads(commands.group(1)).items()] if commands else []
    return [Hook(event, _command(entry)) for event, entry in hooks_in(text)]


def _command(entry: Mapping[str, Any]) -> Sequence[str] | str:
    if "args" in entry:
        return [entry["command"], *entry["args"]]
    line = str(entry.get("powershell" if sys.platform == "win32" else "bash") or entry["command"])
    for ending in UNFAILING.values():
        line = line.removesuffix(ending)  # whether the program is there is what is tried
    return line


def program_of(entry: Mapping[str, Any]) -> list[str]:
    """The command of an entry for a server, with its arguments; empty for an address."""
    command = entry.get("command", [])
    return [*(command if isinstance(command, list) else [command]), *entry.get("args", ())]


def try_server(words: Sequence[str]) -> tuple[int, float]:
    """Start a server and list its tools. Returns: how many tools, after how many milliseconds. Raises: WireError."""
    began = time.monotonic()
    return _listed(
        words, _OPENING, lambda result: (len(result["tools"]), (time.monotonic() - began) * 1000), "it", "tools"
    )


def _listed(
    words: Sequence[str], messages: Sequence[Mapping[str, Any]], read: Callable[[Any], T], program: str, what: str
) -> T:
    """What is read from the result of the last of some messages to a program. Raises: WireError."""
    end = time.monotonic() + TIMEOUT_S
    with _started(words) as process, DefaultSelector() as waiting:
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        waiting.register(process.stdout, EVENT_READ)
        try:
            process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
            process.stdin.flush()
            for answer in _answers(process, waiting, end):
                if answer.get("id") == messages[-1]["id"]:
                    return read(answer["result"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WireError(f"{program} answers something else than {what} ({error})") from error
        finally:
            process.kill()
    raise WireError(f"{program} did not list its {what} within {TIMEOUT_S:g} s")


def _answers(process: "subprocess.Popen[bytes]", waiting: DefaultSelector, end: float) -> Iterator[Any]:
    """The lines that a process prints, read as JSON, until it ends or the time is over."""
    assert process.stdout is not None  # noqa: S101
    read = b""
    while waiting.select(max(end - time.monotonic(), 0.0)):
        part = os.read(process.stdout.fileno(), 1 << 16)
        if not part:
            raise WireError("it ended without an answer")
        *lines, read = (read + part).split(b"\n")
        yield from (json.loads(line) for line in lines if line.strip())


def _started(words: Sequence[str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603
    except OSError as error:
        raise WireError(f"it cannot be started: {error.strerror}") from error


def try_hook(hook: Hook, cwd: Path) -> float:
    """Run a hook with a payload of no session and project. Returns: the milliseconds. Raises: WireError."""
    payload = json.dumps({"hook_event_name": hook.event, "cwd": str(cwd), TRIAL: True})
    began = time.monotonic()
    try:
        ended = subprocess.run(  # noqa: S603
            hook.argv, input=payload.encode(), capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except OSError as error:
        raise WireError(f"it cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise WireError(f"it did not end within {TIMEOUT_S:g} s") from error
    if ended.returncode or ended.stdout:
        said = (ended.stderr or ended.stdout).decode(errors="replace").strip().splitlines()
        raise WireError(f"it ended with status {ended.returncode}{f': {said[-1][:200]}' if said else ''}")
    return (time.monotonic() - began) * 1000


def last_run(client: Client, hooks: Sequence[Hook], data_dir: Path) -> float | None:
    """When a client last ran one of its hooks in a session, in seconds since 1970; None if it never did."""
    times = []
    for hook in hooks:
        words = hook.words
        options = dict(pairwise(words))
        folder = Path(options.get("--data-dir", data_dir)) / FOLDER
        try:
            times.append((folder / (options.get("--client", client.name) + RAN)).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)


def untrusted_in_codex(program: str, project: Path) -> list[str]:
    """The events whose hooks of ours Codex does not run, because they are not trusted. Raises: WireError."""
    messages: Sequence[Mapping[str, Any]] = (
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "rag-context", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [str(project)]}},
    )

    def untrusted(result: Any) -> list[str]:
        hooks = [hook for each in result["data"] for hook in each["hooks"]]
        own = [hook for hook in hooks if HOOK_PROGRAM in str(hook.get("command"))]
        return [str(hook["eventName"]) for hook in own if hook["trustStatus"] not in ("trusted", "managed")]

    return _listed([program, "app-server"], messages, untrusted, f"`{program} app-server`", "hooks")


def is_approved_in_claude(machine: Machine, project: Path, name: str) -> bool:
    """Whether the person has approved a server of the project's `.mcp.json` in Claude Code."""
    state = _object(machine.path("{claude_state}/.claude.json"))
    places = [
        _object(machine.path("{claude}/settings.json")),
        _object(project / ".claude" / "settings.json"),
        _object(project / ".claude" / "settings.local.json"),
        state.get("projects", {}).get(str(project), {}),
    ]
    return any(
        place.get("enableAllProjectMcpServers") is True or name in place.get("enabledMcpjsonServers", ())
        for place in places
    )


def _object(path: Path) -> Mapping[str, Any]:
    try:
        value = parse(path.read_text(encoding="utf-8")).value
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}

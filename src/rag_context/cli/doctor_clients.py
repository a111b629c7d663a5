"""Facts about this installation, and the check of the clients that are connected: `doctor` of what they run."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import httpx2

from rag_context.agents import wires
from rag_context.agents.clients import CLIENTS, NAME, Client, Scope
from rag_context.agents.installing import Installer
from rag_context.cli.console import counted
from rag_context.cli.install import installer_here
from rag_context.errors import RagContextError
from rag_context.settings.sections import default_data_dir

LIVE_TIMEOUT_S = 2.0

Severity = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about this installation, in a sentence; `wrong` is what keeps something from working."""

    area: str
    status: Severity
    message: str
    next_step: str | None = None


def problems(area: str, error: RagContextError, default_step: str, status: Severity = "wrong") -> Iterator[Finding]:
    """An error as findings, a line each; `default_step` is for one that does not say behind a colon what to do."""
    for line in str(error).splitlines():
        message, colon, step = line.rstrip(".").rpartition(": ")
        yield Finding(area, status, message if colon else line.rstrip("."), step if colon else default_step)


def running_version(url: str) -> str | None:
    """The version of the rag-context that answers there; None where none does."""
    try:
        answer = httpx2.get(url + "/live", timeout=LIVE_TIMEOUT_S, trust_env=False).json()
        return str(answer["version"]) if "instance" in answer else None
    except (httpx2.HTTPError, ValueError, TypeError, KeyError):
        return None


AREA = "clients"


def clients(data_dir: Path | None = None) -> Iterator[Finding]:
    """What the clients on this machine have of this program, in this user's settings and in those of this project."""
    installer = installer_here()
    trials = _Trials(installer, data_dir or default_data_dir())
    found = False
    for client in CLIENTS.values():
        for scope in installer.scopes(client):
            if scope is Scope.PROJECT and installer.project is None:
                continue
            for finding in trials.of(client, scope):
                found = True
                yield finding
    if not found:
        yield Finding(AREA, "ok", "No client is connected; `rag-context install` lists those on this machine")


@dataclass(slots=True)
class _Trials:
    """Runs each command once, also where several clients have it."""

    installer: Installer
    data_dir: Path
    servers: dict[tuple[str, ...], tuple[int, float] | wires.WireError] = field(default_factory=dict)

    def of(self, client: Client, scope: Scope) -> Iterator[Finding]:
        machine, project = self.installer.machine, self.installer.project
        try:
            entry = wires.server_of(client, scope, machine, project)
            hooks = wires.hooks_of(client, scope, machine, project)
        except (OSError, ValueError, TypeError) as error:
            step = "correct the file; until then the client reads nothing of it"
            yield Finding(AREA, "warning", f"The settings of {client.title} ({scope}) cannot be read: {error}", step)
            return
        again = f"`rag-context install {client.name}{' --scope project' if scope is Scope.PROJECT else ''}`"
        if entry is not None:
            yield self._server(client, scope, entry, again)
        elif hooks:
            yield Finding(AREA, "warning", f"{client.title} ({scope}) has hooks and no tools", f"{again} adds them")
        if hooks:
            yield self._hooks(client, scope, hooks, again)
        if entry is not None or hooks:
            yield from self._trust(client, scope, hooks)

    def _server(self, client: Client, scope: Scope, entry: Mapping[str, Any], again: str) -> Finding:
        name = f"{client.title} ({scope})"
        url = next((entry[key] for key in ("url", "httpUrl", "serverUrl") if isinstance(entry.get(key), str)), None)
        if url is not None:
            version = running_version(url.partition("?")[0].rstrip("/").removesuffix("/mcp"))
            if version is None:
                step = f"start the server (`rag-context serve`), or {again} writes the entry again"
                return Finding(AREA, "wrong", f"{name} calls {url}, where no rag-context answers", step)
            return Finding(AREA, "ok", f"{name} calls rag-context {version} at {url}")
        words = wires.program_of(entry)
        if not words or shutil.which(words[0]) is None:
            return Finding(
                AREA,
                "wrong",
                f"{name} runs {(words[0] if words else '')!r}, which is not there",
                _written(again, scope),
            )
        tools = self._tools(words)
        if isinstance(tools, wires.WireError):
            return Finding(AREA, "wrong", f"{name} runs `{' '.join(words)}`: {tools}", "run it by hand to see why")
        message = f"{name} runs {words[0]}: {counted(tools[0], 'tool')} after {tools[1]:.0f} ms"
        if tools[1] > wires.SLOW_SERVER_MS:
            step = "a client may begin without the tools: start it again when the machine is less busy"
            return Finding(AREA, "warning", message, step)
        return Finding(AREA, "ok", message)

    def _tools(self, words: Sequence[str]) -> tuple[int, float] | wires.WireError:
        key = tuple(words)
        if key not in self.servers:
            try:
                self.servers[key] = wires.try_server(words)
            except wires.WireError as error:
                self.servers[key] = error
        return self.servers[key]

    def _hooks(self, client: Client, scope: Scope, hooks: Sequence[wires.Hook], again: str) -> Finding:
        name = f"{client.title} ({scope})"
        slowest = 0.0
        for hook in hooks:
            if shutil.which(hook.words[0].removeprefix("& ")) is None and os.name == "posix":
                message = f"{name} runs {hook.words[0]!r} at {hook.event}, which is not there"
                return Finding(AREA, "wrong", message, _written(again, scope))
            try:
                slowest = max(slowest, wires.try_hook(hook, Path.home()))
            except wires.WireError as error:
                step = f"{again} writes the hook again"
                return Finding(AREA, "wrong", f"{name} runs a hook at {hook.event}: {error}", step)
        message = f"{name}: {counted(len(hooks), 'hook')}, the slowest in {slowest:.0f} ms"
        ran = wires.last_run(client, hooks, self.data_dir)
        if ran is None:
            step = client.to_do.get(scope) or f"start a session in {client.title}, then look here again"
            return Finding(AREA, "warning", f"{message}; none has run in a session yet", step)
        message += f"; last run {datetime.fromtimestamp(ran, UTC).astimezone():%Y-%m-%d %H:%M}"
        if slowest > wires.SLOW_HOOK_MS:
            return Finding(AREA, "warning", message, "the person waits so long with each prompt: is the machine busy?")
        return Finding(AREA, "ok", message)

    def _trust(self, client: Client, scope: Scope, hooks: Sequence[wires.Hook]) -> Iterator[Finding]:
        """What a person has to allow, where the client says whether that was done."""
        project = self.installer.project
        program = shutil.which("codex")
        if client.name == "codex" and hooks and program is not None:
            try:
                events = wires.untrusted_in_codex(program, project or Path.home())
            except wires.WireError as error:
                yield Finding(
                    AREA, "warning", f"Whether Codex trusts the hooks is not known: {error}", client.to_do[scope]
                )
                return
            if events:
                message = f"Codex does not run {counted(len(events), 'hook')} that are not trusted: {', '.join(events)}"
                yield Finding(AREA, "warning", message, client.to_do[scope])
            else:
                yield Finding(AREA, "ok", "Codex trusts the hooks")
        is_shared = client.name == "claude-code" and scope is Scope.PROJECT
        if is_shared and project is not None and not wires.is_approved_in_claude(self.installer.machine, project, NAME):
            message = "Claude Code has not been allowed to start the server of this project's .mcp.json"
            yield Finding(AREA, "warning", message, client.to_do[scope])


def _written(again: str, scope: Scope) -> str:
    if scope is Scope.PROJECT:
        return "install rag-context so that PATH leads to it (pipx or uv tool install)"
    return f"{again} writes the entry again"

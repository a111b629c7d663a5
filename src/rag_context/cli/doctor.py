"""`doctor`: what is wrong with this installation, and how to repair it. It looks, and changes nothing."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import httpx2

from rag_context._version import __version__
from rag_context.agents import wires
from rag_context.agents.clients import CLIENTS, NAME, Client, Scope
from rag_context.agents.installing import Installer
from rag_context.api.maintenance import HealthRequest
from rag_context.api.operations import memory
from rag_context.cli import configure, connecting, install, serve
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Cell, Console, counted
from rag_context.cli.options import Options, with_options
from rag_context.client.address import announced_address, read_announcement, server_url
from rag_context.domain.documents import Status
from rag_context.errors import BackendError, ConfigurationError, ForeignDataError, RagContextError
from rag_context.logs import configure_logging
from rag_context.server.running import bind
from rag_context.settings import Loaded, Settings, check_available, shown
from rag_context.settings.sections import default_data_dir
from rag_context.wiring.local_files import file_problem, index_path, lost_index, sqlite_version
from rag_context.wiring.model_adapters import open_embedder
from rag_context.wiring.probes import answers_of_all

LIVE_TIMEOUT_S = 2.0
HEALTH_TIMEOUT_S = 15.0
MODEL_TIMEOUT_S = 30.0
_GIB = 1 << 30

LEAST_FREE_BYTES = 100 << 20
"""Less space than this is wrong: an index that is written needs space for its write-ahead log."""
LITTLE_FREE_BYTES = 1 << 30
_SIGNS = {"ok": ("ok     ", "green"), "warning": ("warning", "bold yellow"), "wrong": ("wrong  ", "bold red")}


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


@with_options
def doctor(options: Options) -> ExitCode:
    """Say what is wrong with this installation, and how to repair it; exits 1 when something is wrong.

    It looks at the settings and their sources, the data directory, the disk, the port or the running server, the
    embedding model and the backends with their versions. Of each client that is connected it starts the server and runs
    the hooks, as the client would, and says what remains to be allowed. Nothing is changed.
    """
    console = Console()
    configure_logging("critical")  # a finding says what a log line would
    findings = list(_examined(options))
    is_sound = all(finding.status != "wrong" for finding in findings)
    if options.as_json:
        rows = [
            {"area": each.area, "status": each.status, "message": each.message, "nextStep": each.next_step}
            for each in findings
        ]
        console.line(json.dumps({"ok": is_sound, "version": __version__, "findings": rows}))
    else:
        _print(findings, console)
    return ExitCode.OK if is_sound else ExitCode.FAILED


def _examined(options: Options) -> Iterator[Finding]:
    yield from versions()
    try:
        loaded = options.load()
    except ConfigurationError as error:
        yield from problems("settings", error, "correct it; docs/settings.md lists every setting")
        yield from clients()
        yield Finding("settings", "warning", "The rest was not examined", "run this again once that is corrected")
        return
    settings = loaded.settings
    yield from configuration(loaded)
    yield from data_directory(settings)
    yield from index_file(settings)
    yield from free_space(settings)
    yield from run_to_end(_alive(loaded))
    yield from clients(settings.data_dir)


async def _alive(loaded: Loaded) -> list[Finding]:
    settings = loaded.settings
    try:
        check_available(settings, loaded.sources)
    except ConfigurationError as error:
        return [*problems("backends", error, "install the extra"), *port(settings)]
    return [*await _server(settings), await _model(settings), *await _backends(settings)]


async def _server(settings: Settings) -> list[Finding]:
    """The running server and what it says of its components, or the port for one."""
    async with connecting.open_http(announced_address(settings), HEALTH_TIMEOUT_S) as http:
        url = await http.find()
        if url is None:
            return list(port(settings))
        try:
            report = await connecting.Remote(http, url).run(memory.HEALTH, HealthRequest())
        except RagContextError as error:
            return list(problems("server", error, "look into its log, and restart it"))
    running = f"rag-context {report.version} runs at {url}"
    if report.version == __version__:
        findings = [Finding("server", "ok", running)]
    else:
        findings = [Finding("server", "warning", f"{running}, and {__version__} is installed", "restart the server")]
    for component in report.components:
        message = f"{component.name}, {component.role}: {component.detail or component.status.value}"
        if component.status is Status.HEALTHY:
            findings.append(Finding("server", "ok", message))
        else:
            step = "see what is said of backends and the model below; the server reconnects by itself"
            findings.append(Finding("server", "wrong", f"{message} ({component.status.value})", step))
    return findings


async def _model(settings: Settings) -> Finding:
    """Whether the model is there, loads and embeds; tried in this process, also beside a running server."""
    is_server = settings.embedder.kind == "openai_compatible"
    step = (
        "start it, or correct embedder.url, embedder.model and embedder.api_key"
        if is_server
        else "install rag-context again, or correct embedder.model_dir"
    )
    try:
        async with open_embedder(settings) as embedder:
            await embedder.ready(MODEL_TIMEOUT_S)
            vector = await embedder.embed_query("rag-context doctor")
            name = embedder.model.name
    except RagContextError as error:
        return Finding("model", "wrong", str(error).rstrip("."), step)
    return Finding("model", "ok", f"{name} embeds texts in {len(vector)} dimensions")


async def _backends(settings: Settings) -> list[Finding]:
    findings = []
    for probe, answer in await answers_of_all(settings):
        if isinstance(answer, BackendError):
            is_foreign = isinstance(answer, ForeignDataError)
            step = "set another name for our vectors" if is_foreign else f"start it, or correct {probe.key}"
            findings.append(Finding("backends", "wrong", f"{probe.name} at {probe.address}: {answer}", step))
        else:
            findings.append(Finding("backends", "ok", f"{probe.name} {answer} at {probe.address}"))
    return findings


def versions() -> Iterator[Finding]:
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("onnxruntime", "numpy", "mcp"))
    python = f"Python {platform.python_version()} in {sys.prefix}"
    system = f"{platform.system()} {platform.machine()}"
    message = f"rag-context {__version__}, {python}, SQLite {sqlite_version()}, {packages}, {system}"
    yield Finding("versions", "ok", message)


def configuration(loaded: Loaded) -> Iterator[Finding]:
    values = shown(loaded.settings)
    odd = {key: source for key, source in loaded.sources.items() if source != "default"}
    for key, source in odd.items():
        yield Finding("settings", "ok", f"{key} = {json.dumps(values[key])} ({source})")
    if not odd:
        yield Finding("settings", "ok", "Every setting has its default; no configuration file was found")


def data_directory(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    area = "data directory"
    if not folder.exists():
        parent = next(each for each in folder.parents if each.exists())
        if os.access(parent, os.W_OK | os.X_OK) and parent.is_dir():
            yield Finding(area, "ok", f"{folder} does not exist yet; the first start creates it")
        else:
            step = f"let this user write to {parent}, or choose another folder with --data-dir"
            yield Finding(area, "wrong", f"{folder} does not exist, and cannot be created in {parent}", step)
        return
    if not folder.is_dir():
        yield Finding(area, "wrong", f"{folder} is a file", "choose a folder with --data-dir")
        return
    owner = folder.stat().st_uid
    step = f"`chown -R` it to this user, `chmod u+rwx {folder}`, or choose another folder with --data-dir"
    if not os.access(folder, os.R_OK | os.X_OK):
        yield Finding(area, "wrong", f"{folder} (owner: user {owner}) cannot be read by this user", step)
        return
    blocked = [name.name for name in (folder, index_path(folder)) if name.exists() and not os.access(name, os.W_OK)]
    if blocked:
        message = f"{folder} (owner: user {owner}) cannot be written by this user: searches work, but nothing is stored"
        yield Finding(area, "wrong", f"{message} ({', '.join(blocked)})", step)
    else:
        yield Finding(area, "ok", f"{folder} can be read and written")
    if configure.is_open_to_others(folder):
        yield Finding(area, "warning", f"Other users of this machine may open {folder}", f"`chmod 700 {folder}`")


def index_file(settings: Settings) -> Iterator[Finding]:
    """What the head of the embedded index says, without opening it."""
    if settings.stores.documents != "embedded" or not settings.data_dir.is_dir():
        return
    path = index_path(settings.data_dir)
    try:
        message = file_problem(path)
        size = path.stat().st_size if path.exists() else None
    except OSError as error:
        step = "let this user read it, or restore it from a backup"
        yield Finding("index", "wrong", f"{path} cannot be read: {error.strerror}", step)
        return
    if message is not None:
        yield Finding("index", "wrong", f"{path} {message}", "see `rag-context check`, or restore a backup")
    elif not size and (lost := lost_index(path)):
        step = "restore a backup, or begin again with `rag-context check --start-empty`"
        yield Finding("index", "wrong", f"{path} is {'gone' if size is None else 'empty'}; it had {lost}", step)
    elif not size:
        yield Finding("index", "ok", "There is no index yet; `rag-context index PATH...` fills one")
    else:
        yield Finding("index", "ok", f"{path} has {size / (1 << 20):.1f} MiB; `rag-context check` looks into it")


def free_space(settings: Settings) -> Iterator[Finding]:
    folder = next(each for each in (settings.data_dir, *settings.data_dir.parents) if each.is_dir())
    free = shutil.disk_usage(folder).free
    message = f"{free / _GIB:.1f} GiB are free where {settings.data_dir} is"
    step = "free some space, or move the data directory (--data-dir)"
    if free < LEAST_FREE_BYTES:
        yield Finding("disk", "wrong", f"{free / (1 << 20):.0f} MiB are free where {settings.data_dir} is", step)
    elif free < LITTLE_FREE_BYTES:
        yield Finding("disk", "warning", message, step)
    else:
        yield Finding("disk", "ok", message)


def port(settings: Settings) -> Iterator[Finding]:
    """Whether a server could listen, where none of this directory runs."""
    host, number = settings.server.host, settings.server.port
    if read_announcement(settings.data_dir) is not None:
        message = "server.json names a server that does not answer: it hangs, or was killed"
        yield Finding("server", "warning", message, "look into its log; the next start replaces the file")
    try:
        with closing(bind(serve.server_options(settings))):
            yield Finding("port", "ok", f"Port {number} on {host} is free; no server of this data directory runs")
    except ConfigurationError as error:
        other = running_version(server_url(host, number))
        if other is None:
            yield from problems("port", error, "choose another port (--port)")
        else:
            message = f"Port {number} on {host} is in use by a rag-context {other} with another data directory"
            yield Finding("port", "wrong", message, "stop it, use its --data-dir, or choose another port (--port)")


def _print(findings: Sequence[Finding], console: Console) -> None:
    rows: list[Sequence[Cell]] = []
    for finding in findings:
        rows.append((_SIGNS[finding.status], finding.area, finding.message))
        if finding.next_step is not None:
            rows.append(("", "", [("next: ", "bold"), finding.next_step]))
    console.show_table(("", "", ""), rows)
    wrong = sum(finding.status == "wrong" for finding in findings)
    warnings = sum(finding.status == "warning" for finding in findings)
    also = f", {counted(warnings, 'warning')}" if warnings else ""
    if wrong:
        console.show((f"{counted(wrong, 'problem')} found{also}.", "bold red"))
    else:
        console.show((f"Nothing is wrong{also}.", "bold yellow" if warnings else "bold green"))


AREA = "clients"


def clients(data_dir: Path | None = None) -> Iterator[Finding]:
    """What the clients on this machine have of this program, in this user's settings and in those of this project."""
    installer = install.installer_here()
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
            if client.mcp is not None and "alwaysLoad" in client.mcp.of_command and "alwaysLoad" not in entry:
                message = f"{client.title} ({scope}) may begin without the tools: its entry has no alwaysLoad"
                yield Finding(AREA, "warning", message, f'add "alwaysLoad": true to it, as {again} does')
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
            message = f"{name} runs {(words[0] if words else '')!r}, which is not there"
            return Finding(AREA, "wrong", message, _written(again, scope))
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

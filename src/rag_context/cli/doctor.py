"""`doctor`: what is wrong with this installation, and how to repair it. It looks, and changes nothing."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import metadata

from rag_context._version import __version__
from rag_context.api.maintenance import HealthRequest
from rag_context.api.operations import memory
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.configure import is_open_to_others
from rag_context.cli.connecting import Remote, open_http
from rag_context.cli.console import Cell, Console, counted
from rag_context.cli.doctor_clients import Finding, clients, problems, running_version
from rag_context.cli.options import Options, with_options
from rag_context.cli.serve import server_options
from rag_context.client.address import announced_address, read_announcement, server_url
from rag_context.domain.documents import Status
from rag_context.errors import BackendError, ConfigurationError, ForeignDataError, RagContextError
from rag_context.logs import configure_logging
from rag_context.server.running import bind
from rag_context.settings import Loaded, Settings, check_available, shown
from rag_context.wiring.local_files import file_problem, index_path, lost_index, sqlite_version
from rag_context.wiring.model_adapters import open_embedder
from rag_context.wiring.probes import answers_of_all

HEALTH_TIMEOUT_S = 15.0
MODEL_TIMEOUT_S = 30.0
_GIB = 1 << 30

LEAST_FREE_BYTES = 100 << 20
"""Less space than this is wrong: an index that is written needs space for its write-ahead log."""
LITTLE_FREE_BYTES = 1 << 30
_SIGNS = {"ok": ("ok     ", "green"), "warning": ("warning", "bold yellow"), "wrong": ("wrong  ", "bold red")}


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
    async with open_http(announced_address(settings), HEALTH_TIMEOUT_S) as http:
        url = await http.find()
        if url is None:
            return list(port(settings))
        try:
            report = await Remote(http, url).run(memory.HEALTH, HealthRequest())
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
    if is_open_to_others(folder):
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
        with closing(bind(server_options(settings))):
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

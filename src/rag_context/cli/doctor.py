"""`doctor`: what is wrong with this installation, and how to repair it. It looks, and changes nothing."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence

import typer
from rich.text import Text

from rag_context._version import __version__
from rag_context.api.maintenance import HealthRequest
from rag_context.api.operations import memory
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.connecting import Remote, open_http
from rag_context.cli.console import Screen, counted, safe
from rag_context.cli.installation import (
    Finding,
    clients,
    configuration,
    data_directory,
    index_file,
    port,
    problem,
    room,
    versions,
)
from rag_context.cli.shared_options import AsJson, Chosen, Config, DataDir, load
from rag_context.client.address import announced_address
from rag_context.domain.documents import Status
from rag_context.errors import BackendError, ConfigurationError, RagContextError
from rag_context.logs import configure_logging
from rag_context.settings import Loaded, Settings, check_available
from rag_context.wiring.models import open_embedder
from rag_context.wiring.probes import answers_of_all

HEALTH_S = 15.0
LOADING_S = 30.0
_SIGNS = {"ok": ("ok     ", "green"), "warning": ("warning", "bold yellow"), "wrong": ("wrong  ", "bold red")}


def doctor(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Say what is wrong with this installation, and how to repair it; exits 1 when something is wrong.

    It looks at the settings and their sources, the data directory, the disk, the port or the running server, the
    embedding model, the backends with their versions, and the entries of MCP clients. Nothing is changed.
    """
    raise typer.Exit(run_doctor(Chosen(config, {"data_dir": data_dir}), as_json=as_json))


def run_doctor(chosen: Chosen, *, as_json: bool) -> ExitCode:
    """Examine everything, and report; what is wrong is a failure."""
    screen = Screen()
    configure_logging("critical")  # a finding says what a log line would
    findings = list(_examined(chosen))
    is_sound = all(finding.status != "wrong" for finding in findings)
    if as_json:
        rows = [
            {"area": each.area, "status": each.status, "message": each.says, "nextStep": each.next_step}
            for each in findings
        ]
        screen.line(json.dumps({"ok": is_sound, "version": __version__, "findings": rows}))
    else:
        _print(findings, screen)
    return ExitCode.OK if is_sound else ExitCode.FAILED


def _examined(chosen: Chosen) -> Iterator[Finding]:
    yield from versions()
    try:
        loaded = load(chosen)
    except ConfigurationError as error:
        yield from problem("settings", error, "correct it; docs/settings.md lists every setting")
        yield from clients()
        yield Finding("settings", "warning", "The rest was not examined", "run this again once that is corrected")
        return
    settings = loaded.settings
    yield from configuration(loaded)
    yield from data_directory(settings)
    yield from index_file(settings)
    yield from room(settings)
    yield from run_to_end(_alive(loaded))
    yield from clients()


async def _alive(loaded: Loaded) -> list[Finding]:
    """What answers: the server of the data directory, the model, and the backends."""
    settings = loaded.settings
    try:
        check_available(settings, loaded.sources)
    except ConfigurationError as error:
        return [*problem("backends", error, "install the extra"), *port(settings)]
    return [
        *[finding async for finding in _server(settings)],
        *[finding async for finding in _model(settings)],
        *[finding async for finding in _backends(settings)],
    ]


async def _server(settings: Settings) -> AsyncIterator[Finding]:
    """The running server and what it says of its components, or the port for one."""
    async with open_http(announced_address(settings), HEALTH_S) as http:
        url = await http.find()
        if url is None:
            for finding in port(settings):
                yield finding
            return
        try:
            report = await Remote(http, url).run(memory.HEALTH, HealthRequest())
        except RagContextError as error:
            for finding in problem("server", error, "look into its log, and restart it"):
                yield finding
            return
    if report.version == __version__:
        yield Finding("server", "ok", f"rag-context {report.version} runs at {url}")
    else:
        says = f"rag-context {report.version} runs at {url}, and {__version__} is installed"
        yield Finding("server", "warning", says, "restart the server")
    for component in report.components:
        says = f"{component.name}, {component.role}: {component.detail or component.status.value}"
        if component.status is Status.HEALTHY:
            yield Finding("server", "ok", says)
        else:
            step = "see what is said of backends and the model below; the server reconnects by itself"
            yield Finding("server", "wrong", f"{says} ({component.status.value})", step)


async def _model(settings: Settings) -> AsyncIterator[Finding]:
    """Whether the model is there, loads and embeds; tried in this process, also beside a running server."""
    is_server = settings.embedder.kind == "openai_compatible"
    step = (
        "start it, or correct embedder.url, embedder.model and embedder.api_key"
        if is_server
        else "install rag-context again, or correct embedder.model_dir"
    )
    try:
        async with open_embedder(settings) as embedder:
            await embedder.ready(LOADING_S)
            vector = await embedder.embed_query("rag-context doctor")
            name = embedder.model.name
    except RagContextError as error:
        yield Finding("model", "wrong", str(error).rstrip("."), step)
    else:
        yield Finding("model", "ok", f"{name} embeds texts in {len(vector)} dimensions")


async def _backends(settings: Settings) -> AsyncIterator[Finding]:
    for probe, answer in await answers_of_all(settings):
        if isinstance(answer, BackendError):
            step = f"start it, or correct {probe.key}"
            yield Finding("backends", "wrong", f"{probe.name} at {probe.address}: {answer}", step)
        else:
            yield Finding("backends", "ok", f"{probe.name} {answer} at {probe.address}")


def _print(findings: Sequence[Finding], screen: Screen) -> None:
    width = max(len(finding.area) for finding in findings)
    for finding in findings:
        sign, style = _SIGNS[finding.status]
        screen.show(Text.assemble((sign, style), f"  {finding.area:<{width}}  ", safe(finding.says)))
        if finding.next_step is not None:
            screen.show(Text.assemble(" " * (len(sign) + width + 4), ("next: ", "bold"), safe(finding.next_step)))
    wrong = sum(finding.status == "wrong" for finding in findings)
    warnings = sum(finding.status == "warning" for finding in findings)
    also = f", {counted(warnings, 'warning')}" if warnings else ""
    if wrong:
        screen.show(Text(f"{counted(wrong, 'problem')} found{also}.", style="bold red"))
    else:
        screen.show(Text(f"Nothing is wrong{also}.", style="bold yellow" if warnings else "bold green"))

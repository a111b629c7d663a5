"""`bench`: what a running server does under load."""

import asyncio
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from rag_context.api.operations import memory
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Options, Screen, safe, with_options
from rag_context.client.address import read_announcement
from rag_context.errors import InvalidInputError
from rag_context.evaluation.load import SAMPLES, SHARES, Limits, Load, Measured, Stage, picture
from rag_context.evaluation.remote import Server, reached
from rag_context.settings import Settings

DEFAULT_CLIENTS = "1,10,20,64"
MOST_CLIENTS = 1000
TITLES = 100
"""Documents whose titles are the questions, where no others are given."""

PAUSED_CLIENTS = 12
AFTER_PAUSE_S = 3.0
START_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions(Options):
    """What is measured, how, and the limits."""

    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The server; default: that of the data directory, else this machine's."),
    ] = None
    clients: Annotated[
        str, typer.Option(metavar="N,N,...", help="How many clients search at once, stage by stage.")
    ] = DEFAULT_CLIENTS
    seconds: Annotated[float, typer.Option(metavar="S", min=0.1, help="Length of a stage.")] = 20.0
    think: Annotated[
        float,
        typer.Option(metavar="S", min=0.0, help="Seconds that a client waits between an answer and its next search."),
    ] = 1.0
    questions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Questions, one a line; default: the titles of the newest documents."),
    ] = None
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Repeat the same questions, so that the result cache answers.")
    ] = False
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=20, help="Passages of an answer.")] = 5
    pause: Annotated[
        float,
        typer.Option(
            metavar="S", min=0.0, help="At the end, suspend the server's process (on this machine) for this long."
        ),
    ] = 0.0
    p95: Annotated[float, typer.Option(metavar="MS", help="Most milliseconds of 95 % of the answers.")] = 300.0
    p99: Annotated[float, typer.Option(metavar="MS", help="Most milliseconds of 99 % of the answers.")] = 500.0
    failures: Annotated[float, typer.Option(metavar="%", help="Most requests without an answer, in per cent.")] = 5.0
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture of the latencies.")] = None

    @property
    def stages(self) -> list[Stage]:
        """The stages, the last one with a pause if one is requested. Raises: InvalidInputError."""
        stages = [Stage(number, self.seconds) for number in _numbers(self.clients)]
        if self.pause:
            stages.append(Stage(PAUSED_CLIENTS, self.pause + AFTER_PAUSE_S, self.pause))
        return stages


@with_options
def bench(options: BenchOptions) -> ExitCode:
    """Measure a running server under load: latency, failures, and how complete its answers are; exits 1 beyond a limit.

    It only searches: nothing is stored, and `stats` does not count these searches.
    """
    if options.url is not None and not options.url.startswith(("http://", "https://")):
        raise InvalidInputError("--url must be an http:// or https:// address.")
    if options.pause and options.url is not None:
        raise InvalidInputError("--pause is for the server of this data directory: leave --url out.")
    screen, limits = Screen(), Limits(options.p95, options.p99, options.failures / 100.0)
    url, measured = run_to_end(_measure(options, screen))
    missed = [miss for each in measured for miss in each.misses(limits)]
    if options.svg is not None:
        _write(options.svg, picture(measured, limits))
    if options.as_json:
        stages = [each.as_json(limits) for each in measured]
        screen.line(json.dumps({"url": url, "passed": not missed, "stages": stages}))
    else:
        screen.show(_table(measured))
        for each in measured:
            for miss in [*each.misses(limits), *_reasons(each)]:
                screen.show(Text(safe(f"{each.stage.clients} clients: {miss}"), style="yellow"))
        verdict = ("Beyond the limits.", "bold red") if missed else ("Within the limits.", "bold green")
        screen.show(Text(*verdict))
    return ExitCode.FAILED if missed else ExitCode.OK


async def _measure(options: BenchOptions, screen: Screen) -> tuple[str, list[Measured]]:
    stages, settings = options.stages, options.load().settings
    typed = None if options.questions is None else _questions(options.questions)
    async with reached(settings, options.url, START_TIMEOUT_S) as server:
        await server.wait_ready(START_TIMEOUT_S)
        health = await server.health()
        if any(stage.pause_s for stage in stages) and any(each.name == "worker 1" for each in health.components):
            raise InvalidInputError("--pause stops one process, and this server has several workers.")
        questions = typed or await _titles(server)
        url, headers = server.api.url.rstrip("/"), dict(server.api.headers)
    load = Load(url, headers, questions, options.limit, options.think, options.repeat)
    screen.note(Text(safe(f"{url}: {health.indexed_documents} documents, {len(questions)} questions"), style="dim"))
    measured: list[Measured] = []
    with screen.progress() as progress:
        task = progress.add_task("", total=sum(stage.seconds for stage in stages))
        for stage in stages:
            progress.update(task, description=_named(stage))
            if not screen.err.is_terminal:
                screen.note(f"{_named(stage)} for {stage.seconds:g} s")
            measured.append(await load.run(stage, _stopping(settings) if stage.pause_s else None))
            progress.advance(task, stage.seconds)
    return url, measured


async def _titles(server: Server) -> list[str]:
    listed = await server.run(memory.LIST, {"limit": TITLES})
    return list(dict.fromkeys(each.title for each in listed.documents if each.title.strip())) or list(SAMPLES)


def _questions(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"--questions: {path} cannot be read ({type(error).__name__}).") from error
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise InvalidInputError(f"--questions: there is no question in {path}.")
    return found


class _Stopping:
    """Stops the process of the data directory's server, and lets it go on whatever happens meanwhile."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    async def __call__(self, seconds: float) -> None:
        await asyncio.sleep(AFTER_PAUSE_S / 3.0)
        os.kill(self._pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(self._pid, signal.SIGCONT)


def _stopping(settings: Settings) -> _Stopping:
    """Raises: InvalidInputError (no such process here)."""
    announced = read_announcement(settings.data_dir)
    if announced is None or not hasattr(signal, "SIGSTOP"):
        raise InvalidInputError("--pause needs a server of this data directory, on a system that can stop a process.")
    return _Stopping(announced.pid)


def _numbers(clients: str) -> list[int]:
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in clients.split(",")]
    if not all(1 <= number <= MOST_CLIENTS for number in numbers):
        raise InvalidInputError(f"--clients must be numbers from 1 to {MOST_CLIENTS}, separated by commas: 1,10,64.")
    return numbers


def _named(stage: Stage) -> str:
    clients = f"{stage.clients} client{'' if stage.clients == 1 else 's'}"
    return f"{clients}, stopped for {stage.pause_s:g} s" if stage.pause_s else clients


def _table(measured: list[Measured]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("answers/s", *SHARES, "complete", "level 2", "level 3, 4", "rejected", "failed"):
        table.add_column(heading, justify="right")
    for each in measured:
        answered, levels = len(each.took_ms), each.levels
        shares = (each.complete, levels[2], levels[3] + levels[4])
        table.add_row(
            _named(each.stage),
            f"{answered / each.stage.seconds:.1f}",
            *(f"{each.latency_ms(share):.0f} ms" for share in SHARES.values()),
            *(f"{count / max(answered, 1):.1%}" for count in shares),
            str(each.rejected),
            str(each.failures.total() - each.rejected),
        )
    return table


def _reasons(measured: Measured) -> list[str]:
    return [f"{count} x {reason}" for reason, count in measured.failures.most_common(3)]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"--svg: {path} cannot be written ({error.strerror}).") from error

"""`validate` and `bench`: whether a running server works as it should, and how it performs under load."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2

from rag_context.api.operations import memory
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console
from rag_context.cli.options import Options, option, with_options
from rag_context.client.address import read_announcement
from rag_context.errors import InvalidInputError
from rag_context.evaluation import validation as checks
from rag_context.evaluation.load import SAMPLES, SHARES, Load, LoadLimits, LoadStage, MeasuredLoad, picture
from rag_context.evaluation.measures import Latency
from rag_context.evaluation.remote import Api, bearer, reached
from rag_context.settings import Settings
from rag_context.settings.installation import install_command

_RULE = "═" * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOptions(Options):
    url: str | None = option(
        None, "The server; default: that of the data directory, else this machine's.", metavar="URL"
    )
    skip_accuracy: bool = option(False, "Index and search nothing: a quick check of the components.")
    end_to_end: bool = option(False, "Also index 50 documents and run 50 queries.")
    lm_studio_url: str | None = option(
        None, "Take the embedding samples from this OpenAI-compatible server.", metavar="URL"
    )
    qdrant_url: str | None = option(None, "Check the health of this Qdrant.", metavar="URL")
    mongodb_uri: str | None = option(None, "Connect to this MongoDB, with its driver.", metavar="URI")
    timeout: float = option(30.0, "Timeout of one step, in seconds.", metavar="S")


@with_options
def validate(options: ValidateOptions) -> ExitCode:
    """Check a running server: components, vectors, retrieval accuracy, latency; exits 1 if a check fails.

    Test documents go into a project of their own, which no agent searches, and are deleted again.
    """
    console = Console()
    if options.timeout <= 0:
        raise InvalidInputError("--timeout must be above 0.")
    _check_address("--url", options.url)
    _check_address("--lm-studio-url", options.lm_studio_url)
    _check_address("--qdrant-url", options.qdrant_url)
    if options.mongodb_uri is not None and find_spec("pymongo") is None:
        raise InvalidInputError(f"--mongodb-uri needs MongoDB's driver: run `{install_command('mongodb')}`.")
    settings = options.load().settings
    printer = _Printer(console)
    url, report = run_to_end(_validate(settings, options, (lambda _event: None) if options.as_json else printer))
    if options.as_json:
        console.line(json.dumps({"url": url, **report_json(report)}))
    else:
        printer.summary(report)
        if "did not answer" in report.steps[0].detail:
            console.note("`rag-context serve` starts a server here; --url names one that runs elsewhere.")
    return ExitCode.OK if report.passed else ExitCode.FAILED


async def _validate(
    settings: Settings, options: ValidateOptions, on_event: Callable[[checks.Event], None]
) -> tuple[str, checks.ValidationReport]:
    async with reached(settings, options.url, options.timeout) as server:
        client = server.api.client
        validation = checks.Validation(
            server,
            options.timeout,
            on_event,
            lm_studio=_api(client, options.lm_studio_url, bearer(settings.embedder.api_key)),
            qdrant=_api(client, options.qdrant_url, {}),
            mongodb_uri=options.mongodb_uri,
        )
        report = validation.report
        report.skipped_accuracy = options.skip_accuracy
        await validation.infrastructure()
        await validation.embeddings()
        if not options.skip_accuracy:
            await validation.accuracy()
        validation.latency()
        if options.end_to_end:
            await validation.end_to_end()
    return server.api.url, report


def report_json(report: checks.ValidationReport) -> dict[str, Any]:
    found: dict[str, Any] = {
        "passed": report.passed,
        "steps": [asdict(step) for step in report.steps],
        "accuracy": None,
        "latency": _latency_json(report.latency),
        "warnings": report.warnings,
    }
    if report.accuracy is not None:
        names = ("question", "keyword", "found")
        searches = [{name: getattr(check, name) for name in names} for check in report.checks]
        found["accuracy"] = {"value": report.accuracy, "required": checks.REQUIRED_ACCURACY, "checks": searches}
    ended = report.end_to_end
    if ended is not None:
        found["endToEnd"] = {
            "passed": ended.passed,
            "documents": ended.documents,
            "questions": ended.questions,
            "successAt3": ended.success,
            "missed": list(ended.missed),
            **_latency_json(ended.latency),
            "fallbackRate": ended.fallback_rate,
        }
    return found


def _latency_json(latency: Latency) -> dict[str, float]:
    return {"averageMs": latency.average_ms, "p95Ms": latency.p95_ms, "p99Ms": latency.p99_ms}


class _Printer:
    """Prints what happens as it happens, in the words of the original script."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, event: checks.Event) -> None:
        match event:
            case checks.Heading(text):
                self._line("")
                self._line(text, "yellow")
                self._line(_RULE, "yellow")
            case checks.Step(name, passed, detail):
                verdict = (" PASSED", "green") if passed else (" FAILED", "bold red")
                self._console.show(f"Testing: {name}...", verdict)
                self._line(f"  {detail}" if passed else f"  Error: {detail}", "cyan" if passed else "red")
            case checks.Check(question, keyword, found, latency_ms, results):
                mark, style = ("✓", "green") if found else ("✗", "red")
                self._line(f"  {mark} '{question}' looking for '{keyword}'", style)
                self._line(f"      Latency: {latency_ms:.0f}ms, Results: {results}", "cyan")
            case Latency(average_ms, p95_ms, p99_ms):
                self._line(f"  Average Latency: {average_ms:.1f}ms", "cyan")
                self._line(f"  P95 Latency: {p95_ms:.0f}ms", "cyan")
                self._line(f"  P99 Latency: {p99_ms:.0f}ms", "cyan")
            case checks.Warned(text):
                self._line(f"  WARNING: {text}", "yellow")

    def summary(self, report: checks.ValidationReport) -> None:
        for text in ("", _RULE, "SUMMARY", _RULE):
            self._line(text, "cyan")
        passed = sum(step.passed for step in report.steps)
        self._line("Infrastructure Tests:")
        self._line(f"  Passed: {passed}", "green")
        self._line(f"  Failed: {len(report.steps) - passed}", "red")
        if report.accuracy is not None:
            self._line("Retrieval Accuracy:")
            found = sum(check.found for check in report.checks)
            self._line(f"  {report.accuracy:.1%} ({found}/{len(checks.PROBES)})", "green" if report.accurate else "red")
            self._line(f"  Required: {checks.REQUIRED_ACCURACY:.0%}", "dim")
        self._line(_RULE, "cyan")
        self._verdict(report)

    def _verdict(self, report: checks.ValidationReport) -> None:
        if report.passed:
            self._line("✓ PRE-VALIDATION PASSED", "bold green")
            if report.accuracy is not None:
                self._line(f"Accuracy gate: {report.accuracy:.1%} (required: {checks.REQUIRED_ACCURACY:.0%})", "green")
        elif report.sound:
            self._line("⚠ INFRASTRUCTURE PASSED, ACCURACY FAILED", "bold yellow")
            self._line("Check embedding quality and verify indexing completed", "yellow")
        else:
            self._line("✗ PRE-VALIDATION FAILED", "bold red")
            self._line("Fix infrastructure failures before proceeding", "red")

    def _line(self, text: str, style: str = "") -> None:
        self._console.show((text, style))


def _check_address(option: str, url: str | None) -> None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidInputError(f"{option} must be an http:// or https:// address.")


def _api(client: httpx2.AsyncClient, url: str | None, headers: dict[str, str]) -> Api | None:
    return None if url is None else Api(client, url, headers)


DEFAULT_CLIENTS = "1,10,20,64"
MOST_CLIENTS = 1000
TITLES = 100
"""Documents whose titles are the questions, where no others are given."""

PAUSED_CLIENTS = 12
AFTER_PAUSE_S = 3.0
START_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions(Options):
    url: str | None = option(
        None, "The server; default: that of the data directory, else this machine's.", metavar="URL"
    )
    clients: str = option(DEFAULT_CLIENTS, "How many clients search at once, stage by stage.", metavar="N,N,...")
    seconds: float = option(20.0, "Length of a stage.", metavar="S", min=0.1)
    think: float = option(
        1.0, "Seconds that a client waits between an answer and its next search.", metavar="S", min=0.0
    )
    questions: Path | None = option(
        None, "Questions, one a line; default: the titles of the newest documents.", metavar="FILE"
    )
    repeat: bool = option(False, "Repeat the same questions, so that the result cache answers.")
    limit: int = option(5, "Passages of an answer.", metavar="N", min=1, max=20)
    pause: float = option(
        0.0, "At the end, suspend the server's process (on this machine) for this long.", metavar="S", min=0.0
    )
    p95: float = option(300.0, "Maximum p95 of the latency, in milliseconds.", metavar="MS")
    p99: float = option(500.0, "Maximum p99 of the latency, in milliseconds.", metavar="MS")
    failures: float = option(5.0, "Maximum share of requests without an answer, in per cent.", metavar="%")
    svg: Path | None = option(None, "Write a picture of the latencies.", metavar="FILE")

    @property
    def stages(self) -> list[LoadStage]:
        """The stages, the last one with a pause if one is requested. Raises: InvalidInputError."""
        numbers = [int(part) if part.strip().isdecimal() else 0 for part in self.clients.split(",")]
        if not all(1 <= number <= MOST_CLIENTS for number in numbers):
            raise InvalidInputError(
                f"--clients must be numbers from 1 to {MOST_CLIENTS}, separated by commas: 1,10,64."
            )
        stages = [LoadStage(number, self.seconds) for number in numbers]
        if self.pause:
            stages.append(LoadStage(PAUSED_CLIENTS, self.pause + AFTER_PAUSE_S, self.pause))
        return stages


@with_options
def bench(options: BenchOptions) -> ExitCode:
    """Measure a running server under load: latency, failures, and how complete its answers are; exits 1 beyond a limit.

    It only searches: nothing is stored, and `stats` does not count these searches.
    """
    _check_address("--url", options.url)
    if options.pause and options.url is not None:
        raise InvalidInputError("--pause is for the server of this data directory: leave --url out.")
    console, limits = Console(), LoadLimits(options.p95, options.p99, options.failures / 100.0)
    url, measured = run_to_end(_measure(options, console))
    missed = [miss for each in measured for miss in each.misses(limits)]
    if options.svg is not None:
        try:
            options.svg.write_text(picture(measured, limits), encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(f"--svg: {options.svg} cannot be written ({error.strerror}).") from error
    if options.as_json:
        stages = [each.as_json(limits) for each in measured]
        console.line(json.dumps({"url": url, "passed": not missed, "stages": stages}))
    else:
        figures = ("answers/s", *SHARES, "complete", "level 2", "level 3, 4", "rejected", "failed")
        console.show_table(("", *figures), map(_row, measured), right=figures)
        for each in measured:
            for miss in [
                *each.misses(limits),
                *(f"{count} x {reason}" for reason, count in each.failures.most_common(3)),
            ]:
                console.show((f"{each.stage.clients} clients: {miss}", "yellow"))
        console.show(("Beyond the limits.", "bold red") if missed else ("Within the limits.", "bold green"))
    return ExitCode.FAILED if missed else ExitCode.OK


async def _measure(options: BenchOptions, console: Console) -> tuple[str, list[MeasuredLoad]]:
    stages, settings = options.stages, options.load().settings
    typed = None if options.questions is None else _questions(options.questions)
    async with reached(settings, options.url, START_TIMEOUT_S) as server:
        await server.wait_ready(START_TIMEOUT_S)
        health = await server.health()
        if any(stage.pause_s for stage in stages) and any(each.name == "worker 1" for each in health.components):
            raise InvalidInputError("--pause stops one process, and this server has several workers.")
        questions = typed
        if not questions:
            listed = await server.run(memory.LIST, {"limit": TITLES})
            questions = list(dict.fromkeys(each.title for each in listed.documents if each.title.strip())) or list(
                SAMPLES
            )
        url, headers = server.api.url.rstrip("/"), dict(server.api.headers)
    load = Load(url, headers, questions, options.limit, options.think, options.repeat)
    console.note((f"{url}: {health.indexed_documents} documents, {len(questions)} questions", "dim"))
    measured: list[MeasuredLoad] = []
    with console.progress() as progress:
        task = progress.add_task("", total=sum(stage.seconds for stage in stages))
        for stage in stages:
            progress.update(task, description=_named(stage))
            if not console.has_bars:
                console.note(f"{_named(stage)} for {stage.seconds:g} s")
            measured.append(await load.run(stage, _suspension(settings) if stage.pause_s else None))
            progress.advance(task, stage.seconds)
    return url, measured


def _questions(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"--questions: {path} cannot be read ({type(error).__name__}).") from error
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise InvalidInputError(f"--questions: there is no question in {path}.")
    return found


def _suspension(settings: Settings) -> Callable[[float], Coroutine[Any, Any, None]]:
    """Suspends the process of the data directory's server. Raises: InvalidInputError (no such process here)."""
    announced = read_announcement(settings.data_dir)
    if announced is None or not hasattr(signal, "SIGSTOP"):
        raise InvalidInputError("--pause needs a server of this data directory, on a system that can stop a process.")
    return partial(_suspend, announced.pid)


async def _suspend(pid: int, seconds: float) -> None:
    """Suspend a process for a time, and let it go on whatever happens meanwhile."""
    await asyncio.sleep(AFTER_PAUSE_S / 3.0)
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def _named(stage: LoadStage) -> str:
    clients = f"{stage.clients} client{'' if stage.clients == 1 else 's'}"
    return f"{clients}, stopped for {stage.pause_s:g} s" if stage.pause_s else clients


def _row(measured: MeasuredLoad) -> list[str]:
    answered, levels = len(measured.took_ms), measured.levels
    shares = (measured.complete, levels[2], levels[3] + levels[4])
    return [
        _named(measured.stage),
        f"{answered / measured.stage.seconds:.1f}",
        *(f"{measured.latency_ms(share):.0f} ms" for share in SHARES.values()),
        *(f"{count / max(answered, 1):.1%}" for count in shares),
        str(measured.rejected),
        str(measured.failures.total() - measured.rejected),
    ]

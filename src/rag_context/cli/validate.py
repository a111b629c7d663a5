"""`validate`: the gate before a system is put to work, against any running server."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import httpx2
import typer
from rich.text import Text

from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Options, Screen, safe, with_options
from rag_context.errors import InvalidInputError
from rag_context.evaluation.remote import Api, bearer, reached
from rag_context.evaluation.validation import (
    PROBES,
    REQUIRED_ACCURACY,
    Backends,
    Check,
    Event,
    Heading,
    Latency,
    Report,
    Step,
    Validation,
    Warned,
)
from rag_context.settings import Settings

_RULE = "═" * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOptions(Options):
    """What is validated, and how."""

    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The server; default: that of the data directory, else this machine's."),
    ] = None
    skip_accuracy: Annotated[
        bool, typer.Option("--skip-accuracy", help="Index and search nothing: a quick check of the components.")
    ] = False
    end_to_end: Annotated[bool, typer.Option("--end-to-end", help="Also index 50 documents and run 50 queries.")] = (
        False
    )
    lm_studio_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Take the embedding samples from this OpenAI-compatible server.")
    ] = None
    qdrant_url: Annotated[str | None, typer.Option(metavar="URL", help="Check the health of this Qdrant.")] = None
    mongodb_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="Connect to this MongoDB; no password is sent.")
    ] = None
    timeout: Annotated[float, typer.Option(metavar="S", help="Timeout of one step, in seconds.")] = 30.0


@with_options
def validate(options: ValidateOptions) -> ExitCode:
    """Check that a running server is fit for work: parts, vectors, retrieval accuracy, latency; exits 1 if not.

    Test documents go into a project of their own, which no agent searches, and are deleted again.
    """
    screen = Screen()
    _check(options)
    settings = options.load().settings
    printer = _Printer(screen)
    url, report = run_to_end(_validate(settings, options, (lambda _event: None) if options.as_json else printer))
    if options.as_json:
        screen.line(json.dumps({"url": url, **as_json(report)}))
    else:
        printer.summary(report)
        if "did not answer" in report.steps[0].detail:
            screen.note("`rag-context serve` starts a server here; --url names one that runs elsewhere.")
    return ExitCode.OK if report.passed else ExitCode.FAILED


async def _validate(
    settings: Settings, options: ValidateOptions, on_event: Callable[[Event], None]
) -> tuple[str, Report]:
    async with reached(settings, options.url, options.timeout) as server:
        client = server.api.client
        backends = Backends(
            lm_studio=_api(client, options.lm_studio_url, bearer(settings.embedder.api_key)),
            qdrant=_api(client, options.qdrant_url, {}),
            mongodb_uri=options.mongodb_uri,
        )
        validation = Validation(server, backends, timeout_s=options.timeout, on_event=on_event)
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


def as_json(report: Report) -> dict[str, Any]:
    """The report for programs."""
    latency = report.latency
    found: dict[str, Any] = {
        "passed": report.passed,
        "steps": [{"name": step.name, "passed": step.passed, "detail": step.detail} for step in report.steps],
        "accuracy": None
        if report.accuracy is None
        else {
            "value": report.accuracy,
            "required": REQUIRED_ACCURACY,
            "checks": [
                {"question": check.question, "keyword": check.keyword, "found": check.found} for check in report.checks
            ],
        },
        "latency": {"averageMs": latency.average_ms, "p95Ms": latency.p95_ms, "p99Ms": latency.p99_ms},
        "warnings": report.warnings,
    }
    ended = report.end_to_end
    if ended is not None:
        found["endToEnd"] = {
            "passed": ended.passed,
            "documents": ended.documents,
            "questions": ended.questions,
            "successAt3": ended.success,
            "missed": list(ended.missed),
            "averageMs": ended.average_ms,
            "p95Ms": ended.p95_ms,
            "p99Ms": ended.p99_ms,
            "fallbackRate": ended.fallback_rate,
        }
    return found


class _Printer:
    """Prints what happens as it happens, in the words of the original script."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __call__(self, event: Event) -> None:
        match event:
            case Heading(text):
                self._line("")
                self._line(text, "yellow")
                self._line(_RULE, "yellow")
            case Step(name, passed, detail):
                verdict = (" PASSED", "green") if passed else (" FAILED", "bold red")
                self._screen.show(Text.assemble(f"Testing: {name}...", verdict))
                self._line(f"  {detail}" if passed else f"  Error: {detail}", "cyan" if passed else "red")
            case Check(question, keyword, found, latency_ms, results):
                mark, style = ("✓", "green") if found else ("✗", "red")
                self._line(f"  {mark} '{question}' looking for '{keyword}'", style)
                self._line(f"      Latency: {latency_ms:.0f}ms, Results: {results}", "cyan")
            case Latency(average_ms, p95_ms, p99_ms):
                self._line(f"  Average Latency: {average_ms:.1f}ms", "cyan")
                self._line(f"  P95 Latency: {p95_ms:.0f}ms", "cyan")
                self._line(f"  P99 Latency: {p99_ms:.0f}ms", "cyan")
            case Warned(text):
                self._line(f"  WARNING: {text}", "yellow")

    def summary(self, report: Report) -> None:
        for text in ("", _RULE, "SUMMARY", _RULE):
            self._line(text, "cyan")
        passed = sum(step.passed for step in report.steps)
        self._line("Infrastructure Tests:")
        self._line(f"  Passed: {passed}", "green")
        self._line(f"  Failed: {len(report.steps) - passed}", "red")
        if report.accuracy is not None:
            self._line("Retrieval Accuracy:")
            found = sum(check.found for check in report.checks)
            self._line(f"  {report.accuracy:.1%} ({found}/{len(PROBES)})", "green" if report.accurate else "red")
            self._line(f"  Required: {REQUIRED_ACCURACY:.0%}", "dim")
        self._line(_RULE, "cyan")
        self._verdict(report)

    def _verdict(self, report: Report) -> None:
        if report.passed:
            self._line("✓ PRE-VALIDATION PASSED", "bold green")
            if report.accuracy is not None:
                self._line(f"Accuracy gate: {report.accuracy:.1%} (required: {REQUIRED_ACCURACY:.0%})", "green")
        elif report.sound:
            self._line("⚠ INFRASTRUCTURE PASSED, ACCURACY FAILED", "bold yellow")
            self._line("Check embedding quality and verify indexing completed", "yellow")
        else:
            self._line("✗ PRE-VALIDATION FAILED", "bold red")
            self._line("Fix infrastructure failures before proceeding", "red")

    def _line(self, text: str, style: str = "") -> None:
        self._screen.show(Text(safe(text), style=style))


def _check(options: ValidateOptions) -> None:
    if options.timeout <= 0:
        raise InvalidInputError("--timeout must be above 0.")
    for name, url in (
        ("--url", options.url),
        ("--lm-studio-url", options.lm_studio_url),
        ("--qdrant-url", options.qdrant_url),
    ):
        if url is not None and not url.startswith(("http://", "https://")):
            raise InvalidInputError(f"{name} must be an http:// or https:// address.")


def _api(client: httpx2.AsyncClient, url: str | None, headers: dict[str, str]) -> Api | None:
    return None if url is None else Api(client, url, headers)

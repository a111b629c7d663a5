"""The state of the memory: `health`, `stats` and `status`."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.table import Table
from rich.text import Text

from rag_context.api.maintenance import HealthRequest, HealthResponse, StatsRequest, StatsResponse, TimeRange, TimeSpan
from rag_context.api.operations import Operation, memory
from rag_context.api.stored_documents import ListRequest, ListResponse
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.connecting import open_connection
from rag_context.cli.console import Options, Screen, counted, safe, with_options
from rag_context.cli.operation_options import Fields, read_typed, with_fields
from rag_context.domain.documents import Status
from rag_context.settings import Loaded

LATEST = 5
"""Documents that `status` shows."""

_STYLES = {Status.HEALTHY: "green", Status.DEGRADED: "yellow", Status.UNAVAILABLE: "bold red"}
_BARS = "·▁▂▃▄▅▆▇█"


@with_options
def health(options: Options) -> ExitCode:
    """Check every component; exits 1 when the system is not healthy."""
    place, (report,) = run_to_end(_run(options.load_available(), (memory.HEALTH, HealthRequest())))
    options.show(report, partial(_print_health, place))
    return ExitCode.OK if report.healthy else ExitCode.FAILED


@with_fields(memory.STATS)
def stats(fields: Fields, options: Options) -> ExitCode:
    """Show statistics of the searches of a time range."""
    loaded = options.load_available()
    request = read_typed(memory.STATS.request, fields, loaded.settings)
    _, (report,) = run_to_end(_run(loaded, (memory.STATS, request)))
    options.show(report, partial(_print_stats, request.time_range))
    return ExitCode.OK


@with_options
def status(options: Options) -> ExitCode:
    """Show the state of every component, the searches of the last day and the latest documents; exits as `health`."""
    screen = Screen()
    calls = ((memory.HEALTH, HealthRequest()), (memory.STATS, StatsRequest()), (memory.LIST, ListRequest(limit=LATEST)))
    place, (health, stats, latest) = run_to_end(_run(options.load_available(), *calls))
    if options.as_json:
        reports = {"health": health, "stats": stats, "latest": latest}
        named = {name: json.loads(report.to_json()) for name, report in reports.items()}
        screen.line(json.dumps({"place": place, **named}))
    else:
        _print_health(place, health, screen)
        _print_searches(stats, screen)
        _print_latest(latest, screen)
    return ExitCode.OK if health.healthy else ExitCode.FAILED


async def _run(loaded: Loaded, *calls: tuple[Operation[Any, Any], Any]) -> tuple[str, list[Any]]:
    """Where the memory is, and what each operation answers."""
    async with open_connection(loaded) as connection:
        return connection.place, [await connection.run(operation, request) for operation, request in calls]


def _print_health(place: str, report: HealthResponse, screen: Screen) -> None:
    state = ("healthy", "bold green") if report.healthy else ("not healthy", "bold red")
    if report.healthy and report.indexing:
        state = ("healthy, indexing", "bold green")
    screen.show(Text.assemble(state, f" · {place} · rag-context {report.version}"))
    table = Table(box=None, pad_edge=False)
    for column in ("Part", "Role", "Status", "Latency", "Detail"):
        table.add_column(
            column,
            justify="right" if column == "Latency" else "left",
            overflow="fold",
            no_wrap=column in {"Status", "Latency"},
        )
    for component in report.components:
        table.add_row(
            component.name,
            component.role,
            Text(component.status.value, style=_STYLES[component.status]),
            "" if component.latency_ms is None else f"{component.latency_ms:.1f} ms",
            safe(component.detail or ""),
        )
    screen.show(table)
    model = report.embedding_model
    name = f"{model.name} ({model.dimension} dimensions)" if model else "not known yet"
    screen.show(f"{counted(report.indexed_documents, 'document')}, {report.pending_documents} pending · model {name}")
    if report.circuit_breaker_open:
        screen.show(Text("The circuit breaker is open: searches are answered without results.", style="bold red"))


def _print_stats(time_range: TimeRange, report: StatsResponse, screen: Screen) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in (
        ("Documents", str(report.total_documents)),
        ("Said or written", _days(report.occurred)),
        ("Indexed", _days(report.indexed)),
        (f"Queries in {time_range}", str(report.total_queries)),
        ("Latency", f"{report.avg_latency:.1f} ms average"),
        ("", f"{report.p95_latency:.1f} ms p95, {report.p99_latency:.1f} ms p99"),
        ("From the cache", f"{report.cache_hit_rate:.1%}"),
        ("At a fallback level", f"{report.fallback_rate:.1%}"),
        ("By level", _counts(report.queries_by_level)),
        ("By agent", _counts(report.queries_by_agent)),
        ("By game", _counts(report.queries_by_game)),
        ("Over time", _sparkline([bucket.queries for bucket in report.timeline])),
    ):
        if value:
            table.add_row(name, safe(value))
    screen.show(table)


def _days(span: TimeSpan | None) -> str:
    if span is None:
        return ""
    first, last = (f"{moment.astimezone():%Y-%m-%d}" for moment in (span.first, span.last))
    return first if first == last else f"{first} to {last}"


def _print_searches(report: StatsResponse, screen: Screen) -> None:
    if not report.total_queries:
        screen.show("No searches in 24h")
        return
    screen.show(
        f"{counted(report.total_queries, 'search', 'searches')} in 24h · {report.avg_latency:.1f} ms average, "
        f"{report.p99_latency:.1f} ms p99 · {report.cache_hit_rate:.0%} from the cache, "
        f"{report.fallback_rate:.1%} at a fallback level"
    )
    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_row("Searches", _sparkline([bucket.queries for bucket in report.timeline]))
    rows.add_row("Latency p95", _sparkline([bucket.p95_latency for bucket in report.timeline]))
    screen.show(rows)


def _print_latest(latest: ListResponse, screen: Screen) -> None:
    if not latest.documents:
        screen.show(Text("The index is empty: `rag-context index PATH...` fills it.", style="yellow"))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("Latest documents", "Type", "Title", "Source"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for document in latest.documents:
        when = f"{document.timestamp.astimezone():%Y-%m-%d %H:%M}"
        pending = Text(" pending", style="yellow") if document.status == "pending" else Text()
        title = Text.assemble(safe(document.title), pending)
        table.add_row(when, safe(document.content_type), title, safe(document.source))
    screen.show(table)


def _counts(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name}: {count}" for name, count in most)


def _sparkline(values: Sequence[float]) -> str:
    top = max(values, default=0)
    return "".join(_BARS[math.ceil(value * (len(_BARS) - 1) / top)] for value in values) if top else ""

"""The state of the memory: `health`, `stats` and `status`, and `clear-queries`."""

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rag_context.api.maintenance import HealthRequest, HealthResponse, StatsRequest, StatsResponse, TimeRange, TimeSpan
from rag_context.api.operations import Operation, memory
from rag_context.api.stored_documents import ListRequest, ListResponse
from rag_context.cli import connecting, memory_commands, operation_options, server_call
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console, ask_first, counted
from rag_context.cli.options import Options, Yes, with_options
from rag_context.domain.documents import Status
from rag_context.domain.reports import COUNTED_FIELDS
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


@operation_options.with_fields(memory.STATS)
def stats(fields: operation_options.Fields, options: Options) -> ExitCode:
    """Show statistics of the searches of a time range."""
    time_range = fields.get("time_range", StatsRequest().time_range)
    return memory_commands.run(memory.STATS, fields, options, partial(_print_stats, time_range))


@operation_options.with_fields(memory.CLEAR_QUERIES)
def clear_queries(fields: operation_options.Fields, *, yes: Yes = False, options: Options) -> ExitCode:
    """Delete the records of searches for good: the queries, and the statistics made of them. Documents stay."""
    loaded = options.load_available()
    request = operation_options.read_typed(memory.CLEAR_QUERIES.request, fields, loaded.settings)
    if not yes:
        ask_first("Delete the recorded queries and their statistics for good?")
    report = server_call.answer_of(loaded, memory.CLEAR_QUERIES, request)
    options.show(report, lambda _, console: console.show(f"{counted(report.deleted_count, 'record')} deleted"))
    return ExitCode.OK


@with_options
def status(options: Options) -> ExitCode:
    """Show the state of every component, the searches of the last day and the latest documents; exits as `health`."""
    console = Console()
    calls = ((memory.HEALTH, HealthRequest()), (memory.STATS, StatsRequest()), (memory.LIST, ListRequest(limit=LATEST)))
    place, (health, stats, latest) = run_to_end(_run(options.load_available(), *calls))
    if options.as_json:
        reports = {"health": health, "stats": stats, "latest": latest}
        named = {name: json.loads(report.to_json()) for name, report in reports.items()}
        console.line(json.dumps({"place": place, **named}))
    else:
        _print_health(place, health, console)
        _print_searches(stats, console)
        _print_latest(latest, console)
    return ExitCode.OK if health.healthy else ExitCode.FAILED


async def _run(loaded: Loaded, *calls: tuple[Operation[Any, Any], Any]) -> tuple[str, list[Any]]:
    async with connecting.open_connection(loaded) as connection:
        return connection.place, [await connection.run(operation, request) for operation, request in calls]


def _print_health(place: str, report: HealthResponse, console: Console) -> None:
    state = ("healthy", "bold green") if report.healthy else ("not healthy", "bold red")
    if report.healthy and report.indexing:
        state = ("healthy, indexing", "bold green")
    console.show(state, f" · {place} · rag-context {report.version}")
    rows = [
        (
            component.name,
            (component.status.value, _STYLES[component.status]),
            "" if component.latency_ms is None else f"{component.latency_ms:.1f} ms",
            component.detail or component.role,
        )
        for component in report.components
    ]
    titles = ("Part", "Status", "Latency", "Detail")
    console.show_table(titles, rows, right={"Latency"}, unwrapped={"Status", "Latency"})
    model = report.embedding_model
    name = f"{model.name} ({model.dimension} dimensions)" if model else "not known yet"
    console.show(f"{counted(report.indexed_documents, 'document')}, {report.pending_documents} pending · model {name}")
    if report.circuit_breaker_open:
        console.show(("The circuit breaker is open: searches are answered without results.", "bold red"))


def _print_stats(time_range: TimeRange, report: StatsResponse, console: Console) -> None:
    fields = (
        ("Documents", str(report.total_documents)),
        ("Said or written", _days(report.occurred)),
        ("Indexed", _days(report.indexed)),
        ("Whose words", _counts(report.passages_by_origin or {})),
        (f"Queries in {time_range}", str(report.total_queries)),
        ("Latency", f"{report.avg_latency:.1f} ms average"),
        ("", f"{report.p95_latency:.1f} ms p95, {report.p99_latency:.1f} ms p99"),
        ("From the cache", f"{report.cache_hit_rate:.1%}"),
        ("Fallbacks", f"{report.fallback_rate:.1%}"),
        ("By level", _counts(report.queries_by_level_name())),
        ("By agent", _counts(report.queries_by_agent)),
        *((f"By {name}", _counts(getattr(report, f"queries_by_{name}"))) for name in COUNTED_FIELDS),
        ("Embedding cache", f"{report.embedding_cache_hits} found, {report.embedding_cache_misses} not"),
        ("Over time", _sparkline([bucket.queries for bucket in report.timeline])),
    )
    console.show_fields(fields)


def _days(span: TimeSpan | None) -> str:
    if span is None:
        return ""
    first, last = (f"{moment.astimezone():%Y-%m-%d}" for moment in (span.first, span.last))
    return first if first == last else f"{first} to {last}"


def _print_searches(report: StatsResponse, console: Console) -> None:
    if not report.total_queries:
        console.show("No searches in 24h")
        return
    incomplete = report.queries_with_vectors_incomplete / report.total_queries
    console.show(
        f"{counted(report.total_queries, 'search', 'searches')} in 24h · {report.avg_latency:.1f} ms average, "
        f"{report.p99_latency:.1f} ms p99 · {report.cache_hit_rate:.0%} from the cache, "
        f"{report.fallback_rate:.1%} fallbacks" + (f", {incomplete:.1%} with vectors incomplete" if incomplete else "")
    )
    searches = _sparkline([bucket.queries for bucket in report.timeline])
    latencies = _sparkline([bucket.p95_latency for bucket in report.timeline])
    console.show_fields([("Searches", searches), ("Latency p95", latencies)])


def _print_latest(latest: ListResponse, console: Console) -> None:
    if not latest.documents:
        console.show(("The index is empty: `rag-context index PATH...` fills it.", "yellow"))
        return
    console.show(("Latest documents", "bold"))
    memory_commands.print_documents(latest.documents, console)


def _counts(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name}: {count}" for name, count in most)


def _sparkline(values: Sequence[float]) -> str:
    top = max(values, default=0)
    return "".join(_BARS[math.ceil(value * (len(_BARS) - 1) / top)] for value in values) if top else ""

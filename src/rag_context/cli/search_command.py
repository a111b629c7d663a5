"""The command `search`: the request that was typed, and its answer for people. It loads no other operation's models."""

from datetime import datetime
from glob import escape
from pathlib import Path

from rag_context.api.operations.search import SEARCH
from rag_context.api.search import Explain, SearchRequest, SearchResponse, SearchResult, level_name
from rag_context.cli.command_line import ExitCode
from rag_context.cli.console import Console, Part, ago, counted, one_line, safe
from rag_context.cli.operation_options import Fields, Name, read_typed, with_fields
from rag_context.cli.options import Options
from rag_context.cli.server_call import answer_of
from rag_context.settings import Settings

SNIPPET_CHARS = 400
SNIPPET_LINES = 8
AROUND_CHARS = 120
"""Characters shown of the messages before and after a passage of a conversation."""

AGENT = "cli"


@with_fields(
    SEARCH,
    {
        "source": Name(None, "SOURCE", "A source, a file or a folder; ending in * a prefix."),
        "mode": Name(None, None, "Hybrid search, vector search or keyword search."),
        "explain": Name(None, None, "Show rank and raw scores of each result."),
    },
)
def search(fields: Fields, options: Options) -> ExitCode:
    """Search for the passages that answer a question."""
    loaded = options.load_available()
    request = request_of(fields, loaded.settings, cwd=Path.cwd())
    response = answer_of(loaded, SEARCH, request)
    options.show(response, _print_results)
    return ExitCode.OK if response.fallback_level <= 2 else ExitCode.FAILED


def request_of(fields: Fields, settings: Settings, *, cwd: Path, now: datetime | None = None) -> SearchRequest:
    """The request that was typed: a source on disk by its path, and a name for the statistics.

    Raises: InvalidInputError (with a line for each thing that is wrong, in the words of the command line).
    """
    source = fields.get("source")
    found = {"source": source_filter(source, cwd)} if source else {}
    return read_typed(SEARCH.request, {"agent": AGENT, **fields, **found}, settings, now=now)


def source_filter(source: str, cwd: Path) -> str:
    """A source as the index knows it: what is on disk by its absolute POSIX path, a folder with all below it."""
    try:
        return _on_disk(source, cwd) or source
    except (OSError, ValueError):  # no name that a disk could hold
        return source


def _on_disk(source: str, cwd: Path) -> str | None:
    start = source.removesuffix("*")
    path = (cwd / start).resolve()
    if start and path.is_dir() and (start == source or start.endswith("/")):
        return f"{path.as_posix().rstrip('/')}/*"
    if start == source:
        return path.as_posix() if path.exists() else None
    return f"{path.as_posix()}*" if start and any(path.parent.glob(f"{escape(path.name)}*")) else None


def _print_results(response: SearchResponse, console: Console) -> None:
    cwd = Path.cwd()
    if response.warning:
        console.warning(response.warning)
    console.show(*_headline(response))
    if response.interpreted is not None:
        console.show((response.interpreted.sentence(), "dim"))
    for number, result in enumerate(response.results, 1):
        console.show("")
        console.show(*_result_line(number, result, cwd))
        if result.heading:
            console.show_below(result.heading, "italic")
        around = result.context
        if around is not None and around.before:
            console.show_below(f"> {snippet(around.before, AROUND_CHARS)}", "dim italic")
        console.show_below(snippet(result.content), "dim")
        for sentence in filter(None, (each.sentence() for each in result.references or ())):
            console.show_below(sentence, "yellow")
        if around is not None and around.after:
            console.show_below(f"> {snippet(around.after, AROUND_CHARS)}", "dim italic")
        if result.explain:
            console.show_below(_explanation(result.explain), "cyan")
    if not response.results:
        console.show((_advice(response), "yellow"))
    if response.standing:
        console.show("")
        console.show(("Standing instructions that may apply", "bold"))
    for each in response.standing or ():
        console.show_below(f"{each.occurred_at.date()} {snippet(each.content)}", "dim")


def _headline(response: SearchResponse) -> list[Part]:
    level = f"level {response.fallback_level}"
    if response.fallback_level > 1:
        level += f" ({level_name(response)})"
    line: list[Part] = [
        (level, "green" if response.fallback_level == 1 else "bold yellow"),
        f" · {response.latency:.1f} ms{' (cached)' if response.cached else ''} · ",
        f"{counted(len(response.results), 'result')} from {counted(response.total_indexed, 'document')}",
    ]
    if len(response.results) > 1:
        line.append((", best first; the numbers are each passage's own relevance", "dim"))
    if response.no_answer and response.results:
        line.append((" · probably none of them is the answer", "yellow"))
    if response.other_speaker and response.results:
        line.append((f" · probably said by {response.other_speaker}", "yellow"))
    return line


def _result_line(number: int, result: SearchResult, cwd: Path) -> list[Part]:
    line: list[Part] = [(f"{number:>2}. ", "bold"), (f"{result.score:.2f}", "bold green"), "  "]
    line.append((shown_source(result.source, cwd), "bold"))
    if result.start_line is not None:
        end = result.end_line if result.end_line is not None else result.start_line
        line.append(f":{result.start_line}" + (f"-{end}" if end != result.start_line else ""))
    if result.content_type:
        line.append((f"  {result.content_type}", "dim"))
    line.append((f"  {ago(result.occurred_at)}", "dim"))
    if result.newer_version is not None:
        line.append((f"  another value since {result.newer_version.occurred_at.astimezone():%Y-%m-%d}", "yellow"))
    return line


def shown_source(source: str, cwd: Path) -> str:
    path = Path(source)
    is_below = path.is_absolute() and path.is_relative_to(cwd)
    return one_line(path.relative_to(cwd).as_posix() if is_below else source)


def snippet(content: str, chars: int = SNIPPET_CHARS) -> str:
    text = safe(content.replace("\r\n", "\n")).strip("\n")
    cut = "\n".join(text.split("\n")[:SNIPPET_LINES])
    if len(cut) > chars:
        cut = cut[:chars].rsplit(maxsplit=1)[0]
    return cut if cut == text else f"{cut.rstrip()} …"


def _explanation(explain: Explain) -> str:
    legs = [f"{name} rank {leg.rank} ({leg.score:.3f})" for name, leg in explain.legs.items()]
    signals = [f"{name} {value:.3f}" for name, value in explain.signals.items()]
    boosts = [f"{name} {value:+.3f}" for name, value in explain.boosts.items()]
    return " · ".join([*legs, f"fused {explain.fused:.3f}", *signals, *boosts])


def _advice(response: SearchResponse) -> str:
    if response.fallback_level > 2:
        return "`rag-context health` says what is wrong."
    if not response.total_indexed:
        return "The index is empty: `rag-context index PATH...` fills it."
    return "Nothing relevant found. Try other words, fewer filters, or --min-score 0 to see the nearest passages."

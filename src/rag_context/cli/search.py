"""`search`: a question, and the passages that answer it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from rag_context.api.operations.memory import SEARCH
from rag_context.api.reading import read_fields
from rag_context.api.search import Explain, SearchRequest, SearchResponse, SearchResult
from rag_context.api.wire import Vocabulary
from rag_context.cli.connection import open_connection
from rag_context.cli.console import Screen, counted, safe
from rag_context.cli.exits import ExitCode
from rag_context.cli.options import (
    AsJson,
    Branch,
    Category,
    Chosen,
    Config,
    ContentType,
    DataDir,
    Game,
    PathHash,
    Project,
    Session,
    Since,
    Tags,
    Until,
    load_available,
    parse_time,
)
from rag_context.errors import FieldError, InvalidInputError
from rag_context.settings import Loaded

SNIPPET_CHARS = 400
SNIPPET_LINES = 8
AROUND_CHARS = 120
"""Shown of what was said before and after a passage of a talk."""

AGENT = "cli"
_OPTIONS = {
    "limit": "--limit",
    "category": "--category",
    "sessionId": "--session",
    "contentType": "--type",
    "game": "--game",
    "tags": "--tag",
    "source": "--source",
    "minScore": "--min-score",
    "maxTokens": "--max-tokens",
    "pathHash": "--path-hash",
}
"""How fields on the wire are called on the command line."""

_LEVELS = {1: "", 2: "text search only", 3: "nothing could be searched", 4: "circuit breaker open"}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and what the answer is narrowed to."""

    query: str
    limit: int | None = None
    category: str | None = None
    session_id: str | None = None
    content_type: str | None = None
    game: str | None = None
    tags: Sequence[str] = ()
    source: str | None = None
    since: str | None = None
    until: str | None = None
    min_score: float | None = None
    mode: str | None = None
    explain: bool = False
    max_tokens: int | None = None
    agent: str | None = None
    project: str | None = None
    branch: str | None = None
    path_hash: str | None = None
    as_json: bool = False


def search(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="A question, or an exact name or error code.")],
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of results, 1 to 20; default 5.")
    ] = None,
    category: Category = None,
    session: Session = None,
    content_type: ContentType = None,
    game: Game = None,
    tag: Tags = None,
    source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="A source, a file or a folder; ending in * a prefix.")
    ] = None,
    since: Since = None,
    until: Until = None,
    min_score: Annotated[
        float | None, typer.Option(metavar="SCORE", help="Minimum score, 0 to 1; 0 returns everything.")
    ] = None,
    mode: Annotated[
        Literal["hybrid", "vector", "text"] | None,
        typer.Option(metavar="hybrid|vector|text", help="Hybrid search, vector search or keyword search."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show rank and raw scores of each result.")] = False,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Token budget of all passages together.")
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Name for the statistics; default cli.")] = None,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Search for the passages that answer a question."""
    question = Question(
        query=query,
        limit=limit,
        category=category,
        session_id=session,
        content_type=content_type,
        game=game,
        tags=tag or (),
        source=source,
        since=since,
        until=until,
        min_score=min_score,
        mode=mode,
        explain=explain,
        max_tokens=max_tokens,
        agent=agent,
        project=project,
        branch=branch,
        path_hash=path_hash,
        as_json=as_json,
    )
    raise typer.Exit(run(Chosen(config, {"data_dir": data_dir}), question))


def run(chosen: Chosen, question: Question) -> ExitCode:
    """Search, and print the answer; no results are an answer too."""
    screen = Screen()
    loaded = load_available(chosen)
    request = request_of(question, loaded, cwd=Path.cwd(), now=datetime.now(UTC))
    response = asyncio.run(_search(loaded, request))
    if question.as_json:
        screen.line(response.to_json().decode())
    else:
        _print(response, screen, Path.cwd())
    return ExitCode.OK if response.fallback_level <= 2 else ExitCode.FAILED


def request_of(question: Question, loaded: Loaded, *, cwd: Path, now: datetime) -> SearchRequest:
    """The question on the wire.

    Raises:
        InvalidInputError: With a line for each thing that is wrong, in the words of the command line.
    """
    words = loaded.settings.vocabulary
    model = SearchRequest.speaking(Vocabulary.extended(words.content_types, words.categories))
    fields = {
        "query": question.query,
        "limit": question.limit,
        "category": question.category,
        "sessionId": question.session_id,
        "contentType": question.content_type,
        "game": question.game,
        "agent": question.agent or AGENT,
        "tags": list(question.tags) or None,
        "source": question.source and source_filter(question.source, cwd),
        "since": question.since and parse_time(question.since, "--since", now),
        "until": question.until and parse_time(question.until, "--until", now),
        "minScore": question.min_score,
        "mode": question.mode,
        "explain": question.explain,
        "maxTokens": question.max_tokens,
        "project": question.project,
        "branch": question.branch,
        "pathHash": question.path_hash,
    }
    try:
        return read_fields(model, {name: value for name, value in fields.items() if value is not None})
    except InvalidInputError as error:
        raise InvalidInputError("\n".join(map(_as_typed, error.details)), error.details) from None


def _as_typed(detail: FieldError) -> str:
    """A field error with the option that was typed in place of the name on the wire."""
    field = detail.field.partition("[")[0]
    if field not in _OPTIONS or not detail.message.startswith(detail.field):
        return detail.message
    return f"{_OPTIONS[field]}{detail.message.removeprefix(detail.field)}"


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


async def _search(loaded: Loaded, request: SearchRequest) -> SearchResponse:
    async with open_connection(loaded) as connection:
        return await connection.run(SEARCH, request)


def _print(response: SearchResponse, screen: Screen, cwd: Path) -> None:
    if response.warning:
        screen.warning(response.warning)
    screen.show(_headline(response))
    for number, result in enumerate(response.results, 1):
        screen.show("")
        screen.show(_result_line(number, result, cwd))
        if result.heading:
            screen.show_below(safe(result.heading), "italic")
        around = result.context
        if around is not None and around.before:
            screen.show_below(f"> {snippet(around.before, AROUND_CHARS)}", "dim italic")
        screen.show_below(snippet(result.content), "dim")
        if around is not None and around.after:
            screen.show_below(f"> {snippet(around.after, AROUND_CHARS)}", "dim italic")
        if result.explain:
            screen.show_below(_explanation(result.explain), "cyan")
    if not response.results:
        screen.show(_advice(response))


def _headline(response: SearchResponse) -> Text:
    label = _LEVELS.get(response.fallback_level, "")
    level = f"level {response.fallback_level}" + (f" ({label})" if label else "")
    line = Text.assemble(
        (level, "green" if response.fallback_level == 1 else "bold yellow"),
        f" · {response.latency:.1f} ms{' (cached)' if response.cached else ''} · ",
        f"{counted(len(response.results), 'result')} from {counted(response.total_indexed, 'document')}",
    )
    if response.no_answer and response.results:
        line.append(" · probably none of them is the answer", "yellow")
    return line


def _result_line(number: int, result: SearchResult, cwd: Path) -> Text:
    line = Text.assemble((f"{number:>2}. ", "bold"), (f"{result.score:.2f}", "bold green"), "  ")
    line.append(safe(shown_source(result.source, cwd)), "bold")
    if result.start_line is not None:
        end = result.end_line if result.end_line is not None else result.start_line
        line.append(f":{result.start_line}" + (f"-{end}" if end != result.start_line else ""))
    if result.content_type:
        line.append(f"  {result.content_type}", "dim")
    return line


def shown_source(source: str, cwd: Path) -> str:
    """A source relative to the working directory when it is below it."""
    path = Path(source)
    return path.relative_to(cwd).as_posix() if path.is_absolute() and path.is_relative_to(cwd) else source


def snippet(content: str, chars: int = SNIPPET_CHARS) -> str:
    """The beginning of a passage, cut at a word."""
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


def _advice(response: SearchResponse) -> Text:
    if response.fallback_level > 2:
        return Text("`rag-context health` says what is wrong.", style="yellow")
    if not response.total_indexed:
        return Text("The index is empty: `rag-context index PATH...` fills it.", style="yellow")
    return Text(
        "Nothing relevant found. Try other words, fewer filters, or --min-score 0 to see the nearest passages.",
        style="yellow",
    )

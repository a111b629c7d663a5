"""`project`: the documents of a repository, queried through the running server, or here.

The project is the one that is named, else that of the current folder.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from rag_context.api.operations import Operation, Request, Response
from rag_context.api.operations import projects as operations
from rag_context.api.project_queries import LabelledResponse, RagQueryResponse, SemanticSearchResponse
from rag_context.api.projects import ActivateProjectRequest, ProjectResponse
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.connecting import Remote, open_connection
from rag_context.cli.console import Chosen, Screen, counted, load_available, safe
from rag_context.cli.operation_options import Fields, Name, read_typed
from rag_context.errors import InvalidInputError
from rag_context.projects.callers import CallerId
from rag_context.projects.project_opening import Activation, find_config, open_project
from rag_context.projects.records import Boosts, FileSystemError, ProjectError, PromotionLevel

if TYPE_CHECKING:
    from rag_context.service.project_service import ProjectService

_LEVELS = {2: "text search only", 3: "nothing could be searched", 4: "circuit breaker open"}
_LAST_SEARCHED = 2
_CALLER = CallerId(session="cli")
_SHOWN_WARNINGS = 20
_ABSENT = {"min_relevance_score": "the model's own"}
"""How the default of an option is shown."""


NAMES: Mapping[str, Name] = {
    "query": Name(None, "QUESTION", "A question in plain words.", is_argument=True),
    "doc_types": Name("--doc-type", "TYPE", "Only this type; may be given several times."),
    "max_sources": Name(None, "N", "Maximum number of documents by relevance."),
    "limit": Name(None, "N", "Maximum number of documents."),
    "max_tokens": Name(None, "N", "Token budget of the context."),
    "min_relevance_score": Name("--min-score", "SCORE", "Minimum relevance, 0 to 1; 0 returns everything."),
    "min_promotion_level": Name("--min-promotion", None, "Minimum promotion level."),
    "promotion_levels": Name("--promotion", "LEVEL", "Only this promotion level; may be given several times."),
    "include_critical": Name("--critical", None, "Which critical documents come first."),
    "include_superseded": Name("--superseded", None, "Also documents that newer ones replace; they are marked."),
    "link_depth": Name(None, "N", "Depth of links to follow."),
    "path": Name(None, "PATH", "The document; a file, or relative to the docs folder.", is_argument=True),
    "document_path": Name(None, "PATH", "The document; a file, or relative to the docs folder.", is_argument=True),
    "promotion_level": Name(None, "standard|important|critical", "The promotion level.", is_argument=True),
    "start_line": Name("--from", "LINE", "First line; the first is 1."),
    "end_line": Name("--to", "LINE", "Last line."),
    "project_name": Name(None, "NAME", "The project.", is_argument=True),
    "branch_name": Name("--branch", "NAME", "Only this branch; default: all."),
    "dry_run": Name(None, None, "Only report the number of documents."),
    "project": Name(None, "NAME", "A stored project, by its name."),
    "branch": Name(None, "NAME", "Its branch."),
    "path_hash": Name(None, "HASH", "Path hash of its repository, if several have the name."),
}


def run_activate(chosen: Chosen, path: Path, fields: Fields, *, as_json: bool) -> ExitCode:
    """Bring the index up to a project's files."""
    named = {**fields, "config_path": str(path.expanduser().resolve())}
    request = read_typed(operations.ACTIVATE_PROJECT.request, named, names=NAMES)
    return run_to_end(_activate(chosen, request, as_json=as_json))


def run_query(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """Ask, and print the context."""
    response = run_to_end(_asked(chosen, operations.RAG_QUERY, fields))
    screen = Screen()
    if as_json:
        screen.line(response.to_json().decode())
    else:
        _print_context(response, screen)
    return _searched(response)


def run_search(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """Search, and print the documents."""
    response = run_to_end(_asked(chosen, operations.SEMANTIC_SEARCH, fields))
    screen = Screen()
    if as_json:
        screen.line(response.to_json().decode())
    else:
        _print_results(response, screen)
    return _searched(response)


def run_read(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """Print lines of a document."""
    here = None if "project" in fields else project_here(Path.cwd())
    asked = {**fields, "path": _in_docs(fields["path"], here, Path.cwd())}
    response = run_to_end(_asked(chosen, operations.READ_DOCUMENT, asked))
    screen = Screen()
    if as_json:
        screen.line(response.to_json().decode())
        return ExitCode.OK
    screen.line(safe(response.content))
    if response.truncated:
        screen.note(Text(f"Read on with --from {response.end_line + 1}, of {response.total_lines} lines.", style="dim"))
    return ExitCode.OK


def run_promote(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """Write a promotion level."""
    here = None if "project" in fields else project_here(Path.cwd())
    asked = {**fields, "document_path": _in_docs(fields["document_path"], here, Path.cwd())}
    response = run_to_end(_asked(chosen, operations.UPDATE_PROMOTION_LEVEL, asked))
    screen = Screen()
    if as_json:
        screen.line(response.to_json().decode())
    else:
        screen.show(Text(f"{safe(response.document_path)}: {response.previous_level} -> {response.new_level}"))
    return ExitCode.OK


def run_status(chosen: Chosen, fields: Fields, *, as_json: bool) -> ExitCode:
    """Say which project is in use, what it has, and where each of its settings comes from."""
    here = None if "project" in fields else project_here(Path.cwd())
    response = run_to_end(_asked(chosen, operations.LIST_DOC_TYPES, fields))
    screen = Screen()
    options = _options(here) if here is not None else []
    if as_json:
        screen.line(json.dumps({**json.loads(response.to_json()), "options": options}, ensure_ascii=False))
        return ExitCode.OK
    screen.show(Text.assemble((_whose(response), "bold"), f" · {counted(response.total_docs, 'document')}"))
    table = Table("type", "documents", "folder", "what it is for", box=None, pad_edge=False)
    for each in response.doc_types:
        table.add_row(safe(each.name), str(each.doc_count), safe(each.folder), safe(each.description))
    screen.show(table)
    if options:
        screen.show("")
        settings = Table("tool", "option", "value", "from", box=None, pad_edge=False)
        for option in options:
            settings.add_row(*(safe(str(value)) for value in option.values()))
        screen.show(settings)
    return ExitCode.OK


def _options(here: Activation) -> list[dict[str, str]]:
    """Every option of a question or a search in this project, and where it comes from."""
    traced = {"rag_query": here.config.traced_query({}), "semantic_search": here.config.traced_search({})}
    return [
        {
            "tool": tool,
            "option": option.name,
            "value": _shown(option.value, _ABSENT.get(option.name, "none")),
            "source": option.source.value,
        }
        for tool, options in traced.items()
        for option in options
    ]


def _shown(value: object, absent: str = "none") -> str:
    match value:
        case None:
            return absent
        case PromotionLevel():
            return value.label
        case Boosts():
            return f"important +{value.important:g}, critical +{value.critical:g}"
        case tuple():
            return ", ".join(map(_shown, value)) or "all"
        case bool():
            return "yes" if value else "no"
    return str(value)


def project_here(folder: Path) -> Activation | None:
    """The project that a folder lies in; None where none of the folders above has a configuration.

    Raises:
        ProjectError: there is one, and it cannot be used.
        InvalidInputError: its branch cannot be read.
    """
    try:
        config = find_config(str(folder))
    except InvalidInputError:
        return None
    return open_project(str(config))


async def _activate(chosen: Chosen, request: ActivateProjectRequest, *, as_json: bool) -> ExitCode:
    screen = Screen()
    async with open_tools(chosen) as tools:
        response = await tools.run(operations.ACTIVATE_PROJECT, request)
        while not response.complete and not isinstance(tools, Remote):  # no server continues it
            response = await tools.run(operations.ACTIVATE_PROJECT, request)
    if as_json:
        screen.line(response.to_json().decode())
        return ExitCode.OK
    for warning in response.warnings[:_SHOWN_WARNINGS]:
        screen.warning(warning)
    if len(response.warnings) > _SHOWN_WARNINGS:
        screen.warning("and others; --json lists the first hundred")
    by_type = ", ".join(f"{each.name} {each.doc_count}" for each in response.doc_types if each.doc_count)
    screen.show(
        Text(f"{_whose(response)} · {counted(response.total_docs, 'document')}" + (f" ({by_type})" if by_type else ""))
    )
    follows = "which follows its files" if isinstance(tools, Remote) else "as it is now; a running server follows files"
    screen.note(Text(f"Indexed by {tools.place}, {follows}.", style="dim"))
    return ExitCode.OK


async def _asked(chosen: Chosen, operation: Operation[Any, Response], fields: Fields) -> Response:
    """Run an operation on the resolved project; in this process its own files are indexed first."""
    here = None if "project" in fields else await asyncio.to_thread(project_here, Path.cwd())
    is_checked_out = False
    if here is not None:
        own = {"project": here.tenant.project, "branch": here.tenant.branch, "path_hash": here.tenant.path_hash}
        fields = {**own, **fields}
        is_checked_out = all(fields[name] == value for name, value in own.items())
    asked = read_typed(operation.request, fields, names=NAMES)
    async with open_tools(chosen) as tools:
        if "project" not in fields:
            raise InvalidInputError(
                "There is no project in this folder: go into a repository with .rag-context/config.json, or name a "
                "stored project with --project"
            )
        if here is not None and is_checked_out and not isinstance(tools, Remote):
            activation = ActivateProjectRequest(config_path=str(here.config.path))
            await tools.run(operations.ACTIVATE_PROJECT, activation)
        return await tools.run(operation, asked)


class _Here:
    """The tools in this process, over the index itself."""

    def __init__(self, projects: "ProjectService", place: str) -> None:
        self._projects = projects
        self.place = place

    async def run(self, operation: Operation[Request, Response], request: Request) -> Response:
        """Run an operation of project documents here."""
        from rag_context.cli.local_connection import run_here  # noqa: PLC0415  (already loaded, in this case)
        from rag_context.server.tools import Call, project_work  # noqa: PLC0415

        console = Screen().err
        is_long = operation is operations.ACTIVATE_PROJECT and console.is_terminal
        with Progress(console=console, transient=True, disable=not is_long) as bar:
            task = bar.add_task("indexing", total=None)

            async def heard(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            call = Call(os.urandom(12).hex(), heard, _CALLER)
            try:
                return await run_here(project_work(self._projects), operation, request, call)
            except FileSystemError:
                raise
            except ProjectError as error:  # reported as by a server
                raise InvalidInputError(str(error), error.details) from error


@asynccontextmanager
async def open_tools(chosen: Chosen) -> AsyncIterator[Remote | _Here]:
    async with open_connection(load_available(chosen)) as connection:
        if isinstance(connection, Remote):
            yield connection
            return
        from rag_context.cli.local_connection import InProcess  # noqa: PLC0415  (already loaded, in this case)

        assert isinstance(connection, InProcess)  # noqa: S101  (there is no third place)
        yield _Here(await connection.projects(), connection.place)


def _in_docs(path: str, here: Activation | None, cwd: Path) -> str:
    """A document's path relative to the docs folder, where it was named as a file."""
    file = (cwd / path).resolve()
    if here is not None and file.is_relative_to(here.docs_root) and file.is_file():
        return file.relative_to(here.docs_root).as_posix()
    return path


def _searched(response: LabelledResponse) -> ExitCode:
    return ExitCode.OK if response.fallback_level <= _LAST_SEARCHED else ExitCode.FAILED


def _print_context(response: RagQueryResponse, screen: Screen) -> None:
    _print_label(response, screen)
    if response.answer is not None:
        screen.show(Text(safe(response.answer)))
        screen.show("")
        if response.answer_note is not None:
            screen.warning(response.answer_note)
    if response.omitted:
        screen.warning(f"left out to keep within --max-tokens: {', '.join(response.omitted_docs)}")
    elif not response.context:
        screen.note(
            Text("Nothing relevant found. Try other words, or --min-score 0 to see the nearest.", style="yellow")
        )
    if not response.context:
        return
    screen.line(safe(response.context).rstrip("\n"))
    found = len(response.sources) + len(response.critical_docs) + len(response.linked_docs)
    screen.note(
        Text(f"{_whose(response)} · {counted(found, 'document')}, {response.token_count} tokens", style="dim"),
    )


def _print_results(response: SemanticSearchResponse, screen: Screen) -> None:
    _print_label(response, screen)
    screen.show(Text(f"{_whose(response)} · {counted(len(response.results), 'document')}"))
    for number, result in enumerate(response.results, 1):
        line = Text.assemble((f"{number:>2}. ", "bold"), (f"{result.relevance_score:.2f}", "bold green"), "  ")
        line.append(safe(result.path), "bold")
        line.append(f"  {safe(result.title)}")
        level = f" · {result.promotion_level}" if result.promotion_level != "standard" else ""
        line.append(f"  {safe(result.doc_type)}{level}", "dim")
        if result.superseded_by:
            line.append(f"  superseded by {safe(', '.join(result.superseded_by))}", "yellow")
        screen.show(line)
        if result.summary:
            screen.show_below(safe(result.summary), "dim")
        if result.snippet:
            under = f"{result.heading} · " if result.heading else ""
            place = f"{under}lines {result.start_line}-{result.end_line}"
            screen.show_below(safe(f"{place}: {' '.join(result.snippet.split())}"), "dim")
    if not response.results:
        screen.note(
            Text("Nothing relevant found. Try other words, or --min-score 0 to see the nearest.", style="yellow")
        )


def _print_label(response: LabelledResponse, screen: Screen) -> None:
    if response.fallback:
        screen.warning(f"level {response.fallback_level} ({_LEVELS[response.fallback_level]})")
    for warning in response.warnings:
        screen.warning(warning)
    if response.interpreted is not None:
        screen.note(Text(safe(response.interpreted.sentence()), style="dim"))


def _whose(response: ProjectResponse) -> str:
    return safe(f"{response.project_name} (branch {response.branch_name}, {response.path_hash})")

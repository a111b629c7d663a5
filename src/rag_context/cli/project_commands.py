"""Project documents: a repository's Markdown files, with links and promotion levels. The commands work on the project
of the current folder, else on the one that is named.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rag_context.api import projects as wire
from rag_context.api.operations import Operation, Request, Response
from rag_context.api.operations import projects as operations
from rag_context.api.project_queries import LabelledResponse, RagQueryResponse
from rag_context.api.projects import ActivateProjectRequest
from rag_context.api.search import level_name
from rag_context.cli.command_line import EPILOG, ExitCode, first_paragraph, run_to_end
from rag_context.cli.connecting import Remote, open_connection
from rag_context.cli.console import Console, ask_first, counted, safe
from rag_context.cli.memory_commands import print_readable
from rag_context.cli.operation_options import Fields, Name, read_typed, with_fields
from rag_context.cli.options import Options, Yes, with_options
from rag_context.domain.callers import CallerId
from rag_context.errors import InvalidInputError
from rag_context.projects.project_opening import Activation, find_config, open_project
from rag_context.projects.records import FileSystemError, ProjectError, PromotionBoosts, PromotionLevel

if TYPE_CHECKING:
    from rag_context.cli.local_connection import InProcess

_CALLER = CallerId(session="cli")

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


async def answer_in_project(options: Options, operation: Operation[Any, Response], fields: Fields) -> Response:
    """Run an operation on the resolved project; in this process its own files are indexed first."""
    here = None if "project" in fields else await asyncio.to_thread(project_here, Path.cwd())
    is_checked_out = False
    if here is not None:
        own = {"project": here.tenant.project, "branch": here.tenant.branch, "path_hash": here.tenant.path_hash}
        fields = {**own, **fields}
        is_checked_out = all(fields[name] == value for name, value in own.items())
    request = read_typed(operation.request, fields, names=NAMES)
    async with open_tools(options) as tools:
        if "project" not in fields:
            raise InvalidInputError(
                "There is no project in this folder: go into a repository with .rag-context/config.json, or name a "
                "stored project with --project"
            )
        if here is not None and is_checked_out and not isinstance(tools, Remote):
            activation = ActivateProjectRequest(config_path=str(here.config.path))
            await tools.run(operations.ACTIVATE_PROJECT, activation)
        return await tools.run(operation, request)


class _Here:
    def __init__(self, connection: "InProcess") -> None:
        self._connection = connection
        self.place = connection.place

    async def run(self, operation: Operation[Request, Response], request: Request) -> Response:
        from rag_context.api.handlers import CallContext  # noqa: PLC0415  (already loaded, in this case)

        with Console().progress() as bar:
            task = bar.add_task("indexing", total=None, visible=operation is operations.ACTIVATE_PROJECT)

            async def show_progress(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            context = CallContext(os.urandom(12).hex(), show_progress, _CALLER)
            try:
                return await self._connection.run(operation, request, context)
            except FileSystemError:
                raise
            except ProjectError as error:  # reported as by a server
                raise InvalidInputError(str(error), error.details) from error


@asynccontextmanager
async def open_tools(options: Options) -> AsyncIterator[Remote | _Here]:
    async with open_connection(options.load_available()) as connection:
        if isinstance(connection, Remote):
            yield connection
        else:
            yield _Here(connection)


def _in_docs(fields: Fields, name: str) -> Fields:
    """The fields; where one of them is the path of a file in the project's documentation, that of the document."""
    here = None if "project" in fields else project_here(Path.cwd())
    file = (Path.cwd() / fields[name]).resolve()
    if here is not None and file.is_relative_to(here.docs_root) and file.is_file():
        return {**fields, name: file.relative_to(here.docs_root).as_posix()}
    return fields


_LAST_SEARCHED = 2
_SHOWN_WARNINGS = 20
_NOTHING_RELEVANT = ("Nothing relevant found. Try other words, or --min-score 0 to see the nearest.", "yellow")
_ABSENT = {"min_relevance_score": "the model's own"}
"""How the default of an option is shown."""

group = typer.Typer(help=first_paragraph(__doc__), no_args_is_help=True, pretty_exceptions_enable=False)


@group.command(epilog=EPILOG)
@with_fields(
    operations.ACTIVATE_PROJECT,
    {
        "branch_name": Name("--branch", "NAME", "Branch; default: the one that is checked out."),
        "force": Name(None, None, "Index the files as that branch although another one is checked out."),
    },
)
def activate(
    fields: Fields,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A project's configuration, or a folder in the project.")
    ] = Path(),
    *,
    options: Options,
) -> ExitCode:
    """Bring the index up to date with a project's files; a running server follows them from now on."""
    named = {**fields, "config_path": str(path.expanduser().resolve())}
    request = read_typed(operations.ACTIVATE_PROJECT.request, named, names=NAMES)
    return run_to_end(_activate(options, request))


@group.command(epilog=EPILOG)
@with_fields(operations.RAG_QUERY, NAMES)
def query(fields: Fields, options: Options) -> ExitCode:
    """Print the context that answers a question: critical documents, relevant ones, and those they link to."""
    response = run_to_end(answer_in_project(options, operations.RAG_QUERY, fields))
    options.show(response, _print_context)
    return _searched(response)


@group.command(epilog=EPILOG)
@with_fields(operations.SEMANTIC_SEARCH, NAMES)
def search(fields: Fields, options: Options) -> ExitCode:
    """List the documents that are relevant to a question, best first."""
    response = run_to_end(answer_in_project(options, operations.SEMANTIC_SEARCH, fields))
    options.show(response, print_readable)
    return _searched(response)


@group.command(epilog=EPILOG)
@with_fields(operations.READ_DOCUMENT, NAMES)
def read(fields: Fields, options: Options) -> ExitCode:
    """Print a document as it was indexed, or some of its lines."""
    named = _in_docs(fields, "path")
    options.show(run_to_end(answer_in_project(options, operations.READ_DOCUMENT, named)), _print_lines)
    return ExitCode.OK


@group.command(epilog=EPILOG)
@with_fields(operations.UPDATE_PROMOTION_LEVEL, NAMES)
def promote(fields: Fields, options: Options) -> ExitCode:
    """Set a document's promotion level, in its front matter and in the index."""
    named = _in_docs(fields, "document_path")
    options.show(run_to_end(answer_in_project(options, operations.UPDATE_PROMOTION_LEVEL, named)), print_readable)
    return ExitCode.OK


@group.command(epilog=EPILOG)
@with_fields(operations.LIST_DOC_TYPES, NAMES)
def status(fields: Fields, options: Options) -> ExitCode:
    """Show the project that the other commands work on, and its number of documents by type."""
    here = None if "project" in fields else project_here(Path.cwd())
    response = run_to_end(answer_in_project(options, operations.LIST_DOC_TYPES, fields))
    traced = _options_of(here) if here is not None else []
    if options.as_json:
        Console().line(json.dumps({**json.loads(response.to_json()), "options": traced}, ensure_ascii=False))
    else:
        _print_status(response, traced, Console())
    return ExitCode.OK


@group.command("list", epilog=EPILOG)
@with_options
def list_(options: Options) -> ExitCode:
    """List the stored projects: documents, last use, path, and whether their files still exist."""

    async def listed() -> wire.ListProjectsResponse:
        async with open_tools(options) as tools:
            return await tools.run(operations.LIST_PROJECTS, wire.ListProjectsRequest())

    options.show(run_to_end(listed()), _print_projects)
    return ExitCode.OK


@group.command(epilog=EPILOG)
@with_fields(operations.DELETE_DOCUMENTS, NAMES)
def forget(fields: Fields, *, yes: Yes = False, options: Options) -> ExitCode:
    """Remove a project from the index and stop following it, after a confirmation. Its files stay unchanged."""
    dry_run = "dry_run" in fields

    async def deletion(*, dry_run: bool) -> wire.DeleteDocumentsResponse:
        request = read_typed(operations.DELETE_DOCUMENTS.request, {**fields, "dry_run": dry_run}, names=NAMES)
        async with open_tools(options) as tools:
            return await tools.run(operations.DELETE_DOCUMENTS, request)

    response = run_to_end(deletion(dry_run=True))
    if not dry_run:
        if not yes:
            branches = "all branches" if response.branch_name is None else f"branch {safe(response.branch_name)}"
            many = counted(response.deleted_count, "document")
            ask_first(f"Forget {many} of {safe(response.project_name)}, {branches}? Its files stay as they are.")
        response = run_to_end(deletion(dry_run=False))
    options.show(response, print_readable)
    return ExitCode.OK


def _print_lines(response: wire.ReadDocumentResponse, console: Console) -> None:
    console.line(safe(response.content))
    if response.truncated:
        console.note((f"Read on with --from {response.end_line + 1}, of {response.total_lines} lines.", "dim"))


def _print_status(response: wire.ListDocTypesResponse, traced: list[dict[str, str]], console: Console) -> None:
    console.show((_whose(response), "bold"), f" · {counted(response.total_docs, 'document')}")
    types = [(each.name, str(each.doc_count), each.folder, each.description) for each in response.doc_types]
    console.show_table(("type", "documents", "folder", "what it is for"), types)
    if traced:
        console.show("")
        console.show_table(("tool", "option", "value", "from"), [list(option.values()) for option in traced])


def _print_projects(response: wire.ListProjectsResponse, console: Console) -> None:
    if not response.projects:
        console.note(("No project is stored: rag-context project activate PATH", "yellow"))
        return
    rows = []
    for each in response.projects:
        used = each.last_used.strftime("%Y-%m-%d %H:%M") if each.last_used is not None else ""
        rows.append((each.project_name, each.branch_name, each.path_hash, str(each.documents), used, _location(each)))
    console.show_table(("project", "branch", "path hash", "documents", "last used", "path"), rows)


def _location(project: wire.ListedProject) -> str:
    path = project.path or ""
    if project.exists is False:
        end = project.removed_after
        return f"{path} (gone{f', removed after {end:%Y-%m-%d}' if end is not None else ''})"
    return f"{path} (followed)" if project.followed else path


def _options_of(here: Activation) -> list[dict[str, str]]:
    return [
        {
            "tool": tool,
            "option": option.name,
            "value": _shown(option.value, _ABSENT.get(option.name, "none")),
            "source": option.source.value,
        }
        for tool, options in here.config.traced().items()
        for option in options
    ]


def _shown(value: object, absent: str = "none") -> str:
    match value:
        case None:
            return absent
        case PromotionLevel():
            return value.label
        case PromotionBoosts():
            return f"important +{value.important:g}, critical +{value.critical:g}"
        case tuple():
            return ", ".join(map(_shown, value)) or "all"
        case bool():
            return "yes" if value else "no"
    return str(value)


async def _activate(options: Options, request: wire.ActivateProjectRequest) -> ExitCode:
    console = Console()
    async with open_tools(options) as tools:
        response = await tools.run(operations.ACTIVATE_PROJECT, request)
        while not response.complete and not isinstance(tools, Remote):  # no server continues it
            response = await tools.run(operations.ACTIVATE_PROJECT, request)
    if options.as_json:
        console.line(response.to_json().decode())
        return ExitCode.OK
    for warning in response.warnings[:_SHOWN_WARNINGS]:
        console.warning(warning)
    if len(response.warnings) > _SHOWN_WARNINGS:
        console.warning("and others; --json lists the first hundred")
    by_type = ", ".join(f"{each.name} {each.doc_count}" for each in response.doc_types if each.doc_count)
    console.show(f"{_whose(response)} · {counted(response.total_docs, 'document')}", f" ({by_type})" if by_type else "")
    follows = "which follows its files" if isinstance(tools, Remote) else "as it is now; a running server follows files"
    console.note((f"Indexed by {tools.place}, {follows}.", "dim"))
    return ExitCode.OK


def _searched(response: LabelledResponse) -> ExitCode:
    return ExitCode.OK if response.fallback_level <= _LAST_SEARCHED else ExitCode.FAILED


def _print_context(response: RagQueryResponse, console: Console) -> None:
    _print_label(response, console)
    if response.answer is not None:
        console.show(response.answer)
        console.show("")
        if response.answer_note is not None:
            console.warning(response.answer_note)
    if response.omitted:
        console.warning(f"left out to keep within --max-tokens: {', '.join(response.omitted_docs)}")
    elif not response.context:
        console.note(_NOTHING_RELEVANT)
    if not response.context:
        return
    console.line(safe(response.context).rstrip("\n"))
    found = len(response.sources) + len(response.critical_docs) + len(response.linked_docs)
    console.note((f"{_whose(response)} · {counted(found, 'document')}, {response.token_count} tokens", "dim"))


def _print_label(response: LabelledResponse, console: Console) -> None:
    if response.fallback:
        console.warning(f"level {response.fallback_level} ({level_name(response)})")
    for warning in response.warnings:
        console.warning(warning)
    if response.interpreted is not None:
        console.note((response.interpreted.sentence(), "dim"))


def _whose(response: wire.ProjectResponse) -> str:
    return f"{response.project_name} (branch {response.branch_name}, {response.path_hash})"

"""The command `project` and its own commands; which projects are stored, and taking one out."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from rag_context.api.operations import projects as operations
from rag_context.api.projects import DeleteDocumentsResponse, ListedProject, ListProjectsRequest, ListProjectsResponse
from rag_context.cli import project as work
from rag_context.cli.command_line import EPILOG, ExitCode, run_to_end
from rag_context.cli.console import AsJson, Chosen, Config, DataDir, Screen, Yes, ask_first, counted, safe
from rag_context.cli.operation_options import Fields, Name, exit_with, read_typed, with_fields

group = typer.Typer(
    help="Project documents: a repository's Markdown files, with links and promotion levels. The commands "
    "work on the project of the current folder, else on the one that is named.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


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
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Bring the index up to date with a project's files; a running server follows them from now on."""
    exit_with(work.run_activate(Chosen(config, {"data_dir": data_dir}), path, fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.RAG_QUERY, work.NAMES)
def query(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Print the context that answers a question: critical documents, relevant ones, and those they link to."""
    exit_with(work.run_query(Chosen(config, {"data_dir": data_dir}), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.SEMANTIC_SEARCH, work.NAMES)
def search(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """List the documents that are relevant to a question, best first."""
    exit_with(work.run_search(Chosen(config, {"data_dir": data_dir}), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.READ_DOCUMENT, work.NAMES)
def read(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Print a document as it was indexed, or some of its lines."""
    exit_with(work.run_read(Chosen(config, {"data_dir": data_dir}), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.UPDATE_PROMOTION_LEVEL, work.NAMES)
def promote(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Set a document's promotion level, in its front matter and in the index."""
    exit_with(work.run_promote(Chosen(config, {"data_dir": data_dir}), fields, as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.LIST_DOC_TYPES, work.NAMES)
def status(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Show the project that the other commands work on, and its number of documents by type."""
    exit_with(work.run_status(Chosen(config, {"data_dir": data_dir}), fields, as_json=as_json))


@group.command("list", epilog=EPILOG)
def list_(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """List the stored projects: documents, last use, path, and whether their files still exist."""
    exit_with(_list(Chosen(config, {"data_dir": data_dir}), as_json=as_json))


@group.command(epilog=EPILOG)
@with_fields(operations.DELETE_DOCUMENTS, work.NAMES)
def forget(
    fields: Fields, yes: Yes = False, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None
) -> None:
    """Remove a project from the index and stop following it, after a confirmation. Its files stay unchanged."""
    exit_with(_forget(Chosen(config, {"data_dir": data_dir}), fields, yes=yes, as_json=as_json))


def _list(chosen: Chosen, *, as_json: bool) -> ExitCode:
    """Say which projects are stored."""

    async def listed() -> ListProjectsResponse:
        async with work.open_tools(chosen) as tools:
            return await tools.run(operations.LIST_PROJECTS, ListProjectsRequest())

    response = run_to_end(listed())
    screen = Screen()
    if as_json:
        screen.line(response.to_json().decode())
        return ExitCode.OK
    table = Table("project", "branch", "path hash", "documents", "last used", "path", box=None, pad_edge=False)
    for each in response.projects:
        used = each.last_used.strftime("%Y-%m-%d %H:%M") if each.last_used is not None else ""
        cells = (each.project_name, each.branch_name, each.path_hash, str(each.documents), used, _place(each))
        table.add_row(*map(safe, cells))
    if response.projects:
        screen.show(table)
    else:
        screen.note(Text("No project is stored: rag-context project activate PATH", style="yellow"))
    return ExitCode.OK


def _forget(chosen: Chosen, fields: Fields, *, yes: bool, as_json: bool) -> ExitCode:
    """Say what would be forgotten, ask whether it should be, and take it out of the index."""

    dry_run = "dry_run" in fields

    async def deletion(*, dry_run: bool) -> DeleteDocumentsResponse:
        request = read_typed(operations.DELETE_DOCUMENTS.request, {**fields, "dry_run": dry_run}, names=work.NAMES)
        async with work.open_tools(chosen) as tools:
            return await tools.run(operations.DELETE_DOCUMENTS, request)

    response = run_to_end(deletion(dry_run=True))
    if not dry_run:
        if not yes:
            branches = "all branches" if response.branch_name is None else f"branch {safe(response.branch_name)}"
            many = counted(response.deleted_count, "document")
            ask_first(f"Forget {many} of {safe(response.project_name)}, {branches}? Its files stay as they are.")
        response = run_to_end(deletion(dry_run=False))
    screen = Screen()
    if as_json:
        screen.line(response.to_json().decode())
    else:
        done = "would be forgotten (none was)" if dry_run else "forgotten; the files stay as they are"
        screen.show(Text(f"{safe(response.project_name)}: {counted(response.deleted_count, 'document')} {done}"))
    return ExitCode.OK


def _place(project: ListedProject) -> str:
    path = project.path or ""
    if project.exists is False:
        end = project.removed_after
        return f"{path} (gone{f', removed after {end:%Y-%m-%d}' if end is not None else ''})"
    return f"{path} (followed)" if project.followed else path

"""The command `project` and its own commands; which projects are stored, and taking one out."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from rag_context.api.operations import projects as operations
from rag_context.api.project_tenants import (
    DeleteDocumentsRequest,
    DeleteDocumentsResponse,
    ListedProject,
    ListProjectsRequest,
    ListProjectsResponse,
)
from rag_context.cli import project as work
from rag_context.cli.console import Screen, ask_first, safe
from rag_context.cli.exits import EPILOG, ExitCode
from rag_context.cli.options import AsJson, Chosen, Config, DataDir, Yes

group = typer.Typer(
    help="Project documents: a repository's Markdown files, with links and promotion levels. The commands "
    "work on the project of the current folder, else on the one that is named.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Project = Annotated[str | None, typer.Option("--project", metavar="NAME", help="A stored project, by its name.")]
Branch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Its branch.")]
PathHash = Annotated[
    str | None,
    typer.Option("--path-hash", metavar="HASH", help="Path hash of its repository, if several have the name."),
]
DocTypes = Annotated[
    list[str] | None, typer.Option("--doc-type", metavar="TYPE", help="Only this type; may be given several times.")
]
MinScore = Annotated[
    float | None, typer.Option("--min-score", metavar="SCORE", help="Minimum relevance, 0 to 1; 0 returns everything.")
]
Superseded = Annotated[
    bool, typer.Option("--superseded", help="Also documents that newer ones replace; they are marked.")
]


@group.command(epilog=EPILOG)
def activate(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A project's configuration, or a folder in the project.")
    ] = Path(),
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Branch; default: the one that is checked out.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Index the files as that branch although another one is checked out.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Bring the index up to date with a project's files; a running server follows them from now on."""
    chosen = Chosen(config, {"data_dir": data_dir})
    raise typer.Exit(work.run_activate(chosen, path, branch, force=force, as_json=as_json))


@group.command(epilog=EPILOG)
def query(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A question in plain words.")],
    doc_type: DocTypes = None,
    max_sources: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of documents by relevance, 1 to 20.")
    ] = None,
    min_score: MinScore = None,
    min_promotion: Annotated[
        Literal["standard", "important", "critical"] | None,
        typer.Option(metavar="standard|important|critical", help="Minimum promotion level."),
    ] = None,
    critical: Annotated[
        Literal["always", "relevant", "never"] | None,
        typer.Option(metavar="always|relevant|never", help="Which critical documents come first."),
    ] = None,
    link_depth: Annotated[int | None, typer.Option(metavar="N", help="Depth of links to follow; 0 is none.")] = None,
    max_tokens: Annotated[int | None, typer.Option(metavar="N", help="Token budget of the context.")] = None,
    superseded: Superseded = False,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Print the context that answers a question: critical documents, relevant ones, and those they link to."""
    fields = {
        "query": question,
        "doc_types": doc_type or None,
        "max_sources": max_sources,
        "min_relevance_score": min_score,
        "min_promotion_level": min_promotion,
        "include_critical": critical,
        "link_depth": link_depth,
        "max_tokens": max_tokens,
        "include_superseded": superseded or None,
    }
    named = work.Named(project, branch, path_hash)
    raise typer.Exit(work.run_query(Chosen(config, {"data_dir": data_dir}), named, fields, as_json=as_json))


@group.command(epilog=EPILOG)
def search(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A question in plain words.")],
    doc_type: DocTypes = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Most documents, 1 to 50.")] = None,
    min_score: MinScore = None,
    promotion: Annotated[
        list[str] | None,
        typer.Option("--promotion", metavar="LEVEL", help="Only this promotion level; may be given several times."),
    ] = None,
    superseded: Superseded = False,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List the documents that are relevant to a question, best first."""
    fields = {
        "query": question,
        "doc_types": doc_type or None,
        "limit": limit,
        "min_relevance_score": min_score,
        "promotion_levels": promotion or None,
        "include_superseded": superseded or None,
    }
    named = work.Named(project, branch, path_hash)
    raise typer.Exit(work.run_search(Chosen(config, {"data_dir": data_dir}), named, fields, as_json=as_json))


@group.command(epilog=EPILOG)
def read(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The document; a file, or relative to the docs folder.")],
    start_line: Annotated[
        int | None, typer.Option("--from", metavar="LINE", help="First line; the first is 1.")
    ] = None,
    end_line: Annotated[int | None, typer.Option("--to", metavar="LINE", help="Last line.")] = None,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Print a document as it was indexed, or some of its lines."""
    fields = {"path": path, "start_line": start_line, "end_line": end_line}
    named = work.Named(project, branch, path_hash)
    raise typer.Exit(work.run_read(Chosen(config, {"data_dir": data_dir}), named, fields, as_json=as_json))


@group.command(epilog=EPILOG)
def promote(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The document; a file, or relative to the docs folder.")],
    level: Annotated[
        Literal["standard", "important", "critical"],
        typer.Argument(metavar="standard|important|critical", help="The promotion level."),
    ],
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Set a document's promotion level, in its front matter and in the index."""
    raise typer.Exit(work.run_promote(Chosen(config, {"data_dir": data_dir}), path, level, as_json=as_json))


@group.command(epilog=EPILOG)
def status(
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Show the project that the other commands work on, and its number of documents by type."""
    named = work.Named(project, branch, path_hash)
    raise typer.Exit(work.run_status(Chosen(config, {"data_dir": data_dir}), named, as_json=as_json))


@group.command("list", epilog=EPILOG)
def list_(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """List the stored projects: documents, last use, path, and whether their files still exist."""
    raise typer.Exit(_list(Chosen(config, {"data_dir": data_dir}), as_json=as_json))


@group.command(epilog=EPILOG)
def forget(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The project.")],
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="Only this branch; default: all.")] = None,
    path_hash: PathHash = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report the number of documents.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Remove a project from the index and stop following it; asks first. Its files stay unchanged."""
    fields = {"project_name": name, "branch_name": branch, "path_hash": path_hash}
    chosen = Chosen(config, {"data_dir": data_dir})
    raise typer.Exit(_forget(chosen, fields, dry_run=dry_run, yes=yes, as_json=as_json))


def _list(chosen: Chosen, *, as_json: bool) -> ExitCode:
    """Say which projects are stored."""

    async def listed() -> ListProjectsResponse:
        async with work.open_tools(chosen) as tools:
            return await tools.run(operations.LIST_PROJECTS, ListProjectsRequest())

    response = asyncio.run(listed())
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


def _forget(chosen: Chosen, fields: Mapping[str, str | None], *, dry_run: bool, yes: bool, as_json: bool) -> ExitCode:
    """Say what would be forgotten, ask whether it should be, and take it out of the index."""

    async def deletion(*, dry_run: bool) -> DeleteDocumentsResponse:
        request = work.read_request(DeleteDocumentsRequest, {**fields, "dry_run": dry_run})
        async with work.open_tools(chosen) as tools:
            return await tools.run(operations.DELETE_DOCUMENTS, request)

    response = asyncio.run(deletion(dry_run=True))
    if not dry_run:
        if not yes:
            branches = "all branches" if response.branch_name is None else f"branch {safe(response.branch_name)}"
            many = work.count_of(response.deleted_count)
            ask_first(f"Forget {many} of {safe(response.project_name)}, {branches}? Its files stay as they are.")
        response = asyncio.run(deletion(dry_run=False))
    screen = Screen()
    if as_json:
        screen.line(response.to_json().decode())
    else:
        done = "would be forgotten (none was)" if dry_run else "forgotten; the files stay as they are"
        screen.show(Text(f"{safe(response.project_name)}: {work.count_of(response.deleted_count)} {done}"))
    return ExitCode.OK


def _place(project: ListedProject) -> str:
    path = project.path or ""
    if project.exists is False:
        end = project.removed_after
        return f"{path} (gone{f', removed after {end:%Y-%m-%d}' if end is not None else ''})"
    return f"{path} (followed)" if project.followed else path

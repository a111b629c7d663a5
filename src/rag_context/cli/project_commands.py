"""The command `project` and its own commands, their options and their help."""

# ruff: noqa: PLC0415  (the work is loaded when it is asked for)

from pathlib import Path
from typing import Annotated, Literal

import typer

from rag_context.cli.exits import EPILOG
from rag_context.cli.options import AsJson, Chosen, Config, DataDir

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
    from rag_context.cli import project as work

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
    from rag_context.cli import project as work

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
    from rag_context.cli import project as work

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
    from rag_context.cli import project as work

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
    from rag_context.cli import project as work

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
    from rag_context.cli import project as work

    named = work.Named(project, branch, path_hash)
    raise typer.Exit(work.run_status(Chosen(config, {"data_dir": data_dir}), named, as_json=as_json))


@group.command("list", epilog=EPILOG)
def list_(as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """List the stored projects: documents, last use, path, and whether their files still exist."""
    from rag_context.cli import project_tenants as work

    raise typer.Exit(work.run_list(Chosen(config, {"data_dir": data_dir}), as_json=as_json))


@group.command(epilog=EPILOG)
def forget(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The project.")],
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="Only this branch; default: all.")] = None,
    path_hash: PathHash = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report the number of documents.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Remove a project from the index and stop following it; asks first. Its files stay unchanged."""
    from rag_context.cli import project_tenants as work

    fields = {"project_name": name, "branch_name": branch, "path_hash": path_hash}
    chosen = Chosen(config, {"data_dir": data_dir})
    raise typer.Exit(work.run_forget(chosen, fields, dry_run=dry_run, yes=yes, as_json=as_json))

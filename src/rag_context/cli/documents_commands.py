"""The commands for documents that are kept: their options and their help."""

# ruff: noqa: PLC0415  (the work is loaded when it is asked for)

from typing import Annotated

import typer

from rag_context.cli.exits import EPILOG
from rag_context.cli.memory_commands import Category, ContentType, Game, Session, Tags
from rag_context.cli.options import AsJson, Branch, Chosen, Config, DataDir, PathHash, Project

group = typer.Typer()

DocumentId = Annotated[str, typer.Argument(metavar="DOCUMENT_ID", help="As search and list print it.")]


@group.command(epilog=EPILOG)
def get(
    document_id: DocumentId,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Print one document in full."""
    from rag_context.cli import documents as work

    fields = {"documentId": document_id, "project": project, "branch": branch, "pathHash": path_hash}
    raise typer.Exit(work.run_tool(Chosen(config, {"data_dir": data_dir}), "rag_context_get", fields, as_json=as_json))


@group.command("list", epilog=EPILOG)
def list_documents(
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of documents, 1 to 100; default 20.")
    ] = None,
    cursor: Annotated[str | None, typer.Option(metavar="CURSOR", help="Continue after the previous page.")] = None,
    content_type: ContentType = None,
    session: Session = None,
    category: Category = None,
    game: Game = None,
    tag: Tags = None,
    source: Annotated[str | None, typer.Option(metavar="SOURCE", help="A source; ending in * a prefix.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only documents since: 7d, 2026-01-31 or RFC 3339.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Only documents before this time.")] = None,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List the stored documents, newest first."""
    from datetime import UTC, datetime

    from rag_context.cli import documents as work
    from rag_context.cli.moments import moment

    now = datetime.now(UTC)
    fields = {
        "limit": limit,
        "cursor": cursor,
        "contentType": content_type,
        "sessionId": session,
        "category": category,
        "game": game,
        "tags": tag or None,
        "source": source,
        "since": since and moment(since, "--since", now),
        "until": until and moment(until, "--until", now),
        "project": project,
        "branch": branch,
        "pathHash": path_hash,
    }
    raise typer.Exit(work.run_tool(Chosen(config, {"data_dir": data_dir}), "rag_context_list", fields, as_json=as_json))


@group.command(epilog=EPILOG)
def similar(
    document_id: DocumentId,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum number of documents, 1 to 20; default 5.")
    ] = None,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Find the documents that are most similar to a stored one."""
    from rag_context.cli import documents as work

    fields = {
        "documentId": document_id,
        "limit": limit,
        "project": project,
        "branch": branch,
        "pathHash": path_hash,
    }
    raise typer.Exit(
        work.run_tool(Chosen(config, {"data_dir": data_dir}), "rag_context_similar", fields, as_json=as_json)
    )


@group.command(epilog=EPILOG)
def delete(
    document_id: Annotated[
        str | None, typer.Argument(metavar="[DOCUMENT_ID]", help="As search and list print it.", show_default=False)
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="SOURCE", help="All documents of exactly this source.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="All documents of this session.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Delete a document, or all of a source or session, for good; asks first, and says how many there are."""
    from rag_context.cli import documents as work

    fields = {
        "documentId": document_id,
        "source": source,
        "sessionId": session,
        "project": project,
        "branch": branch,
        "pathHash": path_hash,
    }
    chosen = Chosen(config, {"data_dir": data_dir})
    raise typer.Exit(work.run_delete(chosen, fields, dry_run=dry_run, yes=yes, as_json=as_json))

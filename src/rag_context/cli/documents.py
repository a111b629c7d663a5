"""`get`, `list`, `similar` and `delete`: documents that are kept, by the tools of the same names."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from rag_context.api.operations import Operation, memory
from rag_context.api.operations.operation import Response
from rag_context.api.reading import read_fields
from rag_context.api.wire import WireResponse
from rag_context.cli.connection import open_connection
from rag_context.cli.console import Screen, ask_first, counted, safe
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
    Yes,
    load_available,
    parse_time,
)
from rag_context.server.mcp.text import readable
from rag_context.settings import Loaded

DocumentId = Annotated[str, typer.Argument(metavar="DOCUMENT_ID", help="As search and list print it.")]

Fields = Mapping[str, Any]
"""A request's fields by their names on the wire; None where one was not given."""


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
    fields = {"documentId": document_id, "project": project, "branch": branch, "pathHash": path_hash}
    raise typer.Exit(run_tool(Chosen(config, {"data_dir": data_dir}), memory.GET, fields, as_json=as_json))


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
    since: Since = None,
    until: Until = None,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List the stored documents, newest first."""
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
        "since": since and parse_time(since, "--since", now),
        "until": until and parse_time(until, "--until", now),
        "project": project,
        "branch": branch,
        "pathHash": path_hash,
    }
    raise typer.Exit(run_tool(Chosen(config, {"data_dir": data_dir}), memory.LIST, fields, as_json=as_json))


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
    fields = {
        "documentId": document_id,
        "limit": limit,
        "project": project,
        "branch": branch,
        "pathHash": path_hash,
    }
    raise typer.Exit(run_tool(Chosen(config, {"data_dir": data_dir}), memory.SIMILAR, fields, as_json=as_json))


def delete(
    document_id: Annotated[
        str | None, typer.Argument(metavar="[DOCUMENT_ID]", help="As search and list print it.", show_default=False)
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="SOURCE", help="All documents of exactly this source.")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="All documents of this session.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    yes: Yes = False,
    project: Project = None,
    branch: Branch = None,
    path_hash: PathHash = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Delete a document, or all of a source or session, for good; asks first, and says how many there are."""
    fields = {
        "documentId": document_id,
        "source": source,
        "sessionId": session,
        "project": project,
        "branch": branch,
        "pathHash": path_hash,
    }
    chosen = Chosen(config, {"data_dir": data_dir})
    raise typer.Exit(run_delete(chosen, fields, dry_run=dry_run, yes=yes, as_json=as_json))


def run_tool(chosen: Chosen, operation: Operation[Any, Any], fields: Fields, *, as_json: bool) -> ExitCode:
    """Run a tool, and print its answer."""
    loaded = load_available(chosen)
    _print(asyncio.run(_ask(loaded, operation, fields)), as_json=as_json)
    return ExitCode.OK


def run_delete(chosen: Chosen, fields: Fields, *, dry_run: bool, yes: bool, as_json: bool) -> ExitCode:
    """Say what would be deleted, ask whether it should be, and delete it."""
    loaded = load_available(chosen)
    preview = asyncio.run(_ask(loaded, memory.DELETE, {**fields, "dryRun": True}))
    if dry_run or not preview.deleted_count:
        _print(preview, as_json=as_json)
        return ExitCode.OK
    if not yes:
        ask_first(f"Delete {counted(preview.deleted_count, 'document')} for good?")
    _print(asyncio.run(_ask(loaded, memory.DELETE, {**fields, "confirm": True})), as_json=as_json)
    return ExitCode.OK


async def _ask(loaded: Loaded, operation: Operation[Any, Response], fields: Fields) -> Response:
    request = read_fields(operation.request, {name: value for name, value in fields.items() if value is not None})
    async with open_connection(loaded) as connection:
        return await connection.run(operation, request)


def _print(body: WireResponse, *, as_json: bool) -> None:
    screen = Screen()
    if as_json:
        screen.line(body.to_json().decode())
    else:
        screen.show(safe(readable(body)))

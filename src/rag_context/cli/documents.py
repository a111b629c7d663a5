"""`get`, `list`, `similar` and `delete`: documents that are kept, by the tools of the same names."""

import asyncio
from typing import Any

from rag_context.api.operations import Operation, memory
from rag_context.api.operations.operation import Response
from rag_context.api.wire import WireResponse
from rag_context.cli.connection import open_connection
from rag_context.cli.console import Screen, ask_first, counted, safe
from rag_context.cli.exits import ExitCode
from rag_context.cli.fields import Fields, Name, exit_with, read_typed, with_fields
from rag_context.cli.options import AsJson, Chosen, Config, DataDir, Yes, load_available
from rag_context.server.mcp.text import readable
from rag_context.settings import Loaded


@with_fields(memory.GET)
def get(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Print one document in full."""
    exit_with(run_operation(Chosen(config, {"data_dir": data_dir}), memory.GET, fields, as_json=as_json))


@with_fields(memory.LIST)
def list_documents(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """List the stored documents, newest first."""
    exit_with(run_operation(Chosen(config, {"data_dir": data_dir}), memory.LIST, fields, as_json=as_json))


@with_fields(memory.SIMILAR)
def similar(fields: Fields, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None) -> None:
    """Find the documents that are most similar to a stored one."""
    exit_with(run_operation(Chosen(config, {"data_dir": data_dir}), memory.SIMILAR, fields, as_json=as_json))


@with_fields(
    memory.DELETE,
    {
        "source": Name(None, "SOURCE", "All documents of exactly this source."),
        "session_id": Name("--session", "ID", "All documents of this session."),
        "dry_run": Name(None, None, "Only say what would be deleted."),
    },
)
def delete(
    fields: Fields, yes: Yes = False, as_json: AsJson = False, data_dir: DataDir = None, config: Config = None
) -> None:
    """Delete a document, or all of a source or session, for good; asks first, and says how many there are."""
    exit_with(run_delete(Chosen(config, {"data_dir": data_dir}), fields, yes=yes, as_json=as_json))


def run_operation(chosen: Chosen, operation: Operation[Any, Any], fields: Fields, *, as_json: bool) -> ExitCode:
    """Run an operation, and print its answer."""
    loaded = load_available(chosen)
    _print(asyncio.run(_ask(loaded, operation, fields)), as_json=as_json)
    return ExitCode.OK


def run_delete(chosen: Chosen, fields: Fields, *, yes: bool, as_json: bool) -> ExitCode:
    """Say what would be deleted, ask whether it should be, and delete it."""
    loaded = load_available(chosen)
    preview = asyncio.run(_ask(loaded, memory.DELETE, {**fields, "dry_run": True}))
    if "dry_run" in fields or not preview.deleted_count:
        _print(preview, as_json=as_json)
        return ExitCode.OK
    if not yes:
        ask_first(f"Delete {counted(preview.deleted_count, 'document')} for good?")
    _print(asyncio.run(_ask(loaded, memory.DELETE, {**fields, "confirm": True})), as_json=as_json)
    return ExitCode.OK


async def _ask(loaded: Loaded, operation: Operation[Any, Response], fields: Fields) -> Response:
    request = read_typed(operation.request, fields, loaded.settings)
    async with open_connection(loaded) as connection:
        return await connection.run(operation, request)


def _print(body: WireResponse, *, as_json: bool) -> None:
    screen = Screen()
    if as_json:
        screen.line(body.to_json().decode())
    else:
        screen.show(safe(readable(body)))

"""`get`, `list`, `similar` and `delete`: documents that are kept, by the tools of the same names."""

import asyncio
from collections.abc import Mapping
from typing import Any

from rag_context.api.delete import DeleteRequest, DeleteResponse
from rag_context.api.get import GetRequest, GetResponse
from rag_context.api.listing import ListRequest, ListResponse
from rag_context.api.reading import read_fields
from rag_context.api.similar import SimilarRequest, SimilarResponse
from rag_context.api.wire import WireRequest, WireResponse
from rag_context.cli.connection import open_connection
from rag_context.cli.exits import ExitCode
from rag_context.cli.options import Chosen
from rag_context.cli.screen import Screen, ask_first, counted, safe
from rag_context.cli.settings import load_available
from rag_context.server.mcp.text import readable
from rag_context.settings import Loaded

_TOOLS: Mapping[str, tuple[type[WireRequest], type[WireResponse]]] = {
    "rag_context_get": (GetRequest, GetResponse),
    "rag_context_list": (ListRequest, ListResponse),
    "rag_context_similar": (SimilarRequest, SimilarResponse),
    "rag_context_delete": (DeleteRequest, DeleteResponse),
}
Fields = Mapping[str, Any]
"""A request's fields by their names on the wire; None where one was not given."""


def run_tool(chosen: Chosen, tool: str, fields: Fields, *, as_json: bool) -> ExitCode:
    """Run a tool, and print its answer."""
    loaded = load_available(chosen)
    _print(asyncio.run(_ask(loaded, tool, fields)), as_json=as_json)
    return ExitCode.OK


def run_delete(chosen: Chosen, fields: Fields, *, dry_run: bool, yes: bool, as_json: bool) -> ExitCode:
    """Say what would be deleted, ask whether it should be, and delete it."""
    loaded = load_available(chosen)
    tool = "rag_context_delete"
    preview = asyncio.run(_ask(loaded, tool, {**fields, "dryRun": True}))
    assert isinstance(preview, DeleteResponse)  # noqa: S101  (that tool answers nothing else)
    if dry_run or not preview.deleted_count:
        _print(preview, as_json=as_json)
        return ExitCode.OK
    if not yes:
        ask_first(f"Delete {counted(preview.deleted_count, 'document')} for good?")
    _print(asyncio.run(_ask(loaded, tool, {**fields, "confirm": True})), as_json=as_json)
    return ExitCode.OK


async def _ask(loaded: Loaded, tool: str, fields: Fields) -> WireResponse:
    request_model, response_model = _TOOLS[tool]
    request = read_fields(request_model, {name: value for name, value in fields.items() if value is not None})
    async with open_connection(loaded) as connection:
        return await connection.run(tool, request, response_model)


def _print(body: WireResponse, *, as_json: bool) -> None:
    screen = Screen()
    if as_json:
        screen.line(body.to_json().decode())
    else:
        screen.show(safe(readable(body)))

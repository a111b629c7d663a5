"""`project list` and `project forget`: which projects are stored, and taking one out."""

import asyncio
from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from rag_context.api.project_tenants import (
    DeleteDocumentsRequest,
    DeleteDocumentsResponse,
    ListedProject,
    ListProjectsRequest,
    ListProjectsResponse,
)
from rag_context.cli.exits import ExitCode
from rag_context.cli.options import Chosen
from rag_context.cli.project import count_of, open_tools, read_request
from rag_context.cli.screen import Screen, ask_first, safe


def run_list(chosen: Chosen, *, as_json: bool) -> ExitCode:
    """Say which projects are stored."""

    async def listed() -> ListProjectsResponse:
        async with open_tools(chosen) as tools:
            return await tools.run("list_projects", ListProjectsRequest(), ListProjectsResponse)

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


def run_forget(
    chosen: Chosen, fields: Mapping[str, str | None], *, dry_run: bool, yes: bool, as_json: bool
) -> ExitCode:
    """Say what would be forgotten, ask whether it should be, and take it out of the index."""

    async def deletion(*, dry_run: bool) -> DeleteDocumentsResponse:
        request = read_request(DeleteDocumentsRequest, {**fields, "dry_run": dry_run})
        async with open_tools(chosen) as tools:
            return await tools.run("delete_documents", request, DeleteDocumentsResponse)

    response = asyncio.run(deletion(dry_run=True))
    if not dry_run:
        if not yes:
            branches = "all branches" if response.branch_name is None else f"branch {safe(response.branch_name)}"
            many = count_of(response.deleted_count)
            ask_first(f"Forget {many} of {safe(response.project_name)}, {branches}? Its files stay as they are.")
        response = asyncio.run(deletion(dry_run=False))
    screen = Screen()
    if as_json:
        screen.line(response.to_json().decode())
    else:
        done = "would be forgotten (none was)" if dry_run else "forgotten; the files stay as they are"
        screen.show(Text(f"{safe(response.project_name)}: {count_of(response.deleted_count)} {done}"))
    return ExitCode.OK


def _place(project: ListedProject) -> str:
    path = project.path or ""
    if project.exists is False:
        end = project.removed_after
        return f"{path} (gone{f', removed after {end:%Y-%m-%d}' if end is not None else ''})"
    return f"{path} (followed)" if project.followed else path

"""How the commands `project` run a tool: through the running server, or in this process.

The project is the one that is named, else that of the current folder.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_context.api.operations import Operation, Request, Response
from rag_context.api.operations import projects as operations
from rag_context.api.projects import ActivateProjectRequest
from rag_context.cli.connecting import Remote, open_connection
from rag_context.cli.console import Console
from rag_context.cli.operation_options import Fields, Name, read_typed
from rag_context.cli.options import Options
from rag_context.domain.callers import CallerId
from rag_context.errors import InvalidInputError
from rag_context.projects.project_opening import Activation, find_config, open_project
from rag_context.projects.records import FileSystemError, ProjectError

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
    """The tools in this process, over the index itself."""

    def __init__(self, connection: "InProcess") -> None:
        self._connection = connection
        self.place = connection.place

    async def run(self, operation: Operation[Request, Response], request: Request) -> Response:
        """Run an operation of project documents here."""
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
    """What runs the tools. Raises: ConfigurationError."""
    async with open_connection(options.load_available()) as connection:
        if isinstance(connection, Remote):
            yield connection
            return
        from rag_context.cli.local_connection import InProcess  # noqa: PLC0415  (already loaded, in this case)

        assert isinstance(connection, InProcess)  # noqa: S101  (there is no third place)
        yield _Here(connection)


def path_in_docs(path: str, here: Activation | None, cwd: Path) -> str:
    """A document's path relative to the docs folder, where it was named as a file."""
    file = (cwd / path).resolve()
    if here is not None and file.is_relative_to(here.docs_root) and file.is_file():
        return file.relative_to(here.docs_root).as_posix()
    return path

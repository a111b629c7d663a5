"""`remember` and `recall`: a sentence into the memory, and what it knows about a question, of the project at hand."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rag_context.agents.workspace import workspace
from rag_context.api import index, search, verbs
from rag_context.api.operations import memory
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.connecting import open_connection
from rag_context.cli.memory_commands import print_readable
from rag_context.cli.operation_options import Fields, with_fields
from rag_context.cli.options import Options, option, with_options
from rag_context.cli.search_command import request_of
from rag_context.errors import InvalidInputError
from rag_context.settings import Loaded

_OUTCOMES: Mapping[str, str] = {
    "indexed": "Remembered",
    "unchanged": "Remembered before",
    "replaced": "Remembered with other tags",
    "deferred": "Remembered; keyword search finds it now, vector search a little later",
}


@with_options
def remember(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to keep, in your own words; - is stdin.")],
    kind: verbs.Kind = option(
        "decision", "What it is. An instruction is shown with all answers that it may apply to.", "--type"
    ),
    tag: list[str] | None = option(None, "A tag; may be given several times.", metavar="TAG"),
    *,
    everywhere: bool = option(False, "It holds for all projects."),
    options: Options,
) -> ExitCode:
    """Keep a decision, an instruction, a fix or a note in your own words; agents find it from now on.

    It belongs to the project of the current folder, and is shown in no other, unless --everywhere is given.
    """
    loaded = options.load_available()
    document = verbs.remembered(_stdin() if text == "-" else text, kind, tag or (), None if everywhere else _project())
    receipt = run_to_end(_remember(loaded, document))
    options.show(receipt, lambda body, console: console.show(f"{_OUTCOMES[body.status]}: {body.document_id}"))
    return ExitCode.OK


@with_fields(memory.SEARCH, only=("query", "limit", "content_type", "tags", "since", "until", "max_tokens"))
def recall(fields: Fields, *, everywhere: bool = option(False, "From all projects."), options: Options) -> ExitCode:
    """Print the passages that answer a question, as agents read them.

    Those of the project of the current folder, and those that belong to no project, unless --everywhere is given.
    """
    loaded = options.load_available()
    request = request_of(fields, loaded.settings, cwd=Path.cwd())
    response = run_to_end(_recall(loaded, request, None if everywhere else _project()))
    options.show(response, print_readable)
    return ExitCode.OK if response.fallback_level <= 2 else ExitCode.FAILED


def _project() -> str | None:
    here = workspace(Path.cwd())
    return None if here is None else here.tag


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read(4 * index.BULK_CONTENT_CHARS).decode()
    except UnicodeDecodeError:
        raise InvalidInputError("stdin is not text in UTF-8, or is longer than a document can be.") from None


async def _remember(loaded: Loaded, document: index.BulkLine) -> index.BulkReceipt:
    receipts: list[index.BulkReceipt] = []
    async with open_connection(loaded) as connection:
        await connection.bulk([document], lambda _line, receipt: receipts.append(receipt))
    return verbs.kept(receipts[0])


async def _recall(loaded: Loaded, request: search.SearchRequest, project: str | None) -> search.SearchResponse:
    async with open_connection(loaded) as connection:
        if project is None:
            return await connection.run(memory.SEARCH, request)
        everything = await connection.run(memory.SEARCH, request.model_copy(update={"limit": search.MAX_LIMIT}))
        tags = [*(request.tags or ()), project]
        own = await connection.run(memory.SEARCH, request.model_copy(update={"tags": tags}))
        return verbs.recalled(everything, own, project, request.limit)

"""The commands over stored documents: `get`, `list`, `similar` and `delete`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rag_context.api import stored_documents
from rag_context.api.operations import Operation, Response, memory
from rag_context.api.wire import WireResponse
from rag_context.cli.command_line import ExitCode
from rag_context.cli.console import Console, ago, ask_first, counted
from rag_context.cli.operation_options import Fields, Name, read_typed, with_fields
from rag_context.cli.options import Options, Yes
from rag_context.cli.search_command import shown_source
from rag_context.cli.server_call import answer_of
from rag_context.settings import Loaded


@with_fields(memory.GET)
def get(fields: Fields, options: Options) -> ExitCode:
    """Print one document in full."""
    return run(memory.GET, fields, options, print_readable)


@with_fields(memory.LIST)
def list_documents(fields: Fields, options: Options) -> ExitCode:
    """List the stored documents, newest first."""
    return run(memory.LIST, fields, options, _print_list)


@with_fields(memory.SIMILAR)
def similar(fields: Fields, options: Options) -> ExitCode:
    """Find the documents that are most similar to a stored one."""
    return run(memory.SIMILAR, fields, options, _print_similar)


@with_fields(
    memory.DELETE,
    {
        "source": Name(None, "SOURCE", "All documents of exactly this source."),
        "session_id": Name("--session", "ID", "All documents of this session."),
        "dry_run": Name(None, None, "Only report what would be deleted."),
    },
)
def delete(fields: Fields, *, yes: Yes = False, options: Options) -> ExitCode:
    """Delete a document, or all of a source or session, for good, after a confirmation that says how many."""

    def question(preview: stored_documents.DeleteResponse) -> str | None:
        count = preview.deleted_count
        return f"Delete {counted(count, 'document')} for good?" if count else None

    return run_confirmed(memory.DELETE, fields, options, question, yes=yes)


def run_confirmed(
    operation: Operation[Any, Response],
    fields: Fields,
    options: Options,
    question: Callable[[Response], str | None],
    *,
    yes: bool,
) -> ExitCode:
    """Run an operation that deletes, once a person has agreed to what its dry run says; no question: nothing to do."""
    loaded = options.load_available()
    preview = answer(loaded, operation, {**fields, "dry_run": True})
    asked = question(preview)
    if "dry_run" in fields or asked is None:
        options.show(preview, print_readable)
        return ExitCode.OK
    if not yes:
        ask_first(asked)
    options.show(answer(loaded, operation, {**fields, "confirm": True}), print_readable)
    return ExitCode.OK


def run(
    operation: Operation[Any, Response],
    fields: Fields,
    options: Options,
    print_for_people: Callable[[Response, Console], None],
) -> ExitCode:
    options.show(answer(options.load_available(), operation, fields), print_for_people)
    return ExitCode.OK


def answer(loaded: Loaded, operation: Operation[Any, Response], fields: Fields) -> Response:
    return answer_of(loaded, operation, read_typed(operation.request, fields, loaded.settings))


def _print_list(response: stored_documents.ListResponse, console: Console) -> None:
    if response.warning:
        console.warning(response.warning)
    print_documents(response.documents, console)
    if response.next_cursor:
        console.note((f"There are more: --cursor {response.next_cursor}", "dim"))


def _print_similar(response: stored_documents.SimilarResponse, console: Console) -> None:
    if response.warning:
        console.warning(response.warning)
    how = "vectors" if response.method == "vector" else "keywords only"
    console.note((f"The most similar first, compared by {how}; 1 is the same.", "dim"))
    print_documents(response.results, console)


def print_documents(
    documents: Sequence[stored_documents.ListedDocument | stored_documents.SimilarDocument], console: Console
) -> None:
    """Each document by its title, with its age or how similar it is, and its id, whole on any terminal."""
    for each in documents:
        if isinstance(each, stored_documents.SimilarDocument):
            aside = f"{each.score:.2f}"
        else:
            aside = f"{'pending, ' if each.status == 'pending' else ''}{ago(each.occurred_at)}"
        source = shown_source(each.source, Path.cwd())
        facts = f"{each.document_id}  {each.content_type}  {source}"
        console.show_entries([(each.title or source, aside, facts)])
    if not documents:
        console.note(("No documents.", "yellow"))


def print_readable(body: WireResponse, console: Console) -> None:
    from rag_context.server.mcp.readable import readable  # noqa: PLC0415  (searches start faster without it)

    console.show(readable(body))

"""The commands over stored documents: `get`, `list`, `similar` and `delete`; `correct`, `history`, `log`, `undo`,
`forget` and `review` for changes over time; and `why`, what agents were shown."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from rag_context.api import changes, maintenance, stored_documents, wire
from rag_context.api.operations import Operation, Response, memory
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console, ago, ask_first, counted, one_line
from rag_context.cli.operation_options import Fields, Name, read_typed, with_fields
from rag_context.cli.options import Options, Yes, option, with_options
from rag_context.cli.search_command import shown_source, snippet
from rag_context.cli.server_call import answer_of
from rag_context.errors import InvalidInputError, RagContextError
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


def print_readable(body: wire.WireResponse, console: Console) -> None:
    from rag_context.server.mcp.readable import readable  # noqa: PLC0415  (searches start faster without it)

    console.show(readable(body))


MOST_LISTED = 1_000
"""Accesses that are listed unless `--limit` says how many."""

_AGENT = Name(None, "NAME", "Name that the log shows; default cli.")


@with_fields(
    memory.CORRECT,
    {
        "source": Name(None, "SOURCE", "The only document of exactly this source."),
        "content": Name(None, "TEXT", "The whole text, as it is; - or nothing: from standard input."),
        "reason": Name(None, "TEXT", "Why."),
        "agent": _AGENT,
    },
    only=("document_id", "source", "reason", "agent", "project", "branch", "path_hash"),
)
def correct(
    fields: Fields,
    *,
    content: str | None = option(None, "The whole text, as it is; default: standard input.", metavar="TEXT"),
    options: Options,
) -> ExitCode:
    """Store the right version of a document, and hide the wrong one; its content is kept."""
    if content is None and sys.stdin.isatty():
        raise InvalidInputError("Say what is right: --content TEXT, or send the text to standard input")
    text = sys.stdin.read() if content is None else content
    return run(memory.CORRECT, {"agent": "cli", **fields, "content": text}, options, print_readable)


@with_fields(memory.HISTORY)
def history(fields: Fields, options: Options) -> ExitCode:
    """List the versions that corrections have made of a document, oldest first."""
    return run(memory.HISTORY, fields, options, print_readable)


@with_fields(memory.LOG, {"before": Name(None, "ID", "Only changes before this one."), "limit": Name(None, "N", None)})
def log(
    fields: Fields,
    *,
    injected: bool = option(False, "Instead: what hooks showed to agents, and withheld."),
    session: str | None = option(None, "With --injected: of this session alone.", metavar="ID"),
    shown: bool = option(False, "With --injected: without what was withheld."),
    accesses: bool = option(False, "Instead: who changed something, or was rejected, as lines of JSON."),
    options: Options,
) -> ExitCode:
    """List what was changed in the memory, newest first, and what of it can be undone."""
    if accesses:
        from rag_context.memory.accesses import as_line  # noqa: PLC0415  (only for this)
        from rag_context.wiring.opening import recorded_accesses  # noqa: PLC0415

        most = int(str(fields.get("limit", MOST_LISTED)))
        for access in run_to_end(recorded_accesses(options.load_available().settings, most)):
            sys.stdout.write(f"{as_line(access)}\n")
        return ExitCode.OK
    if injected:
        limit = {"limit": fields["limit"]} if "limit" in fields else {}
        asked = {**limit, "session_id": session, "shown_only": shown}
        return run(memory.INJECTIONS, asked, options, print_injections)
    return run(memory.LOG, fields, options, _print_log)


@with_fields(memory.UNDO, {"id": Name(None, "ID", "Number of the change in the log.", is_argument=True)})
def undo(fields: Fields, options: Options) -> ExitCode:
    """Undo a change of the log; the undoing can be undone too."""
    return run(memory.UNDO, fields, options, print_readable)


@with_fields(
    memory.FORGET,
    {
        "source": Name(None, "SOURCE", "All documents of exactly this source."),
        "session_id": Name("--session", "ID", "All documents of this session."),
        "agent": Name(None, "NAME", "All documents that this agent produced."),
        "tag": Name(None, "TAG", "All documents with this tag."),
        "contains": Name(None, "TEXT", "All documents that contain this text, whatever the case."),
        "dry_run": Name(None, None, "Only list what would be forgotten."),
        "purge": Name(None, None, "Remove the content for good and at once, from the trash too."),
        "reason": Name(None, "TEXT", "Why; kept with the change."),
    },
)
def forget(fields: Fields, *, yes: Yes = False, options: Options) -> ExitCode:
    """Forget documents, after a list and a confirmation; `undo` restores them for 30 days, unless they are purged."""
    return run_confirmed(memory.FORGET, fields, options, _question, yes=yes)


def _question(preview: changes.ForgetResponse) -> str | None:
    if not preview.documents:
        return None
    sources = list(dict.fromkeys(one_line(each.source) for each in preview.listed))
    more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
    what = f"{counted(preview.documents, 'document')} ({', '.join(sources[:3])}{more})"
    return f"Remove {what} for good?" if preview.purged else f"Forget {what}?"


def _print_log(response: changes.LogResponse, console: Console) -> None:
    if not response.entries:
        console.note(("Nothing was changed yet.", "yellow"))
        return
    for each in response.entries:
        what = (each.source or "(not stored any more)") + (f" and {each.count - 1} more" if each.count > 1 else "")
        facts = [f"change {each.id}", f"by {each.by}", "can be undone" if each.undoable else "", each.reason or ""]
        operation = each.operation + (f" of {each.undoes}" if each.undoes else "")
        console.show_entries([(f"{operation} {what}", ago(each.at), ", ".join(filter(None, facts)))])
    if response.next_before is not None:
        console.note((f"There are more: --before {response.next_before}", "dim"))


EXCERPT_CHARS = 300


@with_options
def why(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session of the agent's client.")],
    *,
    options: Options,
) -> ExitCode:
    """Explain what one session of an agent was shown, moment by moment, with the passages and their scores."""
    return run(memory.INJECTIONS, {"session_id": session, "limit": 500}, options, _print_story)


def print_injections(response: maintenance.InjectionsResponse, console: Console) -> None:
    """List what agents were shown unasked, and what was withheld and why, newest first."""
    if not response.injections:
        console.note(("Agents were shown nothing, and nothing was withheld from them.", "yellow"))
        return
    for each in response.injections:
        outcome = counted(each.tokens, "token") if each.shown else f"withheld: {each.reason}"
        facts = f"{outcome}, {each.event} of {each.client}, session {each.session_id}"
        console.show_entries([(_named(each), ago(each.at), facts)])
    console.note((f"{counted(response.tokens, 'token')} in all. `rag-context why SESSION` shows a session.", "dim"))


def _print_story(response: maintenance.InjectionsResponse, console: Console) -> None:
    lines: list[str] = []
    moment = None
    for each in reversed(response.injections):
        if moment != (moment := (each.at, each.event, each.subject)):
            about = f" before {one_line(each.subject)}" if each.subject else ""
            lines += [
                "",
                f"{each.at.astimezone():%Y-%m-%d %H:%M:%S} {each.event}{about} ({each.client}, {each.project})",
            ]
        scores = ", ".join(f"{name} {value:g}" for name, value in each.scores.items())
        outcome = f"shown, {counted(each.tokens, 'token')}" if each.shown else f"withheld: {each.reason}"
        lines.append(f"  {outcome}: {_named(each)}" if each.document_id else f"  nothing: {each.reason}")
        lines += [f"    {scores}"] if scores else []
        lines += [f"    {one_line(each.content)[:EXCERPT_CHARS]}"] if each.shown and each.content else []
    console.show("\n".join(lines).strip() or "Nothing was shown in this session, and nothing withheld from it.")
    console.note((f"{counted(response.tokens, 'token')} in all.", "dim"))


def _named(each: maintenance.InjectedPassage) -> str:
    if each.document_id is None:
        return "no passage"
    return one_line(each.title) if each.title is not None else f"document {each.document_id}, deleted since"


_OPERATIONS: dict[str, Operation[Any, Any]] = {
    each.name: each for each in (memory.CORRECT, memory.FORGET, memory.DECIDE)
}
_NEXT, _END = "n", "q"


@with_fields(memory.REVIEW, {"limit": Name(None, "N", None), "cursor": Name(None, "CURSOR", None)})
def review(fields: Fields, options: Options) -> ExitCode:
    """List what probably needs a decision; at a terminal, ask for it. Nothing happens by itself."""
    loaded = options.load_available()
    response = answer(loaded, memory.REVIEW, fields)
    options.show(response, partial(_ask_for_each, loaded))
    return ExitCode.OK


def _ask_for_each(loaded: Loaded, response: changes.ReviewResponse, console: Console) -> None:
    for suggestion in response.suggestions:
        console.show((one_line(suggestion.detail), "yellow"))
        for document in suggestion.documents:
            facts = f"{document.document_id}  words of {document.origin}  {document.source}"
            console.show_entries([(document.title, ago(document.occurred_at), facts)])
            console.show_below(snippet(document.excerpt), "dim")
        key = _key(suggestion) if sys.stdin.isatty() else _NEXT
        if key == _END:
            return
        if key != _NEXT:
            _decide(suggestion, key, loaded, console)
        console.show("")
    console.note(f"{counted(response.examined, 'document')} examined.")
    if response.next_cursor is not None:
        console.note((f"There are more: --cursor {response.next_cursor}", "dim"))


def _key(suggestion: changes.Suggestion) -> str:
    actions = [call.action for call in suggestion.calls] + ["next", "quit"]
    click.echo(" ".join(f"[{action[0]}]{action[1:]}" for action in actions), err=True)
    keys = {action[0] for action in actions}
    while (key := click.getchar().lower()) not in keys:
        if key in {"\x03", "\x04"}:
            return _END
    return key


def _decide(suggestion: changes.Suggestion, key: str, loaded: Loaded, console: Console) -> None:
    call = next(call for call in suggestion.calls if call.action[0] == key)
    arguments = dict(call.arguments)
    if call.action == "correct":
        document = answer(loaded, memory.GET, {"document_id": suggestion.documents[-1].document_id})
        content = click.edit(document.content)
        if not content or content.strip() == document.content.strip():
            return
        arguments["content"] = content
    operation = _OPERATIONS[call.tool]
    try:
        done = answer_of(loaded, operation, operation.request.model_validate(arguments))
        print_readable(done, console)
    except RagContextError as error:
        console.error(str(error))

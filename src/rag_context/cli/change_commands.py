"""The commands of changes over time: `correct`, `history`, `log`, `undo` and `forget`."""

import sys

from rag_context.api.changes import ForgetResponse, LogResponse
from rag_context.api.operations import memory
from rag_context.cli.command_line import ExitCode
from rag_context.cli.console import Console, counted, one_line
from rag_context.cli.memory_commands import print_readable, run, run_confirmed
from rag_context.cli.operation_options import Fields, Name, with_fields
from rag_context.cli.options import Options, Yes, option
from rag_context.cli.receipts import print_injections
from rag_context.errors import InvalidInputError

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


def _question(preview: ForgetResponse) -> str | None:
    if not preview.documents:
        return None
    sources = list(dict.fromkeys(one_line(each.source) for each in preview.listed))
    more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
    what = f"{counted(preview.documents, 'document')} ({', '.join(sources[:3])}{more})"
    return f"Remove {what} for good?" if preview.purged else f"Forget {what}?"


def _print_log(response: LogResponse, console: Console) -> None:
    if not response.entries:
        console.note(("Nothing was changed yet.", "yellow"))
        return
    rows = [
        [
            str(each.id),
            f"{each.at.astimezone():%Y-%m-%d %H:%M:%S}",
            one_line(each.by),
            each.operation + (f" of {each.undoes}" if each.undoes else ""),
            "yes" if each.undoable else "",
            one_line(each.source or "(not stored any more)")
            + (f" and {each.count - 1} more" if each.count > 1 else "")
            + (f": {one_line(each.reason)}" if each.reason else ""),
        ]
        for each in response.entries
    ]
    console.show_table(("Id", "At", "By", "Change", "Undoable", "Document"), rows, unwrapped={"Id", "At", "Change"})
    if response.next_before is not None:
        console.note((f"There are more: --before {response.next_before}", "dim"))

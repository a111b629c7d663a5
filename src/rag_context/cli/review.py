"""The command `review`: suggestions, and at a terminal a question about each."""

import sys
from typing import Any

import click

from rag_context.api.operations import Operation, memory
from rag_context.api.review import ReviewResponse, Suggestion
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.connecting import answer_of
from rag_context.cli.console import Console, counted, one_line
from rag_context.cli.memory_commands import answer, print_readable
from rag_context.cli.operation_options import Fields, Name, with_fields
from rag_context.cli.options import Options
from rag_context.errors import RagContextError
from rag_context.settings import Loaded

_OPERATIONS: dict[str, Operation[Any, Any]] = {
    each.name: each for each in (memory.CORRECT, memory.FORGET, memory.DECIDE)
}
_NEXT, _END = "n", "q"


@with_fields(memory.REVIEW, {"limit": Name(None, "N", None), "cursor": Name(None, "CURSOR", None)})
def review(fields: Fields, options: Options) -> ExitCode:
    """List what probably needs a decision; at a terminal, ask for it. Nothing happens by itself."""
    loaded = options.load_available()
    response = run_to_end(answer(loaded, memory.REVIEW, fields))
    if options.as_json or not sys.stdin.isatty():
        options.show(response, print_readable)
        return ExitCode.OK
    _ask_for_each(response, loaded, Console())
    return ExitCode.OK


def _ask_for_each(response: ReviewResponse, loaded: Loaded, console: Console) -> None:
    for suggestion in response.suggestions:
        console.show((suggestion.kind, "bold"), f": {one_line(suggestion.detail)}")
        for document in suggestion.documents:
            facts = f"{document.occurred_at.astimezone():%Y-%m-%d} {document.origin} {document.source}"
            console.show((one_line(facts), "dim"), f"  {one_line(document.excerpt)}")
        key = _key(suggestion)
        if key == _END:
            return
        if key != _NEXT:
            _decide(suggestion, key, loaded, console)
    console.note(f"{counted(response.examined, 'document')} examined.")
    if response.next_cursor is not None:
        console.note((f"There are more: --cursor {response.next_cursor}", "dim"))


def _key(suggestion: Suggestion) -> str:
    actions = [call.action for call in suggestion.calls] + ["next", "quit"]
    click.echo(" ".join(f"[{action[0]}]{action[1:]}" for action in actions), err=True)
    keys = {action[0] for action in actions}
    while (key := click.getchar().lower()) not in keys:
        if key in {"\x03", "\x04"}:
            return _END
    return key


def _decide(suggestion: Suggestion, key: str, loaded: Loaded, console: Console) -> None:
    call = next(call for call in suggestion.calls if call.action[0] == key)
    arguments = dict(call.arguments)
    if call.action == "correct":
        document = run_to_end(answer(loaded, memory.GET, {"document_id": suggestion.documents[-1].document_id}))
        content = click.edit(document.content)
        if not content or content.strip() == document.content.strip():
            return
        arguments["content"] = content
    operation = _OPERATIONS[call.tool]
    try:
        done = run_to_end(answer_of(loaded, operation, operation.request.model_validate(arguments)))
        print_readable(done, console)
    except RagContextError as error:
        console.error(str(error))

"""`log --injected` and `why`: what agents were shown unasked, why, and what it cost."""

from typing import Annotated

import typer

from rag_context.api.injections import InjectedPassage, InjectionsResponse
from rag_context.api.operations import memory
from rag_context.cli.command_line import ExitCode
from rag_context.cli.console import Console, counted, one_line
from rag_context.cli.memory_commands import run
from rag_context.cli.options import Options, with_options

EXCERPT_CHARS = 300


@with_options
def why(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session of the agent's client.")],
    *,
    options: Options,
) -> ExitCode:
    """Explain what one session of an agent was shown, moment by moment, with the passages and their scores."""
    return run(memory.INJECTIONS, {"session_id": session, "limit": 500}, options, _print_story)


def print_injections(response: InjectionsResponse, console: Console) -> None:
    """List what agents were shown unasked, and what was withheld and why, newest first."""
    if not response.injections:
        console.note(("Agents were shown nothing, and nothing was withheld from them.", "yellow"))
        return
    rows = [
        [
            f"{each.at.astimezone():%Y-%m-%d %H:%M:%S}",
            f"{each.client} {each.session_id}",
            each.event,
            str(each.tokens) if each.shown else "-",
            f"{_named(each)}{'' if each.shown else f': {each.reason}'}",
        ]
        for each in response.injections
    ]
    console.show_table(("At", "Session", "Moment", "Tokens", "Passage"), rows, unwrapped={"At", "Moment", "Tokens"})
    console.note((f"{counted(response.tokens, 'token')} in all. `rag-context why SESSION` shows a session.", "dim"))


def _print_story(response: InjectionsResponse, console: Console) -> None:
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


def _named(each: InjectedPassage) -> str:
    if each.document_id is None:
        return "no passage"
    return one_line(each.title) if each.title is not None else f"document {each.document_id}, deleted since"

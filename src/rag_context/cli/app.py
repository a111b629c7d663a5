"""The command line: every group of commands, and what holds for all of them.

The work of a command is loaded only when it runs, so that `--help` is quick.
"""

import sys
from typing import Annotated, Any

import typer

from rag_context._version import __version__
from rag_context.cli import (
    collections_commands,
    documents_commands,
    mcp_commands,
    measuring_commands,
    memory_commands,
    project_commands,
    serve_commands,
    status_commands,
    upkeep_commands,
)
from rag_context.cli.exits import EPILOG, ExitCode, report
from rag_context.cli.pauses import keep_pauses_short
from rag_context.cli.screen import Screen
from rag_context.cli.usage import Command, Group
from rag_context.errors import RagContextError

_ANSWERING = ("serve", "embed-server", "mcp")
"""Commands that keep others waiting while they pause. In the rest a collection is left alone: Ctrl-C during one would
be raised in the callback that hears of it, and be lost there."""


class Commands(Group):
    """Turns our own errors into one sentence and an exit status; a bug keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except RagContextError as error:
            raise typer.Exit(report(error, Screen())) from error
        except KeyboardInterrupt:
            Screen().note("interrupted.")
            raise typer.Exit(ExitCode.INTERRUPTED) from None


app = typer.Typer(
    name="rag-context",
    cls=Commands,
    help="The memory that AI agents share: index chats, decisions, code and documents; search for the few passages "
    "that matter.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add(group: typer.Typer, name: str | None = None) -> None:
    for command in group.registered_commands:
        command.cls = Command
    app.add_typer(group, name=name, cls=Group, epilog=EPILOG)


_add(serve_commands.group)
_add(memory_commands.group)
_add(documents_commands.group)
_add(status_commands.group)
_add(upkeep_commands.group)
_add(measuring_commands.group)
_add(collections_commands.group, "collections")
_add(project_commands.group, "project")
_add(mcp_commands.group, "mcp")


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    app()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rag-context {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before any command."""
    if ctx.invoked_subcommand in _ANSWERING:
        keep_pauses_short()

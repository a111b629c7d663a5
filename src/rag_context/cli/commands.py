"""What all commands share: they are loaded on first use, `--help` shows them plainly, and each ends with a status.

Help has the names that the pages use, in whole paragraphs, without Python's types.
"""

from collections.abc import Iterable
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rag_context.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ForeignIndexError,
    InvalidInputError,
    RagContextError,
)

if TYPE_CHECKING:
    from rag_context.cli.console import Screen


class Command(TyperCommand):
    """A command whose usage reads `index [OPTIONS] PATH...`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = unwrapped(self.help)

    def get_params(self, ctx: Any) -> Any:
        """The parameters, shown plainly."""
        return plain(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands, shown the same way."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = unwrapped(self.help)

    def get_params(self, ctx: Any) -> Any:
        """The parameters, shown plainly."""
        return plain(super().get_params(ctx))


class LazyCommand(TyperCommand):
    """What the list of commands shows of one; its module is imported when it or its own help is run.

    Args:
        name: what it is called on the command line.
        place: `module:attribute` of the function, or of the group of commands (`typer.Typer`), that does it.
        summary: its line in the list of commands, the first paragraph of its help.
    """

    def __init__(self, name: str, place: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._place = place
        self._loaded: Any = None

    def load(self) -> Any:
        """The command itself."""
        if self._loaded is None:
            module, _, attribute = self._place.partition(":")
            self._loaded = _built(str(self.name), getattr(import_module(module), attribute))
        return self._loaded

    def make_context(self, *args: Any, **options: Any) -> Any:
        """The command's own context: with it, it takes the place of this one."""
        return self.load().make_context(*args, **options)


def _built(name: str, what: Any) -> Any:
    """The command of a function, or a group with its commands."""
    around = typer.Typer()
    if isinstance(what, typer.Typer):
        for command in what.registered_commands:
            command.cls = Command
        around.add_typer(what, name=name, cls=Group, epilog=EPILOG)
    else:
        around.command(name, cls=Command, epilog=EPILOG)(what)
    return typer.main.get_group(around).commands[name]


def unwrapped(text: str | None) -> str | None:
    """Paragraphs of a docstring, one line each, so that the terminal's width alone breaks them."""
    return text and "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def plain(params: Iterable[Any]) -> list[Any]:
    """The same parameters: an argument is its name in the usage, and neither it nor a flag has a type beside it."""
    shown = list(params)
    for param in shown:
        if param.param_type_name == "argument":
            name = param.metavar or param.name.upper()
            param.get_usage_pieces = lambda _ctx, name=name: [name]
            param.display_type_rich = _nothing
        elif param.is_flag:
            param.metavar = ""
    return shown


def _nothing(ctx: Any) -> None:
    """What stands in the column of types."""


class ExitCode(IntEnum):
    """The statuses of every command; 75 and 78 are those of sysexits.h."""

    OK = 0
    FAILED = 1
    USAGE = 2
    TRY_AGAIN = 75
    CONFIGURATION = 78
    INTERRUPTED = 130


EXIT_CODES = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "a failure, or an unhealthy state",
    ExitCode.USAGE: "invalid usage",
    ExitCode.TRY_AGAIN: "the server is unavailable or busy: try again",
    ExitCode.CONFIGURATION: "invalid configuration",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}

EPILOG = "Exit status: " + ", ".join(f"{code.value} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
"""What stands below the help of every command."""


def exit_code(error: RagContextError) -> ExitCode:
    """The status that tells a caller what kind of failure it was."""
    match error:
        case ConfigurationError() | ForeignIndexError():
            return ExitCode.CONFIGURATION
        case InvalidInputError():
            return ExitCode.USAGE
        case BackendUnavailableError():
            return ExitCode.TRY_AGAIN
        case _:
            return ExitCode.FAILED


def report(error: RagContextError, screen: "Screen") -> ExitCode:
    """Say what went wrong, a line per problem."""
    for line in str(error).splitlines():
        screen.error(_for_people(line))
    return exit_code(error)


def _for_people(sentence: str) -> str:
    """A sentence whose advice names the command instead of the tool: services write it for agents, as servers do."""
    command = "un `rag-context project activate`"
    return sentence.replace("Call activate_project", f"R{command}").replace("call activate_project", f"r{command}")

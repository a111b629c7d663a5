"""Commands that are loaded when they are asked for, and how `--help` reads: the names that the pages use, in whole
paragraphs, without Python's types.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rag_context.cli.exits import EPILOG


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
    """What the list of commands shows of one; its module is imported when it runs, or its own help is asked for.

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

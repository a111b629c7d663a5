"""How `--help` reads: by the names that the pages use, in whole paragraphs, without Python's types."""

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup


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

"""What people see: colours and tables on a terminal, plain text in a pipe, nothing that a document could smuggle in."""

import re
from dataclasses import dataclass, field
from textwrap import indent

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WIDE = 1000
_INDENT = (0, 0, 0, 4)


def safe(text: str) -> str:
    """Text without the control characters by which it could steer a terminal."""
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode("utf-8")


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


@dataclass(frozen=True, slots=True)
class Screen:
    """Both streams: results go to `out`, everything said about the work to `err`."""

    out: Console = field(default_factory=lambda: _console(stderr=False))
    err: Console = field(default_factory=lambda: _console(stderr=True))

    def show(self, *parts: RenderableType) -> None:
        """Print a result for people."""
        self.out.print(*parts, soft_wrap=not self.out.is_terminal)

    def show_below(self, text: str, style: str) -> None:
        """Print what belongs to the line before."""
        if self.out.is_terminal:
            self.out.print(Padding(Text(text, style=style), _INDENT))
        else:
            self.show(indent(text, " " * _INDENT[3]))

    def line(self, text: str) -> None:
        """Print a result for programs, as it is."""
        self.out.file.write(text + "\n")
        self.out.file.flush()

    def note(self, *parts: RenderableType) -> None:
        """Say something about the work."""
        self.err.print(*parts, soft_wrap=True)

    def error(self, message: str) -> None:
        """Say what went wrong."""
        self.err.print(Text.assemble(("error: ", "bold red"), safe(message)), soft_wrap=True)

    def warning(self, message: str) -> None:
        """Say what is less than it could be."""
        self.err.print(Text.assemble(("warning: ", "bold yellow"), safe(message)), soft_wrap=True)

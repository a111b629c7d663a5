"""What people see: colours and tables on a terminal, plain text in a pipe, nothing that a document could smuggle in."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from rag_context.errors import InvalidInputError, RagContextError
from rag_context.settings import Loaded, check_available, load_settings


def named_path(text: str) -> Path:
    """The path that was typed. Raises: BadParameter if it is empty, for `Path("")` is the current folder."""
    if not text:
        raise typer.BadParameter("the path is empty. The current folder is '.'")
    return Path(text)


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        parser=named_path,
        help="Folder of the index (data_dir).",
        rich_help_panel="Configuration",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        readable=False,  # reported like any other configuration that cannot work
        help="Configuration file instead of ./rag-context.toml or the user's own.",
        rich_help_panel="Configuration",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the command line says about the configuration."""

    config: Path | None = None
    flags: Mapping[str, object] = field(default_factory=dict)
    """Values by dotted key; None where a flag was not used."""


def load(chosen: Chosen) -> Loaded:
    """The settings as this command line, the environment and the files make them.

    Raises:
        ConfigurationError: Something cannot be used.
    """
    return load_settings(flags=chosen.flags, config_file=chosen.config, cwd=Path.cwd())


def load_available(chosen: Chosen) -> Loaded:
    """The same for a command that opens the index.

    Raises:
        ConfigurationError: Something cannot be used, or its client is not installed.
    """
    loaded = load(chosen)
    check_available(loaded.settings, loaded.sources)
    return loaded


if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WIDE = 1000
_INDENT = (0, 0, 0, 4)


def safe(text: str) -> str:
    """Text without the control characters by which it could steer a terminal."""
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode("utf-8")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 document`, `2 documents`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def ask_first(question: str) -> None:
    """Go on only where the person at the terminal says yes.

    Raises:
        InvalidInputError: There is no terminal for the question.
        Abort: The answer is no.
    """
    if not sys.stdin.isatty():
        raise InvalidInputError(f"{question} Confirm with --yes where there is no terminal.")
    typer.confirm(question, abort=True, err=True)


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
        with _written():
            self.out.print(*parts, soft_wrap=not self.out.is_terminal)

    def show_below(self, text: str, style: str) -> None:
        """Print what belongs to the line before."""
        if self.out.is_terminal:
            self.show(Padding(Text(text, style=style), _INDENT))
        else:
            self.show(indent(text, " " * _INDENT[3]))

    def line(self, text: str) -> None:
        """Print a result for programs, as it is."""
        with _written():
            self.out.file.write(text + "\n")
            self.out.file.flush()

    def note(self, *parts: RenderableType) -> None:
        """Say something about the work."""
        self.err.print(*parts, soft_wrap=True)

    def progress(self, *columns: "ProgressColumn") -> "Progress":
        """A bar with these columns, the time spent and the time left; elsewhere than on a terminal nothing is shown."""
        # Commands without a bar start faster without its module.
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *columns,
            TimeElapsedColumn(),
            TextColumn("left", style="dim"),
            TimeRemainingColumn(),
            console=self.err,
            transient=True,
            disable=not self.err.is_terminal,
        )

    def error(self, message: str) -> None:
        """Say what went wrong."""
        self.err.print(Text.assemble(("error: ", "bold red"), safe(message)), soft_wrap=True)

    def warning(self, message: str) -> None:
        """Say what is less than it could be."""
        self.err.print(Text.assemble(("warning: ", "bold yellow"), safe(message)), soft_wrap=True)


@contextmanager
def _written() -> Iterator[None]:
    """Turn a full disk below stdout into one sentence; a reader that has gone (`| head`) stays what it is.

    Raises:
        RagContextError: What was to be printed could not be.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_stdout()
        raise RagContextError(f"The output cannot be written: {error.strerror}.") from error


def _drop_stdout() -> None:
    """Let what is still buffered go nowhere, or the interpreter would fail over it once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

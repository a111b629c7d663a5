"""What commands share: their options, the settings these lead to, and what is printed.

People see colours and tables on a terminal, plain text in a pipe, and nothing that a document could smuggle in.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from rag_context.cli.command_line import ExitCode
from rag_context.errors import InvalidInputError, RagContextError
from rag_context.settings import Loaded, check_available, load_settings

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOptions:
    """The options that every command has: where its settings and the index are."""

    data_dir: DataDir = None
    config: Config = None

    def load(self, flags: Mapping[str, object] = {}) -> Loaded:
        """The settings as this command line, the environment and the files make them.

        Args:
            flags: values of further options by dotted key; None where an option was not used.

        Raises:
            ConfigurationError: Something cannot be used.
        """
        return load_settings(flags={**flags, "data_dir": self.data_dir}, config_file=self.config, cwd=Path.cwd())

    def load_available(self, flags: Mapping[str, object] = {}) -> Loaded:
        """The same for a command that opens the index.

        Raises:
            ConfigurationError: Something cannot be used, or its client is not installed.
        """
        loaded = self.load(flags)
        check_available(loaded.settings, loaded.sources)
        return loaded


class HasJson(Protocol):
    """An answer on the wire."""

    def to_json(self) -> bytes: ...


Answer = TypeVar("Answer", bound=HasJson)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ConfigOptions):
    """Those, for a command that can print JSON."""

    as_json: AsJson = False

    def show(self, answer: Answer, print_for_people: Callable[[Answer, "Screen"], None]) -> None:
        """Print an answer, as JSON if that is requested."""
        screen = Screen()
        if self.as_json:
            screen.line(answer.to_json().decode())
        else:
            print_for_people(answer, screen)


Source: TypeAlias = tuple[Sequence[Parameter], Callable[[Mapping[str, Any]], Any]]
"""Options as parameters, and what makes one value of what was typed."""


def with_options(run: Callable[..., ExitCode | None], sources: Mapping[str, Source] = {}) -> Callable[..., None]:
    """Make a command of a function: a parameter whose type is a dataclass becomes the options that it declares.

    The command ends with the status that the function returns.

    Args:
        run: the function; its docstring is the help.
        sources: where further parameters come from, by their names.
    """
    own = signature(run, eval_str=True).parameters
    declared = {name: _declared(each.annotation) for name, each in own.items() if is_dataclass(each.annotation)}
    all_sources = {**declared, **sources}

    @wraps(run)
    def command(**typed: Any) -> None:
        for name, (options, read) in all_sources.items():
            typed[name] = read({each.name: typed.pop(each.name) for each in options})
        status = run(**typed)
        if status is not None:
            raise typer.Exit(status)

    # Typer reads the options from the signature and the annotations, and `__wrapped__` would lead it past both.
    found = [
        option for name, each in own.items() for option in (all_sources[name][0] if name in all_sources else [each])
    ]
    parameters = sorted(found, key=lambda each: each.default is not Parameter.empty)
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    del command.__wrapped__
    return command


def _declared(kind: Any) -> Source:
    """The options that a dataclass declares, those of its bases behind its own."""
    depth = {name: level for level, base in reversed([*enumerate(kind.__mro__)]) for name in get_annotations(base)}
    options = sorted(signature(kind, eval_str=True).parameters.values(), key=lambda each: depth[each.name])
    return options, lambda typed: kind(**typed)


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

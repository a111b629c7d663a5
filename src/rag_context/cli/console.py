"""What commands print: results on stdout, everything said about the work on stderr.

People see colours and tables on a terminal, plain text in a pipe, and nothing that a document could smuggle in. Rich,
which takes a tenth of a short command's time to import, draws what a terminal shows, tables and bars.
"""

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from textwrap import indent
from typing import TYPE_CHECKING, TypeAlias

import typer

from rag_context.domain.documents import counted as counted  # noqa: PLC0414  (commands take all that they print with from here)
from rag_context.domain.documents import for_terminals
from rag_context.errors import InvalidInputError, RagContextError
from rag_context.settings.config_file import has_any

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import RenderableType
    from rich.progress import Progress, ProgressColumn
    from rich.text import Text

Part: TypeAlias = str | tuple[str, str]
"""A part of a line: a text, or a text and its style, as Rich names styles."""

Cell: TypeAlias = str | tuple[str, str] | Sequence[Part]
"""What a table has in a row and a column: one part, or several."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WIDE = 1000
_UNITS = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"))
_MONTH_S = 31 * 86_400
_INDENT = 4


def safe(text: str) -> str:
    """Text without the control characters by which it could steer a terminal."""
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode("utf-8")


def one_line(text: str) -> str:
    """Text that cannot steer a terminal, nor pass for a line of its own."""
    return safe(text).replace("\n", "\\n")


def ago(at: datetime) -> str:
    """How long ago that was, in the largest unit: `2 hours ago`; the day where that is more than a month."""
    seconds = (datetime.now(UTC) - at).total_seconds()
    if not -60 < seconds < _MONTH_S:
        return f"{at.astimezone():%Y-%m-%d}"
    units = (f"{counted(int(seconds // length_s), unit)} ago" for length_s, unit in _UNITS if seconds >= length_s)
    return next(units, "just now")


def separated(parts: Iterable[Part]) -> list[Part]:
    return [each for part in parts for each in (", ", part)][1:]


def ask_first(question: str) -> None:
    """Go on only where the person at the terminal says yes.

    Raises:
        InvalidInputError: There is no terminal for the question.
        Abort: The answer is no.
    """
    if not sys.stdin.isatty():
        raise InvalidInputError(f"{question} Confirm with --yes where there is no terminal.")
    typer.confirm(question, abort=True, err=True)


class Console:
    """Both streams. Control characters are left out of all but `line` and `draw`."""

    def show(self, *parts: Part) -> None:
        if _is_plain(stderr=False):
            with _written():
                _write(parts, stderr=False)
        else:
            self.draw(_drawn(parts))

    def show_below(self, text: str, style: str) -> None:
        if _is_plain(stderr=False) or not self._out.is_terminal:
            self.show((indent(text, " " * _INDENT), style))
            return
        from rich.padding import Padding  # noqa: PLC0415

        self.draw(Padding(_drawn([(text, style)]), (0, 0, 0, _INDENT)))

    def show_entries(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Print titles, each with what stands at its right end, and facts below; a narrow terminal cuts both.

        Each is a line, whatever the texts hold.
        """
        entries = [(one_line(title), aside, one_line(facts)) for title, aside, facts in entries]
        if _is_plain(stderr=False) or not self._out.is_terminal:
            for title, aside, facts in entries:
                self.show(f"{title}  {aside}\n  {facts}")
            return
        from rich.cells import cell_len  # noqa: PLC0415

        for title, aside, facts in entries:
            title = _cut(title, self._out.width - cell_len(aside) - 2)
            gap = " " * (self._out.width - cell_len(title) - cell_len(aside))
            self.show((title, "bold"), gap, (aside, "dim"))
            self.show((f"  {_cut(facts, self._out.width - 2)}", "dim"))

    def show_table(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[Cell]],
        *,
        right: Collection[str] = (),
        unwrapped: Collection[str] = (),
    ) -> None:
        """Print a table: columns `right` are aligned there, `unwrapped` ones lose their end on a narrow terminal."""
        from rich.table import Table  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, show_header=any(titles))
        for title in titles:
            table.add_column(
                title,
                justify="right" if title in right else "left",
                no_wrap=title in unwrapped,
                overflow="ellipsis" if title in unwrapped else "fold",
            )
        for row in rows:
            table.add_row(*(_drawn([cell] if isinstance(cell, str | tuple) else cell) for cell in row))
        self.draw(table)

    def show_fields(self, fields: Iterable[tuple[str, str]]) -> None:
        """Print names with their values, one below the other; a field without a value is left out."""
        self.show_table(("", ""), [((name, "dim"), value) for name, value in fields if value])

    def line(self, text: str) -> None:
        """Print a result for programs, in which control characters are escaped as in JSON."""
        with _written():
            sys.stdout.write(
                for_terminals(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass") + "\n"
            )
            sys.stdout.flush()

    def note(self, *parts: Part) -> None:
        if _is_plain(stderr=True):
            _write(parts, stderr=True)
        else:
            self._err.print(_drawn(parts), soft_wrap=True)

    def error(self, message: str) -> None:
        self.note(("error: ", "bold red"), message)

    def warning(self, message: str) -> None:
        self.note(("warning: ", "bold yellow"), message)

    @property
    def has_bars(self) -> bool:
        return not _is_plain(stderr=True) and self._err.is_terminal

    def progress(self, *columns: "ProgressColumn") -> "Progress":
        """A bar with these columns, the time spent and the time left; elsewhere than on a terminal nothing is shown."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *columns,
            TimeElapsedColumn(),
            TextColumn("so far,", style="dim"),
            TimeRemainingColumn(),
            TextColumn("left", style="dim"),
            console=self._err,
            transient=True,
            disable=not self._err.is_terminal,
        )

    def draw(self, drawing: "RenderableType") -> None:
        with _written():
            if self._out.is_terminal:
                self._out.print(drawing)
                return
            with self._out.capture() as drawn:
                self._out.print(drawing, soft_wrap=True)
            sys.stdout.write(re.sub(" +$", "", drawn.get(), flags=re.MULTILINE))  # what fills columns up is for eyes
            sys.stdout.flush()

    @cached_property
    def _out(self) -> "RichConsole":
        return _rich_console(stderr=False)

    @cached_property
    def _err(self) -> "RichConsole":
        return _rich_console(stderr=True)


def _cut(text: str, cells: int) -> str:
    """Text of at most so many cells of a terminal, cut behind a word where one ends."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    if cell_len(text) <= cells:
        return text
    start = set_cell_size(text, max(cells - 2, 1)).rstrip()
    words = text[: len(start) + 1].rpartition(" ")[0]
    return f"{words} …" if len(words) > len(start) * 3 // 4 else f"{start}…"


def _is_plain(*, stderr: bool) -> bool:
    """Whether a stream certainly shows no styles; otherwise Rich decides."""
    return not ((sys.stderr if stderr else sys.stdout).isatty() or has_any({"FORCE_COLOR", "TTY_COMPATIBLE"}))


def _write(parts: Iterable[Part], *, stderr: bool) -> None:
    stream = sys.stderr if stderr else sys.stdout
    stream.write("".join(safe(part if isinstance(part, str) else part[0]) for part in parts).expandtabs() + "\n")
    stream.flush()


def _drawn(parts: Iterable[Part]) -> "Text":
    from rich.text import Text  # noqa: PLC0415

    return Text.assemble(*(safe(part) if isinstance(part, str) else (safe(part[0]), part[1]) for part in parts))


def _rich_console(*, stderr: bool) -> "RichConsole":
    from rich.console import Console as RichConsole  # noqa: PLC0415

    console = RichConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


@contextmanager
def _written() -> Iterator[None]:
    """Turn a full disk below stdout into one sentence; a reader that has gone (`| head`) stays what it is.

    Raises: RagContextError (what was to be printed could not be).
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still buffered goes nowhere, or the interpreter would fail over it once more when it ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise RagContextError(f"The output cannot be written: {error.strerror}.") from error

"""Tables of measurements, for a terminal and in Markdown, and how figures are written in them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. `text_columns` are those from the left that hold texts; the others hold figures."""

    title: str
    text_columns: int
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Text]]

    def markdown(self) -> Iterator[str]:
        """The table without its title, line by line."""
        yield _line(self.headings)
        yield "|" + "---|" * len(self.headings)
        yield from map(_line, self.rows)


def for_terminal(grids: Iterable[Grid]) -> RenderableType:
    """The tables below each other."""
    parts: list[RenderableType] = []
    for grid in grids:
        table = Table(box=None, pad_edge=False, title=grid.title, title_justify="left", title_style="bold")
        for number, heading in enumerate(grid.headings):
            table.add_column(heading, justify="left" if number < grid.text_columns else "right")
        for row in grid.rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        parts += [table, Text("")]
    return Group(*parts)


def short(value: float) -> str:
    """A share with three digits, as `.912`."""
    return f"{value:.3f}".removeprefix("0") if value < 1 else f"{value:.3f}"


def percent(value: float) -> str:
    """A share in per cent, as `91.2%`."""
    return f"{value:.1%}"


def _line(cells: Sequence[str | Text]) -> str:
    return f"| {' | '.join(map(str, cells))} |"

"""Reports on sets with evidence: means by category and by limit, as JSON and as tables of a terminal or of Markdown."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rag_context.api.wire import WireResponse
from rag_context.evaluation.evidence_quality import FIRST_SESSIONS, FIRST_SIDES, LIMITS, EvidenceOutcome, Measured
from rag_context.evaluation.quality import FIRST, MODES
from rag_context.search.query import Mode


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. `text_columns` are those from the left that hold texts; the others hold figures."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    text_columns: int = 2

    def markdown(self) -> Iterator[str]:
        """The table without its title, line by line."""
        yield _line(self.headings)
        yield "|" + "---|" * len(self.headings)
        yield from map(_line, self.rows)


def for_terminal(grids: Iterable[Grid]) -> RenderableType:
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
    return f"{value:.1%}"


def _line(cells: Sequence[str | Text]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


ALL = "all"
"""The category that stands for all questions that something answers."""


_MODES = tuple(mode.value for mode in MODES)
_HEADINGS = ("set", "category", "questions")
Cells: TypeAlias = tuple[str, ...] | None


class Figures(WireResponse):
    """Means over the questions of one category, or over all that something answers; shares are 0..1.

    Those that say nothing of these questions are None.
    """

    category: str
    questions: int
    answerable: bool
    recall: dict[Mode, float] | None
    ndcg: dict[Mode, float] | None
    correction_first: dict[Mode, float] | None
    both_sides: float | None
    any_session: float | None
    all_sessions: float | None
    no_answer: float
    standing: float | None
    listed: float | None
    """Questions of whose evidence some is in the list of standing instructions, and mean length of that list."""


class AtLimit(WireResponse):
    """Means over the questions that something answers, of the answers at one `limit`."""

    limit: int
    recall: float
    any: float
    tokens: float
    evidence_per_1000_tokens: float


def figures(outcome: EvidenceOutcome) -> list[Figures]:
    categories: dict[str, list[Measured]] = {}
    for each in outcome.measured:
        categories.setdefault(each.question.category, []).append(each)
    found = [_figures(name or ALL, rows) for name, rows in categories.items()]
    if len([each for each in found if each.recall]) > 1:
        found.append(_figures(ALL, [each for each in outcome.measured if each.question.evidence]))
    return found


def at_limits(outcome: EvidenceOutcome) -> list[AtLimit]:
    found = []
    rows = [each for each in outcome.measured if each.question.evidence]
    for limit in LIMITS:
        answers = [(each.at_limit[limit], len(each.question.evidence)) for each in rows]
        tokens = sum(returned.tokens for returned, _ in answers)
        evidence = sum(returned.evidence for returned, _ in answers)
        found.append(
            AtLimit(
                limit=limit,
                recall=_mean(returned.evidence / expected for returned, expected in answers),
                any=_mean(returned.evidence > 0 for returned, _ in answers),
                tokens=tokens / len(answers),
                evidence_per_1000_tokens=1000.0 * evidence / tokens if tokens else 0.0,
            )
        )
    return found


def as_objects(outcomes: Sequence[EvidenceOutcome]) -> list[dict[str, Any]]:
    return [
        {
            "dataset": outcome.dataset,
            "items": outcome.items,
            "sessions": outcome.sessions,
            "categories": [json.loads(each.to_json()) for each in figures(outcome)],
            "limits": [json.loads(each.to_json()) for each in at_limits(outcome)],
        }
        for outcome in outcomes
    ]


def _figures(category: str, rows: Sequence[Measured]) -> Figures:
    both = [each.both_sides for each in rows if each.both_sides is not None]
    in_sessions = [each for each in rows if each.any_session is not None]
    listed = _mean(len(each.standing) for each in rows)
    return Figures(
        category=category,
        questions=len(rows),
        answerable=any(each.recall for each in rows),
        recall=_mode_means([each.recall for each in rows]),
        ndcg=_mode_means([each.ndcg for each in rows]),
        correction_first=_mode_means([each.correction_first for each in rows]),
        both_sides=_mean(both) if both else None,
        any_session=_mean(each.any_session for each in in_sessions) if in_sessions else None,
        all_sessions=_mean(each.all_sessions for each in in_sessions) if in_sessions else None,
        no_answer=_mean(each.no_answer for each in rows),
        standing=_mean(not set(each.standing).isdisjoint(each.question.evidence) for each in rows) if listed else None,
        listed=listed or None,
    )


def _mode_means(rows: Sequence[Mapping[Mode, float]]) -> dict[Mode, float] | None:
    present = [row for row in rows if row]
    return {mode: _mean(row[mode] for row in present) for mode in MODES} if present else None


def _mean(values: Iterable[float | None]) -> float:
    listed = [value or 0.0 for value in values]
    return math.fsum(listed) / len(listed)


def evidence_grids(outcomes: Sequence[EvidenceOutcome]) -> list[Grid]:
    rows = [(outcome.dataset, each) for outcome in outcomes for each in figures(outcome)]
    grids = [
        Grid(
            title,
            (*_HEADINGS, *headings),
            [(*_head(name, each), *cells) for name, each in rows if (cells := cells_of(each)) is not None],
        )
        for title, headings, cells_of in _TABLES
    ]
    return [grid for grid in (*grids, _labels(outcomes), _limits(outcomes)) if grid.rows]


def _evidence(each: Figures) -> Cells:
    return (*_by_mode(each.recall), *_by_mode(each.ndcg)) if each.recall and each.ndcg else None


def _sessions(each: Figures) -> Cells:
    if each.any_session is None or each.all_sessions is None:
        return None
    return percent(each.any_session), percent(each.all_sessions)


def _corrections(each: Figures) -> Cells:
    if not each.correction_first or each.both_sides is None:
        return None
    return (*(percent(each.correction_first[mode]) for mode in MODES), percent(each.both_sides))


def _standing(each: Figures) -> Cells:
    return None if each.standing is None else (percent(each.standing), f"{each.listed:.2f}")


_TABLES: Sequence[tuple[str, Sequence[str], Callable[[Figures], Cells]]] = (
    (
        f"Evidence among the first {FIRST} items",
        tuple(f"{measure}@{FIRST} {mode}" for measure in ("recall", "nDCG") for mode in _MODES),
        _evidence,
    ),
    (f"Sessions with evidence among the first {FIRST_SESSIONS}", ("any", "all"), _sessions),
    ("Correction first", (*_MODES, f"both in {FIRST_SIDES}"), _corrections),
    ("Standing instructions", ("with the one that applies", "listed"), _standing),
)
"""Title, headings, and the cells of a row; None where the figures of a category have none."""


def _labels(outcomes: Sequence[EvidenceOutcome]) -> Grid:
    """Every category that nothing answers, and all other questions of the set together."""
    cells: list[tuple[str, ...]] = []
    for outcome in outcomes:
        found = figures(outcome)
        cells += [(*_head(outcome.dataset, each), "no", percent(each.no_answer)) for each in found if not each.recall]
        answerable = [each for each in found if each.recall][-1]
        cells.append((*_head(outcome.dataset, answerable), "yes", percent(answerable.no_answer)))
    return Grid("Labelled noAnswer", (*_HEADINGS, "answerable", "labelled"), tuple(cells))


def _limits(outcomes: Sequence[EvidenceOutcome]) -> Grid:
    cells = (
        (
            outcome.dataset,
            str(each.limit),
            short(each.recall),
            percent(each.any),
            f"{each.tokens:.0f}",
            f"{each.evidence_per_1000_tokens:.2f}",
        )
        for outcome in outcomes
        for each in at_limits(outcome)
    )
    return Grid(
        "Answers by limit", ("set", "limit", "recall", "any", "tokens", "evidence in 1 000 tokens"), tuple(cells)
    )


def _head(name: str, each: Figures) -> tuple[str, str, str]:
    return name, each.category, str(each.questions)


def _by_mode(values: Mapping[Mode, float]) -> tuple[str, ...]:
    return tuple(short(values[mode]) for mode in MODES)

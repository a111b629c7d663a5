"""Reports of measurements: tables for a terminal and in Markdown, and JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rag_context.evaluation.evaluate import MODES, Outcome
from rag_context.evaluation.measures import Estimate, estimate, significance
from rag_context.evaluation.projects import TOOLS, ProjectOutcome
from rag_context.search.query import Mode

LEADING = "nDCG@10"
ALL = "macro mean"
_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report: a measure of a collection, by mode."""

    dataset: str
    measure: str
    estimates: dict[Mode, Estimate]
    p_values: dict[Mode, float]
    """How likely the difference of hybrid to this mode is a matter of chance; empty for a macro mean."""


def rows_of(outcomes: Sequence[Outcome]) -> list[Row]:
    """Every measure of every collection; then, of several that are judged by documents, the macro mean."""
    rows = [row for outcome in outcomes for row in _rows_of(outcome)]
    graded = [outcome for outcome in outcomes if not outcome.by_spans]
    if len(graded) > 1:
        estimates = {mode: estimate(*(each.scores[mode].by_measure[LEADING] for each in graded)) for mode in MODES}
        rows.append(Row(ALL, LEADING, estimates, {}))
    return rows


def as_json(outcomes: Sequence[Outcome], by_tool: Sequence[ProjectOutcome] = ()) -> str:
    """All measurements as one JSON object."""
    return json.dumps(
        {
            "datasets": [_facts(outcome) for outcome in outcomes],
            "measures": [
                {
                    "dataset": row.dataset,
                    "measure": row.measure,
                    "modes": {
                        mode.value: {"mean": found.mean, "low": found.low, "high": found.high}
                        for mode, found in row.estimates.items()
                    },
                    "pValues": {f"hybrid vs {mode.value}": p for mode, p in row.p_values.items()},
                }
                for row in rows_of(outcomes)
            ],
            "projects": [
                {
                    "dataset": each.dataset,
                    "measure": measure,
                    "tools": {tool: estimate(each.scores[tool].by_measure[measure]).mean for tool in TOOLS},
                    "sameOrder": each.same_order,
                }
                for each in by_tool
                for measure in each.scores[TOOLS[0]].by_measure
            ],
        }
    )


def as_tables(outcomes: Sequence[Outcome], by_tool: Sequence[ProjectOutcome] = ()) -> RenderableType:
    """Tables for a terminal."""
    measured = Table(box=None, pad_edge=False)
    for heading in ("Dataset", "Measure", *(mode.value for mode in MODES), "p (text)", "p (vector)"):
        measured.add_column(heading)
    for row in rows_of(outcomes):
        best = max(MODES, key=lambda mode: row.estimates[mode].mean)
        cells = [Text(_with_interval(row.estimates[mode]), style="bold" if mode is best else "") for mode in MODES]
        measured.add_row(row.dataset, row.measure, *cells, *(_p(row, mode) for mode in (Mode.TEXT, Mode.VECTOR)))
    facts = Table(box=None, pad_edge=False)
    for heading in _FACTS:
        facts.add_column(heading)
    for outcome in outcomes:
        facts.add_row(*_cells(outcome))
    if not by_tool:
        return Group(measured, Text(""), facts)
    tools = Table(box=None, pad_edge=False)
    for heading in ("Project of", "Measure", *TOOLS):
        tools.add_column(heading)
    for line in _tool_rows(by_tool):
        tools.add_row(*line)
    return Group(measured, Text(""), facts, Text(""), tools)


def as_markdown(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The same tables in Markdown, line by line."""
    modes = " | ".join(mode.value for mode in MODES)
    yield f"| collection | measure | {modes} | p against text | p against vector |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows_of(outcomes):
        cells = [_with_interval(row.estimates[mode]) for mode in MODES]
        yield _line(row.dataset, row.measure, *cells, *(_p(row, mode) for mode in (Mode.TEXT, Mode.VECTOR)))
    yield ""
    yield _line(*_FACTS)
    yield "|" + "---|" * len(_FACTS)
    for outcome in outcomes:
        yield _line(*_cells(outcome))


def projects_as_markdown(by_tool: Sequence[ProjectOutcome]) -> Iterator[str]:
    """The measurements of the project tools on the same collections, in Markdown, line by line."""
    yield _line("collection", "measure", *TOOLS)
    yield "|---|---|" + "---|" * len(TOOLS)
    yield from (_line(*cells) for cells in _tool_rows(by_tool))


def _tool_rows(by_tool: Sequence[ProjectOutcome]) -> Iterator[tuple[str, ...]]:
    for each in by_tool:
        for measure in each.scores[TOOLS[0]].by_measure:
            cells = (_with_interval(estimate(each.scores[tool].by_measure[measure])) for tool in TOOLS)
            yield each.dataset, measure, *cells
        yield each.dataset, "first ten as in the search", *(f"{each.same_order[tool]:.1%}" for tool in TOOLS)


_FACTS = ("collection", "documents", "queries", "relevant lost to the default threshold", "queries labelled noAnswer")


def _rows_of(outcome: Outcome) -> Iterator[Row]:
    scores = {mode: outcome.scores[mode].by_measure for mode in MODES}
    for measure, hybrid in scores[Mode.HYBRID].items():
        yield Row(
            outcome.dataset,
            measure,
            {mode: estimate(scores[mode][measure]) for mode in MODES},
            {mode: significance(hybrid, scores[mode][measure]) for mode in MODES if mode is not Mode.HYBRID},
        )


def _facts(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.dataset,
        "documents": outcome.documents,
        "queries": outcome.queries,
        "judgedBy": "spans" if outcome.by_spans else "documents",
        "lostToThreshold": outcome.lost,
        "noAnswer": outcome.unanswerable,
    }


def _cells(outcome: Outcome) -> tuple[str, ...]:
    lost = "" if outcome.lost is None else f"{outcome.lost:.1%}"
    return outcome.dataset, str(outcome.documents), str(outcome.queries), lost, f"{outcome.unanswerable:.1%}"


def _p(row: Row, mode: Mode) -> str:
    p = row.p_values.get(mode)
    if p is None:
        return ""
    return "< .001" if p < 0.001 else _short(p)


def _with_interval(found: Estimate) -> str:
    return f"{_short(found.mean)} ({_short(found.low)} to {_short(found.high)})"


def _short(value: float) -> str:
    return f"{value:.{_DIGITS}f}".removeprefix("0") if value < 1 else f"{value:.{_DIGITS}f}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"

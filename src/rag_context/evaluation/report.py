"""Reports of measurements, as tables of a terminal and as JSON: of judged collections, and of sets with evidence."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rag_context.evaluation.evidence_quality import FIRST_SESSIONS, FIRST_SIDES, LIMITS, EvidenceOutcome, Measured
from rag_context.evaluation.measures import Estimate, estimate, significance
from rag_context.evaluation.quality import FIRST, MODES, QualityOutcome
from rag_context.search.query import Mode

LEADING = "nDCG@10"
MACRO = "macro mean"
ALL = "all"
"""The category that stands for all questions that something answers."""

_MODES = tuple(mode.value for mode in MODES)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. `text_columns` are those from the left that hold texts; the others hold figures."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    text_columns: int = 2


@dataclass(frozen=True, slots=True)
class Outcomes:
    judged: list[QualityOutcome] = field(default_factory=list)
    with_evidence: list[EvidenceOutcome] = field(default_factory=list)


def as_object(found: Outcomes) -> dict[str, Any]:
    return {
        "datasets": [_dataset_json(outcome) for outcome in found.judged],
        "measures": [_row_json(row) for row in rows_of(found.judged)],
        "evidence": [_evidence_json(outcome) for outcome in found.with_evidence],
    }


def as_tables(found: Outcomes, further: Sequence[Grid] = ()) -> RenderableType:
    """Tables for a terminal; `further` ones stand between those of judged collections and of sets with evidence."""
    parts: list[RenderableType] = []
    judged = judged_grids(found.judged) if found.judged else []
    for grid in (*judged, *further, *evidence_grids(found.with_evidence)):
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


def with_interval(found: Estimate) -> str:
    return f"{short(found.mean)} ({short(found.low)} to {short(found.high)})"


@dataclass(frozen=True, slots=True)
class Row:
    """A measure of a judged collection, by mode."""

    dataset: str
    measure: str
    estimates: dict[Mode, Estimate]
    p_values: dict[Mode, float]
    """How likely the difference of hybrid to this mode is a matter of chance; empty for a macro mean."""


def rows_of(outcomes: Sequence[QualityOutcome]) -> list[Row]:
    """Every measure of every collection; then, of several that are judged by documents, the macro mean."""
    rows = [row for outcome in outcomes for row in _rows_of(outcome)]
    graded = [outcome for outcome in outcomes if not outcome.by_spans]
    if len(graded) > 1:
        estimates = {mode: estimate(*(each.scores[mode][LEADING] for each in graded)) for mode in MODES}
        rows.append(Row(MACRO, LEADING, estimates, {}))
    return rows


def _rows_of(outcome: QualityOutcome) -> Iterator[Row]:
    for measure, hybrid in outcome.scores[Mode.HYBRID].items():
        by_mode = {mode: outcome.scores[mode][measure] for mode in MODES}
        yield Row(
            outcome.dataset,
            measure,
            {mode: estimate(values) for mode, values in by_mode.items()},
            {mode: significance(hybrid, by_mode[mode]) for mode in MODES if mode is not Mode.HYBRID},
        )


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "dataset": row.dataset,
        "measure": row.measure,
        "modes": {mode.value: asdict(found) for mode, found in row.estimates.items()},
        "pValues": {f"hybrid vs {mode.value}": p for mode, p in row.p_values.items()},
    }


def _dataset_json(outcome: QualityOutcome) -> dict[str, Any]:
    return {
        "name": outcome.dataset,
        "documents": outcome.documents,
        "queries": outcome.queries,
        "judgedBy": "spans" if outcome.by_spans else "documents",
        "lostToThreshold": outcome.lost,
        "noAnswer": outcome.unanswerable,
    }


def judged_grids(outcomes: Sequence[QualityOutcome]) -> list[Grid]:
    measured = ("collection", "measure", *_MODES, "p against text", "p against vector")
    counted = (
        "collection",
        "documents",
        "queries",
        "relevant lost to the default threshold",
        "queries labelled noAnswer",
    )
    return [
        Grid("Judged collections", measured, [_measure_cells(row) for row in rows_of(outcomes)], len(measured)),
        Grid("Their sizes and labels", counted, [_label_cells(each) for each in outcomes], len(counted)),
    ]


def _measure_cells(row: Row) -> tuple[str | Text, ...]:
    best = max(MODES, key=lambda mode: row.estimates[mode].mean)
    means = (Text(with_interval(row.estimates[mode]), style="bold" if mode is best else "") for mode in MODES)
    return row.dataset, row.measure, *means, *(_p(row, mode) for mode in (Mode.TEXT, Mode.VECTOR))


def _label_cells(outcome: QualityOutcome) -> tuple[str, ...]:
    lost = "" if outcome.lost is None else percent(outcome.lost)
    return outcome.dataset, str(outcome.documents), str(outcome.queries), lost, percent(outcome.unanswerable)


def _p(row: Row, mode: Mode) -> str:
    p = row.p_values.get(mode)
    if p is None:
        return ""
    return "< .001" if p < 0.001 else short(p)


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the questions of one category, or over all that something answers, named as in `Measured`."""

    category: str
    questions: int
    by_mode: Mapping[str, Mapping[Mode, float]]
    shares: Mapping[str, float]

    @property
    def answerable(self) -> bool:
        return "recall" in self.by_mode

    def values(self, name: str) -> list[float]:
        """One value a mode, one alone, or none."""
        if name in self.by_mode:
            return list(self.by_mode[name].values())
        return [self.shares[name]] if name in self.shares else []


def figures(outcome: EvidenceOutcome) -> list[Figures]:
    categories: dict[str, list[Measured]] = {}
    for each in outcome.measured:
        categories.setdefault(each.question.category, []).append(each)
    found = [_figures(name or ALL, rows) for name, rows in categories.items()]
    if sum(each.answerable for each in found) > 1:
        found.append(_figures(ALL, [each for each in outcome.measured if each.question.evidence]))
    return found


def _figures(category: str, rows: Sequence[Measured]) -> Figures:
    by_mode = {
        name: {mode: _mean(each.by_mode[name][mode] for each in rows if name in each.by_mode) for mode in MODES}
        for name in dict.fromkeys(name for each in rows for name in each.by_mode)
    }
    shares = {
        name: _mean(each.shares[name] for each in rows if name in each.shares)
        for name in dict.fromkeys(name for each in rows for name in each.shares)
    }
    if not shares["listed"]:
        del shares["standing"], shares["listed"]
    return Figures(category, len(rows), by_mode, shares)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def at_limits(outcome: EvidenceOutcome) -> list[dict[str, float]]:
    """Means over the questions that something answers, of the answers at each `limit`."""
    rows = [each for each in outcome.measured if each.question.evidence]
    found = []
    for limit in LIMITS:
        answers = [(each.at_limit[limit], len(each.question.evidence)) for each in rows]
        tokens = sum(returned.tokens for returned, _ in answers)
        evidence = sum(returned.evidence for returned, _ in answers)
        found.append(
            {
                "limit": limit,
                "recall": _mean(returned.evidence / expected for returned, expected in answers),
                "any": _mean(returned.evidence > 0 for returned, _ in answers),
                "tokens": tokens / len(answers),
                "evidencePer1000Tokens": 1000.0 * evidence / tokens if tokens else 0.0,
            }
        )
    return found


def _evidence_json(outcome: EvidenceOutcome) -> dict[str, Any]:
    categories = [
        {
            "category": each.category,
            "questions": each.questions,
            "answerable": each.answerable,
            **{name: {mode.value: mean for mode, mean in means.items()} for name, means in each.by_mode.items()},
            **each.shares,
        }
        for each in figures(outcome)
    ]
    counts = {"dataset": outcome.dataset, "items": outcome.items, "sessions": outcome.sessions}
    return {**counts, "categories": categories, "limits": at_limits(outcome)}


_TABLES: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    (
        f"Evidence among the first {FIRST} items",
        tuple(f"{measure}@{FIRST} {mode}" for measure in ("recall", "nDCG") for mode in _MODES),
        ("recall", "ndcg"),
    ),
    (f"Sessions with evidence among the first {FIRST_SESSIONS}", ("any", "all"), ("anySession", "allSessions")),
    ("Correction first", (*_MODES, f"both in {FIRST_SIDES}"), ("correctionFirst", "bothSides")),
    ("Standing instructions", ("with the one that applies", "listed"), ("standing", "listed")),
)
"""Title, headings, and the figures of a row; a category without one of them has no row."""

_SHOWN: Mapping[str, Callable[[float], str]] = {"recall": short, "ndcg": short, "listed": "{:.2f}".format}
"""How a figure is written that is not a percentage."""


def evidence_grids(outcomes: Sequence[EvidenceOutcome]) -> list[Grid]:
    named = [(outcome.dataset, each) for outcome in outcomes for each in figures(outcome)]
    grids = []
    for title, headings, names in _TABLES:
        present = [(set_, each) for set_, each in named if all(each.values(name) for name in names)]
        rows = [(*_head(set_, each), *_cells(each, names)) for set_, each in present]
        grids.append(Grid(title, ("set", "category", "questions", *headings), rows))
    return [grid for grid in (*grids, _labels(outcomes), _limits(outcomes)) if grid.rows]


def _cells(each: Figures, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield from map(_SHOWN.get(name, percent), each.values(name))


def _head(name: str, each: Figures) -> tuple[str, str, str]:
    return name, each.category, str(each.questions)


def _labels(outcomes: Sequence[EvidenceOutcome]) -> Grid:
    """Every category that nothing answers, and all other questions of the set together."""
    rows: list[tuple[str, ...]] = []
    for outcome in outcomes:
        found = figures(outcome)
        shown = [*(each for each in found if not each.answerable), [each for each in found if each.answerable][-1]]
        for each in shown:
            answer = "yes" if each.answerable else "no"
            rows.append((*_head(outcome.dataset, each), answer, *_cells(each, ["noAnswer"])))
    return Grid("Labelled noAnswer", ("set", "category", "questions", "answerable", "labelled"), rows)


def _limits(outcomes: Sequence[EvidenceOutcome]) -> Grid:
    shown = ("{:d}".format, short, percent, "{:.0f}".format, "{:.2f}".format)
    rows = [
        (outcome.dataset, *(show(value) for show, value in zip(shown, each.values(), strict=True)))
        for outcome in outcomes
        for each in at_limits(outcome)
    ]
    return Grid("Answers by limit", ("set", "limit", "recall", "any", "tokens", "evidence in 1 000 tokens"), rows)

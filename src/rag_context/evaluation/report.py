"""Reports of measurements, as tables and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from rag_context.evaluation.evidence_quality import EvidenceOutcome
from rag_context.evaluation.evidence_report import Grid, as_objects, evidence_grids, for_terminal, percent, short
from rag_context.evaluation.measures import Estimate, estimate, significance
from rag_context.evaluation.quality import MODES, QualityOutcome
from rag_context.search.query import Mode

LEADING = "nDCG@10"
ALL = "macro mean"

_DATASET_COLUMNS = (
    "collection",
    "documents",
    "queries",
    "relevant lost to the default threshold",
    "queries labelled noAnswer",
)


@dataclass(frozen=True, slots=True)
class Outcomes:
    judged: list[QualityOutcome] = field(default_factory=list)
    with_evidence: list[EvidenceOutcome] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report: a measure of a collection, by mode."""

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
        estimates = {mode: estimate(*(each.scores[mode].by_measure[LEADING] for each in graded)) for mode in MODES}
        rows.append(Row(ALL, LEADING, estimates, {}))
    return rows


def as_object(found: Outcomes) -> dict[str, Any]:
    return {
        "datasets": [_dataset_json(outcome) for outcome in found.judged],
        "measures": [_row_json(row) for row in rows_of(found.judged)],
        "evidence": as_objects(found.with_evidence),
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "dataset": row.dataset,
        "measure": row.measure,
        "modes": {mode.value: asdict(found) for mode, found in row.estimates.items()},
        "pValues": {f"hybrid vs {mode.value}": p for mode, p in row.p_values.items()},
    }


def as_tables(found: Outcomes, further: Sequence[Grid] = ()) -> RenderableType:
    """Tables for a terminal; `further` ones stand between those of judged collections and of sets with evidence."""
    grids = judged_grids(found.judged) if found.judged else []
    return for_terminal([*grids, *further, *evidence_grids(found.with_evidence)])


def judged_grids(outcomes: Sequence[QualityOutcome]) -> list[Grid]:
    headings = ("collection", "measure", *(mode.value for mode in MODES), "p against text", "p against vector")
    measures = tuple(map(_measure_cells, rows_of(outcomes)))
    return [
        Grid("Judged collections", headings, measures, len(headings)),
        Grid("Their sizes and labels", _DATASET_COLUMNS, tuple(map(_cells, outcomes)), len(_DATASET_COLUMNS)),
    ]


def _measure_cells(row: Row) -> tuple[str | Text, ...]:
    best = max(MODES, key=lambda mode: row.estimates[mode].mean)
    means = (Text(with_interval(row.estimates[mode]), style="bold" if mode is best else "") for mode in MODES)
    return row.dataset, row.measure, *means, *(_p(row, mode) for mode in (Mode.TEXT, Mode.VECTOR))


def _rows_of(outcome: QualityOutcome) -> Iterator[Row]:
    scores = {mode: outcome.scores[mode].by_measure for mode in MODES}
    for measure, hybrid in scores[Mode.HYBRID].items():
        yield Row(
            outcome.dataset,
            measure,
            {mode: estimate(scores[mode][measure]) for mode in MODES},
            {mode: significance(hybrid, scores[mode][measure]) for mode in MODES if mode is not Mode.HYBRID},
        )


def _dataset_json(outcome: QualityOutcome) -> dict[str, Any]:
    return {
        "name": outcome.dataset,
        "documents": outcome.documents,
        "queries": outcome.queries,
        "judgedBy": "spans" if outcome.by_spans else "documents",
        "lostToThreshold": outcome.lost,
        "noAnswer": outcome.unanswerable,
    }


def _cells(outcome: QualityOutcome) -> tuple[str, ...]:
    lost = "" if outcome.lost is None else percent(outcome.lost)
    return outcome.dataset, str(outcome.documents), str(outcome.queries), lost, percent(outcome.unanswerable)


def _p(row: Row, mode: Mode) -> str:
    p = row.p_values.get(mode)
    if p is None:
        return ""
    return "< .001" if p < 0.001 else short(p)


def with_interval(found: Estimate) -> str:
    return f"{short(found.mean)} ({short(found.low)} to {short(found.high)})"

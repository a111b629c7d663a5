"""Reports of measurements: tables for a terminal, JSON, and the quality page with its picture.

The page says what was measured, what it means and what it leaves out.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rag_context._version import __version__
from rag_context.evaluation import evidence_report
from rag_context.evaluation.evidence_quality import EvidenceOutcome
from rag_context.evaluation.evidence_report import as_objects, markdown_table, short
from rag_context.evaluation.interface_quality import TOOLS, CollectionOutcome, ProjectOutcome
from rag_context.evaluation.measures import Estimate, estimate, significance
from rag_context.evaluation.quality import DEEP, MODES, Outcome
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

_WIDTH = 760
_LABEL = 190
_BAR = 14
_GAP = 5
_GROUP = 18
_TOP = 48
_FONT = 'font-family="system-ui, sans-serif" font-size="12"'
_COLOURS = {Mode.TEXT: "#8a94a6", Mode.VECTOR: "#5b9bd5", Mode.HYBRID: "#1f5fa8"}

INTRODUCTION = f"""# Retrieval quality

<!-- Written by `rag-context eval --markdown`; run it again rather than editing. -->

This page measures how well searches find what they should, with version {__version__}, the bundled model and the
embedded store. The first part uses public collections whose queries were judged by people, the second part [open
sets](#conversations-code-and-other-open-sets) that this program generates.

Each collection is indexed into a directory of its own as if its documents were files. Every judged query runs in three
modes with `minScore` 0 and the largest `limit`, 20 passages. If these belong to fewer than ten documents, more are
requested until ten documents are ranked. [What the numbers mean](#what-the-numbers-mean) explains the measures.
"""

MEANING = f"""## What the numbers mean

- **nDCG@10**: how good the first ten documents are and how well they are ordered, with gains `2^grade - 1`; 1 is the
  best possible order. A document ranks by its best passage.
- **recall@10**: share of the relevant documents that are among the first ten. **MRR@10**: one divided by the rank of
  the first relevant document. **success@3**: share of the queries with a relevant document among the first three.
- **answer in 1000 tokens**: share of the characters that answer a question and are among the first 1 000 tokens of
  returned passages. It measures chunking and ranking together.
- In brackets: 95 % intervals (bootstrap over the queries, 2 000 resamples). **p**: the probability of a difference to
  hybrid at least this large by chance (paired randomisation test, 10 000 permutations). All seeds are fixed.
- **lost to the default threshold**: of the judged relevant documents in the first {DEEP} passages of a hybrid search,
  those of which no passage would be returned without `minScore`. Relevant documents further down are outranked, not
  lost, and are not counted.
- **labelled noAnswer**: queries whose answer says that probably nothing indexed answers them. All queries here are
  answerable, so each label is an error; the label removes nothing.

## What is not measured here

- Real conversations and repositories: those above are generated. `rag-context eval DIR` measures yours.
- Other models and stores than the bundled ones.
- Time: the deadline is so long during the measurement that it ends no search.
"""

PROJECTS = """## Through the project tools

With `--projects`, each collection that is judged by documents is also written into a project of its own, with one file
per document. Every query runs through `semantic_search` and `rag_query` (ten documents, minimum relevance 0), beside a
plain search of the same tenant. The open set `project` is always measured in this way. The tools must rank as the
search does: the last line of each collection is the share of queries with the same first ten, in the same order.
"""

COLLECTIONS = """## As collections

With `--collections`, the documents of each set that is not judged by spans are also stored in a
[collection](collections.md) that the server embeds. Every query is a `query` of the collection in three modes. A
collection holds whole documents, one vector each, without the rules that the memory has for each kind of content.
"""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """All measurements of one run, by what was measured."""

    judged: list[Outcome] = field(default_factory=list)
    by_tool: list[ProjectOutcome] = field(default_factory=list)
    in_collections: list[CollectionOutcome] = field(default_factory=list)
    with_evidence: list[EvidenceOutcome] = field(default_factory=list)


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


def as_json(found: Outcomes) -> str:
    """All measurements as one JSON object."""
    return json.dumps(
        {
            "datasets": [_dataset_json(outcome) for outcome in found.judged],
            "measures": [_row_json(row) for row in rows_of(found.judged)],
            "projects": [
                {
                    "dataset": each.dataset,
                    "measure": measure,
                    "tools": {tool: estimate(each.scores[tool].by_measure[measure]).mean for tool in TOOLS},
                    "sameOrder": each.same_order,
                }
                for each in found.by_tool
                for measure in each.scores[TOOLS[0]].by_measure
            ],
            "collections": [
                {
                    "dataset": each.dataset,
                    "measure": measure,
                    "modes": {mode.value: estimate(each.scores[mode].by_measure[measure]).mean for mode in MODES},
                }
                for each in found.in_collections
                for measure in each.scores[Mode.HYBRID].by_measure
            ],
            "evidence": as_objects(found.with_evidence),
        }
    )


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "dataset": row.dataset,
        "measure": row.measure,
        "modes": {
            mode.value: {"mean": found.mean, "low": found.low, "high": found.high}
            for mode, found in row.estimates.items()
        },
        "pValues": {f"hybrid vs {mode.value}": p for mode, p in row.p_values.items()},
    }


def as_tables(found: Outcomes) -> RenderableType:
    """Tables for a terminal."""
    parts: list[RenderableType] = [*(_judged_tables(found.judged) if found.judged else ())]
    if found.by_tool:
        parts += [_table(("Project of", "Measure", *TOOLS), _tool_rows(found.by_tool)), Text("")]
    if found.in_collections:
        headings = ("Collection of", "Measure", *(mode.value for mode in MODES))
        parts += [_table(headings, _collection_rows(found.in_collections)), Text("")]
    return Group(*parts, *([evidence_report.as_tables(found.with_evidence)] if found.with_evidence else []))


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    return table


def _judged_tables(outcomes: Sequence[Outcome]) -> Iterator[RenderableType]:
    measured = Table(box=None, pad_edge=False)
    for heading in ("Dataset", "Measure", *(mode.value for mode in MODES), "p (text)", "p (vector)"):
        measured.add_column(heading)
    for row in rows_of(outcomes):
        best = max(MODES, key=lambda mode: row.estimates[mode].mean)
        cells = [Text(_with_interval(row.estimates[mode]), style="bold" if mode is best else "") for mode in MODES]
        measured.add_row(row.dataset, row.measure, *cells, *(_p(row, mode) for mode in (Mode.TEXT, Mode.VECTOR)))
    yield from (measured, Text(""), _table(_DATASET_COLUMNS, map(_cells, outcomes)), Text(""))


def as_markdown(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The same tables in Markdown, line by line."""
    headings = ("collection", "measure", *(mode.value for mode in MODES), "p against text", "p against vector")
    yield from markdown_table(headings, map(_measure_cells, rows_of(outcomes)))
    yield ""
    yield from markdown_table(_DATASET_COLUMNS, map(_cells, outcomes))


def _measure_cells(row: Row) -> tuple[str, ...]:
    means = (_with_interval(row.estimates[mode]) for mode in MODES)
    return row.dataset, row.measure, *means, *(_p(row, mode) for mode in (Mode.TEXT, Mode.VECTOR))


def _collection_rows(outcomes: Sequence[CollectionOutcome]) -> Iterator[tuple[str, ...]]:
    for each in outcomes:
        for measure in (LEADING, "recall@10"):
            yield (
                each.dataset,
                measure,
                *(_with_interval(estimate(each.scores[mode].by_measure[measure])) for mode in MODES),
            )


def _tool_rows(by_tool: Sequence[ProjectOutcome]) -> Iterator[tuple[str, ...]]:
    for each in by_tool:
        for measure in each.scores[TOOLS[0]].by_measure:
            cells = (_with_interval(estimate(each.scores[tool].by_measure[measure])) for tool in TOOLS)
            yield each.dataset, measure, *cells
        yield each.dataset, "first ten as in the search", *(f"{each.same_order[tool]:.1%}" for tool in TOOLS)


def _rows_of(outcome: Outcome) -> Iterator[Row]:
    scores = {mode: outcome.scores[mode].by_measure for mode in MODES}
    for measure, hybrid in scores[Mode.HYBRID].items():
        yield Row(
            outcome.dataset,
            measure,
            {mode: estimate(scores[mode][measure]) for mode in MODES},
            {mode: significance(hybrid, scores[mode][measure]) for mode in MODES if mode is not Mode.HYBRID},
        )


def _dataset_json(outcome: Outcome) -> dict[str, Any]:
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
    return "< .001" if p < 0.001 else short(p)


def _with_interval(found: Estimate) -> str:
    return f"{short(found.mean)} ({short(found.low)} to {short(found.high)})"


def page(found: Outcomes, path: Path) -> str:
    """The whole page in Markdown, for the file `path`; its picture stands beside it under the same name."""
    parts = [INTRODUCTION]
    if found.judged:
        shown = path.name if path.is_absolute() else path.as_posix()
        names = " ".join(f"DATA/{outcome.dataset}" for outcome in found.judged)
        parts += [
            f"```console\n$ rag-context eval {names} --markdown {shown}\n```\n",
            f"![Means by collection and mode]({path.with_suffix('.svg').name})\n",
            "\n".join(as_markdown(found.judged)),
            "",
        ]
    if found.by_tool:
        parts += [PROJECTS, *markdown_table(("collection", "measure", *TOOLS), _tool_rows(found.by_tool)), ""]
    if found.in_collections:
        modes = (mode.value for mode in MODES)
        parts += [COLLECTIONS, *markdown_table(("set", "measure", *modes), _collection_rows(found.in_collections)), ""]
    if found.with_evidence:
        parts.append(evidence_report.section(found.with_evidence))
    return "\n".join([*parts, MEANING])


def picture(outcomes: Sequence[Outcome]) -> str:
    """Bars of each collection's first measure by mode, with their intervals, as SVG."""
    rows = _leading(rows_of(outcomes))
    height = _TOP + len(rows) * (len(MODES) * (_BAR + _GAP) + _GROUP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" {_FONT}>',
        "<title>Retrieval quality by collection and mode</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, mode in enumerate(MODES):
        x = _LABEL + number * 90
        parts.append(f'<rect x="{x}" y="14" width="12" height="12" fill="{_COLOURS[mode]}"/>')
        parts.append(f'<text x="{x + 18}" y="24" fill="#333333">{mode.value}</text>')
    y = _TOP
    for row in rows:
        parts.extend(_bars(row, y))
        y += len(MODES) * (_BAR + _GAP) + _GROUP
    return "\n".join([*parts, "</svg>"]) + "\n"


def _leading(rows: Sequence[Row]) -> list[Row]:
    seen: dict[str, Row] = {}
    for row in rows:
        seen.setdefault(row.dataset, row)
    return list(seen.values())


def _bars(row: Row, top: int) -> list[str]:
    middle = top + len(MODES) * (_BAR + _GAP) // 2
    parts = [
        f'<text x="{_LABEL - 12}" y="{middle - 6}" text-anchor="end" fill="#111111">{escape(row.dataset)}</text>',
        f'<text x="{_LABEL - 12}" y="{middle + 10}" text-anchor="end" fill="#777777">{escape(row.measure)}</text>',
    ]
    for number, mode in enumerate(MODES):
        found = row.estimates[mode]
        y = top + number * (_BAR + _GAP)
        line = y + _BAR / 2
        parts += [
            f'<rect x="{_LABEL}" y="{y}" width="{_length(found.mean)}" height="{_BAR}" fill="{_COLOURS[mode]}"/>',
            f'<path d="M{_LABEL + _length(found.low)} {line}H{_LABEL + _length(found.high)}" stroke="#111111"/>',
            f'<text x="{_LABEL + _length(found.high) + 8}" y="{y + 11}" fill="#333333">{found.mean:.3f}</text>',
        ]
    return parts


def _length(value: float) -> float:
    return round(value * (_WIDTH - _LABEL - 70), 1)

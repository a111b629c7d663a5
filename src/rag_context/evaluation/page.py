"""The quality page: what was measured, a picture of it, what it means and what it leaves out."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rag_context._version import __version__
from rag_context.evaluation.evaluate import DEEP, MODES, Outcome
from rag_context.evaluation.projects import ProjectOutcome
from rag_context.evaluation.report import Row, as_markdown, projects_as_markdown, rows_of
from rag_context.search.query import Mode

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

Measured with version {__version__}, the bundled model and the embedded store, on collections whose queries were judged.
Each collection is indexed into a directory of its own as if its documents were files, and every judged query runs in
three modes with `minScore` 0 and the largest `limit`, 20 passages; if these belong to fewer than ten documents, more
are requested until ten documents are ranked.
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
- **lost to the default threshold**: of the judged relevant documents among the first {DEEP} passages of a hybrid
  search, those of which no passage would be returned without `minScore`. Relevant documents further down are outranked,
  not lost, and are not counted.
- **labelled noAnswer**: queries whose answer says that probably nothing indexed answers them. All queries here are
  answerable, so each label is an error; the label removes nothing.

## What is not measured here

- Conversations and code, which have ranking profiles of their own: these collections contain neither.
- Queries without an answer in the index: how many of those `noAnswer` recognises is not shown.
- Other models and stores than the bundled ones, and languages other than English.
- Time: the deadline is so long during the measurement that it ends no search.
"""


PROJECTS = """## Through the project tools

With `--projects`, each collection that is judged by documents is also written into a project of its own, one file a
document, and every query runs through `semantic_search` and `rag_query` (ten documents, minimum relevance 0), beside a
plain search of the same tenant. The tools must rank as the search does; the last line of each collection is the share
of queries with the same first ten, in the same order.
"""


def page(outcomes: Sequence[Outcome], path: Path, by_tool: Sequence[ProjectOutcome] = ()) -> str:
    """The whole page in Markdown, for the file `path`; its picture stands beside it under the same name."""
    image = path.with_suffix(".svg").name
    shown = path.name if path.is_absolute() else path.as_posix()
    option = " --projects" if by_tool else ""
    names = " ".join(f"DATA/{outcome.dataset}" for outcome in outcomes)
    parts = [
        INTRODUCTION,
        f"```\nrag-context eval {names}{option} --markdown {shown}\n```\n",
        f"![Means by collection and mode]({image})\n",
        "\n".join(as_markdown(outcomes)),
        "",
        *([PROJECTS, "\n".join(projects_as_markdown(by_tool)), ""] if by_tool else []),
        MEANING,
    ]
    return "\n".join(parts)


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

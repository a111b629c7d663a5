"""The quality page with its picture: what was measured, what the numbers mean, and what they leave out."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from benchmarks.interface_quality import InterfaceOutcomes
from rag_context._version import __version__
from rag_context.evaluation.evidence_quality import FIRST_SESSIONS, FIRST_SIDES, EvidenceOutcome
from rag_context.evaluation.quality import DEEP, FIRST, MODES, QualityOutcome
from rag_context.evaluation.report import Grid, Outcomes, Row, evidence_grids, judged_grids, rows_of
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

<!-- Written by `python -m benchmarks.quality --markdown`; run it again rather than editing. -->

This page measures how well searches find what they should, with version {__version__}, the bundled model and the
embedded store. The first part uses public collections whose queries were judged by people, the second part [open
sets](#conversations-code-and-other-open-sets) that `benchmarks/open_sets` generates.

Each collection is indexed into a directory of its own as if its documents were files. Every judged query runs in three
modes with `minScore` 0 and the largest `limit`, 20 passages. If these belong to fewer than ten documents, more are
requested until ten documents are ranked. [What the numbers mean](#what-the-numbers-mean) explains the measures.
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

SECTION = f"""## Conversations, code and other open sets

Each question names the messages, files or pages that answer it. The open sets are generated from sentences of
our own, with fixed seeds, so that anyone can repeat the figures. They are hard on purpose: other messages
share the words of a question, and its evidence often does not, so keyword search stays below a recall of .7. That
favours vector search. Compare versions, models and settings by these figures; they do not predict those of your own
conversations.

- `roles`: users with an assistant. Questions ask for what the user said (user), for what the assistant recommended
  (assistant), or for all on a subject (several); the messages of the user are short, those of the assistant long.
  `names`: two people with short messages; a question names one of them or both.
- `updates`: what was corrected later, and what was not. `dated`: events of the same kinds on a hundred days; only the
  date distinguishes them. `standing`: an instruction given once, and a request to which it applies.
- `repository`: 45 files in Python, TypeScript, Go and Java, and 270 in folders of tests, specs, examples, benchmarks
  and older versions, which use their names or define them again. Questions by purpose share no word with the file that
  answers; questions by symbol or by file share theirs with ten others. The same symbols stand in sentences too
  ("What does withRetry do?").
- `manual`: the same manual in four languages, with questions in other words, or in other forms of its words.
- `variants`: words written together, apart or with a hyphen (`backup`, `back up`). `project`: documents with front
  matter, also measured through `rag_query`.

```console
$ python -m benchmarks.quality
```

- **recall@{FIRST}**: mean share of the evidence (messages, files, pages) that is among the first {FIRST} items.
  **nDCG@{FIRST}** also counts its place. Both with `minScore` 0.
- **Sessions**: questions with at least one session of the evidence (any), or every one of them (all), among the first
  {FIRST_SESSIONS} sessions of a hybrid search.
- **Correction first**: questions whose correction is among the first {FIRST} items and above what it corrects.
  **Both in {FIRST_SIDES}**: both are among the first {FIRST_SIDES} items of a hybrid search.
- **Standing instructions**: questions whose evidence is in the list `standing` of a hybrid search, and how many
  passages that list has in the mean. Sets without such passages have no line.
- **Labelled noAnswer**: should be all of the questions that nothing answers, and none of the others. The label removes
  nothing. `other memory`: the subject does not occur. `with a date`: the subject does not occur, but something was said
  on that day. `near topic`: the subject occurs, the answer does not. `other person`: only the other person gave an
  answer. Scores cannot distinguish the last two from an answer.
- **Answers by limit**: hybrid, without `minScore`, as an agent receives them: share of the evidence returned, questions
  with some of it, mean number of tokens of the passages, and pieces of evidence in 1 000 of these tokens.
"""

LAYOUT = """### Your own data

`rag-context eval DIR` measures a folder in the same layout, and prints the same tables.
`python -m benchmarks.open_sets DIR` writes the open sets there as examples.

- `corpus.jsonl`, one item a line, in the order in which they were said or written: `_id` and `text`; optional `title`,
  `contentType` (default: `chat` with a speaker, else `documentation`), `speaker`, `sessionId` (the conversation),
  `occurredAt` (such as `2026-05-07T09:30:00Z`), `path` (of a file), `project` (only questions of the same project find
  it).
- `queries.jsonl`, one question a line: `_id`, `text` and `evidence`, a list of ids of items, empty if nothing answers;
  optional `category`, `project`, and `outdated`, a list of items that the evidence corrects.

```
{"_id": "m1", "speaker": "user", "text": "My rent is 840 euros.", "sessionId": "s1"}
{"_id": "m2", "speaker": "user", "text": "From May on I owe 895 euros.", "sessionId": "s2"}

{"_id": "1", "text": "How much rent do I pay?", "evidence": ["m2"], "outdated": ["m1"], "category": "changed"}
{"_id": "2", "text": "Who is my landlord?", "evidence": []}
```

If every `path` begins with `docs/`, the items are also written as the documents of a project, and measured through
`rag_query` and `semantic_search`.
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


def page(found: Outcomes, interfaces: InterfaceOutcomes, path: Path) -> str:
    """The whole page in Markdown, for the file `path`; its picture stands beside it under the same name."""
    parts = [INTRODUCTION]
    if found.judged:
        shown = path.name if path.is_absolute() else path.as_posix()
        names = " ".join(f"DATA/{outcome.dataset}" for outcome in found.judged)
        parts += [
            f"```console\n$ python -m benchmarks.quality {names} --markdown {shown}\n```\n",
            f"![Means by collection and mode]({path.with_suffix('.svg').name})\n",
        ]
        for grid in judged_grids(found.judged):
            parts += [*_markdown(grid), ""]
    introductions = [PROJECTS] * bool(interfaces.by_tool) + [COLLECTIONS] * bool(interfaces.in_collections)
    for introduction, grid in zip(introductions, interfaces.grids(), strict=True):
        parts += [introduction, *_markdown(grid), ""]
    if found.with_evidence:
        parts += [SECTION, *evidence_markdown(found.with_evidence), LAYOUT]
    return "\n".join([*parts, MEANING])


def evidence_markdown(outcomes: Sequence[EvidenceOutcome]) -> Iterator[str]:
    """The tables of sets with evidence, each below its title, line by line."""
    for grid in evidence_grids(outcomes):
        yield from (f"### {grid.title}", "", *_markdown(grid), "")


def _markdown(grid: Grid) -> Iterator[str]:
    """A table without its title, line by line."""
    for cells in (grid.headings, ["---"] * len(grid.headings), *grid.rows):
        yield f"| {' | '.join(map(str, cells))} |"


def picture(outcomes: Sequence[QualityOutcome]) -> str:
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

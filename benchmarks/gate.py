"""How often the gate says what is needed, and how often nothing: `python -m benchmarks.gate [--json] [--part PART]`.

Every prompt and action of the labelled set goes through the gate of a service with the bundled model; one search is
kept for all points of the curve.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

from benchmarks.gate_prompts import PARTS, Action, Asked, GateSet, gate_set, tag_of
from rag_context.agents.gate import BAR, MOST_AT_PROMPT, NOT_STRONG, Gate, Moment, Search, Verdict
from rag_context.domain.search import Filter
from rag_context.evaluation.quality import index_groups
from rag_context.memory.service import Service
from rag_context.search.query import Answer, Level, Query
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service

BARS = (-0.5, 0.0, 0.2, BAR, 0.7, 0.95, 1.5, 2.5)
MODEL_TIMEOUT_S = 60.0
ATTEMPTS = 5
TIMED = 100
"""Prompts whose decision is timed, each in turn with the bare search."""


@dataclass(frozen=True, slots=True)
class Row:
    """Some prompts: shares of those that were shown what they need, something else only, and nothing; and tokens.

    `tokens` is the median of those that were shown something; None if none was.
    """

    name: str
    prompts: int
    right: float
    other: float
    silent: float
    tokens: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the curve, in shares of prompts; `foreign` counts passages of other projects."""

    bar: float
    right: float
    silent_near: float
    silent_unrelated: float
    foreign: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Median time of a decision, and of one search of the same words right before it."""

    decision_ms: float
    search_ms: float


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of what prompts of one sort need, in numbers of prompts."""

    sort: str
    told: int
    below_bar: int
    behind: int
    never_shown: int
    not_found: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured on one part."""

    part: str
    curve: tuple[Point, ...]
    rows: tuple[Row, ...]
    actions: tuple[Row, ...]
    fates: tuple[Fates, ...] = ()
    cost: Cost | None = None


async def measure(part: str, data_dir: Path, every: int = 1, bars: Sequence[float] = BARS) -> Outcome:
    """Index a part of the set into an empty directory, and ask every `every`-th prompt and action of it."""
    labelled = gate_set(part)
    async with open_service(Settings(data_dir=data_dir)) as service:
        await index_set(service, labelled)
        return await _measured(service, labelled, every, bars)


async def index_set(service: Service, labelled: GateSet) -> None:
    """Index the documents of a part, each by itself."""
    await service.wait_ready(MODEL_TIMEOUT_S)
    groups = [[(str(number), line)] for number, line in enumerate(labelled.documents)]
    await index_groups(service, "document", groups, _quiet)


def _quiet(_doing: str, _done: int, _total: int) -> None:
    """Ignore progress."""


async def _measured(service: Service, labelled: GateSet, every: int, bars: Sequence[float]) -> Outcome:
    search = _cached(service)
    prompts, actions = labelled.prompts[::every], labelled.actions[::every]
    curve, rows = [], list[Row]()
    for bar in bars:
        gate = Gate(search, service.tokenizer, bar)
        told = [(prompt, await gate.decide(moment_of(prompt))) for prompt in prompts]
        curve.append(_point(bar, told))
        if bar == BAR:
            rows = list(_rows(told))
    gate = Gate(search, service.tokenizer)
    acted = [(action, await gate.decide(moment_of(action))) for action in actions]
    fates = await _fates(gate, [asked for asked in prompts if asked.label == "needs"])
    cost = await _timed(service, prompts[:: max(1, len(prompts) // TIMED)])
    return Outcome(labelled.part, tuple(curve), tuple(rows), tuple(_action_rows(acted)), fates, cost)


async def _fates(gate: Gate, needing: Sequence[Asked]) -> tuple[Fates, ...]:
    """Whether the search or the gate lost what a prompt needs."""
    counts = {asked.sort: Counter[str]() for asked in needing}
    for asked in needing:
        told = _is_right(asked, await gate.decide(moment_of(asked)))
        judged = await gate.judged(moment_of(asked))
        candidates = [] if isinstance(judged, str) else judged
        right = [each for each in candidates if asked.holds is not None and asked.holds in each.unit.text]
        passable = [each for each in candidates if each.objection in (None, NOT_STRONG)]
        fate = (
            "told" if told
            else "not_found" if not right
            else "below_bar" if any(each in passable[:MOST_AT_PROMPT] for each in right)
            else "behind" if any(each in passable for each in right)
            else "never_shown"
        )  # fmt: skip
        counts[asked.sort][fate] += 1
    names = [field.name for field in fields(Fates)][1:]
    return tuple(Fates(sort, *(of_sort[name] for name in names)) for sort, of_sort in counts.items())


def _cached(service: Service) -> Search:
    answers: dict[Query, Answer] = {}

    async def search(query: Query) -> Answer:
        for _ in range(ATTEMPTS if query not in answers else 0):
            answers[query] = await service.rank(query)
            if answers[query].level is Level.PRIMARY:  # a busy machine ends a search early
                break
        return answers[query]

    return search


def moment_of(what: Asked | Action) -> Moment:
    """The moment at which something could be said."""
    tag = tag_of(what.project)
    if isinstance(what, Asked):
        return Moment("prompt", what.text, tag, session_id="now", agent="claude-code")
    return Moment("action", what.text, tag, session_id="now", agent="claude-code", path=what.path)


def _is_right(what: Asked | Action, verdict: Verdict) -> bool:
    return what.holds is not None and any(what.holds in shown.text for shown in verdict.passages)


def _point(bar: float, told: Sequence[tuple[Asked, Verdict]]) -> Point:
    def silent(label: str) -> float:
        return _share(not verdict.passages for asked, verdict in told if asked.label == label)

    foreign = sum(
        not shown.source.rpartition("/")[2].startswith((asked.project, "general"))
        for asked, verdict in told
        for shown in verdict.passages
    )
    right = _share(_is_right(asked, verdict) for asked, verdict in told if asked.label == "needs")
    return Point(bar, right, silent("near"), silent("unrelated"), foreign)


def _rows(told: Sequence[tuple[Asked, Verdict]]) -> Iterable[Row]:
    labels = {
        "needs": "needs memory",
        "near": "near it, not answered",
        "repeated": "everyday questions asked before",
        "unrelated": "nothing to do with it",
    }
    for label, name in labels.items():
        of_label = [each for each in told if each[0].label == label]
        yield _row(name, of_label)
        sorts: tuple[Callable[[Asked], str], ...] = (lambda asked: asked.sort, lambda asked: asked.kind)
        for sort in sorts if label == "needs" else sorts[:1]:
            for value in dict.fromkeys(sort(asked) for asked, _ in of_label):
                if label not in ("near", "repeated"):
                    yield _row(f"- {value}", [each for each in of_label if sort(each[0]) == value])


def _action_rows(acted: Sequence[tuple[Action, Verdict]]) -> Iterable[Row]:
    for is_edit, name in ((True, "edits of files"), (False, "commands")):
        for is_recorded in (True, False):
            found = [
                each
                for each in acted
                if (each[0].path is not None, each[0].holds is not None) == (is_edit, is_recorded)
            ]
            yield _row(f"{name} {'with' if is_recorded else 'without'} a recorded decision or fix", found)


def _row(name: str, told: Sequence[tuple[Asked | Action, Verdict]]) -> Row:
    right = _share(_is_right(what, verdict) for what, verdict in told)
    silent = _share(not verdict.passages for _, verdict in told)
    tokens = [sum(shown.tokens for shown in verdict.passages) for _, verdict in told if verdict.passages]
    return Row(name, len(told), right, abs(1.0 - right - silent), silent, statistics.median(tokens) if tokens else None)


def _share(values: Iterable[bool]) -> float:
    values = list(values)
    return sum(values) / len(values) if values else 0.0


async def _timed(service: Service, prompts: Sequence[Asked]) -> Cost:
    """Each prompt is searched for, then decided about, with another letter each time so that both embed it."""
    gate = Gate(service.rank, service.tokenizer)
    decisions, searches = [], []
    for prompt in prompts:
        moment = moment_of(prompt)
        started = time.perf_counter()
        await service.rank(Query(f"{prompt.text[:900]} .", 20, Filter(tags=(str(moment.project_tag),))))
        searches.append(time.perf_counter() - started)
        started = time.perf_counter()
        await gate.decide(moment)
        decisions.append(time.perf_counter() - started)
    return Cost(1000.0 * statistics.median(decisions), 1000.0 * statistics.median(searches))


def as_markdown(outcome: Outcome) -> str:
    """The curve, and the tables at the bar that is used."""
    lines = [
        f"Part for {outcome.part}:",
        "",
        "| bar | needs memory: told it | near it: silent | nothing to do with it: silent | of other projects |",
        "|---|---|---|---|---|",
    ]
    for point in outcome.curve:
        mark = " (used)" if point.bar == BAR else ""
        shares = " | ".join(f"{share:.1%}" for share in (point.right, point.silent_near, point.silent_unrelated))
        lines.append(f"| {point.bar:g}{mark} | {shares} | {point.foreign} |")
    for title, rows in (("prompts", outcome.rows), ("before an action", outcome.actions)):
        lines += ["", f"| {title} | number | told what they need | something else only | nothing | median tokens |"]
        lines.append("|---|---|---|---|---|---|")
        for row in rows:
            tokens = "" if row.tokens is None else f"{row.tokens:.0f}"
            lines.append(
                f"| {row.name} | {row.prompts} | {row.right:.1%} | {row.other:.1%} | {row.silent:.1%} | {tokens} |"
            )
    lines += [
        "",
        "| what they need was | told | among the first three, below the bar | behind | never shown | not found |",
    ]
    lines.append("|---|---|---|---|---|---|")
    lines += [f"| {' | '.join(map(str, astuple(each)))} |" for each in outcome.fates]
    if outcome.cost is not None:
        cost = outcome.cost
        lines += ["", f"A decision took {cost.decision_ms:.1f} ms (median), one search {cost.search_ms:.1f} ms."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all parts, or some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part of the set")
    options = parser.parse_args()
    for part in options.part or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            outcome = asyncio.run(measure(part, Path(folder)))
        sys.stdout.write(f"{json.dumps(asdict(outcome))}\n" if options.json else f"{as_markdown(outcome)}\n")


if __name__ == "__main__":
    main()

"""Fits the weights of the gate to its labelled set: `python -m benchmarks.gate_fit`.

A logistic regression over the candidates of the eight projects of the parts for choosing and reporting, each among
everyday work of three wordings; nothing of the hold-out. How well such a fit does elsewhere is measured with projects
and a wording that it has not seen: of each pair of a quarter of the projects and a wording, all of both is left out.
"""

import asyncio
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.gate import index_set, moment_of
from benchmarks.gate_prompts import Asked, gate_set
from rag_context.agents.gate import WEIGHTS, Gate, features
from rag_context.settings import Settings
from rag_context.wiring.opening import open_service

PARTS = ("choosing", "reporting")
WORDINGS = ("choosing", "reporting", "fitting")
QUARTERS = 4

SILENT = 0.97
"""Share of prompts that have nothing to do with the memory which the bar keeps silent among those of the fit: elsewhere
it is less by some hundredths."""

MOST = 3
SECOND_WEIGHT, OTHER_WEIGHT, NEAR_WEIGHT = 0.3, 0.2, 0.2
"""So many of the strongest candidates of a prompt are examples; what those behind the first count where nothing is to
be said, what wrong ones count beside a right one, and what those of near prompts do: some answer them."""

RIDGE = 2.0
ROUNDS = 3
"""In each round the examples are those that are strongest by the weights of the one before."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """A prompt with the features of all candidates that could be said, `(n, features)`, and which of them are right."""

    asked: Asked
    wording: str
    rows: Floats
    right: NDArray[np.bool_]


async def judged_by(part: str, wording: str, data_dir: Path) -> list[Judged]:
    """All prompts of a part, among everyday work of this wording."""
    labelled = gate_set(part, wording)
    async with open_service(Settings(data_dir=data_dir)) as service:
        await index_set(service, labelled)
        gate, judged = Gate(service.rank, service.tokenizer, bar=-math.inf), []
        for asked in labelled.prompts:
            candidates = await gate.judged(moment_of(asked))
            sayable = () if isinstance(candidates, str) else [each for each in candidates if each.objection is None]
            rows = [features(each.unit, each.scores) for each in sayable]
            right = [asked.holds is not None and asked.holds in each.unit.text for each in sayable]
            judged.append(
                Judged(asked, wording, np.array(rows, float).reshape(len(rows), len(WEIGHTS)), np.array(right, bool))
            )
        return judged


def fitted(judged: Sequence[Judged]) -> Floats:
    """The weights, `(features,)`."""
    weights = np.zeros(len(WEIGHTS))
    weights[1:3] = 1.0  # to begin with: the conclusion's relevance, and its margin
    for _ in range(ROUNDS):
        examples = [example for each in judged for example in _examples(each, weights)]
        rows, labels, counts = (np.array(column, float) for column in zip(*examples, strict=True))
        weights = _regression(rows, labels, counts)
    return weights


def _examples(judged: Judged, weights: Floats) -> Iterator[tuple[Floats, bool, float]]:
    first = _strongest(judged, weights)
    if judged.asked.label == "needs":
        yield from ((row, True, 1.0) for row in judged.rows[judged.right])
        yield from ((judged.rows[at], False, OTHER_WEIGHT) for at in first if not judged.right[at])
        return
    weight = NEAR_WEIGHT if judged.asked.label == "near" else 1.0
    for place, at in enumerate(first):
        yield judged.rows[at], False, weight * (SECOND_WEIGHT if place else 1.0)


def _strongest(judged: Judged, weights: Floats) -> NDArray[np.intp]:
    return np.argsort(-(judged.rows @ weights), kind="stable")[:MOST]


def _regression(rows: Floats, labels: Floats, counts: Floats) -> Floats:
    """Logistic regression by Newton's method, with a ridge on all but the constant."""
    weights, ridge = np.zeros(rows.shape[1]), np.full(rows.shape[1], RIDGE)
    ridge[0] = 0.0
    for _ in range(20):
        likely = 1.0 / (1.0 + np.exp(-(rows @ weights)))
        slope = rows.T @ (counts * (labels - likely)) - ridge * weights
        curvature = (rows * (counts * likely * (1.0 - likely))[:, None]).T @ rows + np.diag(ridge)
        weights = weights + np.linalg.solve(curvature, slope)
    return weights


def bar(judged: Iterable[Judged], weights: Floats, silent: float) -> float:
    """The strength up to which so many of the prompts are that have nothing to do with the memory."""
    strengths = [_strengths(each, weights)[0] for each in judged if each.asked.label == "unrelated"]
    return float(np.quantile(strengths, silent, method="higher"))


def _strengths(judged: Judged, weights: Floats) -> tuple[float, float]:
    """The strength of the strongest candidate, and of the right one if it is among those that would be said."""
    first = _strongest(judged, weights)
    strengths = judged.rows[first] @ weights
    return max(strengths, default=-99.0), max(strengths[judged.right[first]], default=-99.0)


def elsewhere(judged: Sequence[Judged]) -> tuple[float, float]:
    """Shares of prompts that are shown what they need, and of unrelated ones that are not, of what no fit has seen."""
    projects = sorted({each.asked.project for each in judged})
    right, silent = [], []
    for wording in WORDINGS:
        for quarter in (projects[at::QUARTERS] for at in range(QUARTERS)):
            seen = [each for each in judged if each.wording != wording and each.asked.project not in quarter]
            weights = fitted(seen)
            least = bar(seen, weights, SILENT)
            for each in judged:
                if each.wording == wording and each.asked.project in quarter:
                    strongest, needed = _strengths(each, weights)
                    if each.asked.label == "needs":
                        right.append(needed > least)
                    elif each.asked.label == "unrelated":
                        silent.append(strongest <= least)
    return float(np.mean(right)), float(np.mean(silent))


def main() -> None:
    """Print the weights and the bar as `gate` has them."""
    judged: list[Judged] = []
    for part in PARTS:
        for wording in WORDINGS:
            with tempfile.TemporaryDirectory() as folder:
                judged += asyncio.run(judged_by(part, wording, Path(folder)))
    weights = fitted(judged)
    lines = [f'    "{name}": {weight:.2f},' for name, weight in zip(WEIGHTS, weights, strict=True)]
    sys.stdout.write("\n".join(["WEIGHTS = {", *lines, "}", f"BAR = {bar(judged, weights, SILENT):.2f}", ""]))
    right, silent = elsewhere(judged)
    sys.stdout.write(f"Projects and wordings left out: {right:.1%} shown what they need, {silent:.1%} silent.\n")


if __name__ == "__main__":
    main()

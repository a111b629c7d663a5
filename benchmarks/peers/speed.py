"""How fast the peers index and search: generated texts at several sizes, every peer in turn."""

import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.corpus import Writer
from benchmarks.peers.running import (
    ANSWER_S,
    PAUSE_S,
    TEXT_S,
    Driver,
    PeerError,
    driving,
    in_turn,
    one_line,
    say,
    versions_of,
)
from benchmarks.peers.table import OURS, Peer, Row
from rag_context.embedders.onnx_model import BUNDLED, load

SENTENCES = 2
"""Of a text: one chunk of rag-context."""

GIVEN_FROM = 100_000
"""From so many texts on their vectors are made once and given to all: else they would be made for hours."""

PARTS = 10
PROBES = 5
WARM_UP = 20
QUESTIONS = 200


@dataclass(frozen=True, slots=True)
class Step:
    """A request to every peer's driver. `best` is the text that has to be the first result at least once."""

    request: Mapping[str, object]
    timeout_s: float
    best: str = ""


@dataclass
class Run:
    """One peer at one size: its driver, and what was measured."""

    peer: Peer
    driver: Driver | None = None
    indexing_s: float = 0.0
    times_ms: list[float] = field(default_factory=list)
    found: int = 0
    empty: int = 0
    failure: str = ""

    def take(self, step: Step) -> None:
        """Carry out one step; after a failure none is."""
        if self.failure or self.driver is None:
            return
        try:
            answer = self.driver.call(step.request, step.timeout_s)
        except PeerError as error:
            self.fail(str(error))
            return
        if step.best:
            self.found += step.best in "".join(answer["texts"][:1])
        elif "ask" not in step.request:
            self.indexing_s += answer["seconds"]
        else:
            self.times_ms.append(answer["seconds"] * 1000.0)
            self.empty += not answer["texts"]

    def fail(self, why: str) -> None:
        """No further step; the reason becomes the row."""
        self.failure = one_line(why)
        say(f"{self.peer.title}: {self.failure}")


def steps(size: int) -> Iterator[Step]:
    """The requests to each peer: all peers do one before the next one begins."""
    writer = Writer(seed=21)
    texts = [writer.passage(SENTENCES) for _ in range(size)]
    part = -(-size // PARTS)
    for begin in range(0, size, part):
        yield Step({"add": texts[begin : begin + part]}, ANSWER_S + part * TEXT_S)
    yield Step({"save": True}, ANSWER_S + size * TEXT_S)
    for text in texts[:: -(-size // PROBES)]:
        yield Step({"ask": text}, ANSWER_S, best=text.strip())
    for _ in range(WARM_UP + QUESTIONS):
        yield Step({"ask": writer.question()}, ANSWER_S)


def measure(size: int, pythons: Mapping[Peer, Path | PeerError], scratch: Path) -> list[Row]:
    """Every peer at one size."""
    given = scratch / "given" if size >= GIVEN_FROM else None
    with ExitStack() as stack:
        runs = []
        for peer, python in pythons.items():
            run = Run(peer)
            runs.append(run)
            try:
                run.driver = stack.enter_context(driving(peer, python, scratch / peer.name, given))
            except PeerError as error:
                run.fail(str(error))
        for number, step in enumerate(steps(size)):
            texts = step.request.get("add")
            if given is not None and isinstance(texts, list):
                _give(texts, given / f"{number}.npz")
            for run in in_turn(runs, number):
                run.take(step)
                if "ask" in step.request and not run.failure:
                    time.sleep(PAUSE_S)
    return rows(size, runs)


def _give(texts: list[str], path: Path) -> None:
    """Write the texts with their vectors; the file is whole as soon as it is there."""
    model = load(BUNDLED)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        vectors = np.stack(list(pool.map(model.embed, texts)))
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(file, texts=np.array(texts), vectors=vectors)
    partial.rename(path)


def rows(size: int, runs: Sequence[Run]) -> list[Row]:
    """What was measured, as multiples of ours where ours was measured."""
    for run in runs:
        if not run.failure and not run.found:
            run.fail(f"found none of {PROBES} texts by themselves")
        if not run.failure and run.empty > len(run.times_ms) // 2:  # a few may well match nothing
            run.fail(f"{run.empty} of {len(run.times_ms)} questions had no result")
    ours = next((run for run in runs if run.peer == OURS and not run.failure), None)
    return [_row(size, run, ours) for run in runs]


def _row(size: int, run: Run, ours: Run | None) -> Row:
    versions = versions_of(run.peer)
    if run.failure:
        return Row(size, run.peer.name, versions, failure=run.failure)
    return Row(
        size,
        run.peer.name,
        versions,
        p50_ms=_p50(run),
        p50_ratio=_p50(run) / _p50(ours) if ours else None,
        texts_per_s=size / run.indexing_s if size < GIVEN_FROM else None,
        indexing_ratio=ours.indexing_s / run.indexing_s if ours and size < GIVEN_FROM else None,
    )


def _p50(run: Run) -> float:
    return statistics.median(run.times_ms[WARM_UP:])

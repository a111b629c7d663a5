"""What the peers find on the open sets, in how many tokens, milliseconds and megabytes.

Each project of a set is a memory of its own, so that no peer needs a filter.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.open_sets import write_open_sets
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
from benchmarks.peers.table import Peer, QualityRow
from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.embedders.onnx_model import BUNDLED
from rag_context.evaluation.datasets import EvidenceQuestion, EvidenceSet, LabelledItem, load_set
from rag_context.evaluation.evidence_quality import bulk_fields

QUICK = "project"
"""The smallest set."""


@dataclass(frozen=True)
class Memory:
    """One project of a set: what is stored, and the questions."""

    name: str
    items: tuple[LabelledItem, ...]
    questions: tuple[EvidenceQuestion, ...]

    def texts(self) -> list[str]:
        """Of all items."""
        return [item.content for item in self.items]

    def fields(self) -> list[Mapping[str, object]]:
        """What else is known of them, as JSON has it; without the project, which is the memory."""
        return [_as_json(bulk_fields(item)) for item in self.items]

    def ids(self, sources: Sequence[str]) -> list[str]:
        """The items of these names."""
        by_source = {str(bulk_fields(item)["source"]): item.id for item in self.items}
        return [by_source[source] for source in sources]


def memories(folder: Path, only: str | None = None) -> Iterator[Memory]:
    """The open sets, written into a folder; or one of them."""
    for path in write_open_sets(folder):
        if only not in (None, path.name):
            continue
        dataset = load_set(path)
        assert isinstance(dataset, EvidenceSet)
        for project in dict.fromkeys(item.project for item in dataset.items):
            yield Memory(
                path.name,
                tuple(item for item in dataset.items if item.project == project),
                tuple(question for question in dataset.questions if question.project == project),
            )


def _as_json(fields: Mapping[str, object]) -> Mapping[str, object]:
    said = {name: value for name, value in fields.items() if value is not None and name not in ("content", "project")}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in said.items()}


@dataclass
class Scores:
    """What one peer has found, one value a question."""

    peer: Peer
    recall: dict[str, list[float]] = field(default_factory=dict)
    """By set: the share of the evidence among the results, of questions that something answers."""

    first: list[bool] = field(default_factory=list)
    corrected: list[bool] = field(default_factory=list)
    """Whether a correction stands above all that it corrects, and among the results."""

    abstained: list[bool] = field(default_factory=list)
    """Of questions that nothing answers: whether it says so."""

    abstained_wrongly: list[bool] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    failure: str = ""

    def take(self, memory: Memory, question: EvidenceQuestion, answer: Mapping[str, Any], tokens: int) -> None:
        """Judge one answer."""
        self.times_ms.append(answer["seconds"] * 1000.0)
        if not question.evidence:
            self.abstained.append(answer["abstained"])
            return
        ids = memory.ids(answer["sources"])
        found = [id_ for id_ in ids if id_ in question.evidence]
        self.recall.setdefault(memory.name, []).append(len(set(found)) / len(question.evidence))
        self.first.append(ids[:1] == found[:1] != [])
        self.abstained_wrongly.append(answer["abstained"])
        self.tokens.append(tokens)
        if question.outdated:
            told = [id_ for id_ in ids if id_ in question.evidence or id_ in question.outdated]
            self.corrected.append(told[:1] == found[:1] != [])

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """What fails in the block is the end of this peer, and its row."""
        try:
            yield
        except PeerError as error:
            self.failure = one_line(str(error))
            say(f"{self.peer.title}: {self.failure}")

    def row(self) -> QualityRow:
        """Means over all questions of all sets."""
        versions = versions_of(self.peer)
        if self.failure:
            return QualityRow(self.peer.name, versions, failure=self.failure)
        return QualityRow(
            self.peer.name,
            versions,
            recall=_mean([value for values in self.recall.values() for value in values]),
            by_set={name: _mean(values) for name, values in self.recall.items()},
            first=_mean(self.first),
            corrected=_mean(self.corrected),
            abstained=_mean(self.abstained),
            abstained_wrongly=_mean(self.abstained_wrongly),
            tokens=_mean(self.tokens),
            p50_ms=statistics.median(self.times_ms),
            peak_mb=self.peak_mb,
        )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def measure(pythons: Mapping[Peer, Path | PeerError], only: str | None = None) -> list[QualityRow]:
    """Every peer on every open set, or on one."""
    scores = [Scores(peer) for peer in pythons]
    tokenizer = ModelTokenizer(BUNDLED / "tokenizer.json")
    with tempfile.TemporaryDirectory(prefix="rag-context-peers-") as name:
        for number, memory in enumerate(memories(Path(name) / "sets", only)):
            say(f"{memory.name}: {len(memory.items)} texts, {len(memory.questions)} questions ...")
            _measure(memory, scores, pythons, Path(name) / str(number), tokenizer)
    return [each.row() for each in scores]


def _measure(
    memory: Memory,
    scores: Sequence[Scores],
    pythons: Mapping[Peer, Path | PeerError],
    folder: Path,
    tokenizer: ModelTokenizer,
) -> None:
    with ExitStack() as stack:
        drivers: dict[Peer, Driver] = {}
        for each in _unfailed(scores):
            peer = each.peer
            with each.blamed():
                drivers[peer] = stack.enter_context(driving(peer, pythons[peer], folder / peer.name))
                drivers[peer].call(
                    {"add": memory.texts(), "fields": memory.fields()}, ANSWER_S + TEXT_S * len(memory.items)
                )
                drivers[peer].call({"save": True}, ANSWER_S)
        for number, question in enumerate(memory.questions):
            for each in in_turn(_unfailed(scores), number):
                with each.blamed():
                    answer = drivers[each.peer].call({"ask": question.text}, ANSWER_S)
                    each.take(memory, question, answer, sum(tokenizer.count(answer["texts"])))
                    time.sleep(PAUSE_S)
        for each in _unfailed(scores):
            each.peak_mb = max(each.peak_mb, drivers[each.peer].peak_mb)


def _unfailed(scores: Sequence[Scores]) -> list[Scores]:
    return [each for each in scores if not each.failure]

"""The end-to-end test: indexes 50 documents, runs 50 queries, and expects the right document in the first three."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from rag_context.evaluation.measures import Latency
from rag_context.evaluation.remote import RemoteServer, Scratch
from rag_context.memory.telemetry import VALIDATING_AGENT

REQUIRED_SUCCESS = 0.85
P99_LIMIT_MS = 500.0
FALLBACK_LIMIT = 0.05
FIRST = 3
EMBEDDED_S = 60.0


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """The result. `missed` are the questions whose document was not among the first three."""

    documents: int
    questions: int
    missed: tuple[str, ...]
    latency: Latency
    fallback_rate: float
    left_behind: int

    @property
    def success(self) -> float:
        """Share of the questions answered among the first three."""
        return 1.0 - len(self.missed) / self.questions

    @property
    def summary(self) -> str:
        """One line for people."""
        return (
            f"success@3 {self.success:.0%} (required: > {REQUIRED_SUCCESS:.0%}), "
            f"P99 {self.latency.p99_ms:.0f}ms (< {P99_LIMIT_MS:.0f}ms), "
            f"fallback rate {self.fallback_rate:.0%} (< {FALLBACK_LIMIT:.0%})"
        )

    @property
    def passed(self) -> bool:
        """Whether all three limits are kept."""
        return (
            self.success > REQUIRED_SUCCESS
            and self.latency.p99_ms < P99_LIMIT_MS
            and self.fallback_rate < FALLBACK_LIMIT
        )


def documents() -> list[dict[str, Any]]:
    """The documents: 20 chats, 15 decisions, 10 pieces of code, 5 edge cases; bodies of an index call, with an `id`."""
    return list(_rows("documents.jsonl"))


def questions() -> list[dict[str, str]]:
    """The questions, each with the id of the document that answers it."""
    return list(_rows("questions.jsonl"))


async def run_end_to_end(server: RemoteServer) -> EndToEnd:
    """Index the documents in a tenant of its own, run all queries, and clean up. Raises: BackendError."""
    async with server.scratch() as scratch:
        ids = await _index(scratch)
        rows = questions()
        missed: list[str] = []
        latencies_ms: list[float] = []
        fallbacks = 0
        for row in rows:
            started = time.perf_counter()
            answer = await server.search(
                query=row["question"], limit=FIRST, project=scratch.project, agent=VALIDATING_AGENT
            )
            latencies_ms.append((time.perf_counter() - started) * 1000.0)
            fallbacks += answer.fallback
            if ids[row["document"]] not in [result.document_id for result in answer.results]:
                missed.append(row["question"])
    return EndToEnd(
        documents=len(ids),
        questions=len(rows),
        missed=tuple(missed),
        latency=Latency.of(latencies_ms),
        fallback_rate=fallbacks / len(rows),
        left_behind=scratch.left_behind,
    )


async def _index(scratch: Scratch) -> dict[str, str]:
    """Server's document id by the id in the data."""
    ids: dict[str, str] = {}
    for row in documents():
        body = {name: value for name, value in row.items() if name != "id"}
        ids[row["id"]] = (await scratch.index(**body)).document_id
    await scratch.embedded(EMBEDDED_S)
    return ids


def _rows(name: str) -> Iterator[dict[str, Any]]:
    text = (files("rag_context.evaluation") / "data" / name).read_text(encoding="utf-8")
    yield from map(json.loads, text.splitlines())

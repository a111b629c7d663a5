"""A data directory with thousands of chunks, made in seconds: documents come in with vectors that they already have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus import unit_vectors
from benchmarks.large_export import PER_DOCUMENT, write_export

from rag_context.embedders.onnx_model import BUNDLED, load
from tests.end_to_end.process import Served, command

QUESTIONS = 500


@dataclass(frozen=True, slots=True)
class LargeIndex:
    """A running server over such a directory, and questions in the words of its documents."""

    server: Served
    questions: list[str]

    def question(self, client: int, number: int) -> dict[str, Any]:
        """The body of a search, never the same twice."""
        return {"query": f"{self.questions[(61 * client + number) % len(self.questions)]} {client} {number}"}


def fill(data_dir: Path, chunks: int) -> list[str]:
    """Import about so many chunks of invented text with random vectors; returns questions in their words."""
    export, dimension = data_dir.with_suffix(".jsonl"), load(BUNDLED).model.dimension
    writer = write_export(export, chunks, lambda number: unit_vectors(PER_DOCUMENT, dimension, seed=number))
    ended = command("import", str(export), data_dir=data_dir)
    assert ended.returncode == 0, ended.stderr
    return [writer.question() for _ in range(QUESTIONS)]

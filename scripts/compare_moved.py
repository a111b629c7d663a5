"""Compare the bundled model with itself, moved by a constant direction as an unmeasured model, on the open sets.

    .venv/bin/python -m scripts.compare_moved [SET...]

Moved vectors, `normalise(v + k u)`, have cosines that are all nearer to 1, as those of most models. Their calibration
is that of an unknown model: from the sample texts that come with the package. docs/design/quality.md has the figures.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
from benchmarks.open_sets import write_open_sets

from rag_context.domain.vectors import UNMEASURED, Vector
from rag_context.embedders import onnx
from rag_context.embedders.onnx_model import OnnxModel, load
from rag_context.evaluation.datasets import EvidenceSet, load_set
from rag_context.evaluation.evidence_quality import evaluate_evidence
from rag_context.evaluation.quality import open_measured
from rag_context.search.query import Mode
from rag_context.settings import Settings

FAR = 1.5
"""How far vectors are moved, in their own lengths: unrelated texts have a cosine of 0.69."""


class MovedModel:
    """The bundled model under another name, with vectors moved by one direction that they have no part of."""

    def __init__(self, directory: Path) -> None:
        self._plain: OnnxModel = load(directory)
        self.tokenizer = self._plain.tokenizer
        self.model = replace(self._plain.model, name="moved", fingerprint="moved", calibration=UNMEASURED)
        direction = np.random.default_rng(5).standard_normal(self.model.dimension)
        self._direction = (direction / np.linalg.norm(direction)).astype(np.float32)

    def embed(self, text: str) -> Vector:
        vector = self._plain.embed(text)
        vector = vector - (vector @ self._direction) * self._direction
        moved: Vector = vector / np.linalg.norm(vector) + FAR * self._direction
        return moved / np.float32(np.linalg.norm(moved))


@contextmanager
def model_loaded_by(loader: object) -> Iterator[None]:
    """The bundled model is loaded by another function inside the block."""
    known = vars(onnx)["load"]
    vars(onnx)["load"] = loader
    try:
        yield
    finally:
        vars(onnx)["load"] = known


async def measured(dataset: EvidenceSet, folder: Path) -> list[float]:
    """Mean recall@10 and nDCG@10 of hybrid searches, and the share of answerable questions labelled noAnswer."""
    async with open_measured(Settings(), folder) as service:
        outcome = await evaluate_evidence(service, dataset, lambda *_: None)
    answered = [each for each in outcome.measured if each.by_mode]
    found = [mean(each.by_mode[measure][Mode.HYBRID] for each in answered) for measure in ("recall", "ndcg")]
    return [*found, mean(each.shares["noAnswer"] for each in answered)]


def main() -> None:
    """Print a row for each set: measured, then moved."""
    heads = [f"{measure}{moved}" for moved in ("", " moved") for measure in ("recall@10", "nDCG@10", "noAnswer")]
    sys.stdout.write(f"| set | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}\n")
    with tempfile.TemporaryDirectory() as name:
        for path in write_open_sets(Path(name) / "sets"):
            dataset = load_set(path)
            if not isinstance(dataset, EvidenceSet) or (sys.argv[1:] and dataset.name not in sys.argv[1:]):
                continue
            cells = asyncio.run(measured(dataset, Path(name) / dataset.name))
            with model_loaded_by(MovedModel):
                cells += asyncio.run(measured(dataset, Path(name) / f"{dataset.name} moved"))
            sys.stdout.write(f"| {dataset.name} | {' | '.join(f'{cell:.3f}' for cell in cells)} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

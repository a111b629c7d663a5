"""Compare the order of a search with MaxSim over the bundled model's own token vectors, on the open sets.

    .venv/bin/python -m scripts.compare_maxsim

MaxSim (late interaction) sums, over the tokens of a question, the greatest cosine to a token of the passage. The model
was trained for sentences, not for this. The best twenty passages are reranked, as a configured reranker would rerank
them. docs/design/quality.md says what came out.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

import numpy as np
import onnx
import onnxruntime
from benchmarks.open_sets import write_open_sets

from rag_context.domain.vectors import Matrix
from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.embedders.onnx_model import BUNDLED, session_options
from rag_context.evaluation.datasets import EvidenceSet, load_set
from rag_context.evaluation.evidence_quality import Measured, evaluate_evidence
from rag_context.evaluation.quality import open_measured
from rag_context.search.query import Mode
from rag_context.settings import Settings
from rag_context.wiring import model_adapters

TOKENS = "layer5"
"""The graph's last hidden state, before it is pooled."""

WINDOW = 254


class MaxSim:
    """Scores passages by their tokens; fits `ports.Reranker`."""

    def __init__(self) -> None:
        model = onnx.load(BUNDLED / "model.onnx")
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(TOKENS))
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), session_options())
        self._tokenizer = ModelTokenizer(BUNDLED / "tokenizer.json")
        self._pool = ThreadPoolExecutor()

    async def start(self) -> None:
        """Nothing to do: it is loaded."""

    async def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    async def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """The mean over the question's tokens of the best cosine in each passage."""
        return await asyncio.to_thread(self._scores, query, passages)

    async def ping(self) -> str:
        """Always there."""
        return "MaxSim"

    def _scores(self, query: str, passages: Sequence[str]) -> list[float]:
        asked = self._tokens(query)
        return [float((asked @ said.T).max(axis=1).mean()) for said in self._pool.map(self._tokens, passages)]

    def _tokens(self, text: str) -> Matrix:
        """Unit vectors of a text's tokens, without the special ones unless there are no others."""
        ids, _ = self._tokenizer.encode(text, WINDOW)
        row = np.array([ids], np.int64)
        values = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        feed = {entry.name: values[entry.name] for entry in self._session.get_inputs()}
        rows: Matrix = self._session.run([TOKENS], feed)[0][0]
        rows = rows[1:-1] if len(rows) > 2 else rows
        unit: Matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit


async def measured(dataset: EvidenceSet, folder: Path, settings: Settings) -> Sequence[Measured]:
    """The questions of a set that something answers, in an index of their own."""
    async with open_measured(settings, folder) as service:
        outcome = await evaluate_evidence(service, dataset, lambda *_: None)
    return [each for each in outcome.measured if each.by_mode]


def main() -> None:
    """Print a row for each open set."""
    model_adapters._reranker = lambda _: MaxSim()  # type: ignore[assignment, return-value]  # noqa: SLF001
    sys.stdout.write("| set | recall@10 | with MaxSim | nDCG@10 | with MaxSim |\n|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as name:
        for path in write_open_sets(Path(name) / "sets"):
            dataset = load_set(path)
            if not isinstance(dataset, EvidenceSet):
                continue
            plain, with_maxsim = (
                asyncio.run(measured(dataset, Path(name) / f"{dataset.name}-{label}", settings))
                for label, settings in {
                    "plain": Settings(),
                    "maxsim": Settings.model_validate({"reranker": {"model_dir": BUNDLED}}),
                }.items()
            )
            figures = [
                mean(each.by_mode[measure][Mode.HYBRID] for each in rows)
                for measure in ("recall", "ndcg")
                for rows in (plain, with_maxsim)
            ]
            sys.stdout.write(f"| {dataset.name} | " + " | ".join(f"{figure:.3f}" for figure in figures) + " |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

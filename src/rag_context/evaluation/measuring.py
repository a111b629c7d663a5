"""Measures labelled sets one after the other, each in an index of its own."""

import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import Dataset, EvidenceSet
from rag_context.evaluation.evidence_quality import evaluate_evidence
from rag_context.evaluation.quality import OnProgress, evaluate, open_measured
from rag_context.evaluation.report import Outcomes
from rag_context.memory.service import Service
from rag_context.settings import Settings

Further: TypeAlias = Callable[[Service, Dataset | EvidenceSet, Path, OnProgress], Awaitable[None]]
"""Measures more of a set in its index, after searches of the memory; the folder holds the index."""


async def measured(
    settings: Settings,
    datasets: Sequence[Dataset | EvidenceSet],
    keep_index: Path | None,
    show: OnProgress,
    further: Further | None = None,
) -> Outcomes:
    """Measure all sets, without touching the data directory of the settings.

    Indexes stay in `keep_index`, where existing ones are used; None: they are in a temporary folder.

    Raises:
        InvalidInputError: there is no set, or two have the same name.
    """
    if not datasets:
        raise InvalidInputError("Nothing to measure: name a folder with a labelled set.")
    if len({dataset.name for dataset in datasets}) < len(datasets):
        raise InvalidInputError("Two of the datasets have the same name; each is named after its folder.")
    found = Outcomes()
    with ExitStack() as stack:
        folder = keep_index or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rag-context-eval-")))
        for dataset in datasets:

            def show_one(doing: str, done: int, total: int, name: str = dataset.name) -> None:
                show(f"{doing} {name}", done, total)

            directory = folder / dataset.name
            async with open_measured(settings, directory) as service:
                if isinstance(dataset, EvidenceSet):
                    found.with_evidence.append(await evaluate_evidence(service, dataset, show_one))
                else:
                    found.judged.append(await evaluate(service, dataset, show_one))
                if further is not None:
                    await further(service, dataset, directory, show_one)
    return found

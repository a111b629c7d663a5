"""Measures labelled sets one after the other, each in an index of its own."""

import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TypeAlias

from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import Dataset, EvidenceSet
from rag_context.evaluation.evidence_quality import evaluate_evidence, project_dataset
from rag_context.evaluation.interface_quality import evaluate_collections, evaluate_projects
from rag_context.evaluation.quality import evaluate, open_measured
from rag_context.evaluation.report import Outcomes
from rag_context.settings import Settings

Extra: TypeAlias = Literal["projects", "collections"]
"""An interface whose answers are measured too: tools of projects, or collections."""

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is done with which set, how much of it is done, and of how much."""


async def measured(
    settings: Settings,
    datasets: Sequence[Dataset | EvidenceSet],
    keep_index: Path | None,
    show: OnProgress,
    extras: Collection[Extra] = (),
) -> Outcomes:
    """Measure all sets.

    Args:
        settings: of the measured program; its data directory is not touched.
        datasets: the sets, each with another name.
        keep_index: where indexes stay, and existing ones are used; None: in a temporary folder.
        show: follows the progress.
        extras: what is measured beside searches of the memory.

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
            await _measure_one(settings, dataset, folder / dataset.name, show, extras, found)
    return found


async def _measure_one(
    settings: Settings,
    dataset: Dataset | EvidenceSet,
    directory: Path,
    show: OnProgress,
    extras: Collection[Extra],
    found: Outcomes,
) -> None:
    def show_one(doing: str, done: int, total: int) -> None:
        show(f"{doing} {dataset.name}", done, total)

    async with open_measured(settings, directory) as service:
        if isinstance(dataset, EvidenceSet):
            found.with_evidence.append(await evaluate_evidence(service, dataset, show_one))
            documents = project_dataset(dataset) if dataset.is_project else None
        else:
            found.judged.append(await evaluate(service, dataset, show_one))
            documents = dataset if "projects" in extras and not dataset.by_spans else None
        if documents is not None:
            found.by_tool.append(await evaluate_projects(service, documents, directory / "project", show_one))
        if "collections" in extras and not (isinstance(dataset, Dataset) and dataset.by_spans):
            found.in_collections.append(await evaluate_collections(service, dataset, show_one))

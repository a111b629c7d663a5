"""`eval`: labelled sets, and how well searches of them do."""

import json
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rich.progress import MofNCompleteColumn, TaskID

from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console
from rag_context.cli.options import Options, argument, option, with_options
from rag_context.errors import InvalidInputError
from rag_context.evaluation import evidence_quality, quality, report
from rag_context.evaluation.datasets import Dataset, EvidenceSet, load_set
from rag_context.memory.service import Service
from rag_context.settings import Settings

Further: TypeAlias = Callable[[Service, Dataset | EvidenceSet, Path, quality.OnProgress], Awaitable[None]]
"""Measures more of a set in its index, after searches of the memory; the folder holds the index."""


async def measured(
    settings: Settings,
    datasets: Sequence[Dataset | EvidenceSet],
    keep_index: Path | None,
    show: quality.OnProgress,
    further: Further | None = None,
) -> report.Outcomes:
    """Measure all sets, without touching the data directory of the settings.

    Indexes stay in `keep_index`, where existing ones are used; None: they are in a temporary folder.

    Raises: InvalidInputError (there is no set, or two have the same name).
    """
    if not datasets:
        raise InvalidInputError("Nothing to measure: name a folder with a labelled set.")
    if len({dataset.name for dataset in datasets}) < len(datasets):
        raise InvalidInputError("Two of the datasets have the same name; each is named after its folder.")
    found = report.Outcomes()
    with ExitStack() as stack:
        folder = keep_index or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rag-context-eval-")))
        for dataset in datasets:

            def show_one(doing: str, done: int, total: int, name: str = dataset.name) -> None:
                show(f"{doing} {name}", done, total)

            directory = folder / dataset.name
            async with quality.open_measured(settings, directory) as service:
                if isinstance(dataset, EvidenceSet):
                    found.with_evidence.append(await evidence_quality.evaluate_evidence(service, dataset, show_one))
                else:
                    found.judged.append(await quality.evaluate(service, dataset, show_one))
                if further is not None:
                    await further(service, dataset, directory, show_one)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions(Options):
    datasets: list[Path] | None = argument(
        "Folders in BEIR layout, with answering spans, or with evidence.", "[DATASET...]", default=None
    )
    keep_index: Path | None = option(None, "Store the indexes here, and use existing ones.", metavar="DIR")


@with_options
def measure(options: EvalOptions) -> ExitCode:
    """Measure retrieval quality on labelled sets: recall, nDCG@10 and more, by mode, category and session.

    Each set gets an index of its own, in a temporary folder; the data directory is not touched.
    """
    console = Console()
    settings = options.load_for_work().settings
    datasets = [load_set(path) for path in options.datasets or ()]
    found = run_to_end(_measured(settings, datasets, options, console))
    if options.as_json:
        console.line(json.dumps(report.as_object(found)))
    else:
        console.draw(report.as_tables(found))
    return ExitCode.OK


async def _measured(
    settings: Settings, datasets: list[Dataset | EvidenceSet], options: EvalOptions, console: Console
) -> report.Outcomes:
    tasks: dict[str, TaskID] = {}
    with console.progress(MofNCompleteColumn()) as progress:

        def show(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                tasks[doing] = progress.add_task(doing, total=total)
            progress.update(tasks[doing], completed=done)

        return await measured(settings, datasets, options.keep_index, show)

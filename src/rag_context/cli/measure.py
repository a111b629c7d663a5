"""`eval`: labelled sets, and how well searches of them do."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn, TaskID

from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console
from rag_context.cli.options import Options, with_options
from rag_context.evaluation.datasets import Dataset, EvidenceSet, load_set
from rag_context.evaluation.measuring import measured
from rag_context.evaluation.report import Outcomes, as_object, as_tables
from rag_context.logs import configure_logging
from rag_context.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions(Options):
    """What is measured, and where it is written."""

    datasets: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DATASET...]", help="Folders in BEIR layout, with answering spans, or with evidence."),
    ] = None
    keep_index: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Store the indexes here, and use existing ones.")
    ] = None


@with_options
def measure(options: EvalOptions) -> ExitCode:
    """Measure retrieval quality on labelled sets: recall, nDCG@10 and more, by mode, category and session.

    Each set gets an index of its own, in a temporary folder; the data directory is not touched.
    """
    console = Console()
    settings = options.load_available().settings
    configure_logging("error")
    datasets = [load_set(path) for path in options.datasets or ()]
    found = run_to_end(_measured(settings, datasets, options, console))
    if options.as_json:
        console.line(json.dumps(as_object(found)))
    else:
        console.draw(as_tables(found))
    return ExitCode.OK


async def _measured(
    settings: Settings, datasets: list[Dataset | EvidenceSet], options: EvalOptions, console: Console
) -> Outcomes:
    tasks: dict[str, TaskID] = {}
    with console.progress(MofNCompleteColumn()) as progress:

        def show(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                tasks[doing] = progress.add_task(doing, total=total)
            progress.update(tasks[doing], completed=done)

        return await measured(settings, datasets, options.keep_index, show)

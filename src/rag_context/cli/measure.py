"""`eval`: labelled collections, and what searches of them are worth."""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn, Progress, TaskID
from rich.text import Text

from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Screen
from rag_context.cli.shared_options import AsJson, Chosen, Config, DataDir, load_available
from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import Dataset, load_dataset
from rag_context.evaluation.quality import Outcome, ProjectOutcome, evaluate, evaluate_projects, open_measured
from rag_context.evaluation.report import as_json, as_tables, page, picture
from rag_context.logs import configure_logging
from rag_context.settings import Settings


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is measured, and where it is written."""

    paths: tuple[Path, ...]
    markdown: Path | None = None
    keep_index: Path | None = None
    projects: bool = False
    as_json: bool = False


def measure(
    datasets: Annotated[
        list[Path], typer.Argument(metavar="DATASET...", help="Folders in BEIR layout, or with answering spans.")
    ],
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page, and a picture beside it (.svg).")
    ] = None,
    keep_index: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Store the indexes here, and use existing ones.")
    ] = None,
    projects: Annotated[
        bool,
        typer.Option("--projects", help="Also query rag_query and semantic_search, with the documents as files."),
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Measure retrieval quality on labelled collections: nDCG@10, recall, MRR and success by mode.

    Each collection gets an index of its own, in a temporary folder; the data directory is not touched.
    """
    what = Evaluation(tuple(datasets), markdown=markdown, keep_index=keep_index, projects=projects, as_json=as_json)
    raise typer.Exit(run(Chosen(config, {"data_dir": data_dir}), what))


def run(chosen: Chosen, what: Evaluation) -> ExitCode:
    """Measure every collection, one after the other, and report."""
    screen = Screen()
    settings = load_available(chosen).settings
    configure_logging("error")
    datasets = [load_dataset(path) for path in what.paths]
    if len({dataset.name for dataset in datasets}) < len(datasets):
        raise InvalidInputError("Two of the datasets have the same name; each is named after its folder.")
    outcomes, by_tool = run_to_end(_measure(settings, datasets, what, screen))
    if what.markdown is not None:
        _write(what.markdown, page(outcomes, what.markdown, by_tool))
        _write(what.markdown.with_suffix(".svg"), picture(outcomes))
    if what.as_json:
        screen.line(as_json(outcomes, by_tool))
    else:
        screen.show(as_tables(outcomes, by_tool))
    return ExitCode.OK


async def _measure(
    settings: Settings, datasets: list[Dataset], what: Evaluation, screen: Screen
) -> tuple[list[Outcome], list[ProjectOutcome]]:
    outcomes: list[Outcome] = []
    by_tool: list[ProjectOutcome] = []
    with ExitStack() as stack:
        progress = stack.enter_context(screen.progress(MofNCompleteColumn()))
        for dataset in datasets:
            screen.note(Text(f"Measuring {dataset.name}: {len(dataset.documents)} documents", style="dim"))
            directory = (
                what.keep_index / dataset.name
                if what.keep_index is not None
                else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rag-context-eval-")))
            )
            outcome, projects = await _measure_one(settings, dataset, directory, progress, what)
            outcomes.append(outcome)
            by_tool += projects
    return outcomes, by_tool


async def _measure_one(
    settings: Settings, dataset: Dataset, directory: Path, progress: Progress, what: Evaluation
) -> tuple[Outcome, list[ProjectOutcome]]:
    tasks: dict[str, TaskID] = {}

    def show(doing: str, done: int, total: int) -> None:
        if doing not in tasks:
            tasks[doing] = progress.add_task(f"{doing} {dataset.name}", total=total)
        progress.update(tasks[doing], completed=done)

    async with open_measured(settings, directory) as service:
        outcome = await evaluate(service, dataset, show)
        if not what.projects or dataset.by_spans:
            return outcome, []
        return outcome, [await evaluate_projects(service, dataset, directory / "project", show)]


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error

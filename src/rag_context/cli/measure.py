"""`eval`: labelled sets, and how well searches of them do."""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn, Progress, TaskID

from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console
from rag_context.cli.options import Options, with_options
from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import Dataset, EvidenceSet, load_set
from rag_context.evaluation.evidence_quality import evaluate_evidence, project_dataset
from rag_context.evaluation.interface_quality import evaluate_collections, evaluate_projects
from rag_context.evaluation.open_sets import write_open_sets
from rag_context.evaluation.quality import evaluate, open_measured
from rag_context.evaluation.quality_page import page, picture
from rag_context.evaluation.report import Outcomes, as_json, as_tables
from rag_context.logs import configure_logging
from rag_context.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions(Options):
    """What is measured, and where it is written."""

    datasets: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DATASET...]", help="Folders in BEIR layout, with answering spans, or with evidence."),
    ] = None
    open_sets: Annotated[
        bool, typer.Option("--open", help="Also measure the open sets, which this program generates.")
    ] = False
    open_to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The same, and leave the open sets in this folder.")
    ] = None
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page, and a picture beside it (.svg).")
    ] = None
    keep_index: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Store the indexes here, and use existing ones.")
    ] = None
    projects: Annotated[
        bool,
        typer.Option("--projects", help="Also query rag_query and semantic_search, with the documents as files."),
    ] = False
    collections: Annotated[bool, typer.Option("--collections", help="Also query the documents as collections.")] = False


@with_options
def measure(options: EvalOptions) -> ExitCode:
    """Measure retrieval quality on labelled sets: recall, nDCG@10 and more, by mode, category and session.

    Each set gets an index of its own, in a temporary folder; the data directory is not touched.
    """
    console = Console()
    settings = options.load_available().settings
    configure_logging("error")
    datasets = _load(options)
    if not datasets:
        raise InvalidInputError("Nothing to measure: name a folder with a labelled set, or use --open.")
    if len({dataset.name for dataset in datasets}) < len(datasets):
        raise InvalidInputError("Two of the datasets have the same name; each is named after its folder.")
    found = run_to_end(_measure(settings, datasets, options, console))
    if options.markdown is not None:
        _write(options.markdown, page(found, options.markdown))
        if found.judged:
            _write(options.markdown.with_suffix(".svg"), picture(found.judged))
    if options.as_json:
        console.line(as_json(found))
    else:
        console.draw(as_tables(found))
    return ExitCode.OK


def _load(options: EvalOptions) -> list[Dataset | EvidenceSet]:
    datasets = [load_set(path) for path in options.datasets or ()]
    if not (options.open_sets or options.open_to):
        return datasets
    with ExitStack() as stack:
        folder = options.open_to or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rag-context-open-")))
        return [*datasets, *map(load_set, write_open_sets(folder))]


async def _measure(
    settings: Settings, datasets: list[Dataset | EvidenceSet], options: EvalOptions, console: Console
) -> Outcomes:
    found = Outcomes()
    with ExitStack() as stack:
        progress = stack.enter_context(console.progress(MofNCompleteColumn()))
        for dataset in datasets:
            size = len(dataset.items) if isinstance(dataset, EvidenceSet) else len(dataset.documents)
            console.note((f"Measuring {dataset.name}: {size} documents", "dim"))
            directory = (
                options.keep_index / dataset.name
                if options.keep_index is not None
                else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rag-context-eval-")))
            )
            await _measure_one(settings, dataset, directory, progress, options, found)
    return found


async def _measure_one(
    settings: Settings,
    dataset: Dataset | EvidenceSet,
    directory: Path,
    progress: Progress,
    options: EvalOptions,
    found: Outcomes,
) -> None:
    tasks: dict[str, TaskID] = {}

    def show(doing: str, done: int, total: int) -> None:
        if doing not in tasks:
            tasks[doing] = progress.add_task(f"{doing} {dataset.name}", total=total)
        progress.update(tasks[doing], completed=done)

    async with open_measured(settings, directory) as service:
        if isinstance(dataset, EvidenceSet):
            found.with_evidence.append(await evaluate_evidence(service, dataset, show))
            documents = project_dataset(dataset) if dataset.is_project else None
        else:
            found.judged.append(await evaluate(service, dataset, show))
            documents = dataset if options.projects and not dataset.by_spans else None
        if documents is not None:
            found.by_tool.append(await evaluate_projects(service, documents, directory / "project", show))
        if options.collections and not (isinstance(dataset, Dataset) and dataset.by_spans):
            found.in_collections.append(await evaluate_collections(service, dataset, show))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error

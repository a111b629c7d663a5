"""`eval`: labelled collections, and what searches of them are worth."""

import asyncio
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from rag_context.cli.exits import ExitCode
from rag_context.cli.options import Chosen
from rag_context.cli.screen import Screen
from rag_context.cli.settings import load_available
from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import Dataset, load_dataset
from rag_context.evaluation.evaluate import Outcome, evaluate, open_measured
from rag_context.evaluation.page import page, picture
from rag_context.evaluation.report import as_json, as_tables
from rag_context.logs import configure_logging
from rag_context.settings import Settings


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is measured, and where it is written."""

    paths: tuple[Path, ...]
    markdown: Path | None = None
    keep_index: Path | None = None
    as_json: bool = False


def run(chosen: Chosen, what: Evaluation) -> ExitCode:
    """Measure every collection, one after the other, and report."""
    screen = Screen()
    settings = load_available(chosen).settings
    configure_logging("error")
    datasets = [load_dataset(path) for path in what.paths]
    if len({dataset.name for dataset in datasets}) < len(datasets):
        raise InvalidInputError("Two of the datasets have the same name; each is named after its folder.")
    outcomes = asyncio.run(_measure(settings, datasets, what.keep_index, screen))
    if what.markdown is not None:
        _write(what.markdown, page(outcomes, what.markdown))
        _write(what.markdown.with_suffix(".svg"), picture(outcomes))
    if what.as_json:
        screen.line(as_json(outcomes))
    else:
        screen.show(as_tables(outcomes))
    return ExitCode.OK


async def _measure(
    settings: Settings, datasets: list[Dataset], keep_index: Path | None, screen: Screen
) -> list[Outcome]:
    outcomes = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ExitStack() as stack:
        progress = stack.enter_context(
            Progress(*columns, console=screen.err, transient=True, disable=not screen.err.is_terminal)
        )
        for dataset in datasets:
            screen.note(Text(f"Measuring {dataset.name}: {len(dataset.documents)} documents", style="dim"))
            directory = (
                keep_index / dataset.name
                if keep_index is not None
                else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rag-context-eval-")))
            )
            outcomes.append(await _measure_one(settings, dataset, directory, progress))
    return outcomes


async def _measure_one(settings: Settings, dataset: Dataset, directory: Path, progress: Progress) -> Outcome:
    tasks: dict[str, TaskID] = {}

    def show(doing: str, done: int, total: int) -> None:
        if doing not in tasks:
            tasks[doing] = progress.add_task(f"{doing} {dataset.name}", total=total)
        progress.update(tasks[doing], completed=done)

    async with open_measured(settings, directory) as service:
        return await evaluate(service, dataset, show)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error

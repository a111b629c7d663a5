"""`check` and `reindex`: find and repair damage of the index, and embed all of it again."""

from dataclasses import dataclass
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn
from rich.table import Table
from rich.text import Text

from rag_context.api.maintenance import CheckResponse, IssueReport
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Screen, counted, safe
from rag_context.cli.local_connection import MODEL_WAIT_S
from rag_context.cli.shared_options import AsJson, Chosen, Config, DataDir, load_available
from rag_context.domain.reports import IntegrityReport, Thoroughness
from rag_context.errors import BackendError, IndexMismatchError
from rag_context.logs import configure_logging
from rag_context.service.collection_maintenance import Reindexed
from rag_context.service.index_audit import report
from rag_context.settings import Settings
from rag_context.wiring import OnMismatch, open_audit, open_service
from rag_context.wiring.stores import begin_empty_index


@dataclass(frozen=True, slots=True)
class Check:
    """What the command line requests."""

    repair: bool
    thoroughness: Thoroughness
    as_json: bool


def check(
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired, and list the rest.")] = False,
    start_empty: Annotated[
        bool, typer.Option("--start-empty", help="Create an empty index where the earlier one is gone.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Check every page and every term; writers wait for a part of it.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Check the index for missing, damaged and inconsistent data, beside a running server.

    Exits 1 when something is wrong, or is left after a repair. Without --full, the terms of a large index are
    compared in a sample of its chunks. --start-empty changes nothing where there is an index; what is left of one
    that is gone is set aside.
    """
    if start_empty:
        raise typer.Exit(_start_empty(Chosen(config, {"data_dir": data_dir})))
    thoroughness = Thoroughness.FULL if full else Thoroughness.QUICK
    what = Check(repair=repair, thoroughness=thoroughness, as_json=as_json)
    raise typer.Exit(_run_check(Chosen(config, {"data_dir": data_dir}), what))


def reindex(data_dir: DataDir = None, config: Config = None) -> None:
    """Re-embed the whole index with the configured model; the old vectors answer until the new ones are complete."""
    raise typer.Exit(_run_reindex(Chosen(config, {"data_dir": data_dir})))


def _run_check(chosen: Chosen, what: Check) -> ExitCode:
    """Check, repair where that was requested, and report what is left."""
    screen = Screen()
    settings = load_available(chosen).settings
    configure_logging("error")
    checked = run_to_end(_check(settings, what, screen))
    if what.as_json:
        screen.line(checked.to_json().decode())
    else:
        _print(checked, screen)
    return ExitCode.OK if checked.sound else ExitCode.FAILED


def _start_empty(chosen: Chosen) -> ExitCode:
    """Begin an empty index where one is gone; a running server uses it at once."""
    screen = Screen()
    settings = load_available(chosen).settings
    lost = begin_empty_index(settings)
    screen.show(f"An empty index was begun in {settings.data_dir}{f' in place of {lost}' if lost else ''}.")
    return ExitCode.OK


async def _check(settings: Settings, what: Check, screen: Screen) -> CheckResponse:
    async with open_audit(settings) as audit:
        found = await audit.examine(what.thoroughness)
        if not what.repair:
            return report(found, what.thoroughness)
        if found.issues:
            await audit.repair(found)
    if any(flaw.mendable for flaw in report(found, what.thoroughness).flaws):
        await _restore(settings, found, screen)
    async with open_audit(settings) as audit:
        return report(await audit.examine(what.thoroughness), what.thoroughness, before=found)


async def _restore(settings: Settings, found: IntegrityReport, screen: Screen) -> None:
    """What takes the tokenizer or the model. Without the model documents wait, as they do after any failure of it."""
    try:
        async with open_service(settings) as service:
            await service.wait_ready(MODEL_WAIT_S)
            await service.reindexing.restore(found.broken, lambda _done, _total: None)
    except (BackendError, IndexMismatchError) as error:
        screen.warning(f"not all vectors could be made now: {error}")


def _print(checked: CheckResponse, screen: Screen) -> None:
    state = ("sound", "bold green") if checked.sound else ("not sound", "bold red")
    held = f" · {checked.documents} documents in {checked.chunks} chunks, {checked.pending} pending"
    screen.show(Text.assemble(state, held))
    if checked.compared_terms < checked.chunks:
        screen.show(f"Terms were compared in a sample of {checked.compared_terms} chunks; --full compares all.")
    if checked.mended:
        screen.show("Repaired:")
        screen.show(_table(checked.mended))
    if checked.flaws:
        screen.show("Left:" if checked.mended is not None else "Found:")
        screen.show(_table(checked.flaws))


def _table(flaws: list[IssueReport]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("Kind", "Count", "What", "For example", "--repair"):
        table.add_column(column, justify="right" if column == "Count" else "left")
    for flaw in flaws:
        examples = safe(", ".join(flaw.examples[:3]))
        table.add_row(flaw.kind, str(flaw.count), flaw.says, examples, flaw.repair)
    return table


def _run_reindex(chosen: Chosen) -> ExitCode:
    """Reindex in this process; the old vectors answer meanwhile, and a running server follows by itself."""
    screen = Screen()
    loaded = load_available(chosen)
    configure_logging("error")
    try:
        count, collections = run_to_end(_reindex(loaded.settings, screen))
    except KeyboardInterrupt:
        screen.note("interrupted. What is done stays; the next start, or this command again, goes on with the rest.")
        return ExitCode.INTERRUPTED
    screen.show(f"{counted(count, 'document')} reindexed.")
    for one in collections:
        name = f"{safe(one.ref.name)} on connection {one.ref.connection}"
        said = f"{counted(one.documents, 'document')} reindexed" if one.error is None else f"not reindexed: {one.error}"
        screen.show(f"Collection {name}: {said}.")
    return ExitCode.FAILED if any(one.error for one in collections) else ExitCode.OK


async def _reindex(settings: Settings, screen: Screen) -> tuple[int, list[Reindexed]]:
    screen.note(Text(f"Reindexing {settings.data_dir}", style="dim"))
    with screen.progress(MofNCompleteColumn()) as progress:
        task = progress.add_task("Reindexing", total=None)
        async with open_service(settings, OnMismatch.REINDEX) as service:
            await service.wait_ready(MODEL_WAIT_S)
            count = await service.reindexing.run(lambda done, total: progress.update(task, completed=done, total=total))
            if service.collections is None:
                return count, []
            told = "Reindexing collections"
            return count, await service.collections.maintenance.reindex(
                lambda _, done, total: progress.update(task, description=told, completed=done, total=total)
            )

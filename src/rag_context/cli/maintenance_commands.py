"""`check`, `reindex` and `move`: repair the whole index, embed it again, and move it to another backend."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn

from rag_context.api.maintenance import CheckResponse, IssueReport
from rag_context.cli.command_line import ExitCode, run_to_end
from rag_context.cli.console import Console, counted, safe
from rag_context.cli.local_connection import MODEL_WAIT_S
from rag_context.cli.options import ConfigOptions, Options, option, resumable, with_options
from rag_context.cli.summary import Stages, stages
from rag_context.collections.collection_maintenance import Reindexed
from rag_context.collections.copying import CopyProgress, Stage, copy_all, own_collections
from rag_context.domain.reports import IntegrityReport, Thoroughness
from rag_context.errors import BackendError, ConflictError, IndexMismatchError
from rag_context.logs import configure_logging
from rag_context.memory.index_maintenance import report
from rag_context.settings import Settings
from rag_context.transfer.mover import Copied, MoveDifference
from rag_context.wiring import model_adapters, opening, stores
from rag_context.wiring.transfers import EMBEDDED, Move, open_move


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions(Options):
    repair: bool = option(False, "Repair what can be repaired, and list the rest.")
    start_empty: bool = option(False, "Create an empty index where the earlier one is gone.")
    full: bool = option(False, "Check every page and every term; writers wait for a part of it.")

    @property
    def thoroughness(self) -> Thoroughness:
        return Thoroughness.FULL if self.full else Thoroughness.QUICK


@with_options
def check(options: CheckOptions) -> ExitCode:
    """Check the index for missing, damaged and inconsistent data, beside a running server.

    Exits 1 if something is wrong, or is left after a repair. Without --full, the terms of a large index are compared
    in a sample of its chunks. --start-empty changes nothing if there is an index, and sets aside what is left of a
    lost one.
    """
    console = Console()
    settings = options.load_available().settings
    if options.start_empty:
        lost = stores.begin_empty_index(settings)
        console.show(f"An empty index was begun in {settings.data_dir}{f' in place of {lost}' if lost else ''}.")
        return ExitCode.OK
    configure_logging("error")
    checked = run_to_end(_check(settings, options, console))
    options.show(checked, _print)
    return ExitCode.OK if checked.sound else ExitCode.FAILED


async def _check(settings: Settings, options: CheckOptions, console: Console) -> CheckResponse:
    async with opening.open_audit(settings) as audit:
        found = await audit.examine(options.thoroughness)
        if not options.repair:
            return report(found, options.thoroughness)
        if found.issues:
            await audit.repair(found)
    if any(issue.mendable for issue in report(found, options.thoroughness).flaws):
        await _restore(settings, found, console)
    async with opening.open_audit(settings) as audit:
        return report(await audit.examine(options.thoroughness), options.thoroughness, before=found)


async def _restore(settings: Settings, found: IntegrityReport, console: Console) -> None:
    """What takes the tokenizer or the model. Without the model documents wait, as they do after any failure of it."""
    try:
        async with opening.open_service(settings) as service:
            await service.wait_ready(MODEL_WAIT_S)
            await service.reindexing.restore(found.broken, lambda _done, _total: None)
    except (BackendError, IndexMismatchError) as error:
        console.warning(f"not all vectors could be made now: {error}")


def _print(checked: CheckResponse, console: Console) -> None:
    state = ("sound", "bold green") if checked.sound else ("not sound", "bold red")
    if checked.documents is None:
        console.show(state, " · how much the file holds is unknown; nothing is written to it while it is damaged")
    else:
        counts = f" · {checked.documents} documents in {checked.chunks} chunks, {checked.pending} pending"
        console.show(state, counts)
    if checked.compared_terms < (checked.chunks or 0):
        console.show(f"Terms were compared in a sample of {checked.compared_terms} chunks; --full compares all.")
    if checked.mended:
        console.show("Repaired:")
        _show_issues(checked.mended, console)
    if checked.flaws:
        console.show("Left:" if checked.mended is not None else "Found:")
        _show_issues(checked.flaws, console)


def _show_issues(issues: list[IssueReport], console: Console) -> None:
    rows = [(each.kind, str(each.count), each.says, ", ".join(each.examples[:3]), each.repair) for each in issues]
    console.show_table(("Kind", "Count", "What", "For example", "--repair"), rows, right={"Count"})


@with_options
def reindex(options: ConfigOptions) -> ExitCode:
    """Re-embed the whole index with the configured model; the old vectors answer until the new ones are complete."""
    console = Console()
    loaded = options.load_for_work()
    with resumable(
        console, lambda: "What is done stays; the next start, or this command again, goes on with the rest."
    ):
        count, left_out, collections = run_to_end(_reindex(loaded.settings, console))
    console.show(f"{counted(count, 'document')} reindexed.")
    if left_out is not None:
        console.warning(left_out)
    for one in collections:
        name = f"{one.ref.name} on connection {one.ref.connection}"
        outcome = (
            f"{counted(one.documents, 'document')} reindexed" if one.error is None else f"not reindexed: {one.error}"
        )
        console.show(f"Collection {name}: {outcome}.")
    return ExitCode.FAILED if any(one.error for one in collections) else ExitCode.OK


async def _reindex(settings: Settings, console: Console) -> tuple[int, str | None, list[Reindexed]]:
    console.note((f"Reindexing {settings.data_dir}", "dim"))
    with console.progress(MofNCompleteColumn()) as progress:
        task = progress.add_task("Reindexing", total=None)
        async with opening.open_service(settings, model_adapters.OnMismatch.REINDEX) as service:
            await service.wait_ready(MODEL_WAIT_S)
            count = await service.reindexing.run(lambda done, total: progress.update(task, completed=done, total=total))
            left_out = await service.reindexing.left_out()
            if service.collections is None:
                return count, left_out, []
            description = "Reindexing collections"
            return (
                count,
                left_out,
                await service.collections.maintenance.reindex(
                    lambda _, done, total: progress.update(task, description=description, completed=done, total=total)
                ),
            )


_STAGES = {Stage.COMPARE: "Comparing", Stage.COPY: "Moving", Stage.VERIFY: "Checking"}
_SHOWN = 5


@dataclass(slots=True)
class Report:
    """The result of a move; `documents` are those of the source that the target has now."""

    source: str
    target: str
    documents: int = 0
    copied: int = 0
    pending: int = 0
    kept: int = 0
    """Documents of which the target has a newer version."""
    rejected: dict[str, str] = field(default_factory=dict)
    missing: int = 0
    """Documents that were added to the source or changed there meanwhile."""
    collections: dict[str, int] | None = None
    """Documents by collection; None if both ends share a configured connection."""

    @property
    def complete(self) -> bool:
        return not self.rejected and not self.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions(Options):
    to: Annotated[
        str, typer.Option("--to", metavar="URL", help="A postgresql:// address, or `embedded` for the data directory.")
    ]
    merge: bool = option(False, "Move into an index that holds other documents too; newer versions there stay.")


@with_options
def move(options: MoveOptions) -> ExitCode:
    """Move the whole index and its collections to PostgreSQL, or back to the data directory.

    The source is the index of the settings; it is read and not changed. What the target has already is not copied
    again, so an interrupted move continues when it is run again. At the end both are compared. Exits 1 when the target
    does not have everything.
    """
    console = Console()
    settings = options.load_for_work().settings
    with resumable(console, lambda: "What was moved is safe: run the same command again, it goes on."):
        report = run_to_end(_move(settings, options, console))
    if options.as_json:
        console.line(json.dumps({**asdict(report), "complete": report.complete}))
    else:
        _summarise(report, settings, options.to, console)
    return ExitCode.OK if report.complete else ExitCode.FAILED


async def _move(settings: Settings, options: MoveOptions, console: Console) -> Report:
    async with open_move(settings, options.to) as move:
        with stages(console) as show:
            found = await move.mover.compare(partial(show, "Comparing", "documents"))
            if not options.merge:
                await _check_target(found, move)
            async with _loading(move, show):
                copied = await move.mover.copy(found.to_copy, partial(show, "Moving", "documents"))
                collections = await _collections(move, show)
            left = await move.mover.compare(partial(show, "Checking", "documents"))
        return await _report(move, copied, left, collections)


async def _check_target(found: MoveDifference, move: Move) -> None:
    """See that the target holds nothing but parts of the source. Raises: ConflictError."""
    conflicts = []
    if found.extra:
        conflicts.append(f"{counted(len(found.extra), 'document')} that the source does not have")
    if found.changed:
        conflicts.append(f"another version of {counted(len(found.changed), 'document')}")
    if move.source.collections is not None and move.target.collections is not None:
        ours = await own_collections(move.source.collections)
        extra = [name for name in await own_collections(move.target.collections) if name not in ours]
        if extra:
            conflicts.append(f"{counted(len(extra), 'collection')} that the source does not have ({extra[0]!r})")
    if conflicts:
        raise ConflictError(
            f"{move.target.name} holds {' and '.join(conflicts)}. Nothing was changed. Name an empty target, or use "
            "--merge: what is there stays, and of two versions of a document the newer one."
        )


@asynccontextmanager
async def _loading(move: Move, show: Stages) -> AsyncIterator[None]:
    """Build the target's indexes after its rows, where it has some to build."""
    bulk = move.target.stores.bulk
    if bulk is None:
        yield
        return
    async with bulk.loading(show.built):
        yield


async def _collections(move: Move, show: Stages) -> dict[str, int] | None:
    if move.source.collections is None or move.target.collections is None:
        return None

    def show_collection(name: str, at: CopyProgress) -> None:
        show(f"{_STAGES[at.stage]} collection {safe(name)}", "documents", at.done, at.total)

    copied = await copy_all(move.source.collections, move.target.collections, show_collection)
    return {name: report.documents for name, report in copied.items()}


async def _report(move: Move, copied: Copied, left: MoveDifference, collections: dict[str, int] | None) -> Report:
    late = {**left.missing, **left.changed}.keys() - copied.kept - copied.rejected.keys()
    return Report(
        source=move.source.name,
        target=move.target.name,
        documents=left.same + len(left.without_vectors),
        copied=copied.outcomes.total() - len(copied.kept),
        kept=len(copied.kept),
        pending=(await move.target.stores.documents.counts()).pending,
        rejected=copied.rejected,
        missing=len(late),
        collections=collections,
    )


def _summarise(report: Report, settings: Settings, to: str, console: Console) -> None:
    documents = counted(report.documents, "document")
    verb = "is" if report.documents == 1 else "are"
    console.show(f"{documents} of {report.source} {verb} in {report.target}, {report.copied} of them new.")
    if report.kept:
        verb = "stays" if report.kept == 1 else "stay"
        console.show(f"{counted(report.kept, 'document')} {verb} in the newer version that was there.")
    if report.pending:
        waiting = "waits for its" if report.pending == 1 else "wait for their"
        console.show(f"{counted(report.pending, 'document')} {waiting} vectors; a server completes them.")
    if report.collections is None:
        console.show("Collections stay where they are: the connection `default` is configured.")
    elif report.collections:
        in_them = sum(report.collections.values())
        console.show(
            f"{counted(len(report.collections), 'collection')} with {counted(in_them, 'document')} are there too."
        )
    for id_, reason in list(report.rejected.items())[:_SHOWN]:
        console.warning(f"document {id_} was not moved: {reason}")
    if len(report.rejected) > _SHOWN:
        console.warning(f"and {len(report.rejected) - _SHOWN} more")
    if report.missing:
        console.error(
            f"{counted(report.missing, 'document')} changed in the source meanwhile: run the same command again to move"
            " that too."
        )
    rest = (
        "Not moved, and still where they were: statistics of searches, how often documents were returned, and in "
        f"{settings.data_dir} which folders the projects are in. Nothing was deleted."
    )
    console.note((rest, "dim"))
    if report.complete:
        console.note(
            "To use it, start rag-context without DATABASE_URL, or whatever else named the source."
            if to == EMBEDDED
            else "To use it, set DATABASE_URL to that address."
        )

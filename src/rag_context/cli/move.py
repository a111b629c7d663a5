"""`move`: the whole index with its collections from one backend to another, compared at the end."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from rag_context.cli.command_line import ExitCode, exit_code, run_to_end
from rag_context.cli.console import Screen, counted, safe
from rag_context.cli.shared_options import AsJson, Chosen, Config, DataDir, load_available
from rag_context.cli.summary import Stages, stages
from rag_context.collections.copying import CopyProgress, Stage, copy_all, own_collections
from rag_context.errors import BackendUnavailableError, ConflictError
from rag_context.logs import configure_logging
from rag_context.settings import Settings
from rag_context.transfer.moving import Copied, Difference
from rag_context.wiring.move_ends import EMBEDDED, Move, open_move

_SAFE = "What was moved is safe: run the same command again, it goes on."
_STAGES = {Stage.COMPARE: "Comparing", Stage.COPY: "Moving", Stage.VERIFY: "Checking"}
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class MoveRun:
    """Where to, and whether the target may hold something else."""

    to: str
    merge: bool
    as_json: bool


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
        """Whether the target has everything."""
        return not self.rejected and not self.missing


def move(
    to: Annotated[
        str,
        typer.Option("--to", metavar="URL", help="A postgresql:// address, or `embedded` for the data directory."),
    ],
    merge: Annotated[
        bool, typer.Option("--merge", help="Also into an index that holds something else; newer versions there stay.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Move the whole index and its collections to PostgreSQL, or back to the data directory.

    The source is the index of the settings; it is read and not changed. What the target has already is not copied
    again, so an interrupted move continues when it is run again. At the end both are compared. Exits 1 when the target
    does not have everything.
    """
    raise typer.Exit(_run(Chosen(config, {"data_dir": data_dir}), MoveRun(to, merge=merge, as_json=as_json)))


def _run(chosen: Chosen, what: MoveRun) -> ExitCode:
    screen = Screen()
    settings = load_available(chosen).settings
    configure_logging("error")
    try:
        report = run_to_end(_move(settings, what, screen))
    except BackendUnavailableError as error:
        screen.error(f"{error} {_SAFE}")
        return exit_code(error)
    except KeyboardInterrupt:
        screen.note(f"interrupted. {_SAFE}")
        return ExitCode.INTERRUPTED
    if what.as_json:
        screen.line(json.dumps({**asdict(report), "complete": report.complete}))
    else:
        _summarise(report, settings, what.to, screen)
    return ExitCode.OK if report.complete else ExitCode.FAILED


async def _move(settings: Settings, what: MoveRun, screen: Screen) -> Report:
    async with open_move(settings, what.to) as move:
        with stages(screen) as show:
            found = await move.mover.compare(partial(show, "Comparing", "documents"))
            if not what.merge:
                await _check(found, move)
            async with _loading(move, show):
                copied = await move.mover.copy(found.to_copy, partial(show, "Moving", "documents"))
                collections = await _collections(move, show)
            left = await move.mover.compare(partial(show, "Checking", "documents"))
        return await _report(move, copied, left, collections)


async def _check(found: Difference, move: Move) -> None:
    """See that the target holds nothing but parts of the source. Raises: ConflictError."""
    held = []
    if found.extra:
        held.append(f"{counted(len(found.extra), 'document')} that the source does not have")
    if found.changed:
        held.append(f"another version of {counted(len(found.changed), 'document')}")
    if move.source.collections is not None and move.target.collections is not None:
        ours = await own_collections(move.source.collections)
        extra = [name for name in await own_collections(move.target.collections) if name not in ours]
        if extra:
            held.append(f"{counted(len(extra), 'collection')} that the source does not have ({extra[0]!r})")
    if held:
        raise ConflictError(
            f"{move.target.name} holds {' and '.join(held)}. Nothing was changed. Name an empty target, or use --merge:"
            " what is there stays, and of two versions of a document the newer one."
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

    def tell(name: str, at: CopyProgress) -> None:
        show(f"{_STAGES[at.stage]} collection {safe(name)}", "documents", at.done, at.total)

    copied = await copy_all(move.source.collections, move.target.collections, tell)
    return {name: report.documents for name, report in copied.items()}


async def _report(move: Move, copied: Copied, left: Difference, collections: dict[str, int] | None) -> Report:
    late = {**left.missing, **left.changed}.keys() - copied.kept - copied.rejected.keys()
    return Report(
        source=move.source.name,
        target=move.target.name,
        documents=left.same + len(left.without_vectors),
        copied=copied.arrivals.total() - len(copied.kept),
        kept=len(copied.kept),
        pending=(await move.target.stores.documents.counts()).pending,
        rejected=copied.rejected,
        missing=len(late),
        collections=collections,
    )


def _summarise(report: Report, settings: Settings, to: str, screen: Screen) -> None:
    documents = counted(report.documents, "document")
    verb = "is" if report.documents == 1 else "are"
    screen.show(f"{documents} of {safe(report.source)} {verb} in {safe(report.target)}, {report.copied} of them new.")
    if report.kept:
        verb = "stays" if report.kept == 1 else "stay"
        screen.show(f"{counted(report.kept, 'document')} {verb} in the newer version that was there.")
    if report.pending:
        waiting = "waits for its" if report.pending == 1 else "wait for their"
        screen.show(f"{counted(report.pending, 'document')} {waiting} vectors; a server completes them.")
    if report.collections is None:
        screen.show("Collections stay where they are: the connection `default` is configured.")
    elif report.collections:
        held = sum(report.collections.values())
        screen.show(f"{counted(len(report.collections), 'collection')} with {counted(held, 'document')} are there too.")
    for id_, reason in list(report.rejected.items())[:_SHOWN]:
        screen.warning(f"document {id_} was not moved: {reason}")
    if len(report.rejected) > _SHOWN:
        screen.warning(f"and {len(report.rejected) - _SHOWN} more")
    if report.missing:
        screen.error(
            f"{counted(report.missing, 'document')} changed in the source meanwhile: run the same command again to move"
            " that too."
        )
    screen.note(
        Text(
            "Not moved, and still where they were: statistics of searches, how often documents were returned, and in "
            f"{safe(str(settings.data_dir))} which folders the projects are in. Nothing was deleted.",
            style="dim",
        )
    )
    if report.complete:
        screen.note(
            "To use it, start rag-context without DATABASE_URL, or whatever else named the source."
            if to == EMBEDDED
            else "To use it, set DATABASE_URL to that address."
        )

"""`collections copy`: from one provider to another, compared at the end."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rag_context.api.wire import CONNECTION_PATTERN, name_problem
from rag_context.cli.console import Screen, safe
from rag_context.cli.exits import ExitCode, exit_code
from rag_context.cli.options import Chosen, load_available
from rag_context.collections.connections import DEFAULT, Connections
from rag_context.collections.copying import (
    CopyProgress,
    CopyReport,
    Located,
    OnDifference,
    Stage,
    copy_collection,
)
from rag_context.errors import BackendUnavailableError, ConflictError, InvalidInputError
from rag_context.logs import configure_logging
from rag_context.settings import Settings
from rag_context.wiring import open_all_connections

_DOING = {Stage.COMPARE: "Comparing", Stage.COPY: "Copying", Stage.VERIFY: "Verifying"}


@dataclass(frozen=True, slots=True)
class Copy:
    """From where to where; `connection:name`, or a name on the default connection."""

    source: str
    target: str
    overwrite: bool
    as_json: bool


def run(chosen: Chosen, what: Copy) -> ExitCode:
    """Copy, and say what it came to."""
    screen = Screen()
    settings = load_available(chosen).settings
    configure_logging("error")
    try:
        with _progress(screen) as show:
            report = asyncio.run(_copy(settings, what, show))
    except ConflictError as error:
        screen.error(f"{str(error).rstrip('.')}: --overwrite makes it what the source is.")
        return exit_code(error)
    except BackendUnavailableError as error:
        screen.error(f"{str(error).rstrip('.')}. What was copied is safe: run the same command again, it goes on.")
        return exit_code(error)
    except KeyboardInterrupt:
        screen.note("interrupted. What was copied is safe: run the same command again, it goes on.")
        return ExitCode.INTERRUPTED
    if what.as_json:
        screen.line(json.dumps(asdict(report)))
    else:
        _summarise(report, what, screen)
    return ExitCode.OK


async def _copy(settings: Settings, what: Copy, show: Callable[[CopyProgress], None]) -> CopyReport:
    async with open_all_connections(settings) as connections:
        source, target = await _located(connections, what.source), await _located(connections, what.target)
        await _check_connection(connections, what.target, target)
        on_difference = OnDifference.OVERWRITE if what.overwrite else OnDifference.REJECT
        return await copy_collection(source, target, on_difference=on_difference, progress=show)


async def _located(connections: Connections, text: str) -> Located:
    place = connections.ref(text)
    problem = name_problem(place.name)
    if problem:
        raise InvalidInputError(f"name {problem}: {safe(text)!r}.")
    return Located(await connections.known(place.connection).opened(), place.name)


async def _check_connection(connections: Connections, text: str, target: Located) -> None:
    """See that a misspelt connection does not become the beginning of a new collection's name."""
    before, colon, name = text.partition(":")
    if not colon or before in connections or not re.fullmatch(CONNECTION_PATTERN, before):
        return
    if await target.provider.collection(target.name) is None:
        known = ", ".join(connections)
        raise InvalidInputError(
            f"There is no connection {before!r} to make {safe(name)!r} on; known are {known}. "
            f"A collection of the whole name is {safe(f'{DEFAULT}:{text}')!r}."
        )


def _summarise(report: CopyReport, what: Copy, screen: Screen) -> None:
    parts = [f"{report.copied} copied"]
    if report.skipped:
        parts.append(f"{report.skipped} there already")
    if report.removed:
        parts.append(f"{report.removed} removed")
    documents = f"{report.documents} document{'' if report.documents == 1 else 's'}"
    screen.note(f"{', '.join(parts)}. {safe(what.target)} holds the same {documents} as {safe(what.source)}.")


@contextmanager
def _progress(screen: Screen) -> Iterator[Callable[[CopyProgress], None]]:
    """A bar on a terminal, with time left; elsewhere nothing."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen.err, transient=True, disable=not screen.err.is_terminal) as progress:
        tasks = {stage: progress.add_task(doing, total=None, visible=False) for stage, doing in _DOING.items()}

        def show(at: CopyProgress) -> None:
            progress.update(tasks[at.stage], completed=at.done, total=at.total, visible=True)

        yield show

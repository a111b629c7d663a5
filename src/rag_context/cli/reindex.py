"""`reindex`: all vectors anew with the configured model."""

import asyncio

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from rag_context.cli.exits import ExitCode
from rag_context.cli.in_process import MODEL_PATIENCE_S
from rag_context.cli.options import Chosen
from rag_context.cli.screen import Screen, counted, safe
from rag_context.cli.settings import load_available
from rag_context.collections.reindexing import Reindexed
from rag_context.logs import configure_logging
from rag_context.settings import Settings
from rag_context.wiring import OnMismatch, open_service


def run(chosen: Chosen) -> ExitCode:
    """Reindex in this process; the old vectors answer meanwhile, and a running server follows by itself."""
    screen = Screen()
    loaded = load_available(chosen)
    configure_logging("error")
    try:
        count, collections = asyncio.run(_reindex(loaded.settings, screen))
    except KeyboardInterrupt:
        screen.note("interrupted. What is done stays; the next start, or this command again, goes on with the rest.")
        return ExitCode.INTERRUPTED
    screen.show(f"{counted(count, 'document')} reindexed.")
    for one in collections:
        name = f"{safe(one.place.name)} on connection {one.place.connection}"
        said = f"{counted(one.documents, 'document')} reindexed" if one.error is None else f"not reindexed: {one.error}"
        screen.show(f"Collection {name}: {said}.")
    return ExitCode.FAILED if any(one.error for one in collections) else ExitCode.OK


async def _reindex(settings: Settings, screen: Screen) -> tuple[int, list[Reindexed]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    screen.note(Text(f"Reindexing {settings.data_dir}", style="dim"))
    with Progress(*columns, console=screen.err, transient=True, disable=not screen.err.is_terminal) as progress:
        task = progress.add_task("Reindexing", total=None)
        async with open_service(settings, OnMismatch.REINDEX) as service:
            await service.wait_ready(MODEL_PATIENCE_S)
            count = await service.reindex(lambda done, total: progress.update(task, completed=done, total=total))
            if service.collections is None:
                return count, []
            told = "Reindexing collections"
            return count, await service.collections.upkeep.reindex(
                lambda _, done, total: progress.update(task, description=told, completed=done, total=total)
            )

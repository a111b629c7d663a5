"""`watch`: files and folders kept in the memory as they change, until SIGTERM or Ctrl-C."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from rag_context.api.index import FileReceipt
from rag_context.cli.command_line import ExitCode
from rag_context.cli.connecting import open_connection
from rag_context.cli.console import Options, Screen, named_path, with_options
from rag_context.cli.index_files import LabelOptions, open_sync
from rag_context.cli.summary import one_line
from rag_context.errors import InvalidInputError, RagContextError
from rag_context.files.file_reading import Labels
from rag_context.files.folder_sync import FolderSync, Gone
from rag_context.files.watching import Follower
from rag_context.settings import Loaded

_STYLES = {"removed": "yellow", "rejected": "red", "pending": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions(Options):
    """What to watch."""

    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", parser=named_path, help="Files and folders.")]


@dataclass
class Changes:
    """Says what became of each change, a line each."""

    screen: Screen
    as_json: bool
    _renamed: set[str] = field(default_factory=set)

    def receive(self, receipt: FileReceipt) -> None:
        """Take a receipt; of what did not change there is nothing to say."""
        if receipt.status == "unchanged":
            return
        if self.as_json:
            self.screen.line(receipt.to_json().decode())
        elif not receipt.is_skipped:
            self._show(receipt)

    def _show(self, receipt: FileReceipt) -> None:
        source = receipt.source or ""
        if receipt.status == "removed" and source in self._renamed:
            self._renamed.discard(source)
            return
        word: str = "pending" if receipt.status == "deferred" else receipt.status
        if receipt.renamed_from is not None:
            self._renamed.add(receipt.renamed_from)
            word, source = "renamed", f"{_shown(receipt.renamed_from)} -> {_shown(source)}"
        reason = f": {one_line(receipt.reason)}" if receipt.reason else ""
        self.screen.show(
            Text.assemble((f"{word:<9}", _STYLES.get(word, "green")), one_line(_shown(source)), (reason, "dim"))
        )


@with_options
def watch(label_options: LabelOptions, options: WatchOptions) -> ExitCode:
    """Index files and folders and follow their changes, until SIGTERM or Ctrl-C.

    Changes since the last run are indexed first. Documents of files that are deleted, or ignored from now on,
    are removed; a renamed file is not embedded again. stdout has a line per change, with --json a receipt.
    """
    screen = Screen()
    loaded = options.load_available()
    labels = label_options.labels(loaded.settings)
    asyncio.run(_watch(loaded, watched(options.paths), labels, Changes(screen, options.as_json), screen))
    return ExitCode.OK


def watched(paths: Sequence[Path]) -> list[Path]:
    """The places to watch, each once.

    Raises:
        InvalidInputError: one of them is not there.
    """
    if missing := [path for path in paths if not path.exists()]:
        raise InvalidInputError(f"{str(missing[0])!r} cannot be watched: it is not there.")
    return list(dict.fromkeys(path.resolve() for path in paths))


async def _watch(loaded: Loaded, roots: Sequence[Path], labels: Labels, changes: Changes, screen: Screen) -> None:
    @asynccontextmanager
    async def reached() -> AsyncIterator[FolderSync]:
        async with open_connection(loaded) as connection:
            screen.note(Text(f"Adding to {connection.place}", style="dim"))
            with open_sync(connection, loaded.settings, labels, Gone.REMOVE, changes.receive) as sync:
                yield sync

    def ready() -> None:
        places = ", ".join(_shown(str(root)) for root in roots)
        screen.note(Text(f"Watching {one_line(places)}; the index is in step. Ctrl-C stops it.", style="dim"))

    def trouble(error: RagContextError, wait_s: float) -> None:
        screen.warning(f"{error} Trying again in {wait_s:.0f} s; no change is lost.")

    stop = asyncio.Event()
    _on_signals(stop.set)
    await Follower(roots, reached, ready, trouble).run(stop)


def _on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(name, stop)
        except NotImplementedError:  # where the system has none, Ctrl-C interrupts
            return


def _shown(path: str) -> str:
    """A path as people know it: relative where it is below the working directory."""
    here = Path.cwd().as_posix()
    return os.path.relpath(path, here) if path.startswith(f"{here}/") else path

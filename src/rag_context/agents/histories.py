"""Past sessions of agents: each belongs to the project it ran in, and is found there alone."""

import asyncio
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from rag_context.agents.workspace import tag_of_remote, workspace
from rag_context.domain.documents import PROJECT_TAG
from rag_context.errors import BackendError
from rag_context.files.formats.converter import Converter
from rag_context.files.formats.exchange import HEADLESS, SUBAGENT
from rag_context.files.histories.importing import Choice, HistoryImport, Listener
from rag_context.files.histories.places import AIDER, PLACES, Transcript, at, transcripts
from rag_context.files.target import IndexTarget
from rag_context.files.walk import Root
from rag_context.ports.writing import HistoryManifest
from rag_context.settings import Settings

logger = logging.getLogger(__name__)

FOLLOWED_AFTER_S = 2.0
"""A session is taken in when nothing was written to it for so long."""

UNKNOWN_PROJECT = f"{PROJECT_TAG}unknown"
"""Tag of sessions in no project, or in one that their records do not name: they are shown in none unasked."""


def project_tag(folder: str, remote: str = "") -> str:
    """The tag of the project of a session ("": unknown folder); a `remote` counts if the folder is gone."""
    path = Path(folder) if folder else None
    if remote and (path is None or not path.is_dir()) and (tag := tag_of_remote(remote)) is not None:
        return tag
    found = workspace(path) if path is not None and path.is_absolute() else None
    return found.tag if found is not None else UNKNOWN_PROJECT


def choice_of(
    settings: Settings, *, since: datetime | None = None, project: str | None = None, force: bool = False
) -> Choice:
    history = settings.history
    flags = ((HEADLESS, history.headless), (SUBAGENT, history.subagents))
    drivers = tuple(name for name, is_taken in flags if is_taken)
    return Choice(since=since, project=project, drivers=drivers, exclude=history.exclude, force=force)


@contextmanager
def open_histories(
    target: IndexTarget, manifest: HistoryManifest, choice: Choice, listen: Listener
) -> Iterator[HistoryImport]:
    """Takes in sessions, as `HistoryImport.take_in` and `run` do; `manifest` records what was taken."""
    with Converter() as converter:
        yield HistoryImport(target, manifest, converter, choice, cache(project_tag), listen)


def found(clients: Collection[str] = ()) -> Iterator[Transcript]:
    """The transcripts of some clients on this machine, of all if none is named; without Aider's."""
    for place in PLACES:
        if not clients or place.client in clients:
            yield from transcripts(place)


def of_aider(folders: Iterable[str]) -> Iterator[Transcript]:
    """Aider's histories in the projects that some folders belong to: it has no place of its own."""
    known = (workspace(Path(folder)) for folder in folders)
    for root in sorted({each.root for each in known if each is not None}):
        path = root / AIDER.patterns[0]
        if path.is_file() and not path.is_symlink():
            yield Transcript(AIDER.client, path, AIDER)


class Capture:
    """Takes in transcripts that hooks name, in the background, one after the other."""

    def __init__(self, manifest: HistoryManifest, choice: Choice) -> None:
        self._manifest = manifest
        self._choice = choice
        self._waiting: dict[Path, tuple[IndexTarget, str, str]] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, target: IndexTarget, path: Path, client: str, cwd: str) -> None:
        """Take in what is new in a transcript soon; further calls before that change nothing."""
        self._waiting[path] = target, client, cwd
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="capture")

    async def aclose(self) -> None:
        """End; what was not taken in comes with the next call, or the next import."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self._waiting:
            path, (target, client, cwd) = self._waiting.popitem()
            try:
                with open_histories(target, self._manifest, self._choice, lambda _: None) as histories:
                    receipt = await histories.take_in(path, cwd)
            except BackendError as error:
                logger.warning("a session of %s was not taken in: %s", client, error)
            else:
                level = logging.INFO if receipt.client else logging.WARNING
                logger.log(level, "transcript %s of %s: %s", path, client, receipt.reason or receipt.status)


@dataclass(frozen=True, slots=True)
class HistorySync:
    """Fits `Sync`: follows sessions as `FolderSync` follows files."""

    histories: HistoryImport

    async def run(self, roots: Sequence[Root]) -> frozenset[Path]:
        """Take in what is new in all sessions below some folders."""
        tops = {root.path for root in roots}
        await self.histories.run(each for each in found() if _is_below(each.path, tops))
        return frozenset()

    async def follow(self, root: Path, changed: Collection[Path]) -> frozenset[Path]:
        """Take in what is new in the sessions at some paths; the log beside a database stands for it."""
        paths = {each.with_name(each.name.removesuffix("-wal")) for each in changed}
        await self.histories.run(filter(None, map(at, sorted(paths))))
        return frozenset()


def _is_below(path: Path, tops: Collection[Path]) -> bool:
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(top) for top in tops)

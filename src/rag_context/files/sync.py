"""Files and folders kept in step with the index: what changed goes in, the rest is not even read.

A file is believed unchanged when the system says what it said when the file was last read, and the index still has
what was then acknowledged. Whatever cannot be told apart that way is read, and compared by what it holds.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import chain, islice
from pathlib import Path

from rag_context.api.index import FileReceipt
from rag_context.domain.documents import DOCUMENTATION, DocumentInput, Origin
from rag_context.domain.files import FileDocument, FileEntry, FileStamp
from rag_context.files.documents import FileJobs, Recipe, Todo
from rag_context.files.formats import Converter
from rag_context.files.reading import Found, Rejected, stamp_of
from rag_context.files.sending import CONCURRENCY, Job, Target, in_thread, send
from rag_context.files.walk import Root, find_changed, outermost, walk
from rag_context.ingest.identity import document_id
from rag_context.ports.maintenance import FileManifest

PAGE = 500
"""Files looked at together."""

MOST_VERSIONS = 2_000
"""Documents asked for at once."""

RACY_NS = 2_000_000_000
"""A file that was changed this shortly before it was read may have been changed again in the same tick of its clock:
the coarsest clock of a file system in use has two seconds. Source: git's documentation of the racy index."""

REMOVALS = 5
"""Documents removed at once."""


class Gone(Enum):
    """What becomes of documents whose file is gone, or is not part of its folder any more."""

    REPORT = auto()
    REMOVE = auto()
    """Those that this machine put in."""
    PRUNE = auto()
    """Also those whose source says that they came from such a file, whoever put them in."""


@dataclass(frozen=True, slots=True)
class FolderSync:
    """Brings an index in step with files.

    Args:
        target: the index.
        ledger: what is known of files.
        recipe: how they are read.
        converter: reads what is not text.
        gone: what becomes of documents whose file is gone.
        listen: hears of every file and document.
        own: files and folders of this program, which are never taken.
        racy_ns: how long before it was read a file must have been left alone to be believed by its stamp.
    """

    target: Target
    ledger: FileManifest
    recipe: Recipe
    converter: Converter
    gone: Gone
    listen: Callable[[FileReceipt], None]
    own: tuple[Path, ...] = ()
    racy_ns: int = RACY_NS

    async def run(self, roots: Sequence[Root]) -> frozenset[Path]:
        """Look at everything; returns the files that were refused for a reason that may pass.

        Raises:
            BackendError: the index cannot be reached; what was acknowledged is safe and will be skipped.
        """
        one = _Pass(self)
        found = chain.from_iterable(walk(root, self.recipe.generated) for root in roots)
        await one.send(self._others(found, [root.path for root in roots]))
        for root in roots:
            await one.remove_gone(root.path, root)
            if self.gone is Gone.PRUNE:
                await one.remove_unknown(root)
        await one.end()
        return frozenset(one.jobs.to_retry)

    async def follow(self, root: Path, changed: Collection[Path]) -> frozenset[Path]:
        """Look at some paths at or below a root; as `run` otherwise."""
        one = _Pass(self)
        await one.send(self._others(find_changed(root, changed, self.recipe.generated), [root]))
        for place in outermost(changed):
            await one.remove_gone(place, Root(root))
        await one.end()
        return frozenset(one.jobs.to_retry)

    def _others(self, items: Iterator[Found | Rejected], tops: Sequence[Path]) -> Iterator[Found | Rejected]:
        """All but what is ours, told by the text of its path, for there may be very many."""
        own = [path.as_posix() for path in self.own if any(path.is_relative_to(top) for top in tops)]
        if not own:
            return items
        below = tuple(f"{path}/" for path in own)
        return (item for item in items if (path := str(item.path)) not in own and not path.startswith(below))


@dataclass
class _Pass:
    """One look at some files."""

    sync: FolderSync
    seen: set[str] = field(default_factory=set)
    """Files that the walk met."""
    hidden: list[str] = field(default_factory=list)
    """Places that could not be looked into."""

    def __post_init__(self) -> None:
        sync = self.sync
        soon = asyncio.get_running_loop().call_soon_threadsafe
        self.jobs = FileJobs(sync.ledger, sync.recipe, sync.converter, soon=soon, listen=sync.listen)

    async def send(self, items: Iterator[Found | Rejected]) -> None:
        try:
            async with aclosing(self._batches(items)) as batches:
                await send(batches, self.sync.target, CONCURRENCY)
        finally:
            await self._remember()

    async def _batches(self, items: Iterator[Found | Rejected]) -> AsyncGenerator[list[Job], None]:
        while page := await asyncio.to_thread(lambda: list(islice(items, PAGE))):
            todo = await self._changed(page)
            async for batch in in_thread(self.jobs.batches(todo)):
                yield batch
            await self._remember()

    async def _changed(self, page: Sequence[Found | Rejected]) -> list[Todo]:
        """What must be read; the rest is told."""
        known = await asyncio.to_thread(self._known, [item for item in page if isinstance(item, Found)])
        self.seen.update(found.path.as_posix() for found, _, _ in known)
        for item in page:
            if isinstance(item, Rejected):
                await self._rejected(item)
        versions = {
            each.id: each.content_hash
            for _, entry, _ in known
            if entry is not None and entry.recipe == self.sync.recipe.key
            for each in entry.documents
            if each.content_hash
        }
        there = versions.keys() - await self._missing(versions)
        todo = []
        for found, entry, stamp in known:
            is_whole = entry is not None and bool(entry.digest) and all(each.id in there for each in entry.documents)
            if entry is not None and is_whole and stamp == entry.stamp and not self._is_racy(entry):
                self.jobs.unchanged(entry)
            else:
                todo.append(Todo(found, entry, is_whole))
        return todo

    def _is_racy(self, entry: FileEntry) -> bool:
        return max(entry.stamp.modified_ns, entry.stamp.changed_ns) + self.sync.racy_ns >= entry.read_ns

    def _known(self, page: Sequence[Found]) -> list[tuple[Found, FileEntry | None, FileStamp | None]]:
        paths = {found.path: printable_path for found in page if (printable_path := _text(found.path)) is not None}
        entries = self.sync.ledger.entries(list(paths.values()))
        return [(found, entries.get(paths.get(found.path, "")), _stamp(found.path)) for found in page]

    async def _missing(self, versions: dict[str, str]) -> set[str]:
        missing: set[str] = set()
        asked = iter(versions.items())
        while part := dict(islice(asked, MOST_VERSIONS)):
            missing.update(await self.sync.target.missing(part))
        return missing

    async def _rejected(self, rejected: Rejected) -> None:
        if rejected.unknown and not await asyncio.to_thread(self._was_file, rejected.path):
            self.hidden.append(rejected.path)
        self.jobs.reject(rejected)

    def _was_file(self, path: str) -> bool:
        """Whether a path led to a file, and its folder is there without it."""
        return not os.path.lexists(path) and Path(path).parent.is_dir() and path in self.sync.ledger.entries([path])

    async def remove_gone(self, place: Path, root: Root) -> None:
        """Deal with the documents of files at or below a place that the walk did not meet."""
        gone = (entry for entry in self.sync.ledger.below(place.as_posix()) if self._is_gone(entry, root))
        while page := await asyncio.to_thread(lambda: list(islice(gone, PAGE))):
            await self._part_with(page)

    def _is_gone(self, entry: FileEntry, root: Root) -> bool:
        path = Path(entry.path)
        if entry.path in self.seen or self._is_hidden(entry.path) or not root.takes(path):
            return False
        return not (entry.is_named and os.path.lexists(path))

    def _is_hidden(self, path: str) -> bool:
        return any(path == place or path.startswith(place.rstrip("/") + "/") for place in self.hidden)

    async def remove_unknown(self, root: Root) -> None:
        """Remove the documents below a root of which only the index knows, and whose file is gone."""
        prefix = root.path.as_posix().rstrip("/") + "/"
        gone = [
            FileDocument(source, id_)
            async for source, id_ in self.sync.target.sources(prefix)
            if id_ == _file_identity(source) and self._leads_nowhere(source, root)
        ]
        await self._remove(gone)

    def _leads_nowhere(self, source: str, root: Root) -> bool:
        names = [source, *(source[:place] for place, char in enumerate(source) if char == "#")]
        return not self._is_hidden(source) and root.takes(Path(source)) and not any(map(os.path.lexists, names))

    async def end(self) -> None:
        """Deal with what is no longer in files that are there."""
        await self._remove(self.jobs.replaced)
        await self._part_with(self.jobs.lost)
        await self._remember()

    async def _part_with(self, entries: Collection[FileEntry]) -> None:
        documents = [each for entry in entries for each in entry.documents]
        if self.sync.gone is Gone.REPORT:
            for each in documents:
                self.sync.listen(FileReceipt(status="gone", source=each.source, document_id=each.id))
            return
        await self._remove(documents)
        self.jobs.forgotten += [entry.path for entry in entries]

    async def _remove(self, documents: Iterable[FileDocument]) -> None:
        waiting = iter(documents)
        while part := list(islice(waiting, REMOVALS)):
            await asyncio.gather(*(self.sync.target.remove(each.id) for each in part))
            for each in part:
                self.sync.listen(FileReceipt(status="removed", source=each.source, document_id=each.id))

    async def _remember(self) -> None:
        jobs, ledger = self.jobs, self.sync.ledger
        finished, jobs.finished = jobs.finished, []
        forgotten, jobs.forgotten = jobs.forgotten, []
        if finished:
            await asyncio.to_thread(ledger.put, finished)
        if forgotten:
            await asyncio.to_thread(ledger.forget, forgotten)


def _stamp(path: Path) -> FileStamp | None:
    try:
        return stamp_of(path.stat())
    except OSError:
        return None


def _text(path: Path) -> str | None:
    text = path.as_posix()
    return text if text.isascii() or _is_unicode(text) else None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _file_identity(source: str) -> str:
    return document_id(DocumentInput("", DOCUMENTATION, "", source, origin=Origin.FILE))

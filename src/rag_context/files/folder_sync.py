"""Keeps an index in step with files and folders: changed files are indexed, unchanged ones are not even read.

A file counts as unchanged when its stamp is the same as when it was last read, and the index still has the documents
that it acknowledged then. In all other cases the file is read, and compared by its content.
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
from rag_context.domain import documents
from rag_context.domain.where import is_unicode
from rag_context.files.file_jobs import FileJobs, ReadingSettings, Todo
from rag_context.files.file_reading import Found, Rejected, stamp_of
from rag_context.files.formats.converter import Converter
from rag_context.files.sending import CONCURRENCY, Job, in_thread, send
from rag_context.files.target import IndexTarget
from rag_context.files.walk import Root, find_changed, outermost, walk
from rag_context.ports.writing import FileManifest

PAGE = 500
"""Files checked together."""

MOST_VERSIONS = 2_000
"""Documents checked by one call."""

RACY_NS = 2_000_000_000
"""A file that was changed this shortly before it was read may have been changed again in the same tick of its clock:
the coarsest clock of a file system in use has two seconds. Source: git's documentation of the racy index."""

REMOVALS = 5
"""Documents removed at once."""


class Gone(Enum):
    """What happens to documents whose file was deleted, or is not part of its folder any more."""

    REPORT = auto()
    REMOVE = auto()
    """Remove those that this machine indexed."""
    PRUNE = auto()
    """Remove all with the source of such a file, also those that other machines indexed."""


@dataclass(frozen=True, slots=True)
class FolderSync:
    """Brings an index in step with files.

    Files and folders of this program, `own`, are never indexed. A file that changed less than `racy_ns` before it was
    read is not trusted by its stamp.
    """

    target: IndexTarget
    manifest: FileManifest
    settings: ReadingSettings
    converter: Converter
    gone: Gone
    on_receipt: Callable[[FileReceipt], None]
    own: tuple[Path, ...] = ()
    racy_ns: int = RACY_NS

    async def run(self, roots: Sequence[Root]) -> frozenset[Path]:
        """Bring everything in step; returns files that were rejected for a temporary reason. Raises: BackendError."""
        one = _Pass(self)
        found = chain.from_iterable(walk(root, self.settings.generated) for root in roots)
        await one.send(self._except_own(found, [root.path for root in roots]))
        # Deletions come last: a file that moved is new at its new path, and reuses the vectors of its old documents.
        for root in roots:
            await one.remove_gone(root.path, root)
            if self.gone is Gone.PRUNE:
                await one.remove_unknown(root)
        await one.end()
        return frozenset(one.jobs.to_retry)

    async def follow(self, root: Path, changed: Collection[Path]) -> frozenset[Path]:
        """As `run`, for some paths at or below a root."""
        one = _Pass(self)
        await one.send(self._except_own(find_changed(root, changed, self.settings.generated), [root]))
        for path in outermost(changed):
            await one.remove_gone(path, Root(root))
        await one.end()
        return frozenset(one.jobs.to_retry)

    def _except_own(self, items: Iterator[Found | Rejected], tops: Sequence[Path]) -> Iterator[Found | Rejected]:
        """All items but this program's own files, compared as text because there may be very many."""
        own = [path.as_posix() for path in self.own if any(path.is_relative_to(top) for top in tops)]
        if not own:
            return items
        below = tuple(f"{path}/" for path in own)
        return (item for item in items if (path := str(item.path)) not in own and not path.startswith(below))


@dataclass
class _Pass:
    sync: FolderSync
    seen: set[str] = field(default_factory=set)
    """Files that the walk met."""
    unreadable: list[str] = field(default_factory=list)
    """Folders that could not be read."""

    def __post_init__(self) -> None:
        sync = self.sync
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        self.jobs = FileJobs(
            sync.manifest, sync.settings, sync.converter, call_soon=call_soon, on_receipt=sync.on_receipt
        )

    async def send(self, items: Iterator[Found | Rejected]) -> None:
        try:
            async with aclosing(self._batches(items)) as batches:
                await send(batches, self.sync.target, CONCURRENCY)
        finally:  # also after a failure: what was acknowledged until then is not sent again
            await self._save_manifest()

    async def _batches(self, items: Iterator[Found | Rejected]) -> AsyncGenerator[list[Job], None]:
        while page := await asyncio.to_thread(lambda: list(islice(items, PAGE))):
            todo = await self._changed(page)
            async for batch in in_thread(self.jobs.batches(todo)):
                yield batch
            await self._save_manifest()

    async def _changed(self, page: Sequence[Found | Rejected]) -> list[Todo]:
        """The files that must be read; the others are reported as unchanged."""
        known = await asyncio.to_thread(self._known, [item for item in page if isinstance(item, Found)])
        self.seen.update(found.path.as_posix() for found, _, _ in known)
        for item in page:
            if isinstance(item, Rejected):
                # What cannot be read now may still exist, so its documents stay.
                if item.unknown and not await asyncio.to_thread(self._was_file, item.path):
                    self.unreadable.append(item.path)
                self.jobs.reject(item)
        versions = {
            each.id: each.content_hash
            for _, entry, _ in known
            if entry is not None and entry.settings_hash == self.sync.settings.key
            for each in entry.documents
            if each.content_hash
        }
        # The manifest alone is not enough: the index may have been restored, emptied or exchanged since.
        there = versions.keys() - await self._missing(versions)
        todo = []
        for found, entry, stamp in known:
            is_complete = entry is not None and bool(entry.digest) and all(each.id in there for each in entry.documents)
            if entry is not None and is_complete and stamp == entry.stamp and not self._is_racy(entry):
                self.jobs.unchanged(entry)
            else:
                todo.append(Todo(found, entry, is_complete))
        return todo

    def _is_racy(self, entry: documents.FileEntry) -> bool:
        # A second edit within the grain of the file system's clock leaves the same stamp.
        return max(entry.stamp.modified_ns, entry.stamp.changed_ns) + self.sync.racy_ns >= entry.read_ns

    def _known(
        self, page: Sequence[Found]
    ) -> list[tuple[Found, documents.FileEntry | None, documents.FileStamp | None]]:
        paths = {found.path: printable_path for found in page if (printable_path := _text(found.path)) is not None}
        entries = self.sync.manifest.entries(list(paths.values()))
        return [(found, entries.get(paths.get(found.path, "")), _stamp(found.path)) for found in page]

    async def _missing(self, versions: dict[str, str]) -> set[str]:
        missing: set[str] = set()
        remaining = iter(versions.items())
        while part := dict(islice(remaining, MOST_VERSIONS)):
            missing.update(await self.sync.target.missing(part))
        return missing

    def _was_file(self, path: str) -> bool:
        """Whether a path led to a file, and its folder exists without it."""
        return not os.path.lexists(path) and Path(path).parent.is_dir() and path in self.sync.manifest.entries([path])

    async def remove_gone(self, path: Path, root: Root) -> None:
        """Handle the documents of files at or below a path that the walk did not find."""
        gone = (entry for entry in self.sync.manifest.below(path.as_posix()) if self._is_gone(entry, root))
        while page := await asyncio.to_thread(lambda: list(islice(gone, PAGE))):
            await self._drop_files(page)

    def _is_gone(self, entry: documents.FileEntry, root: Root) -> bool:
        path = Path(entry.path)
        if entry.path in self.seen or self._is_unreadable(entry.path) or not root.takes(path):
            return False
        # No walk finds a file that a caller named although the ignore files exclude it.
        return not (entry.is_named and os.path.lexists(path))

    def _is_unreadable(self, path: str) -> bool:
        return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in self.unreadable)

    async def remove_unknown(self, root: Root) -> None:
        """Remove the documents below a root that only the index has, and whose file was deleted."""
        prefix = root.path.as_posix().rstrip("/") + "/"
        # Only a document whose id is that of a file: one from a tool may name a path as its source.
        gone = [
            documents.FileDocument(source, id_)
            async for source, id_ in self.sync.target.sources(prefix)
            if id_
            == documents.document_id(
                documents.DocumentInput("", documents.DOCUMENTATION, "", source, channel=documents.Channel.FILE)
            )
            and self._has_no_file(source, root)
        ]
        await self._remove(gone)

    def _has_no_file(self, source: str, root: Root) -> bool:
        # A document in a file has a source of `path#part`, and a path may contain `#` itself.
        names = [source, *(source[:end] for end, char in enumerate(source) if char == "#")]
        return not self._is_unreadable(source) and root.takes(Path(source)) and not any(map(os.path.lexists, names))

    async def end(self) -> None:
        """Handle documents that are no longer in files that exist."""
        await self._remove(self.jobs.replaced)
        await self._drop_files(self.jobs.lost)
        await self._save_manifest()

    async def _drop_files(self, entries: Collection[documents.FileEntry]) -> None:
        dropped = [each for entry in entries for each in entry.documents]
        if self.sync.gone is Gone.REPORT:
            for each in dropped:
                self.sync.on_receipt(FileReceipt(status="gone", source=each.source, document_id=each.id))
            return
        await self._remove(dropped)
        # Only now: if the removal fails, the next run finds these entries and repeats it.
        self.jobs.forgotten += [entry.path for entry in entries]

    async def _remove(self, documents: Iterable[documents.FileDocument]) -> None:
        waiting = iter(documents)
        while part := list(islice(waiting, REMOVALS)):
            await asyncio.gather(*(self.sync.target.remove(each.id) for each in part))
            for each in part:
                self.sync.on_receipt(FileReceipt(status="removed", source=each.source, document_id=each.id))

    async def _save_manifest(self) -> None:
        jobs, manifest = self.jobs, self.sync.manifest
        # Both lists are exchanged before the first await: receipts that arrive meanwhile go to the new ones.
        finished, jobs.finished = jobs.finished, []
        forgotten, jobs.forgotten = jobs.forgotten, []
        if finished:
            await asyncio.to_thread(manifest.put, finished)
        if forgotten:
            await asyncio.to_thread(manifest.forget, forgotten)


def _stamp(path: Path) -> documents.FileStamp | None:
    try:
        return stamp_of(path.stat())
    except OSError:
        return None


def _text(path: Path) -> str | None:
    text = path.as_posix()
    return text if text.isascii() or is_unicode(text) else None

"""Synchronises the index with the files of a docs folder: indexes new and changed ones, deletes missing ones.

Files are compared by content: all are read and hashed, which is faster than a request to the index for each.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from rag_context.domain.documents import DOCUMENTATION, Tenant
from rag_context.errors import BackendError, InvalidInputError
from rag_context.files.commits import FileTimes
from rag_context.files.file_reading import DEFAULT_MAX_BYTES, FileInput, Found, Labels, Rejected, printable, read_file
from rag_context.files.walk import Root, find_changed, outermost, path_patterns, walk
from rag_context.ingest.indexer import Indexer
from rag_context.ingest.submissions import Outcome, Receipt
from rag_context.projects.document_lists import DocumentList, DocumentLists
from rag_context.projects.links import SUFFIXES, relative_path
from rag_context.projects.project_documents import DocsFolder, project_input, text_digest
from rag_context.projects.records import ProjectDocument

CONCURRENCY = 5
MAX_RELATED = 3
"""The number of other tenants whose vectors may be reused: those that were written to last."""

_NO_DOCUMENT = re.compile(r"(?:.*requirements.*|constraints.*|cmakelists|robots)\.txt", re.IGNORECASE)
"""Text files that programs read."""

_LABELS = Labels(content_type=DOCUMENTATION)


class FileOutcome(StrEnum):
    INDEXED = "indexed"
    REPLACED = "replaced"
    RENAMED = "renamed"
    UNCHANGED = "unchanged"
    DEFERRED = "deferred"
    """Stored, and found by keyword search; its vectors follow."""
    REJECTED = "rejected"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class SyncReceipt:
    """The result for one file, by its path relative to the docs folder, with reason and warnings."""

    path: str
    outcome: FileOutcome
    document_id: str | None = None
    reason: str | None = None
    renamed_from: str | None = None
    warnings: tuple[str, ...] = ()
    again: bool = False
    """Whether trying again may help."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    receipts: tuple[SyncReceipt, ...] = ()

    @property
    def counts(self) -> Mapping[FileOutcome, int]:
        return Counter(receipt.outcome for receipt in self.receipts)

    @property
    def changed(self) -> tuple[SyncReceipt, ...]:
        return tuple(each for each in self.receipts if each.outcome is not FileOutcome.UNCHANGED)

    @property
    def incomplete(self) -> bool:
        return any(receipt.again for receipt in self.receipts)


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """The progress of a synchronisation, in files to index or delete."""

    done: int
    total: int
    receipt: SyncReceipt | None = None


Progress = Callable[[SyncProgress], None]


def no_progress(_progress: SyncProgress) -> None:
    """Ignore progress."""


SyncScope: TypeAlias = Callable[[str], bool]
"""Which files of a docs folder are documents, by path relative to it."""


def is_document(path: str) -> bool:
    """Whether a file is Markdown, reStructuredText, AsciiDoc or plain text; other files are ignored."""
    file = PurePosixPath(path)
    return file.suffix.lower() in SUFFIXES and _NO_DOCUMENT.fullmatch(file.name) is None


def patterns(include: Sequence[str], exclude: Sequence[str]) -> SyncScope:
    """The files that match one of the first, none of the second patterns, as in `.gitignore`. Raises: ValueError."""
    included, excluded = path_patterns(include), path_patterns(exclude)
    return lambda path: included.match_file(path) and not excluded.match_file(path)


@dataclass(slots=True)
class _Scan:
    """The files as they are: revisions by path, receipts of rejected files, and paths that could not be read."""

    revisions: dict[str, str] = field(default_factory=dict)
    rejected: list[SyncReceipt] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The work of a synchronisation: paths to index, each with documents it may be a rename of; documents to delete."""

    unchanged: tuple[ProjectDocument, ...]
    index: Mapping[str, tuple[ProjectDocument, ...]]
    remove: tuple[ProjectDocument, ...]


class Synchroniser:
    """Synchronises the documents of one tenant with the files of one folder, reusing vectors of `related_tenants`."""

    def __init__(
        self,
        folder: DocsFolder,
        indexer: Indexer,
        document_lists: DocumentLists,
        *,
        related_tenants: Sequence[Tenant] = (),
        scope: SyncScope = is_document,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self.folder = folder
        self._indexer = indexer
        self._document_lists = document_lists
        self._related_tenants = tuple(related_tenants)[-MAX_RELATED:]
        self._scope = scope
        self._max_bytes = max_bytes
        self._times = FileTimes()
        self._lock = asyncio.Lock()

    async def reconcile(self, progress: Progress = no_progress) -> SyncReport:
        """Compare every file with the index, and update it. Raises: BackendError (nothing has changed)."""
        return await self._update(None, progress)

    async def follow(self, paths: Collection[Path], progress: Progress = no_progress) -> SyncReport:
        """Do the same for files that may have changed, or folders with all their files. Raises: BackendError."""
        root = self.folder.root
        places = outermost([path for path in paths if path.is_relative_to(root)])
        if root in places:
            return await self.reconcile(progress)
        return await self._update(frozenset(relative_path(root, path) for path in places), progress)

    async def index(self, path: str) -> SyncReceipt:
        """Index one file, even if it is unchanged. Raises: BackendError."""
        async with self._lock:
            scan = await asyncio.to_thread(self._scanned, frozenset({path}))
            if path in scan.revisions:
                return await self._index(path, (), await self._similar_ids({path: scan.revisions[path]}))
            left_out = SyncReceipt(path, FileOutcome.REJECTED, reason="ignore files or patterns exclude it")
            return next((receipt for receipt in scan.rejected if receipt.path == path), left_out)

    async def _update(self, changed: frozenset[str] | None, progress: Progress) -> SyncReport:
        # In turn: two runs that plan from the same list would index the same files.
        async with self._lock:
            documents_list = await self._document_lists.of(self.folder.tenant)
            scan = await asyncio.to_thread(self._scanned, changed)
            plan = _planned(documents_list, scan, changed)
            receipts = [
                SyncReceipt(each.path, FileOutcome.UNCHANGED, each.id, warnings=each.warnings)
                for each in plan.unchanged
            ]
            receipts += scan.rejected
            receipts += await self._indexed(plan, scan.revisions, progress)
            # Last: a renamed file reuses the vectors of its old document.
            renamed = frozenset(each.renamed_from for each in receipts if each.renamed_from is not None)
            receipts += await self._removed(plan, progress, renamed)
            return SyncReport(tuple(sorted(receipts, key=lambda receipt: receipt.path)))

    async def _similar_ids(self, revisions: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
        """By path, the ids of other tenants' documents that probably have the same text, to reuse their vectors."""
        try:
            related_tenants = (
                [await self._document_lists.of(tenant) for tenant in self._related_tenants] if revisions else []
            )
        except BackendError:
            return {}  # without their vectors, texts are embedded again, which is only slower
        return {
            path: tuple(found.id for each in related_tenants if (found := _likely(each, path, digest)) is not None)
            for path, digest in revisions.items()
        }

    async def _indexed(self, plan: _Plan, revisions: Mapping[str, str], progress: Progress) -> list[SyncReceipt]:
        waiting = iter(plan.index.items())
        receipts: list[SyncReceipt] = []
        total = len(plan.index) + len(plan.remove)
        similar = await self._similar_ids({path: revisions[path] for path in plan.index})
        if len(plan.index) > 1:
            await asyncio.to_thread(self._times.prepare, self.folder.root)

        async def work() -> None:
            for path, candidates in waiting:  # one iterator for all workers: each path goes to one of them
                try:
                    receipt = await self._index(path, candidates, similar)
                except BackendError as error:
                    reason = f"could not be stored: {error}"
                    receipt = SyncReceipt(path, FileOutcome.REJECTED, reason=reason, again=True)
                receipts.append(receipt)
                progress(SyncProgress(len(receipts), total, receipt))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(CONCURRENCY, len(plan.index))):
                group.create_task(work())
        return receipts

    async def _index(
        self, path: str, candidates: Sequence[ProjectDocument], similar: Mapping[str, tuple[str, ...]]
    ) -> SyncReceipt:
        # Read again: the scan keeps revisions only, so that the texts of a large folder are not all in memory.
        file = await asyncio.to_thread(self._read, path)
        if isinstance(file, Rejected):
            return _rejection(path, file)
        read = await asyncio.to_thread(project_input, file.document, path, self.folder)
        try:
            receipt = await self._indexer.index(
                read.document, reuse_from=[*(each.id for each in candidates), *similar.get(path, ())]
            )
        except InvalidInputError as error:
            return SyncReceipt(path, FileOutcome.REJECTED, reason=str(error), warnings=read.warnings)
        text = text_digest(read.revision)
        renamed_from = next(
            (candidate.path for candidate in candidates if text_digest(candidate.revision) == text), None
        )
        return _receipt(path, receipt, read.warnings, renamed_from)

    async def _removed(self, plan: _Plan, progress: Progress, renamed: frozenset[str]) -> list[SyncReceipt]:
        """Delete the documents of missing files; those of renamed files have receipts already."""
        receipts: list[SyncReceipt] = []
        for i, document in enumerate(plan.remove):
            try:
                await self._indexer.remove(document.id)
            except BackendError as error:
                reason = f"could not be deleted: {error}"
                receipt = SyncReceipt(document.path, FileOutcome.REJECTED, document.id, reason, again=True)
            else:
                receipt = SyncReceipt(document.path, FileOutcome.REMOVED, document.id)
            if receipt.outcome is FileOutcome.REJECTED or document.path not in renamed:
                receipts.append(receipt)
            progress(SyncProgress(len(plan.index) + i + 1, len(plan.index) + len(plan.remove), receipt))
        return receipts

    def _read(self, path: str) -> FileInput | Rejected:
        found = Found(self.folder.root / path, named=True)
        return read_file(found, _LABELS, max_bytes=self._max_bytes, times=self._times.of)

    def _scanned(self, changed: frozenset[str] | None) -> _Scan:
        """Read the files, or those of them that changed."""
        scan = _Scan()
        self._times = FileTimes()  # there may be new commits
        root = self.folder.root
        places = walk(Root(root)) if changed is None else find_changed(root, [root / path for path in changed])
        for found in places:
            if isinstance(found, Rejected):
                self._note(found, scan)
                continue
            path = relative_path(root, found.path)
            if not self._scope(path):
                continue
            # Without times of commits: only the text is compared here, and reading Git's history takes long.
            file = read_file(found, _LABELS, max_bytes=self._max_bytes)
            if isinstance(file, FileInput):
                scan.revisions[path] = self.folder.revision(file.document.content)
            else:
                scan.rejected.append(_rejection(path, file))
                scan.unseen += [path] if file.unknown else []
        return scan

    def _note(self, found: Rejected, scan: _Scan) -> None:
        """Record a path that the walk rejected: a folder that cannot be read, a link, or the root itself."""
        root = printable(self.folder.root)
        path = found.path.removeprefix(root).lstrip("/\\") or "."
        if found.unknown or path == ".":
            scan.unseen.append(path)
        if found.unknown or self._scope(path):
            scan.rejected.append(_rejection(path, found))


def _planned(documents_list: DocumentList, scan: _Scan, changed: frozenset[str] | None) -> _Plan:
    stored = [document for document in documents_list.documents if changed is None or _below(document.path, changed)]
    kept = {document.path for document in stored if document.path in scan.revisions}
    # Files below a folder that cannot be read now may still exist.
    missing = [each for each in stored if each.path not in kept and not _below(each.path, scan.unseen)]
    unchanged = [each for each in stored if each.revision == scan.revisions.get(each.path)]
    current = {each.path for each in unchanged}
    # A renamed file appears as a missing document and a new path. The new one reuses the vectors of the missing one,
    # which is deleted as any other: if the process ends in between, the next run deletes it.
    by_text = {text_digest(each.revision): each for each in reversed(missing)}  # the first of several by path counts
    by_name = {PurePosixPath(each.path).name: each for each in reversed(missing)}

    def renamed(path: str, digest: str) -> tuple[ProjectDocument, ...]:
        candidate = by_text.get(text_digest(digest)) or by_name.get(PurePosixPath(path).name)
        return () if candidate is None else (candidate,)

    index = {
        path: () if path in kept else renamed(path, digest)
        for path, digest in scan.revisions.items()
        if path not in current
    }
    return _Plan(tuple(unchanged), index, tuple(missing))


def _likely(documents_list: DocumentList, path: str, revision_: str) -> ProjectDocument | None:
    """The document of another tenant with the same text, else the one at the same path."""
    return documents_list.by_text(text_digest(revision_)) or documents_list.by_path(path)


def _below(path: str, places: Collection[str]) -> bool:
    """Whether a path, or a folder above it, is among the places."""
    if not places:
        return False
    return "." in places or path in places or any(parent.as_posix() in places for parent in PurePosixPath(path).parents)


def _rejection(path: str, rejected: Rejected) -> SyncReceipt:
    return SyncReceipt(path, FileOutcome.REJECTED, reason=rejected.reason, again=rejected.unknown)


def _receipt(path: str, receipt: Receipt, warnings: tuple[str, ...], renamed_from: str | None) -> SyncReceipt:
    outcome = {
        Outcome.INDEXED: FileOutcome.INDEXED,
        Outcome.REPLACED: FileOutcome.REPLACED,
        Outcome.UNCHANGED: FileOutcome.UNCHANGED,
        Outcome.PENDING: FileOutcome.DEFERRED,
        Outcome.FORGOTTEN: FileOutcome.REJECTED,
    }[receipt.outcome]
    if renamed_from is not None and outcome is FileOutcome.INDEXED:
        outcome = FileOutcome.RENAMED
    return SyncReceipt(path, outcome, receipt.document_id, receipt.warning, renamed_from, warnings)

"""The index of a docs folder brought up to its files: what is new, changed, renamed or gone, and nothing else.

Files are compared by what they hold: all are read and hashed, which takes less than asking the index for each.
"""

import asyncio
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Protocol

from rag_context.domain.documents import DOCUMENTATION, Tenant
from rag_context.errors import BackendError, InvalidInputError
from rag_context.files.globs import path_patterns
from rag_context.files.reading import DEFAULT_MAX_BYTES, FileDraft, Found, Labels, Rejected, printable, read_file
from rag_context.files.walk import Root, find_changed, outermost, walk
from rag_context.ingest.indexer import Indexer
from rag_context.ingest.receipts import Outcome, Receipt
from rag_context.projects.documents import Reader, drafted, revision, text_digest
from rag_context.projects.listing import Catalogues, DocumentList
from rag_context.projects.paths import SUFFIXES, relative_path
from rag_context.projects.records import ProjectDocument

CONCURRENCY = 5
MAX_KIN = 3
"""Other tenants asked for vectors; those that were written to last know best."""

_NO_DOCUMENT = re.compile(r"(?:.*requirements.*|constraints.*|cmakelists|robots)\.txt", re.IGNORECASE)
"""Text files that are for programs."""

_LABELS = Labels(content_type=DOCUMENTATION)


class FileOutcome(StrEnum):
    """What became of a file."""

    INDEXED = "indexed"
    REPLACED = "replaced"
    RENAMED = "renamed"
    UNCHANGED = "unchanged"
    DEFERRED = "deferred"
    """Stored and found by text; its vectors follow."""
    REJECTED = "rejected"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class FileReceipt:
    """What became of one file, by its path relative to the docs folder, and what is to be said about it."""

    path: str
    outcome: FileOutcome
    document_id: str | None = None
    reason: str | None = None
    renamed_from: str | None = None
    warnings: tuple[str, ...] = ()
    again: bool = False
    """Whether it may go better another time."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """One receipt per file."""

    receipts: tuple[FileReceipt, ...] = ()

    @property
    def counts(self) -> Mapping[FileOutcome, int]:
        """Number of files by outcome."""
        return Counter(receipt.outcome for receipt in self.receipts)

    @property
    def changed(self) -> tuple[FileReceipt, ...]:
        """The files that are not as they were."""
        return tuple(each for each in self.receipts if each.outcome is not FileOutcome.UNCHANGED)

    @property
    def incomplete(self) -> bool:
        """Whether some of it should be tried again."""
        return any(receipt.again for receipt in self.receipts)


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """How far a reconciliation is, in files that had to be indexed or taken out."""

    done: int
    total: int
    receipt: FileReceipt | None = None


Progress = Callable[[SyncProgress], None]


def no_progress(_progress: SyncProgress) -> None:
    """For those who do not want to know."""


class Scope(Protocol):
    """Which files of a docs folder are documents, by path relative to it."""

    def __call__(self, path: str) -> bool: ...


def is_document(path: str) -> bool:
    """Every Markdown, reStructuredText, AsciiDoc and plain text file; what else lies there is not looked at."""
    file = PurePosixPath(path)
    return file.suffix.lower() in SUFFIXES and _NO_DOCUMENT.fullmatch(file.name) is None


def patterns(include: Sequence[str], exclude: Sequence[str]) -> Scope:
    """The files that match one of the first and none of the second patterns, which are those of `.gitignore`.

    Raises:
        ValueError: a pattern means nothing.
    """
    included, excluded = path_patterns(include), path_patterns(exclude)
    return lambda path: included.match_file(path) and not excluded.match_file(path)


@dataclass(slots=True)
class _Scan:
    """What a look at the files found: revisions by path, what could not be used, and what could not be seen."""

    revisions: dict[str, str] = field(default_factory=dict)
    rejected: list[FileReceipt] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done: paths to index with the documents that lend them vectors, and documents to take out."""

    unchanged: tuple[ProjectDocument, ...]
    index: Mapping[str, tuple[ProjectDocument, ...]]
    remove: tuple[ProjectDocument, ...]


class Synchroniser:
    """Keeps the documents of one tenant as the files of one folder are.

    Args:
        reader: reads the files, and says whose they are.
        indexer: takes documents in and out.
        catalogues: tells what is there.
        kin: other tenants that may hold the same files, such as other branches and clones; they lend vectors.
        scope: which files are documents.
        max_bytes: size above which a file is rejected.
    """

    def __init__(
        self,
        reader: Reader,
        indexer: Indexer,
        catalogues: Catalogues,
        *,
        kin: Sequence[Tenant] = (),
        scope: Scope = is_document,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self.reader = reader
        self._indexer = indexer
        self._catalogues = catalogues
        self._kin = tuple(kin)[-MAX_KIN:]
        self._scope = scope
        self._max_bytes = max_bytes
        self._lock = asyncio.Lock()

    async def reconcile(self, progress: Progress = no_progress) -> SyncReport:
        """Compare every file with the index, and bring the index up to them.

        One bad file stops nothing. Documents whose folder cannot be seen now stay.

        Raises:
            BackendError: it cannot be read what is indexed; nothing has changed.
        """
        return await self._bring_up(None, progress)

    async def follow(self, paths: Collection[Path], progress: Progress = no_progress) -> SyncReport:
        """The same for what may have changed: files, or folders with all that is in them. Raises: BackendError."""
        root = self.reader.docs_root
        places = outermost([path for path in paths if path.is_relative_to(root)])
        if root in places:
            return await self.reconcile(progress)
        return await self._bring_up(frozenset(relative_path(root, path) for path in places), progress)

    async def index(self, path: str) -> FileReceipt:
        """Index one file, even if it is unchanged. Raises: BackendError."""
        async with self._lock:
            scan = await asyncio.to_thread(self._scanned, frozenset({path}))
            if path in scan.revisions:
                return await self._index(path, (), await self._lent({path: scan.revisions[path]}))
            left_out = FileReceipt(path, FileOutcome.REJECTED, reason="ignore files or patterns leave it out")
            return next((receipt for receipt in scan.rejected if receipt.path == path), left_out)

    async def _bring_up(self, changed: frozenset[str] | None, progress: Progress) -> SyncReport:
        async with self._lock:
            catalogue = await self._catalogues.of(self.reader.tenant)
            scan = await asyncio.to_thread(self._scanned, changed)
            plan = _planned(catalogue, scan, changed)
            receipts = [*(_unchanged(document) for document in plan.unchanged), *scan.rejected]
            receipts += await self._indexed(plan, scan.revisions, progress)
            receipts += await self._removed(plan, progress, frozenset(_renamed(receipts)))
            return SyncReport(tuple(sorted(receipts, key=lambda receipt: receipt.path)))

    async def _lent(self, revisions: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
        """By path, the ids of other tenants' documents that probably hold the same text, and so lend its vectors."""
        try:
            kin = [await self._catalogues.of(tenant) for tenant in self._kin] if revisions else []
        except BackendError:
            return {}  # to embed again what another tenant has is only slower
        return {
            path: tuple(found.id for each in kin if (found := _likely(each, path, digest)) is not None)
            for path, digest in revisions.items()
        }

    async def _indexed(self, plan: _Plan, revisions: Mapping[str, str], progress: Progress) -> list[FileReceipt]:
        waiting = iter(plan.index.items())
        receipts: list[FileReceipt] = []
        total = len(plan.index) + len(plan.remove)
        lent = await self._lent({path: revisions[path] for path in plan.index})

        async def work() -> None:
            for path, lenders in waiting:
                receipt = await self._settled(path, lenders, lent)
                receipts.append(receipt)
                progress(SyncProgress(len(receipts), total, receipt))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(CONCURRENCY, len(plan.index))):
                group.create_task(work())
        return receipts

    async def _settled(
        self, path: str, lenders: Sequence[ProjectDocument], lent: Mapping[str, tuple[str, ...]]
    ) -> FileReceipt:
        try:
            return await self._index(path, lenders, lent)
        except BackendError as error:
            return FileReceipt(path, FileOutcome.REJECTED, reason=f"could not be stored: {error}", again=True)

    async def _index(
        self, path: str, lenders: Sequence[ProjectDocument], lent: Mapping[str, tuple[str, ...]]
    ) -> FileReceipt:
        file = await asyncio.to_thread(self._read, path)
        if isinstance(file, Rejected):
            return _rejection(path, file)
        read = await asyncio.to_thread(drafted, file.draft, path, self.reader, self._rules)
        try:
            receipt = await self._indexer.index(
                read.draft, reuse_from=[*(each.id for each in lenders), *lent.get(path, ())]
            )
        except InvalidInputError as error:
            return FileReceipt(path, FileOutcome.REJECTED, reason=str(error), warnings=read.warnings)
        digest = revision(file.draft.content, self._rules)
        text = text_digest(digest)
        renamed_from = next((lender.path for lender in lenders if text_digest(lender.revision) == text), None)
        return _receipt(path, receipt, read.warnings, renamed_from)

    async def _removed(self, plan: _Plan, progress: Progress, renamed: frozenset[str]) -> list[FileReceipt]:
        """Take out what is gone. What a renamed file lent its vectors to has said so already."""
        receipts: list[FileReceipt] = []
        for i, document in enumerate(plan.remove):
            try:
                await self._indexer.remove(document.id)
            except BackendError as error:
                reason = f"could not be taken out: {error}"
                receipt = FileReceipt(document.path, FileOutcome.REJECTED, document.id, reason, again=True)
            else:
                receipt = FileReceipt(document.path, FileOutcome.REMOVED, document.id)
            if receipt.outcome is FileOutcome.REJECTED or document.path not in renamed:
                receipts.append(receipt)
            progress(SyncProgress(len(plan.index) + i + 1, len(plan.index) + len(plan.remove), receipt))
        return receipts

    @cached_property
    def _rules(self) -> str:
        return self.reader.rules

    def _read(self, path: str) -> FileDraft | Rejected:
        return read_file(Found(self.reader.docs_root / path, named=True), _LABELS, max_bytes=self._max_bytes)

    def _scanned(self, changed: frozenset[str] | None) -> _Scan:
        """Read the files, or those of them that changed."""
        scan = _Scan()
        root = self.reader.docs_root
        places = walk(Root(root)) if changed is None else find_changed(root, [root / path for path in changed])
        for found in places:
            if isinstance(found, Rejected):
                self._note(found, scan)
                continue
            path = relative_path(root, found.path)
            if not self._scope(path):
                continue
            file = read_file(found, _LABELS, max_bytes=self._max_bytes)
            if isinstance(file, FileDraft):
                scan.revisions[path] = revision(file.draft.content, self._rules)
            else:
                scan.rejected.append(_rejection(path, file))
                scan.unseen += [path] if file.unknown else []
        return scan

    def _note(self, found: Rejected, scan: _Scan) -> None:
        """Something that the walk could not use: a folder that cannot be read, a link, or the root itself."""
        root = printable(self.reader.docs_root)
        path = found.path.removeprefix(root).lstrip("/\\") or "."
        if found.unknown or path == ".":
            scan.unseen.append(path)
        if found.unknown or self._scope(path):
            scan.rejected.append(_rejection(path, found))


def _planned(catalogue: DocumentList, scan: _Scan, changed: frozenset[str] | None) -> _Plan:
    known = [document for document in catalogue.documents if _concerns(document.path, changed)]
    kept = {document.path for document in known if document.path in scan.revisions}
    gone = [each for each in known if each.path not in kept and not _below(each.path, scan.unseen)]
    unchanged = [each for each in known if each.revision == scan.revisions.get(each.path)]
    current = {each.path for each in unchanged}
    lenders = _Lenders(gone)
    index = {
        path: () if path in kept else lenders.of(path, digest)
        for path, digest in scan.revisions.items()
        if path not in current
    }
    return _Plan(tuple(unchanged), index, tuple(gone))


def _likely(catalogue: DocumentList, path: str, revision_: str) -> ProjectDocument | None:
    """The document of another tenant that holds the same text, else the one at the same path."""
    return catalogue.by_text(text_digest(revision_)) or catalogue.by_path(path)


class _Lenders:
    """Documents that went away and may have been a file that came: they held the same, or bore the same name."""

    def __init__(self, gone: Sequence[ProjectDocument]) -> None:
        self._by_text = {text_digest(each.revision): each for each in reversed(gone)}
        self._by_name = {PurePosixPath(each.path).name: each for each in reversed(gone)}

    def of(self, path: str, digest: str) -> tuple[ProjectDocument, ...]:
        """The one that this file was, or else is likely to have been, if any."""
        lender = self._by_text.get(text_digest(digest)) or self._by_name.get(PurePosixPath(path).name)
        return () if lender is None else (lender,)


def _concerns(path: str, changed: frozenset[str] | None) -> bool:
    """Whether a path, or a folder above it, is among those that changed."""
    return changed is None or path in changed or _below(path, changed)


def _below(path: str, places: Collection[str]) -> bool:
    if not places:
        return False
    return "." in places or path in places or any(parent.as_posix() in places for parent in PurePosixPath(path).parents)


def _renamed(receipts: Iterable[FileReceipt]) -> Iterator[str]:
    return (receipt.renamed_from for receipt in receipts if receipt.renamed_from is not None)


def _unchanged(document: ProjectDocument) -> FileReceipt:
    return FileReceipt(document.path, FileOutcome.UNCHANGED, document.id, warnings=document.warnings)


def _rejection(path: str, rejected: Rejected) -> FileReceipt:
    return FileReceipt(path, FileOutcome.REJECTED, reason=rejected.reason, again=rejected.unknown)


def _receipt(path: str, receipt: Receipt, warnings: tuple[str, ...], renamed_from: str | None) -> FileReceipt:
    outcome = {
        Outcome.INDEXED: FileOutcome.INDEXED,
        Outcome.REPLACED: FileOutcome.REPLACED,
        Outcome.UNCHANGED: FileOutcome.UNCHANGED,
        Outcome.PENDING: FileOutcome.DEFERRED,
    }[receipt.outcome]
    if renamed_from is not None and outcome is FileOutcome.INDEXED:
        outcome = FileOutcome.RENAMED
    said = FileReceipt(path, outcome, receipt.document_id, receipt.warning, renamed_from, warnings)
    return dataclasses.replace(said, reason=receipt.warning)

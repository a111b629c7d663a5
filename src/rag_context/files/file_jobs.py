"""Turns files into documents to send, and the receipts of those into entries of the file manifest.

A file is recorded as read only after every document in it was acknowledged. The ids of its documents are recorded
before they are sent: at whatever moment a run ends, the manifest has the file of every document in the index.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path

from rag_context.api import parsing, verbs, wire
from rag_context.api.index import BulkLine, BulkReceipt, FileReceipt
from rag_context.domain.documents import DocumentInput, FileDocument, FileEntry, Origin, document_id
from rag_context.errors import InvalidInputError
from rag_context.files import commits, file_reading, sending
from rag_context.files.formats.converter import Converter
from rag_context.files.generated import Generated
from rag_context.ports.writing import FileManifest

EMBEDDED_CHARS, COUNTED_CHARS = 100_000, 1_000
"""Characters of a run's new documents that are embedded as they are stored; a document counts as so many at least. The
others are deferred, so that keyword search soon finds everything: storing takes little of the time of embedding."""

_TWINS = 8
"""How many files with the same content are checked for one that was renamed."""


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """How files are read and labelled. `key` identifies all settings that change the resulting documents."""

    labels: file_reading.Labels
    max_bytes: int
    key: bytes
    generated: Generated = field(default_factory=Generated)
    """Which files are left out because they are generated."""
    project_of: Callable[[Path], str | None] = lambda _folder: None
    """The tag of the project that the files of a folder belong to; none: they are general."""

    def labels_of(self, path: Path) -> file_reading.Labels:
        labels = self.labels
        tags = verbs.with_workspace(labels.metadata.tags, self.project_of(path.parent))
        return replace(labels, metadata=replace(labels.metadata, tags=tuple(tags)))


@dataclass(frozen=True, slots=True)
class Todo:
    """A file to read. `is_complete`: all documents of its last version are stored unchanged."""

    found: file_reading.Found
    entry: FileEntry | None
    is_complete: bool


@dataclass(slots=True)
class OpenFile:
    loaded: file_reading.LoadedFile
    entry: FileEntry | None
    twin: FileEntry | None
    sent: list[FileDocument] = field(default_factory=list)
    kept: list[FileDocument] = field(default_factory=list)
    rejected: int = 0
    is_read: bool = False
    """All documents in it were read."""
    is_broken: bool = False
    """There may be more documents in it than were read."""
    is_unknown: bool = False
    """It is unknown which other documents are in it."""

    @property
    def path(self) -> str:
        return self.loaded.path.as_posix()

    @property
    def is_done(self) -> bool:
        return self.is_read and len(self.kept) + self.rejected == len(self.sent)

    @property
    def old(self) -> tuple[FileDocument, ...]:
        """Documents of its earlier version."""
        return self.entry.documents if self.entry is not None else ()

    @property
    def former_path(self) -> str | None:
        return self.twin.path if self.twin is not None and not os.path.lexists(self.twin.path) else None

    def former_ids(self, source: str) -> list[str] | None:
        """The id of the document at the same position in the file under its earlier name."""
        if self.twin is None:
            return None
        part = source[len(self.path) :]
        return [each.id for each in self.twin.documents if each.source == self.twin.path + part] or None

    def manifest_entry(self, settings_hash: bytes, documents: Sequence[FileDocument], *, digest: bytes) -> FileEntry:
        loaded = self.loaded
        return FileEntry(self.path, loaded.stamp, loaded.read_ns, digest, settings_hash, loaded.named, tuple(documents))


@dataclass(eq=False)
class FileJobs:
    manifest: FileManifest
    settings: ReadingSettings
    converter: Converter
    _: KW_ONLY
    call_soon: Callable[[Callable[[], None]], object]
    on_receipt: Callable[[FileReceipt], None]

    def __post_init__(self) -> None:
        self._touched: dict[str, OpenFile] = {}
        self._new_chars = 0
        self._times = commits.FileTimes()
        self.finished: list[FileEntry] = []
        """Entries for the manifest."""
        self.forgotten: list[str] = []
        """Files without a document."""
        self.replaced: list[FileDocument] = []
        """Documents that are no longer in their file, which has others."""
        self.lost: list[FileEntry] = []
        """Files that exist and have no documents any more."""
        self.to_retry: set[Path] = set()
        """Files that were rejected for a temporary reason."""

    def batches(self, todo: Sequence[Todo]) -> Iterator[list[sending.Job]]:
        """Jobs for all documents in some files; their ids are recorded before a batch is sent."""
        # `_jobs` is a generator: when a batch is complete, the files that it touched are known and nothing is sent yet.
        for batch in sending.batched(self._jobs(todo)):
            self._announce()
            yield batch

    def reject(self, rejected: file_reading.Rejected, entry: FileEntry | None = None) -> None:
        if entry is not None and not rejected.unknown:
            self.lost.append(entry)
        self.on_receipt(
            FileReceipt(status="rejected", source=rejected.path, reason=rejected.reason, is_skipped=not rejected.failed)
        )

    def unchanged(self, entry: FileEntry) -> None:
        for each in entry.documents:
            self.on_receipt(
                FileReceipt(status="unchanged", source=each.source, document_id=each.id, content_hash=each.content_hash)
            )

    def _jobs(self, todo: Sequence[Todo]) -> Iterator[sending.Job]:
        for each in todo:
            loaded = self._load(each.found)
            if isinstance(loaded, file_reading.Rejected):
                self.call_soon(partial(self.reject, loaded, each.entry))
            elif each.entry is not None and each.is_complete and loaded.digest == each.entry.digest:
                self.call_soon(partial(self._record_unchanged, each.entry, loaded))
            else:
                yield from self._documents(OpenFile(loaded, each.entry, self._twin(loaded)))

    def _load(self, found: file_reading.Found) -> file_reading.LoadedFile | file_reading.Rejected:
        # Before it is opened: lock files and bundles can be very large.
        if not found.named and (reason := self.settings.generated.name(found.path)):
            return file_reading.Rejected(file_reading.printable(found.path), reason, failed=False)
        return file_reading.load_file(found, max_bytes=self.settings.max_bytes)

    def _record_unchanged(self, entry: FileEntry, loaded: file_reading.LoadedFile) -> None:
        # The same content with a new stamp: with that recorded, the next run need not read the file.
        self.finished.append(replace(entry, stamp=loaded.stamp, read_ns=loaded.read_ns))
        self.unchanged(entry)

    def _twin(self, loaded: file_reading.LoadedFile) -> FileEntry | None:
        """Another file that had the same content when it was read last."""
        path = loaded.path.as_posix()
        # A file of the same content: this one was renamed if the other is gone, else copied. Its vectors are reused.
        twins = [twin for twin in self.manifest.with_digest(loaded.digest, _TWINS) if twin.path != path]
        return next((twin for twin in twins if not os.path.lexists(twin.path)), next(iter(twins), None))

    def _documents(self, file: OpenFile) -> Iterator[sending.Job]:
        for item in self._inputs(file.loaded):
            made = item if isinstance(item, file_reading.Rejected) else self._line(item.document, file)
            if isinstance(item, file_reading.Rejected) or isinstance(made, file_reading.Rejected):
                self.call_soon(partial(self._reject_document, made, file))
                continue
            file.sent.append(FileDocument(item.document.source, document_id(item.document)))
            self._touched[file.path] = file
            yield sending.Job(made, partial(self._done, file, item))
        # On the event loop, as the receipts: `kept`, `rejected` and `is_read` need no lock.
        self.call_soon(partial(self._read, file))

    def _line(self, document: DocumentInput, file: OpenFile) -> BulkLine | file_reading.Rejected:
        return bulk_line(document, like=file.former_ids(document.source), defer=self._defers(document, file))

    def _defers(self, document: DocumentInput, file: OpenFile) -> bool:
        """Whether the vectors of the file's next document are deferred; counts those of new files."""
        if file.entry is not None or file.twin is not None:
            return False  # much of its text may have vectors already
        self._new_chars += max(len(document.content), COUNTED_CHARS)
        return self._new_chars > EMBEDDED_CHARS

    def _inputs(self, loaded: file_reading.LoadedFile) -> Iterator[file_reading.FileInput | file_reading.Rejected]:
        labels = self.settings.labels_of(loaded.path)
        if loaded.format is None:
            return iter([file_reading.text_input(loaded, labels, self.settings.generated, self._times.of)])
        found = file_reading.converted_inputs(loaded, loaded.format, self.converter, labels, self._times.of)
        return (
            self._from_elsewhere(item, loaded) if isinstance(item, file_reading.FileInput) else item for item in found
        )

    def _from_elsewhere(self, item: file_reading.FileInput, loaded: file_reading.LoadedFile) -> file_reading.FileInput:
        """A conversation that came with a repository was recorded by another person, whatever it looks like."""
        if item.document.origin is not Origin.OWNER or not self._times.is_committed(loaded.path):
            return item
        return replace(item, document=replace(item.document, origin=Origin.DOCUMENT))

    def _announce(self) -> None:
        entries = []
        for file in self._touched.values():
            new = {each.id for each in file.sent}
            documents = [*file.sent, *(each for each in file.old if each.id not in new)]
            # No file has an empty digest: should this run end here, the next one reads the file again.
            entries.append(file.manifest_entry(self.settings.key, documents, digest=b""))
        self._touched.clear()
        self.manifest.put(entries)

    def _reject_document(self, made: BulkLine | file_reading.Rejected, file: OpenFile) -> None:
        if isinstance(made, file_reading.Rejected):
            file.is_broken = True
            file.is_unknown |= made.unknown
            self.reject(made)

    def _done(self, file: OpenFile, item: file_reading.FileInput, receipt: BulkReceipt) -> None:
        source = item.document.source
        if receipt.status == "rejected":
            file.rejected += 1
            if receipt.retryable:
                self.to_retry.add(file.loaded.path)
        else:
            file.kept.append(FileDocument(source, receipt.document_id or "", receipt.content_hash or ""))
        former = file.former_path if receipt.status in {"indexed", "deferred"} else None
        fields = receipt.model_copy(update={"line": None, "source": receipt.source or source}).model_dump()
        self.on_receipt(
            FileReceipt(
                **fields,
                renamed_from=former,
                content_type=item.document.content_type,
                left_out=dict(item.left_out) or None,
            )
        )
        if file.is_done:
            self._finish(file)

    def _read(self, file: OpenFile) -> None:
        file.is_read = True
        if not file.sent and file.entry is not None and not file.is_unknown:
            self.lost.append(file.entry)
        if file.sent and file.is_done:
            self._finish(file)

    def _finish(self, file: OpenFile) -> None:
        kept = {each.id for each in file.kept}
        stale = [each for each in file.old if each.id not in kept]
        if file.rejected or file.is_broken:
            # Nothing is removed: the documents that are missing in this version may be among those that failed.
            if documents := [*file.kept, *stale]:
                self.finished.append(file.manifest_entry(self.settings.key, documents, digest=b""))
            else:
                self.forgotten.append(file.path)
            return
        self.replaced += stale
        self.finished.append(file.manifest_entry(self.settings.key, file.kept, digest=file.loaded.digest))


def bulk_line(
    document: DocumentInput, *, like: Sequence[str] | None = None, defer: bool
) -> BulkLine | file_reading.Rejected:
    """A document of a file as it is sent: `like` are documents with much of its text, `defer` its vectors."""
    fields = {
        "content": document.content,
        "contentType": document.content_type,
        "sessionId": document.session_id,
        "source": document.source,
        "fromFile": True,
        "occurredAt": document.occurred_at,
        "messageTimes": [{"start": each.start, "at": each.at} for each in document.message_times] or None,
        "metadata": wire.metadata_json(document.metadata),
        "like": like,
        "deferVectors": defer,
        "origin": document.origin.value if document.origin is not None else None,
    }
    try:
        return parsing.read_fields(BulkLine, fields)
    except InvalidInputError as error:
        return file_reading.Rejected(file_reading.printable(Path(document.source)), str(error))

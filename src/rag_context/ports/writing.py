"""Ports of the write path, where one store holds everything or two share no transaction; and those of maintenance.

Maintenance: which model made an index, rebuilding, checking, and records of files, projects and what agents were shown.
And what every store requires of vectors before it stores or searches them (`component` is what an error names).
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from rag_context.domain.documents import Chunk, Document, FileEntry, ProjectRecord, Shelf, StoredVectors, Tenant
from rag_context.domain.journal import PLAIN, Action, Change, Entry, History, Link, Revision, Selection, Size, Tombstone
from rag_context.domain.reports import Injection, IntegrityReport, IssueKind, Thoroughness
from rag_context.domain.vectors import EmbeddingModel, Matrix, Rebuild
from rag_context.errors import BackendRejectedError, IndexMismatchError


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a document to store, with all its chunks."""

    document: Document
    chunks: Sequence[Chunk]
    vectors: Matrix | None = None
    """`(len(chunks), dim) float32`; None stores it as pending."""
    made_by: str | None = None
    """Fingerprint of the model that made the vectors, which must be the index's; None is not checked."""
    revision: Revision = PLAIN
    terms: Sequence[tuple[int, bytes]] | None = None
    """Of each chunk, as `text.packed_terms` makes them of its terms, where they are known; else the store does."""


class IndexWriter(Protocol):
    """Writes documents with their vectors: after a call returns, what it wrote survives the end of the process.

    `made_by` is the fingerprint of the model that made the vectors. Where the index records another one by now,
    they are rejected (BackendRejectedError) and nothing changes; None skips this check.
    """

    async def write(self, version: Version) -> bool:
        """Store a document in place of its earlier version; one of the two is found at any time.

        Returns whether its vectors are stored too. Without vectors, or where they cannot be stored now, the document
        is pending: keyword search finds it, `attach` adds its vectors later.
        """

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        """As `write` for versions of different documents: what it returns or raises for each of them by itself."""

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        """Add the vectors of a pending document; False where it was changed or deleted meanwhile."""

    async def rechunk(self, version: Version) -> bool:
        """Put other chunks in place of those of this version; False where it was changed or deleted meanwhile."""

    async def delete(self, document_id: str) -> bool: ...


async def written_in_turn(versions: Sequence[Version], writer: IndexWriter) -> list[bool | Exception]:
    """`IndexWriter.write_all` for a store that has no cheaper way: one version after the other."""
    results: list[bool | Exception] = []
    for each in versions:
        try:
            results.append(await writer.write(each))
        except Exception as error:  # noqa: BLE001  (it belongs to this version)
            results.append(error)
    return results


class Journal(Protocol):
    """The changes of an index, each recorded in the transaction that made it; and moves of documents between shelves.

    What `IndexWriter` stores and deletes is recorded too, without a call of this port.
    """

    async def entries(
        self, tenant: Tenant, *, before: int | None, limit: int, action: Action | None = None
    ) -> list[Entry]:
        """The entries about a tenant, newest first; those before a sequence, and those of one action."""

    async def entry(self, sequence: int) -> Entry | None: ...

    async def links(self, document_ids: Collection[str]) -> dict[str, Link]:
        """Where documents are, by id, of all tenants and shelves; unknown ones are left out."""

    async def chain(self, document_id: str, tenant: Tenant) -> list[Link]:
        """The versions that corrections have made of a document, oldest first, and those that took its place."""

    async def make(self, change: Change) -> Entry:
        """Make all moves of a change, or none. Raises: ConflictError (a document is not where it was)."""

    async def selected(
        self, tenant: Tenant, selection: Selection, shelves: Collection[Shelf | None], limit: int
    ) -> list[Link]:
        """The documents on these shelves that are selected, oldest first, with their earlier versions."""

    async def sizes(self, document_ids: Sequence[str]) -> dict[str, Size]:
        """What is stored of these documents, by the name of the store."""

    async def forgotten(self, documents: Mapping[str, str | None]) -> set[str]:
        """Which of these documents were forgotten: their ids, each with its `content_key`."""

    async def tombstones(self, after: str, limit: int) -> list[Tombstone]:
        """What was forgotten, by identity; those after one."""

    async def recorded(self, after: int, limit: int) -> list[Entry]:
        """The entries about all tenants, oldest first; those after a sequence."""

    async def take_over(self, history: History, sequences: dict[int, int]) -> None:
        """Add what another index recorded, links of documents here alone; what is here already stays as it is.

        `sequences`: by the sequence of an entry there, its sequence here. Later calls need those of earlier ones.
        """

    async def due(
        self, now: datetime, kept_since: Mapping[str, datetime], trashed_before: datetime, limit: int
    ) -> list[Link]:
        """Documents that have expired, and those in the trash that were put there before a moment; `limit` of either.

        `kept_since`: by content type, when those that are kept longest were indexed. Pinned ones do not expire.
        """


class PendingClaims(Protocol):
    """Shares pending documents out among the servers of one index, so that none is embedded by two of them."""

    def claimed(self, document_id: str) -> AbstractAsyncContextManager[bool]:
        """Claim a document for the block; the value is False where another server has it."""


class DocumentWriter(Protocol):
    """Writes documents, pending from `put` to `mark_indexed`, durably, where another store keeps the vectors."""

    async def put(self, document: Document, chunks: Sequence[Chunk], revision: Revision = PLAIN) -> None:
        """Store a document, pending, in place of its earlier version; keyword search finds it from now on."""

    async def rechunk(self, version: Version) -> bool:
        """Put other chunks in place of this version's, pending; False where it was changed or deleted meanwhile."""

    async def mark_indexed(self, document_id: str, content_hash: str, made_by: str | None = None) -> bool:
        """Record that a version's vectors are stored; False if it was changed. Raises: BackendRejectedError."""

    async def mark_pending(self, document_ids: Collection[str]) -> None:
        """Make these documents pending again, because their vectors are missing or wrong."""

    async def delete(self, document_id: str) -> bool: ...


class VectorWriter(Protocol):
    """Writes vectors where another store keeps the documents. Every call may be repeated."""

    async def prepare(self, model: EmbeddingModel) -> None:
        """Create the storage for a model's vectors if missing. Raises: BackendRejectedError (another dimension)."""

    async def put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> None:
        """Store the vectors of a document; those of earlier versions are deleted after the new ones are found."""

    async def discard(self, document_ids: Collection[str]) -> None:
        """Delete the vectors of these documents."""

    async def stored_vectors(self, document_ids: Collection[str]) -> dict[str, StoredVectors]:
        """The stored vectors of these documents (chunk ids and revisions); documents without any are left out."""

    def stored_documents(self) -> AsyncIterator[str]:
        """The ids of all documents that have vectors, each at least once."""

    async def count(self) -> int:
        """The number of stored vectors."""

    async def clear(self) -> None:
        """Delete all vectors."""


DocumentCheck: TypeAlias = Callable[[Document, Sequence[Chunk]], Iterable[IssueKind]]
"""Returns what is wrong with a document and its chunks (ordered by position)."""


class ModelRegistry(Protocol):
    async def recorded_model(self) -> EmbeddingModel | None: ...

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Record the model of an index that has none, or no vectors. Raises: IndexMismatchError."""

    async def drop_vectors(self) -> int:
        """Delete all vectors and the record of their model; every document becomes pending. Returns how many."""


WholeDocument: TypeAlias = tuple[Document, Sequence[Chunk], Matrix | None]
"""A document with all its chunks, and their vectors (`(n, dim) float32`) where it has them."""


class BulkLoad(Protocol):
    async def write_new(self, documents: Sequence[WholeDocument], made_by: str | None) -> list[str]:
        """Store those of these documents that the index does not have, in their order and in one transaction.

        Their ids are distinct; those without vectors are pending. `made_by`: fingerprint of the vectors' model, which
        must be the index's. Returns the ids of the stored ones. Raises: BackendRejectedError (one cannot be stored;
        nothing was).
        """

    def loading(self, on_progress: Callable[[float], None]) -> AbstractAsyncContextManager[None]:
        """Build no index while the block runs, and the due ones at its end, if it did not fail.

        `on_progress` is called with the share of the vectors that are in their index. Raises: BackendError (an index
        could not be built; what was loaded is stored and found all the same).
        """


class VectorRebuilder(Protocol):
    """Builds the vectors of another model beside those in use, and switches to them once they are complete.

    A run survives the end of the process. A document that is written meanwhile needs new vectors again; one that is
    deleted loses both.
    """

    async def under_way(self) -> Rebuild | None:
        """The run that has begun and is not complete."""

    async def begin(self, model: EmbeddingModel) -> bool:
        """Begin a run for `model` in place of another model's; False where another process began one of this model."""

    async def missing(self, after: str, limit: int) -> list[str]:
        """Ids, ascending, of documents after the id `after` ("" for the first) that have no new vectors yet."""

    async def remaining(self) -> int:
        """How many documents have no new vectors yet."""

    async def add(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str) -> bool:
        """Store the new vectors of this version of a document; False where it was changed or deleted meanwhile."""

    async def switch(self, made_by: str, without: Collection[str]) -> bool:
        """Replace the old vectors and their model by the new ones; False where too many new ones are missing.

        Documents without new vectors become pending. Those in `without` cannot have any and do not delay the switch.
        """

    async def abandon(self) -> None:
        """Delete the run under way and its vectors."""


class IndexAuditor(Protocol):
    async def examine(self, check: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        """Examine the index at one moment; every document goes to `check`.

        Raises: ForeignIndexError, BackendDataError.
        """

    async def repair(self, kinds: Collection[IssueKind]) -> None:
        """Repair what the store can by itself; documents with wrong vectors become pending, valid data stays."""

    async def invalidate(self, document_ids: Collection[str]) -> None:
        """Clear the content hash of these documents, so that indexing their sources again replaces them."""


class FileManifest(Protocol):
    """Records the result of reading each file of this machine. Called from threads, one call at a time."""

    def entries(self, paths: Collection[str]) -> dict[str, FileEntry]:
        """The entries of the given files, by path."""

    def below(self, path: str) -> Iterator[FileEntry]:
        """The entry of a file, or the entries of all files below a folder, by path."""

    def with_digest(self, digest: bytes, limit: int) -> list[FileEntry]:
        """Some files that had this content when they were last read."""

    def put(self, entries: Collection[FileEntry]) -> None: ...

    def forget(self, paths: Collection[str]) -> None: ...


class HistoryManifest(FileManifest, Protocol):
    """Records the sessions of agents too, and which of them holds each message: a fork copies those before it."""

    def holders(self, keys: Collection[str]) -> dict[str, tuple[str, str]]:
        """The session that holds each message, and the path of its entry, by the message's key."""

    def claim(self, session: str, path: str, keys: Collection[str]) -> None:
        """Let a session hold those messages that no other one holds, whichever process is first."""

    def release(self, paths: Collection[str]) -> None:
        """Let the sessions at some paths hold nothing."""


class ProjectRegistry(Protocol):
    """Records the projects of files that this machine works on, for all its processes.

    Called from threads. Nothing is raised: what cannot be written is logged, and lost when the process ends.
    """

    def records(self) -> list[ProjectRecord]:
        """All projects, the most recently used first."""

    def has(self, tenant: Tenant) -> bool | None:
        """Whether a project is recorded; None where that cannot be read."""

    def put(self, record: ProjectRecord) -> None:
        """Record a project, in place of the earlier record of its tenant."""

    def note_used(self, times: Mapping[Tenant, datetime]) -> None: ...

    def note_gone(self, tenant: Tenant, since: datetime | None) -> None:
        """Record since when a project's files or branch are missing; None: they exist."""

    def forget(self, tenants: Collection[Tenant]) -> None: ...


class InjectionLog(Protocol):
    """What agents on this machine were shown unasked, and what was withheld. Nothing raises; what fails is logged."""

    def add(self, injections: Iterable[Injection]) -> None: ...

    def remembered(self, session_id: str) -> list[Injection]:
        """What a session was shown or not shown since its context was emptied last, oldest first."""

    def tokens(self, session_id: str) -> int:
        """What a session was shown in all."""

    def forget(self, session_id: str) -> None:
        """Let a session be shown again what it was shown: its context was emptied."""

    def latest(self, session_id: str | None, limit: int) -> list[Injection]:
        """The last records of a session, or of all, newest first."""

    def prune(self, before: datetime) -> None: ...


NORM_TOLERANCE = 1e-3
"""How far a stored vector's length may be from 1; float32 rounding of 384 squares is a thousand times less."""

STRAGGLERS = 0.01
"""Up to this share of the documents may be without new vectors at the switch; they are embedded afterwards."""


def require_comparable(recorded: EmbeddingModel, model: EmbeddingModel) -> None:
    """Check that vectors of a model can be compared with the recorded one's. Raises: IndexMismatchError."""
    if not recorded.is_comparable(model):
        raise IndexMismatchError(
            f"The index was made by {recorded.name!r} ({recorded.dimension} dimensions), not by {model.name!r}"
            f" ({model.dimension}); run `rag-context reindex`."
        )


def require_model(component: str, recorded: str | None, made_by: str | None) -> None:
    """Check that vectors (fingerprint `made_by`) are of the index's `recorded` model. Raises: BackendRejectedError."""
    if made_by is not None and made_by != recorded:
        raise BackendRejectedError(
            component, "The vectors were made by another model than the index's; embed the document again."
        )


def require_shape(component: str, vectors: Matrix, chunks: int, dimension: int | None = None) -> None:
    """Check that each chunk has a vector, of the index's dimension if it has one. Raises: BackendRejectedError."""
    if len(vectors) != chunks:
        raise BackendRejectedError(component, f"{len(vectors)} vectors were submitted for {chunks} chunks.")
    if dimension is not None and chunks and vectors.shape[1] != dimension:
        raise BackendRejectedError(
            component, f"The vectors have dimension {vectors.shape[1]}, the index has {dimension}; run a reindex."
        )


def no_rebuild(component: str) -> BackendRejectedError:
    return BackendRejectedError(
        component, "No reindexing with this model is under way; start one with `rag-context reindex`."
    )


def can_switch(missing: Collection[str], without: Collection[str], documents: int) -> bool:
    """Whether a rebuild may end, although documents are `missing` new vectors; those in `without` cannot have any."""
    return len(set(missing) - set(without)) <= STRAGGLERS * documents

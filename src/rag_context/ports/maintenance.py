"""Ports of maintenance: which model made an index, rebuilding, checking, and records of files and projects."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, TypeAlias

from rag_context.domain.documents import Chunk, Document, FileEntry, ProjectRecord, Tenant
from rag_context.domain.reports import IntegrityReport, IssueKind, Thoroughness
from rag_context.domain.vectors import EmbeddingModel, Matrix, Rebuild
from rag_context.errors import IndexMismatchError

DocumentCheck: TypeAlias = Callable[[Document, Sequence[Chunk]], Iterable[IssueKind]]
"""Returns what is wrong with a document and its chunks (ordered by position)."""


class ModelRegistry(Protocol):
    """Records which model made the vectors of the index."""

    async def recorded_model(self) -> EmbeddingModel | None: ...

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Record the model of an index that has none, or no vectors.

        Raises:
            IndexMismatchError: its vectors were made by another model.
        """
        ...

    async def drop_vectors(self) -> int:
        """Delete all vectors and the record of their model; every document becomes pending. Returns how many."""
        ...


def require_comparable(recorded: EmbeddingModel, model: EmbeddingModel) -> None:
    """Check that vectors of a model can be compared with those of the recorded one: what every registry adopts by.

    Raises:
        IndexMismatchError: they cannot.
    """
    if not recorded.is_comparable(model):
        raise IndexMismatchError(
            f"The index was made by {recorded.name!r} ({recorded.dimension} dimensions), not by {model.name!r}"
            f" ({model.dimension}); run `rag-context reindex`."
        )


WholeDocument: TypeAlias = tuple[Document, Sequence[Chunk], Matrix | None]
"""A document with all its chunks, and their vectors (`(n, dim) float32`) where it has them."""


class BulkLoad(Protocol):
    """A store that can take in much at once, and builds its indexes afterwards."""

    async def write_new(self, documents: Sequence[WholeDocument], made_by: str | None) -> list[str]:
        """Store those of these documents that the index does not have, in their order and in one transaction.

        Args:
            documents: with distinct ids; those without vectors are pending.
            made_by: the fingerprint of the model that made the vectors, which must be the index's.

        Returns:
            the ids of those that were stored.

        Raises:
            BackendRejectedError: one of them cannot be stored; nothing was.
        """
        ...

    def loading(self, on_progress: Callable[[float], None]) -> AbstractAsyncContextManager[None]:
        """Build no index while the block runs, and the due ones at its end, if it did not fail.

        Args:
            on_progress: called with the share of the vectors that are in their index, 0..1.

        Raises:
            BackendError: an index could not be built; what was loaded is stored and found all the same.
        """
        ...


class VectorRebuilder(Protocol):
    """Builds the vectors of another model beside those in use, and switches to them once they are complete.

    A run survives the end of the process. A document that is written meanwhile needs new vectors again; one that is
    deleted loses both.
    """

    async def under_way(self) -> Rebuild | None:
        """The run that has begun and is not complete."""
        ...

    async def begin(self, model: EmbeddingModel) -> bool:
        """Begin a run for `model`; the vectors of an unfinished run of another model are deleted.

        False where a run of this model is under way already: another process began it.
        """
        ...

    async def lacking(self, after: str, limit: int) -> list[str]:
        """Ids, ascending, of documents after the id `after` ("" for the first) that have no new vectors yet."""
        ...

    async def remaining(self) -> int:
        """How many documents have no new vectors yet."""
        ...

    async def add(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str) -> bool:
        """Store the new vectors of this version of a document; False where it was changed or deleted meanwhile."""
        ...

    async def switch(self, made_by: str, without: Collection[str]) -> bool:
        """Replace the old vectors and their model by the new ones; False where too many new ones are missing.

        Documents without new vectors become pending. Those in `without` cannot have any and do not delay the switch.
        """
        ...

    async def abandon(self) -> None:
        """Delete the run under way and its vectors."""
        ...


class IndexAuditor(Protocol):
    """Checks an index for damage and inconsistencies, and repairs them."""

    async def examine(self, check: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        """Examine the whole index at one point in time; every document is passed to `check`.

        Raises:
            ForeignIndexError: the index is another program's, or a newer version's.
            BackendDataError: the index is too damaged to be examined.
        """
        ...

    async def repair(self, kinds: Collection[IssueKind]) -> None:
        """Repair what the store can repair by itself; documents whose vectors are wrong become pending."""
        ...

    async def invalidate(self, document_ids: Collection[str]) -> None:
        """Clear the content hash of these documents, so that indexing their sources again replaces them."""
        ...


class FileManifest(Protocol):
    """Records the result of reading each file of this machine; it can be rebuilt by reading the files again.

    Called from threads, one call at a time.
    """

    def entries(self, paths: Collection[str]) -> dict[str, FileEntry]:
        """The entries of the given files, by path."""
        ...

    def below(self, path: str) -> Iterator[FileEntry]:
        """The entry of a file, or the entries of all files below a folder, by path."""
        ...

    def with_digest(self, digest: bytes, limit: int) -> list[FileEntry]:
        """Some files that had this content when they were last read."""
        ...

    def put(self, entries: Collection[FileEntry]) -> None: ...

    def forget(self, paths: Collection[str]) -> None: ...


class ProjectRegistry(Protocol):
    """Records the projects of files that this machine works on, for all its processes.

    Called from threads. Nothing is raised: what cannot be written is logged, and lost when the process ends.
    """

    def records(self) -> list[ProjectRecord]:
        """All projects, the most recently used first."""
        ...

    def has(self, tenant: Tenant) -> bool | None:
        """Whether a project is recorded; None where that cannot be read."""
        ...

    def put(self, record: ProjectRecord) -> None:
        """Record a project, in place of the earlier record of its tenant."""
        ...

    def note_used(self, times: Mapping[Tenant, datetime]) -> None: ...

    def note_gone(self, tenant: Tenant, since: datetime | None) -> None: ...

    def forget(self, tenants: Collection[Tenant]) -> None: ...

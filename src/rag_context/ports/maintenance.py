"""Ports of maintenance: which model made an index, rebuilding, checking, and records of files and projects."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from rag_context.domain.documents import Chunk, Document, Tenant
from rag_context.domain.embedding_model import EmbeddingModel, Rebuild
from rag_context.domain.files import FileEntry, ProjectRecord
from rag_context.domain.integrity import IntegrityReport, IssueKind, Thoroughness
from rag_context.domain.vectors import Matrix

DocumentCheck: TypeAlias = Callable[[Document, Sequence[Chunk]], Iterable[IssueKind]]
"""Says what is wrong with a document and its chunks (by position)."""


class ModelRegistry(Protocol):
    """Remembers which model made the vectors of the index."""

    async def recorded_model(self) -> EmbeddingModel | None: ...

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Record the model of an index that has none, or no vectors.

        Raises:
            IndexMismatchError: its vectors were made by another model.
        """
        ...

    async def drop_vectors(self) -> int:
        """Forget all vectors and the model that made them; every document becomes pending. Returns how many."""
        ...


class VectorRebuilder(Protocol):
    """Makes room for new vectors beside those that answer, and puts them in their place once they are complete.

    A run survives the end of the process. A document that is written or deleted meanwhile lacks its new vectors
    again, or is gone from both.
    """

    async def under_way(self) -> Rebuild | None:
        """The run that was begun and is not complete."""
        ...

    async def begin(self, model: EmbeddingModel) -> bool:
        """Begin to make the vectors of `model`; what a run of another model has made is forgotten.

        False where a run of this model is under way: another process was faster.
        """
        ...

    async def lacking(self, after: str, limit: int) -> list[str]:
        """Ids, ascending, of documents behind the id `after` ("" for the first) that lack new vectors."""
        ...

    async def remaining(self) -> int:
        """How many documents lack new vectors."""
        ...

    async def add(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str) -> bool:
        """Store the new vectors of this version of a document; False where it changed or went away meanwhile."""
        ...

    async def switch(self, made_by: str, without: Collection[str]) -> bool:
        """Put the new vectors and their model in the place of the old ones; False where too many are missing.

        Documents that lack theirs then are pending. Those in `without` cannot have any, and keep nobody waiting.
        """
        ...

    async def abandon(self) -> None:
        """Forget the run under way and what it has made."""
        ...


class IndexAuditor(Protocol):
    """Compares what a store says of itself with what it holds."""

    async def examine(self, judge: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        """Examine all of it, at one moment; every document is shown to `judge`.

        Raises:
            ForeignIndexError: the index is another program's, or a newer version's.
            BackendDataError: it is too damaged to be examined.
        """
        ...

    async def mend(self, kinds: Collection[IssueKind]) -> None:
        """Mend what the store can mend by itself; documents whose vectors are wrong become pending."""
        ...

    async def distrust(self, document_ids: Collection[str]) -> None:
        """Take the version of these documents for none, so that indexing their sources again replaces them."""
        ...


class FileLedger(Protocol):
    """Remembers what became of the files of this machine; all of it can be found out again by reading them.

    Called from threads, one call at a time.
    """

    def entries(self, paths: Collection[str]) -> dict[str, FileEntry]:
        """What is known of the given files, by path."""
        ...

    def below(self, path: str) -> Iterator[FileEntry]:
        """What is known of a file, or of all files below a folder, by path."""
        ...

    def with_digest(self, digest: bytes, limit: int) -> list[FileEntry]:
        """Some files that held the same when they were last read."""
        ...

    def put(self, entries: Collection[FileEntry]) -> None: ...

    def forget(self, paths: Collection[str]) -> None: ...


class ProjectRegistry(Protocol):
    """Remembers the projects of files that this machine works on, for all its processes.

    Called from threads. What cannot be written is logged and forgotten with the process; nothing is raised.
    """

    def records(self) -> list[ProjectRecord]:
        """Everything that is remembered, what was used last first."""
        ...

    def put(self, record: ProjectRecord) -> None:
        """Remember a project, in place of what was remembered of its tenant."""
        ...

    def note_used(self, times: Mapping[Tenant, datetime]) -> None: ...

    def note_gone(self, tenant: Tenant, since: datetime | None) -> None: ...

    def forget(self, tenants: Collection[Tenant]) -> None: ...

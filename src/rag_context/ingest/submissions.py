"""Drafts on their way into the index, and what becomes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rag_context.domain.documents import Chunk, Document, DocumentInput, Stored
from rag_context.domain.vectors import Matrix
from rag_context.ingest.preparation import Identified
from rag_context.ports.writing import Version
from rag_context.provenance import has_other_time


class Outcome(StrEnum):
    """The result of indexing a draft."""

    INDEXED = "indexed"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of indexing one draft; `pending` where its vectors are not stored yet."""

    document_id: str
    outcome: Outcome
    chunk_ids: tuple[str, ...]
    pending: bool
    redactions: Mapping[str, int] = field(default_factory=dict)
    duplicates_of: tuple[str, ...] = ()
    warning: str | None = None
    content_hash: str = ""
    is_unfinished: bool = False
    """Whether embedding ran out of time: `Indexer.finish` continues with the texts that are left."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A draft, and what may spare its embedding.

    `reuse_from` are ids of other documents with much of the same text (the file's earlier name): what they, or the
    earlier version of the draft, share with it is not embedded again. `defer_vectors`: a new document is left to the
    background sweep, and found by keywords meanwhile.
    """

    draft: DocumentInput
    reuse_from: Sequence[str] = ()
    defer_vectors: bool = False


@dataclass(slots=True)
class Entry:
    """A submission on its way in: each step notes here what it made.

    `written` tells whether the vectors are stored too, or why the document could not be stored.
    """

    submission: Submission
    draft: Identified
    stored: Stored | None = None
    document: Document | None = None
    chunks: Sequence[Chunk] = ()
    vectors: Matrix | None = None
    made_by: str | None = None
    warning: str | None = None
    is_unfinished: bool = False
    written: bool | Exception = False

    @property
    def texts(self) -> list[str]:
        """What is embedded, a text a chunk."""
        return [chunk.embedded for chunk in self.chunks]

    @property
    def is_deferred(self) -> bool:
        """Whether its vectors are left to the background."""
        return self.submission.defer_vectors and self.stored is None and not self.submission.reuse_from

    @property
    def is_unchanged(self) -> bool:
        """Whether this version is stored already."""
        stored = self.stored
        return (
            stored is not None
            and stored.content_hash == self.draft.content_hash
            and not has_other_time(self.draft.draft, stored)
        )

    def version(self) -> Version:
        """What is stored."""
        assert self.document is not None  # noqa: S101  (prepared before)
        return Version(self.document, self.chunks, self.vectors, self.made_by)

    def result(self, duplicates: Sequence[str]) -> Receipt | Exception:
        """What the caller gets in the end; `duplicates` are ids of near-duplicates."""
        if isinstance(self.written, Exception):
            return self.written
        stored = self.stored
        if self.document is None and stored is not None:
            outcome, chunk_ids, pending = Outcome.UNCHANGED, stored.chunk_ids, not stored.indexed
        else:
            outcome = Outcome.INDEXED if stored is None else Outcome.REPLACED
            chunk_ids, pending = tuple(chunk.id for chunk in self.chunks), not self.written
        return Receipt(
            document_id=self.draft.id,
            outcome=Outcome.PENDING if pending and outcome is not Outcome.UNCHANGED else outcome,
            chunk_ids=chunk_ids,
            pending=pending,
            redactions=self.draft.redactions,
            duplicates_of=tuple(duplicates),
            warning=self.warning,
            content_hash=self.draft.content_hash,
            is_unfinished=self.is_unfinished,
        )

"""Documents on their way into the index: as they are submitted, how they are prepared, and the result for each.

`Preparation` removes the secrets of a submitted document, computes its id, and cuts it into chunks, in a thread. All
documents that come together are prepared by one call: passing a short text to a thread costs more than the work.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TypeVar

from rag_context.domain.documents import (
    CHAT,
    Channel,
    Chunk,
    Document,
    DocumentInput,
    Origin,
    Stored,
    content_hash,
    document_id,
)
from rag_context.domain.journal import PLAIN, Revision
from rag_context.domain.provenance import event_time, has_other_origin, has_other_time
from rag_context.domain.text import terms
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendError, ForgottenError
from rag_context.ingest.chunk_context import chunks_of, origin_of, similarity_hash, title_of
from rag_context.ingest.chunking.syntax import Outline
from rag_context.ingest.redaction import Redactor
from rag_context.ports.models import Embedder
from rag_context.ports.writing import Version
from rag_context.resilience.admission import Computing

T = TypeVar("T")
R = TypeVar("R")


SUPERSEDED = "Another document took the place of this version, which stays hidden; index a newer version to show it"


class Outcome(StrEnum):
    """The result of indexing a document."""

    INDEXED = "indexed"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    PENDING = "pending"
    FORGOTTEN = "forgotten"
    """It was forgotten before, and nothing is stored."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of indexing one document; `pending` where its vectors are not stored yet."""

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
    """A submitted document, and what may spare its embedding.

    `reuse_from` are ids of other documents with much of the same text (the file's earlier name): what they, or the
    earlier version of the document, share with it is not embedded again. `defer_vectors`: a new document is left to the
    background sweep, and found by keywords meanwhile.
    """

    document: DocumentInput
    reuse_from: Sequence[str] = ()
    defer_vectors: bool = False
    revision: Revision = PLAIN


@dataclass(frozen=True, slots=True)
class Identified:
    """A submitted document without its secrets; which document it is a version of, and which version."""

    id: str
    content_hash: str
    document: DocumentInput
    redactions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document as it will be stored, and its chunks."""

    document: Document
    chunks: Sequence[Chunk]


@dataclass(slots=True)
class BatchEntry:
    """A submission on its way in: each step notes here what it made.

    `written` tells whether the vectors are stored too, or why the document could not be stored.
    """

    submission: Submission
    identified: Identified
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
        return [chunk.embedded for chunk in self.chunks]

    @property
    def is_deferred(self) -> bool:
        return self.submission.defer_vectors and self.stored is None and not self.submission.reuse_from

    @property
    def is_unchanged(self) -> bool:
        stored = self.stored
        return (
            stored is not None
            and stored.content_hash == self.identified.content_hash
            and not self.submission.revision.changes_more
            and not has_other_time(self.identified.document, stored)
            and not has_other_origin(self.identified.document, stored)
        )

    def version(self) -> Version:
        assert self.document is not None  # noqa: S101  (prepared before)
        return Version(self.document, self.chunks, self.vectors, self.made_by, self.submission.revision)

    def result(self, duplicates: Sequence[str]) -> Receipt | Exception:
        """The receipt, or why it could not be stored; `duplicates` are ids of near-duplicates."""
        if isinstance(self.written, ForgottenError):
            forgotten = Outcome.FORGOTTEN
            return Receipt(
                self.identified.id, forgotten, (), pending=False, warning=f"{self.written}; nothing was stored"
            )
        if isinstance(self.written, Exception):
            return self.written
        stored = self.stored
        if self.document is None and stored is not None:
            outcome, chunk_ids, pending = Outcome.UNCHANGED, stored.chunk_ids, not stored.indexed
        else:
            outcome = Outcome.INDEXED if stored is None else Outcome.REPLACED
            chunk_ids, pending = tuple(chunk.id for chunk in self.chunks), not self.written
        return Receipt(
            document_id=self.identified.id,
            outcome=Outcome.PENDING if pending and outcome is not Outcome.UNCHANGED else outcome,
            chunk_ids=chunk_ids,
            pending=pending,
            redactions=self.identified.redactions,
            duplicates_of=tuple(duplicates),
            warning=SUPERSEDED if stored is not None and stored.shelf and self.document is None else self.warning,
            content_hash=self.identified.content_hash,
            is_unfinished=self.is_unfinished,
        )


class Preparation:
    """Prepares documents for one embedder."""

    def __init__(
        self, embedder: Embedder, window: int, redactor: Redactor, now: Callable[[], datetime], outline: Outline
    ) -> None:
        self._embedder = embedder
        self._window = window
        self._redactor = redactor
        self._now = now
        self._outline = outline
        self._computing = Computing()

    async def identified(self, documents: Sequence[DocumentInput]) -> list[Identified | Exception]:
        """Each document without its secrets, or why it is not accepted (InvalidInputError)."""
        chars = sum(len(each.content) for each in documents)
        return await self._computing.run(partial(attempted, self._identified, documents), chars=chars)

    async def prepared(self, identified: Sequence[Identified]) -> list[Prepared | Exception]:
        chars = sum(len(each.document.content) for each in identified)
        return await self._computing.run(partial(attempted, self._prepared, identified), chars=chars)

    async def chunks(self, document: Document, embedder: Embedder | None = None) -> list[Chunk]:
        """The chunks of a document, for another embedder if one is given."""
        work = partial(self._chunks, document, embedder or self._embedder)
        return await self._computing.run(work, chars=len(document.content))

    def _chunks(self, document: Document, embedder: Embedder) -> list[Chunk]:
        try:
            window = embedder.model.window
        except BackendError:
            # The document is stored without vectors. `complete` cuts it again if the model's window is another one.
            window = self._window
        return chunks_of(document, embedder.tokenizer, window, self._outline)

    def _identified(self, document: DocumentInput) -> Identified:
        clean, redactions = self._redactor.document(document)
        clean = replace(clean, origin=origin_of(clean))
        # By the source as it was submitted: two sources that differ in a secret alone are two documents.
        id_ = document_id(replace(document, content=clean.content))
        return Identified(id_, content_hash(clean), clean, redactions)

    def _prepared(self, identified: Identified) -> Prepared:
        submitted, now = identified.document, self._now()
        document = Document(
            id=identified.id,
            tenant=submitted.tenant,
            content_type=submitted.content_type,
            session_id=submitted.session_id,
            source=submitted.source,
            title=title_of(
                submitted.content, submitted.source, submitted.content_type, submitted.metadata, submitted.channel
            ),
            content=submitted.content,
            content_hash=identified.content_hash,
            timestamp=now,
            occurred_at=event_time(submitted, now),
            metadata=submitted.metadata,
            thread=submitted.session_id
            if submitted.content_type == CHAT and submitted.channel is Channel.TOOL
            else None,
            similarity_hash=similarity_hash(terms(submitted.content)),
            message_times=submitted.message_times,
            origin=submitted.origin or Origin.UNKNOWN,
        )
        return Prepared(document, self._chunks(document, self._embedder))


def attempted(work: Callable[[T], R], items: Sequence[T]) -> list[R | Exception]:
    """The result of each, or its error: one that fails does not keep the others from being worked on."""
    results: list[R | Exception] = []
    for item in items:
        try:
            results.append(work(item))
        except Exception as error:  # noqa: BLE001  (it is the result of this item)
            results.append(error)
    return results

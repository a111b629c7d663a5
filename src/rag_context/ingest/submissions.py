"""Documents on their way into the index: as they are submitted, how they are prepared, and the result for each.

`Preparation` removes the secrets of a submitted document, computes its id, and cuts it into chunks, in a thread. All
documents that come together are prepared by one call: passing a short text to a thread costs more than the work.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from rag_context.domain import documents as domain
from rag_context.domain.documents import Chunk, Document, DocumentInput, content_hash, document_id
from rag_context.domain.journal import PLAIN, Revision
from rag_context.domain.provenance import event_time, has_other_origin, has_other_time
from rag_context.domain.text import packed_terms, terms
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendError, ForbiddenError, ForgottenError
from rag_context.ingest.chunk_context import chunks_of, origin_of, similarity_hash, title_of
from rag_context.ingest.chunking.syntax import Outline, marks
from rag_context.ingest.redaction import Redactor
from rag_context.ports.models import Embedder, Tokenizer
from rag_context.ports.writing import Version
from rag_context.resilience.admission import LONG_CHARS, Computing

T = TypeVar("T")
R = TypeVar("R")

SUPERSEDED = "Another document took the place of this version, which stays hidden; index a newer version to show it"


class Outcome(StrEnum):
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

    @property
    def is_deferred(self) -> bool:
        return self.defer_vectors and not self.reuse_from

    def added_by(self, key: str) -> "Submission":
        """The same document under an id of the key's own, so that it takes no other's place. Raises: ForbiddenError."""
        if self.revision.supersedes or self.revision.is_forced:
            raise ForbiddenError("This API key may add, but not change or delete: `supersedes` and `force` do")
        return replace(self, document=replace(self.document, id_space=f"\0{key}"))  # no agent or tag begins so


@dataclass(frozen=True, slots=True)
class Identified:
    """A submitted document without its secrets; which document it is a version of, and which version."""

    id: str
    content_hash: str
    document: DocumentInput
    redactions: Mapping[str, int]
    prepared: "Prepared | None" = None
    """Where that was made by the way."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document as it will be stored, its chunks, for which window they were cut, and their terms if known."""

    document: Document
    chunks: Sequence[Chunk]
    window: int
    terms: Sequence[tuple[int, bytes]] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """Documents to prepare in another process, and for which model; `tokenizer` is its file."""

    tokenizer: Path
    window: int
    redactor: Redactor
    now: datetime
    documents: Sequence[DocumentInput]


Ahead: TypeAlias = Callable[[Task], Awaitable[Sequence[Identified | None]]]
"""Prepares documents elsewhere; None for those that have to be prepared here."""


@dataclass(slots=True)
class BatchEntry:
    """A submission on its way in; `written`: whether the vectors are stored too, or why the document is not."""

    submission: Submission
    identified: Identified
    stored: domain.Stored | None = None
    document: Document | None = None
    chunks: Sequence[Chunk] = ()
    window: int = 0
    terms: Sequence[tuple[int, bytes]] | None = None
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
        return self.submission.is_deferred and self.stored is None

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
        return Version(self.document, self.chunks, self.vectors, self.made_by, self.submission.revision, self.terms)

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


@dataclass(eq=False)
class Preparation:
    """Prepares documents for one embedder; `ahead` does so in other processes, `now` is the wall clock."""

    _embedder: Embedder
    _window: int
    _redactor: Redactor
    _now: Callable[[], datetime]
    _outline: Outline
    _ahead: Ahead | None = None

    def __post_init__(self) -> None:
        self._computing = Computing()

    async def identified(self, submissions: Sequence[Submission]) -> list[Identified | Exception]:
        """Each document without its secrets, or why it is not accepted (InvalidInputError)."""
        documents = [each.document for each in submissions]
        made: Sequence[Identified | None] = [None] * len(documents)
        path = self._embedder.tokenizer.path
        if self._ahead is not None and path is not None and all(each.is_deferred for each in submissions):
            made = await self._ahead(Task(path, self.window(), self._redactor, self._now(), documents))
        left = [document for document, known in zip(documents, made, strict=True) if known is None]
        work = partial(_identified_together, left, self._redactor)
        here = iter(await self._computing.run(work, chars=sum(len(each.content) for each in left)) if left else ())
        return [next(here) if known is None else known for known in made]

    async def prepared(self, known: Sequence[Identified]) -> list[Prepared | Exception]:
        left = [each for each in known if each.prepared is None]
        if not left:
            return [each.prepared for each in known if each.prepared is not None]
        chars = sum(len(each.document.content) for each in left)
        here = iter(await self._computing.run(partial(attempted, self._prepared, left), chars=chars))
        return [next(here) if each.prepared is None else each.prepared for each in known]

    async def chunks(self, document: Document, embedder: Embedder | None = None) -> list[Chunk]:
        """The chunks of a document, for another embedder if one is given."""
        embedder = embedder or self._embedder
        work = partial(chunks_of, document, embedder.tokenizer, self.window(embedder), self._outline)
        return await self._computing.run(work, chars=len(document.content))

    def window(self, embedder: Embedder | None = None) -> int:
        """The tokens that a chunk may have."""
        try:
            return (embedder or self._embedder).model.window
        except BackendError:
            # The document is stored without vectors. `complete` cuts it again if the model's window is another one.
            return self._window

    def _prepared(self, known: Identified) -> Prepared:
        return prepared(known, self._embedder.tokenizer, self.window(), self._now(), self._outline)


def _identified_together(documents: Sequence[DocumentInput], redactor: Redactor) -> list[Identified | Exception]:
    # One pass over all of them finds nothing in most batches.
    is_clean = sum(len(each.content) for each in documents) <= LONG_CHARS and redactor.finds_none(documents)
    return attempted(partial(identified, redactor=None if is_clean else redactor), documents)


def identified(document: DocumentInput, redactor: Redactor | None) -> Identified:
    """A document without its secrets, and which one it is. Raises: InvalidInputError."""
    clean, redactions = (document, {}) if redactor is None else redactor.document(document)
    clean = clean if clean.origin is not None else replace(clean, origin=origin_of(clean))
    # By the source as it was submitted: two sources that differ in a secret alone are two documents.
    id_ = document_id(document if redactor is None else replace(document, content=clean.content))
    return Identified(id_, content_hash(clean), clean, redactions)


def prepared(known: Identified, tokenizer: Tokenizer, window: int, now: datetime, outline: Outline = marks) -> Prepared:
    submitted = known.document
    title = title_of(submitted.content, submitted.source, submitted.content_type, submitted.metadata, submitted.channel)
    words = terms(submitted.content)
    document = stored_document(known, now, title, event_time(submitted, now), similarity_hash(words))
    chunks = chunks_of(document, tokenizer, window, outline)
    is_whole = len(chunks) == 1 and chunks[0].searchable == submitted.content
    return Prepared(document, chunks, window, [packed_terms(words)] if is_whole else None)


def stored_document(known: Identified, now: datetime, title: str, occurred_at: datetime, similarity: int) -> Document:
    """A submitted document with what was found in its text."""
    submitted = known.document
    in_thread = submitted.content_type == domain.CHAT and submitted.channel is domain.Channel.TOOL
    return Document(
        id=known.id,
        tenant=submitted.tenant,
        content_type=submitted.content_type,
        session_id=submitted.session_id,
        source=submitted.source,
        title=title,
        content=submitted.content,
        content_hash=known.content_hash,
        timestamp=now,
        occurred_at=occurred_at,
        metadata=submitted.metadata,
        thread=submitted.session_id if in_thread else None,
        similarity_hash=similarity,
        message_times=submitted.message_times,
        origin=submitted.origin or domain.Origin.UNKNOWN,
    )


def attempted(work: Callable[[T], R], items: Sequence[T]) -> list[R | Exception]:
    """The result of each, or its error: one that fails does not keep the others from being worked on."""
    results: list[R | Exception] = []
    for item in items:
        try:
            results.append(work(item))
        except Exception as error:  # noqa: BLE001  (it is the result of this item)
            results.append(error)
    return results

"""The write path: a draft is redacted, chunked, embedded where possible, and stored before it is acknowledged."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from weakref import WeakValueDictionary

import numpy as np

from rag_context.domain.documents import CHAT, Chunk, Document, DocumentInput, Origin, Stored, content_hash, document_id
from rag_context.domain.times import utc_now
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendError, BackendRejectedError
from rag_context.event_times import event_time, has_other_time
from rag_context.ingest.chunk_context import chunks_of, cut_alike, similarity_hash, title_of
from rag_context.ingest.redaction import RedactionMode, cleaned
from rag_context.ingest.reuse import StoredVectors, UnfinishedVectors
from rag_context.ports.maintenance import VectorRebuilder
from rag_context.ports.models import Embedder
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import IndexWriter, PendingClaims
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency
from rag_context.resilience.retry import retrying
from rag_context.text import terms
from rag_context.tracing import span

SLICE = 32
"""Texts embedded per call: short enough that a long document cannot keep others waiting."""

SLICE_S = 30.0
"""Longest wait for one slice of background work."""

STORE_S = 30.0
"""Longest wait for one call of the document store; SQLite's own lock wait is shorter."""

FOLLOW = "Found by keyword search now, vectors follow"


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
class IndexingPolicy:
    """The rules for indexing.

    `window` is the model's, used until the model itself is known; `timeout_s` bounds one document's wait for
    its vectors.
    """

    window: int
    timeout_s: float = 5.0
    redaction: RedactionMode = RedactionMode.REDACT


@dataclass(frozen=True, slots=True)
class _Embedded:
    """Vectors, and the fingerprint of the model that made them."""

    vectors: Matrix
    by: str


class Indexer:
    """Indexes documents.

    Args:
        embedder: makes vectors.
        embedding: guards the embedder.
        documents: reads the stored documents.
        document_store: guards reading from the document store.
        writer: stores; what it acknowledged is durable.
        policy: sizes, limits and what happens to secrets.
        stored_vectors: reuses embeddings of unchanged text; None where everything is embedded again.
        claims: shares pending documents out among servers; None where no other server completes them.
        clock: monotonic seconds.
        now: the wall clock, for the documents' time stamps.
    """

    def __init__(
        self,
        *,
        embedder: Embedder,
        embedding: Dependency,
        documents: DocumentStore,
        document_store: Dependency,
        writer: IndexWriter,
        policy: IndexingPolicy,
        stored_vectors: StoredVectors | None = None,
        claims: PendingClaims | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._embedder = embedder
        self._embedding = embedding
        # A search with little time may have opened the breaker too soon: what is to be stored is tried all the same.
        self._documents = document_store.guard_bypassing_breaker(documents, STORE_S)
        self._writer = writer
        self._policy = policy
        self._stored_vectors = stored_vectors
        self._claims = claims
        self._clock = clock
        self._now = now
        self._unfinished = UnfinishedVectors()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def index(
        self,
        draft: DocumentInput,
        *,
        reuse_from: Sequence[str] = (),
        at_least_s: float = 0.0,
        defer_vectors: bool = False,
    ) -> Receipt:
        """Store a draft; it is findable, and safe, when this returns.

        Args:
            draft: the submitted document.
            reuse_from: ids of other documents with much of the same text (the file's earlier name). Text that they, or
                the earlier version of the draft, share with it is not embedded again.
            at_least_s: how long it may wait for its vectors where that is longer than the policy says.
            defer_vectors: whether a new document is left to the background sweep, and found by keywords meanwhile.

        Raises:
            InvalidInputError: it holds secrets and the policy rejects those.
            BackendError: it could not be stored; nothing has changed.
        """
        timeout_s = max(self._policy.timeout_s, at_least_s)
        deadline = Deadline.after(timeout_s, self._clock)
        draft, redactions = await asyncio.to_thread(cleaned, draft, self._policy.redaction)
        id_ = document_id(draft)
        async with self._lock(id_):
            stored = await self._documents.stored(id_)
            if defer_vectors and stored is None and not reuse_from:
                receipt = await self._store(id_, draft)
            else:
                receipt = await self._index(id_, draft, stored, deadline, timeout_s / 2.0, reuse_from)
        return replace(receipt, redactions=redactions)

    async def complete(self, id_: str) -> bool:
        """Embed a pending document and store its vectors.

        False where it was deleted or changed meanwhile, or where another server completes it.

        Raises:
            BackendError: the embedder or the store failed; the document stays pending.
        """
        with span("index.complete"):
            return await self._complete(id_, retrying)

    async def finish(self, id_: str) -> bool:
        """As `complete`, right after `index`, without retries: after a failure the background sweep goes on.

        Raises:
            BackendError: the embedder or the store failed; the document stays pending.
        """
        with span("index.complete"):
            return await self._complete(id_, lambda work: work())

    async def _complete(self, id_: str, trying: Callable[[Callable[[], Awaitable[bool]]], Awaitable[bool]]) -> bool:
        async with self._lock(id_), self._claimed(id_) as is_ours:
            document = await self._documents.get(id_) if is_ours else None
            if document is None:
                return False
            stored = await self._documents.stored(id_)
            if stored is not None and stored.indexed:  # by the task that had the lock before
                return True
            chunks = await asyncio.to_thread(self._cut, document)
            made_by = self._embedder.model.fingerprint
            made = self._unfinished.of(id_, made_by)
            vectors = await self._embed([chunk.embedded for chunk in chunks], made, None)
            if vectors is None:
                return False
            current = await self._documents.chunks(id_)
            # Another window may cut the text otherwise; then the new chunks replace the stored ones with their vectors.
            if cut_alike(current, chunks):
                done = await trying(lambda: self._writer.attach(id_, document.content_hash, vectors, made_by))
            else:
                done = await trying(lambda: self._writer.rechunk(document, chunks, vectors, made_by))
            self._unfinished.forget(id_)
            return done

    async def complete_beside(self, id_: str, embedder: Embedder, rebuilder: VectorRebuilder) -> bool:
        """Add a document's vectors of another model to a rebuild; False where it cannot have any.

        A document that the other model's window, or this version, splits differently is rechunked for both models.

        Raises:
            BackendError: an embedder or the store failed.
        """
        async with self._lock(id_):
            document = await self._documents.get(id_)
            if document is None:
                return False
            chunks = await asyncio.to_thread(self._cut, document, embedder)
            made_by = embedder.model.fingerprint
            vectors = await self._embed([chunk.embedded for chunk in chunks], {}, None, embedder)
            if vectors is None:
                return False
            stored = await self._documents.chunks(id_)
            if not cut_alike(stored, chunks):
                made, _ = await self._vectors(chunks, (id_,), Deadline.after(SLICE_S, self._clock))
                old = (None, None) if made is None else (made.vectors, made.by)
                if not await retrying(lambda: self._writer.rechunk(document, chunks, *old)):
                    return False
            return await retrying(lambda: rebuilder.add(id_, document.content_hash, vectors, made_by))

    async def rechunk(self, id_: str) -> bool:
        """Chunk a stored document again; pending until `complete`. False where it was deleted or changed meanwhile.

        Raises:
            BackendError: the store failed; nothing has changed.
        """
        async with self._lock(id_):
            document = await self._documents.get(id_)
            if document is None:
                return False
            chunks = await asyncio.to_thread(self._cut, document)
            return await retrying(lambda: self._writer.rechunk(document, chunks, None))

    async def remove(self, id_: str) -> bool:
        """Delete a document; False where it is unknown. Raises: BackendError (nothing was deleted)."""
        async with self._lock(id_):
            self._unfinished.forget(id_)
            return await retrying(lambda: self._writer.delete(id_))

    async def _store(self, id_: str, draft: DocumentInput) -> Receipt:
        digest = content_hash(draft)
        document, chunks = await asyncio.to_thread(self._prepared, id_, digest, draft)
        await self._write(document, chunks, None, None)
        return Receipt(
            document_id=id_,
            outcome=Outcome.PENDING,
            chunk_ids=tuple(chunk.id for chunk in chunks),
            pending=True,
            duplicates_of=await self._duplicates(document),
            warning=FOLLOW,
            content_hash=digest,
        )

    async def _index(
        self,
        id_: str,
        draft: DocumentInput,
        stored: Stored | None,
        deadline: Deadline,
        least_s: float,
        reuse_from: Sequence[str],
    ) -> Receipt:
        digest = content_hash(draft)
        if stored is not None and stored.content_hash == digest and not has_other_time(draft, stored):
            return Receipt(id_, Outcome.UNCHANGED, stored.chunk_ids, pending=not stored.indexed, content_hash=digest)
        with span("index.chunk"):
            document, chunks = await asyncio.to_thread(self._prepared, id_, digest, draft)
        timeout_s = max(deadline.remaining_s, least_s)  # the time for chunking does not count against the embedder
        reuse_from = reuse_from if stored is None else (id_, *reuse_from)
        made, failure = await self._vectors(chunks, reuse_from, Deadline.after(timeout_s, self._clock))
        with span("index.write", {"rag.chunks": len(chunks)}):
            indexed, failure = await self._write(document, chunks, made, failure)
        outcome = Outcome.INDEXED if stored is None else Outcome.REPLACED
        return Receipt(
            document_id=id_,
            outcome=outcome if indexed else Outcome.PENDING,
            chunk_ids=tuple(chunk.id for chunk in chunks),
            pending=not indexed,
            duplicates_of=await self._duplicates(document),
            warning=failure,
            content_hash=digest,
            is_unfinished=made is None and id_ in self._unfinished,
        )

    async def _write(
        self, document: Document, chunks: Sequence[Chunk], made: "_Embedded | None", failure: str | None
    ) -> tuple[bool, str | None]:
        """Store a document; returns whether its vectors are in too, and if not, why."""
        if made is None:
            await retrying(lambda: self._writer.write(document, chunks, None))
            return False, failure
        try:
            indexed = await retrying(lambda: self._writer.write(document, chunks, made.vectors, made.by))
        except BackendRejectedError:
            await retrying(lambda: self._writer.write(document, chunks, None))
            return False, "The index's model has just changed; found by keyword search now, vectors follow"
        return indexed, None if indexed else "Vector database unavailable; found by keyword search now, vectors follow"

    async def _vectors(
        self, chunks: Sequence[Chunk], reuse_from: Sequence[str], deadline: Deadline
    ) -> "tuple[_Embedded | None, str | None]":
        try:
            made_by = self._embedder.model.fingerprint
            texts = [chunk.embedded for chunk in chunks]
            known = (
                await self._stored_vectors.of(texts, reuse_from, made_by) if reuse_from and self._stored_vectors else {}
            )
            vectors = await self._embed(texts, known, deadline)
        except BackendError as error:
            return None, f"Embedding service unavailable: {error}; found by keyword search now, vectors follow"
        if vectors is None:
            self._unfinished.keep(chunks[0].document_id, made_by, known)
            return None, "Not embedded in time; found by keyword search now, vectors follow"
        return _Embedded(vectors, made_by), None

    async def _embed(
        self,
        texts: Sequence[str],
        known: dict[str, Vector],
        deadline: Deadline | None,
        embedder: Embedder | None = None,
    ) -> Matrix | None:
        """Vectors of all texts, or None where the deadline passed although the embedder works.

        Texts in `known` are not embedded; new vectors are added to it. Only a timeout of the first slice counts as a
        failure of the embedder: a long document is no fault of it.
        """
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for start in range(0, len(missing), SLICE):
            part = missing[start : start + SLICE]
            slice_deadline = Deadline.after(SLICE_S, self._clock)
            try:
                if deadline is None or start == 0:
                    made = await self._embed_slice(part, deadline or slice_deadline, embedder)
                else:
                    async with asyncio.timeout(deadline.remaining_s):
                        made = await self._embed_slice(part, slice_deadline, embedder)
            except TimeoutError:
                return None
            known.update(zip(part, made, strict=True))
        return np.stack([known[text] for text in texts])

    async def _embed_slice(self, texts: Sequence[str], deadline: Deadline, other: Embedder | None) -> Matrix:
        embedder = other or self._embedder
        with span("embedder.embed_documents", {"rag.texts": len(texts)}):
            return await self._embedding.call(lambda: embedder.embed_documents(texts), deadline)

    async def _duplicates(self, document: Document) -> tuple[str, ...]:
        """Ids of near-duplicates; empty where they cannot be read, since the document is stored already."""
        try:
            return tuple(await self._documents.similar(document))
        except BackendError:
            return ()

    def _prepared(self, id_: str, digest: str, draft: DocumentInput) -> tuple[Document, list[Chunk]]:
        document = Document(
            id=id_,
            tenant=draft.tenant,
            content_type=draft.content_type,
            session_id=draft.session_id,
            source=draft.source,
            title=title_of(draft.content, draft.source, draft.content_type, draft.metadata),
            content=draft.content,
            content_hash=digest,
            timestamp=(now := self._now()),
            occurred_at=event_time(draft, now),
            metadata=draft.metadata,
            thread=draft.session_id if draft.content_type == CHAT and draft.origin is Origin.TOOL else None,
            similarity_hash=similarity_hash(terms(draft.content)),
            message_times=draft.message_times,
        )
        return document, self._cut(document)

    def _cut(self, document: Document, other: Embedder | None = None) -> list[Chunk]:
        embedder = other or self._embedder
        try:
            window = embedder.model.window
        except BackendError:
            window = self._policy.window
        return chunks_of(document, embedder.tokenizer, window)

    def _claimed(self, id_: str) -> AbstractAsyncContextManager[bool]:
        return nullcontext(True) if self._claims is None else self._claims.claimed(id_)

    def _lock(self, id_: str) -> asyncio.Lock:
        # The dictionary holds locks weakly: one is there as long as a task holds it or waits for it.
        return self._locks.setdefault(id_, asyncio.Lock())

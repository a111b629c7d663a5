"""The write path: documents are redacted, chunked, embedded where possible, and stored before they are acknowledged.

Documents that come together take each step together: one call of a thread, of the embedder and of the store for all of
them. Each has its own result.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from weakref import WeakValueDictionary

from rag_context import errors
from rag_context.domain.documents import DocumentInput, utc_now
from rag_context.domain.journal import content_key
from rag_context.domain.vectors import Matrix, Vector
from rag_context.ingest.chunk_context import cut_alike
from rag_context.ingest.chunking.syntax import Outline, marks
from rag_context.ingest.redaction import Redactor
from rag_context.ingest.submissions import Ahead, BatchEntry, Preparation, Receipt, Submission
from rag_context.ingest.text_vectors import SLICE_S, ReusableVectors, TextVectors, UnfinishedVectors, stacked
from rag_context.ports.models import Embedder
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import IndexWriter, Journal, PendingClaims, VectorRebuilder, Version
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency, retrying
from rag_context.tracing import span

STORE_S = 30.0
"""Longest wait for one call of the document store; SQLite's own lock wait is shorter."""

MOST_CUT = 100_000
"""Pending documents that are known to be cut as they should be; those that are not known are cut again."""

FOLLOW = "Found by keyword search now, vectors follow"


@dataclass(frozen=True, slots=True)
class IndexingPolicy:
    """The rules for indexing; `window` is used until the model is known, `timeout_s` bounds the wait for vectors."""

    window: int
    timeout_s: float = 5.0
    redactor: Redactor = field(default_factory=Redactor)


@dataclass(eq=False)
class Indexer:
    _: KW_ONLY
    embedder: Embedder
    embedding: Dependency
    documents: DocumentStore
    document_store: Dependency
    writer: IndexWriter
    policy: IndexingPolicy
    stored_vectors: ReusableVectors | None = None
    claims: PendingClaims | None = None
    journal: Journal | None = None
    try_write: Callable[[], Awaitable[None]] | None = None
    outline: Outline = marks
    ahead: Ahead | None = None
    now: Callable[[], datetime] = utc_now

    def __post_init__(self) -> None:
        policy, guard = self.policy, self.document_store.guard_bypassing_breaker
        self._texts = TextVectors(self.embedder, self.embedding)
        self._preparation = Preparation(
            self.embedder, policy.window, policy.redactor, self.now, self.outline, self.ahead
        )
        # A search with little time may have opened the breaker too soon: what is to be stored is tried all the same.
        self._documents = guard(self.documents, STORE_S)
        self._journal = None if self.journal is None else guard(self.journal, STORE_S)
        self._is_refused = False
        """Whether the store rejected a write, and no attempt has succeeded since."""
        self._unfinished = UnfinishedVectors()
        self._cut: set[int] = set()
        """Pending versions that were cut here for a window: hashes of id, content hash and window."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def index(
        self,
        document: DocumentInput,
        *,
        reuse_from: Sequence[str] = (),
        at_least_s: float = 0.0,
        defer_vectors: bool = False,
    ) -> Receipt:
        """Store a document, findable and safe when this returns. Raises: InvalidInputError (secrets), BackendError."""
        (result,) = await self.index_all([Submission(document, reuse_from, defer_vectors)], at_least_s=at_least_s)
        if isinstance(result, Exception):
            raise result
        return result

    async def index_all(
        self, submissions: Sequence[Submission], *, at_least_s: float = 0.0
    ) -> list[Receipt | Exception]:
        """Store documents together; versions of one in their order. For each its receipt, or what `index` raises.

        `at_least_s`: how long they may wait for their vectors where that is longer than the policy says.
        """
        timeout_s = max(self.policy.timeout_s, at_least_s)
        deadline = Deadline.after(timeout_s, time.monotonic)
        identified = await self._preparation.identified(submissions)
        results: list[Receipt | Exception | None] = [
            each if isinstance(each, Exception) else None for each in identified
        ]
        waiting = {
            number: BatchEntry(submission, each)
            for number, (submission, each) in enumerate(zip(submissions, identified, strict=True))
            if not isinstance(each, Exception)
        }
        while waiting:
            # One version of each document at a time: a later one replaces what the earlier one has stored.
            first = {entry.identified.id: number for number, entry in reversed(waiting.items())}
            entries = {number: waiting.pop(number) for number in sorted(first.values())}
            done = await self._index_together(list(entries.values()), deadline, timeout_s / 2.0)
            for number, result in zip(entries, done, strict=True):
                results[number] = result
        return [result for result in results if result is not None]

    async def complete(self, id_: str) -> bool:
        """Embed a pending document; False where it was changed, or another server does it. Raises: BackendError."""
        with span("index.complete"):
            return await self._complete(id_, retrying)

    async def finish(self, id_: str) -> bool:
        """As `complete`, right after `index`, without retries: the sweep is left what fails. Raises: BackendError."""
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
            is_cut = hash((id_, document.content_hash, self._preparation.window())) in self._cut
            chunks = await self._documents.chunks(id_) if is_cut else await self._preparation.chunks(document)
            # Read before embedding: the writer rejects vectors of a model that was replaced meanwhile.
            made_by = self.embedder.model.fingerprint
            made = self._unfinished.of(id_, made_by)
            vectors = await self._texts.of([chunk.embedded for chunk in chunks], made)
            current = await self._documents.chunks(id_)
            # Another window may cut the text otherwise; then the new chunks replace the stored ones with their vectors.
            if cut_alike(current, chunks):
                done = await trying(lambda: self.writer.attach(id_, document.content_hash, vectors, made_by))
            else:
                done = await trying(lambda: self.writer.rechunk(Version(document, chunks, vectors, made_by)))
            self._unfinished.forget(id_)
            self._cut.discard(hash((id_, document.content_hash, self._preparation.window())))
            return done

    async def complete_beside(self, id_: str, embedder: Embedder, rebuilder: VectorRebuilder) -> bool:
        """Add a document's vectors of another model to a rebuild; False where it cannot have any. Raises: BackendError.

        One that the other model's window, or this version, splits differently is rechunked for both models.
        """
        async with self._lock(id_):
            document = await self._documents.get(id_)
            if document is None:
                return False
            chunks = await self._preparation.chunks(document, embedder)
            texts = [chunk.embedded for chunk in chunks]
            made_by = embedder.model.fingerprint
            vectors = await self._texts.of(texts, None, embedder)
            stored = await self._documents.chunks(id_)
            if not cut_alike(stored, chunks):
                old = await self._old_vectors(texts, id_)
                if not await retrying(lambda: self.writer.rechunk(Version(document, chunks, *old))):
                    return False
            return await retrying(lambda: rebuilder.add(id_, document.content_hash, vectors, made_by))

    async def rechunk(self, id_: str) -> bool:
        """Chunk a stored document again, as pending; False where it was changed meanwhile. Raises: BackendError."""
        async with self._lock(id_):
            document = await self._documents.get(id_)
            if document is None:
                return False
            chunks = await self._preparation.chunks(document)
            return await retrying(lambda: self.writer.rechunk(Version(document, chunks)))

    async def remove(self, id_: str) -> bool:
        """Delete a document; False where it is unknown. Raises: BackendError (nothing was deleted)."""
        async with self._lock(id_):
            self._unfinished.forget(id_)
            return await retrying(lambda: self.writer.delete(id_))

    async def _index_together(
        self, entries: Sequence[BatchEntry], deadline: Deadline, least_s: float
    ) -> list[Receipt | Exception]:
        # Until they are written: another version of one of them must not be compared with the same stored one.
        async with self._locked([entry.identified.id for entry in entries]):
            try:
                states = await self._documents.states([entry.identified.id for entry in entries])
            except errors.BackendError as error:
                return [error] * len(entries)
            for entry in entries:
                entry.stored = states.get(entry.identified.id)
            changed = [entry for entry in entries if not entry.is_unchanged]
            await self._reject_forgotten(changed)
            remembered = [entry for entry in changed if not isinstance(entry.written, Exception)]
            if remembered:
                await self._replace(remembered, deadline, least_s)
            written = [entry for entry in changed if not isinstance(entry.written, Exception)]
            duplicates = await self._duplicates(written)
            return [entry.result(duplicates.get(entry.identified.id, ())) for entry in entries]

    async def _reject_forgotten(self, entries: Sequence[BatchEntry]) -> None:
        """Spare the embedding of what the store is going to reject."""
        if self._journal is None or not entries:
            return
        documents = {
            entry.identified.id: content_key(entry.identified.document.tenant, entry.identified.document.content)
            for entry in entries
            if not entry.submission.revision.is_forced
        }
        with suppress(errors.BackendError):  # the store checks again
            forgotten = await self._journal.forgotten(documents)
            for entry in entries:
                if entry.identified.id in forgotten:
                    entry.written = errors.ForgottenError(entry.identified.id)

    async def _replace(self, entries: Sequence[BatchEntry], deadline: Deadline, least_s: float) -> None:
        """Prepare, embed and store; leaves in each entry what became of it."""
        # Embedding takes most of the time: a full disk must not cost that of each document of a long stream.
        if self._is_refused and self.try_write is not None:
            try:
                await self.try_write()
            except errors.BackendError as error:
                for entry in entries:
                    entry.written = error
                return
            self._is_refused = False
        with span("index.chunk"):
            prepared = await self._preparation.prepared([entry.identified for entry in entries])
        for entry, each in zip(entries, prepared, strict=True):
            if isinstance(each, Exception):
                entry.written = each
            else:
                entry.document, entry.chunks, entry.terms = each.document, each.chunks, each.terms
                entry.window = each.window
        entries = [entry for entry in entries if entry.document is not None]
        timeout_s = max(deadline.remaining_s, least_s)  # the time for chunking does not count against the embedder
        await self._embed(entries, Deadline.after(timeout_s, time.monotonic))
        with span("index.write", {"rag.chunks": sum(len(entry.chunks) for entry in entries)}):
            await self._write(entries)
        if len(self._cut) > MOST_CUT:
            self._cut.clear()
        cut = [(each.identified.id, each.identified.content_hash, each.window) for each in entries if not each.written]
        self._cut.update(map(hash, cut))

    async def _embed(self, entries: Sequence[BatchEntry], deadline: Deadline) -> None:
        """Embed what is not deferred, or leave in each entry why its vectors follow."""
        for entry in entries:
            entry.warning = FOLLOW if entry.is_deferred else None
        entries = [entry for entry in entries if not entry.is_deferred]
        if not entries:
            return
        # Read before embedding: the writer rejects vectors of a model that was replaced meanwhile.
        try:
            made_by = self.embedder.model.fingerprint
        except errors.BackendError as error:
            for entry in entries:
                entry.warning = _unavailable(error)
            return
        reuse_from = [
            id_
            for entry in entries
            for id_ in (*([entry.identified.id] if entry.stored else []), *entry.submission.reuse_from)
        ]
        texts = [text for entry in entries for text in entry.texts]
        vectors = await self.stored_vectors.of(texts, reuse_from, made_by) if reuse_from and self.stored_vectors else {}
        await self._embed_missing(entries, vectors, made_by, deadline)

    async def _embed_missing(
        self, entries: Sequence[BatchEntry], vectors: dict[str, Vector], made_by: str, deadline: Deadline
    ) -> None:
        failure: errors.BackendError | None = None
        try:
            await self._texts.add([text for entry in entries for text in entry.texts], vectors, deadline)
        except errors.BackendError as error:
            if len(entries) > 1 and not isinstance(error, errors.BackendUnavailableError):
                for entry in entries:  # the fault of one text, which need not be that of the other documents
                    await self._embed_missing([entry], vectors, made_by, deadline)
                return
            failure = error
        for entry in entries:
            texts = entry.texts
            if all(text in vectors for text in texts):
                entry.vectors, entry.made_by = stacked(texts, vectors), made_by
            elif failure is not None:
                entry.warning = _unavailable(failure)
            else:
                entry.warning = "Not embedded in time; found by keyword search now, vectors follow"
                self._unfinished.keep(
                    entry.identified.id, made_by, {text: vectors[text] for text in texts if text in vectors}
                )
                entry.is_unfinished = entry.identified.id in self._unfinished

    async def _write(self, entries: Sequence[BatchEntry]) -> None:
        """Store documents; leaves in each entry whether its vectors are in too, or why it could not be stored."""
        waiting = list(entries)

        async def attempt() -> None:
            nonlocal waiting
            outcomes = await self.writer.write_all([entry.version() for entry in waiting])
            for entry, outcome in zip(waiting, outcomes, strict=True):
                entry.written = outcome
            failures = {
                number: entry.written
                for number, entry in enumerate(waiting)
                if isinstance(entry.written, errors.BackendUnavailableError)
            }
            # Only these are tried again: the others are stored, or rejected for good.
            waiting = [waiting[number] for number in failures]
            for failure in failures.values():
                raise failure

        try:
            await retrying(attempt)
        except errors.BackendError as error:
            for entry in waiting:
                entry.written = error
        self._is_refused = self._is_refused or any(_is_refusal(entry.written) for entry in entries)
        rejected = [
            entry
            for entry in entries
            if isinstance(entry.written, errors.BackendRejectedError) and entry.vectors is not None
        ]
        for entry in entries:
            if entry.vectors is not None and entry.written is False:
                entry.warning = "Vector database unavailable; found by keyword search now, vectors follow"
        if rejected:
            for entry in rejected:
                entry.vectors = entry.made_by = None
                entry.warning = "The index's model has just changed; found by keyword search now, vectors follow"
            await self._write(rejected)  # without vectors, so that no model can be wrong

    async def _duplicates(self, entries: Sequence[BatchEntry]) -> dict[str, list[str]]:
        """Ids of near-duplicates by document; none where they cannot be read: the documents are stored already."""
        documents = [entry.document for entry in entries if entry.document is not None]
        if not documents:
            return {}
        try:
            found = await self._documents.similar(documents)
        except errors.BackendError:
            return {}
        return {document.id: ids for document, ids in zip(documents, found, strict=True)}

    async def _old_vectors(self, texts: Sequence[str], id_: str) -> tuple[Matrix | None, str | None]:
        """The vectors of the model in use, and its fingerprint; None where it fails."""
        try:
            made_by = self.embedder.model.fingerprint
            vectors = await self.stored_vectors.of(texts, (id_,), made_by) if self.stored_vectors else {}
            await self._texts.add(texts, vectors, Deadline.after(SLICE_S, time.monotonic))
            return stacked(texts, vectors), made_by
        except (errors.BackendError, KeyError):  # a text that was not embedded in time
            return None, None

    def _claimed(self, id_: str) -> AbstractAsyncContextManager[bool]:
        return nullcontext(True) if self.claims is None else self.claims.claimed(id_)

    def _lock(self, id_: str) -> asyncio.Lock:
        # The dictionary holds locks weakly: one is there as long as a task holds it or waits for it.
        return self._locks.setdefault(id_, asyncio.Lock())

    @asynccontextmanager
    async def _locked(self, ids: Sequence[str]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            # In one order everywhere: two that lock the same documents do not wait for each other.
            for id_ in sorted(ids):
                await stack.enter_async_context(self._lock(id_))
            yield


def _is_refusal(outcome: object) -> bool:
    """Whether a store accepts no writes, as on a full disk; a lock or a slow server may be gone the next time."""
    refused = isinstance(outcome, errors.BackendUnavailableError | errors.BackendDataError)
    return refused and not isinstance(outcome, errors.BackendTimeoutError)


def _unavailable(error: errors.BackendError) -> str:
    return f"Embedding service unavailable: {error}; found by keyword search now, vectors follow"

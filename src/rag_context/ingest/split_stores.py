"""Two stores that share no transaction: how they are written, compared by ids and revisions, and repaired.

A document is written as pending, then its vectors, then as indexed. If the process ends at any moment, the document
store knows what is left to do: a document is indexed only after its vectors were acknowledged, and pending before they
are touched.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import UUID

from rag_context.domain.documents import Chunk, Document, Missing, Stored, StoredVectors, counted, slices
from rag_context.domain.journal import Change, Entry, Size, require_locations
from rag_context.domain.reports import EXAMPLES, IntegrityReport, Issue, IssueKind, Thoroughness
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import BackendError, BackendRejectedError, BackendUnavailableError, ForeignDataError
from rag_context.ports import writing
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import IndexAuditor, Journal, ModelRegistry, VectorWriter, Version
from rag_context.resilience.dependency import Dependency

logger = logging.getLogger(__name__)

PAGE = 200

COMPARISONS_OF_A_SUSPECT = 3
"""How often a document is compared that two processes wrote at the same time."""

NOT_IN_DOCUMENTS = frozenset(
    {IssueKind.MISSING_VECTORS, IssueKind.BAD_VECTORS, IssueKind.STALE_VECTORS, IssueKind.NO_MODEL}
)
"""Issues that a document store cannot check where another store keeps the vectors."""

PROMPT_TIMEOUT_S = 2.5
"""How long a request waits for the vector store before its document is acknowledged as pending."""

NO_DOCUMENT = str(UUID(int=0))
"""An id that no document has."""

BACKGROUND_TIMEOUT_S = 30.0
"""How long background work waits for the vector store."""


class TwoStoreWriter:
    """Fits `IndexWriter` and `ModelRegistry` over a document store and a vector store."""

    def __init__(
        self,
        *,
        documents: DocumentStore,
        writer: writing.DocumentWriter,
        registry: ModelRegistry,
        vectors: VectorWriter,
        vector_store: Dependency,
        suspect: Callable[[str], None],
    ) -> None:
        self._documents = documents
        self._writer = writer
        self._registry = registry
        self._in_request = vector_store.guard(vectors, PROMPT_TIMEOUT_S)
        self._in_background = vector_store.guard(vectors, BACKGROUND_TIMEOUT_S)
        self._suspect = suspect
        self._rejection: str | None = None

    async def try_write(self) -> None:
        """Write something that changes nothing: delete the vectors of a document that does not exist.

        Such a write may succeed on a full disk. So the last error of storing vectors is raised again as long as a
        document waits for its vectors; storing them is retried meanwhile.
        """
        if self._rejection is not None and await self._is_waited_for():
            raise BackendUnavailableError("vectors", self._rejection)
        await self._in_request.discard([NO_DOCUMENT])

    async def _is_waited_for(self) -> bool:
        """Whether a document is pending; False while the document store is unavailable."""
        try:
            return (await self._documents.counts()).pending > 0
        except BackendError:
            return False

    async def write(self, version: Version) -> bool:
        """Store a document in place of its earlier version; returns whether its vectors are in too.

        Raises: BackendRejectedError (the vectors do not match the chunks or the index's model; nothing changed).
        """
        # Before anything is stored: afterwards a rejection would leave the new version without its vectors.
        document, chunks, vectors = version.document, version.chunks, version.vectors
        if vectors is not None:
            writing.require_shape("documents", vectors, len(chunks))
            await self._check_model(version.made_by)
        superseded = version.revision.supersedes
        await self.discard_moving(superseded)
        # From here on the document is pending: if the process ends, the background sweep embeds it again.
        await self._writer.put(document, chunks, version.revision)
        await self.discard_moving(superseded)
        if vectors is None:
            return False
        try:
            return await self._add(document, chunks, vectors, version.made_by, self._in_request)
        except BackendError as error:
            logger.warning("document %s is stored, its vectors follow: %s", document.id, error)
            return False

    async def write_all(self, versions: Sequence[Version]) -> list[bool | Exception]:
        return await writing.written_in_turn(versions, self)

    async def attach(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str | None = None) -> bool:
        await self._check_model(made_by)
        stored = await self._documents.stored(document_id)
        document = await self._documents.get(document_id)
        if stored is None or document is None or not stored.content_hash == document.content_hash == content_hash:
            return False
        if stored.indexed:
            return True
        chunks = await self._documents.chunks(document_id)
        # The three reads are not one: another process may have stored a new version between them.
        if stored.chunk_ids != tuple(chunk.id for chunk in chunks):
            return False
        writing.require_shape("documents", vectors, len(chunks))
        return await self._add(document, chunks, vectors, made_by, self._in_background)

    async def rechunk(self, version: Version) -> bool:
        document, chunks, vectors = version.document, version.chunks, version.vectors
        if vectors is not None:
            writing.require_shape("documents", vectors, len(chunks))
            await self._check_model(version.made_by)
        if not await self._writer.rechunk(replace(version, vectors=None)):
            return False
        return vectors is None or await self._add(document, chunks, vectors, version.made_by, self._in_background)

    async def delete(self, document_id: str) -> bool:
        """Delete a document: it is pending until its vectors are deleted, so that a crash leaves it complete."""
        if await self._documents.stored(document_id) is None:
            return False
        await self._writer.mark_pending([document_id])
        await self._in_request.discard([document_id])
        deleted = await self._writer.delete(document_id)
        try:
            # Another process may have completed it in between.
            await self._discard_if_deleted(document_id, self._in_request)
        except BackendError as error:
            logger.warning("document %s is deleted, but some of its vectors may be left: %s", document_id, error)
        return deleted

    async def discard_moving(self, document_ids: Sequence[str]) -> None:
        """Delete the vectors of documents that are about to move to another shelf, or have moved.

        Before, so that no search finds them where they were; after, because another process may have completed them in
        between. They are pending meanwhile: where the process ends, or they do not move, their vectors follow.
        """
        for page in slices(document_ids, PAGE):
            await self._writer.mark_pending(page)
            await self._in_background.discard(page)
            await self._writer.mark_pending(page)

    async def size(self, document_ids: Sequence[str]) -> Size:
        """What the vector store has of these documents: vectors, each with a copy of its passage."""
        stored = [await self._in_background.stored_vectors(page) for page in slices(document_ids, PAGE)]
        count = sum(len(each.chunk_ids) for page in stored for each in page.values())
        return Size(passages=count, vectors=count)

    async def recorded_model(self) -> EmbeddingModel | None:
        return await self._registry.recorded_model()

    async def adopt_model(self, model: EmbeddingModel) -> None:
        """Prepare the vector store for a model, and record it. Raises: IndexMismatchError, ForeignDataError."""
        await self._require_own_vectors()
        # In this order a recorded model always has a storage.
        await self._in_background.prepare(model)
        await self._registry.adopt_model(model)

    async def drop_vectors(self) -> int:
        """Delete all vectors, then the record of their model, which is there as long as they are. Returns how many."""
        await self._in_background.clear()
        return await self._registry.drop_vectors()

    async def _require_own_vectors(self) -> None:
        """Check that an index without a model, which has no vectors, finds none. Raises: ForeignDataError."""
        if await self._registry.recorded_model() is not None or not (count := await self._in_background.count()):
            return
        # Read again: another server of this index may have bound the model and stored vectors between the two.
        if await self._registry.recorded_model() is None:
            raise ForeignDataError(
                "vectors",
                f"There are {counted(count, 'vector')} of another index in the vector store. Nothing was changed: give "
                "this index a name of its own (stores.qdrant_collection or stores.chroma_collection). If no other index"
                " uses them, `rag-context reindex` replaces them.",
            )

    async def _add(
        self, document: Document, chunks: Sequence[Chunk], vectors: Matrix, made_by: str | None, store: VectorWriter
    ) -> bool:
        """Store the vectors in the guarded vector store, then mark the document as indexed.

        Where the document changed meanwhile, these vectors may have replaced those of its newer version, and that
        version's writer may still mark it as indexed: it becomes pending and is compared later. Vectors of deleted
        documents and of other models are deleted.
        """
        await self._put(document, chunks, vectors, store)
        try:
            now = await self._documents.stored(document.id)
            has_moved = now is not None and now.shelf is not document.tenant.shelf
            indexed = not has_moved and await self._writer.mark_indexed(document.id, document.content_hash, made_by)
        except BackendRejectedError:
            await self._discard_and_suspect(document.id, store)
            raise
        if not indexed:
            self._suspect(document.id)
            await self._writer.mark_pending([document.id])
            await self._discard_if_deleted(document.id, store)
        return indexed

    async def _put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix, store: VectorWriter) -> None:
        try:
            await store.put(document, chunks, vectors)
        except BackendRejectedError:  # it may concern this document only
            raise
        except BackendError as error:
            self._rejection = str(error)
            raise
        # Only a write that stored something shows that the store has space again.
        self._rejection = None

    async def _discard_if_deleted(self, document_id: str, store: VectorWriter) -> None:
        if await self._documents.stored(document_id) is None:
            await self._discard_and_suspect(document_id, store)

    async def _discard_and_suspect(self, document_id: str, store: VectorWriter) -> None:
        self._suspect(document_id)
        # Before and after: a crash in between leaves it pending, and another process may mark it as indexed meanwhile.
        await self._writer.mark_pending([document_id])
        await store.discard([document_id])
        await self._writer.mark_pending([document_id])

    async def _check_model(self, made_by: str | None) -> None:
        if made_by is None:
            return
        recorded = await self._registry.recorded_model()
        writing.require_model("documents", None if recorded is None else recorded.fingerprint, made_by)


class _TwoStoreJournal:
    """`Journal` of the document store, which moves no document whose vectors a search could find where it was."""

    def __init__(self, inner: Journal, writer: TwoStoreWriter, vectors: str) -> None:
        self._inner = inner
        self._writer = writer
        self._vectors = vectors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def make(self, change: Change) -> Entry:
        moves = [] if change.moves_nothing else change.moves
        ids = [move.before.id for move in moves if move.before is not None]
        require_locations(moves, {id_: link.place for id_, link in (await self._inner.links(ids)).items()})
        await self._writer.discard_moving(ids)
        entry = await self._inner.make(change)
        try:
            await self._writer.discard_moving(ids)
        except BackendError as error:
            logger.warning("change %d is made, but some vectors may be left: %s", entry.sequence, error)
        return entry

    async def sizes(self, document_ids: Sequence[str]) -> dict[str, Size]:
        return {**await self._inner.sizes(document_ids), self._vectors: await self._writer.size(document_ids)}


def journal_over(documents: Journal, writer: TwoStoreWriter, vectors: str) -> Journal:
    """The journal of a document store as one of two; `vectors` is the name of the vector store."""
    return cast("Journal", _TwoStoreJournal(documents, writer, vectors))


@dataclass(frozen=True, slots=True)
class Divergence:
    """The ids of indexed documents without all their vectors, of those with vectors of another version, and of
    documents that only the vector store has."""

    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.stale or self.orphans)


class Reconciler:
    """Compares and repairs two stores that are in use. Every method raises `BackendError` where one is unavailable."""

    def __init__(self, documents: DocumentStore, writer: writing.DocumentWriter, vectors: VectorWriter) -> None:
        self._documents = documents
        self._writer = writer
        self._vectors = vectors
        self._cursor = ""
        self._explained = 0
        self._suspects: dict[str, int] = {}
        self._lost = Missing()

    def lost(self) -> Missing:
        """How many vectors of indexed documents the vector store lacked when `differ` was called last."""
        return self._lost

    def suspect(self, document_id: str) -> None:
        """Have a document compared soon, and several times: another process may still be writing it."""
        self._suspects[document_id] = COMPARISONS_OF_A_SUSPECT

    async def differ(self) -> bool:
        """Whether the number of vectors is wrong, known orphans aside; a cheap test, which proves nothing."""
        counts = await self._documents.counts()
        surplus = await self._vectors.count() - counts.vectors
        # A document that is changed or deleted meanwhile has lost nothing.
        if surplus >= 0 or counts == await self._documents.counts():
            self._lost = Missing(max(-surplus, 0), counts.vectors, of_all=True)
        # Pending documents may have vectors or not: while there are any, only too few vectors are a sign.
        return surplus < 0 if counts.pending else surplus != self._explained

    async def compare(self) -> Divergence:
        """Compare all documents. The ids of all documents are in memory meanwhile."""
        missing: list[str] = []
        stale: list[str] = []
        known: set[str] = set()
        async for page in self._pages():
            known.update(page)
            found = await self._compare(page)
            missing.extend(found.missing)
            stale.extend(found.stale)
        # Read after the documents: one that was stored since is not in `known`, so each of these is read again.
        unknown = {id_ async for id_ in self._vectors.stored_documents() if id_ not in known}
        orphans = [id_ for id_ in sorted(unknown) if await self._documents.stored(id_) is None]
        self._explained = 0
        # Orphans are not deleted here. Their number is remembered, or `differ` would report them each time.
        for ids in slices(orphans, PAGE):
            vectors = await self._vectors.stored_vectors(ids)
            self._explained += sum(len(each.chunk_ids) for each in vectors.values())
        return Divergence(tuple(missing), tuple(stale), tuple(orphans))

    async def compare_some(self) -> Divergence:
        """Compare the suspects and the next page of documents, from the start again after the last; no orphans."""
        # A page each time: stores that are in use are not read as a whole.
        page = await self._documents.inventory(self._cursor, PAGE)
        self._cursor = max(page) if len(page) == PAGE else ""
        suspects, self._suspects = self._suspects, {}
        for id_, left in suspects.items():
            if left > 1:
                self._suspects[id_] = left - 1
            stored = await self._documents.stored(id_)
            page = page if stored is None else {**page, id_: stored}
        return await self._compare(page)

    async def repair(self, found: Divergence) -> None:
        """Make documents without their vectors pending; the background sweep embeds them."""
        for ids in slices((*found.missing, *found.stale), PAGE):
            await self._writer.mark_pending(ids)

    async def purge(self, found: Divergence) -> None:
        for ids in slices(found.orphans, PAGE):
            gone = [id_ for id_ in ids if await self._documents.stored(id_) is None]
            await self._vectors.discard(gone)
            await self._writer.mark_pending(gone)  # one of them may have been indexed since

    async def count(self) -> int:
        return await self._vectors.count()

    async def _compare(self, page: Mapping[str, Stored]) -> Divergence:
        if not page:
            return Divergence()
        first = _compared(page, await self._vectors.stored_vectors(list(page)))
        # Most differences are documents in the middle of a change, so each is read again before it counts.
        again = [await self._confirmed(id_) for id_ in (*first.missing, *first.stale)]
        return Divergence(
            tuple(id_ for found in again for id_ in found.missing), tuple(id_ for found in again for id_ in found.stale)
        )

    async def _confirmed(self, id_: str) -> Divergence:
        """Compare a document again, read before and after its vectors, since it may be changing."""
        before = await self._documents.stored(id_)
        vectors = await self._vectors.stored_vectors([id_])
        if before is None or before != await self._documents.stored(id_):
            return Divergence()
        return _compared({id_: before}, vectors)

    async def _pages(self) -> AsyncIterator[Mapping[str, Stored]]:
        last = ""
        while page := await self._documents.inventory(last, PAGE):
            yield page
            last = max(page)


class TwoStoreAuditor:
    """`IndexAuditor` over a document store and the vector store beside it."""

    def __init__(self, documents: IndexAuditor, reconciler: Reconciler) -> None:
        self._documents = documents
        self._reconciler = reconciler

    async def examine(self, check: writing.DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        """Examine the documents, then compare them with the vectors. Raises: BackendError."""
        found = await self._documents.examine(check, thoroughness)
        # A damaged file lists too few documents: the vectors of all others would look like orphans.
        if any(issue.kind is IssueKind.DAMAGED_FILE for issue in found.issues):
            return found
        difference = await self._reconciler.compare()
        issues = [issue for issue in found.issues if issue.kind not in NOT_IN_DOCUMENTS]
        for kind, ids in (
            (IssueKind.MISSING_VECTORS, difference.missing),
            (IssueKind.STALE_VECTORS, difference.stale),
            (IssueKind.ORPHANS, difference.orphans),
        ):
            if ids:
                issues.append(Issue(kind, len(ids), ids[:EXAMPLES]))
        counts = replace(found.counts, vectors=await self._reconciler.count())
        return replace(found, counts=counts, issues=_merged(issues))

    async def repair(self, kinds: Collection[IssueKind]) -> None:
        """Repair both stores: documents whose vectors are wrong become pending, orphaned vectors are deleted."""
        await self._documents.repair([kind for kind in kinds if kind not in NOT_IN_DOCUMENTS])
        found = await self._reconciler.compare()
        await self._reconciler.repair(found)
        await self._reconciler.purge(found)

    async def invalidate(self, document_ids: Collection[str]) -> None:
        await self._documents.invalidate(document_ids)


def misses_vectors(stored: Stored, vectors: StoredVectors | None) -> bool:
    """Whether the stored vectors of a document are incomplete or of another version, whatever its status."""
    if vectors is None:
        return bool(stored.chunk_ids)
    return vectors.chunk_ids != frozenset(stored.chunk_ids) or vectors.revisions != {stored.content_hash}


def _compared(documents: Mapping[str, Stored], vectors: Mapping[str, StoredVectors]) -> Divergence:
    """Which of the indexed documents have too few vectors, and which have vectors of another version."""
    missing: list[str] = []
    stale: list[str] = []
    for id_, stored in documents.items():
        has = vectors.get(id_, StoredVectors(frozenset(), frozenset()))
        if not stored.indexed:
            continue
        if set(stored.chunk_ids) - has.chunk_ids:
            missing.append(id_)
        elif has.chunk_ids - set(stored.chunk_ids) or has.revisions - {stored.content_hash}:
            stale.append(id_)
    return Divergence(tuple(missing), tuple(stale))


def _merged(issues: Sequence[Issue]) -> tuple[Issue, ...]:
    """One issue of each kind, in the order of the kinds."""
    merged: dict[IssueKind, Issue] = {}
    for issue in issues:
        earlier = merged.get(issue.kind, Issue(issue.kind, 0, ()))
        merged[issue.kind] = Issue(
            issue.kind, earlier.count + issue.count, (*earlier.examples, *issue.examples)[:EXAMPLES]
        )
    return tuple(merged[kind] for kind in IssueKind if kind in merged)

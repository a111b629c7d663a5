"""Comparing a document store with the vector store beside it, by ids and revisions, and repairing what differs."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rag_context.domain.documents import Missing, Stored, StoredVectors, slices
from rag_context.domain.reports import EXAMPLES, IntegrityReport, Issue, IssueKind, Thoroughness
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import DocumentCheck, DocumentWriter, IndexAuditor, VectorWriter

PAGE = 200

COMPARISONS_OF_A_SUSPECT = 3
"""How often a document is compared that two processes wrote at the same time."""

NOT_IN_DOCUMENTS = frozenset(
    {IssueKind.MISSING_VECTORS, IssueKind.BAD_VECTORS, IssueKind.STALE_VECTORS, IssueKind.NO_MODEL}
)
"""Issues that a document store cannot check where another store keeps the vectors."""


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

    def __init__(self, documents: DocumentStore, writer: DocumentWriter, vectors: VectorWriter) -> None:
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

    async def examine(self, check: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
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

"""Comparing a document store with the vector store beside it, by ids and revisions, and mending what differs."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rag_context.domain.documents import Stored, StoredVectors
from rag_context.domain.integrity import IntegrityReport, Issue, IssueKind, Thoroughness
from rag_context.ports.maintenance import DocumentCheck, IndexAuditor
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import DocumentWriter, VectorWriter

PAGE = 200
"""Documents compared at a time."""

LOOKS_AT_A_SUSPECT = 3

EXAMPLES = 5
"""Documents that are named for each kind of difference."""

NOT_HERE = frozenset({IssueKind.MISSING_VECTORS, IssueKind.BAD_VECTORS, IssueKind.STALE_VECTORS, IssueKind.NO_MODEL})
"""What a document store cannot judge whose vectors are elsewhere."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Document ids: those that lack vectors and do not say so, those with vectors of another version, and those that
    only the vector store knows."""

    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.stale or self.orphans)


class Reconciler:
    """Compares and mends two stores while others use them. Every method raises `BackendError` where one is not there.

    Args:
        documents: reads the document store, whose word counts.
        writer: makes documents pending.
        vectors: the vector store.
    """

    def __init__(self, documents: DocumentStore, writer: DocumentWriter, vectors: VectorWriter) -> None:
        self._documents = documents
        self._writer = writer
        self._vectors = vectors
        self._place = ""
        self._explained = 0
        self._suspects: dict[str, int] = {}

    def suspect(self, document_id: str) -> None:
        """Have a document compared soon, and again after that: whoever else writes it may not be done yet."""
        self._suspects[document_id] = LOOKS_AT_A_SUSPECT

    async def differ(self) -> bool:
        """Whether there are other numbers of vectors than there should be: cheap, and not proof of sameness.

        Vectors that a comparison found to be of no document are not told of again.
        """
        counts = await self._documents.counts()
        surplus = await self._vectors.count() - counts.vectors
        return surplus < 0 if counts.pending else surplus != self._explained

    async def compare(self) -> Divergence:
        """Everything, document by document. The ids of all documents are held in memory meanwhile."""
        missing: list[str] = []
        stale: list[str] = []
        known: set[str] = set()
        async for page in self._pages():
            known.update(page)
            found = await self._compare(page)
            missing.extend(found.missing)
            stale.extend(found.stale)
        strangers = {id_ async for id_ in self._vectors.held_documents() if id_ not in known}
        orphans = [id_ for id_ in sorted(strangers) if await self._documents.stored(id_) is None]
        self._explained = 0
        for ids in _slices(orphans):
            held = await self._vectors.held(ids)
            self._explained += sum(len(each.chunk_ids) for each in held.values())
        return Divergence(tuple(missing), tuple(stale), tuple(orphans))

    async def compare_some(self) -> Divergence:
        """The suspects, and the documents that follow those of the last call, after the last the first; no orphans."""
        page = await self._documents.inventory(self._place, PAGE)
        self._place = max(page) if len(page) == PAGE else ""
        suspects, self._suspects = self._suspects, {}
        for id_, looks in suspects.items():
            if looks > 1:
                self._suspects[id_] = looks - 1
            stored = await self._documents.stored(id_)
            page = page if stored is None else {**page, id_: stored}
        return await self._compare(page)

    async def mend(self, found: Divergence) -> None:
        """Make what lacks its vectors pending, for the sweep to complete."""
        for ids in _slices((*found.missing, *found.stale)):
            await self._writer.unsettle(ids)

    async def purge(self, found: Divergence) -> None:
        """Forget the vectors that belong to no document."""
        for ids in _slices(found.orphans):
            gone = [id_ for id_ in ids if await self._documents.stored(id_) is None]
            await self._vectors.discard(gone)
            await self._writer.unsettle(gone)  # one of them may have come in since

    async def count(self) -> int:
        """How many vectors there are."""
        return await self._vectors.count()

    async def _compare(self, page: Mapping[str, Stored]) -> Divergence:
        if not page:
            return Divergence()
        first = _judged(page, await self._vectors.held(list(page)))
        again = [await self._confirmed(id_) for id_ in (*first.missing, *first.stale)]
        return Divergence(
            tuple(id_ for found in again for id_ in found.missing), tuple(id_ for found in again for id_ in found.stale)
        )

    async def _confirmed(self, id_: str) -> Divergence:
        """A look at the vectors between two at the document: it may be under way from one version to another."""
        before = await self._documents.stored(id_)
        held = await self._vectors.held([id_])
        if before is None or before != await self._documents.stored(id_):
            return Divergence()
        return _judged({id_: before}, held)

    async def _pages(self) -> AsyncIterator[Mapping[str, Stored]]:
        last = ""
        while page := await self._documents.inventory(last, PAGE):
            yield page
            last = max(page)


class TwoStoreAuditor:
    """`IndexAuditor` over a document store and the vector store beside it.

    Args:
        documents: examines the document store.
        reconciler: compares the two.
    """

    def __init__(self, documents: IndexAuditor, reconciler: Reconciler) -> None:
        self._documents = documents
        self._reconciler = reconciler

    async def examine(self, judge: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        """Examine the documents, then compare them with the vectors. Raises: BackendError."""
        found = await self._documents.examine(judge, thoroughness)
        if any(flaw.kind is IssueKind.DAMAGED_FILE for flaw in found.flaws):
            return found
        difference = await self._reconciler.compare()
        flaws = [flaw for flaw in found.flaws if flaw.kind not in NOT_HERE]
        for kind, ids in (
            (IssueKind.MISSING_VECTORS, difference.missing),
            (IssueKind.STALE_VECTORS, difference.stale),
            (IssueKind.ORPHANS, difference.orphans),
        ):
            if ids:
                flaws.append(Issue(kind, len(ids), ids[:EXAMPLES]))
        counts = replace(found.counts, vectors=await self._reconciler.count())
        return replace(found, counts=counts, flaws=_merged(flaws))

    async def mend(self, kinds: Collection[IssueKind]) -> None:
        """Mend both stores; documents whose vectors are wrong become pending, vectors of none go.

        Raises:
            BackendError: not everything is mended.
        """
        await self._documents.mend([kind for kind in kinds if kind not in NOT_HERE])
        found = await self._reconciler.compare()
        await self._reconciler.mend(found)
        await self._reconciler.purge(found)

    async def distrust(self, document_ids: Collection[str]) -> None:
        """Have these documents replaced when their sources are indexed again. Raises: BackendError."""
        await self._documents.distrust(document_ids)


def lacks_vectors(stored: Stored, held: StoredVectors | None) -> bool:
    """Whether a vector store has other vectors of a document than it should, whatever the document says of itself."""
    if held is None:
        return bool(stored.chunk_ids)
    return held.chunk_ids != frozenset(stored.chunk_ids) or held.revisions != {stored.content_hash}


def _judged(documents: Mapping[str, Stored], held: Mapping[str, StoredVectors]) -> Divergence:
    """Which of the documents that are said to be indexed lack vectors, and which have others than theirs."""
    missing: list[str] = []
    stale: list[str] = []
    for id_, stored in documents.items():
        has = held.get(id_, StoredVectors(frozenset(), frozenset()))
        if not stored.indexed:
            continue
        if set(stored.chunk_ids) - has.chunk_ids:
            missing.append(id_)
        elif has.chunk_ids - set(stored.chunk_ids) or has.revisions - {stored.content_hash}:
            stale.append(id_)
    return Divergence(tuple(missing), tuple(stale))


def _merged(flaws: Sequence[Issue]) -> tuple[Issue, ...]:
    """One flaw of each kind, in the order of the kinds."""
    merged: dict[IssueKind, Issue] = {}
    for flaw in flaws:
        had = merged.get(flaw.kind, Issue(flaw.kind, 0, ()))
        merged[flaw.kind] = Issue(flaw.kind, had.count + flaw.count, (*had.examples, *flaw.examples)[:EXAMPLES])
    return tuple(merged[kind] for kind in IssueKind if kind in merged)


def _slices(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]

"""Comparing a document store with the vector store beside it, by ids and revisions, and mending what differs."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rag_context.ports import DocumentStore, DocumentWriter, IndexAuditor, Judge, VectorWriter
from rag_context.types import Examination, Flaw, FlawKind, Held, Stored, Thoroughness

PAGE = 200
"""Documents compared at a time."""

EXAMPLES = 5
"""Documents that are named for each kind of difference."""

NOT_HERE = frozenset({FlawKind.MISSING_VECTORS, FlawKind.BAD_VECTORS, FlawKind.STALE_VECTORS, FlawKind.NO_MODEL})
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

    async def differ(self) -> bool:
        """Whether the numbers of vectors differ although nothing is pending: cheap, and not proof of sameness."""
        counts = await self._documents.counts()
        return counts.pending == 0 and counts.vectors != await self._vectors.count()

    async def compare(self) -> Divergence:
        """Everything, document by document."""
        missing: list[str] = []
        stale: list[str] = []
        known: set[str] = set()
        async for page in self._pages():
            known.update(page)
            lacking, outdated = _judged(page, await self._vectors.held(list(page)))
            for id_ in (*lacking, *outdated):  # a look at the same moment: it may have been written between the two
                again = await self._documents.stored(id_)
                pair = {} if again is None else {id_: again}
                lacks, is_outdated = _judged(pair, await self._vectors.held([id_]))
                missing.extend(lacks)
                stale.extend(is_outdated)
        held = {id_ async for id_ in self._vectors.held_documents()}
        orphans = [id_ for id_ in sorted(held - known) if await self._documents.stored(id_) is None]
        return Divergence(tuple(missing), tuple(stale), tuple(orphans))

    async def mend(self, found: Divergence) -> None:
        """Make what lacks its vectors pending, for the sweep to complete; forget what belongs to no document."""
        for ids in _slices((*found.missing, *found.stale)):
            await self._writer.unsettle(ids)
        for ids in _slices(found.orphans):
            await self._vectors.discard([id_ for id_ in ids if await self._documents.stored(id_) is None])

    async def count(self) -> int:
        """How many vectors there are."""
        return await self._vectors.count()

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

    async def examine(self, judge: Judge, thoroughness: Thoroughness) -> Examination:
        """Examine the documents, then compare them with the vectors. Raises: BackendError."""
        found = await self._documents.examine(judge, thoroughness)
        if any(flaw.kind is FlawKind.DAMAGED_FILE for flaw in found.flaws):
            return found
        difference = await self._reconciler.compare()
        flaws = [flaw for flaw in found.flaws if flaw.kind not in NOT_HERE]
        for kind, ids in (
            (FlawKind.MISSING_VECTORS, difference.missing),
            (FlawKind.STALE_VECTORS, difference.stale),
            (FlawKind.ORPHANS, difference.orphans),
        ):
            if ids:
                flaws.append(Flaw(kind, len(ids), ids[:EXAMPLES]))
        counts = replace(found.counts, vectors=await self._reconciler.count())
        return replace(found, counts=counts, flaws=_merged(flaws))

    async def mend(self, kinds: Collection[FlawKind]) -> None:
        """Mend both stores; documents whose vectors are wrong become pending. Raises: BackendError."""
        await self._documents.mend([kind for kind in kinds if kind not in NOT_HERE])
        await self._reconciler.mend(await self._reconciler.compare())


def _judged(documents: Mapping[str, Stored], held: Mapping[str, Held]) -> tuple[list[str], list[str]]:
    """Which of the documents that are said to be indexed lack vectors, and which have others than theirs."""
    missing: list[str] = []
    stale: list[str] = []
    for id_, stored in documents.items():
        has = held.get(id_, Held(frozenset(), frozenset()))
        if not stored.indexed:
            continue
        if set(stored.chunk_ids) - has.chunk_ids:
            missing.append(id_)
        elif has.chunk_ids - set(stored.chunk_ids) or has.revisions != {stored.content_hash}:
            stale.append(id_)
    return missing, stale


def _merged(flaws: Sequence[Flaw]) -> tuple[Flaw, ...]:
    """One flaw of each kind, in the order of the kinds."""
    merged: dict[FlawKind, Flaw] = {}
    for flaw in flaws:
        had = merged.get(flaw.kind, Flaw(flaw.kind, 0, ()))
        merged[flaw.kind] = Flaw(flaw.kind, had.count + flaw.count, (*had.examples, *flaw.examples)[:EXAMPLES])
    return tuple(merged[kind] for kind in FlawKind if kind in merged)


def _slices(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]

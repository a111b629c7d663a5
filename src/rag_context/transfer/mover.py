"""Moves an index to another backend: what is missing there is copied, then both are compared.

The comparison reads the ids, content hashes, states and chunk ids of both, in the order of the ids. It is the plan of a
move as well as its proof, so that an interrupted move needs no record of how far it came: the next one continues.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from rag_context.domain.documents import Stored, slices
from rag_context.domain.search import Filter
from rag_context.domain.vectors import EmbeddingModel
from rag_context.errors import BackendRejectedError, ForgottenError
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.ports.writing import BulkLoad, IndexWriter, Journal, ModelRegistry
from rag_context.resilience.dependency import retrying
from rag_context.transfer import lines
from rag_context.transfer.exporter import Exporter
from rag_context.transfer.importer import Conflict, Importer, ImportOutcome
from rag_context.transfer.lines import IndexedDocument

PAGE = 1_000

BATCH = 64
"""Documents that are read together, and written in one transaction where the target can."""

READERS = 8

_Left = TypeVar("_Left")
_Right = TypeVar("_Right")

OnProgress = Callable[[int, int | None], None]
"""Takes how much is done, and of how much; None where that is unknown."""


@dataclass(frozen=True, slots=True)
class Index:
    documents: DocumentStore
    vectors: VectorStore
    registry: ModelRegistry
    writer: IndexWriter
    bulk: BulkLoad | None = None
    journal: Journal | None = None


@dataclass(slots=True)
class MoveDifference:
    """How the target differs from the source: documents of the source by id, and what only the target has."""

    missing: dict[str, Stored] = field(default_factory=dict)
    without_vectors: dict[str, Stored] = field(default_factory=dict)
    """The target has this version, but not its vectors."""
    changed: dict[str, Stored] = field(default_factory=dict)
    """The target has another version."""
    extra: list[str] = field(default_factory=list)
    same: int = 0

    @property
    def to_copy(self) -> dict[str, Stored]:
        return {**self.missing, **self.without_vectors, **self.changed}


@dataclass(slots=True)
class Copied:
    """What became of the documents of a move, and which of them the target cannot hold, with the reasons."""

    outcomes: Counter[ImportOutcome] = field(default_factory=Counter)
    kept: set[str] = field(default_factory=set)
    """Documents of which the target has a newer version."""
    rejected: dict[str, str] = field(default_factory=dict)


class Mover:
    def __init__(self, source: Index, target: Index) -> None:
        self._source = source
        self._target = target
        self._reader = Exporter(source.documents, source.vectors, source.registry)
        self._readers = asyncio.Semaphore(READERS)
        # A document that the target has in a newer version stays: a repeated move takes nothing back.
        self._importer = Importer(target.documents, target.writer, target.registry, Conflict.KEEP, target.journal)

    async def compare(self, on_progress: OnProgress) -> MoveDifference:
        """Compare the two. Raises: BackendError where one is unavailable."""
        found = MoveDifference()
        total = (await self._source.documents.counts()).documents
        compared = 0
        inventories = (_inventory(index.documents) for index in (self._source, self._target))
        async for id_, stored, there in outer_join(*inventories):
            if stored is None:
                found.extra.append(id_)
                continue
            if there is None:
                found.missing[id_] = stored
            elif there.content_hash != stored.content_hash:
                found.changed[id_] = stored
            elif stored.indexed and not there.indexed:
                found.without_vectors[id_] = stored
            else:
                found.same += 1
            compared += 1
            if compared % PAGE == 0:
                on_progress(compared, max(total, compared))
        on_progress(compared, compared)
        return found

    async def copy(self, documents: Mapping[str, Stored], on_progress: OnProgress) -> Copied:
        """Copy these documents of the source in the order of their first writes, which is that of conversations.

        Those that were copied stay. Raises: IndexMismatchError (the target has vectors of another model), BackendError
        (the same move again continues).
        """
        model = await self._source.registry.recorded_model()
        if model is not None:
            await self._target.registry.adopt_model(model)
        usable = await self._importer.use_vectors_of(model)
        copied, done = Copied(), 0
        journal = self._source.journal if self._target.journal is not None else None
        if journal is not None:
            async for part in lines.earlier(journal):
                await self._importer.take_over(part)
        ordered = await self._ordered(documents)
        for ids in slices(ordered, BATCH):
            read = await asyncio.gather(*(self._read(id_, documents[id_], model) for id_ in ids))
            await self._write([entry for entry in read if entry is not None], usable, copied)
            done += len(ids)
            on_progress(done, len(ordered))
        if journal is not None:
            await self._take_over_links(journal)
        return copied

    async def _take_over_links(self, journal: Journal) -> None:
        """What is known of all documents of the source: one may have been pinned after it was copied."""
        last = ""
        while page := await self._source.documents.inventory(last, PAGE):
            await self._importer.take_over(await lines.known_of(journal, sorted(page)))
            last = max(page)

    async def _read(self, id_: str, seen: Stored, model: EmbeddingModel | None) -> IndexedDocument | None:
        async with self._readers:
            return await self._reader.read(id_, seen, model)

    async def _ordered(self, documents: Mapping[str, Stored]) -> list[str]:
        """Their ids, those of each tenant by the first write; then those that were added meanwhile."""
        total = (await self._source.documents.counts()).documents + len(documents)
        ordered: dict[str, None] = {}
        for tenant in await self._source.documents.tenants():
            found = await self._source.documents.matching(Filter(tenant=tenant), total)
            ordered |= dict.fromkeys(id_ for id_ in found if id_ in documents)
        return list(ordered | dict.fromkeys(documents))

    async def _write(self, batch: Sequence[IndexedDocument], model: EmbeddingModel | None, copied: Copied) -> None:
        """Store a batch in its order: what is new in one transaction if the target can, the rest one by one."""
        if self._target.bulk is not None and batch:
            made_by = None if model is None else model.fingerprint
            whole = [(each.document, each.chunks, None if model is None else each.vectors) for each in batch]
            try:
                new = set(await retrying(partial(self._target.bulk.write_new, whole, made_by)))
            except BackendRejectedError:
                new = set()  # one of them; which, is seen below
            copied.outcomes[ImportOutcome.NEW] += len(new)
            batch = [each for each in batch if each.document.id not in new]
        for entry in batch:  # in turn, so that their order stays
            try:
                outcome, _ = await self._importer.store(entry)
            except (BackendRejectedError, ForgottenError) as error:
                copied.rejected[entry.document.id] = str(error)
                continue
            copied.outcomes[outcome] += 1
            if outcome is ImportOutcome.KEPT:
                copied.kept.add(entry.document.id)


async def outer_join(
    left: AsyncIterator[tuple[str, _Left]], right: AsyncIterator[tuple[str, _Right]]
) -> AsyncIterator[tuple[str, _Left | None, _Right | None]]:
    """Every id of two sources that are in the order of their ids, with what each has of it; None where it is missing.

    Both are read in parallel, so that neither has to fit into memory.
    """
    one, other = await anext(left, None), await anext(right, None)
    while one is not None or other is not None:
        if one is not None and (other is None or one[0] < other[0]):
            yield one[0], one[1], None
            one = await anext(left, None)
        elif other is not None and (one is None or other[0] < one[0]):
            yield other[0], None, other[1]
            other = await anext(right, None)
        elif one is not None and other is not None:
            yield one[0], one[1], other[1]
            one, other = await anext(left, None), await anext(right, None)


async def _inventory(documents: DocumentStore) -> AsyncIterator[tuple[str, Stored]]:
    """Id and state of every document, in the order of the ids, read page by page."""
    last = ""
    while page := await documents.inventory(last, PAGE):
        for id_ in sorted(page):
            yield id_, page[id_]
        last = max(page)

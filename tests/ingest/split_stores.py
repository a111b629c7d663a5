"""Documents in one file and their vectors in another, for the tests of the two-store write path."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import NAMESPACE_URL, uuid5

from rag_context.domain.documents import Chunk, Document, Metadata, Shelf, Span, chunk_ids
from rag_context.domain.journal import Action, Change, Location, Move
from rag_context.domain.search import Filter
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendUnavailableError
from rag_context.ingest.indexer import Indexer, IndexingPolicy
from rag_context.ingest.split_stores import Reconciler, TwoStoreWriter, journal_over
from rag_context.ingest.vector_generations import VectorStorage
from rag_context.memory.bound_embedder import BoundEmbedder
from rag_context.ports.writing import VectorWriter, Version
from rag_context.resilience.dependency import Dependency
from rag_context.stores.sqlite.embedded import open_documents
from rag_context.testing import FakeEmbedder
from rag_context.wiring.stores import DocumentBackend
from tests.stores.opened import open_vectors

T = TypeVar("T")

GONE = BackendUnavailableError("x", "gone")


def document(name: str, *sentences: str, tags: tuple[str, ...] = ()) -> Document:
    """A version of the document `name`: its sentences."""
    content = ". ".join(sentences) + "."
    return Document(
        id=str(uuid5(NAMESPACE_URL, name)),
        tenant=Filter().tenant,
        content_type="documentation",
        session_id="s",
        source=f"{name}.md",
        title=name,
        content=content,
        content_hash=str(uuid5(NAMESPACE_URL, f"{content} {tags}")),
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        metadata=Metadata(tags=tags),
    )


def chunks_of(document: Document) -> list[Chunk]:
    """A chunk per sentence."""
    sentences = [f"{text}." for text in document.content.rstrip(".").split(". ")]
    ids = chunk_ids(document.id, [("", text) for text in sentences])
    return [
        Chunk(id_, document.id, position, text, Span(0, len(text), 1, 1), occurred_at=document.occurred_at)
        for position, (id_, text) in enumerate(zip(ids, sentences, strict=True))
    ]


class Wire:
    """What calls go over: it may break at one of them, before it arrives or after, and stays broken until repaired."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._left: int | None = None
        self._late = False
        self._broken = False

    def break_at(self, call: int) -> None:
        """Break before the call of this number, counted from now, from 0."""
        self._left, self._late = call, False

    def break_after(self, call: int) -> None:
        """Break after that call was done, and before it is acknowledged."""
        self._left, self._late = call, True

    def mend(self) -> None:
        self._left, self._broken = None, False
        self.calls.clear()

    def front(self, target: T) -> T:
        """`target`, at the other end."""
        return cast("T", _Far(target, self))

    async def over(self, name: str, work: Callable[[], Any]) -> Any:
        if self._broken:
            raise GONE
        self.calls.append(name)
        last = self._left == 0
        if self._left is not None:
            self._left -= 1
        if not last:
            return await work()
        self._broken = True
        if self._late:
            await work()
        raise GONE


class Schedule:
    """Lets the calls of several callers through in a given order, one letter a call; then everyone."""

    def __init__(self, order: str) -> None:
        self._order = list(order)
        self._changed = asyncio.Condition()

    def of(self, letter: str, target: T) -> T:
        """`target` for one of the callers."""
        return cast("T", _Far(target, _Slot(self, letter)))

    async def take(self, letter: str, work: Callable[[], Any]) -> Any:
        async with self._changed:
            await self._changed.wait_for(lambda: letter not in self._order or self._order[0] == letter)
            result = await work()
            if letter in self._order:
                self._order.pop(0)
            self._changed.notify_all()
            return result

    async def leave(self, letter: str) -> None:
        """The caller has no more calls to make."""
        async with self._changed:
            self._order = [each for each in self._order if each != letter]
            self._changed.notify_all()


@dataclass(frozen=True)
class _Slot:
    schedule: Schedule
    letter: str

    async def over(self, _name: str, work: Callable[[], Any]) -> Any:
        return await self.schedule.take(self.letter, work)


class _Far:
    def __init__(self, target: object, wire: "Wire | _Slot") -> None:
        self._target = target
        self._wire = wire

    def __getattr__(self, name: str) -> object:
        value = getattr(self._target, name)
        if not asyncio.iscoroutinefunction(value):
            return value

        async def call(*args: object, **kwargs: object) -> object:
            return await self._wire.over(name, lambda: value(*args, **kwargs))

        return call


@dataclass
class SplitStores:
    """Both halves, opened, with a writer over a wire that can be broken."""

    home: DocumentBackend
    vectors: VectorStorage
    fake: FakeEmbedder = field(default_factory=lambda: FakeEmbedder(dimension=16))
    wire: Wire = field(default_factory=Wire)

    def __post_init__(self) -> None:
        self.reconciler = Reconciler(self.home.documents, self.home.documents, self.vectors)
        self.restart()

    def restart(self) -> None:
        """A new process: what the last one was doing is forgotten."""
        self.wire.mend()
        self.guard = Dependency("vectors", self.vectors.ping)
        self.writer = TwoStoreWriter(
            documents=self.home.documents,
            writer=self.wire.front(self.home.documents),
            registry=self.wire.front(self.home.documents),
            vectors=self.wire.front(self.vectors),
            vector_store=self.guard,
            suspect=self.reconciler.suspect,
        )

    async def forget(self, document: Document) -> None:
        """Move a document to the trash."""
        assert self.home.journal is not None
        before = Location(document.id, document.content_hash)
        move = Move(before, replace(before, id="", shelf=Shelf.TRASH), forgets=True)
        change = Change(Action.FORGET, document.tenant, [move], "tester", document.timestamp)
        await journal_over(self.wire.front(self.home.journal), self.writer, "vectors").make(change)

    def another(self, schedule: Schedule, letter: str) -> TwoStoreWriter:
        """A writer of another process, whose calls wait for their turn."""
        return TwoStoreWriter(
            documents=self.home.documents,
            writer=schedule.of(letter, self.home.documents),
            registry=self.home.documents,
            vectors=schedule.of(letter, self.vectors),
            vector_store=Dependency("vectors", self.vectors.ping),
            suspect=self.reconciler.suspect,
        )

    def over(self, vectors: VectorWriter) -> TwoStoreWriter:
        """A writer over another front of the vector store."""
        return TwoStoreWriter(
            documents=self.home.documents,
            writer=self.home.documents,
            registry=self.home.documents,
            vectors=vectors,
            vector_store=Dependency("vectors", self.vectors.ping),
            suspect=self.reconciler.suspect,
        )

    async def indexer(self) -> Indexer:
        """The real write path over both."""
        bound = BoundEmbedder(self.fake, self.writer)
        await bound.bind()
        return Indexer(
            embedder=bound,
            embedding=Dependency("embedder", bound.ping),
            documents=self.home.documents,
            document_store=Dependency("documents", self.home.documents.ping),
            writer=self.writer,
            policy=IndexingPolicy(254),
        )

    @property
    def maker(self) -> str:
        return self.fake.model.fingerprint

    async def embedded(self, chunks: Sequence[Chunk]) -> Matrix:
        return await self.fake.embed_documents([chunk.searchable for chunk in chunks])

    async def write(self, document: Document) -> bool:
        chunks = chunks_of(document)
        return await self.writer.write(Version(document, chunks, await self.embedded(chunks), self.maker))

    async def sweep(self) -> None:
        """Complete what is pending."""
        for id_ in await self.home.documents.pending(1000):
            stored = await self.home.documents.stored(id_)
            assert stored is not None
            vectors = await self.embedded(await self.home.documents.chunks(id_))
            await self.writer.attach(id_, stored.content_hash, vectors, self.maker)

    async def reconcile(self) -> None:
        """Compare, repair and purge, as `check --repair` does."""
        found = await self.reconciler.compare()
        await self.reconciler.repair(found)
        await self.reconciler.purge(found)

    async def look_again(self) -> None:
        """What the upkeep does in one round."""
        await self.reconciler.repair(await self.reconciler.compare_some())
        await self.sweep()

    async def recover(self) -> None:
        """All that makes good what a crash left."""
        await self.reconcile()
        await self.sweep()

    async def torn(self) -> list[str]:
        """Documents that are marked indexed without the vectors that they must have."""
        found = await self.reconciler.compare()
        return [*found.missing, *found.stale]

    async def by_text(self, query: str) -> list[str]:
        hits = await self.home.texts.search(query, limit=50, where=Filter())
        return [hit.chunk.id for hit in hits]

    async def by_vector(self, query: str, *tags: str, shelf: Shelf | None = None) -> list[str]:
        vector = await self.fake.embed_query(query)
        hits = await self.vectors.search(vector, limit=50, where=Filter(Filter().tenant.on(shelf), tags=tags))
        return [hit.chunk.id for hit in hits]


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[SplitStores]:
    """Two files in a directory, ready for the fake embedder's vectors."""
    async with open_documents(directory / "documents.db") as home, open_vectors(directory / "vectors.db") as vectors:
        split = SplitStores(
            DocumentBackend(home.documents, home.texts, home.metrics, home.auditor, home.journal), vectors
        )
        await split.writer.adopt_model(split.fake.model)
        split.wire.mend()
        yield split

"""Vectors in generations: one answers, the next is made beside it, and takes its place in one step.

Which one answers is in the document store, beside the model that made it. So nothing is exchanged in the vector store
itself, and a process that has not heard of it yet asks what it has asked before, until that is removed.
"""

import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Protocol

from rag_context.domain.documents import Chunk, Document, StoredVectors
from rag_context.domain.embedding_model import EmbeddingModel, Rebuild
from rag_context.domain.search import Filter, Passage, VectorHit
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendRejectedError
from rag_context.ingest.reconciliation import PAGE, lacks_vectors
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.ports.writing import DocumentWriter, VectorWriter

STRAGGLERS = 0.01
"""Where no more than this share of the documents came in since they were all looked at, they are left to follow."""

TOUCH_S = 1.0
"""How often a run that gets on says so."""

GRACE_S = 10.0
"""How long a generation that does not answer any more is kept for processes that have not heard of it."""


class VectorHome(VectorStore, VectorWriter, Protocol):
    """A vector store that is written to by itself."""

    async def remove(self) -> None:
        """Remove all of it, what holds the vectors included; it may be gone already. It is not used after that."""
        ...


class GenerationRegistry(Protocol):
    """Remembers which generation of vectors answers, and which is being made, where another store keeps them.

    Generation 0 is the one that an index begins with.
    """

    async def answering(self) -> tuple[int, str | None]:
        """The generation that answers, and the fingerprint of its model; None where none is recorded."""
        ...

    async def run_under_way(self) -> Rebuild | None: ...

    async def debris(self) -> int | None:
        """A generation that may be there and does not answer; while a run is under way, the one it makes."""
        ...

    async def begin_run(self, run: Rebuild, generation: int, debris: int | None) -> bool:
        """Record a run, in place of another one, and the generation that it makes.

        False, and nothing changes, where `debris` is not what is recorded: another process was faster.
        """
        ...

    async def touch_run(self, made_by: str, touched: float) -> None:
        """Record that the run of the model `made_by` got on, where it is still under way."""
        ...

    async def abandon_run(self) -> None:
        """Record that no run is under way; what the last one made is debris."""
        ...

    async def forget_debris(self, generation: int) -> None:
        """Record that this generation is gone, unless other debris is recorded or a run is under way."""
        ...

    async def end_run(self, made_by: str, generation: int) -> bool:
        """Have this generation answer, and its model recorded, in one step; the one that did is debris.

        False, and nothing changes, where no run of the model `made_by` is under way.
        """
        ...


class VectorGenerations:
    """`VectorStore` and `VectorWriter` over the generation that answers; what is discarded goes from the next too.

    Args:
        home: the vectors of a generation.
        registry: says which one answers.
    """

    def __init__(self, home: Callable[[int], VectorHome], registry: GenerationRegistry) -> None:
        self._open = home
        self._registry = registry
        self._homes: dict[int, VectorHome] = {}
        self._generation: int | None = None
        self.made_by: str | None = None
        """Fingerprint of the model of the generation that answers; None while it is not known."""
        self.next: VectorHome | None = None
        """The generation that is being made."""

    async def follow(self) -> int:
        """Read which generation answers. Raises: BackendError."""
        self._generation, self.made_by = await self._registry.answering()
        return self._generation

    def of(self, generation: int) -> VectorHome:
        """The vectors of a generation."""
        if generation not in self._homes:
            self._homes[generation] = self._open(generation)
        return self._homes[generation]

    async def remove(self, generation: int) -> None:
        """Remove a generation. Raises: BackendError."""
        await self.of(generation).remove()
        self._homes.pop(generation, None)  # another task may have removed it meanwhile

    async def search(self, vector: Vector, *, limit: int, where: Filter) -> list[VectorHit]:
        return await (await self._current()).search(vector, limit=limit, where=where)

    async def score(self, vector: Vector, chunk_ids: Sequence[str]) -> dict[str, float]:
        return await (await self._current()).score(vector, chunk_ids)

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        return await (await self._current()).passages(chunk_ids)

    async def vectors(self, chunk_ids: Sequence[str]) -> dict[str, Vector]:
        return await (await self._current()).vectors(chunk_ids)

    async def ping(self) -> str:
        return await (await self._current()).ping()

    async def prepare(self, model: EmbeddingModel) -> None:
        await (await self._current()).prepare(model)

    async def put(self, document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> None:
        await (await self._current()).put(document, chunks, vectors)

    async def discard(self, document_ids: Collection[str]) -> None:
        await (await self._current()).discard(document_ids)
        if self.next is not None:
            await self.next.discard(document_ids)

    async def held(self, document_ids: Collection[str]) -> dict[str, StoredVectors]:
        return await (await self._current()).held(document_ids)

    async def held_documents(self) -> AsyncIterator[str]:
        async for id_ in (await self._current()).held_documents():
            yield id_

    async def count(self) -> int:
        return await (await self._current()).count()

    async def clear(self) -> None:
        await (await self._current()).clear()

    async def _current(self) -> VectorHome:
        return self.of(await self.follow() if self._generation is None else self._generation)


class GenerationRebuilder:
    """`VectorRebuilder` over generations: what lacks its vectors is found by comparing ids and revisions.

    Args:
        documents: reads the document store.
        writer: makes documents pending.
        registry: remembers the run.
        vectors: the generations.
        now: the wall clock, in seconds since 1970.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        documents: DocumentStore,
        writer: DocumentWriter,
        registry: GenerationRegistry,
        vectors: VectorGenerations,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents = documents
        self._writer = writer
        self._registry = registry
        self._vectors = vectors
        self._now = now
        self._clock = clock
        self._touched = -math.inf
        self._debris_since: float | None = None

    async def under_way(self) -> Rebuild | None:
        """The run under way; where there is none, what one has left is removed after a while."""
        generation = await self._vectors.follow()
        run = await self._registry.run_under_way()
        if run is not None:
            self._vectors.next = self._vectors.of(await self._being_made())
            return run
        self._vectors.next = None
        debris = await self._registry.debris()
        if debris is None or debris == generation:
            self._debris_since = None
        elif self._debris_since is None:
            self._debris_since = self._clock()
        elif self._clock() - self._debris_since >= GRACE_S:
            await self._vectors.remove(debris)
            await self._registry.forget_debris(debris)
        return None

    async def begin(self, model: EmbeddingModel) -> bool:
        """Begin to make the vectors of `model`; what a run of another model, or the last one, has left is removed.

        False where another process has begun a run of this model.
        """
        while True:
            generation = await self._vectors.follow()
            debris = await self._registry.debris()
            run = await self._registry.run_under_way()
            if run is not None and run.model.fingerprint == model.fingerprint:
                return False
            # No number is given to two runs: a process that removes what bore it may be late.
            new = max(generation, debris or 0) + 1
            if await self._registry.begin_run(Rebuild(model, self._now()), new, debris):
                break
        self._vectors.next = self._vectors.of(new)
        await self._vectors.next.prepare(model)
        if debris is not None and debris != generation:
            await self._vectors.remove(debris)
        return True

    async def lacking(self, after: str, limit: int) -> list[str]:
        """Ids, ascending, of documents behind the id `after` that lack new vectors."""
        home = await self._next()
        found: list[str] = []
        while len(found) < limit and (page := await self._documents.inventory(after, PAGE)):
            held = await home.held(list(page))
            found += sorted(id_ for id_, stored in page.items() if lacks_vectors(stored, held.get(id_)))
            after = max(page)
        return found[:limit]

    async def remaining(self) -> int:
        """How many documents lack new vectors, going by how many passages do."""
        counts = await self._documents.counts()
        share = 1.0 - await (await self._next()).count() / max(counts.chunks, 1)
        return math.ceil(counts.documents * min(max(share, 0.0), 1.0))

    async def add(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str) -> bool:
        """Store the new vectors of this version of a document; False where it changed or went away meanwhile."""
        run = await self._require_run(made_by)
        document = await self._documents.get(document_id)
        chunks = await self._documents.chunks(document_id)
        if document is None or document.content_hash != content_hash or len(chunks) != len(vectors):
            return False
        home = await self._next()
        await home.put(document, chunks, vectors)
        if await self._documents.stored(document_id) is None:
            await home.discard([document_id])
            return False
        if self._clock() - self._touched >= TOUCH_S:
            self._touched = self._clock()
            await self._registry.touch_run(run.model.fingerprint, self._now())
        return True

    async def switch(self, made_by: str, without: Collection[str]) -> bool:
        """Have the new generation answer; False where too many documents lack their vectors in it.

        Raises:
            BackendRejectedError: no run of this model is under way.
        """
        await self._require_run(made_by)
        generation = await self._being_made()
        documents = (await self._documents.counts()).documents
        lacking = await self.lacking("", documents + PAGE)
        if len(set(lacking) - set(without)) > STRAGGLERS * documents:
            return False
        home = self._vectors.of(generation)
        strangers = [id_ async for id_ in home.held_documents()]
        known: Mapping[str, str] = {}
        for start in range(0, len(strangers), PAGE):
            some = strangers[start : start + PAGE]
            known = await self._documents.content_hashes(some)
            if gone := [id_ for id_ in some if id_ not in known]:
                await home.discard(gone)
        if lacking:
            await self._writer.unsettle(lacking)
        if not await self._registry.end_run(made_by, generation):
            raise _no_run()
        await self._vectors.follow()
        self._vectors.next = None
        return True

    async def abandon(self) -> None:
        """Forget the run; what it has made is removed after a while."""
        await self._registry.abandon_run()
        self._vectors.next = None

    async def _next(self) -> VectorHome:
        return self._vectors.next or self._vectors.of(await self._being_made())

    async def _being_made(self) -> int:
        """The generation that the run under way makes."""
        return await self._registry.debris() or await self._vectors.follow() + 1

    async def _require_run(self, made_by: str) -> Rebuild:
        run = await self._registry.run_under_way()
        if run is None or run.model.fingerprint != made_by:
            raise _no_run()
        return run


def _no_run() -> BackendRejectedError:
    return BackendRejectedError("vectors", "No vectors of this model are being made.")

"""Generations of vectors: one is active, the next is built beside it and becomes the active one in one step.

The document store records which one is active, and its model. So nothing is replaced in the vector store itself, and
a process that does not know of the switch yet goes on with the old generation until that is removed.
"""

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from dataclasses import KW_ONLY, dataclass, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from rag_context.domain.documents import slices
from rag_context.domain.vectors import EmbeddingModel, Generations, Matrix, Rebuild
from rag_context.ingest.split_stores import PAGE, misses_vectors
from rag_context.ports.reading import DocumentStore, VectorStore
from rag_context.ports.writing import DocumentWriter, ModelRegistry, VectorWriter, can_switch, no_rebuild

P = ParamSpec("P")
T = TypeVar("T")

TOUCH_S = 1.0
"""How often a run records its progress."""

GRACE_S = 10.0
"""How long the previous generation is kept for processes that do not know of the switch yet."""


class VectorStorage(VectorStore, VectorWriter, Protocol):
    async def remove(self) -> None:
        """Remove the whole storage, which may be gone already and is not used again; data of other programs stays."""

    async def require_own(self) -> None:
        """Check that nothing in the storage is another program's. Raises: ForeignDataError."""


class GenerationRegistry(Protocol):
    """Records which generation of vectors is active, and which is being built."""

    async def generations(self) -> Generations: ...

    async def record_generations(self, before: Generations, after: Generations) -> bool:
        """Record a run, its progress or its end, in one step; another active generation gets the model of the run.

        False, and no change, where another run or inactive generation is recorded than `before` has.
        """


class SplitDocuments(DocumentStore, DocumentWriter, ModelRegistry, GenerationRegistry, Protocol):
    """A document store and its writer, where another store keeps the vectors; it records which these are."""

    async def try_write(self) -> None:
        """Write something that changes nothing of the index. Raises: BackendError (why a write would fail)."""


def _active(
    method: Callable[Concatenate[VectorStorage, P], Awaitable[T]],
) -> Callable[Concatenate["VectorGenerations", P], Coroutine[Any, Any, T]]:
    """This method of the active generation's storage."""

    @wraps(method)
    async def call(self: "VectorGenerations", /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await getattr(await self.current(), method.__name__)(*args, **kwargs)
        return result

    return call


class VectorGenerations:
    """`VectorStore` and `VectorWriter` over the active generation; `discard` also applies to the one being built."""

    def __init__(self, storage: Callable[[int], VectorStorage], registry: GenerationRegistry) -> None:
        self._open = storage
        self._registry = registry
        self._storages: dict[int, VectorStorage] = {}
        self._generation: int | None = None
        self.made_by: str | None = None
        """Fingerprint of the model of the active generation; None while it is not known."""
        self.next: VectorStorage | None = None

    async def follow(self) -> Generations:
        """Read which generation is active. Raises: BackendError."""
        now = await self._registry.generations()
        self._generation, self.made_by = now.active, now.made_by
        return now

    def of(self, generation: int) -> VectorStorage:
        if generation not in self._storages:
            self._storages[generation] = self._open(generation)
        return self._storages[generation]

    async def remove(self, generation: int) -> None:
        await self.of(generation).remove()
        self._storages.pop(generation, None)  # another task may have removed it

    search = _active(VectorStorage.search)
    score = _active(VectorStorage.score)
    passages = _active(VectorStorage.passages)
    vectors = _active(VectorStorage.vectors)
    ping = _active(VectorStorage.ping)
    prepare = _active(VectorStorage.prepare)
    put = _active(VectorStorage.put)
    stored_vectors = _active(VectorStorage.stored_vectors)
    count = _active(VectorStorage.count)
    clear = _active(VectorStorage.clear)

    async def discard(self, document_ids: Collection[str]) -> None:
        await (await self.current()).discard(document_ids)
        if self.next is not None:
            await self.next.discard(document_ids)

    async def stored_documents(self) -> AsyncIterator[str]:
        async for id_ in (await self.current()).stored_documents():
            yield id_

    async def current(self) -> VectorStorage:
        return self.of((await self.follow()).active if self._generation is None else self._generation)


@dataclass(eq=False)
class GenerationRebuilder:
    """`VectorRebuilder` over generations: documents without new vectors are found by comparing ids and revisions."""

    documents: SplitDocuments
    vectors: VectorGenerations
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._touched = -math.inf
        self._inactive_since: float | None = None

    async def under_way(self) -> Rebuild | None:
        """The run under way; where there is none, the inactive generation is removed after a while."""
        now = await self.vectors.follow()
        if now.run is not None:
            self.vectors.next = self.vectors.of(_number(now))
            return now.run
        self.vectors.next = None
        if now.inactive is None or now.inactive == now.active:
            self._inactive_since = None
        elif self._inactive_since is None:
            self._inactive_since = self.clock()
        # Not at once: other processes search it until they notice the switch.
        elif self.clock() - self._inactive_since >= GRACE_S:
            await self.vectors.remove(now.inactive)
            await self.documents.record_generations(now, replace(now, inactive=None))
        return None

    async def begin(self, model: EmbeddingModel) -> bool:
        """Begin a run for `model`; False where another process has begun one. Raises: ForeignDataError."""
        while True:
            now = await self.vectors.follow()
            if now.building == model.fingerprint:
                return False
            # The old vectors are removed in the end, under a name that may be another program's.
            await self.vectors.of(now.active).require_own()
            # Two runs never share a number: a process may remove an old generation late.
            new = await self._unused(max(now.active, now.inactive or 0) + 1)
            # A compare-and-swap: where another process was faster, all is read again.
            begun = replace(now, run=Rebuild(model, time.time()), inactive=new)
            if await self.documents.record_generations(now, begun):
                break
        self.vectors.next = self.vectors.of(new)
        # Recorded before it exists: what a crash leaves behind is known and can be removed.
        await self.vectors.next.prepare(model)
        if now.inactive is not None and now.inactive != now.active:
            await self.vectors.remove(now.inactive)
        return True

    async def _unused(self, generation: int) -> int:
        """The first generation from this one on whose storage is empty: another index may have the same names."""
        while True:
            storage = self.vectors.of(generation)
            await storage.require_own()
            if not await storage.count():
                return generation
            generation += 1

    async def missing(self, after: str, limit: int) -> list[str]:
        storage = await self._next()
        found: list[str] = []
        while len(found) < limit and (page := await self.documents.inventory(after, PAGE)):
            vectors = await storage.stored_vectors(list(page))
            found += sorted(id_ for id_, stored in page.items() if misses_vectors(stored, vectors.get(id_)))
            after = max(page)
        return found[:limit]

    async def remaining(self) -> int:
        """How many documents have no new vectors yet, estimated from the number of passages."""
        counts = await self.documents.counts()
        share = 1.0 - await (await self._next()).count() / max(counts.chunks, 1)
        return math.ceil(counts.documents * min(max(share, 0.0), 1.0))

    async def add(self, document_id: str, content_hash: str, vectors: Matrix, made_by: str) -> bool:
        now = await self._require_run(made_by)
        document = await self.documents.get(document_id)
        chunks = await self.documents.chunks(document_id)
        if document is None or document.content_hash != content_hash or len(chunks) != len(vectors):
            return False
        storage = await self._next()
        await storage.put(document, chunks, vectors)
        # Deleted meanwhile: its vectors may have been discarded before these were stored.
        if await self.documents.stored(document_id) is None:
            await storage.discard([document_id])
            return False
        # Not for every document: it is a write to the document store.
        if self.clock() - self._touched >= TOUCH_S:
            self._touched = self.clock()
            touched = now.run and replace(now.run, touched=time.time())
            await self.documents.record_generations(now, replace(now, run=touched))
        return True

    async def switch(self, made_by: str, without: Collection[str]) -> bool:
        """Make the new generation active; False where too many vectors are missing. Raises: BackendRejectedError."""
        now = await self._require_run(made_by)
        generation = _number(now)
        documents = (await self.documents.counts()).documents
        missing = await self.missing("", documents + PAGE)
        if not can_switch(missing, without, documents):
            return False
        storage = self.vectors.of(generation)
        # A process that does not know of the run deletes documents without their new vectors.
        unknown = [id_ async for id_ in storage.stored_documents()]
        for some in slices(unknown, PAGE):
            stored = await self.documents.content_hashes(some)
            if gone := [id_ for id_ in some if id_ not in stored]:
                await storage.discard(gone)
        if missing:
            await self.documents.mark_pending(missing)
        ended = Generations(generation, made_by, inactive=now.active)
        if not await self.documents.record_generations(replace(now, inactive=generation), ended):
            raise no_rebuild("vectors")
        await self.vectors.follow()
        self.vectors.next = None
        return True

    async def abandon(self) -> None:
        """End the run without a result; its generation is removed after a while."""
        now = await self.documents.generations()
        while not await self.documents.record_generations(now, replace(now, run=None)):
            now = await self.documents.generations()  # another process has begun or ended one
        self.vectors.next = None

    async def _next(self) -> VectorStorage:
        # Read each time: a run that another process began again builds another generation.
        self.vectors.next = self.vectors.of(_number(await self.vectors.follow()))
        return self.vectors.next

    async def _require_run(self, made_by: str) -> Generations:
        now = await self.documents.generations()
        if now.building != made_by:
            raise no_rebuild("vectors")
        return now


def _number(now: Generations) -> int:
    """The generation that the run under way builds."""
    return now.inactive or now.active + 1

"""Collections in the domain's words: named sets of documents with vectors, on whichever connection they live."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from uuid import UUID, uuid5

import numpy as np

from rag_context.collections.connections import CollectionRef, Connection, Connections
from rag_context.collections.labels import (
    BUILT,
    OWN_EMBEDDER,
    built_name,
    embeddable,
    labelled,
    overriding,
    without_empty_labels,
    writable,
)
from rag_context.collections.models import RECORD, SAMPLES, are_alike, is_of, mismatch, record_of, recorded
from rag_context.collections.paging import bulk
from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.documents import Json
from rag_context.domain.embedding_model import EmbeddingModel
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendError, ConflictError, FieldError, InvalidInputError, NotFoundError
from rag_context.ports.provider import Collection, Entry, EntryHit, EntryPage, Provider

READ_S = 10.0
WRITE_S = 60.0

_NAMESPACE = UUID("0d9b5a52-9d3e-5b0c-8f0a-6f4f9a3f5a11")
"""Of the ids that are computed. It never changes: the same document has the same id for good."""


@dataclass(frozen=True, slots=True)
class DocumentInput:
    """A document as it was handed in: without an id it gets one, without a vector it is embedded."""

    text: str
    metadata: Mapping[str, Json] = field(default_factory=dict)
    id: str | None = None
    vector: Vector | None = None


class Collections:
    """The use cases of collections.

    Every method that names a place raises NotFoundError where there is no such collection or connection, and
    BackendError where its provider cannot be had.

    Args:
        connections: where collections live.
    """

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.turns = Turns()
        self._updating = asyncio.Lock()

    async def listing(self, connection: str) -> list[Collection]:
        """All collections of a connection, by name; those that a reindexing builds are not shown."""
        found = await self._on(connection).call(lambda p: p.collections(), READ_S)
        return [labelled(one) for one in found if BUILT not in one.name]

    async def get(self, place: CollectionRef) -> Collection:
        """One collection."""
        return labelled(await self._raw(place))

    async def create(self, collection: Collection, connection: str) -> Collection:
        """Make an empty collection. Raises: ConflictError where its name is taken."""
        dated = replace(collection, created=collection.created or datetime.now(UTC))
        attempts = count()

        async def made(provider: Provider) -> bool:
            repeated = next(attempts) > 0
            if await provider.create(dated):
                return True
            # The attempt before this one may have made it, and only its answer was lost.
            there = await provider.collection(dated.name) if repeated else None
            return there is not None and there.created == dated.created

        if not await self._on(connection).call(made, WRITE_S):
            raise ConflictError(f"Collection '{collection.name}' already exists")
        return await self.get(CollectionRef(collection.name, connection))

    async def drop(self, place: CollectionRef) -> None:
        """Remove a collection with all that is in it."""
        writable(await self._raw(place))
        attempts = count()

        async def gone(provider: Provider) -> None:
            repeated = next(attempts) > 0
            with suppress(NotFoundError):  # what a reindexing that was cut short has built
                await provider.drop(built_name(place.name))
            try:
                await provider.drop(place.name)
            except NotFoundError:
                if not repeated:
                    raise
                # It was there: the attempt before this one removed it, and only its answer was lost.

        await self._on(place.connection).call(gone, WRITE_S)

    async def replace_metadata(self, place: CollectionRef, metadata: Mapping[str, Json]) -> Collection:
        """Put other metadata in place of the old; the labels stay, unless others are given.

        Raises:
            InvalidInputError: a label is given that is none.
        """
        given = without_empty_labels(metadata)
        before = writable(await self._raw(place)).metadata
        kept = {key: value for key, value in before.items() if key == RECORD}
        wanted = {**overriding(before), **kept, **given}
        return labelled(
            await self._on(place.connection).call(lambda p: p.replace_metadata(place.name, wanted), WRITE_S)
        )

    async def merge_metadata(self, place: CollectionRef, metadata: Mapping[str, Json]) -> Collection:
        """Set these keys and keep the others. Raises: InvalidInputError where a label is given that is none."""
        wanted = without_empty_labels(metadata)
        writable(await self._raw(place))
        return await self._merged(place, wanted)

    async def add(self, collection: Collection, connection: str, drafts: Sequence[DocumentInput]) -> list[str]:
        """Store documents, all of them or none; a known id is replaced. Returns their ids, in order.

        Raises:
            InvalidInputError: two are one, or their vectors do not fit the collection.
        """
        writable(collection)
        entries = await asyncio.to_thread(_entries, collection.name, drafts)
        place = CollectionRef(collection.name, connection)
        all_brought = all(draft.vector is not None for draft in drafts)
        if not all_brought:
            await self.agree(place, collection)
        vectors = await self._vectors(connection, drafts)
        _check_dimension(collection, drafts, vectors.shape[1])
        if all_brought and _is_new(collection) and collection.embedding_provider == OWN_EMBEDDER:
            await self._record_if_fitting(place, vectors.shape[1])
        await self._upsert(place, entries, vectors)
        return [entry.id for entry in entries]

    async def _upsert(self, place: CollectionRef, entries: Sequence[Entry], vectors: Matrix) -> None:
        async with self.turns.write():
            await self._on(place.connection).call(lambda p: p.upsert(place.name, entries, vectors), WRITE_S)

    async def entries(self, place: CollectionRef, where: Clause, *, limit: int, offset: int) -> EntryPage:
        """A page of the documents that a filter lets through, by id, and how many there are in all."""
        return await self._on(place.connection).call(
            lambda p: p.entries(place.name, where, limit=limit, offset=offset), READ_S
        )

    async def get_entries(self, place: CollectionRef, ids: Sequence[str]) -> dict[str, Entry]:
        """The given documents; unknown ones are left out."""
        return await self._on(place.connection).call(lambda p: bulk(p).get(place.name, ids), READ_S)

    async def vectors(self, place: CollectionRef, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of the given documents, `(dim,) float32` each; unknown ones are left out."""
        return await self._on(place.connection).call(lambda p: p.vectors(place.name, ids), READ_S)

    async def matching(self, place: CollectionRef, where: Clause) -> tuple[list[str], int]:
        """The ids of the documents that a filter lets through, and how many documents there are in all."""
        whole = await self._raw(place)
        return await self._on(place.connection).call(lambda p: bulk(p).ids(place.name, where), WRITE_S), whole.count

    async def delete_matching(self, place: CollectionRef, ids: Sequence[str], where: Clause) -> int:
        """Remove those of these documents that a filter still lets through; returns how many."""
        writable(await self._raw(place))
        async with self.turns.write():
            return await self._on(place.connection).call(lambda p: bulk(p).delete_many(place.name, ids, where), WRITE_S)

    async def update_metadata(
        self, place: CollectionRef, id_: str, metadata: Mapping[str, Json], *, merge: bool
    ) -> Entry:
        """Give one document other metadata, or set some keys of it; its text and vector stay.

        Two updates of this process do not lose each other's keys; of two processes at one moment, the last one counts.

        Raises:
            NotFoundError: there is no such document.
        """
        writable(await self._raw(place))
        async with self._updating:
            entry = (await self.get_entries(place, [id_])).get(id_)
            vector = (await self.vectors(place, [id_])).get(id_)
            if entry is None or vector is None:
                raise NotFoundError(f"Document '{id_}' not found")
            changed = replace(entry, metadata={**entry.metadata, **metadata} if merge else dict(metadata))
            await self._upsert(place, [changed], np.stack([vector]))
        return changed

    async def search(
        self, place: CollectionRef, vector: Vector, *, limit: int, where: Clause = EVERYTHING
    ) -> list[EntryHit]:
        """The documents nearest to a vector. Raises: InvalidInputError where it is of another dimension."""
        return await self._on(place.connection).call(
            lambda p: p.search(place.name, vector, limit=limit, where=where), READ_S
        )

    async def query(self, place: CollectionRef, text: str, *, limit: int, where: Clause = EVERYTHING) -> list[EntryHit]:
        """The documents nearest to a text, which is embedded here.

        Raises:
            InvalidInputError: the collection's vectors are not made here.
        """
        return await self.search(place, await self.embedded(place, text), limit=limit, where=where)

    async def embedded(self, place: CollectionRef, text: str) -> Vector:
        """The vector of a query, made here by the model that made the collection's: `(dim,) float32`.

        Raises:
            InvalidInputError: the collection's vectors are not made here.
            ConflictError: they were made by another model.
        """
        collection = await self.get(place)
        embeddable(collection)
        await self.agree(place, collection)
        return await self._on(place.connection).embedder.query(text)

    async def agree(self, place: CollectionRef, collection: Collection) -> None:
        """See that the model in use is the one that made a collection's vectors; record it with a new collection.

        A collection from before models were recorded is bound to the model in use only if that makes the same
        vectors of some of its texts again.

        Raises:
            ConflictError: the vectors were made by another model.
        """
        model = self._on(place.connection).embedder.model
        if recorded(collection) is None:
            if not _is_new(collection) and not await self._made_by(place, model):
                raise mismatch(collection, place.connection, model)
            # Read again: of two that record at the same moment, one was first.
            collection = await self._merged(place, {RECORD: record_of(model)})
        record = recorded(collection)
        if record is None or not is_of(record, model):
            raise mismatch(collection, place.connection, model)

    async def _record_if_fitting(self, place: CollectionRef, dimension: int) -> None:
        """A collection whose first documents bring their vectors is the model's too, where they may be its."""
        try:
            model = self._on(place.connection).embedder.model
        except BackendError:
            return  # no model is needed to store vectors
        if model.dimension == dimension:
            await self._merged(place, {RECORD: record_of(model)})

    async def _made_by(self, place: CollectionRef, model: EmbeddingModel) -> bool:
        """Whether the model makes the same vectors of some of a collection's texts again."""
        page = await self.entries(place, EVERYTHING, limit=SAMPLES, offset=0)
        stored = await self.vectors(place, [entry.id for entry in page.entries])
        sampled = [entry for entry in page.entries if entry.id in stored]
        if not sampled or any(len(stored[entry.id]) != model.dimension for entry in sampled):
            return not page.total
        made = await self._on(place.connection).embedder.documents([entry.text for entry in sampled])
        return are_alike([stored[entry.id] for entry in sampled], made)

    async def _merged(self, place: CollectionRef, metadata: Mapping[str, Json]) -> Collection:
        return labelled(
            await self._on(place.connection).call(lambda p: p.merge_metadata(place.name, metadata), WRITE_S)
        )

    async def delete(self, place: CollectionRef, id_: str) -> None:
        """Remove one document. Raises: NotFoundError."""
        writable(await self._raw(place))
        async with self.turns.write():
            gone = await self._on(place.connection).call(lambda p: p.delete(place.name, id_), WRITE_S)
        if not gone:
            raise NotFoundError(f"Document '{id_}' not found")

    async def empty(self, place: CollectionRef) -> int:
        """Remove all documents, or none; returns how many."""
        before = writable(await self._raw(place)).count
        attempts = count()

        async def emptied(provider: Provider) -> int:
            repeated = next(attempts) > 0
            gone = await provider.empty(place.name)
            return before if repeated and not gone else gone

        async with self.turns.write():
            return await self._on(place.connection).call(emptied, WRITE_S)

    async def values(self, place: CollectionRef, path: tuple[str, ...]) -> list[Json]:
        """The distinct values of a metadata field, in no order."""
        return await self._on(place.connection).call(lambda p: p.values(place.name, path), READ_S)

    def _on(self, connection: str) -> Connection:
        return self.connections.known(connection)

    async def _raw(self, place: CollectionRef) -> Collection:
        found = await self._on(place.connection).call(lambda p: p.collection(place.name), READ_S)
        if found is None:
            raise NotFoundError(f"Collection '{place.name}' not found")
        return found

    async def _vectors(self, connection: str, drafts: Sequence[DocumentInput]) -> Matrix:
        bare = [draft.text for draft in drafts if draft.vector is None]
        if not bare:
            return np.stack([draft.vector for draft in drafts if draft.vector is not None])
        made = iter(await self._on(connection).embedder.documents(bare))
        rows = [next(made) if draft.vector is None else draft.vector for draft in drafts]
        for place, row in enumerate(rows):
            if len(row) != len(rows[0]):
                said = (
                    f"Embedding dimension mismatch: documents[0] has {len(rows[0])} dimensions and "
                    f"documents[{place}] has {len(row)}"
                )
                raise InvalidInputError(said, [FieldError(f"documents[{place}].embedding", said)])
        return np.stack(rows)


class Turns:
    """Lets writes pass together, and what puts other documents in their place only alone."""

    def __init__(self) -> None:
        self._writes = 0
        self._switching = asyncio.Lock()
        self._none_left = asyncio.Event()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[None]:
        """Write beside others; waits while somebody is alone."""
        async with self._switching:
            self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1
            if not self._writes:
                self._none_left.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nobody of this process writes meanwhile."""
        async with self._switching:
            while self._writes:
                self._none_left.clear()
                await self._none_left.wait()
            yield


def _is_new(collection: Collection) -> bool:
    """Whether nothing in it was made by any model."""
    return not collection.count and collection.dimension is None


def entry_id(collection: str, text: str, metadata: Mapping[str, Json]) -> str:
    """The id of a document that came without one: of the same text and metadata the same."""
    known = json.dumps([collection, text, metadata], ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return str(uuid5(_NAMESPACE, known))


def _entries(collection: str, drafts: Sequence[DocumentInput]) -> list[Entry]:
    entries: list[Entry] = []
    places: dict[str, int] = {}
    for place, draft in enumerate(drafts):
        id_ = draft.id if draft.id is not None else entry_id(collection, draft.text, draft.metadata)
        first = places.setdefault(id_, place)
        if first != place:
            said = f"documents[{place}] is the same as documents[{first}]: leave one out, or give each an id of its own"
            raise InvalidInputError(said, [FieldError(f"documents[{place}]", said)])
        entries.append(Entry(id_, draft.text, draft.metadata))
    return entries


def _check_dimension(collection: Collection, drafts: Sequence[DocumentInput], dimension: int) -> None:
    if collection.dimension is None or collection.dimension == dimension:
        return
    said = f"Collection '{collection.name}' holds vectors of {collection.dimension} dimensions, not of {dimension}"
    details = [FieldError(f"documents[{place}].embedding", said) for place in range(min(len(drafts), 100))]
    raise InvalidInputError(said, details)

"""Collections: named sets of documents with vectors, on any connection. The operations of the domain."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from uuid import UUID, uuid5

import numpy as np
from cachetools import TTLCache

from rag_context.collections import labels
from rag_context.collections.provider_connections import CollectionRef, Connections, ProviderCalls
from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.documents import Json
from rag_context.domain.vectors import SAMPLED, Calibration, EmbeddingModel, Matrix, Vector, sampled_calibration
from rag_context.errors import BackendError, ConflictError, FieldError, InvalidInputError, NotFoundError
from rag_context.ports.provider import Collection, Entry, Provider

READ_S = 10.0
WRITE_S = 60.0

CALIBRATIONS = 1000
CALIBRATED_S = 600.0
"""Collections whose sampled calibration is kept, and for how many seconds: they grow."""

_NAMESPACE = UUID("0d9b5a52-9d3e-5b0c-8f0a-6f4f9a3f5a11")
"""Namespace of the computed ids. It never changes, so that a document always gets the same id."""


@dataclass(frozen=True, slots=True)
class CollectionInput:
    """A document to store. Without an id it gets a computed one; without a vector it is embedded."""

    text: str
    metadata: Mapping[str, Json] = field(default_factory=dict)
    id: str | None = None
    vector: Vector | None = None


class Collections:
    """The operations on collections. All with a `ref` raise NotFoundError and BackendError."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.write_lock = SharedExclusiveLock()
        self._updating = asyncio.Lock()
        self._calibrations: TTLCache[tuple[CollectionRef, str], Calibration] = TTLCache(CALIBRATIONS, CALIBRATED_S)

    async def listing(self, connection: str) -> list[Collection]:
        """All collections of a connection, by name, without those that a reindexing is building."""
        found = await (await self.reading(connection)).collections()
        return [labels.with_labels(one) for one in found if labels.BUILT not in one.name]

    async def get(self, ref: CollectionRef) -> Collection:
        return labels.with_labels(await self._stored(ref))

    async def create(self, collection: Collection, connection: str) -> Collection:
        """Create an empty collection. Raises: ConflictError if there is one of that name."""
        dated = replace(collection, created=collection.created or datetime.now(UTC))
        attempts = count()

        async def create(provider: Provider) -> bool:
            repeated = next(attempts) > 0
            if await provider.create(dated):
                return True
            # The previous attempt may have created it, and only its response was lost.
            existing = await provider.collection(dated.name) if repeated else None
            return existing is not None and existing.created == dated.created

        if not await self.connections.require(connection).call(create, WRITE_S):
            raise ConflictError(f"Collection '{collection.name}' already exists")
        return await self.get(CollectionRef(collection.name, connection))

    async def drop(self, ref: CollectionRef) -> None:
        await self._require_writable(ref)
        attempts = count()

        async def drop(provider: Provider) -> None:
            repeated = next(attempts) > 0
            with suppress(NotFoundError):  # left by an interrupted reindexing
                await provider.drop(labels.built_name(ref.name))
            try:
                await provider.drop(ref.name)
            except NotFoundError:
                if not repeated:
                    raise
                # It existed: the previous attempt deleted it, and only its response was lost.

        await self.connections.require(ref.connection).call(drop, WRITE_S)

    async def replace_metadata(self, ref: CollectionRef, metadata: Mapping[str, Json]) -> Collection:
        """Replace the metadata; the embedding labels stay unless the metadata sets them. Raises: InvalidInputError."""
        given = labels.without_empty_labels(metadata)
        before = (await self._require_writable(ref)).metadata
        # The record of the model is not the caller's: without it the next query could not be checked.
        kept = {key: value for key, value in before.items() if key == labels.RECORD}
        merged = {**labels.label_overrides(before), **kept, **given}
        return labels.with_labels(await (await self._writing(ref.connection)).replace_metadata(ref.name, merged))

    async def merge_metadata(self, ref: CollectionRef, metadata: Mapping[str, Json]) -> Collection:
        """Set these keys and keep the others. Raises: InvalidInputError if a label is not a string."""
        changes = labels.without_empty_labels(metadata)
        await self._require_writable(ref)
        return await self._merged(ref, changes)

    async def add(self, collection: Collection, connection: str, documents: Sequence[CollectionInput]) -> list[str]:
        """Store all documents or none, replacing those with the same ids. Returns their ids, in order.

        Raises: InvalidInputError (two documents have one id, or a vector has the wrong dimension).
        """
        labels.require_writable(collection)
        entries = await asyncio.to_thread(_entries, collection.name, documents)
        ref = CollectionRef(collection.name, connection)
        all_embedded = all(document.vector is not None for document in documents)
        if not all_embedded:
            # Before the texts are embedded: a new collection records the model before it has its first vector.
            await self.check_model(ref, collection)
        vectors = await self._vectors(connection, documents)
        _check_dimension(collection, documents, vectors.shape[1])
        if all_embedded and _is_new(collection) and collection.embedding_provider == labels.OWN_EMBEDDER:
            await self._record_if_same_dimension(ref, vectors.shape[1])
        await self._upsert(ref, entries, vectors)
        return [entry.id for entry in entries]

    async def _upsert(self, ref: CollectionRef, entries: Sequence[Entry], vectors: Matrix) -> None:
        async with self.write_lock.shared():
            await (await self._writing(ref.connection)).upsert(ref.name, entries, vectors)

    async def calibration(self, ref: CollectionRef, model: EmbeddingModel) -> Calibration:
        """The calibration of the model of a collection; where it was not measured, by a sample of its vectors."""
        known = self._calibrations.get((ref, model.fingerprint))
        if model.calibration.is_measured or known is not None:
            return known or model.calibration
        provider = await self.reading(ref.connection)
        page = await provider.entries(ref.name, EVERYTHING, limit=SAMPLED)
        found = await provider.vectors(ref.name, [entry.id for entry in page.entries])
        sampled = sampled_calibration(np.stack(list(found.values()))) if found else None
        if sampled is not None:
            self._calibrations[ref, model.fingerprint] = sampled
        return sampled or model.calibration

    async def matching(self, ref: CollectionRef, where: Clause) -> tuple[list[str], int]:
        """The ids of the documents that match a filter, and the number of all documents."""
        count = (await self._stored(ref)).count
        return await (await self._writing(ref.connection)).ids(ref.name, where), count

    async def delete_matching(self, ref: CollectionRef, ids: Sequence[str], where: Clause) -> int:
        """Delete those of these documents that still match a filter; returns how many."""
        await self._require_writable(ref)
        async with self.write_lock.shared():
            return await (await self._writing(ref.connection)).delete_many(ref.name, ids, where)

    async def update_metadata(
        self, ref: CollectionRef, id_: str, metadata: Mapping[str, Json], *, merge: bool
    ) -> Entry:
        """Replace the metadata of one document, or with `merge` set some keys of it; its text and vector stay.

        Two updates by this process do not lose each other's keys. Of two processes at the same time, the last wins.
        """
        await self._require_writable(ref)
        # Reading and writing are one step within this process: providers have none that changes metadata alone.
        async with self._updating:
            provider = await self.reading(ref.connection)
            entry = (await provider.get(ref.name, [id_])).get(id_)
            vector = (await provider.vectors(ref.name, [id_])).get(id_)
            if entry is None or vector is None:
                raise NotFoundError(f"Document '{id_}' not found")
            changed = replace(entry, metadata={**entry.metadata, **metadata} if merge else dict(metadata))
            await self._upsert(ref, [changed], np.stack([vector]))
        return changed

    async def embed_query(self, ref: CollectionRef, text: str) -> Vector:
        """Embed a query with the collection's model, `(dim,) float32`. Raises: InvalidInputError, ConflictError."""
        collection = await self.get(ref)
        labels.require_embeddable(collection)
        await self.check_model(ref, collection)
        return await self.connections.require(ref.connection).embedder.query(text)

    async def check_model(self, ref: CollectionRef, collection: Collection) -> None:
        """Check that the model in use embedded a collection; a new one records the model. Raises: ConflictError.

        A collection without a record does so only if the model makes the same vectors for some of its texts again.
        """
        model = self.connections.require(ref.connection).embedder.model
        if labels.model_record(collection) is None:
            if not _is_new(collection) and not await self._made_by(ref, model):
                raise labels.model_mismatch(collection, ref.connection, model)
            # Check the stored record: another process may have recorded its own model first.
            collection = await self._merged(ref, {labels.RECORD: labels.record_of(model)})
        record = labels.model_record(collection)
        if record is None or not labels.is_made_by(record, model):
            raise labels.model_mismatch(collection, ref.connection, model)

    async def _record_if_same_dimension(self, ref: CollectionRef, dimension: int) -> None:
        """Record the model for a collection whose first documents came with vectors of the model's dimension."""
        try:
            model = self.connections.require(ref.connection).embedder.model
        except BackendError:
            return  # vectors can be stored without a model
        if model.dimension == dimension:
            await self._merged(ref, {labels.RECORD: labels.record_of(model)})

    async def _made_by(self, ref: CollectionRef, model: EmbeddingModel) -> bool:
        """Whether the model makes the same vectors for some of a collection's texts again."""
        provider = await self.reading(ref.connection)
        page = await provider.entries(ref.name, EVERYTHING, limit=labels.SAMPLES)
        stored = await provider.vectors(ref.name, [entry.id for entry in page.entries])
        sampled = [entry for entry in page.entries if entry.id in stored]
        if not sampled or any(len(stored[entry.id]) != model.dimension for entry in sampled):
            return not page.total
        made = await self.connections.require(ref.connection).embedder.documents([entry.text for entry in sampled])
        # Most of them: a document may have come with a vector of its own.
        near = np.vecdot(np.stack([stored[entry.id] for entry in sampled]), made) >= labels.SAME_COSINE
        return bool(near.mean() > 0.5)

    async def _merged(self, ref: CollectionRef, metadata: Mapping[str, Json]) -> Collection:
        return labels.with_labels(await (await self._writing(ref.connection)).merge_metadata(ref.name, metadata))

    async def delete(self, ref: CollectionRef, id_: str) -> None:
        await self._require_writable(ref)
        async with self.write_lock.shared():
            existed = await (await self._writing(ref.connection)).delete(ref.name, id_)
        if not existed:
            raise NotFoundError(f"Document '{id_}' not found")

    async def empty(self, ref: CollectionRef) -> int:
        """Delete all documents, or none if that fails; returns how many."""
        before = (await self._require_writable(ref)).count
        attempts = count()

        async def empty(provider: Provider) -> int:
            repeated = next(attempts) > 0
            deleted = await provider.empty(ref.name)
            return before if repeated and not deleted else deleted

        async with self.write_lock.shared():
            return await self.connections.require(ref.connection).call(empty, WRITE_S)

    def reading(self, connection: str) -> Awaitable[ProviderCalls]:
        """The provider of a connection, for calls that only read."""
        return self.connections.require(connection).within(READ_S)

    def _writing(self, connection: str) -> Awaitable[ProviderCalls]:
        return self.connections.require(connection).within(WRITE_S)

    async def _stored(self, ref: CollectionRef) -> Collection:
        found = await (await self.reading(ref.connection)).collection(ref.name)
        if found is None:
            raise NotFoundError(f"Collection '{ref.name}' not found")
        return found

    async def _require_writable(self, ref: CollectionRef) -> Collection:
        return labels.require_writable(await self._stored(ref))

    async def _vectors(self, connection: str, documents: Sequence[CollectionInput]) -> Matrix:
        bare = [document.text for document in documents if document.vector is None]
        if not bare:
            return np.stack([document.vector for document in documents if document.vector is not None])
        made = iter(await self.connections.require(connection).embedder.documents(bare))
        rows = [next(made) if document.vector is None else document.vector for document in documents]
        for position, row in enumerate(rows):
            if len(row) != len(rows[0]):
                message = (
                    f"Embedding dimension mismatch: documents[0] has {len(rows[0])} dimensions and "
                    f"documents[{position}] has {len(row)}"
                )
                raise InvalidInputError(message, [FieldError(f"documents[{position}].embedding", message)])
        return np.stack(rows)


class SharedExclusiveLock:
    """Writes share the lock; replacing all documents of a collection holds it exclusively."""

    def __init__(self) -> None:
        self._writes = 0
        self._switching = asyncio.Lock()
        self._none_left = asyncio.Event()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with other writes; waits while it is held exclusively."""
        # Held only while counting: a write waits for what holds it exclusively, and not for other writes.
        async with self._switching:
            self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1
            if not self._writes:
                self._none_left.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lock alone: nothing else in this process writes meanwhile."""
        # Held meanwhile, so that no write begins while those under way come to their end.
        async with self._switching:
            while self._writes:
                self._none_left.clear()
                await self._none_left.wait()
            yield


def _is_new(collection: Collection) -> bool:
    """Whether it has never had a vector."""
    return not collection.count and collection.dimension is None


def entry_id(collection: str, text: str, metadata: Mapping[str, Json]) -> str:
    """The id of a document without one; the same for the same text and metadata."""
    content = json.dumps([collection, text, metadata], ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return str(uuid5(_NAMESPACE, content))


def _entries(collection: str, documents: Sequence[CollectionInput]) -> list[Entry]:
    entries: list[Entry] = []
    positions: dict[str, int] = {}
    for position, document in enumerate(documents):
        id_ = document.id if document.id is not None else entry_id(collection, document.text, document.metadata)
        first = positions.setdefault(id_, position)
        if first != position:
            message = (
                f"documents[{position}] is the same as documents[{first}]: leave one out, or give each an id of its own"
            )
            raise InvalidInputError(message, [FieldError(f"documents[{position}]", message)])
        entries.append(Entry(id_, document.text, document.metadata))
    return entries


def _check_dimension(collection: Collection, documents: Sequence[CollectionInput], dimension: int) -> None:
    if collection.dimension is None or collection.dimension == dimension:
        return
    message = f"Collection '{collection.name}' holds vectors of {collection.dimension} dimensions, not of {dimension}"
    fields = [f"documents[{position}].embedding" for position in range(min(len(documents), 100))]
    raise InvalidInputError(message, [FieldError(field, message) for field in fields])

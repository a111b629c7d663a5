"""Collections in the domain's words: named sets of documents with vectors, on whichever connection they live."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from uuid import UUID, uuid5

import numpy as np

from rag_context.clauses import EVERYTHING, Clause
from rag_context.collections.connections import Connection, Connections, Place
from rag_context.errors import ConflictError, FieldError, InvalidInputError, NotFoundError
from rag_context.provider import Collection, Entry, EntryHit, EntryPage, Provider
from rag_context.types import Json, Matrix, Vector

OWN_EMBEDDER = "rag-context"
"""The one label that is more than a label: texts of such a collection are embedded here."""

PROVIDER_LABEL = "embedding_provider"
MODEL_LABEL = "embedding_model"

READ_S = 10.0
WRITE_S = 60.0

_NAMESPACE = UUID("0d9b5a52-9d3e-5b0c-8f0a-6f4f9a3f5a11")
"""Of the ids that are computed. It never changes: the same document has the same id for good."""


@dataclass(frozen=True, slots=True)
class Draft:
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

    async def listing(self, connection: str) -> list[Collection]:
        """All collections of a connection, by name."""
        return [labelled(found) for found in await self._on(connection).call(lambda p: p.collections(), READ_S)]

    async def get(self, place: Place) -> Collection:
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
        return await self.get(Place(collection.name, connection))

    async def drop(self, place: Place) -> None:
        """Remove a collection with all that is in it."""
        await self._raw(place)
        attempts = count()

        async def gone(provider: Provider) -> None:
            repeated = next(attempts) > 0
            try:
                await provider.drop(place.name)
            except NotFoundError:
                if not repeated:
                    raise
                # It was there: the attempt before this one removed it, and only its answer was lost.

        await self._on(place.connection).call(gone, WRITE_S)

    async def replace_metadata(self, place: Place, metadata: Mapping[str, Json]) -> Collection:
        """Put other metadata in place of the old; the labels stay, unless others are given.

        Raises:
            InvalidInputError: a label is given that is none.
        """
        given = _without_empty_labels(metadata)
        wanted = {**_overriding((await self._raw(place)).metadata), **given}
        return labelled(
            await self._on(place.connection).call(lambda p: p.replace_metadata(place.name, wanted), WRITE_S)
        )

    async def merge_metadata(self, place: Place, metadata: Mapping[str, Json]) -> Collection:
        """Set these keys and keep the others. Raises: InvalidInputError where a label is given that is none."""
        wanted = _without_empty_labels(metadata)
        return labelled(await self._on(place.connection).call(lambda p: p.merge_metadata(place.name, wanted), WRITE_S))

    async def add(self, collection: Collection, connection: str, drafts: Sequence[Draft]) -> list[str]:
        """Store documents, all of them or none; a known id is replaced. Returns their ids, in order.

        Raises:
            InvalidInputError: two are one, or their vectors do not fit the collection.
        """
        entries = await asyncio.to_thread(_entries, collection.name, drafts)
        vectors = await self._vectors(connection, drafts)
        _check_dimension(collection, drafts, vectors.shape[1])
        await self._on(connection).call(lambda p: p.upsert(collection.name, entries, vectors), WRITE_S)
        return [entry.id for entry in entries]

    async def entries(self, place: Place, where: Clause, *, limit: int, offset: int) -> EntryPage:
        """A page of the documents that a filter lets through, by id, and how many there are in all."""
        return await self._on(place.connection).call(
            lambda p: p.entries(place.name, where, limit=limit, offset=offset), READ_S
        )

    async def search(self, place: Place, vector: Vector, *, limit: int, where: Clause = EVERYTHING) -> list[EntryHit]:
        """The documents nearest to a vector. Raises: InvalidInputError where it is of another dimension."""
        return await self._on(place.connection).call(
            lambda p: p.search(place.name, vector, limit=limit, where=where), READ_S
        )

    async def query(self, place: Place, text: str, *, limit: int, where: Clause = EVERYTHING) -> list[EntryHit]:
        """The documents nearest to a text, which is embedded here.

        Raises:
            InvalidInputError: the collection's vectors are not made here.
        """
        embeddable(await self.get(place))
        vector = await self._on(place.connection).embedder.query(text)
        return await self.search(place, vector, limit=limit, where=where)

    async def delete(self, place: Place, id_: str) -> None:
        """Remove one document. Raises: NotFoundError."""
        if not await self._on(place.connection).call(lambda p: p.delete(place.name, id_), WRITE_S):
            raise NotFoundError(f"Document '{id_}' not found")

    async def empty(self, place: Place) -> int:
        """Remove all documents, or none; returns how many."""
        before = (await self._raw(place)).count
        attempts = count()

        async def emptied(provider: Provider) -> int:
            repeated = next(attempts) > 0
            gone = await provider.empty(place.name)
            return before if repeated and not gone else gone

        return await self._on(place.connection).call(emptied, WRITE_S)

    async def values(self, place: Place, path: tuple[str, ...]) -> list[Json]:
        """The distinct values of a metadata field, in no order."""
        return await self._on(place.connection).call(lambda p: p.values(place.name, path), READ_S)

    def _on(self, connection: str) -> Connection:
        return self.connections.known(connection)

    async def _raw(self, place: Place) -> Collection:
        found = await self._on(place.connection).call(lambda p: p.collection(place.name), READ_S)
        if found is None:
            raise NotFoundError(f"Collection '{place.name}' not found")
        return found

    async def _vectors(self, connection: str, drafts: Sequence[Draft]) -> Matrix:
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


def embeddable(collection: Collection) -> None:
    """See that texts of a collection are embedded here. Raises: InvalidInputError."""
    if collection.embedding_provider != OWN_EMBEDDER:
        raise InvalidInputError(
            f"Collection '{collection.name}' has embeddings made elsewhere: send an embedding instead of a text "
            f"(its embedding_provider is not '{OWN_EMBEDDER}')",
            [FieldError("text", "this collection is queried by embedding")],
        )


def labelled(collection: Collection) -> Collection:
    """A collection with the labels that its metadata gives it, where it gives it any."""
    given = _overriding(collection.metadata)
    return Collection(
        name=collection.name,
        metadata={key: value for key, value in collection.metadata.items() if key not in given},
        embedding_provider=given.get(PROVIDER_LABEL, collection.embedding_provider),
        embedding_model=given.get(MODEL_LABEL, collection.embedding_model),
        dimension=collection.dimension,
        created=collection.created,
        count=collection.count,
    )


def entry_id(collection: str, text: str, metadata: Mapping[str, Json]) -> str:
    """The id of a document that came without one: of the same text and metadata the same."""
    known = json.dumps([collection, text, metadata], ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return str(uuid5(_NAMESPACE, known))


def _overriding(metadata: Mapping[str, Json]) -> dict[str, str]:
    """Labels that metadata gives a collection in place of those that it was made with."""
    found = {label: metadata.get(label) for label in (PROVIDER_LABEL, MODEL_LABEL)}
    return {label: value for label, value in found.items() if isinstance(value, str)}


def _without_empty_labels(metadata: Mapping[str, Json]) -> dict[str, Json]:
    """Metadata that is put, without labels that are null and so stay. Raises: InvalidInputError."""
    wrong = [
        FieldError(f"metadata.{label}", f"metadata.{label} must be a string; leave it out to keep it as it is")
        for label in (PROVIDER_LABEL, MODEL_LABEL)
        if not isinstance(metadata.get(label), str | None)
    ]
    if wrong:
        raise InvalidInputError("; ".join(each.message for each in wrong), wrong)
    return {
        key: value for key, value in metadata.items() if value is not None or key not in (PROVIDER_LABEL, MODEL_LABEL)
    }


def _entries(collection: str, drafts: Sequence[Draft]) -> list[Entry]:
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


def _check_dimension(collection: Collection, drafts: Sequence[Draft], dimension: int) -> None:
    if collection.dimension is None or collection.dimension == dimension:
        return
    said = f"Collection '{collection.name}' holds vectors of {collection.dimension} dimensions, not of {dimension}"
    details = [FieldError(f"documents[{place}].embedding", said) for place in range(min(len(drafts), 100))]
    raise InvalidInputError(said, details)

"""Named collections of documents in Chroma, and their registry. Those of other programs are read and never changed.

A collection of ours is two of Chroma's: one whose fields are its record, and one for its documents, which name their
owner. So all documents are removed at once: with many rows that are only marked, Chroma's index is slow and finds less.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.domain.documents import Json
from rag_context.domain.vectors import Matrix, Vector
from rag_context.errors import BackendDataError, BackendRejectedError
from rag_context.ports.provider import Collection, Entry, EntryHit, EntryPage, ProviderHealth
from rag_context.stores import engines
from rag_context.stores.chroma import chroma_api, collections_storage
from rag_context.stores.chroma.chroma_api import COMPONENT, NAME, ChromaApi, CollectionInfo, Fields
from rag_context.stores.chroma.collections_storage import ChromaCollectionStorage, ForeignShape, rows_of, size_of
from rag_context.stores.chroma.server import TIMEOUT_S, open_api
from rag_context.stores.engines import collection_from, engine_name, recorded, unknown_collection
from rag_context.stores.tokens import CAPABILITIES

_RECORD = "rag-context:collection"
_OWNER = "rag-context:documents-of"
_ROWS = "documents"


@dataclass(frozen=True, slots=True)
class ChromaCollectionRecord:
    """The record of a collection, and where it and its documents are in Chroma; without its count."""

    id: str
    name: str
    collection: Collection
    rows: CollectionInfo | None = None
    """None before the first document, and after the collection was emptied."""
    documents_name: str | None = None
    """Chroma's name for its documents; None in records of older versions."""
    owner: str | None = None
    """The id of the record that the documents were built for, if that is another one (after a reindexing)."""

    @property
    def rows_name(self) -> str:
        """Chroma's name for its documents; no record's name ends like it."""
        return self.documents_name or f"{self.name}.{_ROWS}"

    @property
    def rows_fields(self) -> Fields:
        return {_OWNER: self.owner or self.id}

    @property
    def fields(self) -> Fields:
        return fields_of(self.collection, self.documents_name, self.owner)

    def owns(self, rows: CollectionInfo) -> bool:
        return rows.fields.get(_OWNER) == (self.owner or self.id)

    def with_documents(self, rows: CollectionInfo | None) -> "ChromaCollectionRecord":
        """The record with its documents, if they are its own; their dimension becomes that of the collection."""
        if rows is None or not self.owns(rows):
            return replace(self, rows=None)
        dimension = rows.dimension or self.collection.dimension
        return replace(self, rows=rows, collection=replace(self.collection, dimension=dimension))


def fields_of(collection: Collection, documents_name: str | None, owner: str | None = None) -> Fields:
    """A collection's record as fields; `documents_name` and `owner` as those of `ChromaCollectionRecord`."""
    record = {**recorded(collection), "place": documents_name, "owner": owner}
    return {_RECORD: json.dumps(record, ensure_ascii=False)}


def is_ours(opened: CollectionInfo) -> bool:
    return _RECORD in opened.fields


def is_foreign(opened: CollectionInfo) -> bool:
    """Whether a collection is neither a record nor the documents of one, under any prefix."""
    return _RECORD not in opened.fields and _OWNER not in opened.fields


def record_of(opened: CollectionInfo) -> ChromaCollectionRecord:
    """The record of a collection that has one. Raises: BackendDataError (it cannot be read)."""
    try:
        record = json.loads(opened.fields[_RECORD])
        collection = collection_from({**record, "metadata": dict(record["metadata"])})
    except (KeyError, TypeError, ValueError) as error:
        message = f"The record of Chroma's collection {opened.name!r} cannot be read."
        raise BackendDataError(COMPONENT, message) from error
    return ChromaCollectionRecord(
        opened.id, opened.name, collection, documents_name=record.get("place"), owner=record.get("owner")
    )


class ChromaCollectionRegistry:
    def __init__(self, api: ChromaApi, prefix: str, hidden: Sequence[str]) -> None:
        self._api = api
        self._prefix = prefix
        self._hidden = tuple(hidden)

    async def all(self) -> list[ChromaCollectionRecord]:
        """The records of all collections; one of another program is left out where one of ours has its name."""
        existing = await self._api.all()
        ours = self._ours_among(existing)
        our_names = {record.collection.name for record in ours}
        foreign = [_foreign_record(one) for one in existing if self._is_shown(one) and one.name not in our_names]
        return ours + foreign

    async def ours(self) -> list[ChromaCollectionRecord]:
        return self._ours_among(await self._api.all())

    async def create(self, collection: Collection) -> bool:
        name = engine_name(self._prefix, collection.name)
        # Chroma's own name would be free: the prefix is before it. To callers both would have the same name.
        if await self._find_foreign(collection.name) is not None:
            return False
        rows_name = f"{name}.{uuid4().hex}.{_ROWS}"  # for its documents; it is used once
        if await self._api.create(name, fields_of(collection, rows_name)) is not None:
            return True
        await self.find(collection.name)  # raises where the name is that of a collection which is not ours
        return False

    async def find(self, name: str) -> ChromaCollectionRecord | None:
        """The record of one of our collections, if it exists. Raises: BackendRejectedError."""
        opened = await self._api.find(engine_name(self._prefix, name))
        if opened is None:
            return None
        if not is_ours(opened):
            message = f"{self._api.label} has a collection {opened.name!r} that was not made by rag-context."
            raise BackendRejectedError(COMPONENT, message)
        record = record_of(opened)
        return record.with_documents(await self._api.find(record.rows_name))

    async def find_any(self, name: str) -> ChromaCollectionRecord | None:
        return await self.find(name) or await self._find_foreign(name)

    async def require(self, name: str) -> ChromaCollectionRecord:
        record = await self.find(name)
        if record is None:
            raise unknown_collection(name)
        return record

    async def require_any(self, name: str) -> ChromaCollectionRecord:
        record = await self.find_any(name)
        if record is None:
            raise unknown_collection(name)
        return record

    def _ours_among(self, existing: Sequence[CollectionInfo]) -> list[ChromaCollectionRecord]:
        by_name = {opened.name: opened for opened in existing}
        prefix = f"{self._prefix}."
        records = [record_of(opened) for name, opened in by_name.items() if name.startswith(prefix) and is_ours(opened)]
        return [record.with_documents(by_name.get(record.rows_name)) for record in records]

    async def _find_foreign(self, name: str) -> ChromaCollectionRecord | None:
        opened = await self._api.find(name) if NAME.fullmatch(name) else None
        return None if opened is None or not self._is_shown(opened) else _foreign_record(opened)

    def _is_shown(self, opened: CollectionInfo) -> bool:
        return is_foreign(opened) and not opened.name.startswith(self._hidden)


def _foreign_record(opened: CollectionInfo) -> ChromaCollectionRecord:
    """The record of another program's collection, with its own metadata, in which labels may stand."""
    metadata = {key: value for key, value in opened.fields.items() if value is not None and not key.startswith("$")}
    collection = Collection(opened.name, metadata, dimension=opened.dimension, foreign=True)
    return ChromaCollectionRecord(opened.id, opened.name, collection, rows=opened)


PREFIX = "rag-context"

T = TypeVar("T")


@asynccontextmanager
async def open_chroma_collections(
    place: str | Path, *, prefix: str = PREFIX, timeout_s: float = TIMEOUT_S, hidden: Sequence[str] = ()
) -> AsyncIterator["ChromaCollections"]:
    """The collections at a place, as `open_api` opens and raises it; a server need not be available yet."""
    async with open_api(place, timeout_s) as api:
        yield ChromaCollections(api, prefix, place if isinstance(place, Path) else None, hidden)


class ChromaCollections:
    """Fits `provider.Provider`; a row per document."""

    capabilities = CAPABILITIES

    def __init__(
        self, api: chroma_api.ChromaApi, prefix: str, folder: Path | None = None, hidden: Sequence[str] = ()
    ) -> None:
        self._api = api
        self._registry = ChromaCollectionRegistry(api, prefix, hidden)
        self._folder = folder
        self._describing = asyncio.Lock()

    async def collections(self) -> list[Collection]:
        found = await engines.few_at_once(map(self._counted, await self._registry.all()))
        return sorted(found, key=lambda each: each.name)

    async def collection(self, name: str) -> Collection | None:
        record = await self._registry.find_any(name)
        return None if record is None else await self._counted(record)

    async def create(self, collection: Collection) -> bool:
        return await self._registry.create(
            replace(collection, created=collection.created or datetime.now(UTC), dimension=None)
        )

    async def drop(self, name: str) -> None:
        """Remove a collection: its documents first, so that a crash leaves an empty one."""
        record = await self._registry.require(name)
        # An interrupted switch leaves two records with the same documents, one of which is still in use.
        others = {other.rows_name for other in await self._registry.ours() if other.id != record.id}
        if record.rows is not None and record.rows_name not in others:
            await self._api.drop(record.rows_name)
        await self._api.drop(record.name)

    async def replace_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        return await self._described(name, lambda current: replace(current, metadata=dict(metadata)))

    async def merge_metadata(self, name: str, metadata: Mapping[str, Json]) -> Collection:
        """One step within this process; Chroma has none, so of two processes at the same moment the last wins."""
        return await self._described(name, lambda current: replace(current, metadata={**current.metadata, **metadata}))

    async def upsert(self, name: str, entries: Sequence[Entry], vectors: Matrix) -> None:
        """Up to Chroma's own limit (some thousands) and 16 MB are stored atomically; a repeat completes more."""
        engines.check_distinct(entries)
        record = await self._registry.require(name)
        if not entries:
            return
        dimension = vectors.shape[1]
        _check(record, dimension)
        start = 0
        for some in engines.operations(entries, lambda entry: size_of(entry, dimension), await self._api.most_rows()):
            rows = await asyncio.to_thread(rows_of, some, vectors[start : start + len(some)])
            start += len(some)
            # Each part reads the record again: an earlier one may have created the storage.
            await self._do(name, partial(self._write, dimension=dimension, rows=rows))

    async def entries(self, name: str, where: Clause, *, limit: int, offset: int = 0) -> EntryPage:
        async def page(storage: ChromaCollectionStorage) -> EntryPage:
            ids = await storage.ids(where)
            some = ids[offset : offset + limit]
            existing = await storage.get(some)
            return EntryPage(tuple(existing[id_] for id_ in some if id_ in existing), len(ids))

        return await self._read(name, EntryPage((), 0), page)

    async def vectors(self, name: str, ids: Sequence[str]) -> dict[str, Vector]:
        return await self._read(name, {}, lambda storage: storage.vectors(ids))

    async def search(self, name: str, vector: Vector, *, limit: int, where: Clause) -> list[EntryHit]:
        _check(await self._registry.require_any(name), len(vector))
        if limit < 1:
            return []
        return await self._read(name, [], lambda storage: storage.search(vector, limit, where))

    async def ids(self, name: str, where: Clause) -> list[str]:
        return await self._read(name, list[str](), lambda storage: storage.ids(where))

    async def get(self, name: str, ids: Sequence[str]) -> dict[str, Entry]:
        return await self._read(name, dict[str, Entry](), lambda storage: storage.get(ids))

    async def delete_many(self, name: str, ids: Sequence[str], where: Clause) -> int:
        await self._registry.require(name)
        return await self._read(name, 0, lambda storage: storage.delete_many(ids, where))

    async def switch(self, name: str, built: str) -> bool:
        """Readers find either the old documents or the new ones; the caller ensures that both are the same."""
        async with self._describing:
            new, old = await self._registry.require(built), await self._registry.require(name)
            described = replace(old.collection, metadata=new.collection.metadata, dimension=new.collection.dimension)
            # The record first: a crash after it leaves documents that two records name, never a record without
            # documents.
            await self._api.describe(old.id, fields_of(described, new.rows_name, new.owner or new.id))
            await self._api.drop(new.name)
            if old.rows is not None and old.rows_name != new.rows_name:
                await self._api.drop(old.rows_name)
        return True

    async def delete(self, name: str, id_: str) -> bool:
        return await self.delete_many(name, [id_], EVERYTHING) > 0

    async def empty(self, name: str) -> int:
        async with self._describing:
            record = await self._registry.require(name)
            count = (await self._counted(record)).count
            if record.rows is not None:
                await self._api.describe(record.id, record.fields)  # which now records the dimension
                await self._api.drop(record.rows_name)
        return count

    async def values(self, name: str, path: tuple[str, ...]) -> list[Json]:
        return await self._read(name, list[Json](), lambda storage: storage.values(path))

    async def health(self) -> ProviderHealth:
        async def measure() -> tuple[int, int | None]:
            count = len(await self._registry.ours())
            return count, None if self._folder is None else await asyncio.to_thread(_bytes_in, self._folder)

        return await engines.timed_health(measure)

    async def _counted(self, record: ChromaCollectionRecord) -> Collection:
        try:
            count = 0 if record.rows is None else await self._api.count(record.rows.id)
        except chroma_api.CollectionGoneError:
            count = 0
        return replace(record.collection, count=count)

    async def _described(self, name: str, change: Callable[[Collection], Collection]) -> Collection:
        async with self._describing:
            record = await self._registry.require(name)
            changed = change(record.collection)
            try:
                await self._api.describe(record.id, replace(record, collection=changed).fields)
            except chroma_api.CollectionGoneError as error:
                raise engines.unknown_collection(name) from error
            return await self._counted(replace(record, collection=changed))

    async def _write(self, record: ChromaCollectionRecord, dimension: int, rows: chroma_api.Rows) -> None:
        _check(record, dimension)
        stored = record.rows or await self._created_rows(record)
        try:
            await self._api.upsert(stored.id, rows)
        except BackendRejectedError:
            _check(
                record.with_documents(await self._api.find(record.rows_name)), dimension
            )  # another process was faster
            raise

    async def _created_rows(self, record: ChromaCollectionRecord) -> chroma_api.CollectionInfo:
        """Create the storage for the documents of a collection."""
        # Left behind by a removal: it has no owner any more, and it takes the name.
        leftover = await self._api.find(record.rows_name)
        if leftover is not None and not is_foreign(leftover) and not record.owns(leftover):
            await self._api.drop(record.rows_name)
        rows = await self._api.create(record.rows_name, record.rows_fields) or await self._api.find(record.rows_name)
        if rows is None or not record.owns(rows):
            raise chroma_api.RowsMovedError(
                chroma_api.COMPONENT, f"{self._api.label}: the collection was replaced meanwhile"
            )
        return rows

    async def _read(self, name: str, empty: T, work: Callable[[ChromaCollectionStorage], Awaitable[T]]) -> T:
        """Do `work` with the documents of a collection; `empty` if it has none."""

        async def read(record: ChromaCollectionRecord) -> T:
            shape = ForeignShape() if record.collection.foreign else collections_storage.OurShape()
            return empty if record.rows is None else await work(ChromaCollectionStorage(self._api, record.rows, shape))

        return await self._do(name, read, self._registry.require_any)

    async def _do(
        self,
        name: str,
        work: Callable[[ChromaCollectionRecord], Awaitable[T]],
        find: Callable[[str], Awaitable[ChromaCollectionRecord]] | None = None,
    ) -> T:
        """Do `work`, and retry it if rows were replaced meanwhile."""
        find = find or self._registry.require

        async def attempt() -> T:
            return await work(await find(name))

        return await chroma_api.repeated(attempt)


def _check(record: ChromaCollectionRecord, dimension: int) -> None:
    engines.check_dimension(record.collection.name, record.collection.dimension, dimension)


def _bytes_in(folder: Path) -> int:
    """How large the files in a folder are; files that are removed meanwhile are left out."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            size += path.stat().st_size
    return size

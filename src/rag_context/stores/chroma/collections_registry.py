"""The registry of collections in Chroma: the records of ours, and what it shows of other programs' collections.

A collection of ours is two of Chroma's: one whose fields are its record, and one for its documents, which name their
owner. So all documents are removed at once: with many rows that are only marked, Chroma's index is slow and finds less.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from rag_context.errors import BackendDataError, BackendRejectedError
from rag_context.ports.provider import Collection
from rag_context.stores.chroma.chroma_api import COMPONENT, NAME, ChromaApi, CollectionInfo, Fields
from rag_context.stores.engines import collection_from, engine_name, recorded, unknown_collection

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

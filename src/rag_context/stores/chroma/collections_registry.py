"""The registry of collections in Chroma: finding the records of ours, and the collections of other programs."""

import re
from collections.abc import Sequence

from rag_context.errors import BackendRejectedError, NotFoundError
from rag_context.ports.provider import Collection
from rag_context.stores.chroma.api import COMPONENT, ChromaApi, Opened
from rag_context.stores.chroma.collections_record import (
    CollectionRecord,
    fields_of,
    is_foreign,
    is_ours,
    new_rows_name,
    record_of,
)
from rag_context.stores.engines import engine_name

_CHROMA_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]")
"""Names that Chroma allows; a collection of any other name cannot exist, and its name does not fit into an address."""


class CollectionRegistry:
    """Finds and creates the records of collections. Every method raises `BackendError` where Chroma does not answer.

    Args:
        api: the calls.
        prefix: what Chroma's names of our collections begin with.
        hidden: prefixes of the names of other programs' collections that are not shown.
    """

    def __init__(self, api: ChromaApi, prefix: str, hidden: Sequence[str]) -> None:
        self._api = api
        self._prefix = prefix
        self._hidden = tuple(hidden)

    async def all(self) -> list[CollectionRecord]:
        """The records of all collections; one of another program is left out where one of ours has its name."""
        existing = await self._api.all()
        ours = self._ours_among(existing)
        known = {record.collection.name for record in ours}
        foreign = [_foreign_record(one) for one in existing if self._is_shown(one) and one.name not in known]
        return ours + foreign

    async def ours(self) -> list[CollectionRecord]:
        """The records of our collections."""
        return self._ours_among(await self._api.all())

    async def create(self, collection: Collection) -> bool:
        """Record a new collection; False, and no change, where the name exists.

        Raises:
            BackendRejectedError: the name exists in Chroma for a collection that is not ours.
        """
        name = engine_name(self._prefix, collection.name)
        if await self._find_foreign(collection.name) is not None:
            return False
        if await self._api.create(name, fields_of(collection, new_rows_name(name))) is not None:
            return True
        await self.find(collection.name)
        return False

    async def find(self, name: str) -> CollectionRecord | None:
        """The record of one of our collections, if it exists.

        Raises:
            BackendRejectedError: the collection of its name in Chroma is not ours.
        """
        opened = await self._api.find(engine_name(self._prefix, name))
        if opened is None:
            return None
        if not is_ours(opened):
            message = f"{self._api.place} has a collection {opened.name!r} that was not made by rag-context."
            raise BackendRejectedError(COMPONENT, message)
        record = record_of(opened)
        return record.holding(await self._api.find(record.rows_name))

    async def find_any(self, name: str) -> CollectionRecord | None:
        """The record of a collection of ours or of another program, if it exists."""
        return await self.find(name) or await self._find_foreign(name)

    async def require(self, name: str) -> CollectionRecord:
        """As `find`. Raises: NotFoundError."""
        record = await self.find(name)
        if record is None:
            raise unknown(name)
        return record

    async def require_any(self, name: str) -> CollectionRecord:
        """As `find_any`. Raises: NotFoundError."""
        record = await self.find_any(name)
        if record is None:
            raise unknown(name)
        return record

    def _ours_among(self, existing: Sequence[Opened]) -> list[CollectionRecord]:
        by_name = {opened.name: opened for opened in existing}
        prefix = f"{self._prefix}."
        records = [record_of(opened) for name, opened in by_name.items() if name.startswith(prefix) and is_ours(opened)]
        return [record.holding(by_name.get(record.rows_name)) for record in records]

    async def _find_foreign(self, name: str) -> CollectionRecord | None:
        opened = await self._api.find(name) if _CHROMA_NAME.fullmatch(name) else None
        return None if opened is None or not self._is_shown(opened) else _foreign_record(opened)

    def _is_shown(self, opened: Opened) -> bool:
        return is_foreign(opened) and not opened.name.startswith(self._hidden)


def unknown(name: str) -> NotFoundError:
    """The error for a collection that does not exist."""
    return NotFoundError(f"Collection '{name}' not found")


def _foreign_record(opened: Opened) -> CollectionRecord:
    collection = Collection(opened.name, dimension=opened.dimension, foreign=True)
    return CollectionRecord(opened.id, opened.name, collection, rows=opened)

"""Rows of other programs in a collection of Chroma; reading them changes nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rag_context.errors import NotFoundError
from rag_context.ports.foreign import ForeignRecord
from rag_context.stores.chroma.chroma_api import ChromaApi, pages
from rag_context.stores.chroma.opened_folder import open_folder
from rag_context.stores.chroma.payload import is_ours
from rag_context.stores.chroma.server import ChromaServer
from rag_context.stores.engines import read_fields


@asynccontextmanager
async def open_other_rows(place: str | Path, collection: str) -> AsyncIterator["OtherRows"]:
    """Open a collection on a server (its address) or in a folder. Raises: ConfigurationError."""
    if isinstance(place, Path):
        async with open_folder(place) as folder:
            yield OtherRows(folder, collection)
        return
    server = ChromaServer(place)
    try:
        yield OtherRows(server, collection)
    finally:
        await server.close()


class OtherRows:
    """`ForeignSource` over the rows that this package did not store."""

    def __init__(self, api: ChromaApi, collection: str) -> None:
        self._api = api
        self._collection = collection

    @property
    def label(self) -> str:
        return f"{self._collection} in {self._api.label}"

    async def records(self) -> AsyncIterator[ForeignRecord]:
        """All of them by id; each with the name, metadata and labels of its collection. Raises: NotFoundError."""
        info = await self._api.find(self._collection)
        if info is None:
            raise NotFoundError(f"{self._api.label} has no collection {self._collection!r}.")
        of_collection = {"name": self._collection, **info.fields}
        for ids in pages(sorted((await self._api.get(info.id)).ids)):
            rows = await self._api.get(info.id, ["metadatas", "documents"], ids=ids)
            for id_, row, text in sorted(zip(rows.ids, rows.fields, rows.texts, strict=True)):
                if not is_ours(row):
                    content, fields = read_fields(row, text)
                    names = {id_, str(fields.get("chunkId", id_))}
                    yield ForeignRecord(id_, content, {**fields, "collection": of_collection}, frozenset(names))

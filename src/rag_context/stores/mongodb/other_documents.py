"""Documents of other programs in a collection of MongoDB; reading them creates and changes nothing."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from rag_context.ports.reading import ForeignRecord
from rag_context.stores.mongodb.document_records import THEIRS, Entry
from rag_context.stores.mongodb.index_state import MongoIndexState
from rag_context.stores.mongodb.mongo import Mongo, connect

_NOT_READ = {"chunks.embedding": 0, "retrievalStats": 0}
_BATCH = 100


@asynccontextmanager
async def open_other_documents(uri: str, *, documents: str, metrics: str) -> AsyncIterator["OtherDocuments"]:
    """Open a collection for reading; the server may be down until the first call. Raises: ConfigurationError."""
    mongo = connect(uri, documents=documents, metrics=metrics)
    try:
        yield OtherDocuments(mongo)
    finally:
        await mongo.close()


class OtherDocuments:
    """`ForeignSource` over the records that this package did not write."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    @property
    def label(self) -> str:
        return f"{self._mongo.documents.name} in MongoDB at {self._mongo.address}"

    async def records(self) -> AsyncIterator[ForeignRecord]:
        async with self._mongo.reached():
            async for entry in self._mongo.documents.find(THEIRS, _NOT_READ).sort("_id").batch_size(_BATCH):
                yield _record(entry)

    async def mark_adopted(self, count: int) -> None:
        """Record that so many records were taken over, all there are: searches find their copies from now on."""
        # The version grows, so that cached answers with the originals are dropped.
        await MongoIndexState(self._mongo).record({}, {"adopted": count}, {"begun": 1, "version": 1, "epoch": 1})


def _record(entry: Entry) -> ForeignRecord:
    chunks = entry.get("chunks")
    pieces = [each for each in chunks if isinstance(each, Mapping)] if isinstance(chunks, list) else []
    content = entry.get("content")
    if not isinstance(content, str):
        content = "\n\n".join(each["text"] for each in pieces if isinstance(each.get("text"), str))
    names = {str(each[key]) for each in pieces for key in ("chunkId", "vectorId") if each.get(key)}
    fields = {name: _plain(value) for name, value in entry.items() if name not in ("_id", "content", "chunks")}
    return ForeignRecord(str(entry["_id"]), content, fields, frozenset(names))


def _plain(value: Any) -> object:
    """A value of MongoDB's as JSON has it; dates as text in UTC."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)

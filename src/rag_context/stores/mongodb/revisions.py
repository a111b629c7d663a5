"""Writes the chunks of documents: new records first, then the document's own record; then the old ones are deleted.

Chunks are stored under a revision, invisible, until one change of the document's record names it. A note that is stored
before the first chunk and deleted at the end marks an interrupted write, whose leftovers are removed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from itertools import islice
from uuid import uuid4

from pymongo.write_concern import WriteConcern

from rag_context.domain.documents import Chunk, Document
from rag_context.errors import BackendError, BackendTimeoutError
from rag_context.stores.mongodb.chunk_records import chunk_of, of_document, read_chunks, records_of
from rag_context.stores.mongodb.document_records import SIZE, Entry, chunks_entry, entry_of
from rag_context.stores.mongodb.index_state import MongoChange, MongoIndexState
from rag_context.stores.mongodb.mongo import COMPONENT, Mongo

LONGEST_WRITE_S = 300.0
"""A write that stores chunks for longer is cancelled, before a sweep may treat its chunks as leftovers."""

ABANDONED_S = 900.0
"""A note that this process has seen for so long is of an interrupted write."""

_BATCH = 100
_NOTE = "write:"
_SWIFTLY = WriteConcern(w=1)
"""For notes: one that is lost with its server leaves records that are never read."""

logger = logging.getLogger(__name__)


class Revisions:
    def __init__(self, mongo: Mongo, state: MongoIndexState, clock: Callable[[], float] = time.monotonic) -> None:
        self._mongo = mongo.writing
        self._state = state
        self._clock = clock
        self._notes = self._mongo.state.with_options(write_concern=_SWIFTLY)
        self._noticed: dict[str, float] = {}

    async def store(self, document: Document, chunks: Sequence[Chunk]) -> Entry:
        """Store the chunks of a document, still invisible; returns the record that makes them visible."""
        entry = await asyncio.to_thread(entry_of, document, chunks, uuid4().hex)
        await self._store(entry, chunks)
        return entry

    async def replaced(self, entry: Entry, before: Entry | None) -> None:
        """Remove what a document's record named before it became `entry`. After a failure `sweep` does it."""
        await self._finish(entry["revision"], entry["_id"], None if before is None else before.get("revision"))

    async def withdraw(self, entry: Entry) -> None:
        """Remove the chunks of a record that was not stored after all. After a failure `sweep` does it."""
        await self._finish(entry["revision"], entry["_id"], entry["revision"])

    async def removing(self, document_id: str) -> str:
        """Store a note that a document is about to be removed; returns its name. Raises: BackendError."""
        name = uuid4().hex
        async with self._mongo.reached():
            await self._note(name, document_id)
        return name

    async def removed(self, name: str, document_id: str, before: Entry | None) -> None:
        """Remove the chunks of a deleted document. After a failure `sweep` does it."""
        await self._finish(name, document_id, None if before is None else before.get("revision"))

    async def rewrite(self, entry: Entry) -> bool:
        """Analyse the chunks of a document (its whole record) again; False if it changed meanwhile."""
        async with self._mongo.reached():
            chunks = [chunk_of(each) for each in await read_chunks(entry, self._mongo.chunks)]
        fresh = {**entry, **chunks_entry(chunks, uuid4().hex)}
        await self._store(fresh, chunks)
        # Only the version that was read: a newer one came with chunks of its own.
        version = {"_id": entry["_id"], "contentHash": entry["contentHash"], "revision": entry["revision"]}
        changed = {name: fresh[name] for name in (*chunks_entry([], ""), "termCount")}

        async def replace(change: MongoChange) -> Entry | None:
            before = await self._mongo.documents.find_one_and_update(version, {"$set": changed}, projection=SIZE)
            if before is not None:
                change.replaced(before, {**before, **changed})
            return before

        before = await self._state.change(replace)
        if before is None:
            await self.withdraw(fresh)
        else:
            await self.replaced(fresh, before)
        return before is not None

    async def sweep(self) -> None:
        """Remove the leftovers of interrupted writes."""
        async with self._mongo.reached():
            # `;` is the character after `:`: the range holds the ids with the prefix, and the index of `_id` has it.
            notes = await self._mongo.state.find({"_id": {"$gte": _NOTE, "$lt": _NOTE[:-1] + ";"}}).to_list()
        now = self._clock()
        # Their age by this process's own clock: the clocks of other machines may be wrong.
        self._noticed = {note["_id"]: self._noticed.get(note["_id"], now) for note in notes}
        for note in notes:
            if now - self._noticed[note["_id"]] >= ABANDONED_S:
                await self._complete(note)

    async def _complete(self, note: Entry) -> None:
        """Remove the records of a document that neither its own record nor another write names."""
        key, mongo = note["document"], self._mongo
        async with mongo.reached():
            found = {each["revision"] async for each in mongo.chunks.find(of_document(key), {"revision": 1})}
            others = mongo.state.find({"document": key, "_id": {"$ne": note["_id"]}})
            kept = {each["_id"].removeprefix(_NOTE) async for each in others}
            entry = await mongo.documents.find_one({"_id": key}, {"revision": 1})
            # Read last: a write that ended since is named by the document, one that goes on by its note.
            kept.add("" if entry is None else entry.get("revision"))
            for revision in found - kept:
                await self._remove(key, revision)
            await self._notes.delete_one({"_id": note["_id"]})
        logger.info("a write of document %s was interrupted; its leftovers were removed", key)

    async def _store(self, entry: Entry, chunks: Sequence[Chunk]) -> None:
        """Store the records of `chunks` under the revision of `entry`, and count their terms in it."""
        begun = self._clock()
        entry["termCount"] = 0
        records = records_of(entry, chunks)
        async with self._mongo.reached():
            await self._note(entry["revision"], entry["_id"])
            while batch := await asyncio.to_thread(lambda: list(islice(records, _BATCH))):
                await self._mongo.chunks.insert_many(batch, ordered=False)
                entry["termCount"] += sum(record["length"] for record in batch)
                if self._clock() - begun > LONGEST_WRITE_S:
                    raise BackendTimeoutError(COMPONENT, "MongoDB took too long to store the chunks of a document.")

    async def _remove(self, document_id: str, revision: str) -> None:
        """Remove the records of a revision, so many at a time that each step ends soon."""
        named = self._mongo.chunks.find(of_document(document_id, revision), {"_id": 1})
        keys = [record["_id"] async for record in named]
        for start in range(0, len(keys), _BATCH):
            await self._mongo.chunks.delete_many({"_id": {"$in": keys[start : start + _BATCH]}})

    async def _note(self, name: str, document_id: str) -> None:
        note = {"$set": {"document": document_id}}
        await self._notes.update_one({"_id": f"{_NOTE}{name}"}, note, upsert=True)

    async def _finish(self, name: str, document_id: str, revision: str | None) -> None:
        try:
            async with self._mongo.reached():
                # The note last: should this end in between, `sweep` finds by it what is left.
                if revision is not None:
                    await self._remove(document_id, revision)
                await self._notes.delete_one({"_id": f"{_NOTE}{name}"})
        except BackendError as error:
            logger.warning("replaced chunks could not be removed yet, and are removed later: %s", error)

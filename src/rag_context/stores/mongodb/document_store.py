"""Documents and chunks: reading and writing them; those of other programs are read without changing anything."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError
from pymongo.write_concern import WriteConcern

from rag_context.domain import documents as domain
from rag_context.domain.documents import Chunk, Counts, Document, Listing, Stored, Tenant, counted
from rag_context.domain.journal import PLAIN, Revision
from rag_context.domain.reports import DAY_US, FieldCounts, Period, Periods
from rag_context.domain.search import Filter, Neighbours, Passage
from rag_context.errors import ForeignDataError
from rag_context.ports.reading import ForeignRecord
from rag_context.ports.writing import Version, require_model
from rag_context.stores.mongodb import document_records as records
from rag_context.stores.mongodb.chunk_records import chunk_of, read_chunks, read_neighbours, read_passages, read_similar
from rag_context.stores.mongodb.document_records import THEIRS, Entry
from rag_context.stores.mongodb.filters import after_cursor, condition, key_of
from rag_context.stores.mongodb.index_state import MongoChange, MongoIndexState, MongoRegistry
from rag_context.stores.mongodb.indexes import Indexes
from rag_context.stores.mongodb.mongo import COMPONENT, Mongo, connect
from rag_context.stores.mongodb.revisions import Revisions

ADOPT = "`rag-context adopt` takes them over"

TRIAL_MS = 1_500
"""How long a majority of the servers may take to acknowledge a trial."""

_ATTEMPTS = 3
_THEIR_CHUNKS = {"$cond": [{"$isArray": "$chunks"}, {"$max": [{"$size": "$chunks"}, 1]}, 1]}
"""How many passages a document of another program is read as."""


class MongoDocuments(MongoRegistry):
    """`DocumentStore`, `DocumentWriter` and the registry of models and generations over one collection."""

    def __init__(self, mongo: Mongo, state: MongoIndexState, indexes: Indexes, revisions: Revisions) -> None:
        super().__init__(mongo, state)
        self._indexes = indexes
        self._revisions = revisions

    @property
    def version(self) -> int:
        return self._state.version

    async def passages(self, chunk_ids: Sequence[str]) -> dict[str, Passage]:
        if not chunk_ids:
            return {}
        async with self._mongo.reached():
            return await read_passages(chunk_ids, self._mongo)

    async def neighbours(self, chunk_ids: Sequence[str]) -> dict[str, Neighbours]:
        if not chunk_ids:
            return {}
        async with self._mongo.reached():
            return await read_neighbours(chunk_ids, self._mongo)

    async def get(self, document_id: str) -> Document | None:
        entry = await self._one(document_id, {"chunks": 0})
        return None if entry is None else records.document_of(entry)

    async def stored(self, document_id: str) -> Stored | None:
        entry = await self._one(document_id, records.STATE)
        return None if entry is None else records.stored_of(entry)

    async def states(self, document_ids: Sequence[str]) -> dict[str, Stored]:
        keys = {key_of(id_): id_ for id_ in document_ids}
        async with self._mongo.reached():
            found = self._documents.find({"_id": {"$in": list(keys)}}, records.STATE)
            return {keys[entry["_id"]]: records.stored_of(entry) async for entry in found}

    async def chunks(self, document_id: str) -> list[Chunk]:
        revision = None
        while True:
            entry = await self._one(document_id, {"revision": 1, "chunkCount": 1})
            if entry is None:
                return []
            if "revision" not in entry:
                entry = await self._one(document_id, {"chunks": 1, "content": 1, "status": 1, **records.TIMES})
                return [] if entry is None else records.chunks_of(entry)
            async with self._mongo.reached():
                found = await read_chunks(entry, self._mongo.chunks)
            if len(found) == entry["chunkCount"] or entry["revision"] == revision:
                return [chunk_of(record) for record in found]
            revision = entry["revision"]  # it was replaced in between, unless the next read returns the same

    async def pending(self, limit: int) -> list[str]:
        async with self._mongo.reached():
            found = self._documents.find({"status": records.PENDING}, {"_id": 1}).sort("sequence").limit(limit)
            return [str(entry["_id"]) async for entry in found]

    async def matching(self, where: Filter, limit: int) -> list[str]:
        async with self._mongo.reached():
            found = self._documents.find({**records.OURS, **condition(where)}, {"_id": 1}).sort("sequence").limit(limit)
            return [str(entry["_id"]) async for entry in found]

    async def similar(self, documents: Sequence[Document]) -> list[list[str]]:
        async with self._mongo.reached():
            return [await read_similar(document, self._documents) for document in documents]

    async def listing(self, where: Filter, *, limit: int, after: domain.Cursor | None = None) -> list[Listing]:
        await self._state.current()
        query = condition(where) if self._state.finds_others else {**records.OURS, **condition(where)}
        query = query if after is None else {"$and": [query, after_cursor(after)]}
        order = [("timestamp", -1), ("timestampMicros", -1), ("_id", 1)]
        async with self._mongo.reached():
            found = self._documents.find(query, records.WITHOUT_TEXTS).sort(order).limit(limit)
            return [records.listing_of(entry) async for entry in found]

    async def field_counts(self, where: Filter, most: int) -> FieldCounts:
        await self._state.current()
        query = condition(where) if self._state.finds_others else {**records.OURS, **condition(where)}
        fields = {"kind": "contentType", "agent": "metadata.agent", "session": "sessionId", "tags": "metadata.tags"}
        at = {"$toLong": {"$ifNull": ["$occurredAt", {"$ifNull": ["$timestamp", domain.EPOCH]}]}}
        key = {name: f"${field}" for name, field in fields.items()} | {
            "day": {"$floor": {"$divide": [at, DAY_US // 1000]}}
        }
        counted_groups = {"$group": {"_id": key, "count": {"$sum": 1}, "last": {"$max": at}}}
        passing = [{"$match": condition(where, "document")}, {"$group": {"_id": "$origin", "count": {"$sum": 1}}}]
        async with self._mongo.reached():
            found = await self._documents.aggregate([{"$match": query}, counted_groups])
            groups = [records.group_of(entry) async for entry in found]
            passages = await (await self._mongo.chunks.aggregate(passing)).to_list()
        return FieldCounts.of(groups, domain.origins_of((entry["_id"], entry["count"]) for entry in passages), most)

    async def inventory(self, after: str, limit: int) -> dict[str, Stored]:
        """Documents of other programs are left out, because their vectors are not ours."""
        async with self._mongo.reached():
            found = (
                self._documents.find({"_id": {"$gt": after}, **records.OURS}, records.STATE).sort("_id").limit(limit)
            )
            return {entry["_id"]: records.stored_of(entry) async for entry in found}

    async def content_hashes(self, document_ids: Sequence[str]) -> dict[str, str]:
        async with self._mongo.reached():
            found = self._documents.find({"_id": {"$in": list(document_ids)}, **records.OURS}, {"contentHash": 1})
            return {entry["_id"]: str(entry["contentHash"]) async for entry in found}

    async def tenants(self) -> list[Tenant]:
        async with self._mongo.reached():
            found = await self._documents.aggregate([{"$match": records.OURS}, {"$group": {"_id": "$tenant"}}])
            return [records.tenant_from(entry["_id"]) async for entry in found]

    async def periods(self) -> Periods | None:
        dated = {"$type": "date"}
        async with self._mongo.reached():
            occurred = await self._ends("occurredAt", {"occurredAt": dated})
            occurred += await self._ends("timestamp", {"occurredAt": None, "timestamp": dated})
            indexed = await self._ends("timestamp", {"timestamp": dated})
        if not occurred or not indexed:
            return None
        return Periods(Period(min(occurred), max(occurred)), Period(min(indexed), max(indexed)))

    async def _ends(self, field: str, query: records.Entry) -> list[datetime]:
        """The first and the last of these times, each read off the end of an index; empty without any."""
        found = [await self._documents.find_one(query, records.TIMES, sort=[(field, order)]) for order in (1, -1)]
        return [at for entry in found if entry is not None and (at := records.time_of(entry, field)) is not None]

    async def retrievals(self, document_id: str) -> domain.Retrievals:
        entry = await self._one(document_id, {"retrievalStats": 1}) or {}
        counted = entry.get("retrievalStats") or {}
        return domain.Retrievals(counted.get("queryCount", 0), counted.get("lastRetrieved"))

    async def record_retrievals(self, document_ids: Sequence[str], at: datetime) -> None:
        # Of statistics a lost one does no harm: the primary alone acknowledges them.
        lazily = self._written.with_options(write_concern=WriteConcern(w=1))
        updates = [
            UpdateOne(
                {"_id": key_of(id_), **records.OURS},
                {"$inc": {"retrievalStats.queryCount": count}, "$max": {"retrievalStats.lastRetrieved": at}},
            )
            for id_, count in Counter(document_ids).items()
        ]
        async with self._mongo.writing.reached():
            await lazily.bulk_write(updates, ordered=False)

    async def counts(self) -> Counts:
        """How much the index holds; vectors are counted from the chunks of indexed documents."""
        totals, others = (await self._state.current()).totals, await self._count_others()
        # An interrupted change leaves them too low for a while.
        documents, pending = max(totals.documents, 0), max(totals.pending, 0)
        return Counts(documents, pending, max(totals.chunks, 0), max(totals.vectors, 0), others)

    async def _count_others(self) -> int:
        """How many documents of other programs are in the collection and were not taken over."""
        adopted = (await self._state.current()).adopted
        async with self._mongo.reached():
            return max(await self._documents.count_documents(records.THEIRS) - (adopted or 0), 0)

    async def tenant_state(self, tenant: Tenant) -> domain.TenantState:
        seen = await self._state.of_tenant(tenant)
        return domain.TenantState(seen.stamp, max(seen.totals.documents, 0))

    async def try_write(self) -> None:
        """Write something that changes nothing of the index, acknowledged as every write is."""
        concern = WriteConcern("majority", wtimeout=TRIAL_MS, j=True)
        writing = self._mongo.writing
        async with writing.reached():
            trials = writing.state.with_options(write_concern=concern)
            await trials.update_one({"_id": "trial"}, {"$inc": {"count": 1}}, upsert=True)

    async def has_all_vectors(self) -> bool:
        if (await self._state.current()).totals.pending > 0:
            return False
        if not self._state.finds_others:
            return True
        async with self._mongo.reached():
            return await self._documents.find_one(records.THEIRS, {"_id": 1}) is None

    async def missing_vectors(self, where: Filter) -> domain.Missing:
        """A conversation counts as a whole, with the time at which it began; 0 of 0 where no document is pending."""
        missing = others = 0
        if (await self._state.current()).totals.pending > 0:
            missing = await self._count_chunks({"status": records.PENDING, **condition(where)})
        if self._state.finds_others and await self._count_others():
            others = await self._count_chunks({**records.THEIRS, **condition(where)}, _THEIR_CHUNKS)
        if not missing + others:
            return domain.Missing()
        return domain.Missing(missing + others, others + await self._count_chunks({**records.OURS, **condition(where)}))

    async def _count_chunks(self, query: records.Entry, chunks: records.Entry | str = "$chunkCount") -> int:
        total = [{"$match": query}, {"$group": {"_id": None, "chunks": {"$sum": chunks}}}]
        async with self._mongo.reached():
            found = await (await self._documents.aggregate(total)).to_list()
        return int(found[0]["chunks"]) if found else 0

    async def ping(self) -> str:
        totals = (await self._state.refresh()).totals
        line = f"{counted(totals.documents, 'document')} in {counted(totals.chunks, 'chunk')}, {totals.pending} pending"
        if others := await self._count_others():
            line += f"; {counted(others, 'document')} of other programs without vectors of ours: {ADOPT}"
        return f"{line}; {self._indexes.missing}" if self._indexes.missing else line

    async def put(self, document: Document, chunks: Sequence[Chunk], revision: Revision = PLAIN) -> None:
        await self._replace(document, chunks, {})

    async def rechunk(self, version: Version) -> bool:
        return await self._replace(version.document, version.chunks, {"contentHash": version.document.content_hash})

    async def mark_indexed(self, document_id: str, content_hash: str, made_by: str | None = None) -> bool:
        version = {"_id": document_id, "contentHash": content_hash}

        async def mark(change: MongoChange) -> bool:
            require_model(COMPONENT, change.fingerprint, made_by)
            return await self._mark(version, records.INDEXED, change)

        marked = await self._state.change(mark)
        # The model was checked when the change began; the record may have changed before the document did.
        if marked and made_by is not None:
            fingerprint = (await self._state.current()).fingerprint
            if fingerprint != made_by:
                await self.mark_pending([document_id])  # a reindexing began meanwhile
            require_model(COMPONENT, fingerprint, made_by)
        return marked

    async def mark_pending(self, document_ids: Collection[str]) -> None:
        async def mark(change: MongoChange) -> None:
            for id_ in document_ids:
                await self._mark({"_id": id_, "status": records.INDEXED}, records.PENDING, change)

        if document_ids:
            await self._state.change(mark)

    async def delete(self, document_id: str) -> bool:
        key = {"_id": key_of(document_id), **records.OURS}

        async def remove(change: MongoChange) -> records.Entry | None:
            before = await self._written.find_one_and_delete(key, records.SIZE)
            change.replaced(before, None)
            return before

        entry = await self._one(document_id, {"status": 1})
        if entry is None:
            return False
        if not records.is_ours(entry):
            raise ForeignDataError(
                COMPONENT, f"The document {document_id!r} was stored by another program; it was not deleted."
            )
        # The note before the deletion: after a crash in between, a sweep finds the chunks by it.
        note = await self._revisions.removing(document_id)
        before = await self._state.change(remove)
        await self._revisions.removed(note, document_id, before)
        return before is not None

    async def _one(self, document_id: str, projection: records.Entry) -> records.Entry | None:
        async with self._mongo.reached():
            return await self._documents.find_one({"_id": key_of(document_id)}, projection)

    async def _replace(self, document: Document, chunks: Sequence[Chunk], version: records.Entry) -> bool:
        """Store a document in place of the given version of it, or of any version or none if `version` is empty."""
        entry = await self._revisions.store(document, chunks)
        fields = {name: value for name, value in entry.items() if name != "_id"}
        query = {"_id": entry["_id"], **version}

        async def show(change: MongoChange) -> tuple[bool, records.Entry | None]:
            # Changes are numbered in order, so `sequence` sorts documents by age.
            on_insert = {"sequence": change.number, "retrievalStats": {"queryCount": 0}}
            update = {"$set": fields, "$setOnInsert": on_insert}
            before = await _repeated(
                lambda: self._written.find_one_and_update(query, update, projection=records.SIZE, upsert=not version)
            )
            if before is None and version:
                return False, None
            change.replaced(before, entry)
            return True, before

        is_shown, before = await self._state.change(show)
        if is_shown:
            await self._revisions.replaced(entry, before)
        else:
            await self._revisions.withdraw(entry)
        return is_shown

    async def _mark(self, query: records.Entry, status: str, change: MongoChange) -> bool:
        before = await self._written.find_one_and_update(query, {"$set": {"status": status}}, projection=records.SIZE)
        if before is None:
            return False
        change.marked(before, status)
        return True


async def _repeated(work: Callable[[], Awaitable[records.Entry | None]]) -> records.Entry | None:
    """Retry after a duplicate key: another writer has just inserted the document, and the next attempt updates it."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await work()
        except DuplicateKeyError:
            continue
    return await work()


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
        self.label = f"{mongo.documents.name} in MongoDB at {mongo.address}"

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

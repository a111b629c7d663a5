"""The MongoDB store as a whole: one client, its ports, and the maintenance, check and repair of the index.

A task follows other processes' writes, creates missing indexes, and counts again what an interrupted change left
uncounted. The check reads document by document, while the index is in use.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rag_context.domain.documents import Counts
from rag_context.domain.reports import COMPARED, Findings, IntegrityReport, IssueKind, Thoroughness
from rag_context.domain.text import ANALYSER_VERSION
from rag_context.errors import BackendDataError
from rag_context.ports.writing import DocumentCheck
from rag_context.resilience.deadline import ended
from rag_context.stores.mongodb import document_records
from rag_context.stores.mongodb.chunk_records import chunk_of, chunk_terms, read_chunks
from rag_context.stores.mongodb.document_store import MongoDocuments
from rag_context.stores.mongodb.index_state import NOTHING, MongoChange, MongoIndexState, MongoSnapshot, Totals
from rag_context.stores.mongodb.indexes import Indexes
from rag_context.stores.mongodb.keyword_search import MongoTexts
from rag_context.stores.mongodb.mongo import Mongo, connect
from rag_context.stores.mongodb.revisions import Revisions
from rag_context.stores.mongodb.search_records import MongoMetrics
from rag_context.stores.server_stores import INTERVAL_S, start_rounds

PROGRESS_S = 1.0
"""How long the record of the progress may be behind."""

STALLED_S = 5.0
"""If some change was open at any time for so long, one of them was interrupted."""

INDEXES_S = 60.0
"""How often it is made sure that all indexes are there."""

COUNT_ATTEMPTS = 5
"""How often the check tries to count between two writes."""

_BETWEEN_COUNTS_S = 0.2
_AT_ONCE = 100

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MongoStore:
    """The ports of one database. `documents` is the document store, its writer and the model registry."""

    documents: MongoDocuments
    texts: MongoTexts
    metrics: MongoMetrics
    auditor: "MongoAuditor"


@asynccontextmanager
async def open_mongodb(
    uri: str, *, documents: str = "C0N7EXT", metrics: str = "R4G_M37R1C5"
) -> AsyncIterator[MongoStore]:
    """Open the database of `uri` (P4NTH30N if it names none); missing indexes are created in the background.

    The ports of an unreachable server raise BackendError until it is available. Raises: ConfigurationError.
    """
    mongo = connect(uri, documents=documents, metrics=metrics)
    state = MongoIndexState(mongo)
    indexes = Indexes(mongo)
    revisions = Revisions(mongo, state)
    document_store = MongoDocuments(mongo, state, indexes, revisions)
    maintenance = MongoMaintenance(mongo, state, indexes, revisions)
    rounds = start_rounds(maintenance.round, f"MongoDB at {mongo.address}")
    try:
        yield MongoStore(
            document_store,
            MongoTexts(mongo, state, indexes),
            MongoMetrics(mongo),
            MongoAuditor(mongo, state, indexes, revisions),
        )
    finally:
        # The rounds first: they would create indexes and remove leftovers over connections that are being closed.
        await ended(rounds)
        await state.close()
        await indexes.close()
        await mongo.close()


@dataclass(eq=False)
class MongoMaintenance:
    mongo: Mongo
    state: MongoIndexState
    indexes: Indexes
    revisions: Revisions
    stalled_s: float = STALLED_S

    def __post_init__(self) -> None:
        self._index: str | None = None
        self._observed: deque[tuple[float, int]] = deque()
        self._shown: Totals | None = None
        self._shown_at = 0.0
        self._ensured_at: float | None = None

    async def round(self, now_s: float) -> None:
        seen = await self.state.refresh()
        if self._ensured_at is None or now_s - self._ensured_at >= INDEXES_S:
            self.indexes.ensure_soon()  # which takes long where there are many documents already
            self._ensured_at = now_s
            await self.revisions.sweep()
        if self._is_off(seen, now_s) and await self.state.correct(seen, await self.state.count_by_tenant()):
            logger.info("the counters of the index were counted again")
        if seen.totals != self._shown and now_s - self._shown_at >= PROGRESS_S:
            await self._show(seen.totals)
            self._shown, self._shown_at = seen.totals, now_s

    def _is_off(self, seen: MongoSnapshot, now_s: float) -> bool:
        """Whether the counters must be counted again, and can be counted now.

        Interrupted changes stay open: when no more than the least number over a while are, none is under way.
        """
        still_open = seen.begun - seen.version
        if self._index != seen.name or seen.is_consistent:
            self._index, self._observed = seen.name, deque()
        self._observed.append((now_s, still_open))
        while now_s - self._observed[0][0] > self.stalled_s + INTERVAL_S:
            self._observed.popleft()
        long_enough = now_s - self._observed[0][0] >= self.stalled_s
        if still_open == 0 or (long_enough and still_open == min(count for _, count in self._observed)):
            self._observed = deque()
            return not seen.is_consistent
        return False

    async def _show(self, totals: Totals) -> None:
        """Keep the progress of embedding where people and other programs can see it."""
        progress = {
            "documents": totals.documents,
            "indexed": totals.documents - totals.pending,
            "pending": totals.pending,
            "updatedAt": datetime.now(UTC),
        }
        async with self.mongo.writing.reached():
            await self.mongo.writing.progress.update_one(
                {"_id": self.mongo.documents.name}, {"$set": progress}, upsert=True
            )


class MongoAuditor:
    """`IndexAuditor` over one collection and the record of its state."""

    def __init__(self, mongo: Mongo, state: MongoIndexState, indexes: Indexes, revisions: Revisions) -> None:
        self._mongo = mongo
        self._state = state
        self._indexes = indexes
        self._revisions = revisions

    async def examine(self, check: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        """Examine the whole index, without other programs' documents, and without vectors, which another store keeps.

        A lone server has no snapshots: what is written meanwhile is seen as it was before or after.
        """
        found = Findings()
        totals = await self._compare_counters(found)
        if not await self._indexes.text_index():
            found.add(IssueKind.TEXT_INDEX, "the text index itself")
        # Analysing terms again takes most of the time: a quick check does it for a sample of documents.
        step = max(1, totals.chunks // COMPARED) if thoroughness is Thoroughness.QUICK else 1
        number = compared = 0
        async for entry in self._entries():
            records = await self._records(entry)
            if records is None:
                continue
            kinds = await asyncio.to_thread(_kinds, entry, records, check)
            if number % step == 0:
                compared += entry.get("chunkCount", 0)
                kinds |= await asyncio.to_thread(_term_kinds, entry, records)
            found.add_document(entry["_id"], kinds)
            number += 1
        counts = Counts(totals.documents, totals.pending, totals.chunks, totals.vectors)
        return found.report(counts, compared)

    async def repair(self, kinds: Collection[IssueKind]) -> None:
        if IssueKind.TEXT_INDEX in kinds:
            await self._indexes.replace_text_index()
        if IssueKind.STALE_TERMS in kinds:
            await self._analyse_again()
        if kinds:
            await self._count_again()

    async def invalidate(self, document_ids: Collection[str]) -> None:
        async def forget(change: MongoChange) -> None:
            change.is_of_all = True
            query = {"_id": {"$in": list(document_ids)}, **document_records.OURS}
            await self._mongo.writing.documents.update_many(query, {"$set": {"contentHash": ""}})

        await self._state.change(forget)

    async def _entries(self) -> AsyncIterator[document_records.Entry]:
        async with self._mongo.reached():
            async for entry in self._mongo.documents.find(document_records.OURS).sort("_id").batch_size(_AT_ONCE):
                yield entry

    async def _compare_counters(self, found: Findings) -> Totals:
        """Compare the counters with the real counts, between two writes; returns the real counts."""
        for attempt in range(1, COUNT_ATTEMPTS + 1):
            seen = await self._state.refresh()
            counted, recorded = await self._state.count_by_tenant(), await self._state.recorded_tenants()
            totals = sum(counted.values(), NOTHING)
            after = await self._state.refresh()
            # Counted while a write was under way, the numbers say nothing.
            same = (seen.begun, seen.version) == (after.begun, after.version)
            if same and (seen.is_consistent or attempt == COUNT_ATTEMPTS):
                if seen.totals != totals:
                    found.add(IssueKind.WRONG_COUNTERS, f"{seen.totals} recorded, {totals} counted")
                for id_ in recorded.keys() | counted.keys() if seen.by_tenant else ():
                    if (own := recorded.get(id_, NOTHING)) != counted.get(id_, NOTHING):
                        found.add(IssueKind.WRONG_COUNTERS, f"{id_}: {own} recorded")
                break
            await asyncio.sleep(_BETWEEN_COUNTS_S)
        return totals

    async def _count_again(self) -> None:
        """Set the counters to the real counts; the version grows, so that cached answers are dropped."""
        for attempt in range(1, COUNT_ATTEMPTS + 1):
            seen = await self._state.refresh()
            counted = await self._state.count_by_tenant()
            if (seen.begun == seen.version or attempt == COUNT_ATTEMPTS) and await self._state.correct(seen, counted):
                return
            await asyncio.sleep(_BETWEEN_COUNTS_S)

    async def _records(self, entry: document_records.Entry) -> list[document_records.Entry] | None:
        """The records of a document's chunks, empty if it contains them itself; None if it was replaced meanwhile."""
        if "revision" not in entry:
            return []
        async with self._mongo.reached():
            records = await read_chunks(entry, self._mongo.writing.chunks)
            if len(records) == entry.get("chunkCount"):
                return records
            named = await self._mongo.documents.find_one({"_id": entry["_id"]}, {"revision": 1})
        is_current = named is not None and named.get("revision") == entry["revision"]
        return records if is_current else None

    async def _analyse_again(self) -> None:
        """Store the chunks of documents again if their terms differ from the analyser's."""
        async for entry in self._entries():
            records = await self._records(entry)
            if records is None:
                continue
            stale = await asyncio.to_thread(_term_kinds, entry, records)
            if stale:
                bands = {"similarityBands": document_records.similarity_bands(document_records.similarity_of(entry))}
                async with self._mongo.writing.reached():
                    await self._mongo.writing.documents.update_one({"_id": entry["_id"]}, {"$set": bands})
                await self._revisions.rewrite(entry)


def _kinds(
    entry: document_records.Entry, records: Sequence[document_records.Entry], check: DocumentCheck
) -> set[IssueKind]:
    chunks = [chunk_of(record) for record in records] if "revision" in entry else document_records.chunks_of(entry)
    named = [] if document_records.ids_of_chunks(entry) == [chunk.id for chunk in chunks] else [IssueKind.BROKEN_CHUNKS]
    try:
        return {*check(document_records.document_of(entry), chunks), *named}
    except BackendDataError:
        return {IssueKind.LOST_CONTENT}


def _term_kinds(entry: document_records.Entry, records: Sequence[document_records.Entry]) -> set[IssueKind]:
    """Whether a document's terms differ from the analyser's, as those of earlier versions do."""
    words = [chunk_terms(chunk_of(record)) for record in records]
    sums = {
        "chunkCount": len(records),
        "termCount": sum(each.length for each in words),
        "analyser": ANALYSER_VERSION,
        "similarityBands": document_records.similarity_bands(document_records.similarity_of(entry)),
    }
    fresh = (
        "revision" in entry
        and all(entry.get(name) == value for name, value in sums.items())
        and all(
            record.get(name) == value
            for record, each in zip(records, words, strict=True)
            for name, value in each.fields().items()
        )
    )
    return set() if fresh else {IssueKind.STALE_TERMS}

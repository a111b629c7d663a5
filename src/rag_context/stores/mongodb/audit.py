"""Checks and repairs the index in MongoDB while it is in use, document by document."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence

from rag_context.domain.documents import Counts
from rag_context.domain.reports import COMPARED, DAMAGED, Findings, IntegrityReport, IssueKind, Thoroughness
from rag_context.errors import BackendDataError
from rag_context.ports.writing import DocumentCheck
from rag_context.stores.mongodb.chunk_records import chunk_of, chunk_terms
from rag_context.stores.mongodb.document_records import (
    OURS,
    Entry,
    chunks_of,
    document_of,
    ids_of_chunks,
    similarity_bands,
    similarity_of,
)
from rag_context.stores.mongodb.indexes import Indexes
from rag_context.stores.mongodb.mongo import Mongo
from rag_context.stores.mongodb.revisions import Revisions
from rag_context.stores.mongodb.state import Change, IndexState, Totals
from rag_context.text import ANALYSER_VERSION

LOOKS = 5
"""How often it is tried to count between two writes."""

_BETWEEN_LOOKS_S = 0.2
_AT_ONCE = 100


class MongoAuditor:
    """`IndexAuditor` over one collection and the record of its state."""

    def __init__(self, mongo: Mongo, state: IndexState, indexes: Indexes, revisions: Revisions) -> None:
        self._mongo = mongo
        self._state = state
        self._indexes = indexes
        self._revisions = revisions

    async def examine(self, check: DocumentCheck, thoroughness: Thoroughness) -> IntegrityReport:
        """Examine the whole index; every document is passed to `check`. Other programs' documents are skipped.

        A lone server has no snapshots: what is written meanwhile is seen as it was before or after. The counters are
        compared between two writes. Vectors are not checked here: another store keeps them.

        Raises:
            BackendError: the server is unavailable.
        """
        found = Findings()
        totals = await self._look_at_counters(found)
        if not await self._indexes.text_index():
            found.add(IssueKind.TEXT_INDEX, "the text index itself")
        step = max(1, totals.chunks // COMPARED) if thoroughness is Thoroughness.QUICK else 1
        broken: list[str] = []
        damaged: list[str] = []
        number = compared = 0
        async for entry in self._entries():
            records = await self._records(entry)
            if records is None:
                continue
            kinds = await asyncio.to_thread(_kinds, entry, records, check)
            if number % step == 0:
                compared += entry.get("chunkCount", 0)
                kinds |= await asyncio.to_thread(_term_kinds, entry, records)
            for kind in kinds:
                found.add(kind, entry["_id"])
            if IssueKind.BROKEN_CHUNKS in kinds:
                broken.append(entry["_id"])
            if kinds & DAMAGED:
                damaged.append(entry["_id"])
            number += 1
        counts = Counts(totals.documents, totals.pending, totals.chunks, totals.vectors)
        return IntegrityReport(counts, compared, found.issues(), tuple(broken), tuple(damaged))

    async def repair(self, kinds: Collection[IssueKind]) -> None:
        """Repair the `kinds` that the store can repair by itself; valid data is unchanged.

        Raises:
            BackendError: the server is unavailable; repairs before that stay.
        """
        if IssueKind.TEXT_INDEX in kinds:
            await self._indexes.replace_text_index()
        if IssueKind.STALE_TERMS in kinds:
            await self._analyse_again()
        if kinds:
            await self._count_again()

    async def invalidate(self, document_ids: Collection[str]) -> None:
        """Clear the content hash of these documents, so that indexing their sources again replaces them.

        Raises:
            BackendError: the server is unavailable.
        """

        async def forget(_change: Change) -> None:
            query = {"_id": {"$in": list(document_ids)}}
            await self._mongo.writing.documents.update_many(query, {"$set": {"contentHash": ""}})

        await self._state.change(forget)

    async def _entries(self) -> AsyncIterator[Entry]:
        async with self._mongo.reached():
            async for entry in self._mongo.documents.find(OURS).sort("_id").batch_size(_AT_ONCE):
                yield entry

    async def _look_at_counters(self, found: Findings) -> Totals:
        """Compare the counters with the real counts, between two writes; returns the real counts."""
        for look in range(1, LOOKS + 1):
            seen = await self._state.look()
            counted = await self._state.count()
            after = await self._state.look()
            same = (seen.begun, seen.version) == (after.begun, after.version)
            if same and (seen.settled or look == LOOKS):
                if seen.totals != counted:
                    found.add(IssueKind.WRONG_COUNTERS, f"{seen.totals} recorded, {counted} counted")
                break
            await asyncio.sleep(_BETWEEN_LOOKS_S)
        return counted

    async def _count_again(self) -> None:
        """Set the counters to the real counts; the version grows, so that cached answers are dropped."""
        for look in range(1, LOOKS + 1):
            seen = await self._state.look()
            counted = await self._state.count()
            if (seen.begun == seen.version or look == LOOKS) and await self._state.correct(seen, counted):
                return
            await asyncio.sleep(_BETWEEN_LOOKS_S)

    async def _records(self, entry: Entry) -> list[Entry] | None:
        """The records of a document's chunks, empty if it contains them itself; None if it was replaced meanwhile."""
        if "revision" not in entry:
            return []
        async with self._mongo.reached():
            records = await self._revisions.chunks(entry)
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
                bands = {"similarityBands": similarity_bands(similarity_of(entry))}
                async with self._mongo.writing.reached():
                    await self._mongo.writing.documents.update_one({"_id": entry["_id"]}, {"$set": bands})
                await self._revisions.rewrite(entry)


def _kinds(entry: Entry, records: Sequence[Entry], check: DocumentCheck) -> set[IssueKind]:
    """What is wrong with a document and its chunks."""
    chunks = [chunk_of(record) for record in records] if "revision" in entry else chunks_of(entry)
    named = [] if ids_of_chunks(entry) == [chunk.id for chunk in chunks] else [IssueKind.BROKEN_CHUNKS]
    try:
        return {*check(document_of(entry), chunks), *named}
    except BackendDataError:
        return {IssueKind.LOST_CONTENT}


def _term_kinds(entry: Entry, records: Sequence[Entry]) -> set[IssueKind]:
    """Whether a document's terms differ from the analyser's, as those of earlier versions do."""
    words = [chunk_terms(chunk_of(record)) for record in records]
    sums = {
        "chunkCount": len(records),
        "termCount": sum(each.length for each in words),
        "analyser": ANALYSER_VERSION,
        "similarityBands": similarity_bands(similarity_of(entry)),
    }
    fresh = (
        "revision" in entry
        and all(entry.get(name) == value for name, value in sums.items())
        and all(_holds(record, each.fields()) for record, each in zip(records, words, strict=True))
    )
    return set() if fresh else {IssueKind.STALE_TERMS}


def _holds(record: Entry, fields: Entry) -> bool:
    return all(record.get(name) == value for name, value in fields.items())

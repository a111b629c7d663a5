"""One record per search and per error, and their statistics.

They are summed up slice by slice: latencies by value while they are few, else in bins, into which the server sorts.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo.errors import BulkWriteError

from rag_context.domain import reports
from rag_context.domain.documents import microseconds, moment, wire_name
from rag_context.stores.mongodb.document_records import Entry
from rag_context.stores.mongodb.filters import first_not_before
from rag_context.stores.mongodb.mongo import Mongo
from rag_context.stores.search_statistics import SEARCH_COLUMNS, search_record

DUPLICATE_KEY = 11000

_TIMES_SMALLEST = {"$divide": [{"$max": ["$latencyMs", reports.SMALLEST_MS]}, reports.SMALLEST_MS]}

BIN = {"$ceil": {"$divide": [{"$ln": _TIMES_SMALLEST}, math.log(reports.BIN_GROWTH)]}}
"""The bin of a search, by the server."""

_READ = {"_id": 0, "timestamp": 1, "latencyMs": 1, "fallback": 1, "cacheHit": 1}

_OURS = {"requestId": {"$exists": True}}
"""Lets through what this package wrote; other programs keep their own records in these collections."""

_COUNTED_FIELDS = {**{name: f"${wire_name(name)}" for name in reports.COUNTED}, "level": "$fallbackLevel"}

_STORED_AS = ["fallbackLevel" if name == "level" else wire_name(name) for name in SEARCH_COLUMNS]

_ONE_IF = {field: {"$sum": {"$cond": [f"${field}", 1, 0]}} for field in ("fallback", "cacheHit")}


def slice_expression(slices: reports.Slices) -> dict[str, Any]:
    """As `Slices.of`, by the server; exact, since every number in it is below 2^53."""
    first = first_not_before(slices.start)
    beyond = microseconds(first) - slices.start
    passed = {"$add": [{"$multiply": [{"$subtract": ["$timestamp", first]}, 1000]}, beyond]}
    return {"$floor": {"$divide": [{"$multiply": [passed, slices.count]}, slices.end - slices.start]}}


class MongoMetrics:
    """`MetricsStore` over two collections."""

    def __init__(self, mongo: Mongo, exact_records: int = reports.EXACT_RECORDS) -> None:
        self._mongo = mongo
        self._writing = mongo.writing
        self._exact_records = exact_records

    async def append(self, searches: Sequence[reports.SearchRecord], errors: Sequence[reports.ErrorRecord]) -> None:
        async with self._writing.reached():
            await _insert_once(self._writing.metrics, [_search_entry(each) for each in searches])
            await _insert_once(self._writing.errors, [_error_entry(each) for each in errors])

    async def summarise(self, since: datetime, until: datetime, buckets: int) -> reports.SearchSummary:
        slices = reports.Slices(microseconds(since), microseconds(until), max(buckets, 1))
        if slices.end <= slices.start:
            return reports.summary({}, {name: {} for name in _COUNTED_FIELDS}, slices, 0)
        span = {"timestamp": {"$gte": first_not_before(slices.start), "$lt": first_not_before(slices.end)}, **_OURS}
        async with self._mongo.reached():
            count = await self._mongo.metrics.count_documents(span, limit=self._exact_records)
            # Exact percentiles need every latency here; of many searches only the bins are sent.
            summing = self._one_by_one if count < self._exact_records else self._in_bins
            sums, counts_by_value = await asyncio.gather(summing(span, slices), self._counts_by_value(span))
        return reports.summary(sums, counts_by_value, slices, buckets)

    async def recent(self, since: datetime, limit: int, until: datetime | None = None) -> list[reports.SearchRecord]:
        span = {"$gte": first_not_before(microseconds(since)), **({} if until is None else {"$lte": until})}
        query = {"timestamp": span, **_OURS}
        async with self._mongo.reached():
            found = await self._mongo.metrics.find(query).sort("timestamp", -1).limit(limit).to_list()
        for each in found:
            each["timestamp"] = microseconds(each["timestamp"])
        return [search_record([*map(each.get, _STORED_AS)]) for each in found]

    async def accesses(self, limit: int) -> list[reports.ErrorRecord]:
        query = {"level": reports.ACCESS, **_OURS}
        async with self._mongo.reached():
            found = await self._mongo.errors.find(query).sort("timestamp", -1).limit(limit).to_list()
        return list(map(_access, found))

    async def prune(self, before: datetime, accesses_before: datetime | None = None) -> int:
        def old(until: datetime) -> Entry:
            return {"timestamp": {"$lt": first_not_before(microseconds(until))}, **_OURS}

        writing = self._writing
        async with writing.reached():
            deleted = [
                await writing.metrics.delete_many(old(before)),
                await writing.errors.delete_many({**old(before), "level": {"$ne": reports.ACCESS}}),
            ]
            if accesses_before is not None:
                deleted.append(await writing.errors.delete_many({**old(accesses_before), "level": reports.ACCESS}))
        return sum(each.deleted_count for each in deleted)

    async def _one_by_one(self, span: Entry, slices: reports.Slices) -> dict[int, reports.Sums]:
        sums: dict[int, reports.Sums] = {}
        async for each in self._mongo.metrics.find(span, _READ):
            part = sums.setdefault(slices.of(each["timestamp"]), reports.Sums())
            part.add(1, each["latencyMs"], bool(each.get("fallback")), bool(each.get("cacheHit")))
            part.latencies[each["latencyMs"]] += 1
        return sums

    async def _in_bins(self, span: Entry, slices: reports.Slices) -> dict[int, reports.Sums]:
        group = {
            "_id": {"slice": slice_expression(slices), "bin": BIN},
            "queries": {"$sum": 1},
            "latencyMs": {"$sum": "$latencyMs"},
            **_ONE_IF,
        }
        sums: dict[int, reports.Sums] = {}
        async for each in await self._mongo.metrics.aggregate([{"$match": span}, {"$group": group}]):
            part = sums.setdefault(int(each["_id"]["slice"]), reports.Sums())
            part.add(each["queries"], each["latencyMs"], each["fallback"], each["cacheHit"])
            part.latencies[reports.middle(int(each["_id"]["bin"]))] += each["queries"]
        return sums

    async def _counts_by_value(self, span: Entry) -> dict[str, dict[Any, int]]:
        group = {"_id": _COUNTED_FIELDS, "queries": {"$sum": 1}}
        counts_by_value: dict[str, dict[Any, int]] = {name: {} for name in _COUNTED_FIELDS}
        async for each in await self._mongo.metrics.aggregate([{"$match": span}, {"$group": group}]):
            for name, values in counts_by_value.items():
                if (value := each["_id"].get(name)) is not None:
                    values[value] = values.get(value, 0) + each["queries"]
        return counts_by_value


async def _insert_once(collection: Any, entries: Sequence[Entry]) -> None:
    """Insert entries; those that an earlier attempt has stored are there under their ids."""
    if not entries:
        return
    try:
        await collection.insert_many(entries, ordered=False)
    except BulkWriteError as error:
        is_known = all(each["code"] == DUPLICATE_KEY for each in error.details["writeErrors"])
        if not is_known or error.details["writeConcernErrors"]:
            raise


def _search_entry(record: reports.SearchRecord) -> Entry:
    query, level = record.query[: reports.QUERY_CHARS], record.level
    return _entry(record, query=query, level=None, fallbackLevel=level, fallback=record.is_fallback)


def _error_entry(record: reports.ErrorRecord) -> Entry:
    request_id = record.request_id or ""  # always there: see `_OURS`
    return _entry(record, message=None, error=record.message, requestId=request_id, context=dict(record.context))


def _access(entry: Entry) -> reports.ErrorRecord:
    level, component, operation = entry["level"], entry["component"], entry["operation"]
    at, request_id = moment(microseconds(entry["timestamp"])), entry["requestId"] or None
    return reports.ErrorRecord(at, level, component, operation, entry["error"], request_id, entry["context"])


def _entry(record: reports.SearchRecord | reports.ErrorRecord, **own: object) -> Entry:
    """A record by the names that its fields have elsewhere too, `own` in place of some; without what is None."""
    named = {wire_name(each.name): getattr(record, each.name) for each in fields(record)}
    entry = {**named, **own, "id": None, "_id": ObjectId(record.id)}
    return {name: value for name, value in entry.items() if value is not None}

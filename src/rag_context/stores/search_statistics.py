"""Shared by all stores: how often documents were returned, and the records of searches and errors as rows of tables."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from rag_context.domain.documents import microseconds, moment
from rag_context.domain.reports import QUERY_CHARS, ErrorRecord, SearchRecord, Sums
from rag_context.errors import BackendError
from rag_context.resilience.deadline import ended

RETRIEVALS_FLUSH_S = 1.0
LAST_FLUSH_S = 2.0
"""How long closing waits for statistics to be written."""

SEARCH_COLUMNS = tuple(each.name for each in fields(SearchRecord) if each.name != "id")
ERROR_COLUMNS = tuple(each.name for each in fields(ErrorRecord) if each.name != "id")

FALLBACK = "CASE WHEN level = 2 THEN vector_latency_ms IS NULL ELSE level > 2 END"
"""`SearchRecord.is_fallback` in SQL. Of searches of another level than 2 no column is read that no index has."""

RECENT = "timestamp, query, results_count, latency_ms, level, cache_hit, agent, error, request_id"
"""The columns that `recent_record` reads."""

logger = logging.getLogger(__name__)


def recent_record(row: Sequence[Any]) -> SearchRecord:
    """A search of a row with `RECENT`."""
    at, query, results, latency_ms, level, cached, agent, error, id_ = row
    of_parts = (None, None, None)
    return SearchRecord(moment(at), id_, query, results, latency_ms, *of_parts, level, bool(cached), agent, None, error)


def search_row(record: SearchRecord) -> tuple[object, ...]:
    stored = {"timestamp": microseconds(record.timestamp), "query": record.query[:QUERY_CHARS]}
    return tuple(stored[name] if name in stored else getattr(record, name) for name in SEARCH_COLUMNS)


def error_row(record: ErrorRecord) -> tuple[object, ...]:
    values = (getattr(record, name) for name in ERROR_COLUMNS[1:-1])
    return (microseconds(record.timestamp), *values, json.dumps(dict(record.context)))


def access_record(row: Sequence[Any]) -> ErrorRecord:
    """What a row of `ERROR_COLUMNS` says."""
    at, level, component, operation, message, request_id, context = row
    return ErrorRecord(moment(at), level, component, operation, message, request_id, json.loads(context))


def last_row(searches: Sequence[SearchRecord], errors: Sequence[ErrorRecord]) -> tuple[str, dict[str, object]]:
    """The table of the last record of a batch, and what identifies its row there.

    A batch is stored as a whole: where this row is stored, the batch was, although its writer got an error.
    """
    if searches:
        row = dict(zip(SEARCH_COLUMNS, search_row(searches[-1]), strict=True))
        return "searches", {name: row[name] for name in ("timestamp", "request_id", "query", "latency_ms")}
    row = dict(zip(ERROR_COLUMNS, error_row(errors[-1]), strict=True))
    return "errors", {name: row[name] for name in ("timestamp", "level", "component", "operation", "message")}


def summed(rows: Iterable[Sequence[Any]], latency_of: Callable[[Any], float]) -> dict[int, Sums]:
    """Sums by slice; a row has slice, latency as the store groups by it, queries, latencies, fallbacks, cache hits."""
    sums: dict[int, Sums] = {}
    for slice_, latency, queries, latency_ms, fallbacks, cache_hits in rows:
        part = sums.setdefault(slice_, Sums())
        part.add(queries, latency_ms, fallbacks, cache_hits)
        part.latencies[latency_of(latency)] += queries
    return sums


class RetrievalCounts:
    """How often documents were returned: counted in memory for up to a second, then written in one batch.

    Args:
        write: adds to each document's statistics how often it was returned, and when last. Raises: BackendError.
    """

    def __init__(self, write: Callable[[Mapping[str, tuple[int, datetime]]], Awaitable[None]]) -> None:
        self._write = write
        self._counts: dict[str, tuple[int, datetime]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    def record(self, document_ids: Iterable[str], at: datetime) -> None:
        for document_id in document_ids:
            count, last = self._counts.get(document_id, (0, at))
            self._counts[document_id] = (count + 1, max(last, at))
        # One timer for all that is recorded until it fires: a search does not wait for it.
        if self._timer is None and self._counts:
            self._timer = asyncio.get_running_loop().call_later(RETRIEVALS_FLUSH_S, self._flush_soon)

    async def flush(self) -> None:
        """Write the counts; on a failure they are dropped, so that statistics cannot fill the memory."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Replaced before the first await, so that what is recorded meanwhile is not lost.
        counts, self._counts = self._counts, {}
        if not counts:
            return
        try:
            await self._write(counts)
        except BackendError as error:
            logger.info("retrieval statistics were not written: %s", error)

    async def close(self) -> None:
        """Write the remaining counts, if the server accepts them soon."""
        # The flush that the timer began may still be under way.
        writing = {asyncio.create_task(self.flush())}
        if self._flushing is not None:
            writing.add(self._flushing)
        _, late = await asyncio.wait(writing, timeout=LAST_FLUSH_S)
        for task in late:
            await ended(task)

    def _flush_soon(self) -> None:
        self._timer = None
        self._flushing = asyncio.create_task(self.flush(), name="write retrievals")

"""Shared by all stores: the records of searches and errors as rows of tables, and sums of rows."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

from rag_context.domain.documents import microseconds, moment
from rag_context.domain.reports import QUERY_CHARS, ErrorRecord, SearchRecord, Sums

SEARCH_COLUMNS = tuple(each.name for each in fields(SearchRecord) if each.name != "id")
ERROR_COLUMNS = tuple(each.name for each in fields(ErrorRecord) if each.name != "id")

FALLBACK = "CASE WHEN level = 2 THEN vector_latency_ms IS NULL ELSE level > 2 END"
"""`SearchRecord.is_fallback` in SQL. Of searches of another level than 2 no column is read that no index has."""


def search_record(row: Sequence[Any]) -> SearchRecord:
    """A search of a row with `SEARCH_COLUMNS`."""
    stored = dict(zip(SEARCH_COLUMNS, row, strict=True))
    return SearchRecord(**{**stored, "timestamp": moment(stored["timestamp"]), "cache_hit": bool(stored["cache_hit"])})


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

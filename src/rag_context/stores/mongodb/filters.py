"""`Filter` and cursors as MongoDB queries.

Every value of a query is a string or a date, never an operator. MongoDB keeps milliseconds of a time, so the rest of a
microsecond stands in a field of its own.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from bson import ObjectId

from rag_context.domain.documents import DEFAULT_TENANT, EPOCH, FILTERED, Cursor, Tenant, microseconds, wire_name
from rag_context.domain.search import Filter

_MILLISECOND = timedelta(milliseconds=1)

Query: TypeAlias = dict[str, Any]

_OBJECT_ID = re.compile("[0-9a-f]{24}")

_LAST = "\U0010ffff"

_BEFORE_SURROGATES = "\ud7ff"

_AFTER_SURROGATES = "\ue000"


def split_time(at: datetime) -> tuple[datetime, int]:
    """A time in whole milliseconds, as it is stored, and the microseconds beyond them, 0..999."""
    milliseconds, rest = divmod(microseconds(at), 1000)
    return EPOCH + milliseconds * _MILLISECOND, rest


def first_not_before(at: int) -> datetime:
    """The earliest whole millisecond at or after `at` microseconds after 1970."""
    return EPOCH + -(-at // 1000) * _MILLISECOND


def key_of(document_id: str) -> str | ObjectId:
    """The `_id` of a document: ours is the id itself, that of another program's document an ObjectId."""
    return ObjectId(document_id) if _OBJECT_ID.fullmatch(document_id) else document_id


def tenant_of(tenant: Tenant) -> dict[str, str] | None:
    """The field `tenant`; nothing for the default tenant, to whom documents without the field belong."""
    if tenant == DEFAULT_TENANT:
        return None
    return {"project": tenant.project, "branch": tenant.branch, "pathHash": tenant.path_hash}


def condition(where: Filter, document: str = "_id") -> Query:
    """`where` as a query; the id of a document stands in the field `document`."""
    parts: list[Query] = [{"tenant": tenant_of(where.tenant)}]
    parts += [
        {f"metadata.{wire_name(name)}" if name in FILTERED else wire_name(name): value} for name, value in where.equal()
    ]
    if where.source_prefix:
        parts.append({"source": _starting_with(where.source_prefix)})
    if where.agents:
        parts.append({"metadata.agent": {"$in": list(where.agents)}})
    if where.tags:
        parts.append({"metadata.tags": {"$all": list(where.tags)}})
    parts += [{"metadata.tags": {"$in": list(group)}} for group in where.any_tags]
    if where.origins:
        parts.append({"origin": {"$in": [origin.value for origin in where.origins]}})
    if where.without_documents:
        parts.append({document: {"$nin": [key_of(id_) for id_ in where.without_documents]}})
    if where.since is not None:
        parts.append(_occurred(_not_before, where.since))
    if where.until is not None:
        parts.append(_occurred(_before, where.until))
    return {"$and": parts} if len(parts) > 1 else parts[0]


def after_cursor(cursor: Cursor) -> Query:
    """The query for the documents after the cursor in a list by time and id, newest first."""
    milliseconds, rest = split_time(cursor.timestamp)
    later_id: list[Query] = [{"_id": {"$gt": key_of(cursor.id)}}]
    if isinstance(key_of(cursor.id), str):
        later_id.append({"_id": {"$type": "objectId"}})  # a comparison sees its own type only; these sort last
    same = {"timestamp": milliseconds, "timestampMicros": rest or {"$in": [0, None]}, "$or": later_id}
    return {"$or": [_before(cursor.timestamp, "timestamp"), same]}


def _occurred(bound: Callable[[datetime, str], Query], at: datetime) -> Query:
    """Records of earlier versions and other programs have no event time; their `timestamp` counts instead."""
    return {"$or": [bound(at, "occurredAt"), {"occurredAt": None, **bound(at, "timestamp")}]}


def _not_before(at: datetime, field: str) -> Query:
    milliseconds, rest = split_time(at)
    if rest == 0:
        return {field: {"$gte": milliseconds}}
    return {"$or": [{field: {"$gt": milliseconds}}, {field: milliseconds, f"{field}Micros": {"$gte": rest}}]}


def _before(at: datetime, field: str) -> Query:
    milliseconds, rest = split_time(at)
    if rest == 0:
        return {field: {"$lt": milliseconds}}
    # `$not` also passes records without the field: those of earlier versions, whose rest is 0.
    same = {field: milliseconds, f"{field}Micros": {"$not": {"$gte": rest}}}
    return {"$or": [{field: {"$lt": milliseconds}}, same]}


def _starting_with(prefix: str) -> Query:
    """A range instead of a pattern: strings are compared byte by byte, and no character of a range is special."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return {"$gte": prefix}
    following = _AFTER_SURROGATES if stem[-1] == _BEFORE_SURROGATES else chr(ord(stem[-1]) + 1)
    return {"$gte": prefix, "$lt": stem[:-1] + following}

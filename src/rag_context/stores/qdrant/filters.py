"""`Filter` as Qdrant's conditions. Values are bound as data; there is no syntax in them.

Qdrant before 1.20 cannot match a keyword by its beginning. So a source is also kept as numbers, each of which stands
for five bytes at one place of it: a source begins with a prefix exactly if it has the same numbers for all whole
blocks of the prefix, and for what is left over one number within the range of all that begins so.
"""

from datetime import UTC, datetime

from qdrant_client import models

from rag_context.domain.search import Filter
from rag_context.stores.qdrant import fields

BLOCK_BYTES = 5
_RADIX = 257
"""A digit per byte, counted from 1; 0 stands for "the source ends here"."""

MOST_BLOCKS = 2**53 // _RADIX**BLOCK_BYTES
"""Qdrant compares ranges as 64-bit floats, which are exact below 2**53."""


def conditions(where: Filter) -> models.Filter:
    """`where` as one filter."""
    must: list[models.Condition] = [
        _equals(key, value)
        for key, value in (
            (fields.PROJECT, where.tenant.project),
            (fields.BRANCH, where.tenant.branch),
            (fields.PATH_HASH, where.tenant.path_hash),
            (fields.CONTENT_TYPE, where.content_type),
            (fields.SESSION_ID, where.session_id),
            (fields.CATEGORY, where.category),
            (fields.GAME, where.game),
            (fields.SOURCE, where.source),
            *((fields.TAGS, tag) for tag in where.tags),
        )
        if value is not None
    ]
    must += [models.FieldCondition(key=fields.TAGS, match=models.MatchAny(any=list(group))) for group in where.any_tags]
    must += _begins(where.source_prefix or "")
    if where.since is not None or where.until is not None:
        period = models.DatetimeRange(gte=_aware(where.since), lt=_aware(where.until))
        must.append(models.FieldCondition(key=fields.TIMESTAMP, range=period))
    if not where.without_documents:
        return models.Filter(must=must)
    crowding = models.MatchAny(any=list(where.without_documents))
    return models.Filter(must=must, must_not=[models.FieldCondition(key=fields.DOCUMENT_ID, match=crowding)])


def source_blocks(source: str) -> list[int]:
    """The numbers by which a source is found by its beginning."""
    data = source.encode("utf-8", "surrogatepass")
    return [_block(start // BLOCK_BYTES, data[start : start + BLOCK_BYTES], 0) for start in _starts(data)]


def _begins(prefix: str) -> list[models.Condition]:
    data = prefix.encode("utf-8", "surrogatepass")
    found: list[models.Condition] = []
    for start in _starts(data):
        number, block = start // BLOCK_BYTES, data[start : start + BLOCK_BYTES]
        first, last = _block(number, block, 0), _block(number, block, _RADIX - 1)
        if first == last:
            found.append(models.FieldCondition(key=fields.SOURCE_BLOCKS, match=models.MatchValue(value=first)))
        else:
            found.append(models.FieldCondition(key=fields.SOURCE_BLOCKS, range=models.Range(gte=first, lte=last)))
    return found


def _starts(data: bytes) -> range:
    return range(0, len(data), BLOCK_BYTES)


def _block(number: int, data: bytes, filler: int) -> int:
    """The number of the block `number` of `data`; a shorter block is filled with `filler`."""
    value = number
    for digit in (*(byte + 1 for byte in data), *[filler] * (BLOCK_BYTES - len(data))):
        value = value * _RADIX + digit
    return value


def _equals(key: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def _aware(moment: datetime | None) -> datetime | None:
    """A time without a zone is UTC."""
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)

"""`Filter` as conditions on the payload of points, and the indexes that these need. Values are bound as data.

Qdrant before 1.20 cannot match a keyword by its beginning: a prefix is compared with the numbers of a source's blocks
(`points.source_blocks`).
"""

from collections.abc import Mapping

from qdrant_client import models

from rag_context.domain.documents import FILTERED, aware, wire_name
from rag_context.domain.search import Filter
from rag_context.stores.qdrant import points

_TENANT = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
_WORD = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD)
_ON_DISK = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, on_disk=True)

INDEXES: Mapping[str, models.PayloadSchemaParams] = {
    points.PROJECT: _TENANT,
    points.BRANCH: _TENANT,
    points.PATH_HASH: _TENANT,
    points.SESSION_ID: _WORD,
    points.CONTENT_TYPE: _WORD,
    **{wire_name(name): _WORD for name in FILTERED},
    points.AGENT: _WORD,
    points.TAGS: _WORD,
    points.SOURCE: _WORD,
    points.TIMESTAMP: models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME),
    points.OCCURRED_AT: models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME),
    points.SOURCE_BLOCKS: models.IntegerIndexParams(
        type=models.IntegerIndexType.INTEGER, lookup=True, range=True, on_disk=True
    ),
    points.DOCUMENT_ID: _ON_DISK,
    points.STANDING: _WORD,
    points.ORIGIN: _WORD,
}
"""Every field that is filtered by. Those that only writes and rare filters use are kept on disk."""


def conditions(where: Filter) -> models.Filter:
    must: list[models.Condition] = [
        _equals(key, value)
        for key, value in (
            (points.PROJECT, where.tenant.project),
            (points.BRANCH, where.tenant.branch),
            (points.PATH_HASH, where.tenant.path_hash),
            *((wire_name(name), value) for name, value in where.equal()),
            *((points.TAGS, tag) for tag in where.tags),
        )
    ]
    must += [models.FieldCondition(key=points.TAGS, match=models.MatchAny(any=list(group))) for group in where.any_tags]
    if where.agents:
        must.append(models.FieldCondition(key=points.AGENT, match=models.MatchAny(any=list(where.agents))))
    must += _begins(where.source_prefix or "")
    if where.origins:
        among = models.MatchAny(any=[origin.value for origin in where.origins])
        must.append(models.FieldCondition(key=points.ORIGIN, match=among))
    if where.standing:
        must.append(_equals(points.STANDING, points.OF_OWNER))
    if where.since is not None or where.until is not None:
        since, until = (None if at is None else aware(at) for at in (where.since, where.until))
        period = models.DatetimeRange(gte=since, lt=until)
        # Points of earlier versions have no event time; when they were indexed counts instead.
        is_older = models.IsEmptyCondition(is_empty=models.PayloadField(key=points.OCCURRED_AT))
        indexed = models.FieldCondition(key=points.TIMESTAMP, range=period)
        occurred = models.FieldCondition(key=points.OCCURRED_AT, range=period)
        must.append(models.Filter(should=[occurred, models.Filter(must=[is_older, indexed])]))
    if not where.without_documents:
        return models.Filter(must=must)
    excluded = models.MatchAny(any=list(where.without_documents))
    return models.Filter(must=must, must_not=[models.FieldCondition(key=points.DOCUMENT_ID, match=excluded)])


def _begins(prefix: str) -> list[models.Condition]:
    data = prefix.encode("utf-8", "surrogatepass")
    found: list[models.Condition] = []
    for start in points.starts(data):
        number, block = start // points.BLOCK_BYTES, data[start : start + points.BLOCK_BYTES]
        first, last = points.block_number(number, block, 0), points.block_number(number, block, points.RADIX - 1)
        # A whole block is one number; the rest of a prefix stands for a range, from its end to the last continuation.
        if first == last:
            found.append(models.FieldCondition(key=points.SOURCE_BLOCKS, match=models.MatchValue(value=first)))
        else:
            found.append(models.FieldCondition(key=points.SOURCE_BLOCKS, range=models.Range(gte=first, lte=last)))
    return found


def _equals(key: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))

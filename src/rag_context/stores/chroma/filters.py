"""`Filter` as conditions of Chroma, and in Python where Chroma has none.

Chroma cannot ask for what begins with something; the folder that the prefix stands in narrows, and `passes` decides.
"""

from rag_context.domain.search import Filter
from rag_context.stores.chroma import payload
from rag_context.stores.chroma.api import Fields, Where


def condition(where: Filter) -> Where:
    """What lets through all that `where` does, and little else."""
    return _all([{payload.TENANT: {"$eq": payload.tenant_name(where.tenant)}}, *_narrowing(where)])


def cheap_condition(where: Filter) -> Where:
    """As `condition`, less exact and faster: Chroma lists all that each part of a condition lets through.

    The tenant is most of a collection as a rule, so it is left out where anything else narrows.
    """
    parts = _narrowing(where)
    return _all(parts) if parts else condition(where)


def passes(fields: Fields, where: Filter) -> bool:
    """Whether `where` lets a row through."""
    equal = (
        (where.content_type, payload.CONTENT_TYPE),
        (where.session_id, payload.SESSION_ID),
        (where.category, payload.CATEGORY),
        (where.game, payload.GAME),
        (where.source, payload.SOURCE),
    )
    at = fields.get(payload.TIMESTAMP, 0)
    return (
        fields.get(payload.TENANT) == payload.tenant_name(where.tenant)
        and all(asked is None or asked == fields.get(field) for asked, field in equal)
        and str(fields.get(payload.SOURCE, "")).startswith(where.source_prefix or "")
        and set(where.tags) <= set(fields.get(payload.TAGS) or ())
        and all(set(group) & set(fields.get(payload.TAGS) or ()) for group in where.any_tags)
        and fields.get(payload.DOCUMENT_ID) not in where.without_documents
        and (where.since is None or at >= payload.microseconds(where.since))
        and (where.until is None or at < payload.microseconds(where.until))
    )


def _narrowing(where: Filter) -> list[Where]:
    """The conditions beside the tenant."""
    equal = (
        (where.content_type, payload.CONTENT_TYPE),
        (where.session_id, payload.SESSION_ID),
        (where.category, payload.CATEGORY),
        (where.game, payload.GAME),
        (where.source, payload.SOURCE),
    )
    parts: list[Where] = [{field: {"$eq": asked}} for asked, field in equal if asked is not None]
    parts += [{payload.TAGS: {"$contains": tag}} for tag in where.tags]
    parts += [_any([{payload.TAGS: {"$contains": tag}} for tag in group]) for group in where.any_tags if group]
    parts += [{payload.FOLDERS: {"$contains": folder}} for folder in payload.folders(where.source_prefix or "")[-1:]]
    if where.without_documents:
        parts.append({payload.DOCUMENT_ID: {"$nin": list(where.without_documents)}})
    if where.since is not None:
        parts.append({payload.TIMESTAMP: {"$gte": payload.microseconds(where.since)}})
    if where.until is not None:
        parts.append({payload.TIMESTAMP: {"$lt": payload.microseconds(where.until)}})
    return parts


def _any(parts: list[Where]) -> Where:
    return parts[0] if len(parts) == 1 else {"$or": parts}


def _all(parts: list[Where]) -> Where:
    return parts[0] if len(parts) == 1 else {"$and": parts}

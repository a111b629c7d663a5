"""`Filter` as conditions on the fields of rows.

Chroma cannot ask for a prefix: the folder that holds the prefix narrows the search, and `passes` decides in Python.
"""

from rag_context.domain.documents import microseconds, wire_name
from rag_context.domain.search import Filter
from rag_context.stores.chroma import payload
from rag_context.stores.chroma.chroma_api import Fields, Where, either, every


def condition(where: Filter) -> Where:
    """What lets through all that `where` does, and little else."""
    return every([{payload.TENANT: {"$eq": payload.tenant_name(where.tenant)}}, *_narrowing(where)])


def cheap_condition(where: Filter) -> Where:
    """As `condition`, faster: without the tenant, which is most of a collection, where anything else narrows."""
    parts = _narrowing(where)
    return every(parts) if parts else condition(where)


def passes(fields: Fields, where: Filter) -> bool:
    # Everything is compared again: the first search is made without a filter, and prefixes are only narrowed.
    at = fields.get(payload.OCCURRED_AT, 0)
    return (
        fields.get(payload.TENANT) == payload.tenant_name(where.tenant)
        and all(value == fields.get(field) for field, value in _equal(where))
        and str(fields.get(payload.SOURCE, "")).startswith(where.source_prefix or "")
        and (not where.agents or fields.get(payload.AGENT) in where.agents)
        and set(where.tags) <= set(fields.get(payload.TAGS) or ())
        and all(set(group) & set(fields.get(payload.TAGS) or ()) for group in where.any_tags)
        and fields.get(payload.DOCUMENT_ID) not in where.without_documents
        and (not where.standing or fields.get(payload.STANDING) == payload.OF_OWNER)
        and (not where.origins or fields.get(payload.ORIGIN) in where.origins)
        and (where.since is None or at >= microseconds(where.since))
        and (where.until is None or at < microseconds(where.until))
    )


def _narrowing(where: Filter) -> list[Where]:
    parts: list[Where] = [{field: {"$eq": value}} for field, value in _equal(where)]
    parts += [{payload.TAGS: {"$contains": tag}} for tag in where.tags]
    parts += [either([{payload.TAGS: {"$contains": tag}} for tag in group]) for group in where.any_tags if group]
    parts += [{payload.FOLDERS: {"$contains": folder}} for folder in payload.folders(where.source_prefix or "")[-1:]]
    if where.agents:
        parts.append({payload.AGENT: {"$in": list(where.agents)}})
    if where.standing:
        parts.append({payload.STANDING: {"$eq": payload.OF_OWNER}})
    if where.origins:
        parts.append({payload.ORIGIN: {"$in": [origin.value for origin in where.origins]}})
    if where.without_documents:
        parts.append({payload.DOCUMENT_ID: {"$nin": list(where.without_documents)}})
    if where.since is not None:
        parts.append({payload.OCCURRED_AT: {"$gte": microseconds(where.since)}})
    if where.until is not None:
        parts.append({payload.OCCURRED_AT: {"$lt": microseconds(where.until)}})
    return parts


def _equal(where: Filter) -> list[tuple[str, str]]:
    return [(wire_name(name), value) for name, value in where.equal()]

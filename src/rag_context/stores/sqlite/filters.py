"""`Filter` as SQL over `documents AS d`, with every value bound."""

from rag_context.domain.documents import Tenant
from rag_context.domain.search import Filter
from rag_context.domain.times import microseconds

TENANT = "(SELECT key FROM tenants WHERE project = ? AND branch = ? AND path_hash = ?)"

Parameter = str | int | bytes
Condition = tuple[str, tuple[Parameter, ...]]
"""SQL for a WHERE clause, and the values of its parameters."""


def tenant_values(tenant: Tenant) -> tuple[str, str, str]:
    """The values of the parameters of `TENANT`."""
    return tenant.project, tenant.branch, tenant.path_hash


def condition(where: Filter) -> Condition:
    """`where` as SQL."""
    parts = [f"d.tenant = {TENANT}"]
    values: list[Parameter] = [*tenant_values(where.tenant)]
    for column, value in (
        ("content_type", where.content_type),
        ("session_id", where.session_id),
        ("category", where.category),
        ("game", where.game),
        ("source", where.source),
    ):
        if value is not None:
            parts.append(f"d.{column} = ?")
            values.append(value)
    if where.source_prefix:
        # Bytes, because SQLite's text functions end at a NUL.
        prefix = where.source_prefix.encode()
        parts.append("substr(CAST(d.source AS BLOB), 1, ?) = ?")
        values.extend((len(prefix), prefix))
    for tag in where.tags:
        parts.append("EXISTS (SELECT 1 FROM document_tags AS g WHERE g.document = d.key AND g.tag = ?)")
        values.append(tag)
    for group in where.any_tags:
        marks = ", ".join("?" * len(group))
        parts.append(
            f"EXISTS (SELECT 1 FROM document_tags AS g WHERE g.document = d.key AND g.tag IN ({marks}))"  # noqa: S608
        )
        values.extend(group)
    if where.without_documents:
        parts.append(f"d.id NOT IN ({', '.join('?' * len(where.without_documents))})")
        values.extend(where.without_documents)
    if where.since is not None:
        parts.append("d.timestamp >= ?")
        values.append(microseconds(where.since))
    if where.until is not None:
        parts.append("d.timestamp < ?")
        values.append(microseconds(where.until))
    return " AND ".join(parts), tuple(values)

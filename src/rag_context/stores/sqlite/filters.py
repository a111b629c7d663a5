"""`Filter` as SQL over the embedded file, with every value bound; `memory.columns` evaluates it in memory."""

from rag_context.domain.documents import Tenant, microseconds
from rag_context.domain.search import Filter

TENANT = "(SELECT key FROM tenants WHERE project = ? AND branch = ? AND path_hash = ?)"

Parameter = str | int | bytes
Condition = tuple[str, tuple[Parameter, ...]]
"""SQL for a WHERE clause, and the values of its parameters."""


def tenant_values(tenant: Tenant) -> tuple[str, str, str]:
    return tenant.project, tenant.branch, tenant.path_hash


def condition(where: Filter, time: str = "d.occurred_at") -> Condition:
    parts = [f"d.tenant = {TENANT}"]
    values: list[Parameter] = [*tenant_values(where.tenant)]
    for name, value in where.equal():
        parts.append(f"d.{name} = ?")
        values.append(value)
    if where.source_prefix:
        # Bytes, because SQLite's text functions end at a NUL.
        prefix = where.source_prefix.encode()
        parts.append("substr(CAST(d.source AS BLOB), 1, ?) = ?")
        values.extend((len(prefix), prefix))
    if where.agents:
        parts.append(f"d.agent IN ({', '.join('?' * len(where.agents))})")
        values.extend(where.agents)
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
    if where.origins:
        parts.append(f"d.origin IN ({', '.join('?' * len(where.origins))})")
        values.extend(where.origins)
    if where.since is not None:
        parts.append(f"{time} >= ?")
        values.append(microseconds(where.since))
    if where.until is not None:
        parts.append(f"{time} < ?")
        values.append(microseconds(where.until))
    return " AND ".join(parts), tuple(values)

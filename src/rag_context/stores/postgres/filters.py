"""`Filter` as SQL of PostgreSQL, with every value bound."""

from rag_context.domain.documents import microseconds
from rag_context.domain.search import Filter
from rag_context.stores.postgres.rows import TENANT, stored

_OF_DOCUMENTS = ("agent", "origin", "shelved_at")
_OF_DOCUMENT = "(SELECT d.{} FROM rag_context.documents AS d WHERE d.id = c.document)"


class Parameters:
    """The values of a statement, numbered as they come."""

    def __init__(self, *values: object) -> None:
        self.values: list[object] = list(values)

    def add(self, value: object) -> str:
        """Add a value; returns its placeholder in the statement."""
        self.values.append(value)
        return f"${len(self.values)}"


def condition(where: Filter, parameters: Parameters, row: str = "d") -> str:
    add = parameters.add
    of_document = {name: f"d.{name}" if row == "d" else _OF_DOCUMENT.format(name) for name in _OF_DOCUMENTS}
    tenant = [add(stored(name)) for name in (where.tenant.project, where.tenant.branch, where.tenant.path_hash)]
    parts = [f"{row}.tenant = ({TENANT.format(*tenant)})"]
    for name, value in where.equal():
        placeholder = f"{add(stored(value))}::text"
        if name == "source":
            # The index over sources has their beginnings: an entry of it may have 2 704 bytes, a source more.
            parts.append(f"left({row}.source, 256) = left({placeholder}, 256)")
        parts.append(f"{row}.{name} = {placeholder}")
    if where.source_prefix:
        prefix = f"{add(stored(where.source_prefix))}::text"
        parts.append(
            f"starts_with(left({row}.source, 256), left({prefix}, 256)) AND starts_with({row}.source, {prefix})"
        )
    if where.agents:
        parts.append(f"{of_document['agent']} = ANY ({add([stored(agent) for agent in where.agents])}::text[])")
    if where.tags:
        parts.append(f"{row}.tags @> {add([stored(tag) for tag in where.tags])}")
    parts += [f"{row}.tags && {add([stored(tag) for tag in group])}" for group in where.any_tags]
    if where.standing and row == "c":
        parts.append("c.standing")
    if where.origins:
        # Chunks without one have that of their document.
        origin = of_document["origin"] if row == "d" else f"coalesce(c.origin, {of_document['origin']})"
        parts.append(f"{origin} = ANY ({add([origin.value for origin in where.origins])}::text[])")
    if where.without_documents:
        name = "id" if row == "d" else "document"
        parts.append(f"{row}.{name} <> ALL ({add([stored(id_) for id_ in where.without_documents])}::text[])")
    if where.superseded_after is not None:
        parts.append(f"{of_document['shelved_at']} > {add(microseconds(where.superseded_after))}")
    if where.since is not None:
        parts.append(f"coalesce({row}.occurred_at, {row}.timestamp) >= {add(microseconds(where.since))}")
    if where.until is not None:
        parts.append(f"coalesce({row}.occurred_at, {row}.timestamp) < {add(microseconds(where.until))}")
    return " AND ".join(parts)

"""The tables of documents in the embedded file, as `stores.sql_documents` and `stores.sql_journal` read them.

`changes` has what writes.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from rag_context.domain.documents import Counts, Missing, Tenant, TenantState, microseconds
from rag_context.domain.search import Filter
from rag_context.stores.sql_documents import Parameters, Row
from rag_context.stores.sqlite.faults import COMPONENT, is_undecodable

_CHUNK_TIME = "coalesce(c.occurred_at, d.occurred_at)"

_WORDS = {
    "schema": "",
    "key": "key",
    "document": "key",
    "join": "CROSS JOIN",  # reads the left table first: the planner has no statistics here
    "among_1": "IN (SELECT value FROM json_each($1))",
    "among_2": "IN (SELECT value FROM json_each($2))",
    "time": "d.occurred_at",
    "chunk_time": _CHUNK_TIME,
    "start": "start",
    "end": '"end"',
    "content": "n.content",
    "contents": "CROSS JOIN contents AS n ON n.document = d.key",
    "chunk_ids": (
        "(SELECT json_group_array(id) FROM (SELECT id FROM chunks WHERE document = d.key ORDER BY position))"
    ),
    "and_similar_to_4": "",
}

_VISIBLE = "SELECT count(*) FROM documents AS d{index} CROSS JOIN chunks AS c ON c.document = d.key WHERE {where}"

_LACKS = " AND NOT EXISTS (SELECT 1 FROM vectors AS v WHERE v.chunk = c.key)"

_TENANT_STATE = """
SELECT (SELECT value FROM meta WHERE name = 'index'), chunks_epoch, vectors_epoch, t.key, t.version,
       ifnull(t.documents, 0)
FROM totals LEFT JOIN tenants AS t ON t.project = ? AND t.branch = ? AND t.path_hash = ?
"""


class UndecodableError(sqlite3.OperationalError, UnicodeError):
    """A row has invalid UTF-8."""


def condition(where: Filter, parameters: Parameters, time: str = "+d.occurred_at") -> str:
    """A filter as SQL over `documents AS d`; `memory.columns` evaluates it in memory.

    The plus keeps SQLite from reading all of a range of times and sorting it, where a page needs its newest rows only.
    """
    add = parameters.add
    tenant = "SELECT key FROM tenants WHERE project = {} AND branch = {} AND path_hash = {}"
    parts = [f"d.tenant = ({tenant.format(*map(add, where.tenant.names))})"]
    parts += [f"d.{name} = {add(value)}" for name, value in where.equal()]
    if where.source_prefix:
        # Bytes, because SQLite's text functions end at a NUL.
        prefix = where.source_prefix.encode()
        parts.append(f"substr(CAST(d.source AS BLOB), 1, {add(len(prefix))}) = {add(prefix)}")
    tagged = "EXISTS (SELECT 1 FROM document_tags AS g WHERE g.document = d.key AND g.tag {})"
    parts += [tagged.format(f"= {add(tag)}") for tag in where.tags]
    parts += [tagged.format(f"IN (SELECT value FROM json_each({add(list(group))}))") for group in where.any_tags]  # noqa: S608
    for column, values, among in (
        ("agent", where.agents, "IN"),
        ("id", where.without_documents, "NOT IN"),
        ("origin", where.origins, "IN"),
    ):
        if values:
            parts.append(f"d.{column} {among} (SELECT value FROM json_each({add(list(values))}))")  # noqa: S608
    if where.since is not None:
        parts.append(f"{time} >= {add(microseconds(where.since))}")
    if where.until is not None:
        parts.append(f"{time} < {add(microseconds(where.until))}")
    return " AND ".join(parts)


@lru_cache(maxsize=64)
def _worded(statement: str) -> str:
    return statement.format_map(_WORDS).replace("$", ":p")


def run(connection: sqlite3.Connection, statement: str, values: Sequence[object]) -> sqlite3.Cursor:
    """Run a statement with numbered parameters and words."""
    # By name: since Python 3.12 numbered parameters may not come as a sequence.
    stored = (json.dumps(value) if isinstance(value, list) else value for value in values)
    return connection.execute(_worded(statement), {f"p{number}": value for number, value in enumerate(stored, 1)})


class SqliteTables:
    """`DocumentTables` over a connection, inside one snapshot. It never waits."""

    component = COMPONENT
    condition = staticmethod(condition)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, statement: str, *values: object) -> Sequence[Row]:
        try:
            return run(self._connection, statement, values).fetchall()
        except sqlite3.OperationalError as error:
            if is_undecodable(error):
                raise UndecodableError(*error.args) from None
            raise

    async def fetchrow(self, statement: str, *values: object) -> Row | None:
        rows = await self.fetch(statement, *values)
        return rows[0] if rows else None

    async def execute(self, statement: str, *values: object) -> None:
        run(self._connection, statement, values)


@contextmanager
def lenient(connection: sqlite3.Connection) -> Iterator[None]:
    """Inside the block, invalid UTF-8 is read as replacement characters."""
    strict = connection.text_factory
    connection.text_factory = lambda stored: stored.decode("utf-8", "replace")
    try:
        yield
    finally:
        connection.text_factory = strict


def read_counts(connection: sqlite3.Connection) -> Counts:
    return Counts(*connection.execute("SELECT documents, pending, chunks, vectors FROM totals").fetchone())


def has_all_vectors(counts: Counts, has_split_vectors: bool) -> bool:
    return not counts.pending and (has_split_vectors or counts.vectors >= counts.chunks)


def read_missing_vectors(connection: sqlite3.Connection, has_split_vectors: bool, where: Filter) -> Missing:
    """Reads pending documents only, as long as there are any; all that pass the filter where others lost vectors."""
    counts = read_counts(connection)
    if has_all_vectors(counts, has_split_vectors):
        return Missing()
    parameters = Parameters()
    clauses = condition(where, parameters, _CHUNK_TIME)
    if counts.pending:
        lacking = _VISIBLE.format(index=" INDEXED BY documents_pending", where=f"d.status = 'pending' AND {clauses}")
    else:
        lacking = _VISIBLE.format(index="", where=clauses)
    statement = lacking if has_split_vectors else lacking + _LACKS
    missing: int = run(connection, statement, parameters.values).fetchone()[0]
    if not missing:
        return Missing()
    return Missing(missing, run(connection, _VISIBLE.format(index="", where=clauses), parameters.values).fetchone()[0])


def read_tenant_state(connection: sqlite3.Connection, tenant: Tenant) -> TenantState:
    *state, documents = connection.execute(_TENANT_STATE, tenant.names).fetchone()
    return TenantState(":".join(map(str, state)), documents)

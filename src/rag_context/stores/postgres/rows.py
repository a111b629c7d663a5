"""Texts, rows and filters as PostgreSQL has them; `stores.sql_documents` reads documents of them."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from rag_context.domain import documents
from rag_context.domain.search import ChunkRef, Filter
from rag_context.domain.text import MOST_DIFFERENT_BITS, signed, term_key, terms
from rag_context.stores import sql_documents
from rag_context.stores.postgres.driver import COMPONENT

MOST_COUNTED = 32_767
"""What the type of `counts` holds; so many occurrences of a term score as many more would."""

_ESCAPE = "\ufdd0"
"""Begins an escape: a code point that no text means anything by."""

CHUNK_TIME = "coalesce(c.occurred_at, c.timestamp)"

_WORDS = {
    "schema": "rag_context.",
    "key": "sequence",
    "document": "id",
    "join": "JOIN",
    "among_1": "= ANY ($1)",
    "among_2": "= ANY ($2)",
    "time": "coalesce(d.occurred_at, d.timestamp)",
    "chunk_time": CHUNK_TIME,
    "start": "start_char",
    "end": "end_char",
    "content": "d.content",
    "contents": "",
    "chunk_ids": "ARRAY(SELECT c.id FROM rag_context.chunks AS c WHERE c.document = d.id ORDER BY c.position)",
    "and_similar_to_4": f"AND bit_count((similarity_hash # $4)::bit(64)) <= {MOST_DIFFERENT_BITS}",
}

TENANT = "SELECT key FROM rag_context.tenants WHERE project = {} AND branch = {} AND path_hash = {}"

REFERENCE_COLUMNS = f"c.id, c.document, c.position, c.content_type, c.thread, c.speaker, {CHUNK_TIME}"
REFERENCE_WIDTH = 7


def stored(text: str) -> str:
    """A text as PostgreSQL can store it: a NUL is escaped, and so is what an escape begins with.

    No escaped text is a part of another's escape: equality and prefixes are those of the texts.
    """
    if "\0" not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")


def read_text(text: str) -> str:
    if _ESCAPE not in text:
        return text
    return text.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)


def stored_value(value: Any) -> Any:
    """As `stored`, for a text, a list of texts, or what is neither."""
    if isinstance(value, list):
        return [stored_value(each) for each in value]
    return stored(value) if isinstance(value, str) else value


def read_value(value: Any) -> Any:
    """A value of a row as it was before `stored_value`."""
    if isinstance(value, list):
        return [read_value(each) for each in value]
    return read_text(value) if isinstance(value, str) else value


@lru_cache(maxsize=64)
def worded(statement: str) -> str:
    """A statement of `stores.sql_documents` or `stores.sql_journal` with this database's words."""
    return statement.format_map(_WORDS)


def read_row(row: Iterable[Any]) -> list[Any]:
    return [read_value(value) for value in row]


class PostgresTables:
    """`DocumentTables` over a connection, or over a database, each statement of which has any of its connections."""

    component = COMPONENT

    def __init__(self, source: Any) -> None:
        self._source = source

    async def fetch(self, statement: str, *values: object) -> Sequence[sql_documents.Row]:
        return [read_row(row) for row in await self._source.fetch(worded(statement), *map(stored_value, values))]

    async def fetchrow(self, statement: str, *values: object) -> sql_documents.Row | None:
        row = await self._source.fetchrow(worded(statement), *map(stored_value, values))
        return None if row is None else read_row(row)

    async def execute(self, statement: str, *values: object) -> None:
        await self._source.execute(worded(statement), *map(stored_value, values))

    def condition(self, where: Filter, parameters: sql_documents.Parameters) -> str:
        return condition(where, parameters)


def beside(columns: str, at: str = CHUNK_TIME) -> str:
    """What joins to `chunks AS c` the chunk before (`b`) and the one after (`a`), with `columns` of `x`, or nulls.

    They are those of its document, and in a conversation those of the messages before and after too.
    """
    return "".join(
        f"""
        LEFT JOIN LATERAL (
            (SELECT {columns} FROM rag_context.chunks AS x
             WHERE c.thread IS NULL AND x.document = c.document AND x.position {sign} c.position
             ORDER BY x.position {order} LIMIT 1)
            UNION ALL
            (SELECT {columns} FROM rag_context.chunks AS x
             WHERE x.tenant = c.tenant AND x.thread = c.thread
               AND (coalesce(x.occurred_at, x.timestamp), x.sequence, x.position)
                   {sign} ({at}, c.sequence, c.position)
             ORDER BY coalesce(x.occurred_at, x.timestamp) {order}, x.sequence {order}, x.position {order} LIMIT 1)
        ) AS {name} ON true"""  # noqa: S608
        for name, sign, order in (("b", "<", "DESC"), ("a", ">", "ASC"))
    )


def document_row(document: documents.Document, tenant: int, status: str) -> dict[str, object]:
    """A row of `documents` by column, without its sequence number."""
    row = sql_documents.document_row(document, tenant, status)
    return {name: stored_value(value) for name, value in {**row, "content": document.content}.items()} | {
        "extra": json.dumps(row["extra"])
    }


_OF_DOCUMENTS = ("agent", "origin", "shelved_at")
_OF_DOCUMENT = "(SELECT d.{} FROM rag_context.documents AS d WHERE d.id = c.document)"


def condition(where: Filter, parameters: sql_documents.Parameters, row: str = "d") -> str:
    add = parameters.add
    of_document = {name: f"d.{name}" if row == "d" else _OF_DOCUMENT.format(name) for name in _OF_DOCUMENTS}
    tenant = [add(stored(name)) for name in where.tenant.names]
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
        parts.append(f"{of_document['shelved_at']} > {add(documents.microseconds(where.superseded_after))}")
    if where.since is not None:
        parts.append(f"coalesce({row}.occurred_at, {row}.timestamp) >= {add(documents.microseconds(where.since))}")
    if where.until is not None:
        parts.append(f"coalesce({row}.occurred_at, {row}.timestamp) < {add(documents.microseconds(where.until))}")
    return " AND ".join(parts)


class ChunkTerms:
    """The terms of a chunk as they are stored: distinct hashes, ascending; how often each occurs; how many in all."""

    __slots__ = ("counts", "keys", "length")

    def __init__(self, text: str) -> None:
        found = terms(text)
        counted = sorted((signed(term_key(term)), count) for term, count in Counter(found).items())
        self.keys = [key for key, _ in counted]
        self.counts = [min(count, MOST_COUNTED) for _, count in counted]
        self.length = len(found)


def chunk_row(
    key: int, chunk: documents.Chunk, words: ChunkTerms, document: documents.Document, tenant: int, sequence: int
) -> dict[str, object]:
    span, metadata = chunk.span, document.metadata
    return {
        "key": key,
        "id": chunk.id,
        "document": stored(document.id),
        "sequence": sequence,
        "position": chunk.position,
        "start_char": span.start,
        "end_char": span.end,
        "start_line": span.start_line,
        "end_line": span.end_line,
        "heading": stored(span.heading),
        "tenant": tenant,
        "content_type": stored(document.content_type),
        "session_id": stored(document.session_id),
        "source": stored(document.source),
        **{name: stored_value(getattr(metadata, name)) for name in documents.FILTERED},
        "tags": [stored(tag) for tag in metadata.tags],
        "timestamp": documents.microseconds(document.timestamp),
        "occurred_at": documents.microseconds(chunk.occurred_at),
        "speaker": stored_value(chunk.speaker),
        "standing": chunk.is_standing,
        "origin": chunk.origin.value,
        "thread": stored_value(document.thread),
        "length": words.length,
        "terms": words.keys,
        "counts": words.counts,
    }


def reference_from(row: Sequence[Any]) -> ChunkRef:
    """A chunk as ranking needs it, of a row that begins with `REFERENCE_COLUMNS`."""
    id_, document, position, content_type, thread, speaker, at = row[:REFERENCE_WIDTH]
    # One test for all four: almost no row has an escape, and a search reads hundreds of rows.
    if _ESCAPE in f"{document}{content_type}{thread}{speaker}":
        document, content_type = read_text(document), read_text(content_type)
        thread, speaker = read_value(thread), read_value(speaker)
    return ChunkRef(id_, document, position, content_type, thread, speaker, at)

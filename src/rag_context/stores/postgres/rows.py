"""Rows as documents, chunks and passages, and back."""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rag_context.domain import documents
from rag_context.domain.reports import Period, Periods
from rag_context.domain.search import ChunkRef, Passage
from rag_context.domain.text import MOST_DIFFERENT_BITS, signed, term_key, terms, unsigned
from rag_context.errors import BackendDataError
from rag_context.stores.postgres.connection import Row
from rag_context.stores.postgres.driver import COMPONENT

PENDING = "pending"
INDEXED = "indexed"

MOST_COUNTED = 32_767
"""What the type of `counts` holds; so many occurrences of a term score as many more would."""

_ESCAPE = "\ufdd0"
"""Begins an escape: a code point that no text means anything by."""

_METADATA_COLUMNS = ", ".join(f"d.{name}" for name in (*documents.TEXT_FIELDS, "tags", "extra"))

DOCUMENT_COLUMNS = f"""d.id, t.project, t.branch, t.path_hash, d.content_type, d.session_id, d.source, d.title,
d.content, d.content_hash, d.timestamp, coalesce(d.occurred_at, d.timestamp) AS occurred_at, d.thread,
d.similarity_hash, d.message_times, d.origin, {_METADATA_COLUMNS}"""

LISTING_COLUMNS = f"""d.id, d.title, d.content_type, d.session_id, d.source, d.timestamp,
coalesce(d.occurred_at, d.timestamp) AS occurred_at, d.status, d.origin,
{_METADATA_COLUMNS}"""

CHUNK_TIME = "coalesce(c.occurred_at, c.timestamp)"

CHUNK_COLUMNS = f"""c.id AS chunk, c.document, c.position, c.start_char, c.end_char, c.start_line, c.end_line,
c.heading, p.text, p.context, {CHUNK_TIME} AS chunk_occurred_at, c.speaker,
c.origin AS chunk_origin, c.standing"""

PASSAGE_COLUMNS = f"{CHUNK_COLUMNS}, {LISTING_COLUMNS}"

TENANT = "SELECT key FROM rag_context.tenants WHERE project = {} AND branch = {} AND path_hash = {}"

logger = logging.getLogger(__name__)

REFERENCE_COLUMNS = f"c.id, c.document, c.position, c.content_type, c.thread, c.speaker, {CHUNK_TIME}"
REFERENCE_WIDTH = 7


_BANDS = ("similarity_hash & 65535", *(f"(similarity_hash >> {16 * band}) & 65535" for band in (1, 2, 3)))

SIMILAR = " UNION ".join(
    f"""SELECT id FROM rag_context.documents
        WHERE tenant = ({TENANT.format("$1", "$2", "$3")})
        AND similarity_hash <> 0 AND {band} = ({band.replace("similarity_hash", "$4::bigint")})
        AND id <> $5 AND bit_count((similarity_hash # $4)::bit(64)) <= $6"""  # noqa: S608
    for band in _BANDS
)

PERIODS = """
SELECT min(o.first), max(o.last), min(i.first), max(i.last) FROM rag_context.tenants AS t
CROSS JOIN LATERAL (SELECT min(coalesce(occurred_at, timestamp)) AS first, max(coalesce(occurred_at, timestamp)) AS last
                    FROM rag_context.documents WHERE tenant = t.key) AS o
CROSS JOIN LATERAL (SELECT min(timestamp) AS first, max(timestamp) AS last
                    FROM rag_context.documents WHERE tenant = t.key) AS i
"""
"""By tenant, so that each bound is read off the end of an index."""


def stored(text: str) -> str:
    """A text as PostgreSQL can store it: a NUL is escaped, and so is what an escape begins with.

    No escaped text is a part of another's escape: equality and prefixes are those of the texts.
    """
    if "\0" not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")


def stored_or_none(text: str | None) -> str | None:
    return None if text is None else stored(text)


def read_text(text: str) -> str:
    if _ESCAPE not in text:
        return text
    return text.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)


def beside(columns: str) -> str:
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
               AND (x.sequence, x.position) {sign} (c.sequence, c.position)
             ORDER BY x.sequence {order}, x.position {order} LIMIT 1)
        ) AS {name} ON true"""  # noqa: S608
        for name, sign, order in (("b", "<", "DESC"), ("a", ">", "ASC"))
    )


def document_row(document: documents.Document, tenant: int, status: str) -> dict[str, object]:
    """A row of `documents` by column, without its sequence number."""
    metadata = document.metadata
    return {
        "id": stored(document.id),
        "tenant": tenant,
        "content_type": stored(document.content_type),
        "session_id": stored(document.session_id),
        "source": stored(document.source),
        "title": stored(document.title),
        "content": stored(document.content),
        "content_hash": document.content_hash,
        "timestamp": documents.microseconds(document.timestamp),
        "occurred_at": documents.microseconds(document.occurred_at),
        "message_times": documents.packed_times(document.message_times),
        **{name: stored_or_none(getattr(metadata, name)) for name in documents.TEXT_FIELDS},
        "tags": [stored(tag) for tag in metadata.tags],
        "extra": json.dumps(dict(metadata.extra)),
        "thread": stored_or_none(document.thread),
        "similarity_hash": signed(document.similarity_hash),
        "status": status,
        "origin": document.origin.value,
    }


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
        **{name: stored_or_none(getattr(metadata, name)) for name in documents.FILTERED},
        "tags": [stored(tag) for tag in metadata.tags],
        "timestamp": documents.microseconds(document.timestamp),
        "occurred_at": documents.microseconds(chunk.occurred_at),
        "speaker": stored_or_none(chunk.speaker),
        "standing": chunk.is_standing,
        "origin": chunk.origin.value,
        "thread": stored_or_none(document.thread),
        "length": words.length,
        "terms": words.keys,
        "counts": words.counts,
    }


@contextmanager
def readable(document_id: str) -> Iterator[None]:
    """Read a document's rows inside the block. Raises: BackendDataError (the rows have invalid values)."""
    try:
        yield
    except (TypeError, ValueError, OverflowError):
        message = f"The stored document {document_id!r} is damaged; run `rag-context check`."
        raise BackendDataError(COMPONENT, message) from None  # the cause may contain stored data


def document_from(row: Row) -> documents.Document:
    """The document of a row with `DOCUMENT_COLUMNS`. Raises: BackendDataError."""
    with readable(row["id"]):
        return documents.Document(
            id=read_text(row["id"]),
            tenant=tenant_from(row),
            content=read_text(row["content"]),
            content_hash=row["content_hash"],
            occurred_at=documents.moment(row["occurred_at"]),
            thread=_text_or_none(row["thread"]),
            similarity_hash=unsigned(row["similarity_hash"]),
            message_times=documents.unpacked_times(row["message_times"]),
            origin=documents.Origin.stored(row["origin"]),
            **_described(row),
        )


def listing_from(row: Row) -> documents.Listing:
    """The document of a row with `LISTING_COLUMNS`. Raises: BackendDataError."""
    with readable(row["id"]):
        id_, occurred_at = read_text(row["id"]), documents.moment(row["occurred_at"])
        origin = documents.Origin.stored(row["origin"])
        return documents.Listing(id_, occurred_at, row["status"] == INDEXED, origin, **_described(row))


def _described(row: Row) -> dict[str, Any]:
    texts = {name: read_text(row[name]) for name in ("content_type", "session_id", "source", "title")}
    metadata = documents.Metadata(
        tags=tuple(read_text(tag) for tag in row["tags"]),
        extra=dict(json.loads(row["extra"])),
        **{name: _text_or_none(row[name]) for name in documents.TEXT_FIELDS},
    )
    return {**texts, "timestamp": documents.moment(row["timestamp"]), "metadata": metadata}


def similar_values(document: documents.Document) -> tuple[object, ...]:
    """The parameters of `SIMILAR`."""
    tenant = document.tenant
    names = (stored(name) for name in (tenant.project, tenant.branch, tenant.path_hash))
    return *names, signed(document.similarity_hash), stored(document.id), MOST_DIFFERENT_BITS


def stored_from(row: Row) -> documents.Stored:
    return documents.Stored(
        row["content_hash"],
        row["status"] == INDEXED,
        tuple(row["chunks"]),
        documents.moment(row["occurred_at"]),
        documents.Origin.stored(row["origin"]),
        documents.Tenant(path_hash=read_text(row["path_hash"])).shelf,
    )


def periods_from(row: Sequence[int]) -> Periods:
    occurred, last_occurred, indexed, last_indexed = map(documents.moment, row)
    return Periods(Period(occurred, last_occurred), Period(indexed, last_indexed))


def passages_from(rows: Iterable[Row]) -> dict[str, Passage]:
    """The passages of rows with `PASSAGE_COLUMNS`, by chunk id; damaged ones are left out."""
    found: dict[str, Passage] = {}
    for row in rows:
        try:
            with readable(row["id"]):
                found[row["chunk"]] = Passage(chunk_from(row), read_text(row["id"]), **_described(row))
        except BackendDataError:
            logger.warning("the passage %s is damaged and left out; run `rag-context check`", row["chunk"])
    return found


def chunk_from(row: Row) -> documents.Chunk:
    span = documents.Span(
        row["start_char"], row["end_char"], row["start_line"], row["end_line"], read_text(row["heading"])
    )
    text, context = read_text(row["text"]), read_text(row["context"])
    at = documents.moment(row["chunk_occurred_at"])
    return documents.Chunk(
        row["chunk"],
        read_text(row["document"]),
        row["position"],
        text,
        span,
        context,
        occurred_at=at,
        speaker=_text_or_none(row["speaker"]),
        origin=documents.Origin.stored(row["chunk_origin"] or row.get("origin")),
        is_standing=row["standing"],
    )


def reference_from(row: Sequence[Any]) -> ChunkRef:
    """A chunk as ranking needs it, of a row that begins with `REFERENCE_COLUMNS`."""
    id_, document, position, content_type, thread, speaker, at = row[:REFERENCE_WIDTH]
    # One test for all four: almost no row has an escape, and a search reads hundreds of rows.
    if _ESCAPE in f"{document}{content_type}{thread}{speaker}":
        document, content_type = read_text(document), read_text(content_type)
        thread, speaker = _text_or_none(thread), _text_or_none(speaker)
    return ChunkRef(id_, document, position, content_type, thread, speaker, at)


def tenant_from(row: Row) -> documents.Tenant:
    return documents.Tenant(read_text(row["project"]), read_text(row["branch"]), read_text(row["path_hash"]))


def _text_or_none(text: str | None) -> str | None:
    return None if text is None else read_text(text)

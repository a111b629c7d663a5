"""A chunk as a point of Qdrant, and back. Stored data hangs on the names of the fields: they are never to be changed.

Qdrant before 1.20 cannot match a keyword by its beginning. So a source is also kept as numbers, each of which stands
for five bytes at one place of it: a source begins with a prefix exactly if it has the same numbers for all whole
blocks of the prefix, and for what is left over one number within the range of all that begins so.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from qdrant_client import models

from rag_context.domain import documents
from rag_context.domain.search import ChunkRef, Passage
from rag_context.errors import BackendDataError
from rag_context.stores.qdrant.qdrant_errors import COMPONENT

CHUNK_ID = "chunkId"
DOCUMENT_ID = "documentId"
POSITION = "position"
CONTENT_HASH = "contentHash"

PROJECT = "project"
BRANCH = "branch"
PATH_HASH = "pathHash"

SESSION_ID = "sessionId"
CONTENT_TYPE = "contentType"
SOURCE = "source"
SOURCE_BLOCKS = "sourceBlocks"
AGENT = "agent"
TAGS = "tags"
TIMESTAMP = "timestamp"
OCCURRED_AT = "occurredAt"

CONTENT = "content"
CONTEXT = "context"
TITLE = "title"
THREAD = "thread"
SPEAKER = "speaker"
STANDING = "standing"
OF_OWNER = "owner"
"""Marks standing instructions. Earlier versions marked those of any speaker with another value: they are not found."""

ORIGIN = "origin"
EXTRA = "extra"
HEADING = "heading"
START = "start"
END = "end"
START_LINE = "startLine"
END_LINE = "endLine"

IDENTITY = [CHUNK_ID, DOCUMENT_ID, CONTENT_HASH]
"""What shows that a point is ours: its id is in its payload too, beside that of its document."""

OF_A_HIT = [DOCUMENT_ID, POSITION, CONTENT_TYPE, THREAD, SPEAKER, OCCURRED_AT, TIMESTAMP]
"""What ranking needs of a chunk."""

BLOCK_BYTES = 5
RADIX = 257
"""A digit per byte, counted from 1; 0 stands for "the source ends here"."""

MOST_BLOCKS = 2**53 // RADIX**BLOCK_BYTES
"""Qdrant compares ranges as 64-bit floats, which are exact below 2**53."""

Payload: TypeAlias = Mapping[str, Any]


def source_blocks(source: str) -> list[int]:
    """The numbers by which a source is found by its beginning."""
    data = source.encode("utf-8", "surrogatepass")
    return [block_number(start // BLOCK_BYTES, data[start : start + BLOCK_BYTES], 0) for start in starts(data)]


def starts(data: bytes) -> range:
    return range(0, len(data), BLOCK_BYTES)


def block_number(number: int, data: bytes, filler: int) -> int:
    """The number of the block `number` of `data`; a shorter block is filled with `filler`."""
    value = number
    # Bytes count from 1: with 0 for a missing byte, a source sorts before all that continue it.
    for digit in (*(byte + 1 for byte in data), *[filler] * (BLOCK_BYTES - len(data))):
        value = value * RADIX + digit
    return value


def payload_of(document: documents.Document, chunk: documents.Chunk) -> dict[str, Any]:
    metadata, span = document.metadata, chunk.span
    payload = {
        CHUNK_ID: chunk.id,
        DOCUMENT_ID: document.id,
        POSITION: chunk.position,
        CONTENT_HASH: document.content_hash,
        PROJECT: document.tenant.project,
        BRANCH: document.tenant.branch,
        PATH_HASH: document.tenant.path_hash,
        SESSION_ID: document.session_id,
        CONTENT_TYPE: document.content_type,
        SOURCE: document.source,
        SOURCE_BLOCKS: source_blocks(document.source),
        TAGS: list(metadata.tags),
        TIMESTAMP: _stamp(document.timestamp),
        OCCURRED_AT: _stamp(chunk.occurred_at),
        CONTENT: chunk.text,
        CONTEXT: chunk.context or None,
        TITLE: document.title,
        THREAD: document.thread,
        SPEAKER: chunk.speaker,
        STANDING: OF_OWNER if chunk.is_standing else None,
        ORIGIN: chunk.origin.value,
        **{documents.wire_name(name): getattr(metadata, name) for name in documents.TEXT_FIELDS},
        # As text, so that whatever numbers and keys are in it come back as they were.
        EXTRA: json.dumps(dict(metadata.extra)) if metadata.extra else None,
        HEADING: span.heading or None,
        START: span.start,
        END: span.end,
        START_LINE: span.start_line,
        END_LINE: span.end_line,
    }
    return {key: value for key, value in payload.items() if value is not None}


def ref_of(chunk_id: str, payload: Payload | None) -> ChunkRef:
    """A chunk as ranking knows it. Raises: BackendDataError (the payload is not one of ours)."""
    try:
        stored = payload or {}
        return ChunkRef(
            id=chunk_id,
            document_id=stored[DOCUMENT_ID],
            position=stored[POSITION],
            content_type=stored[CONTENT_TYPE],
            thread=stored.get(THREAD),
            speaker=stored.get(SPEAKER),
            occurred_us=documents.microseconds(_occurred_at(stored)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(chunk_id, error) from error


def passage_of(chunk_id: str, payload: Payload | None) -> Passage:
    """A chunk as an answer shows it. Raises: BackendDataError (the payload is not one of ours)."""
    try:
        stored = payload or {}
        return Passage(
            chunk=_chunk(chunk_id, stored),
            document_id=stored[DOCUMENT_ID],
            title=stored[TITLE],
            content_type=stored[CONTENT_TYPE],
            session_id=stored[SESSION_ID],
            source=stored[SOURCE],
            timestamp=datetime.fromisoformat(stored[TIMESTAMP]),
            metadata=_metadata(stored),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(chunk_id, error) from error


def _chunk(chunk_id: str, stored: Payload) -> documents.Chunk:
    return documents.Chunk(
        id=chunk_id,
        document_id=stored[DOCUMENT_ID],
        position=stored[POSITION],
        text=stored[CONTENT],
        span=documents.Span(stored[START], stored[END], stored[START_LINE], stored[END_LINE], stored.get(HEADING, "")),
        context=stored.get(CONTEXT, ""),
        occurred_at=_occurred_at(stored),
        speaker=stored.get(SPEAKER),
        origin=documents.Origin.stored(stored.get(ORIGIN)),
        is_standing=stored.get(STANDING) == OF_OWNER,
    )


def _occurred_at(stored: Payload) -> datetime:
    return datetime.fromisoformat(stored.get(OCCURRED_AT) or stored[TIMESTAMP])


def _metadata(stored: Payload) -> documents.Metadata:
    return documents.Metadata(
        tags=tuple(stored[TAGS]),
        extra=json.loads(stored.get(EXTRA, "{}")),
        **{name: stored.get(documents.wire_name(name)) for name in documents.TEXT_FIELDS},
    )


def _stamp(at: datetime) -> str:
    return documents.aware(at).astimezone(UTC).isoformat()


def _foreign(chunk_id: str, error: Exception) -> BackendDataError:
    return BackendDataError(COMPONENT, f"The point {chunk_id!r} in Qdrant was not stored by rag-context ({error!r}).")


_OF_OURS = (DOCUMENT_ID, PATH_HASH, SOURCE_BLOCKS)
"""Fields that every point of ours has, in all versions; with indexes, so that they are counted without reading."""

OURS = models.Filter(must_not=[models.IsEmptyCondition(is_empty=models.PayloadField(key=key)) for key in _OF_OURS])
FOREIGN = models.Filter(
    should=[
        models.IsEmptyCondition(is_empty=models.PayloadField(key=key)) for key in (*_OF_OURS, CHUNK_ID, CONTENT_HASH)
    ]
)
"""Lets through what other programs stored: points without a field that all of ours have."""


def is_ours(point_id: models.ExtendedPointId, payload: Payload | None) -> bool:
    """Whether this package stored a point of which at least the fields `IDENTITY` were read."""
    stored = payload or {}
    return stored.get(CHUNK_ID) == str(point_id) and all(isinstance(stored.get(key), str) for key in IDENTITY)


def is_hit(payload: Payload | None) -> bool:
    return {DOCUMENT_ID, POSITION, CONTENT_TYPE, TIMESTAMP} <= (payload or {}).keys()


def of_documents(document_ids: Sequence[str]) -> models.Filter:
    match = models.MatchAny(any=list(document_ids))
    return models.Filter(must=[models.FieldCondition(key=DOCUMENT_ID, match=match)], must_not=OURS.must_not)


def stale_points(document_id: str, kept: Sequence[models.ExtendedPointId]) -> models.Filter:
    where = of_documents([document_id])
    if not kept:
        return where
    not_kept = models.Filter(must_not=[models.HasIdCondition(has_id=list(kept))])
    return models.Filter(must=[where, not_kept])


def point_ids(chunk_ids: Sequence[str]) -> list[models.ExtendedPointId]:
    """The ids that a point can have, each once: Qdrant rejects a whole call for one that is not a UUID."""
    return [id_ for id_ in dict.fromkeys(chunk_ids) if documents.is_uuid(id_)]

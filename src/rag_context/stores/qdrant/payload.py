"""What a point carries beside its vector, and back; ids and conditions by which points are found."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
from qdrant_client import models

from rag_context.domain.documents import Chunk, Document, Metadata, Span
from rag_context.domain.search import ChunkRef, Passage
from rag_context.domain.vectors import Vector
from rag_context.errors import BackendDataError
from rag_context.stores.qdrant import fields
from rag_context.stores.qdrant.faults import COMPONENT
from rag_context.stores.qdrant.filters import source_blocks

Payload: TypeAlias = Mapping[str, Any]


def payload_of(document: Document, chunk: Chunk) -> dict[str, Any]:
    """All fields for filters and results; fields without a value are left out."""
    metadata, span = document.metadata, chunk.span
    payload = {
        fields.CHUNK_ID: chunk.id,
        fields.DOCUMENT_ID: document.id,
        fields.POSITION: chunk.position,
        fields.CONTENT_HASH: document.content_hash,
        fields.PROJECT: document.tenant.project,
        fields.BRANCH: document.tenant.branch,
        fields.PATH_HASH: document.tenant.path_hash,
        fields.SESSION_ID: document.session_id,
        fields.CONTENT_TYPE: document.content_type,
        fields.SOURCE: document.source,
        fields.SOURCE_BLOCKS: source_blocks(document.source),
        fields.CATEGORY: metadata.category,
        fields.GAME: metadata.game,
        fields.AGENT: metadata.agent,
        fields.TAGS: list(metadata.tags),
        fields.TIMESTAMP: _stamp(document.timestamp),
        fields.CONTENT: chunk.text,
        fields.CONTEXT: chunk.context or None,
        fields.TITLE: document.title,
        fields.THREAD: document.thread,
        fields.DECISION_ID: metadata.decision_id,
        # As text, so that whatever numbers and keys are in it come back as they were.
        fields.EXTRA: json.dumps(dict(metadata.extra)) if metadata.extra else None,
        fields.HEADING: span.heading or None,
        fields.START: span.start,
        fields.END: span.end,
        fields.START_LINE: span.start_line,
        fields.END_LINE: span.end_line,
    }
    return {key: value for key, value in payload.items() if value is not None}


def ref_of(chunk_id: str, payload: Payload | None) -> ChunkRef:
    """A chunk as ranking knows it.

    Raises:
        BackendDataError: the payload is not one of ours.
    """
    try:
        stored = payload or {}
        return ChunkRef(
            id=chunk_id,
            document_id=stored[fields.DOCUMENT_ID],
            position=stored[fields.POSITION],
            content_type=stored[fields.CONTENT_TYPE],
            thread=stored.get(fields.THREAD),
        )
    except KeyError as error:
        raise _foreign(chunk_id, error) from error


def passage_of(chunk_id: str, payload: Payload | None) -> Passage:
    """A chunk as an answer shows it.

    Raises:
        BackendDataError: the payload is not one of ours.
    """
    try:
        stored = payload or {}
        return Passage(
            chunk=_chunk(chunk_id, stored),
            document_id=stored[fields.DOCUMENT_ID],
            title=stored[fields.TITLE],
            content_type=stored[fields.CONTENT_TYPE],
            session_id=stored[fields.SESSION_ID],
            source=stored[fields.SOURCE],
            timestamp=datetime.fromisoformat(stored[fields.TIMESTAMP]),
            metadata=_metadata(stored),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(chunk_id, error) from error


def _chunk(chunk_id: str, stored: Payload) -> Chunk:
    return Chunk(
        id=chunk_id,
        document_id=stored[fields.DOCUMENT_ID],
        position=stored[fields.POSITION],
        text=stored[fields.CONTENT],
        span=Span(
            stored[fields.START],
            stored[fields.END],
            stored[fields.START_LINE],
            stored[fields.END_LINE],
            stored.get(fields.HEADING, ""),
        ),
        context=stored.get(fields.CONTEXT, ""),
    )


def _metadata(stored: Payload) -> Metadata:
    return Metadata(
        agent=stored.get(fields.AGENT),
        tags=tuple(stored[fields.TAGS]),
        category=stored.get(fields.CATEGORY),
        game=stored.get(fields.GAME),
        decision_id=stored.get(fields.DECISION_ID),
        extra=json.loads(stored.get(fields.EXTRA, "{}")),
    )


def _stamp(moment: datetime) -> str:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat()


def _foreign(chunk_id: str, error: Exception) -> BackendDataError:
    return BackendDataError(COMPONENT, f"The point {chunk_id!r} in Qdrant was not stored by rag-context ({error!r}).")


def of_documents(document_ids: list[str]) -> models.Filter:
    match = models.MatchAny(any=document_ids)
    return models.Filter(must=[models.FieldCondition(key=fields.DOCUMENT_ID, match=match)])


def stale_points(document_id: str, kept: Sequence[models.ExtendedPointId]) -> models.Filter:
    """What there is of a document beside the points in `kept`."""
    where = of_documents([document_id])
    return models.Filter(must=where.must, must_not=[models.HasIdCondition(has_id=list(kept))]) if kept else where


def vector_of(record: models.Record) -> Vector:
    if not isinstance(record.vector, list):
        raise BackendDataError(COMPONENT, f"The point {str(record.id)!r} in Qdrant came without its vector.")
    return np.asarray(record.vector, dtype=np.float32)


def point_ids(chunk_ids: Sequence[str]) -> list[models.ExtendedPointId]:
    """The ids that a point can have, each once: Qdrant rejects a whole call for one that is not a UUID."""
    return [id_ for id_ in dict.fromkeys(chunk_ids) if is_uuid(id_)]


def is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False

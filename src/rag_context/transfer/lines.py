"""The JSON line of one document in an export, with its chunks and vectors."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from rag_context.api.export_lines import (
    ExportedCalibration,
    ExportedChunk,
    ExportedDocument,
    ExportedMetadata,
    ExportedModel,
    read_line,
)
from rag_context.api.index import MessageTimeFields
from rag_context.domain.documents import (
    Chunk,
    Document,
    DocumentInput,
    MessageTime,
    Metadata,
    Span,
    Tenant,
    chunk_ids,
    content_hash,
)
from rag_context.domain.vectors import Calibration, EmbeddingModel, Matrix
from rag_context.errors import InvalidInputError
from rag_context.ingest.chunk_context import message_times, speakers_of
from rag_context.provenance import stated_time, time_at

LEAST_NORM, MOST_NORM = 0.9, 1.1
"""Norms of a stored vector that count as 1."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A document with its chunks by position, and their vectors, `(n, dim) float32`, where it has them."""

    document: Document
    chunks: tuple[Chunk, ...]
    vectors: Matrix | None


def exported(moved: Moved) -> ExportedDocument:
    """The line of a document."""
    document, metadata = moved.document, moved.document.metadata
    vectors = moved.vectors
    return ExportedDocument(
        id=document.id,
        project=document.tenant.project,
        branch=document.tenant.branch,
        path_hash=document.tenant.path_hash,
        content_type=document.content_type,
        session_id=document.session_id,
        source=document.source,
        title=document.title,
        content=document.content,
        content_hash=document.content_hash,
        timestamp=document.timestamp,
        occurred_at=document.occurred_at,
        metadata=ExportedMetadata(
            agent=metadata.agent,
            tags=metadata.tags,
            category=metadata.category,
            game=metadata.game,
            decision_id=metadata.decision_id,
            extra=dict(metadata.extra),
        ),
        thread=document.thread,
        message_times=tuple(MessageTimeFields(start=each.start, at=each.at) for each in document.message_times),
        similarity_hash=f"{document.similarity_hash:016x}",
        chunks=[_chunk_line(chunk) for chunk in moved.chunks],
        vectors=None if vectors is None else base64.b64encode(vectors.astype("<f4").tobytes()).decode("ascii"),
    )


def read_moved(line: bytes, dimension: int | None) -> Moved:
    """The document of a line. Chunks that do not match the content, and invalid vectors, are left out: both can be
    made again.

    Args:
        line: as `exported` wrote it.
        dimension: the dimension of the vectors; None where they cannot be used.

    Raises:
        InvalidInputError: it is not a valid document, or its id or hash does not match its content.
    """
    read = read_line(ExportedDocument, line)
    document = _document(read)
    if not _is_uuid(document.id):
        raise InvalidInputError("its id is not one of this package")
    if content_hash(_draft(document)) != document.content_hash:
        raise InvalidInputError("its content is not what was exported")
    chunks = _chunks(document, read.chunks)
    if [chunk.id for chunk in chunks] != chunk_ids(document.id, [(chunk.context, chunk.text) for chunk in chunks]):
        return Moved(document, (), None)
    if read.vectors is None or dimension is None or not chunks:
        return Moved(document, chunks, None)
    return Moved(document, chunks, _vectors(read.vectors, len(chunks), dimension))


def model_line(model: EmbeddingModel | None) -> ExportedModel | None:
    """The model as an entry of the header."""
    if model is None:
        return None
    calibration = model.calibration
    return ExportedModel(
        name=model.name,
        dimension=model.dimension,
        fingerprint=model.fingerprint,
        window=model.window,
        query_prefix=model.query_prefix,
        document_prefix=model.document_prefix,
        calibration=ExportedCalibration(
            slope=calibration.slope,
            intercept=calibration.intercept,
            threshold=calibration.threshold,
            answerable_cosine=calibration.answerable_cosine,
        ),
    )


def model_of(line: ExportedModel | None) -> EmbeddingModel | None:
    """The model in a header."""
    if line is None:
        return None
    said = line.calibration
    return EmbeddingModel(
        name=line.name,
        dimension=line.dimension,
        fingerprint=line.fingerprint,
        window=line.window,
        calibration=Calibration(said.slope, said.intercept, said.threshold, said.answerable_cosine),
        query_prefix=line.query_prefix,
        document_prefix=line.document_prefix,
    )


def _chunk_line(chunk: Chunk) -> ExportedChunk:
    span = chunk.span
    return ExportedChunk(
        id=chunk.id,
        start=span.start,
        end=span.end,
        start_line=span.start_line,
        end_line=span.end_line,
        heading=span.heading,
        context=chunk.context,
        occurred_at=chunk.occurred_at,
    )


def _chunks(document: Document, lines: Sequence[ExportedChunk]) -> tuple[Chunk, ...]:
    spans = [Span(line.start, line.end, line.start_line, line.end_line, line.heading) for line in lines]
    times = message_times(document)
    return tuple(
        Chunk(
            line.id,
            document.id,
            position,
            document.content[span.start : span.end],
            span,
            line.context,
            occurred_at=line.occurred_at or time_at(times, span.start, span.end, document.occurred_at),
            speaker=speaker,
        )
        for position, (line, span, speaker) in enumerate(zip(lines, spans, speakers_of(document, spans), strict=True))
    )


def _document(line: ExportedDocument) -> Document:
    metadata = line.metadata
    return Document(
        id=line.id,
        tenant=Tenant(line.project, line.branch, line.path_hash),
        content_type=line.content_type,
        session_id=line.session_id,
        source=line.source,
        title=line.title,
        content=line.content,
        content_hash=line.content_hash,
        timestamp=line.timestamp,
        occurred_at=line.occurred_at or stated_time(line.content, line.content_type, metadata.extra) or line.timestamp,
        metadata=Metadata(
            agent=metadata.agent,
            tags=metadata.tags,
            category=metadata.category,
            game=metadata.game,
            decision_id=metadata.decision_id,
            extra=dict(metadata.extra),
        ),
        thread=line.thread,
        similarity_hash=int(line.similarity_hash, 16),
        message_times=tuple(MessageTime(each.start, each.at) for each in line.message_times),
    )


def _draft(document: Document) -> DocumentInput:
    return DocumentInput(
        document.content, document.content_type, document.session_id, document.source, document.metadata
    )


def _vectors(encoded: str, count: int, dimension: int) -> Matrix | None:
    """`(count, dimension) float32`; None where they are invalid."""
    try:
        numbers = np.frombuffer(base64.b64decode(encoded, validate=True), "<f4").astype(np.float32)
    except (binascii.Error, ValueError):
        return None
    if numbers.size != count * dimension:
        return None
    vectors: Matrix = numbers.reshape(count, dimension)
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    return vectors if bool(np.all((norms >= LEAST_NORM) & (norms <= MOST_NORM))) else None


def _is_uuid(text: str) -> bool:
    """Whether chunk ids can be computed from this id."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False

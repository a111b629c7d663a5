"""The JSON line of one document in an export, with its chunks and vectors.

`api.export_lines` declares the fields of a line. Those that a dataclass of `domain` has too are copied by name; written
out here is only what differs.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_context.api.export_lines import ExportedChunk, ExportedDocument, ExportedMetadata, ExportedModel, read_line
from rag_context.api.index import MessageTimeFields
from rag_context.domain import documents
from rag_context.domain.provenance import earlier_origin, stated_time, time_at
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import InvalidInputError
from rag_context.ingest.chunk_context import message_times, origins_of, speakers_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LEAST_NORM, MOST_NORM = 0.9, 1.1
"""Norms of a stored vector that count as 1."""


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document with its chunks by position, and their vectors, `(n, dim) float32`, where it has them."""

    document: documents.Document
    chunks: tuple[documents.Chunk, ...]
    vectors: Matrix | None


def document_line(entry: IndexedDocument) -> bytes:
    document, vectors = entry.document, entry.vectors
    line = {
        **fields_of(document, "tenant"),
        **fields_of(document.tenant),
        "metadata": ExportedMetadata(**fields_of(document.metadata)),
        "message_times": tuple(MessageTimeFields(**fields_of(each)) for each in document.message_times),
        "similarity_hash": f"{document.similarity_hash:016x}",
        "chunks": [
            ExportedChunk(id=chunk.id, **fields_of(chunk.span), context=chunk.context, occurred_at=chunk.occurred_at)
            for chunk in entry.chunks
        ],
        "vectors": None if vectors is None else base64.b64encode(vectors.astype("<f4").tobytes()).decode("ascii"),
    }
    return documents.for_terminals(ExportedDocument(**line).to_json())


def read_document(line: bytes, dimension: int | None) -> IndexedDocument:
    """The document of a line; chunks and vectors that are invalid, which can be made again, are left out.

    Without a `dimension` the vectors are not used. Raises: InvalidInputError (its id or hash does not match its
    content).
    """
    read = read_line(ExportedDocument, line)
    document = _document(read)
    if read.origin is None:
        spans = [documents.Span(chunk.start, chunk.end, chunk.start_line, chunk.end_line) for chunk in read.chunks]
        speakers = set(filter(None, speakers_of(document, spans)))
        origin = earlier_origin(read.content_type, read.session_id, read.source, read.thread, speakers)
        document = replace(document, origin=origin)
    if not documents.is_uuid(document.id):
        raise InvalidInputError("its id is not one of this package")
    if documents.content_hash(document) != document.content_hash:
        raise InvalidInputError("its content is not what was exported")
    chunks = _chunks(document, read.chunks)
    if [chunk.id for chunk in chunks] != documents.chunk_ids(
        document.id, [(chunk.context, chunk.text) for chunk in chunks]
    ):
        return IndexedDocument(document, (), None)
    if read.vectors is None or dimension is None or not chunks:
        return IndexedDocument(document, chunks, None)
    return IndexedDocument(document, chunks, decoded_vectors(read.vectors, len(chunks), dimension))


def model_line(model: EmbeddingModel | None) -> ExportedModel | None:
    return None if model is None else ExportedModel(**asdict(model))


def model_of(line: ExportedModel | None) -> EmbeddingModel | None:
    return None if line is None else EmbeddingModel.from_record(line.model_dump())


def fields_of(record: "DataclassInstance", *without: str) -> dict[str, Any]:
    """The fields of a dataclass by name; `dataclasses.asdict` would copy each, which takes far longer."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__ if name not in without}


def _chunks(document: documents.Document, lines: Sequence[ExportedChunk]) -> tuple[documents.Chunk, ...]:
    spans = [documents.Span(line.start, line.end, line.start_line, line.end_line, line.heading) for line in lines]
    times, speakers = message_times(document), speakers_of(document, spans)
    return tuple(
        documents.Chunk(
            line.id,
            document.id,
            position,
            document.content[span.start : span.end],
            span,
            line.context,
            # Lines of version 1 have no times: they follow from the document again.
            occurred_at=line.occurred_at or time_at(times, span.start, span.end, document.occurred_at),
            speaker=speaker,
            origin=origin,
            is_standing=is_standing,
        )
        for position, (line, span, speaker, (origin, is_standing)) in enumerate(
            zip(lines, spans, speakers, origins_of(document, spans, speakers), strict=True)
        )
    )


def _document(line: ExportedDocument) -> documents.Document:
    copied = {name: value for name, value in line if name not in ("chunks", "vectors")}
    tenant = documents.Tenant(**{name: copied.pop(name) for name in documents.Tenant.__dataclass_fields__})
    stated = line.occurred_at or stated_time(line.content, line.content_type, line.metadata.extra)
    changed = {
        "occurred_at": stated or line.timestamp,
        "metadata": documents.Metadata(**dict(line.metadata)),
        "similarity_hash": int(line.similarity_hash, 16),
        "message_times": tuple(documents.MessageTime(each.start, each.at) for each in line.message_times),
        "origin": documents.Origin.stored(line.origin),
    }
    return documents.Document(**{**copied, **changed}, tenant=tenant)


def decoded_vectors(encoded: str, count: int, dimension: int) -> Matrix | None:
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

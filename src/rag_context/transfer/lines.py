"""The JSON lines of an export: of one document, with its chunks and vectors; and of the journal.

Entries and tombstones go before the documents, so that nothing that was forgotten comes back. Links name documents, and
are taken over when all of these are there.

`api.export_lines` declares the fields of a line. Those that a dataclass of `domain` has too are copied by name; written
out here is only what differs.
"""

import base64
import binascii
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_context.api import export_lines
from rag_context.api.export_lines import ExportedChunk, ExportedDocument, ExportedMetadata, ExportedModel, read_line
from rag_context.api.index import MessageTimeFields
from rag_context.domain import documents, journal
from rag_context.domain.journal import Entry, History, Link, Location, Tombstone
from rag_context.domain.provenance import earlier_origin, stated_time
from rag_context.domain.vectors import EmbeddingModel, Matrix
from rag_context.errors import InvalidInputError
from rag_context.ingest.chunk_context import chunks_at, speakers_of
from rag_context.ports.writing import Journal

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JOURNAL_PAGE = 500

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
    ids, contexts = [line.id for line in lines], [line.context for line in lines]
    # Lines of version 1 have no times: they follow from the document again.
    return tuple(chunks_at(document, spans, ids, contexts, [line.occurred_at for line in lines]))


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


async def earlier(source: Journal, project: str | None = None) -> AsyncIterator[History]:
    """Tombstones and entries, part by part; of a project its entries alone, because tombstones name none."""
    after = ""
    while project is None and (tombstones := await source.tombstones(after, JOURNAL_PAGE)):
        yield History(tombstones=tuple(tombstones))
        after = tombstones[-1].identity
    sequence = 0
    while entries := await source.recorded(sequence, JOURNAL_PAGE):
        sequence = entries[-1].sequence
        kept = tuple(entry for entry in entries if project in (None, entry.tenant.project))
        if kept:
            yield History(entries=kept)


async def known_of(source: Journal, document_ids: Sequence[str]) -> History:
    """The links of those documents of which the journal says something."""
    links = (await source.links(document_ids)).values()
    return History(links=tuple(link for link in links if link.says_something))


def changes_line(history: History) -> bytes:
    return export_lines.ExportedChanges(
        tombstones=tuple(export_lines.ExportedTombstone(**fields_of(each)) for each in history.tombstones),
        entries=tuple(map(_entry_line, history.entries)),
        links=tuple(map(_link_line, history.links)),
    ).to_json()


def read_changes(line: export_lines.ExportedChanges) -> History:
    return History(
        tuple(Tombstone(**dict(each)) for each in line.tombstones),
        tuple(map(_entry, line.entries)),
        tuple(map(_link, line.links)),
    )


def _entry_line(entry: Entry) -> export_lines.ExportedEntry:
    fields = {**fields_of(entry, "tenant"), **fields_of(entry.tenant), "moves": journal.as_json(entry.moves)}
    return export_lines.ExportedEntry(**fields)


def _entry(line: export_lines.ExportedEntry) -> Entry:
    tenant = documents.Tenant(line.project, line.branch, line.path_hash)
    try:
        moves = journal.from_json(line.moves)
    except (TypeError, ValueError):
        raise InvalidInputError(f"The moves of entry {line.sequence} are not valid") from None
    return Entry(line.sequence, line.at, line.by, line.action, tenant, moves, line.reason, line.undoes)


def _link_line(link: Link) -> export_lines.ExportedLink:
    known = fields_of(link, "place", "tenant", "is_pinned")
    return export_lines.ExportedLink(
        **known, **fields_of(link.place, "shelf"), **fields_of(link.tenant), pinned=link.is_pinned
    )


def _link(line: export_lines.ExportedLink) -> Link:
    tenant = documents.Tenant(line.project, line.branch, line.path_hash)
    place = Location(line.id, line.content_hash, tenant.shelf, line.superseded_by)
    times = line.superseded_at, line.expires_at
    return Link(place, tenant, line.source, line.timestamp, line.reason, *times, line.pinned)

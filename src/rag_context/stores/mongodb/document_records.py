"""A document as the record that MongoDB keeps, and back.

Records of other programs do not have most fields, or have other values in them, and are read anyway.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from bson import Int64

from rag_context.domain import documents
from rag_context.domain.reports import DocumentGroup
from rag_context.domain.search import ChunkRef, Passage
from rag_context.domain.text import ANALYSER_VERSION, signed, unsigned
from rag_context.errors import BackendDataError
from rag_context.stores.mongodb.filters import split_time, tenant_of
from rag_context.stores.mongodb.mongo import COMPONENT

Entry: TypeAlias = dict[str, Any]

PENDING = "pending"
INDEXED = "indexed"
OURS = {"status": {"$in": [PENDING, INDEXED]}}
"""Lets through what this package wrote; other programs' records have no status."""
THEIRS = {"status": {"$nin": [PENDING, INDEXED]}}

WITHOUT_TEXTS = {"content": 0, "chunks": 0}
SIZE = {"status": 1, "chunkCount": 1, "termCount": 1, "revision": 1, "tenant": 1}
TIMES = {"timestamp": 1, "timestampMicros": 1, "occurredAt": 1, "occurredAtMicros": 1}
STATE = {"contentHash": 1, "status": 1, "chunks.chunkId": 1, "origin": 1, **TIMES}

TEXTS_BYTES = 1 << 20
"""Up to so many bytes of text, a document's record repeats its chunks' texts, where other programs look for them."""

_BAND_BITS = 16


def entry_of(document: documents.Document, chunks: Sequence[documents.Chunk], revision: str) -> Entry:
    """The record of a pending document, without sequence number, statistics and `termCount`, which are known later."""
    return {
        "_id": document.id,
        "tenant": tenant_of(document.tenant),
        "sessionId": document.session_id,
        **time_entry("timestamp", document.timestamp),
        **time_entry("occurredAt", document.occurred_at),
        "messageTimes": documents.packed_times(document.message_times),
        "contentType": document.content_type,
        "source": document.source,
        "title": document.title,
        "content": document.content,
        "contentHash": document.content_hash,
        "metadata": _metadata_entry(document.metadata),
        "thread": document.thread,
        "origin": document.origin.value,
        "similarityHash": Int64(signed(document.similarity_hash)),
        "status": PENDING,
        "similarityBands": similarity_bands(document.similarity_hash),
        **chunks_entry(chunks, revision),
    }


def time_entry(name: str, at: datetime) -> Entry:
    """A moment as a record keeps it, under `name` and, what is finer than a millisecond, beside it."""
    milliseconds, rest = split_time(at)
    return {name: milliseconds, f"{name}Micros": rest}


def chunks_entry(chunks: Sequence[documents.Chunk], revision: str) -> Entry:
    """The chunks in a document's record: their ids, and their texts if those are short."""
    short = sum(len(chunk.text.encode("utf-8", "surrogatepass")) for chunk in chunks) <= TEXTS_BYTES
    named = [{"chunkId": chunk.id, "vectorId": chunk.id} for chunk in chunks]
    if short:
        named = [{**name, "text": chunk.text} for name, chunk in zip(named, chunks, strict=True)]
    return {"chunks": named, "revision": revision, "chunkCount": len(chunks), "analyser": ANALYSER_VERSION}


def similarity_bands(hash_64: int) -> list[int]:
    """Four numbered parts of a hash: hashes within three bits share one of them; empty for the hash 0."""
    bits = unsigned(hash_64)
    if bits == 0:
        return []
    # Three bits that differ are in three of the four parts at most, so one part at least is equal.
    return [band << _BAND_BITS | bits >> _BAND_BITS * band & 0xFFFF for band in range(4)]


def document_of(entry: Entry) -> documents.Document:
    """The document of a record. Raises: BackendDataError (it is not a document)."""
    content = entry.get("content")
    if not isinstance(content, str):
        raise BackendDataError(COMPONENT, f"The record {str(entry['_id'])!r} is not a document: it has no content.")
    listing = listing_of(entry)
    return documents.Document(
        id=listing.id,
        tenant=tenant_from(entry.get("tenant")),
        content=content,
        content_hash=_text(entry, "contentHash"),
        occurred_at=listing.occurred_at,
        thread=_thread(entry),
        similarity_hash=similarity_of(entry),
        message_times=_message_times(entry),
        origin=documents.Origin.stored(entry.get("origin")),
        **listing.described(),
    )


def chunks_of(entry: Entry) -> list[documents.Chunk]:
    """The chunks that stand in another program's own record; all of a content that was not cut is one."""
    found = _pieces(entry)
    if not found and not is_ours(entry):
        found = [{"chunkId": str(entry["_id"]), "text": _text(entry, "content")}]
    return [chunk_from(entry, position, each) for position, each in enumerate(found)]


def span_entry(chunk: documents.Chunk) -> Entry:
    """A chunk's span in its document, its context, its time, its speaker if it has one, and its origin."""
    return {
        "start": chunk.span.start,
        "end": chunk.span.end,
        "startLine": chunk.span.start_line,
        "endLine": chunk.span.end_line,
        "heading": chunk.span.heading,
        "context": chunk.context,
        **time_entry("occurredAt", chunk.occurred_at),
        **({} if chunk.speaker is None else {"speaker": chunk.speaker}),
        "origin": chunk.origin.value,
        **({"standing": True} if chunk.is_standing else {}),
    }


def chunk_from(document: Entry, position: int, entry: Mapping[str, Any]) -> documents.Chunk:
    """The chunk of an entry as it was written."""
    text = str(entry.get("text", ""))
    span = documents.Span(
        _number(entry, "start", 0),
        _number(entry, "end", len(text)),
        _number(entry, "startLine", 1),
        _number(entry, "endLine", 1 + text.count("\n")),
        _text(entry, "heading"),
    )
    position = _number(entry, "position", position)
    id_ = _chunk_id(document, position, entry)
    at = time_of(entry, "occurredAt") or occurred_at({**document, **entry})
    speaker, context = _word(entry, "speaker"), _text(entry, "context")
    return documents.Chunk(
        id_,
        str(document["_id"]),
        position,
        text,
        span,
        context,
        occurred_at=at,
        speaker=speaker,
        origin=documents.Origin.stored(entry.get("origin")),
        is_standing=entry.get("standing") is True,
    )


def listing_of(entry: Entry) -> documents.Listing:
    source = _text(entry, "source")
    metadata = entry.get("metadata")
    return documents.Listing(
        id=str(entry["_id"]),
        title=_text(entry, "title") or source,
        content_type=_text(entry, "contentType") or documents.DOCUMENTATION,
        session_id=_text(entry, "sessionId"),
        source=source,
        timestamp=time_of(entry, "timestamp") or documents.EPOCH,
        occurred_at=occurred_at(entry),
        metadata=_metadata(metadata if isinstance(metadata, dict) else {}),
        indexed=entry.get("status") != PENDING,
        origin=documents.Origin.stored(entry.get("origin")),
    )


def group_of(entry: Entry) -> DocumentGroup:
    """The group of an entry of `MongoDocuments.field_counts`; other programs' values of another type count as none."""
    key, tags = entry["_id"], entry["_id"].get("tags")
    texts = [value if isinstance(value := key.get(name), str) else None for name in ("kind", "agent", "session")]
    own = tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()
    kind, agent, session = texts
    count, last_us = entry["count"], int(entry["last"]) * 1000
    return DocumentGroup(kind or documents.DOCUMENTATION, agent, session or "", own, int(key["day"]), count, last_us)


def passage_of(entry: Entry, chunk: documents.Chunk) -> Passage:
    listing = listing_of(entry)
    return Passage(chunk, listing.id, **listing.described())


def stored_of(entry: Entry) -> documents.Stored:
    is_indexed = entry.get("status") != PENDING
    ids, origin = tuple(ids_of_chunks(entry)), documents.Origin.stored(entry.get("origin"))
    return documents.Stored(_text(entry, "contentHash"), is_indexed, ids, occurred_at(entry), origin)


def ids_of_chunks(entry: Entry) -> list[str]:
    found = _pieces(entry)
    if not found and not is_ours(entry):
        return [str(entry["_id"])]
    return [_chunk_id(entry, position, each) for position, each in enumerate(found)]


def reference(entry: Entry, chunk_id: str, position: int) -> ChunkRef:
    kind = _text(entry, "contentType") or documents.DOCUMENTATION
    return ChunkRef(chunk_id, str(entry["_id"]), position, kind, _thread(entry))


def is_ours(entry: Entry) -> bool:
    """Whether this package wrote a record of which at least the status was read."""
    return entry.get("status") in (PENDING, INDEXED)


def similarity_of(entry: Entry) -> int:
    return unsigned(_number(entry, "similarityHash", 0))


def _chunk_id(document: Entry, position: int, entry: Mapping[str, Any]) -> str:
    return str(entry.get("chunkId") or f"{document['_id']}:{position}")


def _metadata_entry(metadata: documents.Metadata) -> Entry:
    """`extra` is one text: keys of all kinds and numbers of any size come back as they were, and a field called
    `language` cannot change how MongoDB reads the document."""
    fields = {
        **{documents.wire_name(name): getattr(metadata, name) for name in documents.TEXT_FIELDS},
        "tags": list(metadata.tags),
        "extra": json.dumps(dict(metadata.extra), ensure_ascii=False) if metadata.extra else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _metadata(entry: Mapping[str, Any]) -> documents.Metadata:
    tags = entry.get("tags")
    return documents.Metadata(
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        extra=_extra(entry.get("extra")),
        **{name: _word(entry, documents.wire_name(name)) for name in documents.TEXT_FIELDS},
    )


def _extra(value: object) -> dict[str, documents.Json]:
    try:
        extra = json.loads(value) if isinstance(value, str) else None
    except ValueError:
        return {}
    return extra if isinstance(extra, dict) else {}


def tenant_from(value: object) -> documents.Tenant:
    if value is None:
        return documents.DEFAULT_TENANT
    if not isinstance(value, Mapping):
        return documents.Tenant(str(value), "", "")
    return documents.Tenant(_text(value, "project"), _text(value, "branch"), _text(value, "pathHash"))


def _pieces(entry: Entry) -> Sequence[Mapping[str, Any]]:
    """The chunks as they were written; empty if the record has another layout."""
    found = entry.get("chunks")
    return found if isinstance(found, list) and all(isinstance(each, Mapping) for each in found) else ()


def _thread(entry: Entry) -> str | None:
    """The conversation of a record of ours; threads of other programs have no known order."""
    return _word(entry, "thread") if is_ours(entry) else None


def _text(entry: Mapping[str, Any], name: str) -> str:
    return str(entry.get(name) or "")


def _word(entry: Mapping[str, Any], name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) else None


def time_of(entry: Mapping[str, Any], name: str) -> datetime | None:
    """A moment that `time_entry` wrote; None without one."""
    at = entry.get(name)
    return (
        documents.moment(documents.microseconds(at) + _number(entry, f"{name}Micros", 0))
        if isinstance(at, datetime)
        else None
    )


def occurred_at(entry: Mapping[str, Any]) -> datetime:
    """When what a record holds was said or written, else when it was indexed."""
    return time_of(entry, "occurredAt") or time_of(entry, "timestamp") or documents.EPOCH


def _message_times(entry: Entry) -> tuple[documents.MessageTime, ...]:
    try:
        return documents.unpacked_times(_word(entry, "messageTimes"))
    except (TypeError, ValueError):
        return ()


def _number(entry: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = entry.get(name)
    return value if isinstance(value, int) else otherwise

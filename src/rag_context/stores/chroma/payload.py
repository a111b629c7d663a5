"""A chunk and its document as fields of a Chroma row, and back.

What is filtered by has fields of its own. All else is in one field as JSON, because every field of every row costs
time in every search, and so that numbers and keys come back unchanged.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rag_context.domain import documents
from rag_context.domain.search import ChunkRef, Passage
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendDataError
from rag_context.stores.chroma.chroma_api import COMPONENT, Fields, Rows, Where, either

TENANT = "tenant"
DOCUMENT_ID = "documentId"
REVISION = "revision"
CONTENT_TYPE = "contentType"
SESSION_ID = "sessionId"
SOURCE = "source"
FOLDERS = "folders"
AGENT = "agent"
TAGS = "tags"
OCCURRED_AT = "timestamp"
"""When a chunk was said or written. Earlier versions kept the time of indexing here, which counts where they wrote."""
STANDING = "standing"
ORIGIN = "origin"
OF_OWNER = "owner"
"""Marks standing instructions. Earlier versions marked those of any speaker with another value: they are not found."""

DETAILS = "details"
INDEXED_AT = "indexedAt"


def rows_of(document: documents.Document, chunks: Sequence[documents.Chunk], vectors: Matrix) -> Rows:
    """The rows of a document; `vectors` is `(len(chunks), dim) float32`."""
    return Rows(
        ids=[chunk.id for chunk in chunks],
        fields=[_fields(document, chunk) for chunk in chunks],
        texts=[chunk.text for chunk in chunks],
        vectors=vectors,
    )


def is_ours(fields: Fields) -> bool:
    """Whether this package stored a row: it has the fields that all rows of ours have."""
    return all(isinstance(fields.get(name), str) for name in (TENANT, DOCUMENT_ID, REVISION, DETAILS))


def ref_of(id_: str, fields: Fields) -> ChunkRef:
    """A chunk as ranking knows it. Raises: BackendDataError."""
    try:
        details = json.loads(fields[DETAILS])
        return ChunkRef(
            id_,
            fields[DOCUMENT_ID],
            details["position"],
            fields[CONTENT_TYPE],
            details["thread"],
            details.get("speaker"),
            fields[OCCURRED_AT],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(id_) from error


def passage_of(id_: str, fields: Fields, text: str) -> Passage:
    """A chunk as an answer shows it. Raises: BackendDataError."""
    try:
        details = json.loads(fields[DETAILS])
        return Passage(
            chunk=documents.Chunk(
                id_,
                fields[DOCUMENT_ID],
                details["position"],
                text,
                documents.Span(**details["span"]),
                details["context"],
                occurred_at=documents.moment(fields[OCCURRED_AT]),
                speaker=details.get("speaker"),
                origin=documents.Origin.stored(fields.get(ORIGIN) or details.get(ORIGIN)),
                is_standing=fields.get(STANDING) == OF_OWNER,
            ),
            document_id=fields[DOCUMENT_ID],
            title=details["title"],
            content_type=fields[CONTENT_TYPE],
            session_id=fields[SESSION_ID],
            source=fields[SOURCE],
            timestamp=documents.moment(details.get(INDEXED_AT, fields[OCCURRED_AT])),
            metadata=documents.Metadata(
                tags=tuple(details["tags"]),
                extra=details["extra"],
                **{
                    name: (fields if name in documents.FILTERED else details).get(documents.wire_name(name))
                    for name in documents.TEXT_FIELDS
                },
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(id_) from error


def tenant_name(tenant: documents.Tenant) -> str:
    """One name per tenant, whatever is in its parts."""
    return json.dumps([tenant.project, tenant.branch, tenant.path_hash], ensure_ascii=False)


def folders(source: str) -> list[str]:
    """Every beginning of a source that ends in a slash."""
    return [source[: i + 1] for i, character in enumerate(source) if character == "/"]


def _fields(document: documents.Document, chunk: documents.Chunk) -> Fields:
    metadata, span = document.metadata, chunk.span
    details = {
        "position": chunk.position,
        "span": asdict(span),
        "context": chunk.context,
        "title": document.title,
        INDEXED_AT: documents.microseconds(document.timestamp),
        "thread": document.thread,
        "speaker": chunk.speaker,
        "tags": metadata.tags,
        **{
            documents.wire_name(name): getattr(metadata, name)
            for name in documents.TEXT_FIELDS
            if name not in documents.FILTERED
        },
        "extra": dict(metadata.extra),
    }
    return {
        TENANT: tenant_name(document.tenant),
        DOCUMENT_ID: document.id,
        REVISION: document.content_hash,
        CONTENT_TYPE: document.content_type,
        SESSION_ID: document.session_id,
        SOURCE: document.source,
        FOLDERS: folders(document.source) or None,
        **{documents.wire_name(name): getattr(metadata, name) for name in documents.FILTERED},
        AGENT: metadata.agent,
        TAGS: list(dict.fromkeys(metadata.tags)) or None,
        OCCURRED_AT: documents.microseconds(chunk.occurred_at),
        STANDING: OF_OWNER if chunk.is_standing else None,
        ORIGIN: chunk.origin.value,
        DETAILS: json.dumps(details, ensure_ascii=False),
    }


def _foreign(id_: str) -> BackendDataError:
    return BackendDataError(COMPONENT, f"The row {id_!r} in Chroma was not stored by rag-context.")


OURS: Where = either([{OCCURRED_AT: {"$gte": 0}}, {OCCURRED_AT: {"$lt": 0}}])
"""Lets through rows of ours: Chroma cannot ask for rows with a field, but a comparison of numbers needs one.

So it lets rows of other programs through that have a number under this name; `is_ours` decides.
"""

"""A chunk and its document as fields of a Chroma row, and back; and `Filter` as conditions on those fields.

What is filtered by has fields of its own. All else is in one field as JSON, because every field of every row costs
time in every search, and so that numbers and keys come back unchanged. Chroma cannot ask for a prefix: the folder that
holds the prefix narrows the search, and `passes` decides in Python.
"""

import json
from collections.abc import Sequence

from rag_context.domain.documents import Chunk, Document, Metadata, Origin, Span, Tenant, microseconds, moment
from rag_context.domain.search import ChunkRef, Filter, Passage
from rag_context.domain.vectors import Matrix
from rag_context.errors import BackendDataError
from rag_context.stores.chroma.chroma_api import COMPONENT, Fields, Rows, Where, either, every

TENANT = "tenant"
DOCUMENT_ID = "documentId"
REVISION = "revision"
CONTENT_TYPE = "contentType"
SESSION_ID = "sessionId"
SOURCE = "source"
FOLDERS = "folders"
CATEGORY = "category"
GAME = "game"
TAGS = "tags"
OCCURRED_AT = "timestamp"
"""When a chunk was said or written. Earlier versions kept the time of indexing here, which counts where they wrote."""
STANDING = "standing"
OF_OWNER = "owner"
"""Marks standing instructions. Earlier versions marked those of any speaker with another value: they are not found."""

DETAILS = "details"
INDEXED_AT = "indexedAt"


def rows_of(document: Document, chunks: Sequence[Chunk], vectors: Matrix) -> Rows:
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
            chunk=Chunk(
                id_,
                fields[DOCUMENT_ID],
                details["position"],
                text,
                Span(**details["span"]),
                details["context"],
                occurred_at=moment(fields[OCCURRED_AT]),
                speaker=details.get("speaker"),
                origin=Origin.stored(details.get("origin")),
                is_standing=fields.get(STANDING) == OF_OWNER,
            ),
            document_id=fields[DOCUMENT_ID],
            title=details["title"],
            content_type=fields[CONTENT_TYPE],
            session_id=fields[SESSION_ID],
            source=fields[SOURCE],
            timestamp=moment(details.get(INDEXED_AT, fields[OCCURRED_AT])),
            metadata=Metadata(
                agent=details["agent"],
                tags=tuple(details["tags"]),
                category=fields.get(CATEGORY),
                game=fields.get(GAME),
                decision_id=details["decisionId"],
                extra=details["extra"],
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(id_) from error


def tenant_name(tenant: Tenant) -> str:
    """One name per tenant, whatever is in its parts."""
    return json.dumps([tenant.project, tenant.branch, tenant.path_hash], ensure_ascii=False)


def folders(source: str) -> list[str]:
    """Every beginning of a source that ends in a slash."""
    return [source[: i + 1] for i, character in enumerate(source) if character == "/"]


def _fields(document: Document, chunk: Chunk) -> Fields:
    metadata, span = document.metadata, chunk.span
    details = {
        "position": chunk.position,
        "span": {
            "start": span.start,
            "end": span.end,
            "start_line": span.start_line,
            "end_line": span.end_line,
            "heading": span.heading,
        },
        "context": chunk.context,
        "title": document.title,
        INDEXED_AT: microseconds(document.timestamp),
        "thread": document.thread,
        "speaker": chunk.speaker,
        "origin": chunk.origin.value,
        "agent": metadata.agent,
        "tags": metadata.tags,
        "decisionId": metadata.decision_id,
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
        CATEGORY: metadata.category,
        GAME: metadata.game,
        TAGS: list(dict.fromkeys(metadata.tags)) or None,
        OCCURRED_AT: microseconds(chunk.occurred_at),
        STANDING: OF_OWNER if chunk.is_standing else None,
        DETAILS: json.dumps(details, ensure_ascii=False),
    }


def _foreign(id_: str) -> BackendDataError:
    return BackendDataError(COMPONENT, f"The row {id_!r} in Chroma was not stored by rag-context.")


def condition(where: Filter) -> Where:
    """What lets through all that `where` does, and little else."""
    return every([{TENANT: {"$eq": tenant_name(where.tenant)}}, *_narrowing(where)])


OURS: Where = either([{OCCURRED_AT: {"$gte": 0}}, {OCCURRED_AT: {"$lt": 0}}])
"""Lets through rows of ours: Chroma cannot ask for rows with a field, but a comparison of numbers needs one.

So it lets rows of other programs through that have a number under this name; `is_ours` decides.
"""


def cheap_condition(where: Filter) -> Where:
    """As `condition`, less exact and faster: Chroma lists all that each part of a condition lets through.

    The tenant is most of a collection as a rule, so it is left out where anything else narrows.
    """
    parts = _narrowing(where)
    return every(parts) if parts else condition(where)


def passes(fields: Fields, where: Filter) -> bool:
    """Whether `where` lets a row through."""
    # Everything is compared again: the first search is made without a filter, and prefixes are only narrowed.
    at = fields.get(OCCURRED_AT, 0)
    return (
        fields.get(TENANT) == tenant_name(where.tenant)
        and all(value == fields.get(field) for field, value in _equal(where))
        and str(fields.get(SOURCE, "")).startswith(where.source_prefix or "")
        and set(where.tags) <= set(fields.get(TAGS) or ())
        and all(set(group) & set(fields.get(TAGS) or ()) for group in where.any_tags)
        and fields.get(DOCUMENT_ID) not in where.without_documents
        and (not where.standing or fields.get(STANDING) == OF_OWNER)
        and (where.since is None or at >= microseconds(where.since))
        and (where.until is None or at < microseconds(where.until))
    )


def _narrowing(where: Filter) -> list[Where]:
    """The conditions beside the tenant."""
    parts: list[Where] = [{field: {"$eq": value}} for field, value in _equal(where)]
    parts += [{TAGS: {"$contains": tag}} for tag in where.tags]
    parts += [either([{TAGS: {"$contains": tag}} for tag in group]) for group in where.any_tags if group]
    parts += [{FOLDERS: {"$contains": folder}} for folder in folders(where.source_prefix or "")[-1:]]
    if where.standing:
        parts.append({STANDING: {"$eq": OF_OWNER}})
    if where.without_documents:
        parts.append({DOCUMENT_ID: {"$nin": list(where.without_documents)}})
    if where.since is not None:
        parts.append({OCCURRED_AT: {"$gte": microseconds(where.since)}})
    if where.until is not None:
        parts.append({OCCURRED_AT: {"$lt": microseconds(where.until)}})
    return parts


def _equal(where: Filter) -> list[tuple[str, str]]:
    """The fields that must have one value, and that value."""
    required = (
        (CONTENT_TYPE, where.content_type),
        (SESSION_ID, where.session_id),
        (CATEGORY, where.category),
        (GAME, where.game),
        (SOURCE, where.source),
    )
    return [(field, value) for field, value in required if value is not None]

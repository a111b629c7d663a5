"""Stored documents by id and by list: getting, listing, similar ones, and deleting, one tenant at a time."""

import base64
import json
from datetime import datetime
from typing import Annotated, ClassVar, Literal

from rag_context.api import wire
from rag_context.api.wire import DocumentId, about, present, whole
from rag_context.domain.documents import FILTERED, Cursor
from rag_context.errors import FieldError, InvalidInputError

Readiness = Annotated[Literal["indexed", "pending"], about("pending: keyword search finds it, its vectors follow")]


class GetRequest(wire.TenantRequest):
    """Which document."""

    document_id: DocumentId


class RetrievalStats(wire.WireResponse):
    """How often searches returned a document."""

    query_count: Annotated[wire.Count, about("Searches that returned a passage of it")]
    last_retrieved: Annotated[wire.UtcTime | None, about("When the last of them was; absent: never")] = None


class DocumentResponse(wire.WireResponse):
    """What every answer says of a document."""

    document_id: str
    title: str
    content_type: str
    session_id: str
    source: str
    timestamp: wire.IndexedAt
    occurred_at: wire.OccurredAt
    metadata: wire.ReturnedMetadata
    origin: wire.OriginName = "unknown"


class ListedDocument(DocumentResponse):
    """A document without its content."""

    status: Readiness


class GetResponse(ListedDocument):
    """The document."""

    content: Annotated[str, about("The whole text, as it was stored")]
    chunks: Annotated[wire.Count, about("Number of its chunks")]
    retrieval_stats: RetrievalStats
    expires_at: Annotated[wire.UtcTime | None, about("When it is forgotten")] = None
    pinned: Annotated[bool | None, about("Whether it is kept although it expires or is old")] = None
    superseded_by: Annotated[str | None, about("The document that took its place")] = None
    reason: Annotated[str | None, about("Why it was corrected")] = None


MAX_LISTED = 100
DEFAULT_LISTED = 20
CURSOR_CHARS = 1024


_FILTERS = wire.filter_types({name: field.listed for name, field in FILTERED.items()})


class ListRequest(wire.TenantRequest, wire.DeclaredRequest, declared=_FILTERS, behind="session_id"):
    """Which documents, and where to go on. Cursors are made and read by the server only."""

    for_programs: ClassVar[frozenset[str]] = frozenset(
        {"agents", "as_of", "content_type", "facets", "min_trust", "until", "branch", "path_hash", *FILTERED}
    )

    limit: Annotated[int, whole("Maximum number of documents", DEFAULT_LISTED, ge=1, le=MAX_LISTED)] = DEFAULT_LISTED
    cursor: Annotated[
        str | None,
        about(
            "nextCursor of the page before; absent: the first page",
            min_length=1,
            max_length=CURSOR_CHARS,
            pattern=wire.PLAIN_PATTERN,
        ),
    ] = None
    content_type: Annotated[str | None, about("Only documents of this content type")] = None
    session_id: Annotated[wire.Identifier | None, about("Only documents of this session")] = None
    agents: wire.Agents = None
    tags: wire.AllTags = None
    source: wire.OfSource = None
    since: wire.Since = None
    until: wire.Until = None
    as_of: Annotated[
        wire.Instant | None, about("Only what was said or written by this moment, inclusive (RFC 3339 with offset)")
    ] = None
    min_trust: wire.MinTrust = None
    facets: Annotated[bool, about("Also count all that pass the filter, by their fields"), wire.Otherwise(False)] = (
        False
    )


MOST_VALUES = 100
"""Values of a facet that are named."""

MOST_DAYS = 366


class SessionCount(wire.WireResponse):
    """The documents of a session."""

    session_id: str
    count: wire.Count
    last: Annotated[wire.UtcTime, about("When the last of them was said or written")]
    agents: list[str]
    content_types: list[str]
    tags: list[str]


class Facets(wire.WireResponse):
    """How many documents pass the filter, and how many of them have each value, at most `MOST_VALUES` of them."""

    total: wire.Count
    content_types: Annotated[dict[str, int], about("Most documents first, here and below")]
    agents: dict[str, int]
    tags: dict[str, int]
    origins: Annotated[dict[str, int], about("Their passages by whose words they are, the most trusted first")]
    days: Annotated[dict[str, int], about("By the day (UTC) they were said or written; latest first")]
    sessions: Annotated[list[SessionCount], about("The latest first")]
    session_count: Annotated[wire.Count, about("How many sessions there are in all")]


class ListResponse(wire.WireResponse):
    """One page."""

    documents: Annotated[list[ListedDocument], about("Newest first")]
    next_cursor: Annotated[str | None, about("Cursor of the next page; absent on the last page")] = None
    facets: Annotated[
        Facets | None, about("Counts; only if asked for, and of many that take more than .1 s up to one change behind")
    ] = None
    warning: Annotated[
        str | None, about("Which values of the filter no document has, with near ones; only if none passes")
    ] = None


def write_cursor(position: Cursor) -> str:
    text = json.dumps([position.timestamp.isoformat(), position.id], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> Cursor:
    """The place that a cursor names. Raises: InvalidInputError."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        time, id_ = json.loads(text)
        position = Cursor(datetime.fromisoformat(time), id_)
        if isinstance(id_, str) and position.timestamp.tzinfo is not None and write_cursor(position) == cursor:
            return position
    except (ValueError, TypeError, RecursionError):
        pass
    message = "cursor must be the nextCursor of an earlier page; leave it out to start again"
    raise InvalidInputError(message, [FieldError("cursor", message)])


MAX_SIMILAR = 20
DEFAULT_SIMILAR = 5


class SimilarRequest(wire.TenantRequest):
    """Like which document."""

    document_id: DocumentId
    limit: Annotated[int, whole("Maximum number of documents", DEFAULT_SIMILAR, ge=1, le=MAX_SIMILAR)] = DEFAULT_SIMILAR


class SimilarDocument(DocumentResponse):
    """A document, with the passage of it that comes nearest."""

    score: Annotated[wire.Score, about("Similarity; comparable between answers of the same method")]
    content: Annotated[str, about("Its nearest passage")]


class SimilarResponse(wire.WireResponse):
    """The documents, nearest first, with a label that says how they were found."""

    results: list[SimilarDocument]
    method: Annotated[Literal["vector", "text"], about("vector: vector search; text: keyword search")]
    fallback: Annotated[bool, about("Whether keyword search had to replace vector search")]
    fallback_level: Annotated[int, about("1=vector search, 2=keyword search", ge=1, le=2)]
    warning: Annotated[str | None, about("Why the answer is degraded")] = None


MAX_DELETED = 10_000
"""Most documents that one call deletes."""

MANY = 100
"""More documents than this, or more than half of all that the tenant has, go only with `confirm`."""


class DeleteRequest(wire.TenantRequest, wire.ChoiceRequest):
    """Which documents to remove; exactly one of documentId, source and sessionId."""

    exactly_one_of: ClassVar[tuple[str, ...]] = ("document_id", "source", "session_id")

    document_id: Annotated[wire.Identifier | None, about("The document with this id")] = None
    source: Annotated[str | None, present("All documents of exactly this source", wire.SOURCE_CHARS)] = None
    session_id: Annotated[wire.Identifier | None, about("All documents of this session")] = None
    dry_run: Annotated[wire.Flag, about("Only report what would be deleted, and delete nothing")] = False
    confirm: Annotated[wire.Flag, about(f"Needed for more than {MANY} documents at once, or more than half of all")] = (
        False
    )


class DeleteResponse(wire.WireResponse):
    """What is gone, or would be."""

    deleted_count: Annotated[wire.Count, about("Number of deleted documents, or of those to delete")]
    document_ids: Annotated[list[str], about("Their ids, oldest first")]
    dry_run: bool

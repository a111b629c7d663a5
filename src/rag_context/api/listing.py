"""Listing documents, newest first, page by page."""

import base64
import json
from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from rag_context.api.get import Readiness
from rag_context.api.metadata import ReturnedMetadata
from rag_context.api.wire import (
    MAX_TAGS,
    PLAIN_PATTERN,
    SOURCE_CHARS,
    Branch,
    Identifier,
    Instant,
    Otherwise,
    Project,
    RootHash,
    Tag,
    UtcTime,
    WireRequest,
    WireResponse,
    whole,
)
from rag_context.domain.documents import Cursor
from rag_context.errors import FieldError, InvalidInputError

MAX_LISTED = 100
DEFAULT_LISTED = 20
CURSOR_CHARS = 1024


class ListRequest(WireRequest):
    """Which documents, and where to go on. Cursors are made and read by the server only."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"category", "game", "until", "branch", "path_hash"})

    limit: Annotated[
        int,
        Field(ge=1, le=MAX_LISTED, description="Maximum number of documents"),
        BeforeValidator(whole),
        Otherwise(DEFAULT_LISTED),
    ] = DEFAULT_LISTED
    cursor: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=CURSOR_CHARS,
            pattern=PLAIN_PATTERN,
            description="nextCursor of the page before; absent: the first page",
        ),
    ] = None
    content_type: Annotated[str | None, Field(description="Only documents of this content type")] = None
    session_id: Annotated[Identifier | None, Field(description="Only documents of this session")] = None
    category: Annotated[str | None, Field(description="Only documents of this category")] = None
    game: Annotated[Identifier | None, Field(description="Only documents about this game")] = None
    tags: Annotated[
        list[Tag] | None, Field(max_length=MAX_TAGS, description="Only documents that carry all of these tags")
    ] = None
    source: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=SOURCE_CHARS,
            pattern=PLAIN_PATTERN,
            description="Only documents of this source; ending in * it is a prefix",
        ),
    ] = None
    since: Annotated[
        Instant | None, Field(description="Only documents of this moment or later (RFC 3339 with offset)")
    ] = None
    until: Annotated[Instant | None, Field(description="Only documents before this moment (RFC 3339 with offset)")] = (
        None
    )
    project: Project = None
    branch: Branch = None
    path_hash: RootHash = None


class ListedDocument(WireResponse):
    """A document without its content."""

    document_id: str
    title: str
    content_type: str
    session_id: str
    source: str
    timestamp: Annotated[UtcTime, Field(description="When the content was indexed")]
    metadata: ReturnedMetadata
    status: Annotated[Readiness, Field(description="pending: keyword search finds it, its vectors follow")]


class ListResponse(WireResponse):
    """One page."""

    documents: Annotated[list[ListedDocument], Field(description="Newest first")]
    next_cursor: Annotated[str | None, Field(description="Cursor of the next page; absent on the last page")] = None


def cursor_of(place: Cursor) -> str:
    """The cursor of a place in a list."""
    text = json.dumps([place.timestamp.isoformat(), place.id], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(cursor: str) -> Cursor:
    """The place that a cursor names.

    Raises:
        InvalidInputError: It is not a cursor of this server.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        moment, id_ = json.loads(text)
        place = Cursor(datetime.fromisoformat(moment), id_)
        if isinstance(id_, str) and place.timestamp.tzinfo is not None and cursor_of(place) == cursor:
            return place
    except (ValueError, TypeError, RecursionError):
        pass
    message = "cursor must be the nextCursor of an earlier page; leave it out to start again"
    raise InvalidInputError(message, [FieldError("cursor", message)])

"""Deleting: documents by id, by source or by session, one tenant at a time."""

from typing import Annotated, ClassVar

from pydantic import Field

from rag_context.api.wire import (
    PRESENT_PATTERN,
    SOURCE_CHARS,
    Branch,
    Count,
    Identifier,
    Otherwise,
    Project,
    RootHash,
    WireRequest,
    WireResponse,
)

MAX_DELETED = 10_000
"""Most documents that one call deletes."""

MANY = 100
"""More documents than this, or more than half of all that the tenant has, go only with `confirm`."""


class DeleteRequest(WireRequest):
    """Which documents to remove; exactly one of documentId, source and sessionId."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"branch", "path_hash"})

    exactly_one_of: ClassVar[tuple[str, ...]] = ("document_id", "source", "session_id")

    document_id: Annotated[Identifier | None, Field(description="The document with this id")] = None
    source: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=SOURCE_CHARS,
            pattern=PRESENT_PATTERN,
            description="All documents of exactly this source",
        ),
    ] = None
    session_id: Annotated[Identifier | None, Field(description="All documents of this session")] = None
    dry_run: Annotated[
        bool, Field(description="Only report what would be deleted, and delete nothing"), Otherwise(False)
    ] = False
    confirm: Annotated[
        bool,
        Field(description=f"Needed to delete more than {MANY} documents at once, or more than half of all"),
        Otherwise(False),
    ] = False
    project: Project = None
    branch: Branch = None
    path_hash: RootHash = None


class DeleteResponse(WireResponse):
    """What is gone, or would be."""

    deleted_count: Annotated[Count, Field(description="Number of deleted documents, or of those to delete")]
    document_ids: Annotated[list[str], Field(description="Their ids, oldest first")]
    dry_run: bool

"""Indexing: one document by a tool, or a stream of them, and the receipts."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rag_context.api.failure import Detail
from rag_context.api.metadata import MetadataFields
from rag_context.api.wire import (
    CONTENT_PATTERN,
    IDENTIFIER_CHARS,
    PRESENT_PATTERN,
    SOURCE_CHARS,
    Branch,
    Count,
    Identifier,
    Milliseconds,
    Otherwise,
    RootHash,
    Sentences,
    WireRequest,
    WireResponse,
)

CONTENT_CHARS = 100_000
BULK_CONTENT_CHARS = 2_000_000
MAX_LIKE = 16

_REQUIRED = {
    "content_type": Sentences("Content type required"),
    "session_id": Sentences("Session ID required"),
    "source": Sentences("Source required"),
}


class IndexRequest(WireRequest):
    """A document to keep."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"agent", "branch", "path_hash"})

    sentences: ClassVar[Mapping[str, Sentences]] = {
        "content": Sentences("Content cannot be empty", "Content too large (max 100KB)"),
        **_REQUIRED,
    }

    content: Annotated[
        str,
        Field(min_length=1, max_length=CONTENT_CHARS, pattern=CONTENT_PATTERN, description="Content to index"),
    ]
    content_type: Annotated[str, Field(description="Type of content being indexed")]
    session_id: Annotated[
        str,
        Field(
            min_length=1,
            max_length=IDENTIFIER_CHARS,
            pattern=PRESENT_PATTERN,
            description="Session or document identifier",
        ),
    ]
    source: Annotated[
        str,
        Field(
            min_length=1,
            max_length=SOURCE_CHARS,
            pattern=PRESENT_PATTERN,
            description="Source file path or identifier",
        ),
    ]
    metadata: Annotated[
        MetadataFields | None,
        Field(description="Metadata of the document; further keys are stored, at most 16 KiB as JSON in all"),
    ] = None
    agent: Annotated[
        Identifier | None, Field(description="Agent making the call; absent: metadata.agent, else unknown")
    ] = None
    project: Annotated[
        Identifier | None, Field(description="Project the document belongs to; absent: the agents' own memory")
    ] = None
    branch: Branch = None
    path_hash: RootHash = None


class IndexResponse(WireResponse):
    """What became of the document."""

    success: bool
    chunks_indexed: Annotated[Count, Field(description="Number of chunks created and indexed")]
    vector_ids: Annotated[list[str], Field(description="UUIDs of the vectors; empty while they are pending")]
    latency_ms: Annotated[Milliseconds, Field(description="Total indexing latency in milliseconds")]
    document_id: Annotated[str, Field(description="Document ID")]
    status: Annotated[
        Literal["indexed", "unchanged", "replaced", "pending"],
        Field(description="pending: stored, keyword search finds it, its vectors follow"),
    ]
    warning: Annotated[str | None, Field(description="A warning to the writer")] = None
    redactions: Annotated[dict[str, int] | None, Field(description="Number of masked secrets, by kind")] = None
    duplicates_of: Annotated[list[str] | None, Field(description="Near-duplicates; nothing was dropped")] = None


class BulkLine(IndexRequest):
    """One line of a bulk stream: a document to keep, possibly read from a file."""

    sentences: ClassVar[Mapping[str, Sentences]] = {
        "content": Sentences("Content cannot be empty", "Content too large (max 2000000 characters)"),
        **_REQUIRED,
    }

    content: Annotated[
        str,
        Field(min_length=1, max_length=BULK_CONTENT_CHARS, pattern=CONTENT_PATTERN, description="Content to index"),
    ]
    from_file: Annotated[
        bool,
        Field(description="The content is that of the file named by source, which alone identifies it"),
        Otherwise(False),
    ] = False
    like: Annotated[
        list[Identifier] | None,
        Field(
            max_length=MAX_LIKE,
            description="Ids of documents with much of the same text, such as the file's earlier name: what they "
            "share is not embedded again",
        ),
    ] = None


class _Receipt(WireResponse):
    """What became of one document."""

    status: str
    line: Annotated[int | None, Field(ge=1, description="Line of the stream, counted from 1")] = None
    source: str | None = None
    document_id: str | None = None
    content_hash: Annotated[str | None, Field(description="Names this version of the document")] = None
    chunks_indexed: Count | None = None
    reason: Annotated[str | None, Field(description="Why it was rejected or deferred")] = None
    retryable: Annotated[bool | None, Field(description="The fault was not the document's: send it again later")] = None
    details: list[Detail] | None = None
    warning: str | None = None
    redactions: dict[str, int] | None = None
    duplicates_of: list[str] | None = None


class BulkReceipt(_Receipt):
    """What became of one line."""

    status: Annotated[
        Literal["indexed", "unchanged", "replaced", "deferred", "rejected"],
        Field(description="deferred: stored and found by text; its vectors follow"),
    ]


class FileReceipt(_Receipt):
    """What became of one file, or of one document in it."""

    status: Annotated[
        Literal["indexed", "unchanged", "replaced", "deferred", "rejected", "gone", "removed"],
        Field(description="gone: the file is not there any more, its document is; removed: neither is"),
    ]
    renamed_from: Annotated[str | None, Field(description="The file's earlier name")] = None
    left_out: Annotated[
        dict[str, int] | None,
        Field(description="What else a conversation holds that no person or model said, by kind"),
    ] = None
    is_skipped: Annotated[bool, Field(exclude=True)] = False
    """Rejected as what any folder holds, such as pictures."""

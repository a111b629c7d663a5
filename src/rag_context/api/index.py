"""Indexing: one document by a tool, a stream of them, or files of this machine; their metadata and their receipts."""

import json
import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from rag_context.api import wire
from rag_context.api.parsing import Detail
from rag_context.api.wire import about, present
from rag_context.domain.documents import TEXT_FIELDS, Metadata

METADATA_BYTES = 16 * 1024
KEY_CHARS = 128
_KEY_PATTERN = r"^[^\u0000]*$"

_TEXTS = {
    name: Annotated[wire.Label | None, Field(default=None, description=field.stated)]
    for name, field in TEXT_FIELDS.items()
    if name != "agent"
}


class MetadataFields(wire.DeclaredRequest, declared=_TEXTS, behind="tags"):
    """What is said about a document. Further keys are kept and returned, and cannot be filtered on."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"propertyNames": {"maxLength": KEY_CHARS, "pattern": _KEY_PATTERN}}
    )
    __pydantic_extra__: dict[str, JsonValue]

    agent: Annotated[wire.Label | None, about("Agent that produced the content")] = None
    tags: Annotated[list[wire.Tag] | None, about("Tags to filter by later", max_length=wire.MAX_TAGS)] = None

    @model_validator(mode="after")
    def _check_further_keys(self) -> "MetadataFields":
        further = self.__pydantic_extra__
        for key in [key for key, value in further.items() if value is None]:
            del further[key]
        for key, value in further.items():
            if len(key) > KEY_CHARS or "\0" in key:
                raise PydanticCustomError(
                    "metadata_key", f"metadata keys must be at most {KEY_CHARS} characters, no NUL"
                )
            if not _finite(value):
                raise PydanticCustomError(
                    "metadata_number", "metadata holds a number that JSON cannot (NaN or infinite)"
                )
        fields = self.model_dump(by_alias=True, exclude_none=True)
        if len(json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()) > METADATA_BYTES:
            raise PydanticCustomError("metadata_size", "metadata too large (max 16 KiB as JSON)")
        return self

    def to_metadata(self) -> Metadata:
        """The same in the domain's words; empty strings are no values."""
        return Metadata(
            tags=tuple(dict.fromkeys(self.tags or ())),
            extra=dict(self.__pydantic_extra__),
            **{name: getattr(self, name) or None for name in TEXT_FIELDS},
        )


def _finite(value: JsonValue) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(_finite, value))
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return True


CONTENT_CHARS = 100_000
BULK_CONTENT_CHARS = 2_000_000
MAX_LIKE = 16
MAX_MESSAGES = 200_000

_REQUIRED = {
    "content_type": wire.Sentences("Content type required"),
    "session_id": wire.Sentences("Session ID required"),
    "source": wire.Sentences("Source required"),
}


class IndexRequest(wire.WireRequest):
    """A document to keep."""

    for_programs: ClassVar[frozenset[str]] = frozenset(
        {"agent", "branch", "path_hash", "supersedes", "reason", "expires_at", "pinned", "force"}
    ) | {f"metadata.{name}" for name, field in TEXT_FIELDS.items() if not field.for_models}

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {
        "content": wire.Sentences("Content cannot be empty", "Content too large (max 100KB)"),
        **_REQUIRED,
    }

    content: Annotated[
        str, about("Content to index", min_length=1, max_length=CONTENT_CHARS, pattern=wire.CONTENT_PATTERN)
    ]
    content_type: Annotated[str, about("Type of content being indexed")]
    session_id: Annotated[str, present("Session or document identifier", wire.IDENTIFIER_CHARS)]
    source: Annotated[str, present("Source file path or identifier", wire.SOURCE_CHARS)]
    metadata: Annotated[MetadataFields | None, about("Metadata; further keys are stored, 16 KiB as JSON in all")] = None
    agent: Annotated[wire.Identifier | None, about("Agent making the call; absent: metadata.agent, else unknown")] = (
        None
    )
    occurred_at: Annotated[
        wire.Instant | None,
        about("When it was said, decided or written; absent: the date that it states itself, else now"),
    ] = None
    supersedes: Annotated[
        list[wire.Identifier] | None,
        about("Ids of documents whose place it takes: they are hidden, and kept", max_length=MAX_LIKE),
    ] = None
    reason: Annotated[
        str | None, about("Why it takes their place", max_length=wire.IDENTIFIER_CHARS, pattern=wire.PLAIN_PATTERN)
    ] = None
    expires_at: Annotated[
        wire.Instant | None, about("When it is forgotten; absent: as before, for a new document never")
    ] = None
    pinned: Annotated[bool | None, about("Kept although it expires or is old; absent: as before, at first not")] = None
    force: Annotated[bool | None, about("Store it although it was forgotten")] = None
    project: Annotated[wire.Identifier | None, about("Project of the document; absent: the agents' own memory")] = None
    branch: wire.Branch = None
    path_hash: wire.RootHash = None


class IndexResponse(wire.WireResponse):
    """What became of the document."""

    success: bool
    chunks_indexed: Annotated[wire.Count, about("Number of chunks created and indexed")]
    vector_ids: Annotated[list[str], about("UUIDs of the vectors; empty while they are pending")]
    latency_ms: Annotated[wire.Milliseconds, about("Total indexing latency in milliseconds")]
    document_id: Annotated[str, about("Document ID")]
    status: Annotated[
        Literal["indexed", "unchanged", "replaced", "pending", "forgotten"],
        about(
            "pending: stored, keyword search finds it, its vectors follow; forgotten: it was forgotten "
            "before, and nothing was stored"
        ),
    ]
    warning: Annotated[str | None, about("A warning to the writer")] = None
    redactions: Annotated[dict[str, int] | None, about("Number of masked secrets, by kind")] = None
    duplicates_of: Annotated[list[str] | None, about("Near-duplicates; nothing was dropped")] = None


class MessageTimeFields(wire.WireRequest):
    """When a message was said."""

    start: Annotated[wire.Count, about("The message's first character in the content, counted from 0")]
    at: wire.Instant


class BulkLine(IndexRequest):
    """One line of a bulk stream: a document to keep, possibly read from a file."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {
        "content": wire.Sentences("Content cannot be empty", "Content too large (max 2000000 characters)"),
        **_REQUIRED,
    }

    content: Annotated[
        str, about("Content to index", min_length=1, max_length=BULK_CONTENT_CHARS, pattern=wire.CONTENT_PATTERN)
    ]
    from_file: Annotated[
        wire.Flag, about("The content is that of the file named by source, which alone identifies it")
    ] = False
    message_times: Annotated[
        list[MessageTimeFields] | None,
        about(
            "Times of a conversation's messages, where the content does not state them all; each stands up to the next",
            max_length=MAX_MESSAGES,
        ),
    ] = None
    like: Annotated[
        list[wire.Identifier] | None,
        about(
            "Ids of documents with much of the same text, such as the file's earlier name: what they "
            "share is not embedded again",
            max_length=MAX_LIKE,
        ),
    ] = None

    origin: Annotated[
        wire.OriginName | None, about("Whose words it is; absent: as its source and its speakers say")
    ] = None

    defer_vectors: Annotated[
        wire.Flag,
        about(
            "Store a new document at once and embed it in the background: its receipt is deferred, and "
            "keyword search finds it meanwhile"
        ),
    ] = False


class _Receipt(wire.WireResponse):
    """What became of one document."""

    status: str
    line: Annotated[int | None, about("Line of the stream, counted from 1", ge=1)] = None
    source: str | None = None
    document_id: str | None = None
    content_hash: Annotated[str | None, about("Names this version of the document")] = None
    chunks_indexed: wire.Count | None = None
    reason: Annotated[str | None, about("Why it was rejected or deferred")] = None
    retryable: Annotated[bool | None, about("The fault was not the document's: send it again later")] = None
    details: list[Detail] | None = None
    warning: str | None = None
    redactions: dict[str, int] | None = None
    duplicates_of: list[str] | None = None


class BulkReceipt(_Receipt):
    """What became of one line."""

    status: Annotated[
        Literal["indexed", "unchanged", "replaced", "deferred", "rejected", "forgotten"],
        about("deferred: stored and found by text, its vectors follow; forgotten: nothing was stored"),
    ]


class FileReceipt(_Receipt):
    """What became of one file, or of one document in it."""

    status: Annotated[
        Literal["indexed", "unchanged", "replaced", "deferred", "rejected", "forgotten", "gone", "removed"],
        about("gone: the file is not there any more, its document is; removed: neither is"),
    ]
    renamed_from: Annotated[str | None, about("The file's earlier name")] = None
    content_type: Annotated[str | None, about("The kind of content that it was indexed as")] = None
    left_out: Annotated[
        dict[str, int] | None, about("What else a conversation holds that no person or model said, by kind")
    ] = None
    is_skipped: Annotated[bool, Field(exclude=True)] = False
    """Rejected as what any folder holds, such as pictures."""


class HistoryReceipt(wire.WireResponse):
    """What became of a session that a client keeps on this machine."""

    status: Annotated[
        Literal["new", "grown", "unchanged", "deleted", "skipped", "rejected"],
        about(
            "new: taken in, or found; grown: what was said since the last time; deleted: it was imported "
            "and deleted here since, and stays out; skipped: left out as asked, or without messages"
        ),
    ]
    client: str
    session_id: Annotated[str | None, about("The client's own name for it")] = None
    project: Annotated[str | None, about("Tag of the repository or folder that it ran in")] = None
    folder: str | None = None
    messages: wire.Count = 0
    documents: wire.Count = 0
    started_at: wire.Instant | None = None
    ended_at: wire.Instant | None = None
    size: Annotated[wire.Count, about("Bytes of the file, or of what a database has of it")] = 0
    path: str = ""
    reason: Annotated[str | None, about("Why it was skipped or rejected")] = None
    redactions: Annotated[dict[str, int] | None, about("Secrets that were masked, by kind")] = None
    left_out: Annotated[dict[str, int] | None, about("What else it holds, by kind")] = None


MAX_VERSIONS = 5_000
"""Documents that one question may name; some 110 bytes each."""


class VersionsRequest(wire.WireRequest):
    """Versions of documents, as the receipts named them."""

    versions: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=wire.IDENTIFIER_CHARS)], wire.Identifier],
        about("The contentHash of each document, by documentId", max_length=MAX_VERSIONS),
    ]


class VersionsResponse(wire.WireResponse):
    """Which of them are not there."""

    missing: Annotated[list[str], about("Documents that are not stored, or not in this version")]


PATH_CHARS = 4096
MAX_PATTERNS = 64
MAX_NAMED = 20
"""Of files that were left out, so many are named."""


class IndexFilesRequest(wire.WireRequest):
    """A file or folder to take in."""

    for_programs: ClassVar[frozenset[str]] = frozenset({"include"})

    path: Annotated[
        str, present("File or folder; may begin with ~ or be relative to the working directory", PATH_CHARS)
    ]
    include: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=wire.SOURCE_CHARS)]] | None,
        about("Patterns of files to index although they look generated: *.lock", max_length=MAX_PATTERNS),
    ] = None


class LeftOutFile(wire.WireResponse):
    """A file that was not taken."""

    source: str
    reason: str


class IndexFilesResponse(wire.WireResponse):
    """What became of the files so far."""

    status: Annotated[
        Literal["done", "running"], about("running: it continues; call again with the same path for the progress")
    ]
    indexed: Annotated[wire.Count, about("New documents")]
    replaced: Annotated[wire.Count, about("Documents that changed")]
    unchanged: Annotated[wire.Count, about("Unchanged documents")]
    pending: Annotated[wire.Count, about("Of the new and changed ones: stored, their vectors follow")]
    rejected: Annotated[wire.Count, about("Files that should have been read, and could not be")]
    skipped: Annotated[wire.Count, about("Files that are not text, or are generated")]
    gone: Annotated[wire.Count, about("Documents whose file is gone; they are still found")]
    left_out: Annotated[
        list[LeftOutFile], about(f"Up to {MAX_NAMED} of the rejected, then of the skipped, with the reason")
    ]

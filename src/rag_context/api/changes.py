"""Changes over time: correcting a document, its history, the journal of all changes, undoing them, forgetting, and
suggestions of what probably needs a decision."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rag_context.api import index, stored_documents, wire
from rag_context.api.wire import DocumentId, about, whole

REASON_CHARS = 1000
CONTAINED_CHARS = 1000
MAX_ENTRIES = 200
DEFAULT_ENTRIES = 20
SHOWN_IDS = 100
"""An entry names so many of its documents."""

Reason = Annotated[str | None, about("Why", max_length=REASON_CHARS, pattern=wire.PLAIN_PATTERN)]
Source = Annotated[str, Field(min_length=1, max_length=wire.SOURCE_CHARS, pattern=wire.PRESENT_PATTERN)]
EntryId = Annotated[int, whole("Number of the change in the log", ge=1)]


class CorrectRequest(wire.TenantRequest, wire.ChoiceRequest):
    """What is wrong, and what is right."""

    for_programs: ClassVar[frozenset[str]] = frozenset(
        {"agent", "source", "tags", "pinned", "project", "branch", "path_hash"}
    )
    sentences: ClassVar = {"content": wire.Sentences("Content cannot be empty", "Content too large (max 100KB)")}
    exactly_one_of: ClassVar[tuple[str, ...]] = ("document_id", "source")

    document_id: Annotated[wire.Identifier | None, about("Document to correct")] = None
    source: Annotated[Source | None, about("The only document of exactly this source")] = None
    content: Annotated[
        str, about("The whole new text", min_length=1, max_length=index.CONTENT_CHARS, pattern=wire.CONTENT_PATTERN)
    ]
    reason: Reason = None
    tags: Annotated[
        list[wire.Tag] | None, about("Its tags from now on; absent: those that it has", max_length=wire.MAX_TAGS)
    ] = None
    pinned: Annotated[bool | None, about("Keep it although it expires or is old, or no longer")] = None
    agent: Annotated[wire.Identifier | None, about("Agent making the call")] = None


class CorrectResponse(index.IndexResponse):
    """What became of the correction."""

    superseded: Annotated[list[str], about("Ids of the hidden versions; their content is kept")]


class HistoryRequest(wire.TenantRequest):
    """Of which document."""

    document_id: DocumentId


class VersionInfo(wire.WireResponse):
    """A version in a chain of corrections."""

    document_id: str
    source: str
    timestamp: wire.IndexedAt
    content_hash: str
    superseded_by: Annotated[str | None, about("The document that took its place")] = None
    superseded_at: wire.UtcTime | None = None
    reason: Annotated[str | None, about("Why it was corrected")] = None


class HistoryResponse(wire.WireResponse):
    """The chain, oldest first."""

    versions: list[VersionInfo]


class LogRequest(wire.TenantRequest):
    """Which entries."""

    limit: Annotated[int, whole("Maximum number of entries", DEFAULT_ENTRIES, ge=1, le=MAX_ENTRIES)] = DEFAULT_ENTRIES
    before: Annotated[int | None, whole("Only entries before this one; absent: the newest", ge=1)] = None


class LocationInfo(wire.WireResponse):
    """Where a document was, or is."""

    document_id: str
    content_hash: Annotated[str, about("Names the version")]
    shelf: Annotated[Literal["superseded", "trash"] | None, about("Where it is kept hidden; absent: it is found")] = (
        None
    )
    superseded_by: str | None = None


class MoveInfo(wire.WireResponse):
    """A document before and after a change; absent where it was not stored."""

    before: LocationInfo | None = None
    after: LocationInfo | None = None


class LogEntry(wire.WireResponse):
    """A change."""

    id: EntryId
    at: wire.UtcTime
    by: Annotated[str, about("Name of the key, the agent or the client")]
    operation: Literal[
        "index", "replace", "correct", "pin", "delete", "forget", "expire", "purge", "keep", "undo", "restore"
    ]
    moves: Annotated[list[MoveInfo], about(f"What it did to documents; {SHOWN_IDS} at most")]
    count: Annotated[wire.Count, about("Number of its documents")]
    source: Annotated[str | None, about("Source of the first, while it is stored")] = None
    reason: str | None = None
    undoes: Annotated[int | None, about("The entry that it took back")] = None
    undoable: Annotated[bool, about("Whether undoing it now leaves exactly what was before")]


class LogResponse(wire.WireResponse):
    """A page of the journal, newest first."""

    entries: list[LogEntry]
    next_before: Annotated[int | None, about("For the next page; absent on the last one")] = None


class UndoRequest(wire.TenantRequest):
    """Which entry."""

    id: EntryId


class UndoResponse(wire.WireResponse):
    """The entry of the undoing, which can be undone too."""

    id: EntryId
    undone: Annotated[int, about("The entry that was taken back")]
    operation: Literal["undo", "restore"]
    document_ids: list[str]


class ForgetRequest(wire.TenantRequest, wire.ChoiceRequest):
    """Which documents; exactly one of documentId, source, sessionId, agent, tag and contains."""

    exactly_one_of: ClassVar[tuple[str, ...]] = ("document_id", "source", "session_id", "agent", "tag", "contains")

    document_id: Annotated[wire.Identifier | None, about("The document with this id")] = None
    source: Annotated[Source | None, about("All documents of exactly this source")] = None
    session_id: Annotated[wire.Identifier | None, about("All documents of this session")] = None
    agent: Annotated[wire.Identifier | None, about("All documents that this agent produced")] = None
    tag: Annotated[wire.Tag | None, about("All documents with this tag")] = None
    contains: Annotated[
        str | None,
        about(
            "All documents that contain this text, whatever the case",
            min_length=1,
            max_length=CONTAINED_CHARS,
            pattern=wire.CONTENT_PATTERN,
        ),
    ] = None
    dry_run: Annotated[wire.Flag, about("Only list what would be forgotten")] = False
    purge: Annotated[
        wire.Flag, about("Remove the content for good and at once, from the trash too; this cannot be undone")
    ] = False
    confirm: Annotated[wire.Flag, about(f"Needed to purge more than {stored_documents.MANY} documents at once")] = False
    clear_queries: Annotated[
        wire.Flag, about("With purge: delete the records of all searches too, whose questions may quote it")
    ] = False
    reason: Reason = None


class ForgottenDocument(wire.WireResponse):
    """A document that is forgotten."""

    document_id: str
    source: str
    timestamp: wire.IndexedAt


class StoreSize(wire.WireResponse):
    """What one store has of them."""

    documents: wire.Count
    passages: wire.Count
    vectors: wire.Count
    derived: wire.Count


class ForgetResponse(wire.WireResponse):
    """What was forgotten, or would be."""

    dry_run: bool
    purged: Annotated[bool, about("Whether it is gone for good, or would be")]
    documents: Annotated[wire.Count, about("Documents, their superseded versions too")]
    passages: wire.Count
    vectors: wire.Count
    derived: Annotated[wire.Count, about("Rows of tags and statistics")]
    stores: Annotated[
        dict[str, StoreSize], about("The same by store; where vectors have one of their own, it has copies of passages")
    ]
    listed: Annotated[list[ForgottenDocument], about(f"The first {SHOWN_IDS}, oldest first")]
    id: Annotated[int | None, about("Number of the change in the log, by which it is undone")] = None
    queries: Annotated[wire.Count | None, about("Deleted records of searches")] = None


MAX_SUGGESTIONS = 100
DEFAULT_SUGGESTIONS = 20
EXCERPT_CHARS = 300

Kind = Literal["newerValue", "duplicate", "staleReference", "neverFound", "expiring"]
Decision = Literal["merge", "keep", "pin"]


class ReviewRequest(wire.TenantRequest):
    """How many suggestions, and where to go on."""

    limit: Annotated[
        int,
        whole(
            "A call ends after so many suggestions, or after two seconds", DEFAULT_SUGGESTIONS, ge=1, le=MAX_SUGGESTIONS
        ),
    ] = DEFAULT_SUGGESTIONS
    cursor: Annotated[
        str | None,
        about(
            "nextCursor of the call before; absent: from the newest document on",
            min_length=1,
            max_length=stored_documents.CURSOR_CHARS,
            pattern=wire.PLAIN_PATTERN,
        ),
    ] = None


class SuggestedDocument(wire.WireResponse):
    """A document that a suggestion is about."""

    document_id: str
    title: str
    source: str
    occurred_at: wire.OccurredAt
    origin: wire.OriginName
    excerpt: Annotated[str, about("What it says on this, or its beginning")]


class SuggestedCall(wire.WireResponse):
    """A call that decides; of `correct` the content is missing, which is to be written."""

    action: Literal["correct", "merge", "forget", "keep", "pin"]
    tool: str
    arguments: dict[str, Any]


class Suggestion(wire.WireResponse):
    """What probably needs a decision."""

    kind: Kind
    detail: Annotated[str, about("Why, in a sentence")]
    documents: Annotated[list[SuggestedDocument], about("Of two, the first is the later one")]
    calls: list[SuggestedCall]


class ReviewResponse(wire.WireResponse):
    """Suggestions about the documents that were examined."""

    suggestions: list[Suggestion]
    examined: Annotated[wire.Count, about("Documents that this call examined")]
    next_cursor: Annotated[str | None, about("For the next call; absent once all were examined")] = None


class DecideRequest(wire.TenantRequest):
    """A decision about a suggestion."""

    kind: Annotated[Kind, about("Kind of the suggestion")]
    document_ids: Annotated[list[wire.Identifier], about("Its documents, in their order", min_length=1, max_length=2)]
    decision: Annotated[
        Decision,
        about(
            "merge: the first document takes the place of the second, which is hidden; keep: all stays, "
            "and this is not suggested again; pin: the document never expires"
        ),
    ]
    reason: Reason = None


class DecideResponse(wire.WireResponse):
    """The decision's entry in the log."""

    id: EntryId
    operation: Literal["correct", "keep", "pin"]

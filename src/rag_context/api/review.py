"""Suggestions: what in the memory probably needs a decision, and the decision. Nothing happens by itself."""

from typing import Annotated, Any, Literal

from rag_context.api import wire
from rag_context.api.changes import EntryId, Reason
from rag_context.api.stored_documents import CURSOR_CHARS
from rag_context.api.wire import about, whole

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
            max_length=CURSOR_CHARS,
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

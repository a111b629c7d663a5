"""The request and the response about what agents were shown unasked, and what was withheld from them."""

from typing import Annotated, Literal

from rag_context.api.wire import Count, Flag, Identifier, UtcTime, WireRequest, WireResponse, about, whole

MAX_INJECTIONS = 500
DEFAULT_INJECTIONS = 50


class InjectionsRequest(WireRequest):
    """Of which session, and how many."""

    session_id: Annotated[Identifier | None, about("Session of the agent's client; absent: those of all sessions")] = (
        None
    )
    limit: Annotated[
        int, whole("Maximum number of records, the latest", DEFAULT_INJECTIONS, ge=1, le=MAX_INJECTIONS)
    ] = DEFAULT_INJECTIONS
    shown_only: Annotated[Flag, about("Leave out what was withheld")] = False


class InjectedPassage(WireResponse):
    """A passage that was shown to an agent unasked, or withheld."""

    at: UtcTime
    session_id: str
    client: str
    event: Annotated[Literal["session-start", "prompt", "action"], about("The moment of the session")]
    project: Annotated[str, about("Tag of the project that the agent worked in")]
    subject: Annotated[str | None, about("The file or the command, before an action")] = None
    shown: bool
    reason: Annotated[str | None, about("Why it was withheld")] = None
    tokens: Annotated[Count, about("What it cost; 0 if it was withheld")]
    scores: Annotated[dict[str, float], about("What it was judged by: relevance, share of the terms, ranks")]
    document_id: Annotated[str | None, about("Absent where no passage was found at all")] = None
    title: Annotated[str | None, about("Absent where the document was deleted since")] = None
    source: str | None = None
    content: Annotated[str | None, about("The passage, as it is stored now")] = None


class InjectionsResponse(WireResponse):
    """The records, newest first."""

    injections: list[InjectedPassage]
    tokens: Annotated[Count, about("Tokens that these records cost in all")]
